//! Deadlines of system calls that could take for ever, kept by a thread of its own.
//!
//! A thread that stops a process waits in the kernel: for a stop, or to attach while the process
//! executes another program. Such a call is made at one known instruction. When its deadline has
//! passed, the warden sends its thread a signal, and the handler has that instruction skipped, so
//! that the kernel does not begin the call anew. Nothing else of the thread is touched, so whatever
//! it does next goes on as if there had been no signal.
//!
//! Only the processes that stop others have this; a program whose image is taken never does.

use std::arch::global_asm;
use std::cell::OnceCell;
use std::io;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Nobody else uses it: the kernel never sends it.
const SIGNAL: libc::c_int = libc::SIGSTKFLT;
/// How often the warden looks while somebody may be waiting. A signal that comes right before a
/// call is skipped with it; one that comes earlier is sent again at the next look.
const TICK: Duration = Duration::from_millis(20);
/// Looks at which nobody waited before it sleeps until somebody does.
const QUIET_LOOKS: u32 = 50;
/// No deadline.
const NEVER: u64 = u64::MAX;

global_asm!(
    ".pushsection .text.eyrie_image_call,\"ax\",@progbits",
    ".globl eyrie_image_call",
    ".hidden eyrie_image_call",
    ".globl eyrie_image_call_site",
    ".hidden eyrie_image_call_site",
    ".type eyrie_image_call,@function",
    "eyrie_image_call:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "eyrie_image_call_site:",
    "syscall",
    "ret",
    ".size eyrie_image_call, . - eyrie_image_call",
    ".popsection",
);

/// Bytes of the `syscall` instruction.
const SYSCALL_BYTES: i64 = 2;

unsafe extern "C" {
    fn eyrie_image_call(
        nr: libc::c_long,
        args: usize,
        _: usize,
        _: usize,
        _: usize,
        _: usize,
    ) -> libc::c_long;
    static eyrie_image_call_site: u8;
}

/// A thread that makes such calls.
struct Caller {
    tid: libc::pid_t,
    /// Deadline of the call that it makes, in nanoseconds of the warden's clock.
    end: AtomicU64,
}

struct Warden {
    /// The process that its thread belongs to: a copy of it has none.
    process: u32,
    zero: Instant,
    callers: Mutex<Vec<Arc<Caller>>>,
    called: Condvar,
    sleeps: AtomicBool,
}

/// A thread's place among the callers, for as long as it lives.
struct Place(Arc<Caller>);

thread_local! {
    static PLACE: OnceCell<Option<Place>> = const { OnceCell::new() };
}

/// None: no thread could be had for it.
static WARDEN: OnceLock<Option<Warden>> = OnceLock::new();

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(warden) = warden() {
            warden.callers().retain(|caller| !Arc::ptr_eq(caller, &self.0));
        }
    }
}

/// Makes a system call that is given up at `end`: then `None`. Other signals do not end it. Where
/// there is no warden, and so no deadline would hold, it is an error: `WouldBlock`.
///
/// # Safety
/// As for the call itself: addresses among the arguments are those of live buffers.
pub(crate) unsafe fn call(
    nr: libc::c_long,
    args: [usize; 5],
    end: Instant,
) -> io::Result<Option<libc::c_long>> {
    let none = || io::Error::from(io::ErrorKind::WouldBlock);
    let warden = warden().ok_or_else(none)?;
    let caller = PLACE.try_with(|place| {
        let place = place.get_or_init(|| warden.enter());
        place.as_ref().map(|place| Arc::clone(&place.0))
    });
    let caller = caller.ok().flatten().ok_or_else(none)?;
    let [a, b, c, d, e] = args;
    while Instant::now() < end {
        warden.watch(&caller, end);
        // SAFETY: by this function's contract.
        let result = unsafe { eyrie_image_call(nr, a, b, c, d, e) };
        caller.end.store(NEVER, Ordering::SeqCst);
        match result {
            0.. => return Ok(Some(result)),
            error if error == -libc::c_long::from(libc::EINTR) => {}
            error => return Err(io::Error::from_raw_os_error(-error as i32)),
        }
    }
    Ok(None)
}

fn warden() -> Option<&'static Warden> {
    let warden = WARDEN.get_or_init(|| {
        let new = Warden {
            process: std::process::id(),
            zero: Instant::now(),
            callers: Mutex::default(),
            called: Condvar::new(),
            sleeps: AtomicBool::new(false),
        };
        handle().then_some(new)
    });
    let warden = warden.as_ref()?;
    static THREAD: OnceLock<bool> = OnceLock::new();
    let runs = *THREAD.get_or_init(|| {
        let thread = std::thread::Builder::new().name("eyrie-warden".into());
        thread.spawn(|| warden.keep()).is_ok()
    });
    (runs && warden.process == std::process::id()).then_some(warden)
}

/// Installs the handler. Calls that are not ours go on as without the signal.
fn handle() -> bool {
    // SAFETY: all-zero is a valid value of this plain structure, and the handler has the form that
    // the flag asks for.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = skip;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0
    }
}

/// Has the call end with `EINTR` if its thread is about to begin it, or to begin it anew.
extern "C" fn skip(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: the kernel gives a handler of this kind the context of its own thread.
    let regs = unsafe { &mut (*context).uc_mcontext.gregs };
    let rip = &mut regs[libc::REG_RIP as usize];
    if *rip == &raw const eyrie_image_call_site as i64 {
        *rip += SYSCALL_BYTES;
        regs[libc::REG_RAX as usize] = -i64::from(libc::EINTR);
    }
}

impl Warden {
    fn callers(&self) -> MutexGuard<'_, Vec<Arc<Caller>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread is to be looked after.
    fn enter(&self) -> Option<Place> {
        // SAFETY: a set of signals is plain data; it is filled before it is used.
        let unblocked = unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, SIGNAL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) == 0
        };
        // SAFETY: no arguments.
        let tid = unsafe { libc::gettid() };
        let caller = Arc::new(Caller { tid, end: AtomicU64::new(NEVER) });
        self.callers().push(Arc::clone(&caller));
        unblocked.then_some(Place(caller))
    }

    fn watch(&self, caller: &Caller, end: Instant) {
        let end = end.saturating_duration_since(self.zero).as_nanos();
        caller.end.store(u64::try_from(end).unwrap_or(NEVER - 1), Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            drop(self.callers());
            self.called.notify_all();
        }
    }

    fn keep(&self) {
        let process = self.process as libc::pid_t;
        let mut quiet = 0;
        let mut callers = self.callers();
        loop {
            self.sleeps.store(quiet >= QUIET_LOOKS, Ordering::SeqCst);
            let now = self.zero.elapsed().as_nanos() as u64;
            quiet += 1;
            for caller in callers.iter() {
                let end = caller.end.load(Ordering::SeqCst);
                if end != NEVER {
                    quiet = 0;
                }
                if now >= end {
                    // SAFETY: numbers only. As long as it is on the list it lives.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, caller.tid, SIGNAL) };
                }
            }
            callers = if quiet > QUIET_LOOKS {
                quiet = 0;
                self.called.wait(callers).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.called.wait_timeout(callers, TICK);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest that a call of this test may go on after its deadline before it counts as endless.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn read(from: libc::c_int, end: Instant) -> io::Result<Option<libc::c_long>> {
        let mut byte = [0u8];
        // SAFETY: reads into a live byte.
        unsafe { call(libc::SYS_read, [from as usize, byte.as_mut_ptr() as usize, 1, 0, 0], end) }
    }

    #[test]
    fn a_call_that_would_take_for_ever_ends_at_its_deadline() {
        use std::os::fd::AsRawFd;
        let (from, mut to) = io::pipe().unwrap();
        for round in 0..3 {
            let begun = Instant::now();
            let limit = Duration::from_millis(50);
            assert_eq!(read(from.as_raw_fd(), begun + limit).unwrap(), None, "round {round}");
            assert!((limit..PATIENCE).contains(&begun.elapsed()));
            // It sleeps after some looks at which nobody waited.
            std::thread::sleep(if round == 0 { TICK * (QUIET_LOOKS + 10) } else { TICK });
        }
        io::Write::write_all(&mut to, b"x").unwrap();
        assert_eq!(read(from.as_raw_fd(), Instant::now() + PATIENCE).unwrap(), Some(1));
        assert_eq!(read(from.as_raw_fd(), Instant::now()).unwrap(), None, "over before it began");
        drop(to);
        assert_eq!(read(from.as_raw_fd(), Instant::now() + PATIENCE).unwrap(), Some(0));
        let error = read(-1, Instant::now() + PATIENCE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    /// As `eyrie-image run` has them, whose threads begin with most signals blocked.
    #[test]
    fn many_threads_have_their_deadlines_and_blocked_signals_are_no_hindrance() {
        let wait = |i: u64| {
            // SAFETY: a set of signals is plain data.
            unsafe {
                let mut all: libc::sigset_t = zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            }
            let (from, _to) = io::pipe().unwrap();
            let end = Instant::now() + Duration::from_millis(5 * i);
            assert_eq!(read(std::os::fd::AsRawFd::as_raw_fd(&from), end).unwrap(), None);
        };
        let threads: Vec<_> = (1..20).map(|i| std::thread::spawn(move || wait(i))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
