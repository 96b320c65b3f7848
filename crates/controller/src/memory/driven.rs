//! The controller for a simulator, which plays its nodes, clients, console and clock.
//!
//! Kept true: it is the controller that a daemon runs, by its own journal; only who is at the other
//! end of its connections differs. What was asked of daemons is done at once.

use super::{Asked, Frames, Memory, Sent};
use crate::journal::{self, Entry, Known};
use crate::outside::ClientHandle;
use crate::{Job, Msg, Node, Now, Place};
use eyrie_control::{JobSpec, JobStatus, NodeMsg, ToNode};
use eyrie_protocol::recovery::{Input, Planner};
use eyrie_protocol::retention::Retention;
use eyrie_protocol::router_pause::Pauses;
use eyrie_protocol::session::Numbered;
use eyrie_protocol::suspend::{SuspendState, Suspender};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// What a successor does not find in the journal, to show that it has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacking {
    /// All is there.
    Nothing,
    /// Ranks were told to start.
    Starts,
    /// No process was left when all ranks went back.
    AllDown,
    /// Checkpoints of units are being taken.
    UnitSnapshots,
    /// One of all ranks is, and what its number is.
    Snapshot,
    /// Which ranks can come back together.
    Return,
    /// Where ranks cost least.
    Preferences,
    /// Which ranks are units from now on.
    Units,
}

impl Lacking {
    fn is(self, entry: &Entry) -> bool {
        let Entry::Plan(input) = entry else { return false };
        match self {
            Lacking::Starts => matches!(**input, Input::Starting { .. }),
            Lacking::AllDown => matches!(**input, Input::AllDown { .. }),
            Lacking::Preferences => matches!(**input, Input::Prefer { .. }),
            Lacking::Units => matches!(**input, Input::Regroup { .. }),
            _ => false,
        }
    }

    fn forget(self, known: &mut Known) {
        match (self, &mut known.coordinated) {
            (Lacking::UnitSnapshots, _) => known.record.unit_snapshots.clear(),
            (Lacking::Snapshot, Some(coordinated)) => coordinated.forget_taking(),
            (Lacking::Return, Some(coordinated)) => coordinated.back = Default::default(),
            _ => {}
        }
    }
}

/// A controller of a job over nodes.
pub struct Controller {
    pub job: Job,
    memory: Memory,
    frames: Frames,
}

fn names(nodes: &[u32]) -> Vec<String> {
    nodes.iter().map(u32::to_string).collect()
}

fn place() -> Place {
    Place { id: String::from("sim"), folder: PathBuf::from("/sim") }
}

impl Controller {
    /// That of a new job.
    ///
    /// # Errors
    /// Why it cannot begin.
    pub fn begin(memory: &Memory, spec: JobSpec, now: Now) -> Result<Controller, String> {
        let outside = memory.outside();
        let daemons = 0..spec.placement.nodes + spec.placement.spares;
        let start = |node| outside.launcher.start_daemon(node, u64::from(node) + 1, None);
        let nodes = daemons.map(|node| start(node).map(Node::there)).collect::<Result<_, _>>();
        let nodes = nodes.map_err(|e| e.to_string())?;
        let job = Job::begin(place(), spec, None, nodes, outside, now);
        let mut job = job.map_err(|e| e.to_string())?;
        job.begin_journal();
        job.end_turn();
        Ok(Controller { job, memory: memory.clone(), frames: Frames::default() })
    }

    /// The one that goes on by what the journal says.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn resume(memory: &Memory, now: Now, lacking: Lacking) -> Result<Controller, String> {
        let bytes = memory.journal_bytes().ok_or("there is no journal")?;
        let path = PathBuf::from("journal");
        let known = journal::parse_without(path, &bytes, |entry| lacking.is(entry));
        let mut known = known.map_err(|e| e.to_string())?;
        lacking.forget(&mut known);
        known.head.reign += 1;
        let job = Job::resume(place(), known, None, memory.outside(), now);
        let job = job.map_err(|e| e.to_string())?;
        Ok(Controller { job, memory: memory.clone(), frames: Frames::default() })
    }

    /// A node calls.
    pub fn connect(&mut self, node: u32, epoch: u64, line: u64) {
        let wired = self.frames.line(line);
        self.job.take(Msg::Connected { node, epoch, wired });
    }

    /// What was sent since, by connection; and the connections that it has ended.
    pub fn sent(&mut self) -> (Vec<(u64, Numbered<ToNode>)>, Vec<u64>) {
        let (mut frames, mut ended) = (Vec::new(), Vec::new());
        for (line, sent) in self.frames.take() {
            match sent {
                Sent::Frame(frame) => frames.push((line, *frame)),
                Sent::HungUp => ended.push(line),
                Sent::Confirmed(_) => {}
            }
        }
        (frames, ended)
    }

    /// What came of what it has asked for since.
    pub fn told(&mut self) -> Vec<Msg> {
        let answer = |asked| match asked {
            Asked::Clear { node, .. } => Some(Msg::Cleared { node, left: 0 }),
            _ => None,
        };
        self.memory.take_asked().into_iter().filter_map(answer).collect()
    }

    /// What the console was told since.
    pub fn printed(&mut self) -> Vec<NodeMsg> {
        self.memory.take_said()
    }

    /// Who plans the recovery, once the ranks have begun.
    pub fn planner(&self) -> Option<&Planner> {
        self.job.recovery.planner.as_ref()
    }

    /// Whether ranks wait to be larger units.
    pub fn shares(&self) -> bool {
        self.job.recovery.sharing.is_some()
    }

    /// Whether ranks stand for a snapshot that they are to go on from as such.
    pub fn stands_for_units(&self) -> bool {
        self.shares() && self.job.checkpoints.fallback.holds_well()
    }

    /// Whether all ranks are to return to a snapshot.
    pub fn returns(&self) -> bool {
        self.job.checkpoints.fallback.returning.is_some()
    }

    /// Whether all ranks could return to one.
    pub fn may_return(&self) -> bool {
        !self.job.checkpoints.fallback.kept.is_empty()
    }

    /// Which images are kept of each rank.
    pub fn retention(&self) -> impl Iterator<Item = &Retention> {
        self.job.ranks.all.iter().map(|r| &r.retention)
    }

    /// How many nodes it has had.
    pub fn nodes(&self) -> u32 {
        self.job.nodes.all.len() as u32
    }

    /// How often all ranks went back to the beginning, or to what there is in its place.
    pub fn rollbacks(&self) -> u64 {
        self.job.recovery.rollbacks
    }

    /// Nodes that nothing hangs on any more: they end, or forget all and join again.
    pub fn dismissed(&self) -> BTreeSet<u32> {
        let leaves = self.job.leaving.nodes.iter();
        leaves.filter(|(_, leave)| leave.is_dismissed()).map(|(node, _)| *node).collect()
    }

    /// Who wants the job to stand still.
    pub fn suspension(&self) -> &SuspendState {
        &self.job.suspension.rule
    }

    /// Has nodes leave for good, or give their ranks away, to these or to any; refused with a
    /// reason.
    ///
    /// # Errors
    /// The reason.
    pub fn drain(
        &mut self,
        nodes: &[u32],
        to: &[u32],
        migrates: bool,
        number: u64,
    ) -> Result<(), String> {
        let (names, to, client) = (names(nodes), names(to), self.client());
        match migrates {
            true => self.job.migrate((&names, &to), (false, None), number, client),
            false => self.job.drain((&names, &to), None, number, client),
        }
    }

    /// Has a node stay that was to leave.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn call_off(&mut self, node: u32) -> Result<(), String> {
        self.job.call_off(&names(&[node]))
    }

    /// The user has the job stand still, or go on.
    ///
    /// # Errors
    /// Why not.
    pub fn suspend(&mut self, stands: bool) -> Result<(), String> {
        let client = self.client();
        match stands {
            true => self.job.suspend(false, client),
            false => self.job.let_go_on(Suspender::User, &client),
        }
    }

    /// A client has it stand still, until it says otherwise, is gone, or its lease is over.
    ///
    /// # Errors
    /// Why not.
    pub fn hold(&mut self, client: u64, lease_ms: Option<u64>) -> Result<(), String> {
        let handle = self.client();
        self.job.hold(Suspender::Client(client), lease_ms, handle)
    }

    /// The connection of a client is over.
    pub fn client_gone(&mut self, client: u64) {
        self.job.client_gone(client);
    }

    /// A node more, in that cluster if there are several: its number, and that of its daemon.
    ///
    /// # Errors
    /// Why not.
    pub fn grow(&mut self, cluster: Option<&str>) -> Result<(u32, u64), String> {
        let client = self.client();
        self.job.grow(1, cluster, client)?;
        Ok((self.nodes() - 1, self.job.nodes.epoch))
    }

    /// Checkpoints that routers stop for.
    pub fn pauses(&mut self) -> &mut Pauses {
        &mut self.job.checkpoints.router_pauses
    }

    /// A client that nobody listens to.
    fn client(&self) -> ClientHandle {
        ClientHandle::new(Memory::default())
    }

    pub fn phase(&self) -> &'static str {
        self.job.recovery.monitor.phase()
    }

    pub fn status(&self) -> JobStatus {
        self.job.status()
    }

    pub fn next_look(&self) -> Duration {
        self.job.next_look()
    }
}
