//! What every kind of resource can say of itself ([`crate::state::resources`]).

use crate::state::objects::AnonymousObject;

/// What the rest of the image says that a kind may refer to.
pub struct Around<'a> {
    /// Number of open file descriptions.
    pub descriptions: usize,
    /// Shared objects without a path.
    pub objects: &'a [AnonymousObject],
}

/// What every kind can say of itself.
pub trait Described {
    /// Whether it can be believed.
    fn holds(&self, around: &Around<'_>) -> bool;

    /// Its kind, in a word, and what tells it from others.
    fn describe(&self, around: &Around<'_>) -> (&'static str, String);

    /// Addresses of the process that it takes, besides its regions.
    fn ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

/// Bytes that are text most often, for people.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
