//! The part of a plan that is about descriptors: what the process must do itself, because it
//! depends on its number, or on the numbers of its descriptors.

use crate::epoll;
use crate::locks;
use crate::plan::{Placed, Plan};
use crate::plan_moves::{Table, Wanted};
use crate::state::{Description, Owner, State, Target};
use crate::terminals;
use std::collections::{BTreeMap, BTreeSet};

/// Status flags of standard streams that `F_SETFL` gives back.
const STREAM_FLAGS: u32 = (libc::O_APPEND | libc::O_NONBLOCK) as u32;
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// Where the descriptors are by which the process maps what it maps.
pub struct Mapped {
    /// For each mapped file.
    pub files: Vec<u64>,
    /// For each region, the segment behind it.
    pub segments: Vec<Option<u64>>,
}

/// Highest descriptor number that the image uses, if only for a moment.
pub fn highest(state: &State) -> u64 {
    let watched = state.descriptions.iter().flat_map(|d| match &d.target {
        Target::Poll { items } => items.as_slice(),
        _ => &[],
    });
    let numbers = watched.map(|item| item.fd).chain(state.descriptors.iter().map(|d| d.fd));
    numbers.max().map_or(0, u64::from)
}

/// The numbers that the image uses.
fn taken(state: &State) -> BTreeSet<u64> {
    state.descriptors.iter().map(|d| u64::from(d.fd)).collect()
}

/// Puts all descriptors in their places. Those that are only mapped stay open elsewhere.
pub fn descriptors(plan: &mut Plan, state: &State, placed: &Placed, pid: libc::pid_t) -> Mapped {
    let mut wanted = BTreeMap::new();
    for d in &state.descriptors {
        let source = placed.descriptions[d.description as usize];
        wanted.insert(u64::from(d.fd), Wanted { source, cloexec: d.cloexec });
    }
    let kept: BTreeSet<u64> =
        placed.files.iter().copied().chain(placed.segments.iter().flatten().copied()).collect();
    let born = kept.iter().copied().chain(placed.descriptions.iter().copied());
    let mut table = Table::new(plan, born.collect(), taken(state));
    let moved = table.make_way(plan, &kept, &wanted);
    let now = |fd: u64| moved.get(&fd).copied().unwrap_or(fd);
    table.put(plan, &wanted);
    // Where each description is, by its lowest number.
    let mut places: Vec<Option<u64>> = vec![None; state.descriptions.len()];
    for d in &state.descriptors {
        let (fd, i) = (u64::from(d.fd), d.description as usize);
        let description = &state.descriptions[i];
        let first = places[i].is_none();
        places[i].get_or_insert(fd);
        if matches!(description.target, Target::Stdio { .. }) {
            let flags = u64::from(description.flags & STREAM_FLAGS);
            let args = [fd, libc::F_SETFL as u64, flags];
            plan.step(format!("set flags of stream {fd}"), libc::SYS_fcntl, &args);
        }
        if let Some(owner) = description.owner.as_ref().filter(|_| first) {
            own(plan, state, description, owner, fd, pid);
        }
    }
    epoll::register(plan, &mut table, state, &places);
    let files = placed.files.iter().map(|&fd| now(fd)).collect();
    Mapped { files, segments: placed.segments.iter().map(|fd| fd.map(now)).collect() }
}

/// Closes what was needed only to map it.
pub fn close_spare(plan: &mut Plan, state: &State) {
    Table::finish(plan, &taken(state));
}

/// What comes when nothing is closed any more: locks, and the controlling terminal.
pub fn finish(plan: &mut Plan, state: &State, pid: libc::pid_t) {
    locks(plan, state);
    terminals::control(plan, state, pid);
}

/// Takes file locks again, when nothing is closed any more: closing any descriptor of a file ends
/// the locks that the process has on it.
fn locks(plan: &mut Plan, state: &State) {
    for (i, description) in state.descriptions.iter().enumerate() {
        let holder = state.descriptors.iter().find(|d| d.description as usize == i);
        let Some(fd) = holder.map(|d| u64::from(d.fd)) else { continue };
        description.locks.iter().for_each(|lock| locks::take(plan, fd, lock));
    }
}

/// Lets signals tell of a file's readiness again.
fn own(
    plan: &mut Plan,
    state: &State,
    file: &Description,
    owner: &Owner,
    fd: u64,
    pid: libc::pid_t,
) {
    let number = if owner.pid == state.pid { pid } else { owner.pid };
    let name = format!("set the owner of file descriptor {fd}");
    let pair = u64::from(owner.kind as u32) | u64::from(number as u32) << 32;
    let at = plan.words(&[pair]);
    plan.tolerant(&name, libc::SYS_fcntl, &[fd, F_SETOWN_EX, at]);
    plan.tolerant(&name, libc::SYS_fcntl, &[fd, F_SETSIG, owner.signal as u64]);
    let flags = u64::from(file.flags);
    plan.step(name, libc::SYS_fcntl, &[fd, libc::F_SETFL as u64, flags]);
}
