//! How far a loss is told by a communicator, and whose errors are the same on all of its members:
//! the hints `mpi_error_range` and `mpi_error_uniform` of ULFM's text.
//!
//! - `mpi_error_range`: `local` (a call fails that needs the lost rank), `group` (the loss of any
//!   member revokes the communicator), `universe` (that of any rank of the job does).
//! - `mpi_error_uniform`: `local` (each member has the error that it met), `create` (calls that
//!   make a communicator return an error on all members or on none), `coll` (so do all blocking
//!   collective calls).
//!
//! Kept true: who revokes by range tells all members, as `MPI_Comm_revoke` does, so they need not
//! have the same hint. A call that is uniform ends with an agreement on each member, also where its
//! arguments were refused; so all members must have the same `mpi_error_uniform`.

pub(super) const RANGE: &[u8] = b"mpi_error_range";
pub(super) const UNIFORM: &[u8] = b"mpi_error_uniform";
/// What communicators keep of info objects for this.
pub(crate) const HINTS: [&[u8]; 2] = [RANGE, UNIFORM];

/// Whose loss revokes a communicator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Range {
    /// Nobody's.
    #[default]
    Local,
    /// A member's.
    Group,
    /// That of any rank.
    Universe,
}

/// Which calls return an error on all members or on none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Uniform {
    #[default]
    Local,
    /// Those that make communicators.
    Create,
    /// All that are collective, and block.
    Coll,
}

impl Range {
    pub(super) fn of(value: &[u8]) -> Option<Range> {
        match &value.to_ascii_lowercase()[..] {
            b"local" => Some(Range::Local),
            b"group" => Some(Range::Group),
            b"universe" => Some(Range::Universe),
            _ => None,
        }
    }
}

impl Uniform {
    pub(super) fn of(value: &[u8]) -> Option<Uniform> {
        match &value.to_ascii_lowercase()[..] {
            b"local" => Some(Uniform::Local),
            b"create" | b"construct" => Some(Uniform::Create),
            b"coll" => Some(Uniform::Coll),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_known_by_their_values() {
        assert_eq!(Range::of(b"Group"), Some(Range::Group));
        assert_eq!((Range::of(b"universe"), Range::of(b"all")), (Some(Range::Universe), None));
        assert_eq!(Uniform::of(b"create"), Uniform::of(b"construct"));
        assert_eq!((Uniform::of(b"coll"), Uniform::of(b"")), (Some(Uniform::Coll), None));
        assert!(Uniform::Coll >= Uniform::Create && Uniform::default() < Uniform::Create);
    }
}
