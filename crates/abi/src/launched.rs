//! A program that is linked to this library and that another launcher has started, as one of
//! several: before its `main` it becomes `eyrie join`, which starts it anew as a rank of one job.
//!
//! Kept true: that is done only where nothing of the program has run yet, that is where the loader
//! loads this library because the program itself names it; of one that opens it later (Python)
//! `MPI_Init` says what to type.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use eyrie_channel::launcher;

use crate::loaded;

/// Where the launcher can be asked who the others are.
pub fn join() {
    if std::env::var_os("EYRIE_RANK").is_some() {
        return;
    }
    let found = launcher::of(|name| std::env::var(name).ok());
    if found.is_some_and(|found| found.speaks) && names_us() {
        become_join();
    }
}

/// Returns only if that is not possible: `MPI_Init` tells.
fn become_join() {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let Ok(line) = std::fs::read("/proc/self/cmdline") else { return };
    let own = own_file().and_then(|file| Some(file.parent()?.parent()?.join("bin/eyrie")));
    let Some(eyrie) = own.filter(|path| path.is_file()) else { return };
    let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).skip(1);
    let mut all = vec![b"eyrie".to_vec(), b"join".to_vec(), b"--".to_vec()];
    all.push(program.into_os_string().into_vec());
    all.extend(words.map(<[u8]>::to_vec));
    let all: Vec<CString> = all.into_iter().filter_map(|word| CString::new(word).ok()).collect();
    let mut pointers: Vec<*const c_char> = all.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let Ok(eyrie) = CString::new(eyrie.as_os_str().as_bytes()) else { return };
    // SAFETY: a path and words that end with zero, and a list that ends with null.
    unsafe { libc::execv(eyrie.as_ptr(), pointers.as_ptr()) };
}

/// The file of this library.
fn own_file() -> Option<PathBuf> {
    let here: fn() = join;
    // SAFETY: plain data for which zero is valid, and a valid place for the answer.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(here as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

/// Whether the program itself names an MPI library of ours among those that it needs.
pub fn names_us() -> bool {
    let mut names = false;
    loaded::visit(|program| {
        let Some(table) = program.address(loaded::STRINGS) else { return false };
        let mut needed = program.values(loaded::NEEDED).map(|at| {
            // SAFETY: the table of strings of a loaded object, of which each ends with 0.
            unsafe { CStr::from_ptr((table + at) as *const _) }
        });
        names = needed.any(|name| eyrie_libraries::is_own(name.to_bytes()));
        // The others are no programs.
        false
    });
    names
}
