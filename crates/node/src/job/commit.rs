//! What a turn has for effects, and when it may have them: at once where the journal is a file,
//! when etcd has acknowledged its record where it is there (`--ha`).
//!
//! Kept true: effects come in the order of their turns, and none before the record of its turn is
//! durable; what only asks how things are waits for nothing. Who was deposed has no effects.

use super::journal::{self, Journal};
use super::nodes::State;
use super::{Job, JournalError, Msg};
use crate::crew::Wired;
use crate::ha::{self, Announced, CutOff, Health, Lead, News, Pointer, Vouch, Writer};
use crate::outlet::Outlet;
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::node::ToNode;
use eyrie_control::{Event, HaStatus, NodeMsg};
use eyrie_protocol::led;
use eyrie_protocol::session::Numbered;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// What a turn leads to.
#[derive(Default)]
pub(super) struct Effects {
    pub frames: Vec<(u32, Numbered<ToNode>)>,
    /// What was taken of each node is confirmed.
    pub heard: Vec<(u32, u64)>,
    /// Nodes that may be granted more.
    pub grants: Vec<(u32, u64)>,
    pub events: Vec<Event>,
    /// Lost nodes, of which all is to end, and how long one may take that is cut off.
    pub clears: Vec<(u32, Duration)>,
    pub dismissed: Vec<Wired>,
    pub console: Vec<NodeMsg>,
    /// What clients are told that wait for checkpoints, or for the job to be saved.
    pub answers: Vec<(Outlet, NodeMsg)>,
    /// What is saved is of no use any more.
    pub outgrown: bool,
}

impl Effects {
    fn is_empty(&self) -> bool {
        let none = self.frames.is_empty() && self.heard.is_empty() && self.events.is_empty();
        none && self.grants.is_empty()
            && self.clears.is_empty()
            && self.dismissed.is_empty()
            && self.console.is_empty()
            && self.answers.is_empty()
            && !self.outgrown
    }
}

/// What is gathered in a turn, and what waits.
#[derive(Default)]
pub(super) struct Commit {
    /// For the console.
    pub printed: RefCell<Vec<NodeMsg>>,
    /// As in `Effects`.
    pub answers: Vec<(Outlet, NodeMsg)>,
    pub clears: Vec<(u32, Duration)>,
    pub dismissed: Vec<Wired>,
    /// When the journal could not be written, or begun anew, last.
    pub journal_lost: Option<Instant>,
    /// If the journal is in etcd.
    pub ha: Option<Ha>,
}

/// How the state in etcd is, as the job sees it.
pub(super) struct Ha {
    place: String,
    health: Arc<Health>,
    waiting: VecDeque<(u64, Effects)>,
    /// The number of the latest record, and of the latest that is durable.
    written: u64,
    durable: u64,
    away: Option<String>,
    deposed: Option<String>,
    /// How many addresses and hosts were announced.
    announced: (usize, usize),
}

/// The lead, and the threads that keep it.
pub struct Reign {
    lead: Lead,
    health: Arc<Health>,
}

impl Reign {
    /// Has the lease kept from now on.
    pub fn begin(lead: Lead, tell: &UnboundedSender<Msg>) -> io::Result<Reign> {
        let tell = tell.clone();
        let health = Health::new(move |news| drop(tell.send(Msg::Ha(news))));
        ha::keep(&lead, &health)?;
        Ok(Reign { lead, health })
    }

    pub fn lead(&self) -> &Lead {
        &self.lead
    }

    /// Whether it leads for sure.
    pub fn vouch(&self) -> Arc<Vouch> {
        Arc::clone(&self.health.vouch)
    }

    /// The job does not begin: nothing of it stays in etcd.
    pub fn remove(self) {
        self.health.end();
        self.lead.remove();
    }

    /// The job goes on elsewhere, or with another attempt.
    pub fn leave(self) {
        self.health.end();
    }
}

impl Job {
    /// From now on the journal is in etcd. `hosts`: see `Pointer`.
    pub fn lead(&mut self, reign: Reign) -> Result<(), JournalError> {
        let Reign { lead, health } = reign;
        let folder = &self.place.folder;
        let thread = |e| JournalError::Ha(ha::HaError::Thread(e));
        if let Some(ha) = self.spec.ha.as_deref() {
            let token = Some(lead.token.clone());
            let pointer = Pointer { ha: ha.clone(), token, hosts: Vec::new() };
            journal::point(folder, &pointer).map_err(thread)?;
        }
        let writer = Writer::new(&lead, folder, &health).map_err(thread)?;
        self.journal = Some(Journal::Etcd(writer));
        self.commit.ha = Some(Ha {
            place: lead.place.name.clone(),
            health,
            waiting: VecDeque::new(),
            written: 0,
            durable: 0,
            away: None,
            deposed: None,
            announced: (0, 0),
        });
        self.announce();
        if lead.reign == 1 {
            self.say(format!("if this machine is lost: eyrie standby {}", lead.place.name));
        }
        Ok(())
    }

    /// Says in etcd where the controller is, if that has changed.
    pub(super) fn announce(&mut self) {
        let (Some(ha), Some(crew)) = (&mut self.commit.ha, &self.crew) else { return };
        let Some(Journal::Etcd(writer)) = &self.journal else { return };
        let hosts = crew.spec.hosts.as_ref().map_or(&[][..], |h| &h.list);
        let now = (crew.addresses.len(), hosts.len());
        if std::mem::replace(&mut ha.announced, now) == now {
            return;
        }
        let hosts = hosts.iter().map(|h| h.name.clone()).collect();
        let announced = Announced { reign: crew.reign, addresses: crew.addresses.clone(), hosts };
        let text = serde_json::to_string(&announced).unwrap_or_default();
        writer.announce(text);
    }

    /// Standard input is needed wherever the next controller is.
    pub(super) fn keep_input(&self, bytes: &[u8]) {
        if let Some(Journal::Etcd(writer)) = &self.journal {
            let mut at = self.input.known().0.saturating_sub(bytes.len() as u64);
            // What has waited for room may be more than goes into one value.
            for part in bytes.chunks(MAX_DATA_BYTES) {
                writer.input(at, part);
                at += part.len() as u64;
            }
        }
    }

    /// Has the effects of a turn come about, or wait for its record.
    pub(super) fn release(&mut self, effects: Effects, number: u64) {
        let Some(ha) = &mut self.commit.ha else { return self.have_effects(effects) };
        ha.written = ha.written.max(number);
        if ha.waiting.is_empty() && ha.written <= ha.durable {
            return self.have_effects(effects);
        }
        if !effects.is_empty() {
            ha.waiting.push_back((ha.written, effects));
        }
    }

    fn have_effects(&mut self, effects: Effects) {
        // Before nodes are told to bring what would come in its place.
        if effects.outgrown {
            self.remove_outgrown();
        }
        for (node, frame) in effects.frames {
            self.nodes[node as usize].post(frame);
        }
        for (node, heard) in effects.heard {
            self.nodes[node as usize].confirm(heard);
        }
        for (node, granted) in effects.grants {
            self.nodes[node as usize].allow(granted);
        }
        effects.events.into_iter().for_each(|event| self.events.push(event));
        if let Some(error) = self.events.trouble() {
            self.say(format!(
                "events are not written to the job's folder any more ({error}): eyrie events still \
                 shows them as long as the controller lives"
            ));
        }
        for (node, cut_off) in effects.clears {
            self.clear_now(node, cut_off);
        }
        for wired in effects.dismissed {
            wired.sender.send(Numbered::beside(0, ToNode::Dismissed));
        }
        effects.console.iter().for_each(|message| self.console.send(message));
        effects.answers.iter().for_each(|(outlet, message)| outlet.send(message));
    }

    /// Events of turns that are not durable yet.
    pub(super) fn events_to_come(&self) -> impl Iterator<Item = &Event> {
        let waiting = self.commit.ha.iter().flat_map(|ha| &ha.waiting);
        waiting.flat_map(|(_, effects)| &effects.events)
    }

    /// The threads tell something.
    pub(super) fn hear_of_etcd(&mut self, news: News) {
        let Some(ha) = &mut self.commit.ha else { return };
        match news {
            News::Committed(number) => {
                ha.durable = ha.durable.max(number);
                while let Some(effects) = self.next_durable() {
                    self.have_effects(effects);
                }
            }
            News::Away(why) => {
                let text = format!(
                    "WARNING: nothing can be written to etcd ({why}): what the job's controller \
                     decides waits, its ranks go on for {} s at least, then they stand still until \
                     etcd is back (Ctrl-C ends the job without it)",
                    led::BEARS_MS.saturating_sub(led::LEASE_MS) / 1_000
                );
                ha.away = Some(why);
                self.say_now(text);
            }
            News::Back => {
                ha.away = None;
                self.say_now(String::from("etcd is back: the controller goes on"));
            }
            News::Deposed(why) => {
                ha.deposed = Some(why);
                self.over.notify_one();
            }
        }
    }

    fn next_durable(&mut self) -> Option<Effects> {
        let ha = self.commit.ha.as_mut()?;
        let due = ha.waiting.front().is_some_and(|(number, _)| *number <= ha.durable);
        ha.waiting.pop_front_if(|_| due).map(|(_, effects)| effects)
    }

    /// A line that waits for nothing.
    fn say_now(&self, text: String) {
        tracing::info!("{text}");
        self.console.send(&NodeMsg::Say(text));
    }

    /// Whether effects wait.
    pub fn is_behind(&self) -> bool {
        self.commit.ha.as_ref().is_some_and(|ha| !ha.waiting.is_empty())
    }

    /// Why another controller has the job, if that is so.
    pub fn deposed(&self) -> Option<String> {
        self.commit.ha.as_ref()?.deposed.clone()
    }

    /// An error unless nobody else can have the job by now.
    pub(super) fn leads_for_sure(&self) -> Result<(), String> {
        match &self.commit.ha {
            Some(ha) if !ha.health.vouch.holds() => {
                let why = "etcd has not confirmed for longer than a lease that this controller \
                           leads: ask again when it does";
                Err(String::from(why))
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing becomes durable at the time.
    pub fn is_etcd_away(&self) -> bool {
        self.commit.ha.as_ref().is_some_and(|ha| ha.away.is_some())
    }

    pub(super) fn ha_status(&self) -> Option<HaStatus> {
        let ha = self.commit.ha.as_ref()?;
        Some(HaStatus { place: ha.place.clone(), away: ha.away.clone() })
    }

    /// The job is to end, and etcd is not there: it ends without. A controller elsewhere that finds
    /// its keys later finds no node.
    pub(super) fn forsake_etcd(&mut self) {
        if !self.is_etcd_away() {
            return;
        }
        let Some(ha) = self.commit.ha.take() else { return };
        ha.health.end();
        ha.health.vouch.forsake();
        self.journal = None;
        self.noted.clear();
        self.say_now(format!(
            "etcd is away: the job ends without it; what is left there is to be removed: {}",
            ha.place
        ));
        ha.waiting.into_iter().for_each(|(_, effects)| self.have_effects(effects));
    }

    /// The job is over: of its state nothing stays in etcd. Calls `done` when that is so.
    pub fn end_ha(&mut self, code: i32, done: impl FnOnce() + Send + 'static) {
        match &self.journal {
            Some(Journal::Etcd(writer)) => writer.end(code, done),
            _ => done(),
        }
    }

    /// Ends what is left of a node, once it is durable that it is lost.
    pub(super) fn clear_node(&mut self, node: u32, cut_off: Duration) {
        let unled = if self.spec.ha.is_some() { ha::UNLED } else { Duration::ZERO };
        self.commit.clears.push((node, cut_off + unled));
    }

    /// Ends what is left of a node and removes its storage; `cleared` follows.
    fn clear_now(&mut self, node: u32, cut_off: Duration) {
        let others = self.nodes.iter().filter(|n| n.state != State::Lost);
        let others = others.filter_map(|n| Some(n.daemon.as_ref()?.pid));
        let others = others.chain(self.gateway_pids()).collect();
        let tell = self.tell.clone();
        let done = move |left| drop(tell.send(Msg::Cleared { node, left }));
        // One whose daemon was never started leaves nothing.
        let Some(daemon) = &self.nodes[node as usize].daemon else { return done(0) };
        let vouch = self.crew.as_ref().and_then(|crew| crew.vouch.clone());
        if let Err(error) = daemon.clear(others, CutOff::new(cut_off, vouch), done) {
            self.fatal(format!("cannot clear away what node {node} left: {error}"));
        }
    }
}

/// What a controller on another machine finds of a job: brings it to the job's folder.
pub(super) fn bring(lead: &Lead, folder: &Path) -> Result<(), JournalError> {
    let name = |name| folder.join(name);
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |e| JournalError::Io(path, e)
    };
    let files = [
        (name(crate::home::STDIN), lead.place.input()?),
        (name(crate::home::PRINTED), lead.place.printed()?),
    ];
    for (path, bytes) in files {
        // The console has made one of them already, and is going to look at it.
        if std::fs::metadata(&path).map_or(0, |m| m.len()) == 0 {
            eyrie_image::write_private(&path, &bytes).map_err(io(&path))?;
        }
    }
    Ok(())
}
