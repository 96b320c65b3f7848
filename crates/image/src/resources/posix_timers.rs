//! Timers made by `timer_create`.
//!
//! A timer whose signal is pending is bound to that signal: the kernel starts its next interval,
//! and counts what it missed, when the signal is taken. So such a signal is not queued again; the
//! timer is set to a time that has passed, and queues it itself. How many times it had expired
//! meanwhile is lost; those after the restore count.

use crate::error::{CaptureError, RestoreError, step_failed};
use crate::kernel::memory;
use crate::kernel::procfs;
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::Agent;
use crate::kernel::time::{nanoseconds, timespec};
use crate::resources::clocks;
use eyrie_image_format::bytes::registers::words_to_regs;
use eyrie_image_format::state::{Pending, PosixTimer, State, Thread};

const SI_TIMER: i32 = -2;
/// Chooses the numbers of new timers (Linux 6.16).
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
/// Set to make and delete timers until the number fits, as older kernels need it.
const ENV_NO_IDS: &str = "EYRIE_IMAGE_NO_TIMER_IDS";
/// Of that call: whether it is so, and known.
const ASKS: libc::c_ulong = 2;
/// Most timers that are made and deleted to get to a number.
const MAX_SKIPPED: u32 = 200_000;
/// Numbers that are tried on kernels that do not list timers.
const TRIED_IDS: u64 = 64;
/// Low bits of a clock of processor time: which time, and whether it is a thread's.
const CLOCK_KIND: i32 = 7;
const CLOCK_OF_THREAD: i32 = 4;
const TIMER_ABSTIME: u64 = 1;
const SIGEVENT_BYTES: usize = 64;

/// Reads the timers of a frozen process. Signals of theirs that are pending are taken from the
/// lists of pending ones.
pub fn capture(
    pid: libc::pid_t,
    agent: &Agent,
    threads: &mut [Thread],
    pending: &mut Vec<Pending>,
) -> Result<Vec<PosixTimer>, CaptureError> {
    let Ok(text) = procfs::read(pid, "timers") else {
        return refuse_unlisted(agent).map(|()| Vec::new());
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut timers = parse(&text).ok_or_else(|| CaptureError::Proc("/proc/PID/timers".into()))?;
    for timer in &mut timers {
        let words = agent.ask::<4>(libc::SYS_timer_gettime, &[timer.id as u64, 0], 1)?;
        let [every_s, every_ns, left_s, left_ns] = words.map_err(|e| CaptureError::Os {
            what: "read a timer",
            source: std::io::Error::from_raw_os_error(-e as i32),
        })?;
        let time = |tv_sec: u64, tv_nsec: u64| {
            nanoseconds(&libc::timespec { tv_sec: tv_sec as i64, tv_nsec: tv_nsec as i64 })
        };
        timer.interval_ns = time(every_s, every_ns);
        timer.left_ns = time(left_s, left_ns);
        let known: Vec<i32> = threads.iter().map(|t| t.tid).collect();
        timer.clock_tid = clock_thread(timer, &known)?;
        let lists = threads.iter_mut().map(|t| &mut t.pending).chain([&mut *pending]);
        for list in lists {
            let before = list.len();
            list.retain(|p| !is_of(p, timer.id));
            timer.pending |= list.len() < before;
        }
    }
    timers.sort_by_key(|t| t.id);
    Ok(timers)
}

/// Kernels built without checkpoint support do not list timers.
fn refuse_unlisted(agent: &Agent) -> Result<(), CaptureError> {
    for id in 0..TRIED_IDS {
        if agent.ask::<4>(libc::SYS_timer_gettime, &[id, 0], 1)?.is_ok() {
            let what = "has POSIX timers, about which this kernel tells nothing";
            return Err(CaptureError::Unsupported(what.into()));
        }
    }
    Ok(())
}

/// Whether a pending signal is that of timer `id`.
fn is_of(pending: &Pending, id: i32) -> bool {
    pending.info[1] as u32 as i32 == SI_TIMER && pending.info[2] as u32 as i32 == id
}

/// Parses blocks like
///
/// ```text
/// ID: 1
/// signal: 60/00007fff86ea8f50
/// notify: signal/pid.2634
/// ClockID: 0
/// ```
fn parse(text: &str) -> Option<Vec<PosixTimer>> {
    let mut timers: Vec<PosixTimer> = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        if key == "ID" {
            timers.push(PosixTimer {
                id: value.parse().ok()?,
                clock: 0,
                clock_tid: 0,
                notify: 0,
                signal: 0,
                value: 0,
                tid: 0,
                interval_ns: 0,
                left_ns: 0,
                pending: false,
            });
            continue;
        }
        let Some(timer) = timers.last_mut() else { continue };
        match key {
            "signal" => {
                let (signal, word) = value.split_once('/')?;
                timer.signal = signal.trim().parse().ok()?;
                timer.value = u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()?;
            }
            "notify" => {
                let (how, whom) = value.split_once('/')?;
                let (kind, number) = whom.split_once('.')?;
                timer.notify = match (how, kind) {
                    ("none", _) => libc::SIGEV_NONE as u32,
                    (_, "tid") => libc::SIGEV_THREAD_ID as u32,
                    _ => libc::SIGEV_SIGNAL as u32,
                };
                timer.tid = number.parse().ok()?;
            }
            "ClockID" => timer.clock = value.parse().ok()?,
            _ => {}
        }
    }
    Some(timers)
}

/// Process or thread whose time a clock of processor time counts; 0 for the caller's own.
fn counted(clock: i32) -> i32 {
    !(clock >> 3)
}

/// The thread in whose name a timer has to be made, if that matters.
fn clock_thread(timer: &PosixTimer, threads: &[i32]) -> Result<i32, CaptureError> {
    let refuse = |what: &str| Err(CaptureError::Unsupported(format!("has a timer {what}")));
    if timer.clock >= 0 {
        return Ok(0);
    }
    let of_thread = timer.clock & CLOCK_OF_THREAD != 0;
    match counted(timer.clock) {
        0 if !of_thread => Ok(0),
        0 if threads.len() == 1 => Ok(threads[0]),
        0 if timer.notify == libc::SIGEV_THREAD_ID as u32 => Ok(timer.tid),
        0 => refuse("for the processor time of one of its threads (the kernel does not say which)"),
        number if threads.contains(&number) => Ok(0),
        _ => refuse("for the processor time of another process"),
    }
}

/// Refuses timers whose numbers a restart on this kernel could not give again: one that counts them
/// up has to make and delete all that are before.
pub fn refuse_far(state: &State) -> Result<(), CaptureError> {
    let far = state.posix_timers.iter().map(|timer| timer.id).max().unwrap_or(0);
    // SAFETY: numbers only.
    let chosen = || unsafe { libc::prctl(PR_TIMER_CREATE_RESTORE_IDS as i32, ASKS, 0, 0, 0) } >= 0;
    refuse_beyond(far, || std::env::var_os(ENV_NO_IDS).is_none() && chosen())
}

fn refuse_beyond(far: i32, chosen: impl FnOnce() -> bool) -> Result<(), CaptureError> {
    if far.unsigned_abs() < MAX_SKIPPED || chosen() {
        return Ok(());
    }
    Err(CaptureError::NotRestartable(format!(
        "it has a timer of the number {far}, as it has made so many, and before Linux 6.15 none \
         beyond {MAX_SKIPPED} can be made again"
    )))
}

/// A stopped process whose threads call for it, and where arguments lie.
pub struct Caller<'a> {
    /// Its threads in the order of the image.
    pub threads: &'a [Tracee],
    /// A `syscall` instruction.
    pub site: u64,
    /// Room for arguments.
    pub room: u64,
}

impl Caller<'_> {
    /// Makes a call in the name of a thread.
    pub fn call(
        &self,
        state: &State,
        thread: usize,
        nr: libc::c_long,
        args: &[u64],
    ) -> Result<i64, RestoreError> {
        let base = words_to_regs(&state.threads[thread].regs);
        Ok(self.threads[thread].syscall(self.site, &base, nr, args, &mut None)?)
    }

    /// Puts arguments into its memory.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RestoreError> {
        memory::write_exact(self.threads[0].0, at, bytes)
            .map_err(|e| RestoreError::Died(e.to_string()))
    }

    /// The new number of a thread.
    pub fn number(&self, state: &State, old: i32) -> i32 {
        let at = state.threads.iter().position(|t| t.tid == old);
        at.and_then(|i| self.threads.get(i)).map_or(old, |t| t.0)
    }
}

/// Makes the timers again, when all threads are there.
pub fn restore(caller: &Caller<'_>, state: &State) -> Result<(), RestoreError> {
    if state.posix_timers.is_empty() {
        return Ok(());
    }
    let choose =
        |on: u64| caller.call(state, 0, libc::SYS_prctl, &[PR_TIMER_CREATE_RESTORE_IDS, on]);
    let chosen = std::env::var_os(ENV_NO_IDS).is_none() && choose(1)? == 0;
    let result = state.posix_timers.iter().try_for_each(|timer| {
        make(caller, state, timer)?;
        arm(caller, state, timer)
    });
    if chosen {
        choose(0)?;
    }
    result
}

fn make(caller: &Caller<'_>, state: &State, timer: &PosixTimer) -> Result<(), RestoreError> {
    let mut event = [0u8; SIGEVENT_BYTES];
    event[..8].copy_from_slice(&timer.value.to_le_bytes());
    event[8..12].copy_from_slice(&timer.signal.to_le_bytes());
    event[12..16].copy_from_slice(&timer.notify.to_le_bytes());
    event[16..20].copy_from_slice(&caller.number(state, timer.tid).to_le_bytes());
    caller.write(caller.room, &event)?;
    let id_at = caller.room + SIGEVENT_BYTES as u64;
    let counted = if timer.clock < 0 { counted(timer.clock) } else { 0 };
    let clock = match counted {
        0 => timer.clock,
        old => !caller.number(state, old) << 3 | timer.clock & CLOCK_KIND,
    };
    let thread = state.threads.iter().position(|t| t.tid == timer.clock_tid).unwrap_or(0);
    for _ in 0..MAX_SKIPPED {
        caller.write(id_at, &timer.id.to_le_bytes())?;
        let args = [clock as u64, caller.room, id_at];
        let result = caller.call(state, thread, libc::SYS_timer_create, &args)?;
        if result < 0 {
            return Err(step_failed("make a timer again", result));
        }
        let mut id = [0; 4];
        memory::read_exact(caller.threads[0].0, id_at, &mut id)
            .map_err(|e| RestoreError::Died(e.to_string()))?;
        let id = i32::from_le_bytes(id);
        if id == timer.id {
            return Ok(());
        }
        caller.call(state, 0, libc::SYS_timer_delete, &[id as u64])?;
        if id > timer.id {
            break;
        }
    }
    let what = format!("this kernel does not give a timer the number {} again", timer.id);
    Err(RestoreError::Machine(what))
}

fn arm(caller: &Caller<'_>, state: &State, timer: &PosixTimer) -> Result<(), RestoreError> {
    if timer.left_ns == 0 && !timer.pending {
        return Ok(());
    }
    let (flags, value) = match timer.pending {
        false => (0, timer.left_ns),
        true => {
            // An interval before its next time, which has passed.
            let now = || clocks::now_of(caller.threads[0].0, timer.clock);
            let next = if timer.clock >= 0 { now() + timer.left_ns } else { 0 };
            (TIMER_ABSTIME, next.saturating_sub(timer.interval_ns.max(timer.left_ns)).max(1))
        }
    };
    let mut times = Vec::new();
    for part in [timespec(timer.interval_ns), timespec(value)] {
        times.extend_from_slice(&part.tv_sec.to_le_bytes());
        times.extend_from_slice(&part.tv_nsec.to_le_bytes());
    }
    caller.write(caller.room, &times)?;
    let args = [timer.id as u64, flags, caller.room, 0];
    match caller.call(state, 0, libc::SYS_timer_settime, &args)? {
        0 => Ok(()),
        error => Err(step_failed("set a timer again", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_reach_are_refused_when_the_image_is_taken() {
        assert!(
            refuse_beyond(199_999, || false).is_ok() && refuse_beyond(1 << 30, || true).is_ok()
        );
        let error = refuse_beyond(200_000, || false).unwrap_err().to_string();
        assert!(error.contains("200000"), "{error}");
    }

    #[test]
    fn the_kernels_list() {
        let text = "ID: 1\nsignal: 60/00007fff86ea8f50\nnotify: signal/pid.2634\nClockID: 0\n\
                    ID: 7\nsignal: 0/0000000000000000\nnotify: none/pid.2634\nClockID: -6\n\
                    ID: 8\nsignal: 33/0000000000000005\nnotify: signal/tid.2640\nClockID: 1\n";
        let timers = parse(text).unwrap();
        assert_eq!(timers.iter().map(|t| t.id).collect::<Vec<_>>(), [1, 7, 8]);
        assert_eq!((timers[0].signal, timers[0].value), (60, 0x7fff_86ea_8f50));
        assert_eq!((timers[1].notify, timers[1].clock), (libc::SIGEV_NONE as u32, -6));
        assert_eq!((timers[2].notify, timers[2].tid), (libc::SIGEV_THREAD_ID as u32, 2640));
        assert_eq!(counted(-6), 0);
        assert_eq!(counted(!1234 << 3 | 6), 1234);
        assert!(parse("ID: 1\nsignal: x\n").is_none());
    }
}
