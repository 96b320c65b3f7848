//! What a process has open, as it is found: one descriptor after the other, and how what is behind
//! it is opened again.

use crate::SEGMENT_PREFIX;
use crate::error::{CaptureError, RestoreError};
use crate::kernel::procfs::{self, DELETED, FdInfo};
use crate::resources::given_streams::Stream;
use eyrie_image_format::state::{Description, Descriptor, FileId};
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// `/dev/tty`.
pub const CONTROLLING_TERMINAL: (u32, u32) = (5, 0);

/// Major number of `/dev/null`, `/dev/zero`, `/dev/urandom` and the like.
pub const MEM_MAJOR: u32 = 1;

/// One descriptor as found.
#[derive(Clone)]
pub struct Open {
    /// Its process.
    pub pid: libc::pid_t,
    /// Its number.
    pub fd: u32,
    /// Where its link in `/proc` leads.
    pub link: Vec<u8>,
    /// What the file behind it is.
    pub meta: Metadata,
    /// Offset, flags, and more.
    pub info: FdInfo,
    /// Number of its open file description.
    pub id: u64,
}

impl Open {
    pub fn kind(&self) -> u32 {
        self.meta.mode() & libc::S_IFMT
    }

    /// What it is if it is nothing but that, such as `[eventfd]`.
    pub fn anonymous_inode(&self) -> Option<&[u8]> {
        self.link.strip_prefix(b"anon_inode:")
    }

    /// Whether it is a pipe or FIFO.
    pub fn is_pipe(&self) -> bool {
        self.kind() == libc::S_IFIFO
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.kind() == libc::S_IFSOCK
    }

    /// Whether it is a standard stream of the first process, and so given anew at restore. Those of
    /// its descendants may be ends of the family's own pipes.
    pub fn is_standard(&self, all: &[Open]) -> bool {
        self.fd <= 2 && all.first().is_some_and(|first| first.pid == self.pid)
    }

    /// Whether it is the same file as a standard stream of the first process.
    pub fn is_handed_over(&self, all: &[Open]) -> bool {
        all.iter().any(|o| o.is_standard(all) && o.same_file(self))
    }

    /// Whether it can be read.
    pub fn reads(&self) -> bool {
        self.info.flags as i32 & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Whether it can be written.
    pub fn writes(&self) -> bool {
        self.info.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether it and another refer to one file.
    pub fn same_file(&self, other: &Open) -> bool {
        self.meta.dev() == other.meta.dev() && self.meta.ino() == other.meta.ino()
    }

    /// Inode number, which tells pipes and sockets apart.
    pub fn inode(&self) -> u64 {
        self.meta.ino()
    }

    pub fn stream(&self) -> Stream {
        Stream::of(&self.meta)
    }

    /// Its link as text.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.link).into_owned()
    }

    pub fn is_stream(&self) -> bool {
        match self.kind() {
            libc::S_IFIFO | libc::S_IFSOCK => true,
            libc::S_IFCHR => libc::major(self.meta.rdev()) != MEM_MAJOR,
            _ => false,
        }
    }
}

/// What one process has open.
pub struct Table {
    /// Descriptors in order of number.
    pub descriptors: Vec<Descriptor>,
    /// What they refer to.
    pub descriptions: Vec<Description>,
}

/// Refuses a descriptor.
pub fn refused(this: &Open, what: String) -> CaptureError {
    CaptureError::Descriptor { fd: this.fd as i32, what }
}

/// Refuses a descriptor for now: what is behind it passes by what the program does anyway.
pub fn refused_now(this: &Open, what: String) -> CaptureError {
    refused(this, what).for_now()
}

/// What the kernel tells of a descriptor is not understood.
pub fn unclear(this: &Open) -> CaptureError {
    CaptureError::Proc(format!("/proc/PID/fdinfo/{}", this.fd))
}

/// What a process has open, but for the sockets with the inodes `left_out`.
pub fn open_in(pid: libc::pid_t, left_out: &[u64]) -> Result<Vec<Open>, CaptureError> {
    opened(pid, left_out, |_| true)
}

/// The sockets that a process has open, but for these.
pub fn sockets_in(pid: libc::pid_t, left_out: &[u64]) -> Result<Vec<Open>, CaptureError> {
    opened(pid, left_out, |link| link.starts_with(b"socket:["))
}

fn opened(
    pid: libc::pid_t,
    left_out: &[u64],
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Open>, CaptureError> {
    let left_out: Vec<String> = left_out.iter().map(|ino| format!("socket:[{ino}]")).collect();
    let mut all = Vec::new();
    for fd in procfs::numbers(pid, "fd")? {
        let link = procfs::link(pid, &format!("fd/{fd}"))?;
        if !wanted(&link) || left_out.iter().any(|socket| socket.as_bytes() == link) {
            continue;
        }
        let meta = fs::metadata(format!("/proc/{pid}/fd/{fd}"))
            .map_err(|source| CaptureError::Os { what: "examine a file descriptor", source })?;
        all.push(Open { pid, fd, link, meta, info: procfs::fdinfo(pid, fd)?, id: 0 });
    }
    Ok(all)
}

/// Identity of a file by its metadata.
pub fn file_id(path: Vec<u8>, meta: &Metadata) -> FileId {
    FileId {
        path,
        dev: meta.dev(),
        ino: meta.ino(),
        size: meta.size(),
        mtime_ns: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
    }
}

/// Name of the job's segment if the path is one: `/memfd:NAME (deleted)`, or `/NAME (deleted)` in a
/// file system that is mounted nowhere.
pub fn segment_name(path: &[u8]) -> Option<Vec<u8>> {
    let name = match path.strip_prefix(b"/memfd:") {
        Some(name) => name.strip_suffix(DELETED).unwrap_or(name),
        None => path.strip_prefix(b"/")?.strip_suffix(DELETED)?,
    };
    name.starts_with(SEGMENT_PREFIX.as_bytes()).then(|| name.to_vec())
}

/// Status flags that are given again on opening.
pub const OPEN_FLAGS: i32 = libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DIRECT
    | libc::O_SYNC
    | libc::O_NOATIME
    | libc::O_DIRECTORY
    | libc::O_PATH;

/// What cannot be made again; `what` is what failed.
pub(crate) fn cannot(what: &'static str, source: io::Error) -> RestoreError {
    RestoreError::Os { what, source }
}

/// Opens what is behind `fd` once more, with the access and flags of a description.
pub(crate) fn reopen_fd(fd: &impl AsRawFd, description: &Description) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // Not waiting for another end. O_TMPFILE stays in the flags of a file, and says "a folder".
    let flags = (description.flags as i32 | libc::O_NONBLOCK) & !libc::O_DIRECTORY;
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & OPEN_FLAGS | libc::O_NOCTTY)
        .open(path)
        .map(OwnedFd::from)
}
