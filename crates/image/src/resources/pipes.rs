//! Pipes and FIFOs whose two ends are both in the image, or one of whose ends is closed for good.
//!
//! The content is copied with `tee`, which leaves it where it is.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors::{self, RemoteDescriptors};
use crate::resources::open::{Open, cannot, refused, reopen_fd};
use crate::resources::resource::{Common, Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Pipe;
use eyrie_image_format::state::{Description, Target};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

/// Largest pipe that is read; the kernel's own limit for users is 1 MiB.
const MAX_CAPACITY_BYTES: u32 = 64 << 20;

impl Resource for Pipe {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if !this.is_pipe() {
            return Ok(None);
        }
        let first = this.reads() && look.known.copied.insert(this.inode());
        Ok(own(this, look.all, first, look.remote)?.map(Target::Pipe))
    }

    fn restore(
        &self,
        description: &Description,
        making: &mut Making<'_>,
    ) -> Result<Made, RestoreError> {
        let all = making.common.of::<Pipes>();
        let made = end(&mut all.0, description, self);
        made.map_err(|e| cannot("make its pipe again", e)).map(Made::New)
    }
}

/// The pipe behind `this`, if it is the program's own: the other end is in the image or
/// closed. `None` if another process holds the other end.
fn own(
    this: &Open,
    all: &[Open],
    first: bool,
    remote: &RemoteDescriptors,
) -> Result<Option<Pipe>, CaptureError> {
    let ends: Vec<&Open> = all.iter().filter(|o| o.is_pipe() && o.same_file(this)).collect();
    let fd = remote.borrow(this.fd)?;
    let other = |found: fn(&Open) -> bool| ends.iter().any(|o| found(o));
    // With only one end, a standard stream is given anew, whether the other end is closed or not.
    let standard = ends.iter().any(|o| o.is_standard(all));
    let own = match (other(Open::reads), other(Open::writes)) {
        (true, true) => true,
        _ if standard => false,
        (true, false) => remote_descriptors::poll(&fd, libc::POLLIN) & libc::POLLHUP != 0,
        _ => remote_descriptors::poll(&fd, libc::POLLOUT) & libc::POLLERR != 0,
    };
    if !own {
        return Ok(None);
    }
    // SAFETY: a query on a descriptor of ours.
    let capacity = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETPIPE_SZ) };
    let capacity = u32::try_from(capacity).map_err(|_| remote_descriptors::os("measure a pipe"))?;
    if capacity > MAX_CAPACITY_BYTES {
        return Err(refused(this, format!("a pipe of {capacity} bytes")));
    }
    let packets = ends.iter().any(|o| o.info.flags & libc::O_DIRECT as u32 != 0);
    let fifo = !this.link.starts_with(b"pipe:") && this.meta.nlink() > 0;
    let content = if first && this.reads() {
        content(&fd, capacity, packets)
            .map_err(|source| CaptureError::Os { what: "copy the content of a pipe", source })?
    } else {
        Vec::new()
    };
    let path = if fifo { this.link.clone() } else { Vec::new() };
    Ok(Some(Pipe { id: this.inode(), path, capacity, packets, content }))
}

/// Copies what is in a pipe without taking it.
fn content(from: &OwnedFd, capacity: u32, packets: bool) -> io::Result<Vec<Vec<u8>>> {
    if remote_descriptors::ioctl::<i32>(from, libc::FIONREAD)? == 0 {
        return Ok(Vec::new());
    }
    let (mut read, copy) = remote_descriptors::pipe(libc::O_NONBLOCK)?;
    // SAFETY: makes room in a pipe of ours.
    if unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_SETPIPE_SZ, capacity) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are pipes; nothing is consumed.
    let n = unsafe {
        let all = capacity as usize;
        libc::tee(from.as_raw_fd(), copy.as_raw_fd(), all, libc::SPLICE_F_NONBLOCK)
    };
    let mut left = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut buffer = vec![0; capacity as usize];
    while left > 0 {
        let n = read.read(&mut buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match chunks.first_mut().filter(|_| !packets) {
            Some(whole) => whole.extend_from_slice(&buffer[..n]),
            None => chunks.push(buffer[..n].to_vec()),
        }
        left -= n.min(left);
    }
    Ok(chunks)
}

/// All pipes, by their numbers.
#[derive(Default)]
struct Pipes(HashMap<u64, Ends>);

impl Common for Pipes {
    fn settle(&mut self) {
        self.0.clear();
    }
}

/// The two ends of a pipe being restored, until they are taken.
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    read_taken: bool,
    write_taken: bool,
}

/// Makes the end that a description has.
fn end(
    all: &mut HashMap<u64, Ends>,
    description: &Description,
    pipe: &Pipe,
) -> io::Result<OwnedFd> {
    let ends = match all.entry(pipe.id) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(make(pipe)?),
    };
    for chunk in &pipe.content {
        // SAFETY: writes live bytes to a pipe of ours; it does not block.
        let n = unsafe { libc::write(ends.write.as_raw_fd(), chunk.as_ptr().cast(), chunk.len()) };
        if usize::try_from(n) != Ok(chunk.len()) {
            return Err(io::Error::last_os_error());
        }
    }
    let access = description.flags as i32 & libc::O_ACCMODE;
    let (end, taken) = match access {
        libc::O_RDONLY => (&ends.read, &mut ends.read_taken),
        libc::O_WRONLY => (&ends.write, &mut ends.write_taken),
        _ => return reopen_fd(&ends.read, description),
    };
    if std::mem::replace(taken, true) || !pipe.path.is_empty() {
        reopen_fd(end, description)
    } else {
        end.try_clone()
    }
}

fn make(pipe: &Pipe) -> io::Result<Ends> {
    let packets = if pipe.packets { libc::O_DIRECT } else { 0 };
    let (read, write) = if pipe.path.is_empty() {
        remote_descriptors::pipe(packets | libc::O_NONBLOCK)?
    } else {
        let path = OsString::from_vec(pipe.path.clone());
        let open = |read: bool| {
            let mut options = OpenOptions::new();
            // Both, so that neither open waits for the other.
            options.read(true).write(!read).custom_flags(libc::O_NONBLOCK | packets).open(&path)
        };
        let write = open(false)?;
        let mut read = open(true)?;
        if !write.metadata()?.file_type().is_fifo() {
            return Err(io::Error::other("its path is no FIFO any more"));
        }
        // What the killed process left in it, if others kept it open.
        let mut old = vec![0; 1 << 16];
        while remote_descriptors::ioctl::<i32>(&read, libc::FIONREAD)? > 0
            && read.read(&mut old)? > 0
        {}
        (read, write)
    };
    // SAFETY: changes a pipe of ours; where the size is refused the kernel's own must do.
    unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, pipe.capacity) };
    let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
    Ok(Ends { read, write, read_taken: false, write_taken: false })
}
