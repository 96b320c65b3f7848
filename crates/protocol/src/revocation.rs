//! That a communicator is revoked, as one member knows it: a reliable broadcast, by which either
//! all members that live come to know it, or none.
//!
//! Members are told of failures, never wrongly, each at its own time. What is sent between two that
//! live arrives; what a member has sent that fails may be lost.
//!
//! Kept true: whoever tells others tells all. So one that was told has nothing to do while the one
//! that told it lives, who does not stop half-way; if that one fails, it tells all itself. Without
//! failures it takes one message to each member, not one between any two.

/// Mistakes for the simulation to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Says nothing when who told it fails.
    KeepsQuiet,
    /// Says nothing when who told it had failed before.
    TrustsTheDead,
}

/// What a member knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Revocation {
    knowledge: Knowledge,
    mistake: Option<Mistake>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Knowledge {
    #[default]
    None,
    /// As this member has told it.
    Heard { from: u32 },
    /// All were told by this one.
    Told,
}

/// Whether all others are to be told now.
pub type Tell = bool;

impl Revocation {
    #[must_use]
    pub fn with_mistake(mistake: Option<Mistake>) -> Revocation {
        Revocation { mistake, ..Revocation::default() }
    }

    pub fn is_known(&self) -> bool {
        self.knowledge != Knowledge::None
    }

    /// This member revokes.
    pub fn begin(&mut self) -> Tell {
        !self.is_known() && self.tell()
    }

    /// Another one says so; whether that one has failed, as far as is known.
    pub fn hear(&mut self, from: u32, has_failed: bool) -> Tell {
        if self.is_known() {
            return false;
        }
        self.knowledge = Knowledge::Heard { from };
        has_failed && !self.has(Mistake::TrustsTheDead) && self.tell()
    }

    /// A member has failed.
    pub fn fail(&mut self, member: u32) -> Tell {
        let concerns = self.knowledge == Knowledge::Heard { from: member };
        concerns && !self.has(Mistake::KeepsQuiet) && self.tell()
    }

    fn tell(&mut self) -> Tell {
        self.knowledge = Knowledge::Told;
        true
    }

    fn has(&self, mistake: Mistake) -> bool {
        cfg!(any(test, feature = "testing")) && self.mistake == Some(mistake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_told_passes_it_on_when_the_teller_fails() {
        let mut first = Revocation::default();
        assert!(first.begin() && !first.begin() && !first.fail(3));
        let mut second = Revocation::default();
        assert!(!second.is_known() && !second.hear(0, false) && second.is_known());
        assert!(!second.begin() && !second.hear(1, true) && !second.fail(1));
        assert!(second.fail(0) && !second.fail(0));
        let mut third = Revocation::default();
        assert!(!third.fail(0) && third.hear(0, true) && !third.hear(1, false));
    }
}
