//! Numbers of processes that a program can have again although its user may not choose any: a user
//! namespace, a PID namespace that it owns, and a `/proc` of that one, made by an ordinary user
//! where the kernel lets him.
//!
//! Whoever enters goes on inside, as a child of a small first process
//! ([`crate::kernel::namespace_init`]); who called stays outside, passes signals on and ends as the
//! one inside did. Inside, the user is himself, and of all rights has the one to choose numbers;
//! other users, root too, are shown as `nobody` (65534).
//!
//! Kept true: whether it can be had is tried by a process that is not needed for anything else, so
//! that a refusal of the kernel changes nothing.

use crate::kernel::capabilities;
use crate::kernel::clone::CloneArgs;
use crate::kernel::namespace_init::{self, Stuck};
use eyrie_image_format::support::private_files::note_own_namespace;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Whether a program gets numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnPids {
    /// Where its user may not choose numbers otherwise.
    #[default]
    Auto,
    /// In any case.
    Yes,
    /// Never.
    No,
}

impl OwnPids {
    /// What can be chosen.
    pub const WORDS: [&str; 3] = ["auto", "yes", "no"];
    /// Where it is chosen for what is started from here on.
    pub const VARIABLE: &str = "EYRIE_OWN_PIDS";

    /// What an option says, or else the environment.
    pub fn chosen(option: Option<&str>) -> OwnPids {
        let word = option.map(String::from).or_else(|| std::env::var(OwnPids::VARIABLE).ok());
        match word.as_deref() {
            Some("yes") => OwnPids::Yes,
            Some("no") => OwnPids::No,
            _ => OwnPids::Auto,
        }
    }
}

/// Number that a process is made with to see whether it can be.
const TRIED_NUMBER: libc::pid_t = 4321;
/// Numbers from here to there are free of those to be left alone, for what runs beside a program.
const CLEAR: i32 = 2000;
/// The kernel counts from here when it begins anew.
const FIRST_NUMBER: i32 = 301;
/// Switches of systems that keep namespaces from ordinary users.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", "0"),
    ("kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone", "0"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ),
];

/// The `/proc` outside, of one who has entered.
static OUTSIDE: AtomicI32 = AtomicI32::new(-1);

/// What the kernel is told of the user.
pub(crate) struct Maps {
    /// Whether a user namespace is needed.
    pub user: bool,
    pub uid: String,
    pub gid: String,
}

impl Maps {
    fn own() -> Maps {
        // SAFETY: plain system calls.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let one = |id: u32| format!("{id} {id} 1");
        Maps {
            user: !capabilities::capability(capabilities::CAP_SYS_ADMIN),
            uid: one(uid),
            gid: one(gid),
        }
    }
}

/// Whether this user can have numbers of his own, and so a program with child processes be brought
/// back; or why not, and the remedy.
pub fn may_have_own_pids() -> Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED.get_or_init(|| attempt(&Maps::own()).map_err(|stuck| explain(&stuck))).clone()
}

/// Whether a process restored from here can be given the number it had: by a right that this user
/// has, or in a namespace of its own as far as `own` says.
pub fn may_bring_numbers_back(own: OwnPids) -> Result<(), String> {
    if own != OwnPids::Yes && crate::may_choose_numbers() {
        return Ok(());
    }
    if own == OwnPids::No {
        return Err("this user may not choose numbers of processes, and a namespace of the \
                    program's own, where it could be done, is switched off (--own-pids no)"
            .into());
    }
    may_have_own_pids()
}

/// Makes the namespaces in a process that is thrown away.
fn attempt(maps: &Maps) -> Result<(), Stuck> {
    let failed = |what| move |e: io::Error| Stuck { what, errno: e.raw_os_error().unwrap_or(0) };
    let (mut read, write) = io::pipe().map_err(failed("a pipe"))?;
    // SAFETY: a plain fork without libc's handlers: the child only makes system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        namespace_init::try_out(maps, TRIED_NUMBER, write.as_raw_fd());
    }
    if child < 0 {
        return Err(failed("a process")(io::Error::last_os_error()));
    }
    drop(write);
    let mut told = Vec::new();
    let _ = read.read_to_end(&mut told);
    // SAFETY: waits for our own child. Whoever collects all children may have been sooner.
    unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };
    Stuck::told(&told)
}

/// What the user is told.
fn explain(stuck: &Stuck) -> String {
    let set = |(_, path, bad): &&(&str, &str, &str)| {
        fs::read_to_string(path).is_ok_and(|text| text.trim() == *bad)
    };
    let error = io::Error::from_raw_os_error(stuck.errno);
    let switch = match SWITCHES.iter().find(set) {
        Some((name, _, value)) => format!("{name} is {value}"),
        None => "a container or a security module may forbid it".into(),
    };
    format!(
        "this user may not choose numbers of processes, and the kernel refuses a namespace where \
         it could be done ({}: {error}; {switch}). Remedy: have the administrator allow user \
         namespaces, or give the right (setcap cap_checkpoint_restore+ep, or setpriv --inh-caps \
         +checkpoint_restore --ambient-caps +checkpoint_restore)",
        stuck.what
    )
}

/// Goes on in namespaces of its own, where all numbers but `taken` are given to what is started
/// there first. To be called by a process with one thread, which has read and written nothing of
/// importance: who called stays outside to the end, and does not return.
pub fn enter_own_pids(taken: &[i32]) -> Result<(), String> {
    may_have_own_pids()?;
    await_alone();
    // The highest number may be another one inside.
    let start = || start_number(taken, pid_max(), seed());
    let outside = namespace_init::enter(&Maps::own(), &start).map_err(|stuck| explain(&stuck))?;
    OUTSIDE.store(outside, Ordering::Relaxed);
    note_own_namespace();
    Ok(())
}

/// Waits for threads that were joined to be gone for the kernel, too, which makes no user namespace
/// for a process with several.
fn await_alone() {
    for _ in 0..2000 {
        if fs::read_dir("/proc/self/task").map_or(1, Iterator::count) <= 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Enters where `own` asks for it; tells whether it did.
pub fn enter_if(own: OwnPids, taken: &[i32]) -> Result<bool, String> {
    let wanted = match own {
        OwnPids::No => false,
        OwnPids::Yes => true,
        OwnPids::Auto => !crate::may_choose_numbers() && may_have_own_pids().is_ok(),
    };
    if wanted {
        enter_own_pids(taken)?;
    }
    Ok(wanted)
}

/// The number that a process has for those who look from outside of our namespace.
pub fn outer_pid(pid: libc::pid_t) -> libc::pid_t {
    let outside = OUTSIDE.load(Ordering::Relaxed);
    if outside < 0 {
        return pid;
    }
    outer(outside, pid).unwrap_or(pid)
}

/// The number of this process for those who look from outside.
pub fn own_outer_pid() -> u32 {
    outer_pid(std::process::id() as libc::pid_t) as u32
}

/// What the `/proc` outside says of a descriptor of the process.
fn outer(outside: RawFd, pid: libc::pid_t) -> Option<libc::pid_t> {
    // SAFETY: numbers only.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if pidfd < 0 {
        return None;
    }
    // SAFETY: just made, and nobody else's.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd as RawFd) };
    let path = format!("/proc/self/fd/{outside}/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|pid| *pid > 0)
}

fn pid_max() -> i32 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(32768)
}

fn seed() -> u64 {
    let mut seed = 0u64;
    // SAFETY: fills eight bytes; on failure they stay as they are.
    unsafe { libc::getrandom((&raw mut seed).cast(), size_of::<u64>(), 0) };
    seed ^ u64::from(std::process::id())
}

/// A number behind which none of those that are taken comes soon. Two namespaces seldom begin at
/// the same one, so that a program finds its numbers free in another that runs already.
fn start_number(taken: &[i32], max: i32, mut seed: u64) -> i32 {
    let room = (max - FIRST_NUMBER - CLEAR).max(1) as u64;
    let mut start = FIRST_NUMBER;
    for _ in 0..1000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        start = FIRST_NUMBER + ((seed >> 33) % room) as i32;
        if !taken.iter().any(|pid| (start..start + CLEAR).contains(pid)) {
            break;
        }
    }
    start
}

/// Arguments that make a process with the number at `number`.
pub(crate) fn numbered(number: &libc::pid_t) -> [u64; 10] {
    CloneArgs::numbered(libc::SIGCHLD, &raw const *number as u64).words()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_away_from_those_taken() {
        let taken = [301, 5000, 9000, 20_000, 32_000];
        for seed in 0..500 {
            let start = start_number(&taken, 32768, seed);
            assert!(start >= FIRST_NUMBER && start + CLEAR <= 32768);
            assert!(!taken.iter().any(|pid| (start..start + CLEAR).contains(pid)), "{start}");
        }
        // No such place: any will do.
        let all: Vec<i32> = (0..32768).step_by(100).collect();
        assert!(start_number(&all, 32768, 1) >= FIRST_NUMBER);
    }

    #[test]
    fn a_refusal_names_the_step_and_a_remedy() {
        let why = explain(&Stuck { what: "a user namespace", errno: libc::EPERM });
        assert!(why.contains("a user namespace: Operation not permitted"), "{why}");
        assert!(why.contains("Remedy") && why.contains("cap_checkpoint_restore"), "{why}");
        assert!(may_bring_numbers_back(OwnPids::No).is_ok() == crate::may_choose_numbers());
    }
}
