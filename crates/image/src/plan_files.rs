//! The part of a plan that is about descriptors: what the process must do itself, because it
//! depends on its number, or on the numbers of its descriptors.

use crate::epoll;
use crate::locks;
use crate::plan::{Placed, Plan};
use crate::reopen::{OPEN_FLAGS, own_proc_file};
use crate::state::{Description, Owner, State, Target};
use crate::terminals;

/// Status flags of standard streams that `F_SETFL` gives back.
const STREAM_FLAGS: u32 = (libc::O_APPEND | libc::O_NONBLOCK) as u32;
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// Highest descriptor number that the image uses, if only for a moment.
pub fn highest(state: &State) -> u64 {
    let watched = state.descriptions.iter().flat_map(|d| match &d.target {
        Target::Poll { items } => items.as_slice(),
        _ => &[],
    });
    let numbers = watched.map(|item| item.fd).chain(state.descriptors.iter().map(|d| d.fd));
    numbers.max().map_or(0, u64::from)
}

/// Puts all descriptors in their places.
pub fn descriptors(plan: &mut Plan, state: &State, placed: &Placed, pid: libc::pid_t) {
    plan.step("close descriptors", libc::SYS_close_range, &[0, placed.base - 1, 0]);
    epoll::register(plan, state, placed);
    let mut from = placed.descriptions.clone();
    for d in &state.descriptors {
        let fd = u64::from(d.fd);
        let description = &state.descriptions[d.description as usize];
        let first =
            !state.descriptors.iter().any(|e| e.fd < d.fd && e.description == d.description);
        let cloexec = if d.cloexec { libc::O_CLOEXEC as u64 } else { 0 };
        let name = format!("put back file descriptor {fd}");
        match from[d.description as usize] {
            Some(source) => {
                plan.exact(name, libc::SYS_dup3, &[source, fd, cloexec], fd);
            }
            None => {
                open_own(plan, state, description, d.fd, cloexec);
                from[d.description as usize] = Some(fd);
            }
        }
        if matches!(description.target, Target::Stdio { .. }) {
            let flags = u64::from(description.flags & STREAM_FLAGS);
            let args = [fd, libc::F_SETFL as u64, flags];
            plan.step(format!("set flags of stream {fd}"), libc::SYS_fcntl, &args);
        }
        if let Some(owner) = description.owner.as_ref().filter(|_| first) {
            own(plan, state, description, owner, fd, pid);
        }
    }
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

/// Opens what only the process itself can open as descriptor `fd`: a file of its own `/proc`
/// folder. It gets the lowest number that is free, which is known: lower ones of the image were put
/// back before.
fn open_own(plan: &mut Plan, state: &State, file: &Description, fd: u32, cloexec: u64) {
    let Target::File { id, .. } = &file.target else { return };
    let taken = |n: u32| state.descriptors.iter().any(|d| d.fd == n && n < fd);
    let free = u64::from((0..fd).find(|&n| !taken(n)).unwrap_or(fd));
    let name = format!("open file descriptor {fd} again");
    let kept = libc::O_ACCMODE | OPEN_FLAGS;
    let rest = own_proc_file(state, &id.path).unwrap_or_default();
    let path = plan.text(&[b"/proc/self", rest].concat());
    let flags = u64::from(file.flags & kept as u32) | cloexec;
    let at_cwd = libc::AT_FDCWD as u64;
    plan.exact(name.clone(), libc::SYS_openat, &[at_cwd, path, flags, 0], free);
    if file.offset != 0 {
        let args = [free, file.offset, libc::SEEK_SET as u64];
        plan.step(name.clone(), libc::SYS_lseek, &args);
    }
    let fd = u64::from(fd);
    if free != fd {
        plan.exact(name.clone(), libc::SYS_dup3, &[free, fd, cloexec], fd);
        plan.step(name, libc::SYS_close, &[free]);
    } else if cloexec == 0 {
        plan.step(name, libc::SYS_fcntl, &[fd, libc::F_SETFD as u64, 0]);
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
