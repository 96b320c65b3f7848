//! Where the data of `eyrie top` come from: a thread that asks jobs how they are, and one for each
//! order.
//!
//! Kept true: the thread that draws never waits for a job; a job that does not answer is asked
//! again, and that is said.

use crate::client::{self, Client};
use crate::commands::drain::watch;
use crate::commands::top::model::Order;
use crate::jobs::{self, Job};
use crate::show::tables;
use eyrie_control::{ClientMsg, Event, JobStatus, NodeMsg};
use eyrie_state::home;
use eyrie_terminal::{Failure, told};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Between two looks at all jobs, or at one.
const PAUSE: Duration = Duration::from_millis(1000);

/// What the screen hears.
pub enum News {
    Jobs(Vec<JobStatus>),
    Job {
        status: Box<JobStatus>,
        ended_unix_ms: Option<u64>,
        events: Vec<String>,
    },
    /// What became of an order, or of a question.
    Said {
        text: String,
        good: bool,
    },
    Signal(i32),
}

/// The job to look at from now on, or all.
pub type Watch = Option<String>;

/// Asks, until nobody listens any more.
pub fn watch(first: Watch, hear: Receiver<Watch>, tell: Sender<News>) {
    let (mut watched, mut known) = (first, 0);
    loop {
        let news = match &watched {
            None => Ok(News::Jobs(jobs())),
            Some(id) => job(id, &mut known),
        };
        let news = news.unwrap_or_else(|error| News::Said { text: told(&error), good: false });
        if tell.send(news).is_err() {
            return;
        }
        match hear.recv_timeout(PAUSE) {
            Ok(next) => (watched, known) = (next, 0),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Of several only the last counts.
        if let Some(next) = hear.try_iter().last() {
            (watched, known) = (next, 0);
        }
    }
}

fn jobs() -> Vec<JobStatus> {
    let all = home::home().map(|home| home::jobs(&home)).unwrap_or_default();
    let runs = all.iter().filter(|job| job.alive);
    runs.filter_map(|job| client::job_status(job).ok()).collect()
}

/// How a job is, with its events from number `known` on.
fn job(id: &str, known: &mut u64) -> anyhow::Result<News> {
    let found = jobs::find(id).map_err(Failure::into_error)?;
    let state = jobs::status_of(&found).map_err(Failure::into_error)?;
    let (status, ended_unix_ms) = state;
    let new: Vec<Event> = match &found {
        Job::There(entry) if entry.alive => client::events_from(entry, *known)?,
        Job::There(_) => Vec::new(),
        Job::Ended(ended) => {
            let all = ended.events().unwrap_or_default();
            all.into_iter().skip(*known as usize).collect()
        }
    };
    *known += new.len() as u64;
    let events = new.iter().map(tables::event_line).collect();
    Ok(News::Job { status: Box::new(status), ended_unix_ms, events })
}

/// Has it done, in a thread; what became of it is told.
pub fn order(job: String, order: Order, tell: Sender<News>) {
    let carry_out = move || {
        let (text, good) = match carry_out(&job, &order) {
            Ok(text) => (text, true),
            Err(error) => (told(&error), false),
        };
        let _ = tell.send(News::Said { text: format!("job {job}: {text}"), good });
    };
    drop(thread::Builder::new().spawn(carry_out));
}

fn carry_out(job: &str, order: &Order) -> anyhow::Result<String> {
    let entry = home::resolve(&home::home()?, job)?;
    match order {
        Order::Kill { rank } => {
            Client::ask(&entry, &ClientMsg::Kill { ranks: vec![*rank] })?;
            Ok(format!("rank {rank} is killed"))
        }
        Order::Checkpoint => {
            let ask = ClientMsg::Checkpoint { rank: None };
            checkpoints(Client::connect(&entry)?.send_unlimited(&ask)?)
        }
        Order::Drain { node } => {
            let (number, to) = (watch::number(), Vec::new());
            let nodes = vec![node.to_string()];
            let ask = ClientMsg::Drain { nodes, to, deadline_ms: None, number };
            drained(Client::connect(&entry)?.send_unlimited(&ask)?)
        }
    }
}

fn checkpoints(mut remote: Client) -> anyhow::Result<String> {
    let (mut taken, mut failed) = (0, None);
    loop {
        match remote.next()? {
            NodeMsg::Checkpointed { .. } => taken += 1,
            NodeMsg::CheckpointFailed { rank, reason } => {
                failed.get_or_insert(format!("no checkpoint of rank {rank}: {reason}"));
            }
            NodeMsg::Done => break,
            other => anyhow::bail!("unexpected answer: {other:?}"),
        }
    }
    match failed {
        Some(why) => anyhow::bail!(why),
        None => Ok(format!("{taken} checkpoints are taken")),
    }
}

fn drained(mut remote: Client) -> anyhow::Result<String> {
    let mut last = String::from("nothing became of it");
    loop {
        match remote.next()? {
            NodeMsg::Leaving(leaving) => last = watch::line(&leaving).trim_end().to_string(),
            NodeMsg::Done => return Ok(last),
            other => anyhow::bail!("unexpected answer: {other:?}"),
        }
    }
}
