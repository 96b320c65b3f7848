//! What there is to tell of a job, whether it runs or has ended.
//!
//! Kept true: the events are those in the job's folder (all of them, also from before it was
//! restarted) or its record; whatever is not there is left out, and said to be.

use crate::client;
use crate::commands::report::timeline::Timeline;
use crate::jobs::{self, Job};
use eyrie_control::{Account, Event, JobStatus, NodeStatus, RankStatus};
use eyrie_state::history as records;
use eyrie_state::history::Record;
use eyrie_state::home::{self, JobEntry};
use eyrie_state::samples::{self, Sample, Traffic};
use eyrie_terminal::Failure;
use serde::Serialize;

/// No list of events that is read at once is larger.
const MOST_BYTES: u64 = 256 << 20;
/// Version of `eyrie report --json`.
const FORMAT: u32 = 1;

/// A job, told in full.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobReport {
    pub format: u32,
    pub job: String,
    pub name: Option<String>,
    pub program: String,
    pub args: Vec<String>,
    pub size: u32,
    /// 0: the controller was the only one.
    pub nodes: u32,
    pub ft: String,
    /// `running`, ..., `ended`: as in the status.
    pub phase: String,
    pub begun_unix_ms: u64,
    pub ended_unix_ms: Option<u64>,
    pub exit_code: Option<i32>,
    pub took_ms: u64,
    pub messages: u64,
    pub message_bytes: u64,
    pub logged: bool,
    /// How much of the log a rank may have.
    pub log_limit_bytes: u64,
    /// Events that were not kept.
    pub events_left_out: u64,
    pub account: Account,
    pub timeline: Timeline,
    pub samples: Vec<Sample>,
    /// None: it was not counted, or not of all ranks.
    pub traffic: Option<Traffic>,
}

/// Where things are found.
struct Sources {
    status: JobStatus,
    record: Option<Record>,
    events: Vec<Event>,
    samples: Vec<Sample>,
    traffic: Option<Traffic>,
    ended_unix_ms: Option<u64>,
}

/// All of the job called `name`.
pub fn gather(name: &str) -> Result<JobReport, Failure> {
    let job = jobs::find(name)?;
    let (status, ended_unix_ms) = jobs::status_of(&job)?;
    let sources = match job {
        Job::There(entry) => {
            let record = records::of(&home::home()?, &entry.id);
            let traffic = record.as_ref().and_then(|found| found.traffic());
            let events = events_there(&entry)?;
            let (samples, record) = (samples::read(&entry.path), record.map(|it| it.record));
            Sources { status, record, events, samples, traffic, ended_unix_ms }
        }
        Job::Ended(found) => Sources {
            status,
            events: found.events()?,
            samples: found.samples(),
            traffic: found.traffic(),
            record: Some(found.record),
            ended_unix_ms,
        },
    };
    Ok(told(sources))
}

/// The events of a job that has a folder.
fn events_there(job: &JobEntry) -> Result<Vec<Event>, Failure> {
    let text = eyrie_image::read_plain(&job.path.join(home::EVENTS), MOST_BYTES);
    match text {
        Ok(text) => Ok(parsed(&text)),
        Err(_) if job.alive => Ok(client::events_from(job, 0)?),
        Err(error) => Err(anyhow::Error::new(error).context("no events").into()),
    }
}

/// The last line may be under way.
fn parsed(text: &[u8]) -> Vec<Event> {
    let lines = text.split_inclusive(|b| *b == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn told(from: Sources) -> JobReport {
    let Sources { status, record, events, samples, traffic, ended_unix_ms } = from;
    let over = ended_unix_ms.is_some();
    let ran_ms = status.uptime_ms as f64;
    let account = record.as_ref().filter(|_| over).map(|it| it.account.clone());
    let sums = |of: fn(&RankStatus) -> u64| status.ranks.iter().map(of).sum::<u64>();
    let is_there = |n: &&NodeStatus| n.state != "lost" && n.state != "left";
    let nodes = status.nodes.iter().filter(is_there).count() as u32;
    JobReport {
        format: FORMAT,
        nodes: record.as_ref().map_or(nodes, |it| it.nodes),
        ended_unix_ms,
        took_ms: status.uptime_ms,
        messages: sums(|r| r.messages_sent),
        message_bytes: sums(|r| r.bytes_sent),
        logged: record.as_ref().is_some_and(|it| it.logged),
        log_limit_bytes: status.log_limit_bytes,
        events_left_out: record.as_ref().filter(|_| over).map_or(0, |it| it.events_left_out),
        account: account.unwrap_or_else(|| Account::of(&events)),
        timeline: Timeline::of(status.size, &events, Some(ran_ms)),
        samples,
        traffic,
        begun_unix_ms: record.as_ref().map_or(status.started_unix_ms, |it| it.begun_unix_ms),
        phase: if over { String::from("ended") } else { status.phase },
        job: status.job,
        name: status.name,
        program: status.program,
        args: status.args,
        size: status.size,
        ft: status.ft,
        exit_code: status.exit_code,
    }
}

impl JobReport {
    /// Whether it goes on.
    pub fn runs(&self) -> bool {
        self.ended_unix_ms.is_none() && self.exit_code.is_none() && self.phase != "saved"
    }

    /// In a word: was anything lost?
    pub fn verdict(&self) -> String {
        let it = &self.account;
        let so_far = if self.runs() { " so far" } else { "" };
        let well = self.runs() || matches!(self.exit_code, None | Some(0 | 85));
        match (well, it.lost_nothing(), it.is_eventful()) {
            (true, true, true) => format!("nothing was lost{so_far}"),
            (true, true, false) => format!("nothing died{so_far}"),
            (true, false, _) if it.rollbacks > 0 => format!("work was done again{so_far}"),
            (true, false, _) => format!("something else was printed when it was repeated{so_far}"),
            (false, ..) => match self.exit_code {
                Some(code) => format!("it ended with exit code {code}"),
                None => String::from("it has not ended in order"),
            },
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::report::timeline::tests::STEPS;
    use crate::commands::report::timeline::tests::events;

    /// A job of four ranks, of which rank 2 died once.
    pub fn job(program: &str) -> JobReport {
        let (sent, size) = (4096, 4);
        let mut status = crate::show::screen::tests::job(
            (0..size).map(|rank| crate::show::screen::tests::rank(rank, "exited")).collect(),
        );
        (status.program, status.exit_code) = (program.to_string(), Some(0));
        status.uptime_ms = 1000;
        let sample = |at: u64| Sample {
            ms: at as f64 * 100.0,
            log_bytes: at << 20,
            most_bytes: at << 19,
            messages: at * 100,
            message_bytes: at << 22,
        };
        let row = |src: u64| (0..4).map(move |dst| if src == dst { 0 } else { sent * (src + 1) });
        let messages: Vec<Vec<u64>> = (0..4).map(|src| row(src).collect()).collect();
        let bytes = messages.iter().map(|row| row.iter().map(|n| n * 8).collect()).collect();
        told(Sources {
            status,
            record: None,
            events: events(&STEPS),
            samples: (0..9).map(sample).collect(),
            traffic: Some(Traffic { ranks_a_group: 1, messages, bytes }),
            ended_unix_ms: Some(1_800_000_001_000),
        })
    }

    #[test]
    fn the_verdict_is_that_of_the_summary() {
        let mut told = job("/bin/heat");
        assert_eq!((told.verdict(), told.runs()), ("nothing was lost".into(), false));
        told.account.rollbacks = 1;
        assert_eq!(told.verdict(), "work was done again");
        told.exit_code = Some(9);
        assert_eq!(told.verdict(), "it ended with exit code 9");
        (told.exit_code, told.ended_unix_ms) = (None, None);
        (told.phase, told.account) = ("running".into(), Account::default());
        assert_eq!(told.verdict(), "nothing died so far");
    }

    #[test]
    fn a_line_that_is_being_written_is_not_taken() {
        let whole = serde_json::to_string(&events(&STEPS)[0]).unwrap();
        let text = format!("{whole}\n{whole}\n{}", &whole[..9]);
        assert_eq!(parsed(text.as_bytes()).len(), 2);
    }
}
