//! timerfd: what the kernel tells about one is all there is to it.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors::{self, RemoteDescriptors};
use crate::kernel::time::{nanoseconds, now, timespec};
use crate::resources::open::{Open, cannot, unclear};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Timer;
use eyrie_image_format::state::{Description, Target};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// `TFD_IOC_SET_TICKS`.
const SET_TICKS: u64 = 0x4008_5400;
/// How often, and how long apart, a timerfd that shows nothing left is looked at again.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_micros(200);

impl Resource for Timer {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.anonymous_inode() != Some(b"[timerfd]") {
            return Ok(None);
        }
        read(this, look.remote).map(|timer| Some(Target::Timer(timer)))
    }

    fn restore(&self, _: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        make(self).map(Made::New)
    }
}

/// Time left and interval of a timerfd.
fn time(fd: &OwnedFd) -> Result<libc::itimerspec, CaptureError> {
    let mut times = MaybeUninit::<libc::itimerspec>::zeroed();
    // SAFETY: fills a live structure.
    if unsafe { libc::timerfd_gettime(fd.as_raw_fd(), times.as_mut_ptr()) } != 0 {
        return Err(remote_descriptors::os("read a timerfd"));
    }
    // SAFETY: zeroed or filled.
    Ok(unsafe { times.assume_init() })
}

/// Reads a timerfd.
fn read(this: &Open, remote: &RemoteDescriptors) -> Result<Timer, CaptureError> {
    // Asking for the time lets the kernel count what has expired and start the timer again.
    let fd = remote.borrow(this.fd)?;
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
    let info = crate::kernel::procfs::fdinfo(this.pid, this.fd)?;
    let field = |name: &str, radix| info.number(name, radix).ok_or_else(|| unclear(this));
    let clock = info.text("clockid").and_then(|c| c.parse::<i32>().ok());
    let clock = clock.ok_or_else(|| unclear(this))?;
    let left_ns = nanoseconds(&times.it_value);
    let flags = info.text("settime flags").unwrap_or("0");
    Ok(Timer {
        clock,
        flags: u32::from_str_radix(flags, 8).map_err(|_| unclear(this))?,
        interval_ns: nanoseconds(&times.it_interval),
        left_ns,
        at_ns: now(clock).saturating_add(left_ns),
        ticks: field("ticks", 10)?,
    })
}

/// Makes a timerfd. One that was set to a time of day is set to that time again; others have as
/// long to go as at the checkpoint.
fn make(timer: &Timer) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot("make its timerfd again", e);
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: numbers only.
    let fd = remote_descriptors::made(unsafe { libc::timerfd_create(timer.clock, flags) }.into())
        .map_err(fail)?;
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
