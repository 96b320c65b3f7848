//! What the job tells about itself: events and status.

pub(crate) mod model;
pub(crate) mod samples;

use crate::clock::Now;
use crate::journal::Journaling;
use crate::nodes::model::State;
use crate::outside::ClientHandle;
use crate::recovery::model::Recovery;
use crate::timers::Timer;
use crate::{Job, Latest, Place, Rank};
use eyrie_control::node::{NodeLook, RankLook, ToNode};
use eyrie_control::status::STATUS_FORMAT;
use eyrie_control::{Account, CheckpointStatus, Event, JobStatus, NodeMsg, NodeStatus, RankStatus};
use eyrie_ledger::segment::Geometry;
use eyrie_protocol::recovery::VAULT;
use eyrie_state::units;
use std::time::{Duration, UNIX_EPOCH};

impl Journaling {
    pub fn log_event(&mut self, event: Event) {
        tracing::info!(event = event.event.name(), rank = event.rank, text = event.text);
        if self.verbose || event.event.is_told() {
            self.tell_console(NodeMsg::Event(Box::new(event.clone())));
        }
        self.events.push(event);
    }
}

impl Recovery {
    /// Nodes that have the newest image of a rank.
    pub fn image_nodes(&self, rank: u32, r: &Rank) -> Vec<u32> {
        let newest = r.retention.newest().map_or(0, |k| k.generation);
        let holders = self.planner.iter().flat_map(|p| p.holders(rank, newest));
        holders.filter(|m| *m != VAULT).map(|m| m.node).collect()
    }
}

impl Job {
    /// A client, or a node, has sent what cannot be read.
    pub fn note_malformed(&mut self) {
        self.status.malformed += 1;
    }

    /// Sends events from number `from` on; with `follow` also those to come, else `Done`.
    pub fn tell_events(&mut self, from: u64, follow: bool, client: ClientHandle) {
        let skip = from.saturating_sub(self.status.events.first) as usize;
        for event in self.status.events.events.iter().skip(skip) {
            client.send(&NodeMsg::Event(Box::new(event.clone())));
        }
        if follow {
            self.status.events.followers.push(client);
        } else {
            client.send(&NodeMsg::Done);
        }
    }

    /// When it began, by the wall clock.
    pub fn begun_unix_ms(&self) -> u64 {
        let begun = self.clock.begun().duration_since(UNIX_EPOCH).unwrap_or_default();
        begun.as_millis() as u64
    }

    /// The name of the job, and its folder.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Sums over its events.
    pub fn account(&self) -> &Account {
        self.status.events.account()
    }

    /// How much of its work is to be computed again from this set of checkpoints on, in
    /// milliseconds. Those events of a turn count that are under way.
    pub(crate) fn computed_again(&self, set: u32) -> Option<f64> {
        let mut account = self.status.events.account().clone();
        self.journal
            .events_to_come()
            .chain(&self.journal.events)
            .for_each(|event| account.take(event));
        account.since(set, self.clock.age_ms())
    }

    /// The whole job at this moment.
    pub fn status(&self) -> JobStatus {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let started = self.clock.begun().duration_since(UNIX_EPOCH).unwrap_or_default();
        let geometry = self.geometry();
        JobStatus {
            format: STATUS_FORMAT,
            job: self.place.id.clone(),
            name: self.spec.program.name.clone(),
            program: text(&self.spec.program.path),
            args: self.spec.program.argv.iter().skip(1).map(|a| text(a)).collect(),
            size: self.spec.program.size,
            ft: self.spec.mode().to_string(),
            vault: self.many().then(|| self.spec.storage.vault.to_string()),
            vault_encoder: self.vaults.vault_encoder(),
            vault_round: self.vaults.vault_round(),
            vault_unguarded: self.vault_unguarded(),
            vault_scrub: self.vault_scrub(),
            phase: self.recovery.monitor.phase().to_string(),
            exit_code: self.end.exit_code,
            daemon_pid: self.outside.machine.pid(),
            reign: self.journal.reign(),
            started_unix_ms: started.as_millis() as u64,
            uptime_ms: self.clock.now_ms(),
            checkpoint_every_ms: self.spec.timing.checkpoint_every_ms,
            grace_ms: self.spec.timing.grace_ms,
            log_limit_bytes: u64::from(geometry.pool_chunks) * u64::from(geometry.chunk_bytes),
            tls: self.spec.security.tls && self.many(),
            ha: self.journal.ha_status(),
            saved_set: self.saving.periodic.there,
            fallback: self.fallback_status(),
            protected: self.spec.protection.ft.protects() && self.recovery.unprotected.is_none(),
            unprotected_reason: self.recovery.unprotected.clone(),
            recoveries: self.recovery.recoveries,
            rollbacks: self.recovery.rollbacks,
            output_differences: self.console.talk.differences,
            malformed_frames: self.status.malformed + self.outside.launcher.turned_away(),
            saved_to: self.saved_to(),
            saved_ways: self.saving.periodic.routes.clone(),
            suspended: self.suspension_status(),
            suspended_ms: self.suspension.rule.stood_ms(self.clock.now_ms()),
            ranks: (0u32..).zip(&self.ranks.all).map(|(n, r)| self.rank_status(n, r)).collect(),
            nodes: if self.many() {
                (0..self.nodes.all.len() as u32).map(|n| self.node_status(n)).collect()
            } else {
                Vec::new()
            },
            clusters: self.cluster_status(),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry::new(self.spec.program.size, self.spec.protection.log_limit_bytes)
    }

    fn rank_status(&self, rank: u32, r: &Rank) -> RankStatus {
        let clock = self.clock.now();
        let look = &r.look;
        let geometry = self.geometry();
        RankStatus {
            rank,
            node: self.nodes.placement.home(rank),
            image_nodes: self.recovery.image_nodes(rank, r),
            vault_generation: self.vault_generation(rank),
            pid: r.proc.as_ref().map(|p| p.pid),
            state: self.rank_state(r),
            processors: if r.proc.is_some() { look.processors.clone() } else { String::new() },
            incarnation: look.incarnation,
            recoveries: r.deaths.recoveries,
            checkpoint: r.latest.as_ref().map(|l| checkpoint_status(l, clock)),
            no_checkpoint_reason: r.failing.reason.clone(),
            not_back_reason: r.coming_back.retries.why(),
            next_checkpoint: match &self.checkpoints.coordinated {
                Some(coordinated) => coordinated.why(self.ranks_ms()),
                None => self
                    .checkpoints
                    .scheduler
                    .why(self.checkpoints.units.turn(rank), self.ranks_ms())
                    .to_string(),
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

    fn node_status(&self, node: u32) -> NodeStatus {
        let n = &self.nodes.all[node as usize];
        let ranks = self.nodes.placement.ranks_on(node);
        let state = match n.state {
            State::Joining => "joining",
            State::Live if n.is_awaited() => "awaited",
            State::Live if n.left || self.leaving.nodes.contains_key(&node) => "leaving",
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
        let lives = |n: u32| self.nodes.all[n as usize].state == State::Live;
        let routing = units::routing(&self.spec);
        let all = 0..self.spec.program.size;
        Some(all.filter(|rank| routing.router(*rank, lives) == Some(node)).collect())
    }

    fn rank_state(&self, r: &Rank) -> String {
        let state = if r.gone {
            "exited"
        } else if r.proc.is_some() {
            return r.look.state.clone();
        } else if self.is_swapped() {
            "swapped-out"
        } else if self.recovery.monitor.running() {
            "recovering"
        } else {
            "dead"
        };
        state.to_string()
    }

    /// A client wants the status: it gets it when the nodes have said how their ranks are.
    pub fn ask_status(&mut self, client: ClientHandle) {
        self.status.looks.waiting.push(client);
        if self.status.looks.left.is_empty() {
            self.ask_looks();
        }
    }

    /// Tells `reader` when the nodes have said how their ranks are.
    pub fn ask_looks_for(&mut self, reader: impl FnOnce() + 'static) {
        self.status.looks.readers.push(Box::new(reader));
        if self.status.looks.left.is_empty() {
            self.ask_looks();
        }
    }

    /// A client wants to know how much each rank has sent to each, as of now.
    pub fn ask_traffic(&mut self, client: ClientHandle) {
        self.status.looks.curious.push(client);
        // What is asked for already may be without that.
        self.ask_looks();
    }

    fn tell_traffic(&mut self) {
        for client in std::mem::take(&mut self.status.looks.curious) {
            for (rank, r) in (0u32..).zip(&self.ranks.all) {
                let (to, all) = (r.look.targets.clone(), !r.look.more_targets);
                client.send(&NodeMsg::Sent { rank, to, all });
            }
            client.send(&NodeMsg::Done);
        }
    }

    pub(crate) fn ask_looks(&mut self) {
        self.status.looks.ask += 1;
        let ask = self.status.looks.ask;
        let live = (0u32..).zip(&self.nodes.all).filter(|(_, n)| n.state == State::Live);
        self.status.looks.left = live.map(|(node, _)| node).collect();
        if self.status.looks.left.is_empty() {
            return self.all_looked();
        }
        let targets = self.recovery.topology.is_some() || !self.status.looks.curious.is_empty();
        self.nodes.to_all(&ToNode::Look { ask, targets });
        let limit = Duration::from_millis(self.spec.timing.intervals.limits.answers_ms);
        self.arm(limit, Timer::Looks { ask });
    }

    /// A node is gone and will not answer.
    pub(crate) fn looks_without(&mut self, node: u32) {
        if self.status.looks.left.remove(&node) && self.status.looks.left.is_empty() {
            self.all_looked();
        }
    }

    pub(crate) fn take_looks(&mut self, node: u32, ask: u64, ranks: Vec<RankLook>, own: NodeLook) {
        self.nodes.all[node as usize].look = own;
        for look in ranks {
            if let Some(r) = self
                .ranks
                .all
                .get_mut(look.rank as usize)
                .filter(|_| self.nodes.placement.home(look.rank) == node)
            {
                r.sees(look);
            }
        }
        if ask == self.status.looks.ask
            && self.status.looks.left.remove(&node)
            && self.status.looks.left.is_empty()
        {
            self.all_looked();
        }
    }

    /// The nodes had time enough.
    pub(crate) fn looks_over(&mut self, ask: u64) {
        if ask == self.status.looks.ask && !self.status.looks.left.is_empty() {
            self.status.looks.left.clear();
            self.all_looked();
        }
    }

    fn all_looked(&mut self) {
        self.take_sample();
        self.tell_traffic();
        self.tell_status();
        let leaving = std::mem::take(&mut self.leaving.waiting);
        leaving.into_iter().for_each(|departure| self.depart(departure));
    }

    fn tell_status(&mut self) {
        // Who does not wait any more does not hear it.
        for reader in self.status.looks.readers.drain(..) {
            reader();
        }
        if self.status.looks.waiting.is_empty() {
            return;
        }
        let status = self.status();
        for client in std::mem::take(&mut self.status.looks.waiting) {
            client.send(&NodeMsg::Status(Box::new(status.clone())));
        }
    }
}

fn checkpoint_status(latest: &Latest, clock: Now) -> CheckpointStatus {
    let taken = &latest.taken;
    CheckpointStatus {
        generation: taken.meta.generation,
        age_ms: latest.at.elapsed(clock).as_millis() as u64,
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
