//! `eyrie drain`: nodes leave a job while it runs; `eyrie migrate`: their ranks move, and they
//! stay.
//!
//! Kept true: the command ends when each node has left, or it is told why not; over the death of
//! the controller it goes on to watch by the job's events.

use crate::args::{Drain, Migrate};
use crate::remote::{Remote, find_running};
use anyhow::anyhow;
use eyrie_control::{ClientMsg, Event, EventKind, LeaveStep, Leaving, NodeMsg};
use eyrie_node::home::{self, JobEntry};
use eyrie_terminal::{FAILED, Failure, print};
use std::collections::BTreeMap;

/// What the command knows of each node.
#[derive(Default)]
struct Watch {
    json: bool,
    /// The nodes that were heard of, and how they ended.
    nodes: BTreeMap<u32, Option<LeaveStep>>,
}

impl Watch {
    fn tell(&mut self, leaving: &Leaving) -> anyhow::Result<()> {
        let last = leaving.step.is_last().then_some(leaving.step);
        self.nodes.insert(leaving.node, last);
        match self.json {
            true => print(&(serde_json::to_string(leaving)? + "\n")),
            false => print(&line(leaving)),
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

fn line(leaving: &Leaving) -> String {
    let Leaving { node, step, took_ms, text } = leaving;
    let words = match step {
        LeaveStep::Copying => format!("copying {text} while they run"),
        LeaveStep::Stopping => format!("stopping {text}"),
        LeaveStep::Moving | LeaveStep::Emptying | LeaveStep::Late => text.clone(),
        LeaveStep::Left => String::from("has left"),
        LeaveStep::Spare => String::from("has given its ranks away, and is a spare"),
        LeaveStep::Stays => format!("does not go on with it: {text}"),
        LeaveStep::Lost => format!("is lost: {text}"),
    };
    format!("node {node}, {:.1} s: {words}\n", took_ms / 1e3)
}

/// Asks, and tells how far it is until it is over.
pub fn drain(args: &Drain) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = ClientMsg::Drain {
        nodes: args.nodes.clone(),
        to: args.to.clone(),
        deadline_ms: args.deadline,
    };
    follow(&job, &ask, args.json)
}

/// The same for `eyrie migrate`.
pub fn migrate(args: &Migrate) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let (from, to, release) = (args.from.clone(), args.to.clone(), args.release);
    follow(&job, &ClientMsg::Migrate { from, to, release }, args.json)
}

fn follow(job: &JobEntry, ask: &ClientMsg, json: bool) -> Result<i32, Failure> {
    let mut remote = Remote::connect(job)?.patient(ask)?;
    let mut watch = Watch { json, ..Watch::default() };
    loop {
        match remote.next() {
            Ok(NodeMsg::Leaving(leaving)) => watch.tell(&leaving)?,
            Ok(NodeMsg::Done) => return Ok(watch.code()),
            Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
            Err(_) if !watch.nodes.is_empty() && job.path.join(home::JOURNAL).exists() => {
                return by_events(job, &mut watch);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells the nodes on this host that it is about to end.
pub fn notice() -> Result<i32, Failure> {
    let told = eyrie_node::notice::tell(&home::home()?)?;
    for node in &told {
        print(&format!("told {}\n", node.display()));
    }
    if told.is_empty() {
        return Err(Failure::new(FAILED, anyhow!("no node of a job is on this host")));
    }
    Ok(0)
}

/// The controller died, and the next one goes on.
fn by_events(job: &JobEntry, watch: &mut Watch) -> Result<i32, Failure> {
    eprintln!("eyrie: the job's controller died; the next one goes on");
    let mut told = 0;
    while !watch.over() {
        let ask = ClientMsg::Events { from: told, follow: true };
        let mut remote = Remote::connect(job)?.patient(&ask)?;
        loop {
            match remote.next() {
                Ok(NodeMsg::Event(event)) => {
                    told += 1;
                    take_event(&event, watch)?;
                }
                Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
                Err(_) if !watch.over() && job.path.join(home::JOURNAL).exists() => break,
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
    let step = match event.event {
        EventKind::NodeLeft => LeaveStep::Left,
        EventKind::NodeVacated => LeaveStep::Spare,
        EventKind::NodeStays => LeaveStep::Stays,
        EventKind::NodeLost => LeaveStep::Lost,
        // What there was before belongs to an earlier attempt.
        EventKind::NodeLeaving => {
            watch.nodes.insert(node, None);
            return Ok(());
        }
        _ => return Ok(()),
    };
    let (took_ms, text) = (event.took_ms.unwrap_or(0.0), event.text.clone());
    watch.tell(&Leaving { node, step, took_ms, text })
}
