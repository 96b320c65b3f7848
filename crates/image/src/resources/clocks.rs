//! Clocks that begin with their machine's start, where another machine goes on.
//!
//! A program keeps times of `CLOCK_MONOTONIC` until which it waits, and takes it that the clock
//! never goes back. On another machine, or after a new start, the process gets a time namespace in
//! which its clocks go on from where they stood at the checkpoint; the time in between does not
//! count. On the same machine they have gone on by themselves, and one that has a namespace gets
//! another with the same clocks. All processes of an image are in one.

use crate::error::CaptureError;
use crate::kernel::procfs;
use crate::kernel::time::now;
use eyrie_image_format::state::{Clocks, State};
use std::fs;
use std::path::Path;
use std::time::Duration;

const CLOCKS: [i32; 2] = [libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME];
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Set to 1: takes any image for one of another machine. For tests.
const FORCE: &str = "EYRIE_IMAGE_OTHER_BOOT";

/// Times by which the clocks of a process are ahead of the machine's.
pub type Ahead = [i64; 2];

/// What a process sees, which stands still.
pub fn of(pid: libc::pid_t) -> Result<Option<Clocks>, CaptureError> {
    let space = |name: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
    if space("time") != space("time_for_children") {
        let what = "has made a time namespace for its children";
        return Err(CaptureError::Unsupported(what.into()));
    }
    let Some(boot) = boot() else { return Ok(None) };
    let (own, ahead_ns) = (ahead(std::process::id() as i32), ahead(pid));
    let shown_ns = [0, 1].map(|i| {
        let shown = now(CLOCKS[i]) as i64;
        shown.saturating_sub(own[i]).saturating_add(ahead_ns[i]).max(0) as u64
    });
    Ok(Some(Clocks { boot, shown_ns, ahead_ns }))
}

/// How far the clocks of a process must be ahead that is made from `state`, if not as far as ours.
pub fn wanted(state: &State) -> Option<Ahead> {
    let clocks = state.clocks.as_ref()?;
    let own = ahead(std::process::id() as i32);
    let machines = [0, 1].map(|i| (now(CLOCKS[i]) as i64).saturating_sub(own[i]));
    let forced = std::env::var_os(FORCE).is_some_and(|v| v == "1");
    let same = !forced && boot() == Some(clocks.boot);
    let wanted = choose(clocks, machines, same);
    (wanted != own).then_some(wanted)
}

/// The same, where the machine's clocks show `machines`, and it is the `same` one.
fn choose(clocks: &Clocks, machines: [i64; 2], same: bool) -> Ahead {
    let go_on = [0, 1].map(|i| (clocks.shown_ns[i] as i64).saturating_sub(machines[i]));
    // A virtual machine may have gone back to an earlier state of its own.
    let goes_back = [0, 1].iter().any(|&i| clocks.ahead_ns[i] < go_on[i]);
    if same && !goes_back { clocks.ahead_ns } else { go_on }
}

/// The words that tell the kernel, one line for each clock.
pub fn words(ahead: Ahead) -> Vec<u8> {
    const SECOND_NS: i64 = 1_000_000_000;
    let line = |clock: i32, ns: i64| {
        format!("{clock} {} {}\n", ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS))
    };
    [0, 1].map(|i| line(CLOCKS[i], ahead[i])).concat().into_bytes()
}

/// Why the clocks of a process do not go on, in words.
pub fn left_out() -> String {
    let why = match Path::new("/proc/self/timens_offsets").exists() {
        true => "making a time namespace takes CAP_SYS_ADMIN and CAP_SYS_TIME",
        false => "its kernel has no time namespaces",
    };
    let which = "clocks: CLOCK_MONOTONIC and CLOCK_BOOTTIME are those of this machine";
    format!("{which} ({why}), waits may end late or early")
}

/// This start of the machine, and how far its clock of the day is ahead of that which began then.
pub fn offset() -> Option<([u8; 16], i64)> {
    let own = ahead(std::process::id() as i32)[1];
    let machines = (now(libc::CLOCK_BOOTTIME) as i64).saturating_sub(own);
    Some((boot()?, (now(libc::CLOCK_REALTIME) as i64).saturating_sub(machines)))
}

/// A time of day before which nothing was made by the process since it stood still, and after which
/// nothing was made by it before ([`until_told_apart`]); by what is known of starts of the machine.
pub fn moment(state: &State, offsets: &[([u8; 16], i64)]) -> Option<i64> {
    let clocks = state.clocks.as_ref()?;
    let (_, offset) = offsets.iter().find(|(boot, _)| *boot == clocks.boot)?;
    let machines = (clocks.shown_ns[1] as i64).saturating_sub(clocks.ahead_ns[1]);
    Some(machines.saturating_add(*offset).saturating_sub(tick_ns() * 3 / 2))
}

/// A time of day before which nothing was made that is made from now on.
pub fn told_apart_from_now() -> i64 {
    (now(libc::CLOCK_REALTIME) as i64).saturating_sub(tick_ns() * 3 / 2)
}

/// How long it is until what is made now can be told by its time from what was made at `ns`.
pub fn until_told_apart(ns: i64) -> Duration {
    let apart = ns.saturating_add(2 * tick_ns());
    let left = apart.saturating_sub(now(libc::CLOCK_REALTIME) as i64).clamp(0, 4 * tick_ns());
    Duration::from_nanos(left as u64)
}

/// How coarse the times of files are.
fn tick_ns() -> i64 {
    const MOST_NS: i64 = 10_000_000;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: MOST_NS };
    // SAFETY: fills a live structure; what is in it stays if the clock is refused.
    unsafe { libc::clock_getres(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    time.tv_nsec.clamp(1, MOST_NS)
}

fn boot() -> Option<[u8; 16]> {
    let text = fs::read_to_string(BOOT_ID).ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

/// How far the clocks of a process are ahead; not at all without namespaces.
fn ahead(pid: libc::pid_t) -> Ahead {
    let text = procfs::read(pid, "timens_offsets").unwrap_or_default();
    parse(&String::from_utf8_lossy(&text))
}

/// What a clock shows a process now, in ns.
pub fn now_of(pid: libc::pid_t, clock: i32) -> u64 {
    let which = match clock {
        libc::CLOCK_MONOTONIC => 0,
        libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => 1,
        _ => return now(clock),
    };
    let shift = ahead(pid)[which].saturating_sub(ahead(std::process::id() as i32)[which]);
    now(clock).saturating_add_signed(shift)
}

fn parse(text: &str) -> Ahead {
    let mut ahead = [0; 2];
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, seconds, ns] = words[..] else { continue };
        let place = ["monotonic", "boottime"].iter().position(|n| *n == name);
        if let (Some(i), Ok(s), Ok(ns)) = (place, seconds.parse::<i64>(), ns.parse::<i64>()) {
            ahead[i] = s.saturating_mul(1_000_000_000).saturating_add(ns);
        }
    }
    ahead
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image_format::check::settings::clocks_hold;

    #[test]
    fn what_the_kernel_tells_is_what_it_is_told() {
        for ahead in [[0, 0], [-1, 1], [8_640_000_000_000_001, -8_640_000_000_000_001]] {
            let said = String::from_utf8(words(ahead)).unwrap();
            let shown = said.replacen("1 ", "monotonic  ", 1).replacen("\n7 ", "\nboottime ", 1);
            assert_eq!(parse(&shown), ahead, "{said}");
        }
    }

    #[test]
    fn clocks_go_on_on_another_machine() {
        let clocks = Clocks { boot: [1; 16], shown_ns: [1000, 1100], ahead_ns: [0, 0] };
        // The same machine, later.
        assert_eq!(choose(&clocks, [5000, 5100], true), [0, 0]);
        // It went back, or is another one, which runs for less or more time.
        assert_eq!(choose(&clocks, [600, 600], true), [400, 500]);
        assert_eq!(choose(&clocks, [600, 600], false), [400, 500]);
        assert_eq!(choose(&clocks, [5000, 5000], false), [-4000, -3900]);
        // And once more, on the same one: at the time 5400 there.
        let clocks = Clocks { boot: [2; 16], shown_ns: [1400, 1500], ahead_ns: [-4000, -3900] };
        assert_eq!(choose(&clocks, [5900, 5900], true), [-4000, -3900]);
    }

    #[test]
    fn this_process_sees_the_machines_clocks() {
        let mine = of(std::process::id() as i32).unwrap().unwrap();
        let later = now(libc::CLOCK_MONOTONIC);
        assert!(
            clocks_hold(Some(&mine))
                && (1..10_000_000_000).contains(&(later - mine.shown_ns[0] + 1))
        );
        assert!(!clocks_hold(Some(&Clocks { shown_ns: [0, 1 << 63], ..mine })));
    }
}
