//! Descriptors of processes (pidfd).
//!
//! One of a process that is in the images, alive or ended and not collected, is opened anew by its
//! number. That can only be done when all processes are made, which have all descriptors by then:
//! so something else takes its place first ([`stand_in`]), and the first process, whose
//! descriptors are those of all until each goes its own way ([`crate::skeleton`]), opens it there.
//! One of a process that nobody can name any more is made of one that was made to end.

use crate::descriptors::{Open, refused};
use crate::error::{CaptureError, RestoreError};
use crate::family::Member;
use crate::keeper;
use crate::lend;
use crate::procfs::Status;
use crate::state::{Description, Target};
use crate::stops::reap;
use crate::tree;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// `PIDFD_THREAD`: of one thread, which may be the first.
const THREAD: u32 = libc::O_EXCL as u32;
/// What `pidfd_open` takes.
const FLAGS: u32 = THREAD | libc::O_NONBLOCK as u32;

/// What a descriptor of a process is; `family`: who is in the images, also who has ended.
pub(crate) fn capture(this: &Open, family: &BTreeSet<libc::pid_t>) -> Result<Target, CaptureError> {
    let number = this.info.number("Pid", 10);
    let number = number.ok_or_else(|| CaptureError::Proc(format!("/proc/PID/fdinfo/{}", this.fd)));
    // -1: it was collected.
    let pid = number? as i64 as i32;
    if pid == this.pid {
        return Ok(Target::Process { pid });
    }
    if pid < 0 {
        return Ok(Target::Relative { pid: 0 });
    }
    if family.contains(&pid) {
        return Ok(Target::Relative { pid });
    }
    Err(refused(this, stranger(pid, family)))
}

fn stranger(pid: libc::pid_t, family: &BTreeSet<libc::pid_t>) -> String {
    if pid == 0 {
        return "a pidfd of a process in another pid namespace".into();
    }
    let first = Status::read(pid).ok().and_then(|status| status.number("Tgid", 10).ok());
    if first.is_some_and(|first| family.contains(&(first as libc::pid_t))) {
        return format!("a pidfd of a thread ({pid}) that is not the first of its process");
    }
    let name = tree::name(pid);
    format!("a pidfd of process {pid} ({name}), which is not checkpointed with this one")
}

/// One that is to be opened when all processes are made.
pub(crate) struct Pidfd {
    /// Stands in its place meanwhile.
    stand_in: RawFd,
    /// Number of its process at the checkpoint.
    pid: libc::pid_t,
    flags: u32,
}

impl Pidfd {
    /// For a description, and the descriptor that stands in its place.
    pub fn new(description: &Description, pid: libc::pid_t, stand_in: RawFd) -> Pidfd {
        Pidfd { stand_in, pid, flags: description.flags & FLAGS }
    }

    /// Opens it by `call`, a system call in the name of the process `first`, which has what stands
    /// in its place under our number.
    pub fn open(
        &self,
        members: &[Member],
        first: libc::pid_t,
        call: impl Fn(&str, libc::c_long, &[u64]) -> Result<i64, RestoreError>,
    ) -> Result<(), RestoreError> {
        let place = members.iter().position(|member| member.pid == self.pid);
        let pid = match place {
            // Alone it may have another number.
            Some(0) => first,
            Some(_) => self.pid,
            None => {
                let what = format!("a pidfd of process {}, which has no image", self.pid);
                return Err(RestoreError::Machine(what));
            }
        };
        let what = "open a pidfd again";
        let opened = call(what, libc::SYS_pidfd_open, &[pid as u64, u64::from(self.flags)])? as u64;
        call(what, libc::SYS_dup3, &[opened, self.stand_in as u64, 0])?;
        call(what, libc::SYS_close, &[opened]).map(drop)
    }
}

/// What stands in the place of one.
pub(crate) fn stand_in() -> io::Result<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from)
}

/// One of a process that has ended and was collected.
pub(crate) fn of_nobody(description: &Description) -> io::Result<OwnedFd> {
    // It stays until it is collected here.
    let pid = keeper::start_quietly(&|| {
        // SAFETY: we are the only thread of the new process.
        unsafe { libc::_exit(0) }
    })?;
    let opened = lend::process(pid, description.flags & FLAGS);
    reap(pid);
    opened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs;
    use std::os::fd::AsRawFd;

    #[test]
    fn one_of_nobody_is_of_a_process_that_was_collected() {
        let (target, flags) = (Target::Relative { pid: 0 }, libc::O_NONBLOCK as u32);
        let (owner, locks) = (None, vec![]);
        let description =
            Description { id: 1, target, flags, offset: 0, owner, shared: false, locks };
        let fd = of_nobody(&description).unwrap();
        assert_ne!(lend::poll(&fd, libc::POLLIN) & libc::POLLIN, 0);
        let info = procfs::fdinfo(std::process::id() as libc::pid_t, fd.as_raw_fd() as u32);
        let info = info.unwrap();
        assert_eq!(info.number("Pid", 10), Some(-1i64 as u64));
        assert_ne!(info.flags & libc::O_NONBLOCK as u32, 0);
    }
}
