//! Numbered fault points: the places in a freeze, a capture, a write and a restore at which a test
//! lets something go wrong. Compiled in with the feature `faults` only; without it a point is
//! nothing.
//!
//! A point is armed with an action and strikes once. Numbers are kept, also when a point goes;
//! `docs/internals/fault-points.md` lists them.

/// Where something can be made to go wrong: number and what has just been done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its number.
    pub number: u32,
    /// What has been done when it is passed.
    pub what: &'static str,
}

/// A fault that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Fault(#[cfg_attr(not(feature = "faults"), allow(dead_code))] pub u32);

macro_rules! points {
    ($($name:ident = $number:literal $what:literal;)*) => {
        $(#[doc = $what] pub const $name: Point = Point { number: $number, what: $what };)*
        /// All points, in order of number.
        #[cfg(feature = "faults")]
        pub const POINTS: &[Point] = &[$($name),*];
    };
}

points! {
    SEIZED = 1 "a thread was seized, not yet stopped";
    STOPPED = 2 "all threads stand still";
    THREADS_READ = 3 "the state of the threads was read";
    DESCRIPTORS_READ = 4 "open files were read";
    MEMORY_BORROWED = 5 "memory of the process was borrowed for answers";
    ANSWERS_READ = 6 "the process was asked in its own name";
    BEFORE_TWIN = 7 "all is ready for the twin";
    TWIN_BORN = 8 "the twin was made";
    TWIN_TOLD = 9 "the twin's mappings were read";
    PAGES_COPIED = 10 "changed pages were copied";
    CALLS_OVER = 11 "calls under way were waited for, before pages are stored while it runs";
    STORED_AHEAD = 12 "some pages were stored while it runs";
    SHARED_KEPT = 13 "what has changed of shared memory was kept";
    STOP_AWAITED = 14 "the next stop of a thread is about to be waited for";
    CALL_MADE = 15 "a thread is on its way through a system call made in its name";
    TWIN_ASKED = 20 "the twin was asked in the process's name";
    REGIONS_KNOWN = 21 "it is known what has to be stored";
    FILE_BEGUN = 22 "the image's temporary file was begun";
    BLOCK_READ = 23 "a block of memory was read";
    BLOCK_WRITTEN = 24 "a block of memory was written";
    MEMORY_PULLED = 25 "all memory was read";
    TABLES_WRITTEN = 26 "the tables were written";
    HEADER_WRITTEN = 27 "the header was written";
    SYNCED = 28 "the temporary file is durable";
    RENAMED = 29 "the image has its name";
    IMAGE_CHECKED = 40 "the image was opened, and the checksums of its tables held";
    FILES_REOPENED = 41 "open and mapped files were opened again";
    PLANNED = 42 "descriptors were numbered";
    CHILD_STARTED = 43 "the restorer was started";
    PLAN_MADE = 44 "the plan was made";
    PLAN_DONE = 45 "the restorer has carried out the plan";
    THREADS_MADE = 46 "the other threads were made";
    RESTORER_GONE = 47 "the restorer was unmapped";
    LIMITS_SET = 48 "limits and processors were set";
    FILES_CUT = 49 "files were cut back";
    FAMILY_MADE = 50 "the processes of a family were made";
}

#[cfg(feature = "faults")]
pub use armed::{Action, arm, disarm};
#[cfg(feature = "faults")]
pub use armed::{limit, point};

/// How long a wait may take, for those limits that a lost stop exhausts.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn limit(limit: std::time::Duration) -> std::time::Duration {
    limit
}

/// Does nothing.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_: Point) -> Result<(), Fault> {
    Ok(())
}

#[cfg(feature = "faults")]
mod armed {
    use super::{CALL_MADE, Fault, Point, STOP_AWAITED};
    use std::sync::Mutex;
    use std::time::Duration;

    /// What happens at an armed point.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Action {
        /// The operation fails there.
        Fail,
        /// This process is killed there, as by a crash.
        Die,
        /// Another process is killed there.
        Kill(libc::pid_t),
        /// All children of this process but one are killed there (0: all).
        KillChildrenBut(libc::pid_t),
    }

    static ARMED: Mutex<Option<(u32, Action)>> = Mutex::new(None);

    /// Arms a point: it strikes when it is next passed, once.
    pub fn arm(number: u32, action: Action) {
        *ARMED.lock().unwrap_or_else(|e| e.into_inner()) = Some((number, action));
    }

    /// Disarms; tells whether the point has *not* struck.
    pub fn disarm() -> bool {
        ARMED.lock().unwrap_or_else(|e| e.into_inner()).take().is_some()
    }

    /// How long a wait may take: not long as long as a stop is to be lost.
    pub fn limit(limit: Duration) -> Duration {
        const SHORT: Duration = Duration::from_millis(300);
        let armed = *ARMED.lock().unwrap_or_else(|e| e.into_inner());
        let loses = |(number, action)| {
            let awaits = [STOP_AWAITED, CALL_MADE].iter().any(|point| point.number == number);
            awaits && action == Action::Fail
        };
        if armed.is_some_and(loses) { SHORT.min(limit) } else { limit }
    }

    /// A point that is passed.
    pub fn point(point: Point) -> Result<(), Fault> {
        let action = {
            let mut armed = ARMED.lock().unwrap_or_else(|e| e.into_inner());
            match *armed {
                Some((number, action)) if number == point.number => {
                    *armed = None;
                    action
                }
                _ => return Ok(()),
            }
        };
        match action {
            Action::Fail => return Err(Fault(point.number)),
            // SAFETY: no arguments; signals this process.
            Action::Die => unsafe { libc::kill(libc::getpid(), libc::SIGKILL) },
            // SAFETY: takes numbers only; the test that armed the point has named the process.
            Action::Kill(pid) => unsafe { libc::kill(pid, libc::SIGKILL) },
            Action::KillChildrenBut(kept) => kill_children(kept),
        };
        Ok(())
    }

    /// The parent of a process: the second field behind its name.
    fn parent(pid: libc::pid_t) -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    }

    fn kill_children(kept: libc::pid_t) -> i32 {
        let own = std::process::id();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        for pid in numbers.filter(|pid| parent(*pid) == Some(own)) {
            if pid != kept {
                // SAFETY: a child of ours that nobody has collected in between.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        0
    }
}

/// The system's error that stands for a fault.
#[cfg(feature = "faults")]
fn source(fault: Fault) -> std::io::Error {
    std::io::Error::other(format!("fault point {}", fault.0))
}

/// Never made without the feature.
#[cfg(not(feature = "faults"))]
fn source(_: Fault) -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::EIO)
}

impl From<Fault> for std::io::Error {
    fn from(fault: Fault) -> std::io::Error {
        source(fault)
    }
}

impl From<Fault> for crate::error::WriteError {
    fn from(fault: Fault) -> Self {
        Self::Os { what: "go on", source: source(fault) }
    }
}
