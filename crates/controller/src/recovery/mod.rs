//! The recovery planner at work in a job over nodes: what happens to nodes, ranks and images is
//! told to it, and what it orders is carried out.
//!
//! Kept true: nobody else decides where a rank lives, what it starts from, and when an image
//! counts; a rank is brought back only when nothing of the nodes that it was lost with runs any
//! more.

pub(crate) mod coordinated;
pub(crate) mod data_loss;
pub(crate) mod death;
pub(crate) mod failures;
pub(crate) mod missing_program;
pub(crate) mod model;
pub(crate) mod network;
pub(crate) mod node_loss;
pub(crate) mod regroup;
pub(crate) mod repeated_death;
pub(crate) mod retries;
pub(crate) mod rollback;
pub(crate) mod spares;
pub(crate) mod start;
pub(crate) mod strategy;

use crate::journal::Entry;
use crate::nodes::model::{Node, State};
use crate::recovery::model::Order;
use crate::{Capture, Job, monitor};
use eyrie_control::node::Choice;
use eyrie_control::node::Determinants;
use eyrie_control::node::DeterminantsHeld;
use eyrie_control::node::Fault;
use eyrie_control::node::Fetch;
use eyrie_control::node::NotCopied;
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, Meta};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{ARCHIVE, Action, Input, Planner, VAULT};
use eyrie_protocol::replicas::{Answer, Words};
use eyrie_state::units;

/// How often copies that could not be made are tried again.
const TICK_MS: u64 = 1000;

impl Job {
    /// Tells the planner, and does what it says.
    pub(crate) fn plan(&mut self, input: Input) {
        if self.recovery.planner.is_none() {
            return;
        }
        self.journal.note(|| Entry::Plan(Box::new(input.clone())));
        let Some(planner) = &mut self.recovery.planner else { return };
        let todo = planner.step(input);
        self.carry_out(todo, false);
    }

    /// All nodes are there: all ranks begin.
    pub(crate) fn plan_beginning(&mut self) {
        let stays = |n: &Node| n.state == State::Live && !n.left;
        let live = (0u32..).zip(&self.nodes.all).filter(|(_, n)| stays(n));
        let members: Vec<Member> = live.map(|(node, _)| self.nodes.member(node)).collect();
        let returns = self.plan_return(&members);
        self.recovery.planned = true;
        if returns {
            return;
        }
        self.tell_lost_images(&members);
        if self.plan_from_flushed(&members) {
            return;
        }
        if self.plan_back(members.clone()) || self.plan_from_archive(&members) {
            return;
        }
        let todo = match &mut self.recovery.planner {
            Some(planner) => {
                let input = Input::AllDown { members };
                let todo = planner.step(input.clone());
                self.journal.note(|| Entry::Plan(Box::new(input)));
                todo
            }
            None => {
                let mut planner = self.new_planner(&members);
                let todo = planner.start();
                self.journal.note(|| Entry::Planner(Box::new(planner.clone())));
                self.recovery.planner = Some(planner);
                todo
            }
        };
        self.carry_out(todo, true);
    }

    /// A planner for a job that begins on these nodes.
    pub(crate) fn new_planner(&self, members: &[Member]) -> Planner {
        let homes = self.nodes.placement.homes().to_vec();
        let planner = Planner::new(self.spec.units(&homes), homes);
        let planner = planner.with_neighbours(units::neighbours(&self.spec));
        let mut planner = crate::vault::model::with_rule(planner, self.spec.storage.vault);
        for &member in members {
            let spare = member.node >= self.spec.placement.nodes;
            planner.step(Input::Joined { member, spare });
        }
        planner
    }

    /// Copies that could not be made are tried again now and then.
    pub(crate) fn tick_plan(&mut self) {
        let now = self.clock.now_ms();
        if self.recovery.planned && now >= self.recovery.ticked_ms + TICK_MS {
            self.recovery.ticked_ms = now;
            self.plan(Input::Tick);
        }
    }

    pub(crate) fn carry_out(&mut self, todo: Vec<Action>, fresh: bool) {
        let (mut homes_told, mut exchanged) = (true, false);
        // Nodes take a rank whose home they hear of for the first time as it is, another as one
        // that brings something with it: here none does.
        for action in todo.iter().filter(|_| fresh) {
            if let Action::Home { rank, at } = action {
                self.nodes.placement.move_to(*rank, at.node);
            }
        }
        for action in todo {
            if let Action::Home { rank, at } = action {
                homes_told = false;
                self.nodes.placement.move_to(rank, at.node);
                continue;
            }
            if !std::mem::replace(&mut homes_told, true) {
                self.nodes.tell_homes();
            }
            match action {
                Action::Members(members) => {
                    self.tell_members(&members);
                    exchanged = true;
                }
                Action::Home { .. } => {}
                Action::Query { to, round, ranks } => {
                    self.nodes.all[to.node as usize].send(ToNode::Held { ask: round, ranks });
                }
                Action::Restore { rank, incarnation, generation, from, words, .. } => {
                    let order = Order { incarnation, generation, from, words, fresh };
                    self.ranks.rank(rank).restore.order = Some(order);
                    self.ranks.rank(rank).coming_back.retries.tried();
                    if !self.again(rank) {
                        self.carry_order(rank);
                    }
                }
                Action::Kill { rank, .. } => self.unit_kills(rank),
                Action::Gather { at, ranks, life } => {
                    self.nodes.all[at.node as usize].send(ToNode::Gather { ranks, life });
                }
                Action::Copy { rank, generation, from, to } => {
                    self.copy(rank, generation, from, to)
                }
                Action::Complete { rank, generation } => self.image_counts(rank, generation),
                Action::Discard { rank, generation } => self.discard(rank, generation),
                Action::Damaged { rank, generation } => self.no_copy_left(rank, generation),
                Action::RollBack { why } => self.rolls_back(&why),
                Action::Lost => self.no_node_left(),
                Action::Leaving { round, members } => self.nodes.tell_leaving(round, &members),
                Action::Vacate { member } => self.vacate(member.node),
                Action::Dismiss { member } => self.dismiss(member.node),
                Action::Yield { at, rank } => {
                    self.nodes.all[at.node as usize].send(ToNode::Yield { rank });
                }
                Action::Unpinned { generation, rank } => self.snapshot_lost(generation, rank),
            }
        }
        if !homes_told {
            self.nodes.tell_homes();
        }
        if exchanged {
            // Behind the homes: of a rank whose home is new to a node it forgets that it stands.
            self.exchange_pauses();
        }
    }

    /// What is lost cannot be brought back alone.
    fn rolls_back(&mut self, why: &str) {
        if self.checkpoints.units.partition().are_one() {
            return self.all_go_back();
        }
        // Without protection a loss ends the job, or concerns ranks that have ended only.
        if self.protected() {
            let why = self.describe_loss(why);
            self.step(monitor::Input::Unrecoverable { why });
        }
    }

    /// Goes on with the order to bring a rank back, as soon as nothing is in the way.
    pub(crate) fn carry_order(&mut self, rank: u32) {
        let waits = !self.ranks.all[rank as usize].restore.lost.is_empty() || self.is_swapped();
        if !self.recovery.monitor.may_start(rank) || waits {
            return;
        }
        let Some(order) = &self.ranks.all[rank as usize].restore.order else { return };
        if order.fresh {
            return self.start_ordered(rank, Meta::start(&self.place.id, rank, self.size()));
        }
        let (generation, attempt) = (order.generation, u64::from(order.incarnation));
        // What is between ranks of one unit comes from there in any case.
        let log = order.words.is_some() || self.checkpoints.units.exist();
        let from = order.from.map(|m| m.node);
        let files = self.ranks.files_of(rank, generation);
        let vaulted = from == Some(VAULT.node);
        let vault = if vaulted { self.vaults.in_vault(rank, &files) } else { Vec::new() };
        let (generations, fetch) = (vec![generation], Some(Fetch { files, from, log, vault }));
        self.nodes.to_home(rank, ToNode::Find { rank, attempt, generations, fetch });
    }

    /// The home has looked at the image.
    pub(crate) fn found(&mut self, node: u32, rank: u32, attempt: u64, choice: Choice) {
        let order = self.ranks.all[rank as usize].restore.order.as_ref();
        let Some(order) = order.filter(|o| u64::from(o.incarnation) == attempt) else { return };
        let (incarnation, from) = (order.incarnation, order.from);
        if !self.recovery.monitor.may_start(rank) {
            return;
        }
        let here = self.nodes.member(node);
        if matches!(choice, Choice::Image(_) | Choice::Beginning) && self.goes_elsewhere(rank) {
            // No process of it is left here.
            self.ranks.rank(rank).restore.order = None;
            return self.plan(Input::Evicted { rank, incarnation });
        }
        match choice {
            Choice::Refused { generation, why, fetched } => {
                let at = if fetched { from.unwrap_or(here) } else { here };
                if self.archive_bad(at, rank, &why) {
                    return;
                }
                self.tell_refused(rank, generation, Some(at.node), &why);
                self.plan(Input::ImageBad { rank, incarnation, generation, at });
            }
            Choice::Left(count) => {
                self.fatal(format!("{count} processes of the dead rank {rank} cannot be killed"));
            }
            Choice::Beginning => {
                self.start_ordered(rank, Meta::start(&self.place.id, rank, self.size()));
            }
            Choice::Image(meta) => {
                let (generation, at) = (meta.generation, vec![here]);
                if from == Some(VAULT) {
                    self.tell_unvaulted(rank, generation, node);
                }
                self.plan(Input::Stored { rank, incarnation, generation, at });
                match self.checkpoints.units.partition().are_one() {
                    true => self.image_found(rank, meta),
                    false => self.start_ordered(rank, *meta),
                }
            }
            Choice::Unfit(why) => self.cannot_be_had(rank, here, incarnation, &why),
            Choice::Lacks { generation, why } => {
                match self.is_tried_again(rank, Fault::Files, generation) {
                    true => self.cannot_be_had(rank, here, incarnation, &why),
                    false => self.unrestorable(rank, incarnation, generation, &why),
                }
            }
            // It follows a refusal.
            Choice::Nothing => {}
        }
    }

    pub(crate) fn start_ordered(&mut self, rank: u32, meta: Meta) {
        let Some(order) = self.ranks.rank(rank).restore.order.take() else { return };
        self.ranks.rank(rank).incarnation = order.incarnation;
        let moved = order.words.map(|w| Determinants { rank, first: w.first, words: w.words });
        self.plan(Input::Starting { rank, incarnation: order.incarnation });
        self.launch(rank, meta, !order.fresh, moved);
    }

    /// The image cannot be restored, though every byte of it is right: no copy of it can.
    pub(crate) fn unrestorable(&mut self, rank: u32, incarnation: u32, generation: u32, why: &str) {
        self.tell_refused(rank, generation, None, why);
        let archived = |p: &Planner| p.holders(rank, generation).any(|m| m == ARCHIVE);
        if self.saving.archive.is_of(rank, generation)
            && self.recovery.planner.as_ref().is_some_and(archived)
        {
            self.archive_bad(ARCHIVE, rank, why);
            return;
        }
        let home = self.nodes.member(self.nodes.placement.home(rank));
        let holders = self.recovery.planner.iter().flat_map(|p| p.holders(rank, generation));
        let others: Vec<Member> = holders.filter(|m| *m != home).collect();
        for at in others {
            self.plan(Input::ImageBad { rank, incarnation: 0, generation, at });
        }
        self.plan(Input::ImageBad { rank, incarnation, generation, at: home });
    }

    pub(crate) fn tell_refused(
        &mut self,
        rank: u32,
        generation: u32,
        node: Option<u32>,
        why: &str,
    ) {
        let node = node.filter(|node| *node != VAULT.node);
        let at = node.map_or(String::new(), |node| format!(" on node {node}"));
        self.journal
            .say(format!("checkpoint {generation} of rank {rank}{at} cannot be used: {why}"));
        let mut event = self.clock.event(EventKind::ImageRefused);
        (event.rank, event.generation, event.node) = (Some(rank), Some(generation), node);
        event.text = why.to_string();
        self.journal.log_event(event);
    }

    fn tell_unvaulted(&mut self, rank: u32, generation: u32, node: u32) {
        let mut event = self.clock.event(EventKind::Copied);
        (event.rank, event.generation) = (Some(rank), Some(generation));
        event.node = Some(node);
        event.text = String::from("read out of the vault");
        self.journal.log_event(event);
    }

    fn no_copy_left(&mut self, rank: u32, generation: u32) {
        self.note_lost_image(rank, generation);
        let unneeded = self.ranks.rank(rank).retention.damaged(generation);
        self.remove_images(rank, unneeded);
        tracing::warn!(rank, generation, "no good copy of the checkpoint is left");
    }

    /// What a node holds of the outcomes of ranks.
    pub(crate) fn held(&mut self, node: u32, said: DeterminantsHeld) {
        let DeterminantsHeld { ask: round, in_step, held, partly } = said;
        let in_step = in_step.iter().map(|&(node, epoch)| Member { node, epoch }).collect();
        let words = |d: Determinants| (d.rank, Words { first: d.first, words: d.words });
        let answer = Answer { held: held.into_iter().map(words).collect(), in_step, partly };
        self.plan(Input::Answered { from: self.nodes.member(node), round, answer });
    }

    fn copy(&mut self, rank: u32, generation: u32, from: Member, to: Member) {
        let (generations, to) = (self.ranks.files_of(rank, generation), to.node);
        self.nodes.all[from.node as usize].send(ToNode::Copy { rank, generations, to });
    }

    /// Images were copied, or not.
    pub(crate) fn copied(
        &mut self,
        node: u32,
        rank: u32,
        generations: &[u32],
        to: u32,
        error: Option<NotCopied>,
    ) {
        let Some(&generation) = generations.last() else { return };
        let pending = self.ranks.rank(rank).pending.as_ref();
        let incarnation =
            pending.filter(|p| p.generation == generation).map_or(0, |p| p.incarnation);
        let target = self.nodes.member(to);
        match error {
            None => {
                let mut event = self.clock.event(EventKind::Copied);
                (event.rank, event.node) = (Some(rank), Some(to));
                event.count = Some(generations.len() as u64);
                self.journal.log_event(event);
                self.plan(Input::Stored { rank, incarnation, generation, at: vec![target] });
            }
            Some(NotCopied { damaged: true, text }) => {
                self.tell_refused(rank, generation, Some(node), &text);
                let at = self.nodes.member(node);
                self.plan(Input::ImageBad { rank, incarnation: 0, generation, at });
            }
            Some(NotCopied { damaged: false, text }) => {
                tracing::warn!(rank, generation, to, "an image is not copied: {text}");
                self.plan(Input::NotCopied { rank, generation, to: target });
            }
        }
    }

    /// An image is on its node, and on the partner, if there is one. Whether it counts is told by
    /// the planner.
    pub(crate) fn image_taken(&mut self, node: u32, rank: u32, capture: Capture) {
        let (incarnation, generation) = (capture.incarnation, capture.generation);
        self.ranks.rank(rank).pending = Some(capture);
        let spoilt = self.spoilt_at(rank, generation);
        let partner =
            self.ranks.rank(rank).capture.partner.take().filter(|at| !spoilt.contains(&at.node));
        // Its own node knows by itself.
        let at = std::iter::once(self.nodes.member(node)).chain(partner).collect();
        self.plan(Input::Stored { rank, incarnation, generation, at });
    }

    fn image_counts(&mut self, rank: u32, generation: u32) {
        self.capture_over(rank, generation);
        let pending = self.ranks.rank(rank).pending.take_if(|p| p.generation == generation);
        let Some(pending) = pending else { return };
        let kept = |job: &Job| -> Vec<u32> {
            job.ranks.all[rank as usize].retention.newest_first().map(|k| k.generation).collect()
        };
        let before = kept(self);
        let bytes = pending.taken.bytes;
        self.complete(rank, generation, pending.taken);
        self.image_stands(rank, generation, Some(bytes));
        let after = kept(self);
        for generation in before.into_iter().filter(|g| !after.contains(g)) {
            self.plan(Input::Dropped { rank, generation });
        }
        self.unit_counts(rank, generation);
        self.snapshot_part_counts(rank, generation);
        if rank + 1 == self.size() {
            self.coordinated_counts();
        }
    }

    fn discard(&mut self, rank: u32, generation: u32) {
        self.capture_over(rank, generation);
        self.image_stands(rank, generation, None);
        self.ranks.rank(rank).pending.take_if(|p| p.generation == generation);
        self.nodes.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        self.spoil_coordinated(generation, format!("the image of rank {rank} cannot be used"));
        self.snapshot_without(rank, Some(generation));
    }

    /// The next checkpoint of the rank may begin: this one counts, or never will.
    fn capture_over(&mut self, rank: u32, generation: u32) {
        let (now, turn) = (self.ranks_ms(), self.checkpoints.units.turn(rank));
        let over = self.ranks.rank(rank).capture.generation.take_if(|g| *g == generation).is_some();
        if over && !self.unit_is_captured(rank) {
            self.checkpoints.scheduler.finished(turn, now);
        }
    }
}
