//! Live pre-copy: the memory of a running process is sent in rounds, each round what was written
//! during the one before, until what is left is little or will not become less. The last round is
//! sent while the process stands still. For whoever moves a process by means of its own; jobs have
//! their ranks' images as rounds, which are whole wherever they end.
//!
//! Pages are read while the program may be writing to them. That does no harm: such a page is noted
//! as written and is sent again.

use crate::PAGE_BYTES;
use crate::capture::freeze::Frozen;
use crate::capture::image_precopy;
use crate::capture::process_state;
use crate::capture::survey::Survey;
use crate::error::{CaptureError, FreezeError};
use crate::kernel::pagemap::Pagemap;
use crate::kernel::procfs::{self, Mapping};
use crate::kernel::remote_calls::Agent;
use crate::kernel::written_pages::Writes;
use crate::write::page_source::Source;
use eyrie_image_format::support::spans::Spans;
use std::time::{Duration, Instant};

/// Bytes handed over at once.
const PART_BYTES: usize = 1 << 20;

/// Takes the content of memory.
pub trait PageSink {
    /// Takes whole pages from `address` on; they replace what was taken for these before.
    fn pages(&mut self, address: u64, content: &[u8]) -> std::io::Result<()>;
}

/// When to stop sending rounds.
#[derive(Debug, Clone)]
pub struct PrecopyLimits {
    /// How long the process may stand still for the last round.
    pub pause: Duration,
    /// Most rounds before the last.
    pub rounds: u32,
    /// A round that is not smaller than the one before by this share ends it: more rounds would not
    /// get ahead of the program.
    pub least_gain: f64,
}

impl Default for PrecopyLimits {
    fn default() -> PrecopyLimits {
        PrecopyLimits { pause: Duration::from_millis(20), rounds: 8, least_gain: 0.2 }
    }
}

/// Why there was no further round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecopyEnd {
    /// What is left can be sent within the pause.
    Little,
    /// The program writes as fast as pages are sent.
    Outrun,
    /// There were as many rounds as may be.
    Rounds,
}

/// One round.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Round {
    /// What was sent.
    pub bytes: u64,
    /// How long that took.
    pub took: Duration,
}

/// A process whose memory was sent. It stands still; what else there is of it can be kept now
/// ([`Frozen::snapshot`]), or it can be let go on.
pub struct Precopied {
    /// The process.
    pub frozen: Frozen,
    /// The rounds while it ran.
    pub rounds: Vec<Round>,
    /// The one while it stood still.
    pub last: Round,
    /// Why it was the last.
    pub end: PrecopyEnd,
    /// The pages that have content of their own, from first address to the one past the last. All
    /// others that were sent are of no use any more.
    pub pages: Vec<(u64, u64)>,
}

/// Sends the private memory of the process `pid`, a child of ours, while it runs. After an error it
/// goes on as if nothing had happened.
pub fn precopy(
    pid: libc::pid_t,
    sink: &mut dyn PageSink,
    limits: &PrecopyLimits,
) -> Result<Precopied, CaptureError> {
    let mut writes = begin(pid)?;
    let mut sender = Sender { source: Source::open(pid)?, sink, buffer: vec![0; PART_BYTES] };
    let mut rounds = Vec::new();
    let mut left = own_pages(pid)?;
    let end = loop {
        // What a call writes to pages that it has pinned is not noted.
        image_precopy::wait_for_calls(pid)?;
        rounds.push(sender.send(&left)?);
        left = written(&mut writes, pid)?;
        if let Some(end) = limits.judge(&rounds, left.bytes()) {
            break end;
        }
    };
    let frozen = Frozen::stop(pid).map_err(not_stopped)?;
    let rest = left.union(&written(&mut writes, pid)?);
    let own = own_pages(pid)?;
    let last = sender.send(&rest.intersection(&own))?;
    let pages = own.iter().map(|s| (s.start, s.end)).collect();
    Ok(Precopied { frozen, rounds, last, end, pages })
}

impl PrecopyLimits {
    /// Whether there is to be no further round while the process runs, with `left` bytes written
    /// during the last.
    fn judge(&self, rounds: &[Round], left: u64) -> Option<PrecopyEnd> {
        let last = rounds.last()?;
        let rate = last.bytes as f64 / last.took.as_secs_f64().max(1e-9);
        if left as f64 <= rate * self.pause.as_secs_f64() {
            return Some(PrecopyEnd::Little);
        }
        if left as f64 > last.bytes as f64 * (1.0 - self.least_gain) {
            return Some(PrecopyEnd::Outrun);
        }
        (rounds.len() as u64 >= u64::from(self.rounds)).then_some(PrecopyEnd::Rounds)
    }
}

pub(crate) fn not_stopped(error: FreezeError) -> CaptureError {
    match error {
        FreezeError::Gone => CaptureError::Gone,
        FreezeError::Os { what, source } => CaptureError::Os { what, source },
        other => {
            let lasts = other.is_lasting();
            let error = CaptureError::Unsupported(format!("cannot be stopped: {other}"));
            if lasts { error } else { error.for_now() }
        }
    }
}

/// Has the writes of a process noted from now on. It stands still for a moment.
fn begin(pid: libc::pid_t) -> Result<Writes, CaptureError> {
    let mut frozen = Frozen::stop(pid).map_err(not_stopped)?;
    let mut survey = Survey::of_tree(&frozen)?;
    let (frozen_state, agent) = process_state::freeze_state(&mut frozen, &mut survey)?;
    let noted = note(pid, &frozen_state.maps, &agent);
    let finished = agent.finish();
    let released = frozen.release().map_err(not_stopped);
    let writes = noted?;
    finished.and(released).map(|()| writes)
}

fn note(pid: libc::pid_t, maps: &[Mapping], agent: &Agent) -> Result<Writes, CaptureError> {
    let mut writes = Writes::default();
    match writes.freeze(pid, maps, agent, 0)? {
        Ok(_) => Ok(writes),
        Err(obstacle) => Err(CaptureError::Unsupported(format!(
            "cannot be copied while it runs, as the kernel does not note what it writes: {}",
            obstacle.0
        ))),
    }
}

/// What was written since the last time.
fn written(writes: &mut Writes, pid: libc::pid_t) -> Result<Spans, CaptureError> {
    let maps = procfs::maps(pid)?;
    writes.running(pid, &maps)
}

/// Pages of private memory that have content of their own.
fn own_pages(pid: libc::pid_t) -> Result<Spans, CaptureError> {
    let maps = procfs::maps(pid)?;
    let mut pagemap = Pagemap::open(pid)?;
    let mut own = Spans::default();
    for m in maps.iter().filter(|m| m.is_private()) {
        let mut runs = Vec::new();
        pagemap.own_pages(m.into(), u64::MAX, &mut runs)?;
        runs.iter().for_each(|run| own.push(run.start, run.start + run.pages * PAGE_BYTES));
    }
    Ok(own)
}

struct Sender<'a> {
    source: Source,
    sink: &'a mut dyn PageSink,
    buffer: Vec<u8>,
}

impl Sender<'_> {
    /// Sends what can be read of some pages. One that is not there any more is not sent.
    fn send(&mut self, pages: &Spans) -> Result<Round, CaptureError> {
        let begun = Instant::now();
        let mut bytes = 0;
        for span in pages.iter() {
            let mut at = span.start;
            while at < span.end {
                let wanted = (span.end - at).min(PART_BYTES as u64) as usize;
                let read = self.source.read(at, &mut self.buffer[..wanted])?;
                let content = &self.buffer[..read];
                self.sink
                    .pages(at, content)
                    .map_err(|source| CaptureError::Os { what: "send memory", source })?;
                bytes += read as u64;
                at += read as u64;
                if read < wanted {
                    at += PAGE_BYTES;
                }
            }
        }
        Ok(Round { bytes, took: begun.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_by_rate_by_number_and_when_there_is_little_left() {
        let limits = PrecopyLimits { pause: Duration::from_millis(20), rounds: 3, least_gain: 0.2 };
        let round = |mib: u64, ms: u64| Round { bytes: mib << 20, took: Duration::from_millis(ms) };
        let judge = |rounds: &[Round], left: u64| limits.judge(rounds, left << 20);
        let first = round(1000, 1000);
        assert_eq!(judge(&[first], 20), Some(PrecopyEnd::Little));
        assert_eq!(judge(&[first], 21), None);
        assert_eq!(judge(&[first], 800), None);
        assert_eq!(judge(&[first], 801), Some(PrecopyEnd::Outrun));
        assert_eq!(judge(&[first, round(800, 800)], 500), None);
        assert_eq!(
            judge(&[first, round(800, 800), round(500, 500)], 300),
            Some(PrecopyEnd::Rounds)
        );
        // A slower transfer makes the same amount too much.
        assert_eq!(judge(&[round(1000, 10_000)], 20), None);
    }
}
