//! File locks: POSIX record locks, `flock` locks, and record locks of an open file description.

use crate::error::CaptureError;
use crate::kernel::script::Plan;
use crate::resources::open::{Open, refused};
use eyrie_image_format::state::{Lock, lock};

const F_OFD_SETLK: u64 = 37;
/// How the step is named that takes a lock again.
const AGAIN: &str = "lock file descriptor";

/// Whether the step `what` has failed because somebody else holds the lock.
pub fn is_held(what: &str, error: i64) -> bool {
    let held = [libc::EAGAIN, libc::EACCES].map(|code| -i64::from(code));
    what.starts_with(AGAIN) && held.contains(&error)
}

/// Parses lines like `1: POSIX  ADVISORY  WRITE 359 00:13:11691 0 EOF`.
pub fn parse(this: &Open) -> Result<Vec<Lock>, CaptureError> {
    let unknown = |line: &String| {
        refused(this, format!("a file with a lease or a lock of a kind unknown to us ({line})"))
    };
    this.info.locks.iter().map(|line| parse_line(line).ok_or_else(|| unknown(line))).collect()
}

fn parse_line(line: &str) -> Option<Lock> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let kind = match fields.next()? {
        "POSIX" => lock::POSIX,
        "FLOCK" => lock::FLOCK,
        "OFDLCK" => lock::OFD,
        _ => return None,
    };
    let exclusive = fields.nth(1)? == "WRITE";
    let start: u64 = fields.nth(2)?.parse().ok()?;
    let bytes = match fields.next()? {
        "EOF" => 0,
        end => end.parse::<u64>().ok()?.checked_sub(start)?.checked_add(1)?,
    };
    Some(Lock { kind, exclusive, start, bytes })
}

/// Takes a lock again through descriptor `fd`.
pub fn take(plan: &mut Plan, fd: u64, lock: &Lock) {
    let name = format!("{AGAIN} {fd} again");
    if lock.kind == lock::FLOCK {
        let kind = if lock.exclusive { libc::LOCK_EX } else { libc::LOCK_SH } | libc::LOCK_NB;
        plan.step(name, libc::SYS_flock, &[fd, kind as u64]);
        return;
    }
    let kind = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    // struct flock: type, whence (absolute), start, length, pid.
    let at = plan.words(&[kind as u64 & 0xffff, lock.start, lock.bytes, 0]);
    let request = if lock.kind == lock::OFD { F_OFD_SETLK } else { libc::F_SETLK as u64 };
    plan.step(name, libc::SYS_fcntl, &[fd, request, at]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_is_told_apart() {
        let again = |error: i32| is_held("lock file descriptor 5 again", -i64::from(error));
        assert!(again(libc::EAGAIN) && again(libc::EACCES) && !again(libc::ENOLCK));
        assert!(!is_held("put back file descriptor 5", -i64::from(libc::EAGAIN)));
    }

    #[test]
    fn lines_of_all_kinds() {
        let parse = |line: &str| parse_line(line);
        let lock = parse("1: POSIX  ADVISORY  WRITE 359 00:13:11691 10 14").unwrap();
        assert_eq!(lock, Lock { kind: lock::POSIX, exclusive: true, start: 10, bytes: 5 });
        let lock = parse("2: OFDLCK ADVISORY  READ  -1 fd:01:77 0 EOF").unwrap();
        assert_eq!(lock, Lock { kind: lock::OFD, exclusive: false, start: 0, bytes: 0 });
        assert!(parse("1: LEASE  ACTIVE    READ  359 00:13:11691 0 EOF").is_none());
        assert!(parse("1: POSIX  ADVISORY  WRITE 359 00:13:11691 9 3").is_none());
    }
}
