//! Open files of `/proc` that are about a process, or a thread of one.
//!
//! Where a process is restored its threads may have other numbers, and are made last; its children
//! are there when it is. So such a file is opened by the process itself when its threads are there.
//! Until then something else has its place ([`crate::resources::pidfds::stand_in`]). One about a
//! process that has no image is refused, but for the first of the system.

use crate::error::{CaptureError, RestoreError, step_failed};
use crate::kernel::procfs;
use crate::resources::open::{OPEN_FLAGS, Open, refused};
use crate::resources::posix_timers::Caller;
use eyrie_image_format::state::resources::OpenFile;
use eyrie_image_format::state::{FileId, State};
use std::collections::BTreeSet;

/// What a path under `/proc` is about.
#[derive(Debug, PartialEq, Eq)]
struct About<'a> {
    pid: libc::pid_t,
    /// A thread, by its number.
    thread: Option<libc::pid_t>,
    /// The rest of the path.
    rest: &'a [u8],
}

/// The first part of a path if it is a number, and the rest.
fn number(path: &[u8]) -> Option<(libc::pid_t, &[u8])> {
    let end = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
    let number = std::str::from_utf8(&path[..end]).ok()?.parse().ok().filter(|&n| n > 0)?;
    Some((number, &path[end..]))
}

fn about(path: &[u8]) -> Option<About<'_>> {
    let (pid, rest) = number(path.strip_prefix(b"/proc/")?)?;
    let thread = rest.strip_prefix(b"/task/").and_then(number);
    Some(match thread {
        Some((tid, rest)) => About { pid, thread: Some(tid), rest },
        None => About { pid, thread: None, rest },
    })
}

/// Whether the process opens it itself.
pub fn is_own(id: &FileId) -> bool {
    about(&id.path).is_some_and(|about| about.pid != 1)
}

/// Refuses one about a process that is not in the images, of those of `family`.
pub fn refuse_stranger(this: &Open, family: &BTreeSet<libc::pid_t>) -> Result<(), CaptureError> {
    let Some(About { pid, thread, .. }) = about(&this.link) else { return Ok(()) };
    if pid == this.pid || pid == 1 {
        return Ok(());
    }
    let shown = this.shown();
    if !family.contains(&pid) {
        let what = match procfs::name(pid) {
            name if name.is_empty() => format!("{shown}, a file of a process that has ended"),
            name => format!(
                "{shown}, a file of process {pid} ({name}), which is not checkpointed with this one"
            ),
        };
        return Err(refused(this, what));
    }
    match thread {
        Some(tid) if tid != pid => {
            Err(refused(this, format!("{shown}, a file of a thread of another process")))
        }
        _ => Ok(()),
    }
}

/// The path under which the process of `caller` opens it.
fn path_here(caller: &Caller<'_>, state: &State, about: &About<'_>) -> Vec<u8> {
    let process = if about.pid == state.pid { "self".into() } else { about.pid.to_string() };
    let task = match about.thread {
        Some(tid) if about.pid == state.pid => format!("/task/{}", caller.number(state, tid)),
        Some(tid) => format!("/task/{tid}"),
        None => String::new(),
    };
    [format!("/proc/{process}{task}").as_bytes(), about.rest, b"\0"].concat()
}

/// Opens them, when all threads of a process are there.
pub fn restore(caller: &Caller<'_>, state: &State) -> Result<(), RestoreError> {
    for (i, description) in state.descriptions.iter().enumerate() {
        let Some(OpenFile { id, .. }) = description.target.file() else { continue };
        let Some(about) = about(&id.path).filter(|about| about.pid != 1) else { continue };
        let what = format!("open {} again", String::from_utf8_lossy(&id.path));
        let call = |nr, args: &[u64]| match caller.call(state, 0, nr, args)? {
            error @ -4095..0 => Err(step_failed(&what, error)),
            result => Ok(result as u64),
        };
        caller.write(caller.room, &path_here(caller, state, &about))?;
        let flags = description.flags & (libc::O_ACCMODE | OPEN_FLAGS) as u32;
        let flags = u64::from(flags) | libc::O_CLOEXEC as u64;
        let opened = call(libc::SYS_openat, &[libc::AT_FDCWD as u64, caller.room, flags, 0])?;
        if description.offset != 0 {
            call(libc::SYS_lseek, &[opened, description.offset, libc::SEEK_SET as u64])?;
        }
        for d in state.descriptors.iter().filter(|d| d.description as usize == i) {
            let flags = if d.cloexec { libc::O_CLOEXEC as u64 } else { 0 };
            call(libc::SYS_dup3, &[opened, u64::from(d.fd), flags])?;
        }
        call(libc::SYS_close, &[opened])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_whom_they_are_about() {
        let is = |path: &str, pid, thread, rest: &str| {
            let rest = rest.as_bytes();
            assert_eq!(about(path.as_bytes()), Some(About { pid, thread, rest }), "{path}");
        };
        is("/proc/12", 12, None, "");
        is("/proc/12/fd", 12, None, "/fd");
        is("/proc/12/task", 12, None, "/task");
        is("/proc/12/task/13", 12, Some(13), "");
        is("/proc/12/task/13/schedstat", 12, Some(13), "/schedstat");
        for path in ["/proc", "/proc/", "/proc/meminfo", "/proc/12x/stat", "/x/proc/12", "/proc/0"]
        {
            assert_eq!(about(path.as_bytes()), None, "{path}");
        }
    }
}
