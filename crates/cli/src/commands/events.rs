//! `eyrie events`: what happened in a job, whether it runs or has ended.

use crate::client::Client;
use crate::jobs::{self, line};
use crate::messages::say;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use eyrie_control::{ClientMsg, Event, NodeMsg};
use eyrie_state::history::Found;
use eyrie_state::home;
use eyrie_terminal::{Failure, print};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie events last\n  eyrie events last --follow --json")]
pub struct Events {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// Go on until the job is over
    #[arg(short, long)]
    pub follow: bool,
    /// As JSON, one event a line
    #[arg(long)]
    pub json: bool,
}

/// No event's line is longer.
const MAX_EVENT_BYTES: u64 = 1 << 24;

/// The events that a job which does not run has left.
fn read_events(path: &Path, tell: impl Fn(&Event) -> anyhow::Result<()>) -> anyhow::Result<i32> {
    let named = || path.display().to_string();
    let mut file = BufReader::new(eyrie_image::open_plain(path).context("no events")?);
    let mut line = Vec::new();
    while file.by_ref().take(MAX_EVENT_BYTES).read_until(b'\n', &mut line).with_context(named)? > 0
    {
        if line.len() as u64 == MAX_EVENT_BYTES {
            bail!("{}: a line has no end: this is no list of events", named());
        }
        let event = serde_json::from_slice(&line);
        tell(&event.with_context(|| format!("{}: an event does not decode", named()))?)?;
        line.clear();
    }
    Ok(0)
}

/// All events that are in a file, up to one that does not decode.
pub fn kept(path: &Path) -> Vec<Event> {
    let all = std::cell::RefCell::new(Vec::new());
    let keep = |event: &Event| -> anyhow::Result<()> {
        all.borrow_mut().push(event.clone());
        Ok(())
    };
    if let Err(error) = read_events(path, keep) {
        tracing::debug!(%error, "not all events are read");
    }
    all.into_inner()
}

pub fn events(args: &Events) -> Result<i32, Failure> {
    let job = match jobs::find(&args.job)? {
        jobs::Job::There(job) => job,
        jobs::Job::Ended(found) => return events_of_ended(args, &found),
    };
    let record = eyrie_state::history::of(&home::home()?, &job.id);
    let tell = |event: &Event| -> anyhow::Result<()> {
        print(&jobs::line(event, args.json, record.as_ref().map(|it| &it.record))?);
        Ok(())
    };
    if !job.alive {
        let path = job.path.join(home::EVENTS);
        return Ok(read_events(&path, tell)?);
    }
    let ask = |from| ClientMsg::Events { from, follow: args.follow };
    let mut remote = Client::connect(&job)?.send_unlimited(&ask(0))?;
    let mut told = 0;
    loop {
        match remote.next() {
            Ok(NodeMsg::Event(event)) => {
                told += 1;
                tell(&event)?;
            }
            Ok(NodeMsg::Done) => return Ok(0),
            Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
            // The controller died, and another one knows what it had told.
            Err(_) if args.follow && job.path.join(home::JOURNAL).exists() => {
                match Client::connect(&job).and_then(|r| r.send_unlimited(&ask(told))) {
                    Ok(next) => remote = next,
                    Err(_) => return Ok(0),
                }
            }
            // The job ended: that is where following ends.
            Err(_) if args.follow => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The events of a job that does not run. With wall-clock times, where it is known when it began.
pub fn events_of_ended(args: &Events, found: &Found) -> Result<i32, Failure> {
    let record = &found.record;
    if record.ended_unix_ms.is_none() {
        return Err(jobs::gone(record));
    }
    if record.events_left_out > 0 {
        let left_out = record.events_left_out;
        say(&format!("{left_out} events of job {} were not kept", record.job));
    }
    let events = found.events()?;
    let text: Result<Vec<String>, _> =
        events.iter().map(|event| line(event, args.json, Some(record))).collect();
    print(&text?.concat());
    Ok(0)
}
