//! What variables and events are about: the categories, by index.

/// What a variable is about; the value is the category's index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// The category that has all others.
    All = 0,
    Job = 1,
    Messages = 2,
    Log = 3,
    Recovery = 4,
    Regions = 5,
}
