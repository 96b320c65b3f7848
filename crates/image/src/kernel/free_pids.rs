//! Numbers that are free in a moment.
//!
//! A process may be restored right after its death, before the kernel is done with the dead one,
//! above all where another daemon than ours collects it. It would have to take another number, or,
//! with child processes, could not be restored at all; then whoever else has one is waited for,
//! too, as most processes end soon.

use crate::kernel::procfs::{self, Stat, Status};
use std::thread;
use std::time::{Duration, Instant};

/// How long those who hold a number are waited for, and how often they are looked at.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
pub(crate) const PAUSE: Duration = Duration::from_micros(200);
/// A bit of field 9 of `/proc/PID/stat`.
const PF_EXITING: u64 = 4;

/// Waits until none of these numbers is held by somebody who is dying, or, if there is no way
/// without them, by anybody; not for long.
pub(crate) fn wait(numbers: impl Iterator<Item = libc::pid_t>, needed: bool) {
    let end = Instant::now() + LIMIT;
    for number in numbers {
        while is_awaited(number, needed) && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }
}

/// Whether there is a process or a thread of this number.
pub(crate) fn is_held(number: libc::pid_t) -> bool {
    Status::read(number).is_ok()
}

fn is_awaited(number: libc::pid_t, needed: bool) -> bool {
    if let Ok(status) = Status::read(number) {
        return needed || is_ending(number, &status);
    }
    // SAFETY: asks whether there is such a process group.
    if unsafe { libc::kill(-number, 0) } != 0 {
        return false;
    }
    let in_group = |pid: &libc::pid_t| Stat::read(*pid).is_ok_and(|s| s.field(5) == number as u64);
    let all = procfs::processes().unwrap_or_default();
    let mut members = all.into_iter().filter(in_group);
    members.all(|pid| Status::read(pid).map_or(true, |status| is_ending(pid, &status)))
}

/// Whether a process or thread will be no more without running any further.
fn is_ending(number: libc::pid_t, status: &Status) -> bool {
    match status.field("State").chars().next() {
        Some('X') => true,
        // A first thread that has ended stays until the others have.
        Some('Z') => procfs::numbers(number, "task").map_or(0, |tasks| tasks.len()) <= 1,
        _ => {
            let exits = |stat: Stat| stat.field(9) & PF_EXITING != 0;
            status.is_killed() || Stat::read(number).is_ok_and(exits)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn reader() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn who_is_killed_makes_room_and_who_lives_does_not() {
        let mut child = reader();
        let pid = child.id() as libc::pid_t;
        assert!(!is_awaited(pid, false));
        child.kill().unwrap();
        // Alive with the signal pending, exiting, or a zombie.
        assert!(is_awaited(pid, false));
        let reaper = thread::spawn(move || child.wait().unwrap());
        wait([pid].into_iter(), false);
        reaper.join().unwrap();
        assert!(!is_awaited(pid, false));
    }

    #[test]
    fn who_lives_is_waited_for_where_the_number_is_needed() {
        let mut child = reader();
        let pid = child.id() as libc::pid_t;
        wait([pid].into_iter(), false);
        assert!(child.try_wait().unwrap().is_none());
        // It ends when its input does.
        let reaper = thread::spawn(move || child.wait().unwrap());
        let begun = Instant::now();
        wait([pid].into_iter(), true);
        // On a busy machine it may take longer than is waited for it.
        assert!(Status::read(pid).is_err() || begun.elapsed() >= LIMIT);
        reaper.join().unwrap();
    }

    #[test]
    fn a_group_holds_its_number_as_long_as_its_members_live() {
        use std::os::unix::process::CommandExt;
        let mut first = Command::new("true").process_group(0).spawn().unwrap();
        let group = first.id() as libc::pid_t;
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(group);
        let mut second = cat.spawn().unwrap();
        first.wait().unwrap();
        assert!(!is_awaited(group, false));
        second.kill().unwrap();
        assert!(is_awaited(group, false));
        second.wait().unwrap();
        assert!(!is_awaited(group, false));
    }
}
