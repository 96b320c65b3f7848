//! The other processes. All that is asked of them is the greatest of numbers that each names, so
//! that any MPI will do, and none.

use crate::error::RegionsError;
use std::ffi::{c_int, c_void};

/// Takes the greatest of each of these numbers over all processes, in place; 0: done. All
/// processes call it, as often, with as many numbers.
pub type Most = unsafe extern "C" fn(context: *mut c_void, values: *mut i64, count: c_int) -> c_int;

/// This process among the others.
#[derive(Debug)]
pub struct Peers {
    pub rank: u32,
    pub ranks: u32,
    most: Option<Most>,
    context: *mut c_void,
}

impl Peers {
    /// A process by itself.
    pub fn alone() -> Peers {
        Peers { rank: 0, ranks: 1, most: None, context: std::ptr::null_mut() }
    }

    /// A process that has its number from somewhere, and agrees with nobody.
    pub fn standalone(rank: u32) -> Peers {
        Peers { rank, ranks: rank.saturating_add(1), ..Peers::alone() }
    }

    /// Whether this process does what is done once: protecting parts of all.
    pub fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Whether there is nobody to agree with.
    pub fn silent(&self) -> bool {
        self.most.is_none()
    }

    /// # Safety
    ///
    /// `most` may be called with `context` as long as this is used.
    pub unsafe fn new(
        (rank, ranks): (c_int, c_int),
        most: Option<Most>,
        context: *mut c_void,
    ) -> Result<Peers, RegionsError> {
        let bad = |why: &str| RegionsError::Use(why.into());
        let (Ok(rank), Ok(ranks)) = (u32::try_from(rank), u32::try_from(ranks)) else {
            return Err(bad("a process has a number from 0 on"));
        };
        if rank >= ranks {
            return Err(bad("a process's number is below how many there are"));
        }
        if ranks > 1 && most.is_none() {
            return Err(bad("several processes need the function by which they agree"));
        }
        Ok(Peers { rank, ranks, most, context })
    }

    /// The greatest of each number over all processes.
    pub fn most(&self, values: &mut [i64]) -> Result<(), RegionsError> {
        let (Some(most), true) = (self.most, self.ranks > 1) else { return Ok(()) };
        let count = c_int::try_from(values.len()).unwrap_or(c_int::MAX);
        // SAFETY: whoever made this promised that it may be called; it writes `count` numbers.
        match unsafe { most(self.context, values.as_mut_ptr(), count) } {
            0 => Ok(()),
            code => Err(RegionsError::Peers(code)),
        }
    }

    /// Whether all processes did well; what went wrong here is what is told here.
    pub fn all<T>(&self, done: Result<T, RegionsError>) -> Result<T, RegionsError> {
        let mut worst = [if done.is_ok() { -1 } else { i64::from(self.rank) }];
        self.most(&mut worst)?;
        match (done, worst) {
            (Ok(_), [other]) if other >= 0 => Err(RegionsError::Other(other)),
            (done, _) => done,
        }
    }

    /// The least of a number over all processes.
    pub fn least(&self, value: i64) -> Result<i64, RegionsError> {
        let mut values = [-value];
        self.most(&mut values)?;
        Ok(-values[0])
    }

    /// Whether all processes name the same number.
    pub fn same(&self, value: i64) -> Result<bool, RegionsError> {
        let mut values = [value, -value];
        self.most(&mut values)?;
        Ok(values[0] == -values[1])
    }
}
