//! What a segment's ranks record of what happens to them, and keep of what they send: the question
//! that the library and the links ask, whatever the job's mode is called.
//!
//! Kept true: the bits are those of the header (`FT_*`), which nobody else takes apart.

use crate::segment::{
    FT_CLOCK, FT_CLOCK_THREADED, FT_COORDINATED, FT_DETERMINANTS, FT_HASH, FT_LIBC, FT_LOGGED,
    FT_PROTECT, FT_REPLAY, FT_RETAIN, JobHeader,
};
use crate::units::Extent;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// What is recorded and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recording(u32);

impl Recording {
    /// Of ranks that go back by recovery units of this extent.
    pub fn of_units(extent: Extent) -> Recording {
        Recording(if extent.logs() { FT_LOGGED } else { FT_COORDINATED })
    }

    /// Of ranks that are run twice and compared. Payload goes through the log (`protects`), so that
    /// the chain covers it and not its address.
    pub fn compared() -> Recording {
        Recording(FT_DETERMINANTS | FT_HASH | FT_PROTECT)
    }

    /// The same with what MPI_Wtime gives, if outcomes are recorded at all.
    #[must_use]
    pub fn with_clock(self) -> Recording {
        self.with(FT_CLOCK)
    }

    /// The same with what the C library says.
    #[must_use]
    pub fn with_libc(self) -> Recording {
        self.with(FT_LIBC)
    }

    /// The same with the clock of programs that call MPI in several threads.
    #[must_use]
    pub fn with_threads_clock(self) -> Recording {
        self.with(FT_CLOCK_THREADED)
    }

    fn with(self, bits: u32) -> Recording {
        if self.outcomes() { Recording(self.0 | bits) } else { self }
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// What the program's code does not decide.
    pub fn outcomes(self) -> bool {
        self.has(FT_DETERMINANTS)
    }

    /// What MPI_Wtime gives.
    pub fn clock(self) -> bool {
        self.outcomes() && self.has(FT_CLOCK)
    }

    /// That also where several threads call MPI.
    pub fn threads_clock(self) -> bool {
        self.has(FT_CLOCK_THREADED)
    }

    /// What the C library says.
    pub fn libc(self) -> bool {
        self.outcomes() && self.has(FT_LIBC)
    }

    /// Payload is kept until the receiver's checkpoints cover it.
    pub fn retains(self) -> bool {
        self.has(FT_RETAIN)
    }

    /// Every channel has a chain of hashes.
    pub fn chains(self) -> bool {
        self.has(FT_HASH)
    }

    /// Nobody reads out of a rank's own memory, as it may come back.
    pub fn protects(self) -> bool {
        self.has(FT_PROTECT)
    }

    /// A rank is run again without the others.
    pub fn is_replay(self) -> bool {
        self.has(FT_REPLAY)
    }

    /// As the header has it.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl JobHeader {
    /// What ranks record and keep.
    pub fn recording(&self) -> Recording {
        Recording(self.ft.load(Relaxed))
    }

    /// A rank is run again without the others from now on.
    pub fn becomes_replay(&self) {
        self.ft.fetch_or(FT_REPLAY, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_between_units_something_is_recorded_and_kept() {
        for extent in [Extent::Rank, Extent::Node, Extent::Cluster] {
            let recording = Recording::of_units(extent);
            assert!(recording.outcomes() && recording.retains() && recording.protects());
            assert!(!recording.chains() && !recording.clock() && !recording.is_replay());
        }
        let one = Recording::of_units(Extent::Job);
        assert!(one.protects() && !one.outcomes() && !one.retains());
        assert!(Recording::compared().chains() && !Recording::compared().retains());
    }

    #[test]
    fn clocks_are_recorded_with_outcomes_or_not_at_all() {
        let all = |r: Recording| r.with_clock().with_libc().with_threads_clock();
        let (none, one) = (Recording::default(), Recording::of_units(Extent::Job));
        assert_eq!((all(none), all(one)), (none, one));
        let logged = Recording::of_units(Extent::Rank);
        assert!(all(logged).clock() && all(logged).libc() && all(logged).threads_clock());
        assert_eq!(logged.with_clock().bits(), FT_LOGGED | FT_CLOCK);
    }
}
