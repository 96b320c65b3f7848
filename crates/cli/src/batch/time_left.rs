//! How much time a batch system leaves the job, for those that warn too late for a job to be saved
//! (PBS: 10 s), or warn others than `eyrie run` (Flux: its brokers): the job is saved ahead.
//!
//! Kept true: the limit is asked for again before anything is done, as it may have been moved; a
//! batch system that does not answer, or sets no limit, ends nothing.

use crate::batch::system::{System, ask, system, variable};
use eyrie_control::JobSpec;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// So long before the limit a job is saved if it has no `--grace` that is longer ...
const AHEAD: Duration = Duration::from_secs(60);
/// ... and at most this part of what was left at its start.
const PART: u32 = 6;
/// Longest time between two questions, as limits are moved.
const ASK_EVERY: Duration = Duration::from_secs(600);
/// Flux says that for no limit.
const NO_LIMIT_S: u64 = u32::MAX as u64;

/// When a job is to be saved because its time is nearly over.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit {
    grace: Duration,
}

/// The limit of this allocation for a job that can be saved, where there may be one.
pub fn limit(spec: &JobSpec) -> Option<TimeLimit> {
    let may = matches!(system(), Some(System::Pbs | System::Lsf | System::Flux));
    let saved = spec.protection.ft.protects() && spec.timing.grace_ms > 0;
    (may && saved).then(|| TimeLimit { grace: Duration::from_millis(spec.timing.grace_ms) })
}

fn ahead(grace: Duration, left: Duration) -> Duration {
    grace.max(AHEAD).min(left / PART)
}

impl TimeLimit {
    /// Waits until the job is to be saved; returns how much is left then.
    pub fn wait(self) -> Duration {
        let mut before = None;
        loop {
            let Some(left) = time_left() else {
                std::thread::sleep(AHEAD);
                continue;
            };
            let before = *before.get_or_insert_with(|| ahead(self.grace, left));
            match rest(left, before) {
                Some(rest) => std::thread::sleep(rest),
                None => return left,
            }
        }
    }
}

/// How long to wait before the next look; none: it is time.
fn rest(left: Duration, ahead: Duration) -> Option<Duration> {
    let rest = left.checked_sub(ahead).filter(|rest| !rest.is_zero());
    rest.map(|rest| rest.min(ASK_EVERY))
}

fn time_left() -> Option<Duration> {
    let seconds = match system()? {
        System::Pbs => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
            of_pbs(&ask("qstat", &["-f", &variable("PBS_JOBID")?])?, now)
        }
        System::Lsf => {
            of_lsf(&ask("bjobs", &["-noheader", "-o", "time_left", &variable("LSB_JOBID")?])?)
        }
        System::Flux => of_flux(&ask("flux", &["job", "timeleft"])?),
        // Slurm and Grid Engine tell the job in time, and Kubernetes knows no such limit.
        System::Slurm | System::Sge | System::Pods => None,
    };
    seconds.map(Duration::from_secs)
}

/// `qstat -f`: what is left, or the limit and when the job began, or how much it has used.
fn of_pbs(text: &str, now: u64) -> Option<u64> {
    let value = |name: &str| {
        let lines = text.lines().filter_map(|line| line.trim().split_once(" = "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, v)| v).next()
    };
    if let Some(left) = value("walltime.remaining") {
        return left.parse().ok();
    }
    let limit = clock(value("Resource_List.walltime")?)?;
    let began = value("stime").and_then(date).map(|began| now.saturating_sub(began));
    let used = value("resources_used.walltime").and_then(clock);
    Some(limit.saturating_sub(began.or(used)?))
}

/// `HOURS:MINUTES:SECONDS`, or the last two, or seconds.
fn clock(text: &str) -> Option<u64> {
    let parts = text.split(':').map(|part| part.parse::<u64>().ok());
    parts.into_iter().try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part?))
}

/// A date as `ctime` writes it, in the local zone; seconds of the epoch.
fn date(text: &str) -> Option<u64> {
    let text = std::ffi::CString::new(text.trim()).ok()?;
    // SAFETY: a structure of numbers and of a pointer that may be null.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both are strings that end with a zero; writes a variable that is ours.
    let end = unsafe { libc::strptime(text.as_ptr(), c"%a %b %d %H:%M:%S %Y".as_ptr(), &mut tm) };
    if end.is_null() {
        return None;
    }
    // Whether it is summer is for the zone to say.
    tm.tm_isdst = -1;
    // SAFETY: reads and writes a variable that is ours.
    u64::try_from(unsafe { libc::mktime(&mut tm) }).ok()
}

/// `bjobs -o time_left`: `HOURS:MINUTES L`, or `-` where there is no limit.
fn of_lsf(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_whitespace().next()?.split_once(':')?;
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)
}

/// `flux job timeleft`: seconds.
fn of_flux(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|left| *left < NO_LIMIT_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_understood() {
        let used = "Job Id: 7.head\n    resources_used.walltime = 00:10:30\n    \
                    Resource_List.walltime = 01:00:00\n";
        assert_eq!(of_pbs(used, 0), Some(2970));
        let torque = "    Walltime.Remaining = 3592\n    Resource_List.walltime = 01:00:00\n";
        assert_eq!(of_pbs(torque, 0), Some(3592));
        let date_of = "Sun Nov 29 08:40:50 2026";
        let began = date(date_of).unwrap();
        let whole = format!("{used}    stime = {date_of}\n");
        assert_eq!(of_pbs(&whole, began + 60), Some(3540), "what is used is told late");
        assert_eq!(of_pbs(&whole, began + 9000), Some(0));
        assert_eq!(of_lsf("1:05 L\n"), Some(3900));
        assert_eq!(of_flux("899\n"), Some(899));
    }

    #[test]
    fn without_a_limit_there_is_none() {
        for none in ["", "Resource_List.walltime = 01:00:00\n", "stime = x\n"] {
            assert_eq!(of_pbs(none, 9), None, "{none}");
        }
        assert_eq!(of_pbs("Resource_List.walltime = x\n    stime = y", 9), None);
        assert_eq!(
            [of_lsf("-"), of_lsf("- L"), of_lsf(""), of_flux("4294967295"), of_flux("")],
            [None; 5]
        );
    }

    #[test]
    fn a_job_is_saved_ahead_of_its_limit() {
        let s = Duration::from_secs;
        assert_eq!(ahead(s(25), s(3600)), s(60));
        assert_eq!(ahead(s(300), s(3600)), s(300));
        assert_eq!(ahead(s(300), s(60)), s(10), "a short one runs for most of its time");
        assert_eq!(rest(s(3600), s(60)), Some(s(600)), "limits are moved");
        assert_eq!(rest(s(90), s(60)), Some(s(30)));
        assert_eq!([60, 0].map(|left| rest(s(left), s(60))), [None; 2]);
    }
}
