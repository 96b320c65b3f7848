//! What the controller knows of checkpoints: who waits for them, which sets are under way.
//!
//! Kept true: a rank's turn is its unit's. What is ordered by it is in `checkpoints` and `units`.

use crate::checkpoints::coordinated_model::Coordinated;
use crate::checkpoints::failures::{Refusals, of_rank};
use crate::checkpoints::fallback_model::Fallback;
use crate::outside::ClientHandle;
use eyrie_control::{JobSpec, Meta, NodeMsg};
use eyrie_protocol::coordinated_snapshot::CoordinatedSnapshot;
use eyrie_protocol::image_references::ImageReferences;
use eyrie_protocol::retention::Point;
use eyrie_protocol::router_pause::Pauses;
use eyrie_protocol::scheduler::Scheduler;
use eyrie_protocol::units::Units as Partition;
use serde::{Deserialize, Serialize};

/// Whose set of checkpoints it is (`joint`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOf {
    Unit(u32),
    /// Of all ranks, each of which is a unit.
    Snapshot,
}

/// A set that will not count.
pub(crate) struct Voided {
    pub set: CoordinatedSnapshot,
    /// The next would fail, too.
    pub lasting: bool,
    /// Ranks were to stay stopped with it.
    pub hold: bool,
}

/// When ranks are checkpointed, who waits for that, and which of them are checkpointed together.
pub(crate) struct Checkpoints {
    pub scheduler: Scheduler,
    pub asks: Vec<Ask>,
    pub loans: ImageReferences,
    /// Checkpoints that routers stop for.
    pub router_pauses: Pauses,
    /// `--ft coordinated`.
    pub coordinated: Option<Coordinated>,
    /// `--fallback-every`.
    pub fallback: Fallback,
    /// `--ft node` and `--ft cluster`.
    pub units: Units,
}

impl Checkpoints {
    pub fn new(spec: &JobSpec) -> Checkpoints {
        Checkpoints {
            scheduler: scheduler(spec, 0),
            asks: Vec::new(),
            loans: ImageReferences::default(),
            router_pauses: Pauses::default(),
            coordinated: None,
            fallback: Fallback::default(),
            units: Units::new(eyrie_state::units::recovery_units(spec)),
        }
    }
}

/// The order of checkpoints that a job is to have.
pub(crate) fn scheduler(spec: &JobSpec, now_ms: u64) -> Scheduler {
    let policy = spec.protection.checkpoint_policy;
    let every_ms = if spec.protection.ft.logs() { spec.timing.checkpoint_every_ms } else { 0 };
    // Of recovery units all ranks have their turn together.
    let turns =
        eyrie_state::units::of(spec).into_iter().max().map_or(spec.program.size, |last| last + 1);
    Scheduler::with(policy, turns, every_ms, spec.timing.checkpoint_first_ms, now_ms)
}

impl Checkpoints {
    /// A rank runs again: those who wait for its checkpoint get it now.
    pub fn renew_asks(&mut self, rank: u32) {
        let turn = self.units.turn(rank);
        let waits = |ask: &Ask| ask.left.iter().any(|(r, _)| self.units.turn(*r) == turn);
        if self.asks.iter().any(waits) {
            self.scheduler.request(turn);
        }
    }
}

/// Somebody waits for checkpoints.
pub(crate) struct Ask {
    pub(crate) client: Option<ClientHandle>,
    /// The job is to be saved when it has them.
    pub(crate) ends: bool,
    /// One of them did not come about.
    pub(crate) failed: Option<String>,
    /// Rank, and the generation its answer must be newer than.
    pub(crate) left: Vec<(u32, u32)>,
}

impl Ask {
    /// One of its ranks has a checkpoint, or will have none.
    pub(super) fn answer(&mut self, answer: &NodeMsg, told: &mut Vec<(ClientHandle, NodeMsg)>) {
        if let NodeMsg::CheckpointFailed { rank, reason } = answer {
            self.failed.get_or_insert_with(|| of_rank(*rank, reason));
            if self.ends {
                // It does not become a save any more, whatever comes of the others.
                self.left.clear();
            }
        }
        if let Some(client) = &self.client {
            told.push((client.clone(), answer.clone()));
            if self.left.is_empty() && !self.ends {
                told.push((client.clone(), NodeMsg::Done));
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let closed = self.client.as_ref().is_some_and(ClientHandle::is_closed);
        self.left.is_empty() || (closed && !self.ends)
    }
}

/// Where a rank stood when its image was taken.
pub(crate) fn point(meta: &Meta) -> Point {
    Point { need: meta.need.clone(), det_pos: meta.det_pos, output: meta.output }
}

/// A mark that grows along the program, however it comes there.
pub(crate) fn place(point: &Point) -> u64 {
    let streams = point.need.iter().chain(&point.output);
    streams.fold(point.det_pos, |sum, at| sum.wrapping_add(*at))
}

/// A set that is being taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Taking {
    pub(super) unit: u32,
    pub(super) set: CoordinatedSnapshot,
    pub(super) refusals: Refusals,
}

/// The recovery units of a job.
pub(crate) struct Units {
    pub(super) partition: Partition,
    pub(super) taking: Vec<Taking>,
}

impl Units {
    pub fn new(partition: Partition) -> Units {
        Units { partition, taking: Vec::new() }
    }

    /// Which ranks are one unit.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether ranks go back with some others, but not with all.
    pub fn exist(&self) -> bool {
        self.partition.are_groups()
    }

    /// The unit of a rank, which is what the scheduler knows it by.
    pub fn turn(&self, rank: u32) -> u32 {
        self.partition.by_rank().get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed with this one, itself among them.
    pub fn mates(&self, rank: u32) -> Vec<u32> {
        self.ranks_of(self.turn(rank))
    }

    pub fn ranks_of(&self, unit: u32) -> Vec<u32> {
        self.partition.ranks_of(unit).into_iter().map(|rank| rank as u32).collect()
    }

    /// Whether a rank stands for its unit where units are counted.
    pub fn is_first(&self, rank: u32) -> bool {
        self.mates(rank).first() == Some(&rank)
    }

    /// The sets that are being taken, which a successor goes on with.
    pub fn taking(&self) -> Vec<Taking> {
        self.taking.clone()
    }

    /// As a dead controller left them.
    pub fn take_up(&mut self, taking: Vec<Taking>) {
        self.taking = taking;
    }

    /// Whether a set is being taken.
    pub fn are_taking(&self) -> bool {
        !self.taking.is_empty()
    }

    pub fn forget_under_way(&mut self) {
        self.taking.clear();
    }

    /// The sets, each with its unit.
    pub fn sets(&mut self) -> impl Iterator<Item = (SetOf, &mut CoordinatedSnapshot)> {
        self.taking.iter_mut().map(|t| (SetOf::Unit(t.unit), &mut t.set))
    }

    /// A part of a unit's set was refused, for what lasts or for what passes.
    pub fn refused(&mut self, unit: u32, lasting: bool) {
        self.taken_of(unit).into_iter().for_each(|t| t.refusals.one_more(lasting));
    }

    /// Forgets a set of which it is known how all of it came out. Returned if it failed.
    pub fn end(&mut self, unit: u32) -> Option<Voided> {
        let over = |t: &Taking| t.unit == unit && t.set.is_over();
        let index = self.taking.iter().position(over)?;
        let Taking { set, refusals, .. } = self.taking.swap_remove(index);
        let lasting = refusals.are_lasting();
        set.failed().is_some().then_some(Voided { set, lasting, hold: false })
    }

    /// The set that is being taken of a unit.
    pub(super) fn taken_of(&mut self, unit: u32) -> Option<&mut Taking> {
        self.taking.iter_mut().find(|t| t.unit == unit)
    }
}
