//! What storing an image takes of a node's processors while its rank runs: processor time of this
//! thread, and how long no processor was idle meanwhile.
//!
//! Kept true: what cannot be measured counts as taken from the program. Processors are those that
//! this process may use, by whomever they are used; a limit of its control group is not known here.

use crate::cores;
use std::time::{Duration, Instant};

const STAT: &str = "/proc/stat";

/// What there was at a moment.
struct Mark {
    at: Instant,
    cpu: Option<Duration>,
    /// Of all processors together, in clock ticks.
    idle_ticks: Option<u64>,
}

impl Mark {
    fn now() -> Mark {
        let idle_ticks = cores::allowed(0).ok().and_then(|allowed| {
            let stat = std::fs::read_to_string(STAT).ok()?;
            idle_ticks(&stat, &allowed)
        });
        Mark { at: Instant::now(), cpu: thread_time(), idle_ticks }
    }
}

/// Measures spans of one thread's time.
#[derive(Default)]
pub struct CpuMeter {
    since: Option<Mark>,
    spans: Duration,
    cpu: Duration,
    idle_ms: f64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    pub cpu_ms: f64,
    /// Which part of the time no processor was idle, from 0 to 1.
    pub busy: f64,
}

impl CpuMeter {
    /// A span begins.
    pub fn begin(&mut self) {
        self.since = Some(Mark::now());
    }

    /// It ends.
    pub fn end(&mut self) {
        let Some(since) = self.since.take() else { return };
        let now = Mark::now();
        let span = now.at.saturating_duration_since(since.at);
        self.spans += span;
        let cpu = now.cpu.zip(since.cpu).map(|(now, then)| now.saturating_sub(then));
        self.cpu += cpu.unwrap_or(span);
        let idle = now.idle_ticks.zip(since.idle_ticks);
        self.idle_ms += idle.map_or(0.0, |(now, then)| ticks_ms(now.saturating_sub(then)));
    }

    pub fn spent(&self) -> Spent {
        let (spans_ms, cpu_ms) = (millis(self.spans), millis(self.cpu));
        Spent { cpu_ms, busy: busy(self.idle_ms, spans_ms) }
    }
}

/// Two processors that are idle half of the time count as one that always is.
fn busy(idle_ms: f64, span_ms: f64) -> f64 {
    if span_ms > 0.0 { (1.0 - idle_ms / span_ms).clamp(0.0, 1.0) } else { 1.0 }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn ticks_ms(ticks: u64) -> f64 {
    // SAFETY: it only asks for a number.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks as f64 * 1e3 / a_second.max(1) as f64
}

/// Processor time of this thread.
fn thread_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (secs, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    (got == 0).then(|| Duration::new(secs, nanos))
}

/// Idle time of these processors, in clock ticks, by the text of `/proc/stat`: of each a line
/// `cpuN user nice system idle iowait ...`. One that waits for storage is idle.
fn idle_ticks(stat: &str, of: &[usize]) -> Option<u64> {
    let mut found = None;
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|w| w.strip_prefix("cpu")?.parse::<usize>().ok());
        if number.is_none_or(|n| !of.contains(&n)) {
            continue;
        }
        let ticks = |word: Option<&str>| word.and_then(|w| w.parse::<u64>().ok());
        let idle = ticks(words.nth(3))?.saturating_add(ticks(words.next()).unwrap_or(0));
        found = Some(found.unwrap_or(0u64).saturating_add(idle));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 900 9 0 0 0 0 0\n\
                        cpu0 1 2 3 100 10 0 0 0 0 0\n\
                        cpu1 1 2 3 200 20 0 0 0 0 0\n\
                        cpu10 1 2 3 400\n\
                        intr 1 2 3 4 5\n";

    #[test]
    fn idle_time_is_that_of_the_processors_that_may_be_used() {
        assert_eq!(idle_ticks(STAT, &[0]), Some(110));
        assert_eq!(idle_ticks(STAT, &[0, 1]), Some(330));
        assert_eq!(idle_ticks(STAT, &[10]), Some(400), "an old kernel");
        assert_eq!(idle_ticks(STAT, &[7]), None);
        assert_eq!(idle_ticks("cpu0 1 2", &[0]), None);
        assert_eq!(idle_ticks("cpu0 1 2 3 x", &[0]), None);
    }

    #[test]
    fn processors_are_busy_when_none_is_idle() {
        assert_eq!(busy(0.0, 100.0), 1.0);
        assert_eq!(busy(25.0, 100.0), 0.75);
        assert_eq!(busy(100.0, 100.0), 0.0);
        assert_eq!(busy(6300.0, 100.0), 0.0, "many are");
        assert_eq!(busy(0.0, 0.0), 1.0, "nothing is known");
    }

    #[test]
    fn only_what_lies_in_spans_counts() {
        let mut meter = CpuMeter::default();
        meter.end();
        assert_eq!(meter.spent(), Spent { cpu_ms: 0.0, busy: 1.0 });
        meter.begin();
        let begun = thread_time().unwrap();
        let work = Duration::from_millis(20);
        while thread_time().unwrap() < begun + work {}
        meter.end();
        let spent = meter.spent();
        assert!(spent.cpu_ms >= 20.0 && (0.0..=1.0).contains(&spent.busy), "{spent:?}");
        while thread_time().unwrap() < begun + 2 * work {}
        meter.end();
        assert_eq!(meter.spent(), spent);
    }
}
