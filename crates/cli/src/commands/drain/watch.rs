//! Asks a job to have nodes leave or ranks move, and tells how far that is.
//!
//! Kept true: it ends when each node has left, or it is told why not. When the controller dies the
//! job's events tell whether that had begun what was asked, by the request's number: then the
//! command goes on to watch, else it asks the next one. So what is asked is done once.

use crate::client::{Client, outlives};
use crate::commands::drain::args::{self, Drain};
use crate::messages::say;
use anyhow::{Context, anyhow};
use eyrie_control::{ClientMsg, Event, EventKind, LeaveStep, Leaving, NodeMsg};
use eyrie_state::home::JobEntry;
use eyrie_terminal::{FAILED, Failure, Progress, end_progress, hold, print, print_line};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// What numbers in JSON are exact to.
const MAX_NUMBER: u64 = (1 << 53) - 1;
/// Between two looks whether the next controller is there.
const PAUSE: Duration = Duration::from_millis(20);

/// What the command knows of each node.
pub struct Watch {
    json: bool,
    /// Each line says which job it is of.
    job: Option<String>,
    /// Of the request.
    number: u64,
    /// The nodes that were heard of, and how they ended.
    nodes: BTreeMap<u32, Option<LeaveStep>>,
    /// Those of which the events have told that the request was begun.
    begun: BTreeSet<u32>,
    progress: Progress,
}

impl Watch {
    pub fn of(number: u64, json: bool, progress: Progress) -> Watch {
        let (nodes, begun) = (BTreeMap::new(), BTreeSet::new());
        Watch { json, job: None, number, nodes, begun, progress }
    }

    /// What is told has the job's name before it.
    #[must_use]
    pub fn told_as(self, job: &str) -> Watch {
        Watch { job: Some(job.to_string()), ..self }
    }

    fn tell(&mut self, leaving: &Leaving) -> anyhow::Result<()> {
        let last = leaving.step.is_last().then_some(leaving.step);
        self.nodes.insert(leaving.node, last);
        self.progress.of(self.nodes.len() as u64);
        self.progress.set(self.nodes.values().flatten().count() as u64);
        self.progress.tell(&words(leaving));
        match (self.json, &self.job) {
            (true, job) => {
                let mut record = serde_json::to_value(leaving)?;
                if let (Some(fields), Some(job)) = (record.as_object_mut(), job) {
                    fields.insert("job".into(), job.as_str().into());
                }
                print(&format!("{record}\n"));
            }
            (false, Some(job)) => print(&format!("job {job}, {}", line(leaving))),
            (false, None) => print(&line(leaving)),
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.nodes.values().all(Option::is_some)
    }

    fn code(&self) -> i32 {
        let left =
            |step: &Option<LeaveStep>| matches!(step, Some(LeaveStep::Left | LeaveStep::Spare));
        if self.nodes.values().all(left) { 0 } else { FAILED }
    }
}

pub fn line(leaving: &Leaving) -> String {
    let Leaving { node, took_ms, .. } = leaving;
    format!("node {node}, {:.1} s: {}\n", took_ms / 1e3, words(leaving))
}

fn words(leaving: &Leaving) -> String {
    let Leaving { step, text, .. } = leaving;
    match step {
        LeaveStep::Copying => format!("copying {text} while they run"),
        LeaveStep::Stopping => format!("stopping {text}"),
        LeaveStep::Moving | LeaveStep::Emptying | LeaveStep::Late => text.clone(),
        LeaveStep::Left => String::from("has left"),
        LeaveStep::Spare => String::from("has given its ranks away, and is a spare"),
        LeaveStep::Stays => format!("does not go on with it: {text}"),
        LeaveStep::Lost => format!("is lost: {text}"),
    }
}

/// They do, after all.
pub fn tell_stay(args: &Drain, job: &str) -> anyhow::Result<()> {
    match (args.json, args.job == args::ALL) {
        (true, _) => print_line(&json!({ "job": job, "nodes": args.nodes, "cancelled": true }))?,
        (false, true) => print(&format!("job {job}: they stay\n")),
        (false, false) => print("they stay\n"),
    }
    Ok(())
}

/// Ctrl-C ends the command, and not what it has asked for.
pub fn tell_how_to_cancel(job: &str, nodes: &[String]) -> Result<(), Failure> {
    let held = hold(&[libc::SIGINT]);
    let nodes = if nodes.is_empty() { String::from("NODE...") } else { nodes.join(" ") };
    let how = format!("it goes on; to call it off: eyrie drain --cancel {job} {nodes}");
    let wait = move || {
        if let Some(signal) = held.wait() {
            end_progress();
            eyrie_terminal::say(crate::messages::NAME, &how);
            std::process::exit(128 + signal);
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.context("thread")?;
    Ok(())
}

/// One that no other request of the job has.
pub fn number() -> u64 {
    RandomState::new().hash_one(std::process::id()) & MAX_NUMBER
}

/// Asks until a controller lives to answer, or has begun it.
pub fn follow(job: &JobEntry, ask: &ClientMsg, mut watch: Watch) -> Result<i32, Failure> {
    loop {
        if asked(job, ask, &mut watch)? {
            return Ok(watch.code());
        }
        say("the job's controller died; the next one goes on");
        while !is_back(job, &mut watch)? {
            std::thread::sleep(PAUSE);
        }
        if !watch.nodes.is_empty() {
            return by_events(job, &mut watch);
        }
    }
}

/// Asks, and tells what is answered. False: the controller died before that was all.
fn asked(job: &JobEntry, ask: &ClientMsg, watch: &mut Watch) -> Result<bool, Failure> {
    let mut remote = match Client::connect(job)?.send_unlimited(ask) {
        Err(_) if outlives(job) => return Ok(false),
        remote => remote?,
    };
    loop {
        match remote.next() {
            Ok(NodeMsg::Leaving(leaving)) => watch.tell(&leaving)?,
            Ok(NodeMsg::Done) => return Ok(true),
            Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
            Err(_) if remote.is_over() && outlives(job) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the next controller can be asked; then `watch` has the nodes with which the dead one
/// had begun what was asked, if it had.
fn is_back(job: &JobEntry, watch: &mut Watch) -> Result<bool, Failure> {
    if !outlives(job) {
        return Err(anyhow!("the job has ended").into());
    }
    let ask = ClientMsg::Events { from: 0, follow: false };
    // It may die, too.
    let Ok(mut remote) = Client::connect(job).and_then(|r| r.send_unlimited(&ask)) else {
        return Ok(false);
    };
    let mut back = false;
    loop {
        match remote.next() {
            Ok(NodeMsg::Event(event)) => match event.event {
                EventKind::ControllerLost => back = false,
                EventKind::ControllerBack => back = true,
                EventKind::NodeLeaving if event.count == Some(watch.number) => {
                    watch.nodes.extend(event.node.map(|node| (node, None)));
                }
                _ => {}
            },
            Ok(NodeMsg::Done) => return Ok(back),
            Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
            Err(_) => return Ok(false),
        }
    }
}

/// The controller died, and the next one goes on with what it had begun.
fn by_events(job: &JobEntry, watch: &mut Watch) -> Result<i32, Failure> {
    let mut told = 0;
    while !watch.over() {
        let ask = ClientMsg::Events { from: told, follow: true };
        let mut remote = Client::connect(job)?.send_unlimited(&ask)?;
        loop {
            match remote.next() {
                Ok(NodeMsg::Event(event)) => {
                    told += 1;
                    take_event(&event, watch)?;
                }
                Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
                Err(_) if !watch.over() && outlives(job) => break,
                Err(error) if !watch.over() => return Err(error.into()),
                Err(_) => return Ok(watch.code()),
            }
            if watch.over() {
                return Ok(watch.code());
            }
        }
    }
    Ok(watch.code())
}

fn take_event(event: &Event, watch: &mut Watch) -> anyhow::Result<()> {
    let Some(node) = event.node.filter(|n| watch.nodes.contains_key(n)) else { return Ok(()) };
    if event.event == EventKind::NodeLeaving && event.count == Some(watch.number) {
        watch.begun.insert(node);
    }
    let step = match event.event {
        // What there was before belongs to an earlier request.
        _ if !watch.begun.contains(&node) || watch.nodes[&node].is_some() => return Ok(()),
        EventKind::NodeLeft => LeaveStep::Left,
        EventKind::NodeVacated => LeaveStep::Spare,
        EventKind::NodeStays => LeaveStep::Stays,
        EventKind::NodeLost => LeaveStep::Lost,
        _ => return Ok(()),
    };
    let (took_ms, text) = (event.took_ms.unwrap_or(0.0), event.text.clone());
    watch.tell(&Leaving { node, step, took_ms, text })
}
