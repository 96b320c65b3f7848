//! What there is to tell of a job, whether it runs or has ended.
//!
//! Kept true: the events are those in the job's folder (all of them, also from before it was
//! restarted) or its record; whatever is not there is left out, and said to be.

use crate::client;
use crate::commands::report::timeline::Timeline;
use crate::jobs::{self, Job};
use anyhow::Context;
use eyrie_control::{Account, Event, EventKind, JobStatus, NodeStatus, RankStatus};
use eyrie_state::history as records;
use eyrie_state::history::Record;
use eyrie_state::home::{self, JobEntry};
use eyrie_state::samples::{self, Sample, Traffic};
use eyrie_terminal::Failure;
use serde::Serialize;
use std::io::{BufRead, BufReader, Read};

/// More events are not taken: of what comes behind that, only what is no checkpoint's.
const MOST_EVENTS: usize = 2_000_000;
/// No event's line is longer.
const LINE_BYTES: u64 = 1 << 24;
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
    /// So many are not among them.
    left_out: u64,
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
            let (events, left_out) = events_there(&entry)?;
            let (samples, record) = (samples::read(&entry.path), record.map(|it| it.record));
            Sources { status, record, events, left_out, samples, traffic, ended_unix_ms }
        }
        Job::Ended(found) => Sources {
            status,
            events: found.events()?,
            left_out: found.record.events_left_out,
            samples: found.samples(),
            traffic: found.traffic(),
            record: Some(found.record),
            ended_unix_ms,
        },
    };
    Ok(told(sources))
}

/// The events of a job that has a folder.
fn events_there(job: &JobEntry) -> Result<(Vec<Event>, u64), Failure> {
    match eyrie_image::open_plain(&job.path.join(home::EVENTS)) {
        Ok(file) => Ok(parsed(BufReader::new(file), MOST_EVENTS).context("events")?),
        Err(_) if job.alive => Ok((client::events_from(job, 0)?, 0)),
        Err(error) => Err(anyhow::Error::new(error).context("no events").into()),
    }
}

/// The events, and how many were left out of those of checkpoints, which a large job has millions
/// of in a day. The last line may be under way.
fn parsed(mut lines: impl BufRead, most: usize) -> std::io::Result<(Vec<Event>, u64)> {
    let often = [EventKind::Checkpointing, EventKind::Checkpointed, EventKind::Copied];
    let (mut all, mut left_out, mut line) = (Vec::new(), 0, Vec::new());
    loop {
        line.clear();
        lines.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Ok((all, left_out));
        }
        let Ok(event) = serde_json::from_slice::<Event>(&line) else { continue };
        if all.len() >= most && often.contains(&event.event) {
            left_out += 1;
        } else {
            all.push(event);
        }
    }
}

fn told(from: Sources) -> JobReport {
    let Sources { status, record, events, left_out, samples, traffic, ended_unix_ms } = from;
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
        events_left_out: left_out,
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
            left_out: 0,
            traffic: Some(Traffic { ranks_a_group: 1, messages, bytes }),
            ended_unix_ms: Some(1_800_000_001_000),
        })
    }

    /// One of 4,096 ranks on 1,024 nodes, each with ten checkpoints; a node was lost with its
    /// ranks, then every second rank, then all went back.
    pub fn large() -> JobReport {
        use eyrie_control::EventKind::*;
        let status = crate::show::screen::tests::large();
        let mut events = Vec::new();
        let mut tell = |ms: f64, kind, rank: Option<u32>, node: Option<u32>, generation| {
            let mut event = Event::new(ms, kind);
            (event.rank, event.node, event.generation) = (rank, node, generation);
            (event.bytes, event.took_ms) = (Some(1 << 30), Some(9.0));
            events.push(event);
        };
        let all = 0..status.size;
        all.clone().for_each(|r| tell(f64::from(r) / 100.0, Started, Some(r), Some(r / 4), None));
        for round in 1..=10u32 {
            for r in all.clone() {
                let at = f64::from(round) * 60_000.0 + f64::from(r);
                tell(at, Checkpointing, Some(r), None, Some(round));
                tell(at + 9.0, Checkpointed, Some(r), None, Some(round));
            }
        }
        tell(610_000.0, NodeLost, None, Some(7), None);
        (28..32).for_each(|r| tell(611_000.0, Restored, Some(r), Some(8), Some(10)));
        all.clone().step_by(2).for_each(|r| tell(620_000.0, Detected, Some(r), None, None));
        tell(621_000.0, RolledBack, None, None, None);
        all.for_each(|r| tell(622_000.0, Restored, Some(r), Some(r / 4), Some(9)));
        tell(630_000.0, Ended, None, None, None);
        let ended_unix_ms = Some(1_800_000_630_000);
        let (samples, traffic) = (Vec::new(), None);
        told(Sources { status, record: None, events, left_out: 0, samples, traffic, ended_unix_ms })
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
        assert_eq!(parsed(text.as_bytes(), 9).unwrap().0.len(), 2);
    }

    #[test]
    fn of_more_events_than_fit_those_of_checkpoints_are_left_out() {
        let all: Vec<String> =
            events(&STEPS).iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect();
        let (taken, left_out) = parsed(all.concat().as_bytes(), 4).unwrap();
        assert_eq!((taken.len(), left_out), (all.len() - 2, 2));
        assert_eq!(taken.last().unwrap().event, EventKind::Ended);
    }
}
