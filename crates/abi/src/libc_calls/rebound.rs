//! Programs that open this library when they run (Python), whose references to the C library were
//! resolved before: those through which they open files and append to them, and ask for random
//! bytes, names and (with one thread) the time, are led here; so is how Python starts threads.
//!
//! Kept true: what leads to another library than the C library is left; so is all of programs that
//! name this library, where the loader has done it.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;

use super::real::{self, Real};
use super::{
    appends, clocks, entries, identity, names, print, python, random, resolver, streams, waits,
};
use crate::launched;
use crate::loaded::{self, Object};

/// What the loader wrote for an entry of this kind is the address of a function (x86-64).
const GLOBAL: u64 = 6;
const JUMP: u64 = 7;

const SYMBOLS: i64 = 6;
const RELOCATIONS: (i64, i64) = (7, 8);
const JUMPS: (i64, i64) = (23, 2);
const SYMBOL_BYTES: usize = 24;
/// Where a symbol has the section in which the object defines it: 0, if it does not.
const SECTION_AT: usize = 6;

/// An entry of a table of relocations.
#[repr(C)]
struct Entry {
    at: u64,
    info: u64,
    addend: i64,
}

/// A function of the C library, and which of this library takes its place.
type Led = (&'static Real, *const c_void);

/// Functions that a program asks in its own code only: files and their names, random bytes, names
/// of the machine.
fn always() -> [Led; 33] {
    [
        (&real::WRITE, appends::eyrie_libc_write as *const c_void),
        (&real::WRITEV, appends::eyrie_libc_writev as *const c_void),
        (&real::OPEN, random::eyrie_libc_open as *const c_void),
        (&real::OPEN64, random::eyrie_libc_open64 as *const c_void),
        (&real::OPENAT, random::eyrie_libc_openat as *const c_void),
        (&real::OPENAT64, random::eyrie_libc_openat64 as *const c_void),
        (&real::FOPEN, streams::eyrie_libc_fopen as *const c_void),
        (&real::FOPEN64, streams::eyrie_libc_fopen64 as *const c_void),
        (&real::FDOPEN, streams::eyrie_libc_fdopen as *const c_void),
        (&real::FREOPEN, streams::eyrie_libc_freopen as *const c_void),
        (&real::FREOPEN64, streams::eyrie_libc_freopen64 as *const c_void),
        (&real::VDPRINTF, print::eyrie_libc_vdprintf as *const c_void),
        (&real::GETRANDOM, random::eyrie_libc_getrandom as *const c_void),
        (&real::GETENTROPY, random::eyrie_libc_getentropy as *const c_void),
        (&real::UNAME, identity::eyrie_libc_uname as *const c_void),
        (&real::GETHOSTNAME, names::eyrie_libc_gethostname as *const c_void),
        (&real::GETHOSTID, names::eyrie_libc_gethostid as *const c_void),
        (&real::GETADDRINFO, resolver::eyrie_libc_getaddrinfo as *const c_void),
        (&real::GETNAMEINFO, resolver::eyrie_libc_getnameinfo as *const c_void),
        (&real::GETHOSTBYNAME_R, resolver::eyrie_libc_gethostbyname_r as *const c_void),
        (&real::GETIFADDRS, names::eyrie_libc_getifaddrs as *const c_void),
        (&real::UNLINK, entries::eyrie_libc_unlink as *const c_void),
        (&real::UNLINKAT, entries::eyrie_libc_unlinkat as *const c_void),
        (&real::REMOVE, entries::eyrie_libc_remove as *const c_void),
        (&real::RMDIR, entries::eyrie_libc_rmdir as *const c_void),
        (&real::RENAME, entries::eyrie_libc_rename as *const c_void),
        (&real::RENAMEAT, entries::eyrie_libc_renameat as *const c_void),
        (&real::MKDIR, entries::eyrie_libc_mkdir as *const c_void),
        (&real::MKDIRAT, entries::eyrie_libc_mkdirat as *const c_void),
        (&real::LINK, entries::eyrie_libc_link as *const c_void),
        (&real::LINKAT, entries::eyrie_libc_linkat as *const c_void),
        (&real::SYMLINK, entries::eyrie_libc_symlink as *const c_void),
        (&real::SYMLINKAT, entries::eyrie_libc_symlinkat as *const c_void),
    ]
}

/// Clocks, and waits by them. An interpreter asks them by itself when its threads wait for each
/// other, so they are led here only in programs that have one thread, or have said so.
fn of_one_thread() -> [Led; 7] {
    [
        (&real::CLOCK_GETTIME, clocks::eyrie_libc_clock_gettime as *const c_void),
        (&real::GETTIMEOFDAY, clocks::eyrie_libc_gettimeofday as *const c_void),
        (&real::TIME, clocks::eyrie_libc_time as *const c_void),
        (&real::CLOCK_NANOSLEEP, waits::eyrie_libc_clock_nanosleep as *const c_void),
        (&real::COND_CLOCKWAIT, waits::eyrie_libc_pthread_cond_clockwait as *const c_void),
        (&real::SEM_CLOCKWAIT, waits::eyrie_libc_sem_clockwait as *const c_void),
        (&real::MUTEX_CLOCKLOCK, waits::eyrie_libc_pthread_mutex_clocklock as *const c_void),
    ]
}

/// From MPI_Init on; `clocks`: these, too.
pub(super) fn begin(clocks: bool) {
    if !cfg!(all(target_arch = "x86_64", target_env = "gnu")) || launched::names_us() {
        return;
    }
    let memory = Memory::now();
    let mut led = Vec::from(always());
    if clocks {
        led.extend(of_one_thread());
    }
    let starts: Led = (&real::PTHREAD_CREATE, python::starts_thread as *const c_void);
    let interpreter = python::interpreter();
    loaded::visit(|object| {
        if !object.contains(begin as *const () as usize) {
            rebind(object, &led, &memory);
            if interpreter.is_some_and(|at| object.contains(at)) {
                rebind(object, &[starts], &memory);
            }
        }
        true
    });
}

fn rebind(object: &Object, led: &[Led], memory: &Memory) {
    let strings = object.address(loaded::STRINGS);
    let (Some(strings), Some(symbols)) = (strings, object.address(SYMBOLS)) else { return };
    for (table, bytes) in [RELOCATIONS, JUMPS] {
        let (Some(table), Some(bytes)) = (object.address(table), object.values(bytes).next())
        else {
            continue;
        };
        // What is not mapped is no table: the kernel's own object has none.
        if ![table, strings, symbols].into_iter().all(|at| object.contains(at)) {
            continue;
        }
        let count = bytes / size_of::<Entry>();
        // SAFETY: tables of a loaded object, mapped where its dynamic section says, so long.
        unsafe {
            for entry in std::slice::from_raw_parts(table as *const Entry, count) {
                if !matches!(entry.info & 0xffff_ffff, GLOBAL | JUMP) {
                    continue;
                }
                let symbol = symbols + (entry.info >> 32) as usize * SYMBOL_BYTES;
                let is_defined = *((symbol + SECTION_AT) as *const u16) != 0;
                if is_defined {
                    continue;
                }
                let name = strings + *(symbol as *const u32) as usize;
                let word = (object.base + entry.at as usize) as *mut *const c_void;
                let name = CStr::from_ptr(name as *const c_char);
                lead(name, word, (object, led, memory));
            }
        }
    }
}

/// Leads the reference of this name here, if it is one of the C library's, or not resolved yet.
unsafe fn lead(
    name: &CStr,
    word: *mut *const c_void,
    (object, led, memory): (&Object, &[Led], &Memory),
) {
    for (real, own) in led.iter().filter(|(real, _)| real.name() == name) {
        // SAFETY: the place of a reference of a loaded object.
        unsafe {
            let now = *word;
            let is_real = now == real.found().cast_const() && !now.is_null();
            if (is_real || object.contains(now as usize)) && object.contains(word as usize) {
                put(word, *own, memory);
            }
        }
    }
}

/// Writes where the loader may have forbidden it.
unsafe fn put(word: *mut *const c_void, own: *const c_void, memory: &Memory) {
    const PAGE_BYTES: usize = 4096;
    let page = (word as usize & !(PAGE_BYTES - 1)) as *mut c_void;
    // SAFETY: a page of data of a loaded object, which has one word in it.
    unsafe {
        if let Some(is_writable) = memory.is_writable(word as usize) {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            if is_writable || libc::mprotect(page, PAGE_BYTES, both) == 0 {
                std::ptr::write_volatile(word, own);
                if !is_writable {
                    libc::mprotect(page, PAGE_BYTES, libc::PROT_READ);
                }
            }
        }
    }
}

/// What is mapped where, by address, and whether the program may write there. What is led here
/// changes none of it for longer than a moment, so it is read once.
struct Memory(Vec<(Range<usize>, bool)>);

impl Memory {
    fn now() -> Memory {
        let mapping = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(from)?..number(to)?, rest.as_bytes().get(1) == Some(&b'w')))
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Memory(maps.lines().filter_map(mapping).collect())
    }

    /// Whether the program may write there; nothing if that is not known.
    fn is_writable(&self, at: usize) -> Option<bool> {
        let Memory(all) = self;
        let found = all.partition_point(|(range, _)| range.end <= at);
        all.get(found).filter(|(range, _)| range.contains(&at)).map(|(_, writable)| *writable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known_by_its_rights() {
        let memory = Memory::now();
        let (data, code, nothing) = (Box::new(7), begin as *const () as usize, 8);
        assert_eq!(memory.is_writable(&raw const *data as usize), Some(true));
        assert_eq!(memory.is_writable(code), Some(false));
        assert_eq!(memory.is_writable(nothing), None);
        assert_eq!(memory.is_writable(usize::MAX), None);
    }
}
