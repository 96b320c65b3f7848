//! Whether the command is in the background of its terminal, which it may leave again (`fg`).

use std::fs;
use std::io;

/// Whether a read of standard input failed only because the terminal is somebody else's for now:
/// of a shell that can bring us to the foreground.
pub fn waits_for_terminal(error: &io::Error) -> bool {
    if error.raw_os_error() != Some(libc::EIO) {
        return false;
    }
    // SAFETY: these only ask.
    let (group, front) = unsafe { (libc::getpgrp(), libc::tcgetpgrp(0)) };
    front > 0 && front != group && has_shell(group)
}

/// Whether a process of the same session that is not of this group started it: else nobody
/// continues it.
fn has_shell(group: libc::pid_t) -> bool {
    // SAFETY: these only ask.
    let (mut pid, session) = unsafe { (libc::getppid(), libc::getsid(0)) };
    while pid > 1 {
        // SAFETY: these only ask; of a process that is gone they fail.
        if unsafe { libc::getsid(pid) } != session {
            return false;
        }
        // SAFETY: as above.
        if unsafe { libc::getpgid(pid) } != group {
            return true;
        }
        let Some(parent) = parent(pid) else { return false };
        pid = parent;
    }
    false
}

fn parent(pid: libc::pid_t) -> Option<libc::pid_t> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_by_what_the_kernel_says() {
        let (own, its) = (std::process::id() as libc::pid_t, std::os::unix::process::parent_id());
        assert_eq!(parent(own), Some(its as libc::pid_t));
    }

    #[test]
    fn other_errors_end_the_input() {
        assert!(!waits_for_terminal(&io::Error::from_raw_os_error(libc::EBADF)));
    }
}
