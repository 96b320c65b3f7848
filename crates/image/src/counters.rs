//! eventfd, timerfd and signalfd: what `/proc` tells about them is all there is to them.

use crate::descriptors::Open;
use crate::error::{CaptureError, RestoreError};
use crate::lend::{self, Lender};
use crate::reopen::cannot;
use crate::state::{Description, FdTimer, Target};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
/// `TFD_IOC_SET_TICKS`.
const SET_TICKS: u64 = 0x4008_5400;
const KERNEL_SIGSET_BYTES: usize = 8;
/// How often, and how long apart, a timerfd that shows nothing left is looked at again.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_micros(200);

fn unclear(this: &Open) -> CaptureError {
    CaptureError::Proc(format!("/proc/PID/fdinfo/{}", this.fd))
}

/// Reads an eventfd.
pub fn event(this: &Open, lender: &Lender) -> Result<Target, CaptureError> {
    let count = this.info.number("eventfd-count", 16).ok_or_else(|| unclear(this))?;
    let semaphore = match this.info.number("eventfd-semaphore", 10) {
        Some(semaphore) => semaphore != 0,
        None => is_semaphore(this, lender, count)?,
    };
    Ok(Target::Event { count, semaphore })
}

/// Kernels before 6.5 do not tell: see what a read takes, and put it back.
fn is_semaphore(this: &Open, lender: &Lender, count: u64) -> Result<bool, CaptureError> {
    let fd = lender.borrow(this.fd)?.as_raw_fd();
    let what = "look into an eventfd";
    let add = |value: u64| {
        // SAFETY: writes a live word.
        let n = unsafe { libc::write(fd, (&raw const value).cast(), 8) };
        if n == 8 { Ok(()) } else { Err(lend::os(what)) }
    };
    let filled = count.max(2);
    if filled != count {
        add(filled - count)?;
    }
    let mut taken = 0u64;
    // SAFETY: fills a live word; there is something to read.
    if unsafe { libc::read(fd, (&raw mut taken).cast(), 8) } != 8 {
        return Err(lend::os(what));
    }
    let semaphore = taken == 1;
    let mut left = filled - taken;
    while semaphore && left > count {
        // SAFETY: as above.
        unsafe { libc::read(fd, (&raw mut taken).cast(), 8) };
        left -= 1;
    }
    if left < count {
        add(count - left)?;
    }
    Ok(semaphore)
}

/// Makes an eventfd.
pub fn restore_event(
    description: &Description,
    count: u64,
    semaphore: bool,
) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot(description, e);
    let kind = if semaphore { libc::EFD_SEMAPHORE } else { 0 };
    // SAFETY: numbers only.
    let fd = unsafe { libc::eventfd(0, kind | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let fd = lend::made(fd.into()).map_err(fail)?;
    // SAFETY: writes a live word.
    if count > 0 && unsafe { libc::write(fd.as_raw_fd(), (&raw const count).cast(), 8) } != 8 {
        return Err(fail(io::Error::last_os_error()));
    }
    Ok(fd)
}

/// Time left and interval of a timerfd.
fn time(fd: &OwnedFd) -> Result<libc::itimerspec, CaptureError> {
    let mut times = MaybeUninit::<libc::itimerspec>::zeroed();
    // SAFETY: fills a live structure.
    if unsafe { libc::timerfd_gettime(fd.as_raw_fd(), times.as_mut_ptr()) } != 0 {
        return Err(lend::os("read a timerfd"));
    }
    // SAFETY: zeroed or filled.
    Ok(unsafe { times.assume_init() })
}

/// Reads a timerfd.
pub fn timer(this: &Open, lender: &Lender) -> Result<Target, CaptureError> {
    // Asking for the time lets the kernel count what has expired and start the timer again.
    let fd = lender.borrow(this.fd)?;
    let mut times = time(&fd)?;
    // One whose time has just come shows nothing left, like one that is not armed. It expires in a
    // moment, and then it shows its next interval.
    for _ in 0..LOOKS {
        if nanoseconds(&times.it_value) > 0 || nanoseconds(&times.it_interval) == 0 {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
        times = time(&fd)?;
    }
    drop(fd);
    let info = crate::procfs::fdinfo(this.pid, this.fd)?;
    let field = |name: &str, radix| info.number(name, radix).ok_or_else(|| unclear(this));
    let clock = info.text("clockid").and_then(|c| c.parse::<i32>().ok());
    let clock = clock.ok_or_else(|| unclear(this))?;
    let left_ns = nanoseconds(&times.it_value);
    let flags = info.text("settime flags").unwrap_or("0");
    Ok(Target::Timer {
        timer: FdTimer {
            clock,
            flags: u32::from_str_radix(flags, 8).map_err(|_| unclear(this))?,
            interval_ns: nanoseconds(&times.it_interval),
            left_ns,
            at_ns: now(clock).saturating_add(left_ns),
            ticks: field("ticks", 10)?,
        },
    })
}

pub(crate) fn nanoseconds(time: &libc::timespec) -> u64 {
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as i64 }
}

/// What a clock shows, 0 if there is no such clock.
pub(crate) fn now(clock: i32) -> u64 {
    let mut time = timespec(0);
    // SAFETY: fills a live structure; its zeros stay if the clock is refused.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    nanoseconds(&time)
}

/// Makes a timerfd. One that was set to a time of day is set to that time again; others have as
/// long to go as at the checkpoint.
pub fn restore_timer(description: &Description, timer: &FdTimer) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot(description, e);
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: numbers only.
    let fd =
        lend::made(unsafe { libc::timerfd_create(timer.clock, flags) }.into()).map_err(fail)?;
    if timer.left_ns == 0 && timer.interval_ns == 0 && timer.ticks == 0 {
        return Ok(fd);
    }
    let absolute = timer.flags & libc::TFD_TIMER_ABSTIME as u32 != 0;
    let of_day = [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_ALARM].contains(&timer.clock);
    let next = match absolute && of_day {
        true => timer.at_ns,
        false => now(timer.clock).saturating_add(timer.left_ns),
    };
    let set = |flags: u32, value: u64| {
        let times = libc::itimerspec {
            it_interval: timespec(timer.interval_ns),
            it_value: timespec(value),
        };
        // SAFETY: reads a live structure.
        let r = unsafe {
            libc::timerfd_settime(fd.as_raw_fd(), flags as i32, &times, std::ptr::null_mut())
        };
        if r == 0 { Ok(()) } else { Err(fail(io::Error::last_os_error())) }
    };
    if timer.left_ns == 0 {
        // Expired for good, and not read yet: it expires at once.
        set(timer.flags, u64::from(timer.ticks > 0))?;
        return Ok(fd);
    }
    set(timer.flags, if absolute { next } else { timer.left_ns })?;
    let ticks = timer.ticks;
    // SAFETY: reads a live word.
    if ticks > 0 && unsafe { libc::ioctl(fd.as_raw_fd(), SET_TICKS, &raw const ticks) } != 0 {
        // A kernel without it: begin as many intervals earlier.
        let early = timer.interval_ns.saturating_mul(ticks);
        let abstime = timer.flags | libc::TFD_TIMER_ABSTIME as u32;
        set(abstime, next.saturating_sub(early).max(1))?;
    }
    Ok(fd)
}

/// Reads a signalfd.
pub fn signals(this: &Open) -> Result<Target, CaptureError> {
    let mask = this.info.number("sigmask", 16).ok_or_else(|| unclear(this))?;
    Ok(Target::Signals { mask })
}

/// Makes a signalfd.
pub fn restore_signals(description: &Description, mask: u64) -> Result<OwnedFd, RestoreError> {
    // SAFETY: reads a live mask of the kernel's size.
    let fd = unsafe {
        let mask = (&raw const mask).cast::<u8>();
        libc::syscall(libc::SYS_signalfd4, -1, mask, KERNEL_SIGSET_BYTES, libc::SFD_CLOEXEC)
    };
    lend::made(fd).map_err(|e| cannot(description, e))
}
