//! System calls in which a thread was interrupted by being stopped.
//!
//! Most of them the kernel restarts as if nothing had happened. Two kinds need help. Some calls end
//! with `EINTR` after any stop, also without a signal; a program that waits in one without a limit
//! must not learn of ours. And a sleep goes on for what was left of it by a note that the kernel
//! keeps about the thread, which is lost with the process: in a restored one the note is made anew.
//! A call that went on in this way once already hides behind `restart_syscall`; which one it is
//! tells the code that made it, or else its arguments.

use crate::error::RestoreError;
use crate::kernel::memory;
use crate::kernel::ptrace::{Stop, Tracee};
use eyrie_image_format::bytes::registers::Regs;

const EINTR: i64 = -4;
/// Restarts unless a handler is to be run; then the call ends with `EINTR`.
const RESTART_NO_HANDLER: i64 = -514;
/// Goes on by the kernel's note unless a handler is to be run.
const RESTART_BLOCK: i64 = -516;
const SYSCALL_BYTES: u64 = 2;

fn number(regs: &Regs) -> Option<libc::c_long> {
    let nr = regs.orig_rax as i64;
    (nr >= 0).then_some(nr as libc::c_long)
}

/// Has a call that is ended by any stop begin again, if it waits without a limit and no handler is
/// to be run; the kernel decides that when the thread is let go. One with a limit would wait all of
/// it again, and again at the next stop: it ends, as it may by `signal(7)`.
pub(crate) fn not_by_us(regs: &mut Regs) {
    let Some(nr) = number(regs).filter(|_| regs.rax as i64 == EINTR) else { return };
    let unlimited = match nr {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (regs.r10 as i32) < 0,
        libc::SYS_rt_sigtimedwait => regs.rdx == 0,
        libc::SYS_semop => true,
        libc::SYS_semtimedop | libc::SYS_epoll_pwait2 => regs.r10 == 0,
        libc::SYS_io_getevents => regs.r8 == 0,
        _ => false,
    };
    if unlimited {
        regs.rax = RESTART_NO_HANDLER as u64;
    }
}

/// Whether the thread is in a call that goes on by the kernel's note.
pub(crate) fn needs_note(regs: &Regs) -> bool {
    number(regs).is_some() && regs.rax as i64 == RESTART_BLOCK
}

/// Has the call begin anew.
pub(crate) fn begin_anew(regs: &mut Regs) {
    regs.rax = regs.orig_rax;
    regs.rip = regs.rip.wrapping_sub(SYSCALL_BYTES);
    regs.orig_rax = u64::MAX;
}

/// Names the call that is behind a `restart_syscall`, if that can be told.
pub(crate) fn name_call(tracee: Tracee, regs: &mut Regs) {
    if needs_note(regs) && number(regs) == Some(libc::SYS_restart_syscall) {
        let by_code = call_by_code(tracee.0, regs.rip);
        if let Some(nr) = by_code.or_else(|| call_by_arguments(tracee.0, regs)) {
            regs.orig_rax = nr as u64;
        }
    }
}

/// The number that is loaded right before the `syscall` instruction.
fn call_by_code(pid: libc::pid_t, rip: u64) -> Option<libc::c_long> {
    const LOAD_EAX: u8 = 0xb8;
    let mut code = [0; 7];
    memory::read_exact(pid, rip.wrapping_sub(code.len() as u64), &mut code).ok()?;
    let nr = libc::c_long::from(i32::from_le_bytes([code[1], code[2], code[3], code[4]]));
    let goes_on = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_poll, libc::SYS_futex];
    (code[0] == LOAD_EAX && code[5..] == [0x0f, 0x05] && goes_on.contains(&nr)).then_some(nr)
}

/// The call that only these arguments make sense for. One that waits for files is never guessed: it
/// would write.
fn call_by_arguments(pid: libc::pid_t, regs: &Regs) -> Option<libc::c_long> {
    const CLOCKS: u64 = 16;
    let is_time = |at: u64| {
        let time = memory::read_words::<2>(pid, at);
        at != 0 && time.is_ok_and(|[s, ns]| s >> 62 == 0 && ns < 1_000_000_000)
    };
    let operation = regs.rsi as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&operation);
    // A word that is no longer the awaited one was changed just now, and who waits is about to be
    // woken. It may look like a time: a futex is called in this way, a sleep hardly ever.
    let word = memory::read_words::<1>(pid, regs.rdi).is_ok() && regs.rdi.is_multiple_of(4);
    if regs.rdi < CLOCKS {
        (regs.rsi == 0 && is_time(regs.rdx)).then_some(libc::SYS_clock_nanosleep)
    } else if waits && is_time(regs.r10) && word {
        Some(libc::SYS_futex)
    } else if is_time(regs.rdi) && (regs.rsi == 0 || is_time(regs.rsi)) {
        Some(libc::SYS_nanosleep)
    } else {
        None
    }
}

/// For a sleep that told the program how much of it was left: a sleep of that length.
fn rest_of_sleep(regs: &Regs) -> Option<Regs> {
    let mut sleep = *regs;
    match number(regs)? {
        libc::SYS_nanosleep if regs.rsi != 0 => sleep.rdi = regs.rsi,
        libc::SYS_clock_nanosleep if regs.rsi == 0 && regs.r10 != 0 => sleep.rdx = regs.r10,
        _ => return None,
    }
    begin_anew(&mut sleep);
    Some(sleep)
}

/// Has the thread, which was in a sleep, begin the rest of it up to where a signal would interrupt
/// it. Tells whether there is a rest, and that of this kind. The caller stops the thread by a
/// signal next, upon which the kernel makes its note.
pub(crate) fn fall_asleep(tracee: Tracee, regs: &Regs) -> Result<bool, RestoreError> {
    let Some(sleep) = rest_of_sleep(regs).filter(|_| needs_note(regs)) else { return Ok(false) };
    tracee.set_regs(&sleep)?;
    tracee.resume_to_syscall(0)?;
    match tracee.wait()? {
        Stop::Syscall => Ok(true),
        other => Err(RestoreError::Died(format!("unexpected stop {other:?} at a sleep"))),
    }
}

/// Registers of a thread that fell asleep and was interrupted.
pub(crate) fn asleep(tracee: Tracee, regs: &Regs) -> Result<Regs, RestoreError> {
    let now = tracee.regs()?;
    if needs_note(&now) {
        return Ok(*regs);
    }
    // It was over at once.
    Ok(Regs { rax: now.rax, orig_rax: u64::MAX, ..*regs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupted(nr: libc::c_long, result: i64, limit: u64) -> Regs {
        // SAFETY: all-zero is a valid value of this plain structure.
        let zero: Regs = unsafe { std::mem::zeroed() };
        let (orig_rax, rax) = (nr as u64, result as u64);
        Regs { orig_rax, rax, rdx: limit, r10: limit, r8: limit, rip: 1000, ..zero }
    }

    #[test]
    fn only_calls_without_a_limit_are_restarted() {
        let forever = u64::from(u32::MAX);
        let cases = [
            (libc::SYS_epoll_wait, EINTR, forever, true),
            (libc::SYS_epoll_wait, EINTR, 1000, false),
            (libc::SYS_epoll_wait, 1, forever, false),
            (libc::SYS_rt_sigtimedwait, EINTR, 0, true),
            (libc::SYS_rt_sigtimedwait, EINTR, 0x7000, false),
            (libc::SYS_semop, EINTR, 5, true),
            (libc::SYS_close, EINTR, 0, false),
            // Not in a call: the number was cleared when its result was final.
            (-1, EINTR, 0, false),
        ];
        for (nr, result, limit, restarts) in cases {
            let mut regs = interrupted(nr, result, limit);
            not_by_us(&mut regs);
            let expected = if restarts { RESTART_NO_HANDLER } else { result };
            assert_eq!(regs.rax as i64, expected, "call {nr}");
        }
    }

    /// Our own memory serves as that of a thread.
    #[test]
    fn the_call_behind_a_restart_is_told_by_code_or_arguments() {
        let pid = std::process::id() as libc::pid_t;
        let named = |code: &[u8; 7], with: &dyn Fn(&mut Regs)| {
            let mut regs = interrupted(libc::SYS_restart_syscall, RESTART_BLOCK, 0);
            regs.rip = code.as_ptr() as u64 + 7;
            with(&mut regs);
            name_call(Tracee(pid), &mut regs);
            regs.orig_rax as libc::c_long
        };
        let unknown = [0x90, 0x90, 0x48, 0x89, 0xf8, 0x0f, 0x05];
        let poll = [0xb8, 7, 0, 0, 0, 0x0f, 0x05];
        let write = [0xb8, 1, 0, 0, 0, 0x0f, 0x05];
        let (time, word) = ([1u64, 999_999_999], [77u32, 0, 0xffff_ffff, 0xffff_ffff]);
        let time_at = time.as_ptr() as u64;
        assert_eq!(named(&poll, &|_| {}), libc::SYS_poll);
        assert_eq!(named(&write, &|_| {}), libc::SYS_restart_syscall);
        assert_eq!(named(&unknown, &|r| r.rdi = time_at), libc::SYS_nanosleep);
        let clock = |r: &mut Regs| (r.rdi, r.rdx) = (1, time_at);
        assert_eq!(named(&unknown, &clock), libc::SYS_clock_nanosleep);
        let futex = |r: &mut Regs| {
            (r.rdi, r.rsi, r.rdx, r.r10) = (word.as_ptr() as u64, 128, 77, time_at);
        };
        assert_eq!(named(&unknown, &futex), libc::SYS_futex);
        // Rung just now: the words look like a time, that of a sleep of many years.
        let rung = [0x2000_0005u32, 1, 0, 0];
        let doorbell = |r: &mut Regs| {
            (r.rdi, r.rsi, r.rdx, r.r10) = (rung.as_ptr() as u64, 0, 28, time_at);
        };
        assert_eq!(named(&unknown, &doorbell), libc::SYS_futex);
        let nothing = |r: &mut Regs| (r.rdi, r.rsi) = (0x7000, 3);
        assert_eq!(named(&unknown, &nothing), libc::SYS_restart_syscall);
    }

    #[test]
    fn the_rest_of_a_sleep_is_where_the_program_was_told_of_it() {
        let mut regs = interrupted(libc::SYS_nanosleep, RESTART_BLOCK, 0);
        assert!(rest_of_sleep(&regs).is_none());
        (regs.rdi, regs.rsi) = (0x7000, 0x8000);
        let sleep = rest_of_sleep(&regs).unwrap();
        assert_eq!((sleep.rdi, sleep.rsi, sleep.rip), (0x8000, 0x8000, 998));
        assert_eq!((sleep.rax, sleep.orig_rax), (libc::SYS_nanosleep as u64, u64::MAX));
        let mut absolute = interrupted(libc::SYS_clock_nanosleep, RESTART_BLOCK, 0x8000);
        absolute.rsi = libc::TIMER_ABSTIME as u64;
        assert!(rest_of_sleep(&absolute).is_none());
    }
}
