//! What this machine and its kernel offer, and what is made of it: `eyrie info`.
//!
//! Kept true: everything is tried out and not concluded from a version, and trying leaves nothing
//! behind and touches no other process.

use crate::kernel::capabilities::{capability, chosen_numbers, reason};
use crate::kernel::pagemap::{Pagemap, Part};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFD_API: u64 = 0xaa;
/// Asynchronous write protection, also of pages that are not there and of shared memory.
const UFFD_WRITE_FEATURES: u64 = 1 << 12 | 1 << 13 | 1 << 15;
const MADV_GUARD_INSTALL: libc::c_int = 102;
const ARCH_GET_XCOMP_SUPP: libc::c_int = 0x1021;
/// AMX's bit among the features of XSAVE.
const XFEATURE_AMX: u64 = 1 << 18;
const PAGE: usize = crate::PAGE_BYTES as usize;

/// One thing that may be there or not.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Offer {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there.
    pub here: bool,
    /// Why not, or a figure.
    pub detail: String,
    /// What it is used for.
    pub usage: &'static str,
    /// What its lack costs; empty if it costs nothing.
    pub without: &'static str,
}

impl Offer {
    /// What was `tried` gave a figure, or a reason.
    pub fn new(
        name: &'static str,
        tried: Result<String, String>,
        usage: &'static str,
        without: &'static str,
    ) -> Offer {
        let here = tried.is_ok();
        Offer { name, here, detail: tried.unwrap_or_else(|e| e), usage, without }
    }
}

/// What is made of it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Decisions {
    /// How changed pages are found for incremental images.
    pub tracking: String,
    /// How the pages of a process are found.
    pub page_search: String,
    /// Which number a restored process gets.
    pub process_number: String,
    /// Which processes can be checkpointed.
    pub reach: String,
    /// How the content of a process is kept from the freeze on.
    pub freeze: String,
    /// Whether restored programs may run before all their memory is in.
    pub lazy_restore: String,
    /// How stored pages are packed.
    pub compression: String,
}

/// A machine as it looks from here.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors that may be used.
    pub cores: usize,
    /// Memory in bytes: all of it, and what is available.
    pub memory: [u64; 2],
    /// Whether we are root.
    pub root: bool,
    /// What is there.
    pub offers: Vec<Offer>,
    /// What is made of it.
    pub decisions: Decisions,
}

type Tried = Result<String, String>;

/// Looks at the machine.
pub fn machine() -> Machine {
    let uffd = write_notes();
    let scan = page_search();
    let fetch = descriptor_fetch();
    let numbers = chosen_numbers();
    let scope = ptrace_scope();
    let mut offers = Vec::new();
    let mut add = |name, tried, usage, without| {
        offers.push(Offer::new(name, tried, usage, without));
    };
    add("pagemap scan", scan.clone(), "finding pages in one call", "it takes longer, by size");
    add(
        "write notes",
        uffd.clone(),
        "incremental images by what the kernel notes",
        "pages are hashed: every incremental image reads all memory",
    );
    add("descriptor fetch", fetch.clone(), "write notes", "pages are hashed");
    let lazy = userfaultfd(0).map(|_| String::new()).map_err(reason);
    add(
        "full userfaultfd",
        lazy.clone(),
        "restoring lazily",
        "a restored program starts when all its memory is in",
    );
    add("tracing others", scope.clone(), "images of processes that others started", {
        "programs must be started by eyrie or eyrie-image"
    });
    add(
        "chosen numbers",
        numbers.clone(),
        "restored processes and threads keep their numbers",
        "they get new ones, and libc is told",
    );
    add("kcmp", kcmp(), "telling shared file positions apart", {
        "descriptors that look alike count as one"
    });
    add("memfd", memfd(), "job segments, plans of restores", "nothing works");
    add("guard pages", guards(), "guard pages of newer libcs", "");
    add("huge pages", huge_pages(), "programs that reserve them", "such programs are refused");
    add("transparent huge pages", transparent(), "faster twins", "a twin takes longer to make");
    add("AVX-512", flag("avx512f"), "programs that use it", {
        "images of programs that use it are refused"
    });
    add("AMX", amx(), "programs that use it", "images of programs that use it are refused");
    let decisions = decide(&scan, uffd.and(fetch), &numbers, &scope, &lazy);
    Machine {
        kernel: first_line("/proc/sys/kernel/osrelease"),
        processor: cpuinfo("model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: ["MemTotal", "MemAvailable"].map(|name| meminfo(name).unwrap_or(0)),
        // SAFETY: no arguments.
        root: unsafe { libc::geteuid() } == 0,
        offers,
        decisions,
    }
}

fn decide(scan: &Tried, notes: Tried, numbers: &Tried, scope: &Tried, lazy: &Tried) -> Decisions {
    let tracking = match (&notes, scan, std::env::var("EYRIE_IMAGE_TRACKING").as_deref()) {
        (_, _, Ok("off")) => "off (EYRIE_IMAGE_TRACKING): every image is full".into(),
        (_, _, Ok("hash")) => "page hashes (EYRIE_IMAGE_TRACKING)".into(),
        (Ok(_), Ok(_), _) => "write protection: the kernel notes what is written".into(),
        (Err(why), _, _) | (_, Err(why), _) => format!("page hashes: {why}"),
    };
    let page_search = match scan {
        Ok(_) => "PAGEMAP_SCAN".into(),
        Err(why) => format!("/proc/PID/pagemap, entry by entry: {why}"),
    };
    let process_number = match numbers {
        Ok(_) => "the old one, if it is free".into(),
        Err(_) if crate::may_have_own_pids().is_ok() => {
            "the old one, in a user and PID namespace of the program's own".into()
        }
        Err(why) => format!("a new one: {why}"),
    };
    let reach = match scope {
        Ok(_) => "own children, and what the user may trace".into(),
        Err(why) => format!("own children only: {why}"),
    };
    let compression = "lz4 or zstd where that is faster than the storage, else none".into();
    let freeze = match crate::Mode::from_env() {
        crate::Mode::Auto => "copy or twin, whichever costs the program less as measured".into(),
        mode => format!("{} (EYRIE_IMAGE_FREEZE)", mode.name()),
    };
    let lazy_restore = match lazy {
        Ok(_) => "if asked for".into(),
        Err(why) => format!("no: {why}"),
    };
    Decisions { tracking, page_search, process_number, reach, freeze, lazy_restore, compression }
}

/// The descriptor that a call returned.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

fn userfaultfd(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes flags only.
    owned(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) })
}

fn write_notes() -> Tried {
    let uffd = userfaultfd(UFFD_USER_MODE_ONLY).map_err(reason)?;
    let mut api = [UFFD_API, UFFD_WRITE_FEATURES, 0];
    // SAFETY: the structure is live and of the size that the request has.
    match unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } {
        0 => Ok(String::new()),
        _ => Err(reason(io::Error::last_os_error())),
    }
}

fn page_search() -> Tried {
    let own = std::process::id() as libc::pid_t;
    let mut pagemap = Pagemap::open(own).map_err(|e| e.to_string())?;
    let place = [0u8; PAGE];
    let page = place.as_ptr() as u64 / crate::PAGE_BYTES * crate::PAGE_BYTES;
    let part = Part { start: page, end: page + crate::PAGE_BYTES, anon: false };
    pagemap.own_pages(part, 1, &mut Vec::new()).map_err(|e| e.to_string())?;
    if pagemap.is_fast() { Ok(String::new()) } else { Err("the kernel does not have it".into()) }
}

fn descriptor_fetch() -> Tried {
    // SAFETY: plain system calls on numbers; the results are checked.
    unsafe {
        let own = owned(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0)).map_err(reason)?;
        let number = own.as_raw_fd();
        let copy = libc::syscall(libc::SYS_pidfd_getfd, number, number, 0);
        owned(copy).map(|_| String::new()).map_err(reason)
    }
}

fn ptrace_scope() -> Tried {
    let scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
    let level = scope.parse::<u32>().unwrap_or(0);
    let capable = capability(19);
    match level {
        0 => Ok(String::new()),
        1 | 2 if capable => Ok(format!("kernel.yama.ptrace_scope is {level}, and we may")),
        _ => Err(format!("kernel.yama.ptrace_scope is {level}")),
    }
}

fn kcmp() -> Tried {
    let own = std::process::id();
    // SAFETY: takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, own, own, 0, 0, 0) } {
        r if r >= 0 => Ok(String::new()),
        _ => Err(reason(io::Error::last_os_error())),
    }
}

fn memfd() -> Tried {
    // SAFETY: the name is a constant.
    let made = unsafe { libc::memfd_create(c"eyrie-info".as_ptr(), libc::MFD_CLOEXEC) };
    owned(libc::c_long::from(made)).map(|_| String::new()).map_err(reason)
}

fn guards() -> Tried {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of our own, that nobody uses and that is gone at the end.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), PAGE, prot, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(reason(io::Error::last_os_error()));
        }
        let result = libc::madvise(at, PAGE, MADV_GUARD_INSTALL);
        let error = io::Error::last_os_error();
        libc::munmap(at, PAGE);
        if result == 0 { Ok(String::new()) } else { Err(reason(error)) }
    }
}

fn huge_pages() -> Tried {
    let count = |name: &str| meminfo(name).unwrap_or(0) / 1024;
    match (count("HugePages_Total"), count("HugePages_Free")) {
        (0, _) => Err("none are reserved".into()),
        (all, free) => Ok(format!("{free} of {all} are free")),
    }
}

/// `of`: which memory's, as the kernel names it (`shmem_`), private memory's if empty.
fn transparent() -> Tried {
    let line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = line.split('[').nth(1).and_then(|l| l.split(']').next()).unwrap_or("never");
    let off = matches!(chosen, "never" | "deny");
    if off { Err("switched off".into()) } else { Ok(chosen.into()) }
}

fn flag(name: &str) -> Tried {
    let flags = cpuinfo("flags").unwrap_or_default();
    if flags.split_whitespace().any(|f| f == name) {
        Ok(String::new())
    } else {
        Err("the processor does not have it".into())
    }
}

fn amx() -> Tried {
    flag("amx_tile")?;
    let mut supported = 0u64;
    // SAFETY: the kernel writes one word to a live place.
    let rc = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &mut supported) };
    match rc {
        0 if supported & XFEATURE_AMX != 0 => Ok(String::new()),
        _ => Err("the kernel does not give it to programs".into()),
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_string()
}

fn cpuinfo(name: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name))?;
    Some(line.split(':').nth(1)?.trim().to_string())
}

/// A line of `/proc/meminfo` in bytes (counts: times 1024), if there is such a one.
pub fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_leaves_nothing_behind() {
        let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        let here = machine();
        assert!(here.offers.iter().any(|o| o.name == "memfd" && o.here));
        assert!(here.memory[0] > here.memory[1] && here.cores > 0);
        let names: Vec<&str> = here.offers.iter().map(|o| o.name).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(names.len(), once.len());
        // Other tests of this process open files too; a leak would add up.
        (0..50).for_each(|_| drop(machine()));
        assert!(descriptors() < before + 50);
        // Other tests have children, too: those of this thread.
        let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD;
        // SAFETY: all zeros is a siginfo, which is live.
        let left = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_ALL, 0, &mut info, look)
        };
        assert_eq!((left, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ECHILD)));
    }
}
