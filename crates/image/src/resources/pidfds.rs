//! Descriptors of processes (pidfd).
//!
//! One of a process that is in the images, alive or ended and not collected, is opened anew by its
//! number. That can only be done when all processes are made, which have all descriptors by then:
//! so something else takes its place first ([`stand_in`]), and the first process, whose descriptors
//! are those of all until each goes its own way ([`crate::restore::process_tree`]), opens it there.
//! One of a process that nobody can name any more is made of one that was made to end.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::holder;
use crate::kernel::procfs::{self, Status};
use crate::kernel::remote_descriptors;
use crate::kernel::starting::Starting;
use crate::kernel::stops::reap;
use crate::resources::open::{Open, cannot, refused, unclear};
use crate::resources::resource::{Common, Look, Made, Making, Resource};
use eyrie_image_format::state::process_tree::Member;
use eyrie_image_format::state::resources::{Process, Relative};
use eyrie_image_format::state::{Description, Target};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// `PIDFD_THREAD`: of one thread, which may be the first.
const THREAD: u32 = libc::O_EXCL as u32;
/// What `pidfd_open` takes.
const FLAGS: u32 = THREAD | libc::O_NONBLOCK as u32;

/// What fails when one cannot be opened.
const AGAIN: &str = "open a pidfd again";

impl Resource for Process {
    /// Also one of another process, or of none.
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.anonymous_inode() != Some(b"[pidfd]") {
            return Ok(None);
        }
        // Who is in the images, also who has ended.
        let family = &look.known.processes;
        let number = this.info.number("Pid", 10).ok_or_else(|| unclear(this))?;
        // -1: it was collected.
        let pid = number as i64 as i32;
        if pid == this.pid {
            return Ok(Some(Target::Process(Process { pid })));
        }
        if pid < 0 {
            return Ok(Some(Target::Relative(Relative { pid: 0 })));
        }
        if family.contains(&pid) {
            return Ok(Some(Target::Relative(Relative { pid })));
        }
        Err(refused(this, stranger(pid, family)))
    }

    fn restore(&self, d: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        later(self.pid, d, making)
    }
}

impl Resource for Relative {
    fn restore(&self, d: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        match self.pid {
            0 => of_nobody(d).map_err(|e| cannot(AGAIN, e)).map(Made::New),
            pid => later(pid, d, making),
        }
    }
}

/// One that is to be opened when all processes are made.
fn later(
    pid: libc::pid_t,
    description: &Description,
    making: &mut Making<'_>,
) -> Result<Made, RestoreError> {
    let fd = stand_in().map_err(|e| cannot(AGAIN, e))?;
    let pidfd = Pidfd { stand_in: fd.as_raw_fd(), pid, flags: description.flags & FLAGS };
    making.common.of::<Pidfds>().0.push(pidfd);
    Ok(Made::Whole(fd))
}

/// All that are to be opened when all processes are made.
#[derive(Default)]
pub(crate) struct Pidfds(pub Vec<Pidfd>);

impl Common for Pidfds {}

fn stranger(pid: libc::pid_t, family: &BTreeSet<libc::pid_t>) -> String {
    if pid == 0 {
        return "a pidfd of a process in another pid namespace".into();
    }
    let first = Status::read(pid).ok().and_then(|status| status.number("Tgid", 10).ok());
    if first.is_some_and(|first| family.contains(&(first as libc::pid_t))) {
        return format!("a pidfd of a thread ({pid}) that is not the first of its process");
    }
    let name = procfs::name(pid);
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
        let what = AGAIN;
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
fn of_nobody(description: &Description) -> io::Result<OwnedFd> {
    let _starting = Starting::begin();
    // It stays until it is collected here.
    let pid = holder::start_quietly(&|| {
        // SAFETY: we are the only thread of the new process.
        unsafe { libc::_exit(0) }
    })?;
    let opened = remote_descriptors::process(pid, description.flags & FLAGS);
    reap(pid);
    opened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_nobody_is_of_a_process_that_was_collected() {
        let (target, flags) = (Target::Relative(Relative { pid: 0 }), libc::O_NONBLOCK as u32);
        let (owner, locks) = (None, vec![]);
        let description =
            Description { id: 1, target, flags, offset: 0, owner, shared: false, locks };
        let fd = of_nobody(&description).unwrap();
        assert_ne!(remote_descriptors::poll(&fd, libc::POLLIN) & libc::POLLIN, 0);
        let info = procfs::fdinfo(std::process::id() as libc::pid_t, fd.as_raw_fd() as u32);
        let info = info.unwrap();
        assert_eq!(info.number("Pid", 10), Some(-1i64 as u64));
        assert_ne!(info.flags & libc::O_NONBLOCK as u32, 0);
    }
}
