//! How a controller dies in a turn.

/// At which step of its next turn the controller dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Unwritten,
    Torn,
    Written,
    /// Some of what it decided has left.
    HalfSent,
}

impl Fate {
    pub const ALL: [Fate; 4] = [Fate::Unwritten, Fate::Torn, Fate::Written, Fate::HalfSent];

    /// Whether the record of its turn is not there, or not whole.
    pub fn loses_record(self) -> bool {
        matches!(self, Fate::Unwritten | Fate::Torn)
    }

    /// How many of the effects of a turn are seen. `early`: by mistake all, before the record is
    /// written.
    pub fn seen(self, effects: usize, early: bool) -> usize {
        match self {
            Fate::HalfSent => effects / 2,
            _ if early => effects,
            _ => 0,
        }
    }
}
