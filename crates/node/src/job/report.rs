//! What the job tells about itself: events and status.

use super::drain::Departure;
use super::nodes::State;
use super::{Job, Latest, Rank};
use crate::outlet::Outlet;
use crate::recovery::VAULT;
use crate::units;
use eyrie_control::node::{NodeLook, RankLook, ToNode};
use eyrie_control::status::STATUS_FORMAT;
use eyrie_control::{
    CheckpointStatus, Event, EventKind, JobStatus, NodeMsg, NodeStatus, RankStatus,
};
use eyrie_ledger::segment::Geometry;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Events kept in memory for `eyrie events`.
const KEPT_EVENTS: usize = 100_000;

/// How long the nodes may take to say how their ranks are.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The events of a job, in memory and in its folder.
pub struct EventLog {
    events: Vec<Event>,
    /// Number of the first one in memory.
    first: u64,
    file: Option<File>,
    /// Why they are not written any more, until that is told.
    trouble: Option<std::io::Error>,
    followers: Vec<Outlet>,
}

impl EventLog {
    /// A file that cannot be written is no reason to stop a job.
    pub fn open(path: &Path) -> EventLog {
        let file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .inspect_err(|error| tracing::warn!(%error, "events are not written"))
            .ok();
        let (events, followers) = (Vec::new(), Vec::new());
        EventLog { events, first: 0, file, trouble: None, followers }
    }

    /// Goes on with the file. Of the `count` events that there were it may lack the last ones.
    pub fn reopen(path: &Path, count: u64, last: Vec<Event>) -> EventLog {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        let mut events: Vec<Event> =
            whole.map_while(|line| serde_json::from_str(line).ok()).collect();
        let lacks = count.saturating_sub(events.len() as u64) as usize;
        let missing = last.len().saturating_sub(lacks);
        let torn = !text.is_empty() && !text.ends_with('\n');
        let mut log = EventLog::open(path);
        if torn {
            log.rewrite(path, &events);
        }
        log.events.append(&mut events);
        last.into_iter().skip(missing).for_each(|event| log.push(event));
        log
    }

    /// Writes the file anew: its last line was torn.
    fn rewrite(&mut self, path: &Path, events: &[Event]) {
        let lines = events.iter().filter_map(|e| serde_json::to_string(e).ok());
        let text: String = lines.map(|line| line + "\n").collect();
        if eyrie_image::write_private(path, text.as_bytes()).is_err() {
            self.file = None;
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Why they are not written from now on, once.
    pub(super) fn trouble(&mut self) -> Option<std::io::Error> {
        self.trouble.take()
    }

    pub(super) fn push(&mut self, event: Event) {
        if let (Some(file), Ok(mut line)) = (&mut self.file, serde_json::to_string(&event)) {
            line.push('\n');
            if let Err(error) = file.write_all(line.as_bytes()) {
                (self.file, self.trouble) = (None, Some(error));
            }
        }
        let message = NodeMsg::Event(Box::new(event.clone()));
        self.followers.retain(|f| !f.is_closed());
        self.followers.iter().for_each(|f| f.send(&message));
        if self.events.len() == KEPT_EVENTS {
            self.events.drain(..KEPT_EVENTS / 2);
            self.first += (KEPT_EVENTS / 2) as u64;
        }
        self.events.push(event);
    }
}

/// What nodes say of how they are, and clients that wait until they have.
#[derive(Default)]
pub struct Looks {
    /// Number of the latest question.
    ask: u64,
    /// Nodes that have not answered it.
    left: BTreeSet<u32>,
    waiting: Vec<Outlet>,
    /// Links between nodes that are missed.
    pub(super) reach: super::reach::Reach,
    /// Nodes that are to leave when it is known what memory there is; of a node that does not
    /// answer in time that is what it said last.
    pub(super) leaving: Vec<Departure>,
}

impl Job {
    /// An event that happens now.
    pub(super) fn event(&self, kind: EventKind) -> Event {
        Event::new(self.begun.elapsed().as_secs_f64() * 1e3, kind)
    }

    pub(super) fn log_event(&mut self, event: Event) {
        tracing::info!(event = event.event.name(), rank = event.rank, text = event.text);
        if self.spec.verbose {
            self.tell_console(NodeMsg::Event(Box::new(event.clone())));
        }
        self.told.push(event);
    }

    /// Sends events from number `from` on; with `follow` also those to come, else `Done`.
    pub fn tell_events(&mut self, from: u64, follow: bool, outlet: Outlet) {
        let skip = from.saturating_sub(self.events.first) as usize;
        for event in self.events.events.iter().skip(skip) {
            outlet.send(&NodeMsg::Event(Box::new(event.clone())));
        }
        if follow {
            self.events.followers.push(outlet);
        } else {
            outlet.send(&NodeMsg::Done);
        }
    }

    /// The whole job at this moment.
    pub fn status(&self) -> JobStatus {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let started = self.begun_wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let geometry = Geometry::new(self.spec.size, self.spec.log_limit_bytes);
        JobStatus {
            format: STATUS_FORMAT,
            job: self.place.id.clone(),
            name: self.spec.name.clone(),
            program: text(&self.spec.program),
            args: self.spec.argv.iter().skip(1).map(|a| text(a)).collect(),
            size: self.spec.size,
            ft: self.spec.mode().to_string(),
            vault: self.many().then(|| self.spec.vault.to_string()),
            vault_encoder: self.vault_encoder(),
            vault_round: self.vault_round(),
            vault_unguarded: self.vault_unguarded(),
            vault_scrub: self.vault_scrub(),
            phase: self.monitor.phase().to_string(),
            exit_code: self.exit_code,
            daemon_pid: eyrie_image::own_outer_pid(),
            reign: self.reign(),
            started_unix_ms: started.as_millis() as u64,
            uptime_ms: self.now_ms(),
            checkpoint_every_ms: self.spec.checkpoint_every_ms,
            grace_ms: self.spec.grace_ms,
            log_limit_bytes: u64::from(geometry.pool_chunks) * u64::from(geometry.chunk_bytes),
            tls: self.spec.tls && self.many(),
            ha: self.ha_status(),
            saved_set: self.flush.there,
            fallback: self.fallback_status(),
            protected: self.spec.ft.protects() && self.unprotected.is_none(),
            unprotected_reason: self.unprotected.clone(),
            recoveries: self.recoveries,
            rollbacks: self.rollbacks,
            output_differences: self.talk.differences,
            malformed_frames: self.malformed
                + self.crew.as_ref().map_or(0, |c| c.turned_away.now().total()),
            saved_to: self.saved_to(),
            saved_ways: self.flush.ways.clone(),
            suspended: self.suspension(),
            suspended_ms: self.halt.rule.stood_ms(self.now_ms()),
            ranks: (0u32..).zip(&self.ranks).map(|(n, r)| self.rank_status(n, r)).collect(),
            nodes: if self.many() {
                (0..self.nodes.len() as u32).map(|n| self.node_status(n)).collect()
            } else {
                Vec::new()
            },
            clusters: self.cluster_status(),
        }
    }

    fn rank_status(&self, rank: u32, r: &Rank) -> RankStatus {
        let look = &r.look;
        let geometry = Geometry::new(self.spec.size, self.spec.log_limit_bytes);
        RankStatus {
            rank,
            node: self.placement.home(rank),
            image_nodes: self.image_nodes(rank, r),
            vault_generation: self.vault_generation(rank),
            pid: r.proc.as_ref().map(|p| p.pid),
            state: self.rank_state(r),
            processors: if r.proc.is_some() { look.processors.clone() } else { String::new() },
            incarnation: look.incarnation,
            recoveries: r.recoveries,
            checkpoint: r.latest.as_ref().map(checkpoint_status),
            no_checkpoint_reason: r.reason.clone(),
            not_back_reason: r.trouble.why(),
            next_checkpoint: match &self.together {
                Some(together) => together.why(self.ranks_ms()),
                None => self.scheduler.why(self.units.turn(rank), self.ranks_ms()).to_string(),
            },
            log_used_bytes: look.log_chunks * u64::from(geometry.chunk_bytes),
            log_chunks: look.log_chunks,
            determinant_words: look.determinant_words,
            messages_sent: look.messages_sent,
            bytes_sent: look.bytes_sent,
            messages_received: look.messages_received,
            messages_early: look.messages_early,
        }
    }

    /// Nodes that have the newest image of a rank.
    fn image_nodes(&self, rank: u32, r: &Rank) -> Vec<u32> {
        let newest = r.retention.newest().map_or(0, |k| k.generation);
        let holders = self.planner.iter().flat_map(|p| p.holders(rank, newest));
        holders.filter(|m| *m != VAULT).map(|m| m.node).collect()
    }

    fn node_status(&self, node: u32) -> NodeStatus {
        let n = &self.nodes[node as usize];
        let ranks = self.placement.ranks_on(node);
        let state = match n.state {
            State::Joining => "joining",
            State::Live if n.is_awaited() => "awaited",
            State::Live if n.left || self.leaves.contains_key(&node) => "leaving",
            State::Live if self.spec.router_nodes().contains(&node) => "router",
            State::Live if ranks.is_empty() => "spare",
            State::Live => "live",
            State::Lost if n.left => "left",
            State::Lost => "lost",
        };
        NodeStatus {
            node,
            state: state.to_string(),
            epoch: n.epoch,
            host: n.host().map(str::to_string),
            pid: n.pid,
            address: n.peer.map(|p| p.link.to_string()),
            ranks,
            routes: self.routes(node),
            logged_bytes: n.look.logged_bytes,
            transport: Some(n.look.transport.clone()).filter(|t| !t.is_empty()),
            libfabric_connections: n.look.piped,
            pauses: n.look.pauses,
            paused_ms: n.look.paused_us as f64 / 1e3,
            strangers: n.look.refused.strangers,
            fenced: n.look.refused.fenced,
            malformed: n.look.refused.malformed,
            uninvited: n.look.refused.uninvited,
            unreached: self.unreached_status(node),
        }
    }

    /// The ranks that a live router routes for.
    fn routes(&self, node: u32) -> Option<Vec<u32>> {
        if !self.spec.router_nodes().contains(&node) {
            return None;
        }
        let lives = |n: u32| self.nodes[n as usize].state == State::Live;
        let routing = units::routing(&self.spec);
        let all = 0..self.spec.size;
        Some(all.filter(|rank| routing.router(*rank, lives) == Some(node)).collect())
    }

    fn rank_state(&self, r: &Rank) -> String {
        let state = if r.gone {
            "exited"
        } else if r.proc.is_some() {
            return r.look.state.clone();
        } else if self.is_swapped() {
            "swapped-out"
        } else if self.monitor.running() {
            "recovering"
        } else {
            "dead"
        };
        state.to_string()
    }

    /// A client wants the status: it gets it when the nodes have said how their ranks are.
    pub fn ask_status(&mut self, outlet: Outlet) {
        self.looks.waiting.push(outlet);
        if self.looks.left.is_empty() {
            self.ask_looks();
        }
    }

    pub(super) fn ask_looks(&mut self) {
        self.looks.ask += 1;
        let ask = self.looks.ask;
        let live = (0u32..).zip(&self.nodes).filter(|(_, n)| n.state == State::Live);
        self.looks.left = live.map(|(node, _)| node).collect();
        if self.looks.left.is_empty() {
            return self.all_looked();
        }
        self.to_all(&ToNode::Look { ask });
        self.arm_looks(ask, LOOK_LIMIT);
    }

    /// A node is gone and will not answer.
    pub(super) fn looks_without(&mut self, node: u32) {
        if self.looks.left.remove(&node) && self.looks.left.is_empty() {
            self.all_looked();
        }
    }

    pub(super) fn take_looks(&mut self, node: u32, ask: u64, ranks: Vec<RankLook>, own: NodeLook) {
        self.nodes[node as usize].look = own;
        for look in ranks {
            if let Some(r) = self
                .ranks
                .get_mut(look.rank as usize)
                .filter(|_| self.placement.home(look.rank) == node)
            {
                r.look = look;
            }
        }
        if ask == self.looks.ask && self.looks.left.remove(&node) && self.looks.left.is_empty() {
            self.all_looked();
        }
    }

    /// The nodes had time enough.
    pub(super) fn looks_over(&mut self, ask: u64) {
        if ask == self.looks.ask && !self.looks.left.is_empty() {
            self.looks.left.clear();
            self.all_looked();
        }
    }

    fn all_looked(&mut self) {
        self.tell_status();
        let leaving = std::mem::take(&mut self.looks.leaving);
        leaving.into_iter().for_each(|departure| self.depart(departure));
    }

    fn tell_status(&mut self) {
        let status = self.status();
        for outlet in std::mem::take(&mut self.looks.waiting) {
            outlet.send(&NodeMsg::Status(Box::new(status.clone())));
        }
    }
}

fn checkpoint_status(latest: &Latest) -> CheckpointStatus {
    let taken = &latest.taken;
    CheckpointStatus {
        generation: taken.meta.generation,
        age_ms: latest.at.elapsed().as_millis() as u64,
        bytes: taken.bytes,
        unchanged_bytes: taken.unchanged_bytes,
        tracking: taken.tracking.clone(),
        mode: taken.mode.clone(),
        why: taken.why.clone(),
        took_ms: taken.took_ms,
        frozen_ms: taken.frozen_ms,
        cpu_ms: taken.cpu_ms,
        busy: taken.busy,
    }
}
