//! The simulated controller: the real planner, retention and scheduler, and what was printed.

use crate::term::Effect;
use crate::types::*;
use crate::vault::Round;
use crate::world::World;
use eyrie_protocol::coordinated_snapshot::CoordinatedSnapshot;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Action, Input, Planner};
use eyrie_protocol::retention::{Point, Retention};
use eyrie_protocol::router_pause::Pauses;
use eyrie_protocol::scheduler::Scheduler;
use eyrie_protocol::session::{Numbered, Session};
use eyrie_protocol::suspend::SuspendState;
use eyrie_protocol::units::{Extent, Units};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone)]
pub struct Controller {
    pub planner: Planner,
    pub retention: Vec<Retention>,
    pub scheduler: Scheduler,
    pub every: Time,
    pub conns: BTreeMap<Member, usize>,
    pub sessions: BTreeMap<Member, Session<ToNode>>,
    /// What each rank has printed, as far as is known here.
    pub tapes: Vec<Vec<u64>>,
    points: BTreeMap<(u32, u32), Point>,
    pub capturing: BTreeMap<u32, u32>,
    /// A mutation: images that should have been discarded.
    late: Vec<(u32, u32)>,
    /// Nodes that are to be reset, and those that are.
    pub rolling_back: Option<(BTreeSet<u32>, Vec<Member>)>,
    pub done: BTreeMap<u32, u64>,
    /// What is being brought into the vault.
    pub round: Option<Round>,
    pub rounds: u64,
    /// Floors as they were told to the nodes, with the time.
    pub floors: Vec<(Time, u32, Point)>,
    /// The recovery unit of each rank, if nodes are; and ranks that run.
    pub units: Vec<u32>,
    pub live: BTreeSet<u32>,
    /// Snapshots of units that are being taken, until ranks go on, and the nodes that take part.
    pub snapshots: BTreeMap<u32, (CoordinatedSnapshot, Vec<Member>)>,
    /// Ranks of nodes that leave.
    pub standing: crate::leave::Standing,
    /// Checkpoints of ranks that have routers.
    pub pauses: Pauses,
    /// Who wants the job to stand still.
    pub suspend: SuspendState,
}

fn empty(ranks: usize) -> Vec<Retention> {
    // Two channels from each rank.
    (0..ranks).map(|_| Retention::new(ranks as u32 * 2)).collect()
}

fn dismissed(todo: &[Action]) -> Vec<Member> {
    let goes = |a: &Action| match a {
        Action::Dismiss { member } => Some(*member),
        _ => None,
    };
    todo.iter().filter_map(goes).collect()
}

impl Controller {
    pub fn new(map: Vec<u32>, pace: u64) -> Self {
        let every = 300 + 500 * pace;
        let ranks = map.len();
        Controller {
            scheduler: Scheduler::new(ranks as u32, every, every / 3, 0),
            every,
            retention: empty(ranks),
            planner: Planner::new(Units::new(Extent::Rank, &map, |node| node), map),
            conns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            tapes: vec![Vec::new(); ranks],
            points: BTreeMap::new(),
            capturing: BTreeMap::new(),
            late: Vec::new(),
            rolling_back: None,
            done: BTreeMap::new(),
            round: None,
            rounds: 0,
            floors: Vec::new(),
            units: Vec::new(),
            live: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            standing: crate::leave::Standing::default(),
            pauses: Pauses::default(),
            suspend: SuspendState::default(),
        }
    }
}

impl World {
    pub fn planner(&mut self, input: Input) {
        if let Input::ImageBad { rank, generation, at, .. } = input {
            self.check_bad(rank, generation, at);
        }
        self.plans.push(input.clone());
        let todo = self.controller.planner.step(input);
        self.carry_out(todo);
    }

    pub fn say_to(&mut self, to: Member, said: ToNode) {
        if self.controller.conns.contains_key(&to) {
            self.turn.push(Effect::Say(to, said));
        }
    }

    fn say_to_all(&mut self, said: &ToNode) {
        for to in self.controller.planner.members().to_vec() {
            self.say_to(to, said.clone());
        }
    }

    pub fn carry_out(&mut self, todo: Vec<Action>) {
        self.check_completes(&todo);
        let exchanged = todo.iter().any(|a| matches!(a, Action::Members(_)));
        for action in todo {
            let begins = matches!(action, Action::Members(_));
            if self.controller.rolling_back.is_some() && !begins {
                self.fail(format!("{action:?} is ordered while all go back to the beginning"));
            }
            if !matches!(action, Action::Members(_) | Action::Home { .. }) {
                self.trace(|| format!("planner: {action:?}"));
            }
            self.carry_action(action);
        }
        if exchanged {
            // Behind the homes: of a rank whose home is new to a node it forgets that it stands.
            self.exchange_pauses();
        }
    }

    fn carry_action(&mut self, action: Action) {
        match action {
            Action::Members(members) => self.say_to_all(&ToNode::Members(members)),
            Action::Home { rank, at } => self.say_to_all(&ToNode::Home { rank, at }),
            Action::Query { to, round, ranks } => {
                self.say_to(to, ToNode::Query { round, ranks });
            }
            Action::Restore { rank, incarnation, at, generation, from, words } => {
                self.rank_down(rank);
                self.controller.done.remove(&rank);
                let kept = self.controller.retention[rank as usize].newest_first();
                let point = kept.filter(|k| k.generation == generation).map(|k| &k.point);
                let least = point.map(|p| p.det_pos).next().unwrap_or(0);
                self.check_restore(rank, incarnation, words.as_ref(), least);
                // At the beginning there is nothing to be looked for.
                let (stumble, told) = (None, incarnation == 1);
                let order =
                    RestoreOrder { rank, incarnation, generation, from, words, stumble, told };
                self.order_at(at, order);
                self.fault_nearby(6);
            }
            Action::Copy { rank, generation, from, to } => {
                self.say_to(from, ToNode::Copy { rank, generation, to });
            }
            Action::Complete { rank, generation } => {
                self.capture_over(rank, generation);
                self.stands(rank, generation, true);
                self.complete(rank, generation);
            }
            Action::Discard { rank, generation } if self.mutated(Mutation::LateImages) => {
                self.capture_over(rank, generation);
                self.controller.late.push((rank, generation));
            }
            Action::Discard { rank, generation } => {
                self.capture_over(rank, generation);
                if !self.mutated(Mutation::VoidHeld) {
                    self.stands(rank, generation, false);
                }
                self.say_to_all(&ToNode::Remove { rank, generation });
            }
            Action::Damaged { rank, generation } => {
                self.controller.retention[rank as usize].damaged(generation);
                self.drop_image(rank, generation);
            }
            Action::Kill { rank, incarnation } => self.order_kill(rank, incarnation),
            Action::Gather { at, ranks, life } => {
                self.say_to(at, ToNode::Gather { ranks, life });
            }
            Action::RollBack { why } => self.roll_back(&why),
            Action::Yield { at, rank } => {
                self.report.unfit += 1;
                self.say_to(at, ToNode::Yield { rank });
                self.fault_nearby(3);
            }
            Action::Unpinned { .. } => self.fail(String::from("there are no snapshots")),
            leave @ (Action::Leaving { .. } | Action::Vacate { .. } | Action::Dismiss { .. }) => {
                self.carry_out_leave(leave)
            }
            Action::Lost => {
                if !self.truth.may_roll_back() {
                    self.fail(String::from("all was lost within what is to be survived"));
                }
                self.report.lost = true;
                self.over = true;
            }
        }
    }

    fn rank_up(&mut self, rank: u32) {
        let slot = self.slot(rank);
        self.controller.live.insert(rank);
        let live = |r: &u32| self.controller.live.contains(r);
        let all = self.ranks_of(slot).iter().all(live);
        self.controller.scheduler.set_live(slot, all);
    }

    pub fn rank_down(&mut self, rank: u32) {
        self.stands_no_more(rank);
        self.pause_lost(rank);
        let slot = self.slot(rank);
        self.controller.scheduler.set_live(slot, false);
        self.controller.live.remove(&rank);
        if !self.units.is_empty() {
            return self.void_snapshot(rank);
        }
        self.no_checkpoint(rank);
    }

    /// There is none under way any more.
    pub fn no_checkpoint(&mut self, rank: u32) {
        if let Some(generation) = self.controller.capturing.get(&rank).copied() {
            self.capture_over(rank, generation);
        }
    }

    /// An image counts, or never will: the next one may be begun.
    pub fn capture_over(&mut self, rank: u32, generation: u32) {
        let (now, slot) = (self.ranks_time(), self.slot(rank));
        if self.controller.capturing.get(&rank) == Some(&generation) {
            self.controller.capturing.remove(&rank);
            let capturing = |r: &u32| self.controller.capturing.contains_key(r);
            if !self.ranks_of(slot).iter().any(capturing) {
                self.controller.scheduler.finished(slot, now);
            }
        }
    }

    /// What counts does so at once: before what follows from any of it.
    fn check_completes(&mut self, todo: &[Action]) {
        self.going = dismissed(todo);
        for action in todo {
            if let Action::Complete { rank, generation } = *action {
                self.check_complete(rank, generation);
            }
        }
    }

    fn check_complete(&mut self, rank: u32, generation: u32) {
        if !self.mutated(Mutation::LateImages) {
            self.check_copies(rank, generation);
        }
    }

    fn complete(&mut self, rank: u32, generation: u32) {
        self.report.checkpoints += 1;
        let point = self.controller.points[&(rank, generation)].clone();
        let newest = self.mutated(Mutation::TrimByNewest);
        let retention = &mut self.controller.retention[rank as usize];
        let surplus = retention.complete(generation, point.clone(), Vec::new());
        let kept: Vec<u32> = retention.newest_first().map(|k| k.generation).collect();
        let floor = if newest { point } else { retention.floor().clone() };
        for old in surplus {
            self.drop_image(rank, old);
        }
        if !kept.contains(&0) {
            self.planner(Input::Dropped { rank, generation: 0 });
        }
        self.tell_floor(rank, floor);
    }

    fn tell_floor(&mut self, rank: u32, floor: Point) {
        if !self.mutated(Mutation::NeverTrim) {
            let need = floor.need.clone();
            self.say_to_all(&ToNode::Trim { rank, need, det_pos: floor.det_pos });
        }
        self.controller.floors.push((self.now, rank, floor));
    }

    /// What every rank may still need, for a node that is new or has a new rank.
    pub fn tell_floors(&mut self, to: Member) {
        for rank in 0..self.ranks() {
            let floor = self.controller.retention[rank as usize].floor().clone();
            let (need, det_pos) = (floor.need, floor.det_pos);
            if !self.mutated(Mutation::NeverTrim) {
                self.say_to(to, ToNode::Trim { rank, need, det_pos });
            }
        }
    }

    fn drop_image(&mut self, rank: u32, generation: u32) {
        self.say_to_all(&ToNode::Remove { rank, generation });
        self.planner(Input::Dropped { rank, generation });
    }

    fn roll_back(&mut self, why: &str) {
        self.report.roll_backs += 1;
        if !self.truth.may_roll_back() {
            self.fail(format!("went back to the beginning without need: {why}"));
        }
        let members = self.controller.planner.members().to_vec();
        for rank in 0..self.ranks() {
            self.rank_down(rank);
            self.controller.retention[rank as usize].restart();
        }
        self.controller.tapes.iter_mut().for_each(Vec::clear);
        self.controller.snapshots.clear();
        self.controller.done.clear();
        self.forget_vault();
        self.controller.points.clear();
        self.controller.floors.clear();
        self.controller.pauses.clear();
        self.truth.restart();
        let nodes = members.iter().map(|m| m.node).collect();
        self.controller.rolling_back = Some((nodes, Vec::new()));
        for old in members {
            let member = Member { node: old.node, epoch: self.next_epoch };
            self.next_epoch += 1;
            self.say_to(old, ToNode::Reset(member));
        }
        self.all_down();
    }

    fn all_down(&mut self) {
        let ready = |r: &mut (BTreeSet<u32>, Vec<Member>)| r.0.is_empty();
        if let Some((_, members)) = self.controller.rolling_back.take_if(ready) {
            self.renew_scheduler();
            self.planner(Input::AllDown { members });
        }
    }

    fn is_down(&mut self, member: Member) {
        let old = self.controller.conns.iter().find(|c| c.0.node == member.node);
        let Some((old, conn)) = old.map(|(m, c)| (*m, *c)) else { return };
        self.controller.conns.remove(&old);
        self.controller.conns.insert(member, conn);
        if let Some(session) = self.controller.sessions.remove(&old) {
            self.controller.sessions.insert(member, session);
        }
        if let Some((waiting, members)) = &mut self.controller.rolling_back {
            waiting.remove(&member.node);
            members.push(member);
        }
        self.is_emptied(member);
        self.all_down();
    }

    /// A node is to be taken for dead.
    pub fn suspect(&mut self, member: Member) {
        let now = self.controller.conns.iter().find(|c| c.0.node == member.node);
        // It may have been reset meanwhile.
        let Some((member, conn)) = now.map(|(m, c)| (*m, *c)) else { return };
        if self.conns[conn].open[0] && !self.conns[conn].broken && !self.conns[conn].blocked {
            return;
        }
        self.trace(|| format!("{member} is taken for dead"));
        self.controller.conns.remove(&member);
        self.conns[conn].open[0] = self.mutated(Mutation::NoFence);
        if !self.mutated(Mutation::NoFence) {
            self.controller.sessions.remove(&member);
        }
        if let Some((waiting, members)) = &mut self.controller.rolling_back {
            waiting.remove(&member.node);
            members.retain(|m| m.node != member.node);
        }
        for rank in 0..self.ranks() {
            if self.controller.planner.home(rank) == Some(member) {
                self.truth.hurt.insert(self.slot(rank));
                self.rank_down(rank);
                if self.mutated(Mutation::DoneForgotten) {
                    self.planner(Input::RankReleased { rank });
                } else {
                    self.controller.done.remove(&rank);
                }
            }
        }
        self.vault_loses(member);
        self.planner(Input::NodeDied { member });
        self.all_down();
    }

    /// Whether a node says something that it has not said yet.
    fn is_news(&mut self, member: Member, frame: &Numbered<FromNode>) -> bool {
        let sessions = &mut self.controller.sessions;
        // It may have been reset, which is not known here yet.
        let known = sessions.keys().copied().filter(|m| m.node == member.node);
        let of = known.max_by_key(|m| (*m == member, m.epoch));
        let of = of.and_then(|m| sessions.get_mut(&m));
        let heard = of.map(|s| s.hear(frame.number, frame.heard));
        match heard {
            // One that is fenced is not listened to.
            None => self.mutated(Mutation::NoFence),
            Some(Ok(new)) => new,
            Some(Err(foreign)) => {
                self.fail(format!("{member}: {foreign}"));
                false
            }
        }
    }

    pub fn controller_hears(&mut self, member: Member, frame: Numbered<FromNode>) {
        if !self.is_news(member, &frame) {
            return;
        }
        let said = frame.message;
        if matches!(said, FromNode::Down) {
            return self.is_down(member);
        }
        let known = self.controller.conns.contains_key(&member);
        let lax = self.mutated(Mutation::NoFence);
        if (!known && !lax) || self.controller.rolling_back.is_some() {
            return;
        }
        match said {
            FromNode::Answered { round, answer } => {
                let answer = self.mutate_answer(answer);
                self.planner(Input::Answered { from: member, round, answer });
            }
            FromNode::Restored { rank, incarnation } => {
                if incarnation == self.controller.planner.incarnation(rank) {
                    self.rank_up(rank);
                }
                self.tell_floors(member);
                self.planner(Input::Restored { rank, incarnation });
                self.count_late_images(rank);
            }
            FromNode::ImageBad { rank, incarnation, generation, at } => {
                self.planner(Input::ImageBad { rank, incarnation, generation, at });
            }
            FromNode::Found { rank, image, incarnation: n } => self.found(member, rank, image, n),
            FromNode::Unfit { rank, incarnation, at } => self.unfit(rank, incarnation, at),
            FromNode::Stored { rank, generation, image, partner } => {
                self.pause_over(rank, generation);
                let at = std::iter::once(member).chain(partner).collect();
                self.stored(at, rank, generation, &image);
            }
            FromNode::NotCopied { rank, generation, to } => {
                self.planner(Input::NotCopied { rank, generation, to });
            }
            FromNode::Vaulted { round, images } => self.encoded(member, round, images),
            FromNode::NoCheckpoint { rank } if self.units.is_empty() => {
                self.stands_no_more(rank);
                self.pause_lost(rank);
                self.no_checkpoint(rank);
            }
            FromNode::NoCheckpoint { rank } => self.void_snapshot(rank),
            FromNode::SnapshotStands { unit, generation: n } => self.unit_stands(member, unit, n),
            FromNode::RankDied { rank, incarnation } => {
                self.rank_down(rank);
                self.planner(Input::RankDied { rank, incarnation });
            }
            FromNode::RankDone { rank, incarnation, hash, depends } => {
                if incarnation == self.controller.planner.incarnation(rank) || lax {
                    self.rank_down(rank);
                    self.truth.prints(&depends);
                    self.controller.done.insert(rank, hash);
                    self.planner(Input::RankDone { rank });
                    self.over = self.controller.done.len() as u32 == self.ranks();
                }
            }
            FromNode::Output { rank, index, line, depends, .. } => {
                self.output(rank, index, line, &depends);
            }
            FromNode::Paused { rank, generation } => self.paused(member, rank, generation),
            FromNode::Guarded { round } => self.planner(Input::Guarded { from: member, round }),
            FromNode::Suspended { turn } => self.node_suspended(member.node, turn),
            FromNode::Down | FromNode::Real(_) => {}
        }
    }

    fn stored(&mut self, at: Vec<Member>, rank: u32, generation: u32, image: &Image) {
        let (point, incarnation) = (image.point(), image.incarnation);
        // The planner does not rely on one image at a time.
        if self.random.one_in(2) {
            self.capture_over(rank, generation);
        }
        if self.mutated(Mutation::TrimBeforeDurable) {
            self.tell_floor(rank, point.clone());
        }
        self.truth.stored(rank, generation, &image.depends);
        self.controller.points.insert((rank, generation), point);
        self.planner(Input::Stored { rank, incarnation, generation, at: at.clone() });
        if self.mutated(Mutation::PartCounts) {
            for mate in self.ranks_of(self.slot(rank)) {
                let incarnation = self.controller.planner.incarnation(mate);
                let known = image.point();
                self.controller.points.entry((mate, generation)).or_insert(known);
                self.planner(Input::Stored { rank: mate, incarnation, generation, at: at.clone() });
            }
        }
        if self.mutated(Mutation::OneCopyCounts) {
            let members = self.controller.planner.members();
            if let Some(other) = members.iter().copied().find(|m| !at.contains(m)) {
                let at = vec![other];
                self.planner(Input::Stored { rank, incarnation, generation, at });
            }
        }
    }

    /// A mutation: the images of earlier incarnations count after all.
    fn count_late_images(&mut self, rank: u32) {
        for (of, generation) in std::mem::take(&mut self.controller.late) {
            if of != rank || !self.controller.points.contains_key(&(of, generation)) {
                continue;
            }
            let newest = self.controller.retention[rank as usize].newest();
            if newest.is_none_or(|k| k.generation < generation) {
                self.check_complete(rank, generation);
                self.complete(rank, generation);
            }
        }
    }

    /// Prints what was not printed before.
    fn output(&mut self, rank: u32, index: u64, line: u64, depends: &Depends) {
        let again = self.mutated(Mutation::PrintedAgain);
        let tape = &mut self.controller.tapes[rank as usize];
        let known = tape.len() as u64;
        match tape.get(index as usize) {
            Some(_) if again => self.turn.push(Effect::Print { rank, line }),
            Some(before) if *before != line => {
                self.fail(format!("rank {rank} prints something else as line {index}"));
            }
            Some(_) => {}
            None if known == index => {
                tape.push(line);
                self.turn.push(Effect::Print { rank, line });
            }
            None => self.fail(format!("rank {rank}: lines before line {index} are missing")),
        }
        self.truth.prints(depends);
    }

    /// Orders the checkpoints that are due.
    pub fn schedule(&mut self) {
        let now = self.ranks_time();
        self.check_awaited();
        self.tend_suspend();
        if self.controller.rolling_back.is_none() {
            // What is due by the clock is so by the ranks' clock.
            while !self.controller.suspend.stopped()
                && let Some(rank) = self.controller.scheduler.pick(now)
            {
                if !self.units.is_empty() {
                    if !self.order_snapshot(rank, false) {
                        self.controller.scheduler.finished(rank, now);
                    }
                    continue;
                }
                if self.controller.planner.home(rank).is_none() {
                    self.controller.scheduler.finished(rank, now);
                    continue;
                }
                let generation = self.controller.retention[rank as usize].begin();
                self.controller.capturing.insert(rank, generation);
                self.trace(|| format!("checkpoint {generation} of rank {rank}"));
                self.begin_pause(rank, generation, false);
                self.fault_nearby(12);
            }
            if self.random.one_in(8) {
                self.planner(Input::Tick);
            }
            self.begin_round();
            self.tend_leaves();
        }
        if self.drains {
            self.count_anew();
        }
        self.at(100, Event::Schedule);
    }

    /// After everything went back to the beginning.
    pub fn renew_scheduler(&mut self) {
        let (every, now) = (self.controller.every, self.ranks_time());
        let ranks = (0..self.ranks()).map(|r| self.slot(r) + 1).max().unwrap_or(1);
        self.controller.scheduler = Scheduler::new(ranks, every, every / 3, now);
    }
}
