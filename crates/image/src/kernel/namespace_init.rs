//! The first process of a PID namespace, the one outside that waits for it, and the steps that make
//! the namespaces.
//!
//! Kept true: between a fork and what follows it only system calls are made on memory that was
//! there before; the first process holds no descriptor of others, so that the end of a pipe is seen
//! by whoever waits for it; who is killed outside takes all inside with him.

use crate::kernel::capabilities::CAP_CHECKPOINT_RESTORE;
use crate::kernel::pid_namespace::{Maps, numbered};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Marks signals that the first process is to pass on.
const PASSED: usize = 0x4579_7269;
/// Descriptors that programs have use for are below.
const HIGH_FD: libc::c_int = 200;
/// Where the first process has its end of the pipe that tells how all ended.
const TELL_FD: RawFd = 3;
/// Steps, by number as a pipe tells them.
const STEPS: [&str; 6] = [
    "a user namespace",
    "the user's numbers in it",
    "a process in it",
    "a /proc of its own",
    "a chosen number",
    "a step that is not known",
];
const SPACE: u8 = 0;
const MAPS: u8 = 1;
const PROCESS: u8 = 2;
const PROC: u8 = 3;
const NUMBER: u8 = 4;
/// That nothing failed; and that who tells it stays, for what others left behind.
const DONE: u8 = 255;
const STAYS: u8 = 254;

/// What could not be had.
#[derive(Debug, Clone)]
pub(crate) struct Stuck {
    pub what: &'static str,
    pub errno: i32,
}

impl Stuck {
    fn at(step: u8, errno: i32) -> Stuck {
        Stuck { what: STEPS[(step as usize).min(STEPS.len() - 1)], errno }
    }

    /// What a pipe told: a step and its error.
    pub fn told(bytes: &[u8]) -> Result<(), Stuck> {
        match bytes {
            [DONE, ..] => Ok(()),
            [step, a, b, c, d, ..] => Err(Stuck::at(*step, i32::from_le_bytes([*a, *b, *c, *d]))),
            _ => Err(Stuck::at(PROCESS, libc::ECHILD)),
        }
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn tell(fd: RawFd, step: u8, errno: i32) {
    let [a, b, c, d] = errno.to_le_bytes();
    let bytes = [step, a, b, c, d];
    // SAFETY: writes from live memory; who does not listen need not hear it.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

/// Tries all of it out and tells the outcome; does not return. Makes system calls only.
pub(crate) fn try_out(maps: &Maps, number: libc::pid_t, to: RawFd) -> ! {
    let outcome = apart(maps).and_then(|()| {
        // SAFETY: a plain fork without libc's handlers: the child only makes system calls.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            0 => {
                match settle(maps).and_then(|()| choose(number)) {
                    Ok(()) => tell(to, DONE, 0),
                    Err((step, errno)) => tell(to, step, errno),
                }
                // SAFETY: ends this process.
                unsafe { libc::_exit(0) }
            }
            -1 => Err((PROCESS, errno())),
            child => {
                // SAFETY: waits for our own child.
                unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };
                Ok(())
            }
        }
    });
    if let Err((step, errno)) = outcome {
        tell(to, step, errno);
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) }
}

/// The next child is the first process of a PID namespace. System calls only.
fn apart(maps: &Maps) -> Result<(), (u8, i32)> {
    let user = if maps.user { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: takes flags only.
    if unsafe { libc::unshare(user | libc::CLONE_NEWPID | libc::CLONE_NEWNS) } < 0 {
        return Err((SPACE, errno()));
    }
    if !maps.user {
        return Ok(());
    }
    let files: [(&CStr, &[u8]); 3] = [
        (c"/proc/self/setgroups", b"deny"),
        (c"/proc/self/uid_map", maps.uid.as_bytes()),
        (c"/proc/self/gid_map", maps.gid.as_bytes()),
    ];
    files.iter().try_for_each(|(path, bytes)| write(path, bytes).map_err(|errno| (MAPS, errno)))
}

fn write(path: &CStr, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: opens, writes from live memory, closes its own descriptor.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(errno());
        }
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = if written == bytes.len() as isize { Ok(()) } else { Err(errno()) };
        libc::close(fd);
        result
    }
}

/// Has the first process see its own namespace in `/proc`. What others mount still comes here, and
/// nothing of this goes there. System calls only.
fn settle(maps: &Maps) -> Result<(), (u8, i32)> {
    let none = std::ptr::null();
    // SAFETY: constants only.
    let mounted = unsafe {
        // Mounts of a user namespace are so by themselves.
        (maps.user
            || libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_SLAVE | libc::MS_REC,
                std::ptr::null(),
            ) == 0)
            && libc::mount(
                c"proc".as_ptr(),
                c"/proc".as_ptr(),
                c"proc".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
                std::ptr::null(),
            ) == 0
    };
    if mounted { Ok(()) } else { Err((PROC, errno())) }
}

/// Makes a process with this number, which ends at once.
fn choose(number: libc::pid_t) -> Result<(), (u8, i32)> {
    let args = numbered(&number);
    // SAFETY: arguments are live and of the size told; the child only ends.
    match unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) } {
        -1 => Err((NUMBER, errno())),
        // SAFETY: ends the new process.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

/// Signals that both wait for: all but those of job control, which are to stop who stays outside
/// as they stop the program.
fn waited_for() -> libc::sigset_t {
    // SAFETY: initialises a live set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGCONT] {
            libc::sigdelset(&mut set, signal);
        }
        set
    }
}

/// Goes on inside, and returns there, with a descriptor of the `/proc` outside. `start`: where
/// numbers are counted from, asked inside.
pub(crate) fn enter(maps: &Maps, start: &dyn Fn() -> i32) -> Result<RawFd, Stuck> {
    let stuck = |(step, errno): (u8, i32)| Stuck::at(step, errno);
    let failed = |_: io::Error| stuck((PROCESS, errno()));
    let (heard, told) = io::pipe().map_err(failed)?;
    let (lives, life) = io::pipe().map_err(failed)?;
    let set = waited_for();
    // SAFETY: initialises and reads live sets; a plain fork of a process with one thread.
    let (child, before) = unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut before);
        if let Err(why) = apart(maps) {
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            return Err(stuck(why));
        }
        (libc::fork(), before)
    };
    match child {
        -1 => Err(stuck((PROCESS, errno()))),
        0 => {
            drop((heard, life));
            begin(maps, &set, &before, start, OwnedFd::from(told), OwnedFd::from(lives))
        }
        first => {
            drop((told, lives));
            outside(first, &set, &before, OwnedFd::from(heard), OwnedFd::from(life))
        }
    }
}

/// The first process: returns in its child, which is the one who entered.
fn begin(
    maps: &Maps,
    set: &libc::sigset_t,
    before: &libc::sigset_t,
    start: &dyn Fn() -> i32,
    told: OwnedFd,
    lives: OwnedFd,
) -> Result<RawFd, Stuck> {
    // SAFETY: plain system calls on live memory, in a process with one thread.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut poll = libc::pollfd { fd: lives.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        if libc::poll(&mut poll, 1, 0) != 0 {
            // Who stays outside was killed before that.
            libc::_exit(128 + libc::SIGKILL);
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let open = libc::open(c"/proc".as_ptr(), flags);
        let outside = libc::fcntl(open, libc::F_DUPFD_CLOEXEC, HIGH_FD);
        libc::close(open);
        if let Err((step, errno)) = settle(maps) {
            tell(told.as_raw_fd(), step, errno);
            libc::_exit(1);
        }
        // Where the kernel has no such file, numbers are counted from 1.
        let _ = write(c"/proc/sys/kernel/ns_last_pid", start().to_string().as_bytes());
        match libc::fork() {
            -1 => {
                tell(told.as_raw_fd(), PROCESS, errno());
                libc::_exit(1)
            }
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != 1 {
                    libc::_exit(128 + libc::SIGKILL);
                }
                if maps.user {
                    keep_one_right();
                }
                libc::sigprocmask(libc::SIG_SETMASK, before, std::ptr::null_mut());
                Ok(outside)
            }
            entered => first(entered, set, told.as_raw_fd()),
        }
    }
}

/// Of all rights in the new namespace only that to choose numbers is kept, and passed on to what is
/// started: with others the user could write to files of his own that are read-only. What root
/// starts has all of them anyway, and must not have more than we do.
fn keep_one_right() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        return;
    }
    #[repr(C)]
    struct Head {
        version: u32,
        pid: i32,
    }
    let mut head = Head { version: 0x2008_0522, pid: 0 };
    let one = 1u32 << (CAP_CHECKPOINT_RESTORE - 32);
    // Effective, permitted, inheritable; the lower halves, then the upper ones.
    let sets = [0u32, 0, 0, one, one, one];
    // SAFETY: the kernel reads live structures.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut head, sets.as_ptr()) };
    let _ = crate::pass_on_rights();
}

/// Collects what ends, passes signals on, and tells how the one who entered ended. What that one
/// leaves behind at an orderly end may go on.
fn first(entered: libc::pid_t, set: &libc::sigset_t, told: RawFd) -> ! {
    // SAFETY: plain system calls; descriptors of others are let go of.
    unsafe {
        libc::dup2(told, TELL_FD);
        libc::syscall(libc::SYS_close_range, TELL_FD + 1, u32::MAX, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
        libc::close(null);
        libc::chdir(c"/".as_ptr());
        libc::fcntl(TELL_FD, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    loop {
        // SAFETY: siginfo_t is plain data for which zero is valid; both places are live.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(set, &mut info), info)
        };
        if signal > 0 && info.si_code == libc::SI_QUEUE {
            // SAFETY: a signal that was queued has a value.
            let mark = unsafe { info.si_value().sival_ptr } as usize;
            if mark == PASSED {
                // SAFETY: a child of ours that is not collected yet.
                unsafe { libc::kill(entered, signal) };
            }
        }
        collect(entered);
    }
}

/// Collects all that have ended. Ends with the last of them, if the one who entered is gone.
fn collect(entered: libc::pid_t) {
    loop {
        let mut status = 0;
        // SAFETY: a live place; children of ours.
        let ended = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
        if ended == entered {
            let orderly = libc::WIFEXITED(status);
            let stays = orderly && !matches!(children(), Some(false));
            // SAFETY: plain system calls; the pipe is ours.
            unsafe {
                if stays {
                    libc::prctl(libc::PR_SET_PDEATHSIG, 0);
                }
                tell(TELL_FD, if stays { STAYS } else { DONE }, status);
                libc::close(TELL_FD);
                if !stays {
                    libc::_exit(0);
                }
            }
        } else if ended < 0 && errno() == libc::ECHILD {
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        } else if ended <= 0 {
            return;
        }
    }
}

/// Whether there are children.
fn children() -> Option<bool> {
    // SAFETY: zero is valid for the structure; a live place.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        match libc::waitid(libc::P_ALL, 0, &mut info, options) {
            0 => Some(true),
            _ => (errno() == libc::ECHILD).then_some(false),
        }
    }
}

/// Who stays outside: passes on what it is told, and ends as the one inside.
fn outside(
    first: libc::pid_t,
    set: &libc::sigset_t,
    before: &libc::sigset_t,
    heard: OwnedFd,
    life: OwnedFd,
) -> Result<RawFd, Stuck> {
    // SAFETY: plain system calls; descriptors of others are let go of, both of ours are kept.
    let signals = unsafe {
        let heard = libc::fcntl(heard.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH_FD);
        let life = libc::fcntl(life.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH_FD);
        let signals = libc::signalfd(-1, set, libc::SFD_CLOEXEC);
        let signals = libc::fcntl(signals, libc::F_DUPFD_CLOEXEC, HIGH_FD);
        libc::dup2(heard, TELL_FD);
        libc::dup2(life, TELL_FD + 1);
        libc::dup2(signals, TELL_FD + 2);
        libc::syscall(libc::SYS_close_range, TELL_FD + 3, u32::MAX, 0);
        TELL_FD + 2
    };
    std::mem::forget((heard, life));
    loop {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polls = [entry(TELL_FD), entry(signals)];
        // SAFETY: two live entries.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        if polls[1].revents & libc::POLLIN != 0 {
            pass_on(first, signals);
        }
        if polls[0].revents == 0 {
            continue;
        }
        let mut bytes = [0u8; 5];
        // SAFETY: reads into a live array.
        let count = unsafe { libc::read(TELL_FD, bytes.as_mut_ptr().cast(), bytes.len()) };
        if count < bytes.len() as isize {
            let mut status = 0;
            // SAFETY: our own child, which was killed: it told nothing.
            unsafe { libc::waitpid(first, &mut status, 0) };
            end_as(status, before);
        }
        // What could not begin, or how it ended.
        let [step, a, b, c, d] = bytes;
        let number = i32::from_le_bytes([a, b, c, d]);
        if step == DONE {
            // SAFETY: our own child, which ends.
            unsafe { libc::waitpid(first, std::ptr::null_mut(), 0) };
        }
        if matches!(step, DONE | STAYS) {
            end_as(number, before);
        }
        return Err(Stuck::at(step, number));
    }
}

/// Passes one signal on, unless a terminal has sent it to the whole group.
fn pass_on(first: libc::pid_t, signals: RawFd) {
    // SAFETY: plain data for which zero is valid; writes at most as many bytes as there are. The
    // kernel reads a live structure of its size.
    unsafe {
        let mut seen: libc::signalfd_siginfo = std::mem::zeroed();
        let bytes = size_of_val(&seen);
        let count = libc::read(signals, (&raw mut seen).cast(), bytes);
        if count != bytes as isize || seen.ssi_code > 0 {
            return;
        }
        let value = libc::sigval { sival_ptr: PASSED as *mut libc::c_void };
        libc::sigqueue(first, seen.ssi_signo as libc::c_int, value);
    }
}

/// Ends with an exit code, or by a signal, as a status says.
fn end_as(status: i32, before: &libc::sigset_t) -> ! {
    // SAFETY: plain system calls; this process has nothing left to do.
    unsafe {
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
            let mut set: libc::sigset_t = *before;
            libc::sigdelset(&mut set, signal);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            libc::_exit(128 + signal);
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}
