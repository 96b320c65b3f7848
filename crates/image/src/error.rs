//! One error type per operation; messages are lower-case fragments that fit "failed to ...".

use eyrie_image_format::error::{ImageError, WriteError};
use eyrie_image_format::support::fault::Fault;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a process could not be stopped or let go.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FreezeError {
    /// It has exited or was killed; its exit status is left for its parent to collect.
    #[error("the process is gone")]
    Gone,
    /// Another tracer (a debugger) is attached.
    #[error("the process is being traced by a debugger")]
    Traced,
    /// It has more threads than are stopped.
    #[error("the process has {found} threads; at most {limit} can be checkpointed")]
    Threads {
        /// How many it has.
        found: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A thread waits in the kernel for something that cannot be interrupted.
    #[error("thread {0} is blocked in the kernel and does not stop")]
    Stuck(libc::pid_t),
    /// A thread did not come to a stop in time.
    #[error(
        "thread {tid} did not stand still within {} s, so the process goes on without a checkpoint",
        limit.as_secs_f32()
    )]
    Late {
        /// The thread.
        tid: libc::pid_t,
        /// How long it had.
        limit: Duration,
    },
    /// It goes on starting threads faster than they can be stopped.
    #[error("the process starts threads faster than they can be stopped")]
    Restless,
    /// `main` has ended by `pthread_exit` while other threads go on.
    #[error("the first thread of the process has ended; its other threads cannot be checkpointed")]
    FirstThreadEnded,
    /// A child process, or one of its own, could not be stopped.
    #[error("its child process {pid} ({name}): {why}")]
    Child {
        /// Its number.
        pid: libc::pid_t,
        /// Its name.
        name: String,
        /// Why not.
        why: Box<FreezeError>,
    },
    /// It has more descendants than are stopped.
    #[error("the process has more than {limit} child processes, which are not checkpointed")]
    Processes {
        /// How many there may be, itself included.
        limit: usize,
    },
    /// The kernel does not let us trace it.
    #[error("the kernel does not permit tracing the process")]
    NotPermitted,
    /// A system call failed for a reason of its own.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why no image of a frozen process could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The process, or its twin, exited or was killed meanwhile.
    #[error("the process is gone")]
    Gone,
    /// Its twin was killed meanwhile.
    #[error("the frozen twin of the process was killed")]
    TwinGone,
    /// A file descriptor that an image cannot bring back.
    #[error("file descriptor {fd} is {what}, which a checkpoint cannot bring back")]
    Descriptor {
        /// Its number in the process.
        fd: i32,
        /// What it is, for the user.
        what: String,
    },
    /// A mapping that an image cannot bring back.
    #[error("the mapping at {start:#x} is {what}, which a checkpoint cannot bring back")]
    Mapping {
        /// Its first address.
        start: u64,
        /// What it is, for the user.
        what: String,
    },
    /// Some other property of the process that an image cannot bring back.
    #[error("the process {0}, which a checkpoint cannot bring back")]
    Unsupported(String),
    /// An image could be made, and could not be restored; with the remedy.
    #[error("a restart from this checkpoint would fail: {0}")]
    NotRestartable(String),
    /// A child process, or one of its own, cannot be captured.
    #[error("its child process {pid} ({name}): {why}")]
    Child {
        /// Its number.
        pid: libc::pid_t,
        /// Its name.
        name: String,
        /// Why not.
        why: Box<CaptureError>,
    },
    /// What this one says is so now, and may be otherwise a little later.
    #[error(transparent)]
    Passing(Box<CaptureError>),
    /// A thread did not come back in time from a system call that was made in its name.
    #[error(
        "thread {tid} did not come back within {} s from a system call made in its name, so the \
         process goes on without a checkpoint",
        limit.as_secs_f32()
    )]
    Late {
        /// The thread.
        tid: libc::pid_t,
        /// How long it had.
        limit: Duration,
    },
    /// It was called off while its memory was being stored.
    #[error("the image is not wanted any more")]
    CalledOff,
    /// Nothing of the memory that it shares with others could be stored for so long, while it stood
    /// still for that.
    #[error(
        "nothing of the memory that the process shares with others could be stored for {} s, \
         while it stood still for that: the storage of its images hangs",
        limit.as_secs_f32()
    )]
    Slow {
        /// How long that was at least.
        limit: Duration,
    },
    /// What `/proc` said could not be understood.
    #[error("unexpected content of {0}")]
    Proc(String),
    /// No room for the image (disk full, quota, or file size limit); nothing was left behind.
    #[error("no space for the image {}: {source}", path.display())]
    NoSpace {
        /// The image that was to be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The image could not be written; nothing was left behind.
    #[error("cannot write the image {}: {source}", path.display())]
    Write {
        /// The image that was to be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed for a reason of its own.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl FreezeError {
    /// Whether a later attempt would fail for the same reason. What a child has may end with it.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            FreezeError::Threads { .. } | FreezeError::FirstThreadEnded | FreezeError::NotPermitted
        )
    }
}

impl CaptureError {
    /// It is so now, and may be otherwise a little later, by what the program does anyway.
    pub(crate) fn for_now(self) -> CaptureError {
        CaptureError::Passing(Box::new(self))
    }

    /// Whether a later attempt would fail for the same reason. What a child has may end with it.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            CaptureError::Descriptor { .. }
                | CaptureError::Mapping { .. }
                | CaptureError::Unsupported(_)
        )
    }
}

/// Why a process could not be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The image is refused.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A file the process had open or mapped is gone, or is no longer what it was.
    #[error("the file {path} {what}")]
    File {
        /// Its path.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// Somebody else holds a file lock that the process had.
    #[error("cannot {what}: somebody else holds that lock now")]
    Locked {
        /// What could not be done.
        what: String,
    },
    /// This machine cannot run the process as it was.
    #[error("this machine cannot continue the process: {0}")]
    Machine(String),
    /// A shared segment that the process had mapped was not handed over.
    #[error("the shared segment {0} was not handed over")]
    Segment(String),
    /// One step of the restorer failed.
    #[error("restorer failed to {what}: {source}")]
    Step {
        /// The step.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A process must get the number it had, because others of its family know it by that.
    #[error("process number {pid} cannot be given again: {why}")]
    Number {
        /// The number.
        pid: libc::pid_t,
        /// Why not, and what to do.
        why: String,
    },
    /// The restorer died.
    #[error("restorer died: {0}")]
    Died(String),
    /// A system call failed for a reason of its own.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

pub(crate) fn file_error(path: &[u8], what: impl Into<String>) -> RestoreError {
    RestoreError::File { path: String::from_utf8_lossy(path).into_owned(), what: what.into() }
}

/// Why a step has failed whose system call, made by another process, has had this result.
pub(crate) fn step_failed(what: &str, result: i64) -> RestoreError {
    let source = if (-4095..0).contains(&result) {
        io::Error::from_raw_os_error((-result) as i32)
    } else {
        io::Error::other(format!("unexpected result {result:#x}"))
    };
    RestoreError::Step { what: what.to_owned(), source }
}

impl From<WriteError> for CaptureError {
    fn from(error: WriteError) -> CaptureError {
        match error {
            WriteError::NoSpace { path, source } => CaptureError::NoSpace { path, source },
            WriteError::Write { path, source } => CaptureError::Write { path, source },
            WriteError::Os { what, source } => CaptureError::Os { what, source },
            other => CaptureError::Os { what: "write the image", source: io::Error::other(other) },
        }
    }
}

macro_rules! of_faults {
    ($($error:ident)*) => {$(
        impl From<Fault> for $error {
            fn from(fault: Fault) -> Self {
                Self::Os { what: "go on", source: fault.into() }
            }
        }
    )*};
}
of_faults!(FreezeError CaptureError RestoreError);
