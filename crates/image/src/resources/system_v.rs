//! System V shared memory segments.
//!
//! A segment belongs to the system, not to a process. Where it still exists it is attached again,
//! and filled only if nobody else is attached. Where it is gone it is made anew under its key; a
//! program may know its number, which must then be the same (a privilege), unless the segment was
//! marked to go away with its last user, after which nobody finds it by number.

use crate::error::{CaptureError, RestoreError};
use eyrie_image_format::state::{AnonymousObject, ObjectKind};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Marked to be destroyed.
const SHM_DEST: u32 = 0o1000;
/// `shmat` for reading only, and for executing.
const SHM_RDONLY: u64 = 0o10000;
const SHM_EXEC: u64 = 0o100_000;

fn stat(number: i32) -> io::Result<libc::shmid_ds> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut info: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: fills a live structure.
    if unsafe { libc::shmctl(number, libc::IPC_STAT, &raw mut info) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(info)
}

/// Completes what is known of a segment that a process has attached.
pub fn describe(object: &mut AnonymousObject) -> Result<(), CaptureError> {
    let ObjectKind::SystemV { number, doomed, .. } = &mut object.kind else { return Ok(()) };
    let info = stat(*number)
        .map_err(|source| CaptureError::Os { what: "examine a System V segment", source })?;
    let mode = u32::from(info.shm_perm.mode);
    *doomed = mode & SHM_DEST != 0;
    object.mode = mode & 0o777;
    object.bytes = info.shm_segsz as u64;
    Ok(())
}

/// Flags of `shmat` for a mapping with this protection.
pub fn attach_flags(prot: u32, may_write: bool) -> u64 {
    let read_only = if may_write { 0 } else { SHM_RDONLY };
    let exec = if prot & libc::PROT_EXEC as u32 != 0 { SHM_EXEC } else { 0 };
    read_only | exec
}

/// A segment to be attached to a restored process. One that was made for it goes away again unless
/// it is kept.
pub struct Segment {
    /// Its number.
    pub number: i32,
    /// Whether it was made here.
    fresh: bool,
    /// Whether it goes away with its last user.
    doomed: bool,
    /// Whether it is filled.
    empty: bool,
    kept: AtomicBool,
}

impl Segment {
    /// Finds the segment of an image or makes it anew.
    pub fn find(object: &AnonymousObject) -> Result<Segment, RestoreError> {
        let ObjectKind::SystemV { key, number, doomed } = object.kind else {
            return Err(RestoreError::Machine("an object that is no segment".into()));
        };
        if let Ok(info) = stat(number) {
            let same = info.shm_segsz as u64 == object.bytes && info.shm_perm.__key as u32 == key;
            if same {
                let empty = info.shm_nattch == 0;
                let kept = AtomicBool::new(false);
                let found = Segment { number, fresh: false, doomed, empty, kept };
                found.with(|at| {
                    // What the image does not hold is zero.
                    // SAFETY: the segment has this size.
                    unsafe { std::ptr::write_bytes(at, 0, info.shm_segsz) };
                })?;
                return Ok(found);
            }
        }
        Segment::make(object, key, number, doomed)
    }

    fn make(
        object: &AnonymousObject,
        key: u32,
        old: i32,
        doomed: bool,
    ) -> Result<Segment, RestoreError> {
        // Best effort: a privilege.
        let _ = fs::write("/proc/sys/kernel/shm_next_id", old.to_string());
        let key = if doomed { libc::IPC_PRIVATE } else { key as i32 };
        let bytes = usize::try_from(object.bytes).unwrap_or(usize::MAX);
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | object.mode as i32;
        // SAFETY: numbers only.
        let number = unsafe { libc::shmget(key, bytes, flags) };
        let _ = fs::write("/proc/sys/kernel/shm_next_id", "-1");
        if number < 0 {
            let source = io::Error::last_os_error();
            return Err(RestoreError::Os { what: "make a System V segment again", source });
        }
        let kept = AtomicBool::new(false);
        let made = Segment { number, fresh: true, doomed, empty: true, kept };
        if number != old && !doomed {
            let what = format!(
                "its System V segment {old} is gone, and its number is not to be had again"
            );
            return Err(RestoreError::Machine(what));
        }
        Ok(made)
    }

    /// Fills in content, unless others use it.
    pub fn fill(&self, offset: u64, pages: &[u8]) -> Result<(), RestoreError> {
        self.with(|at| {
            // SAFETY: the image was checked: its pages lie within the segment.
            unsafe {
                let to = at.add(offset as usize);
                std::ptr::copy_nonoverlapping(pages.as_ptr(), to, pages.len());
            }
        })
    }

    /// Gives access to its memory, unless others use it.
    fn with(&self, write: impl FnOnce(*mut u8)) -> Result<(), RestoreError> {
        if !self.empty {
            return Ok(());
        }
        // SAFETY: attached wherever there is room; the result is checked.
        let at = unsafe { libc::shmat(self.number, std::ptr::null(), 0) };
        if at as isize == -1 {
            let source = io::Error::last_os_error();
            return Err(RestoreError::Os { what: "fill a System V segment", source });
        }
        write(at.cast());
        // SAFETY: attached above.
        unsafe { libc::shmdt(at) };
        Ok(())
    }

    /// The process has it: it stays, or goes away with its users.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.fresh && (self.doomed || !self.kept.load(Ordering::Relaxed)) {
            // SAFETY: marks a segment of our own making.
            unsafe { libc::shmctl(self.number, libc::IPC_RMID, std::ptr::null_mut()) };
        }
    }
}
