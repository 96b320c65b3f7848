//! Room for descriptors and mappings: how many a restart takes, and the limits on them.
//!
//! What a process has open is opened by the one who restores it, so that one needs as many, besides
//! its own. Soft limits are raised for that as far as they may be, hard ones where there is the
//! privilege. Of mappings the restorer has a few besides those of the process. Whether that will do
//! is known when an image is taken, and then it is refused.

use crate::error::{CaptureError, RestoreError};
use crate::resources;
use eyrie_image_format::state::{Description, State};
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::fd::RawFd;

/// Descriptors that a restart takes besides those that are counted: files that an image builds on,
/// and what is looked at for a moment.
const OTHERS: u64 = 8;

fn limit() -> libc::rlimit64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes a live structure.
    unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    limit
}

fn set(limit: libc::rlimit64) -> bool {
    // SAFETY: reads a live structure.
    unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) == 0 }
}

/// Raises the limit of this process to `needed`, or as far as that goes; never lowers it. Makes
/// system calls only.
pub fn raise(needed: u64) {
    let now = limit();
    if now.rlim_cur >= needed {
        return;
    }
    let hard = now.rlim_max.max(needed);
    // Beyond the hard limit takes a privilege.
    if !set(libc::rlimit64 { rlim_cur: needed, rlim_max: hard }) {
        set(libc::rlimit64 { rlim_cur: now.rlim_max, ..now });
    }
}

/// One past the highest number that a process of these will have for a moment, which is born with
/// `given`.
pub fn needed_of_process(states: &[&State], given: &[RawFd]) -> u64 {
    let highest = states.iter().map(|state| highest(state)).max().unwrap_or(0);
    let ours = given.iter().copied().max().unwrap_or(0) as u64;
    highest.max(ours) + given.len() as u64 + OTHERS
}

/// How many descriptors the one needs who restores these processes, besides those it has.
fn counted<'a>(states: impl Iterator<Item = &'a State>) -> u64 {
    let (mut descriptions, mut anonymous) = (HashSet::new(), HashSet::new());
    let mut others = OTHERS;
    for state in states {
        // Streams and segments are there already.
        let given = |d: &&Description| resources::kind(&d.target).is_given();
        descriptions.extend(state.descriptions.iter().filter(|d| !given(d)).map(|d| d.id));
        anonymous.extend(state.anonymous.iter().map(|o| o.id));
        // Each process has a plan, and an image.
        others += state.files.len() as u64 + 2;
    }
    // Of an object there is one to write and one to read.
    descriptions.len() as u64 + 2 * anonymous.len() as u64 + others
}

fn own() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64)
}

/// The highest limit that this process can have.
fn attainable(needed: u64) -> u64 {
    let now = limit();
    if now.rlim_max >= needed {
        return now.rlim_max;
    }
    // Tried, as privileges may be those of a user namespace.
    let raised = set(libc::rlimit64 { rlim_max: needed, ..now });
    if raised {
        set(now);
    }
    if raised { needed } else { now.rlim_max }
}

/// The limit of this process is as high as a restart needs it, and put back when this is dropped.
pub struct Room(Option<libc::rlimit64>);

impl Room {
    /// For the restart of processes with these states.
    pub fn for_restore<'a>(states: impl Iterator<Item = &'a State>) -> Result<Room, RestoreError> {
        let (before, needed) = (limit(), own() + counted(states));
        if before.rlim_cur >= needed {
            return Ok(Room(None));
        }
        raise(needed);
        let room = Room(Some(before));
        let now = limit().rlim_cur;
        if now < needed {
            return Err(RestoreError::Machine(too_many(needed, now)));
        }
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.take().map(set);
    }
}

fn too_many(needed: u64, limit: u64) -> String {
    format!(
        "restarting it takes {needed} open files at a time, and the hard limit on them is {limit} \
         here: raise it to {needed} for the one who restarts it (ulimit -Hn, LimitNOFILE=)"
    )
}

/// Refuses a process that could not be restarted from here: of its family so many descriptions are
/// open.
pub fn refuse_too_many(descriptions: usize) -> Result<(), CaptureError> {
    refuse(own() + descriptions as u64 + OTHERS)
}

/// The same of one of which all is known.
pub fn refuse_without_room(state: &State) -> Result<(), CaptureError> {
    refuse_too_many_mappings(state)?;
    let highest = highest(state) + 1;
    refuse((own() + counted(std::iter::once(state))).max(highest))
}

/// Mappings of the restorer, and such as are two for a moment.
const OTHER_MAPPINGS: usize = 32;

fn refuse_too_many_mappings(state: &State) -> Result<(), CaptureError> {
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    refuse_mappings(state.regions.len() + state.specials.len(), limit.trim().parse().ok())
}

fn refuse_mappings(mappings: usize, limit: Option<usize>) -> Result<(), CaptureError> {
    let needed = mappings + OTHER_MAPPINGS;
    match limit.filter(|&limit| limit < needed) {
        None => Ok(()),
        Some(limit) => Err(CaptureError::NotRestartable(format!(
            "it has {mappings} mappings, restarting it takes {needed} for a moment, and \
             vm.max_map_count is {limit} here: raise it (sysctl vm.max_map_count={})",
            needed.next_power_of_two().max(limit.saturating_mul(2))
        ))),
    }
}

fn refuse(needed: u64) -> Result<(), CaptureError> {
    let limit = attainable(needed);
    if limit >= needed {
        Ok(())
    } else {
        Err(CaptureError::NotRestartable(too_many(needed, limit)))
    }
}

/// Distinct descriptions among these.
pub fn distinct(ids: impl Iterator<Item = u64>) -> usize {
    ids.collect::<BTreeSet<_>>().len()
}

/// Highest descriptor number that the image uses, if only for a moment.
pub fn highest(state: &State) -> u64 {
    let kinds = state.descriptions.iter().map(|d| resources::kind(&d.target));
    let watched = kinds.flat_map(|kind| kind.numbers());
    let numbers = watched.chain(state.descriptors.iter().map(|d| d.fd));
    numbers.max().map_or(0, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image_format::testing::state;

    #[test]
    fn what_no_limit_would_do_for_is_refused_with_the_remedy() {
        assert!(refuse_too_many(3).is_ok());
        // Beyond fs.nr_open nobody may have.
        let error = refuse_too_many(1 << 31).unwrap_err().to_string();
        assert!(error.contains("ulimit -Hn") && error.contains("restart"), "{error}");
        assert!(refuse_without_room(&state()).is_ok());
    }

    #[test]
    fn mappings_need_room_for_those_of_the_restorer() {
        assert!(refuse_mappings(65_498, Some(65_530)).is_ok());
        assert!(refuse_mappings(65_499, None).is_ok());
        let error = refuse_mappings(65_499, Some(65_530)).unwrap_err().to_string();
        assert!(error.contains("sysctl vm.max_map_count=131060"), "{error}");
    }

    #[test]
    fn a_limit_is_raised_and_put_back() {
        // In a process of its own: others run beside.
        // SAFETY: the child makes system calls, reads a folder, and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let hard = limit().rlim_max;
            let low = libc::rlimit64 { rlim_cur: own() + 10, rlim_max: hard };
            let set_low = set(low);
            let state = state();
            let room = Room::for_restore(std::iter::once(&state));
            let raised = room.is_ok() && limit().rlim_cur > low.rlim_cur;
            drop(room);
            let back = limit().rlim_cur == low.rlim_cur && limit().rlim_max == hard;
            // SAFETY: ends this process.
            unsafe { libc::_exit(if set_low && raised && back { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: our own child, and a live integer.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(pid > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    }
}
