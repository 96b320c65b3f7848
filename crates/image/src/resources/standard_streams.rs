//! Streams to somebody outside: only the standard ones can be given anew, wherever the program has
//! them.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::script::Plan;
use crate::resources::given_streams::GivenStreams;
use crate::resources::open::{Open, refused};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Stdio;
use eyrie_image_format::state::{Description, Target};
use std::os::fd::AsRawFd;

/// Status flags of standard streams that `F_SETFL` gives back.
const STREAM_FLAGS: u32 = (libc::O_APPEND | libc::O_NONBLOCK) as u32;

impl Resource for Stdio {
    /// Asked last: it is none of the processes' own.
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        let shown = this.shown();
        let outside = match this.kind() {
            libc::S_IFIFO => format!("a pipe to a process outside ({shown})"),
            libc::S_IFSOCK => format!("a socket to a process outside ({shown})"),
            libc::S_IFCHR => format!("a terminal or device ({shown})"),
            _ => return Ok(None),
        };
        match which(this, look.all, &look.known.given) {
            Some(which) => Ok(Some(Target::Stdio(Stdio { which }))),
            None => Err(refused(this, outside)),
        }
    }

    fn restore(&self, _: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        Ok(Made::There(making.stdio[self.which as usize % 3].as_raw_fd()))
    }

    fn is_given(&self) -> bool {
        true
    }

    fn place(&self, plan: &mut Plan, description: &Description, fd: u64) {
        let args = [fd, libc::F_SETFL as u64, u64::from(description.flags & STREAM_FLAGS)];
        plan.step(format!("set flags of stream {fd}"), libc::SYS_fcntl, &args);
    }
}

/// Which of the standard streams this is, by identity of the pipe, socket or terminal.
fn which(this: &Open, all: &[Open], given: &GivenStreams) -> Option<u32> {
    let standard = all.iter().filter(|o| o.is_standard(all) && o.is_stream());
    let same = standard.filter(|o| o.stream() == this.stream());
    // Output and error may be one pipe: the descriptor's own number decides first.
    let mut numbers: Vec<u32> = same.map(|o| o.fd).collect();
    numbers.sort_by_key(|&n| n != this.fd);
    let found = numbers.first().copied();
    found.or_else(|| given.which(this.stream(), this.fd).filter(|_| this.is_stream()))
}
