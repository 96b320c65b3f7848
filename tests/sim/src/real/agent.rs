//! What a simulated node does about the orders of the real controller, as `eyrie-agent` does: the
//! models of processes, segments, disks and links are those of the other kinds.

use crate::program::State;
use crate::real::{Happens, Note, Told};
use crate::types::*;
use crate::world::World;
use eyrie_control::meta::{META_FORMAT, Meta};
use eyrie_control::node::{
    CheckpointOrder, CheckpointResult, Choice, Determinants, DeterminantsHeld, Fault, Fetch,
    NodeLook, NotCopied, Peer, RankLook, Taken,
};
use eyrie_control::{self as control, Death, Said, Sent, Stream};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::VAULT;
use eyrie_protocol::replicas::Words;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

/// Set in the number of an order that looks for an image: `RestoreOrder::incarnation` is else the
/// number of a start.
const FIND: u32 = 1 << 31;
/// Once in so many times that a gate keeps something back its node dies.
const UNHELD: u64 = 80;

/// What a node knows besides.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The node of each rank, as it was told last.
    homes: Vec<u32>,
    /// Images whose rank died before they were whole.
    pub spoilt: BTreeSet<(u32, u32)>,
    /// Images that are being taken here.
    pub taking: BTreeSet<(u32, u32)>,
    /// It has ended all that it had.
    pub finished: bool,
    /// It does not reach a controller before.
    pub away_until: Time,
    /// Ranks that run one part in so many of the time.
    pub slow: BTreeMap<u32, u32>,
    /// A mutation: images of processes that are gone.
    pub late: BTreeMap<u32, Rc<Image>>,
}

/// Where a node would be reached.
fn address(node: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1000 + node as u16))
}

fn progress(state: &State) -> u64 {
    state.sent.iter().chain(&state.received).sum::<u64>()
}

fn look(rank: u32) -> Box<RankLook> {
    // What it sends next after itself, and to some rank; of use where the network is known.
    let sent = |to: u32, bytes: u64| Sent { to, messages: 1, bytes };
    let targets = vec![sent(rank + 1, 1000 + u64::from(rank)), sent(rank / 2, 500)];
    Box::new(RankLook { rank, targets, ..RankLook::default() })
}

/// The end of a process.
fn ended(rank: u32, start: u32, death: Death, said: Said, progress: u64) -> control::FromNode {
    let (start, look) = (u64::from(start), look(rank));
    control::FromNode::Ended { rank, start, death, cause: None, said, progress, look }
}

fn meta(rank: u32, generation: u32, image: &Image) -> Meta {
    let point = image.point();
    let ranks = point.need.len() as u32;
    Meta {
        format: META_FORMAT,
        generation,
        incarnation: image.incarnation,
        state: 1,
        det_pos: point.det_pos,
        need: point.need,
        output: point.output.map(|lines| lines * super::LINE_BYTES),
        ..Meta::start(super::JOB, rank, ranks)
    }
}

/// What is new in an image: much, or little, which ends the rounds of a rank that leaves.
fn changed_bytes(image: &Image) -> u64 {
    if image.state.hash.is_multiple_of(2) { 1 << 20 } else { 1 << 12 }
}

fn taken(rank: u32, generation: u32, image: &Image) -> Taken {
    Taken {
        meta: meta(rank, generation, image),
        bytes: changed_bytes(image),
        unchanged_bytes: 0,
        shared_bytes: 0,
        tracking: String::new(),
        mode: String::new(),
        why: String::new(),
        took_ms: 1.0,
        frozen_ms: 0.1,
        cpu_ms: 0.5,
        busy: 0.5,
        is_synchronous: false,
        needs: Vec::new(),
        borrows: Vec::new(),
    }
}

impl World {
    /// Carries out what the controller says.
    pub fn obey(&mut self, at: Member, order: control::ToNode) {
        use control::ToNode as To;
        match order {
            To::Start { rank, start, .. } if self.stays_done(rank) => {
                let files = Vec::new();
                self.tell_real(at, control::FromNode::Started { rank, start, pid: 1, files });
                let (start, death) = (start as u32, Death::Exit(0));
                self.tell_real(at, ended(rank, start, death, Said::Nothing, 0));
            }
            To::Start { rank, start, from, moved } => {
                self.start_ordered(at, rank, start as u32, from.generation, moved.map(|m| *m));
            }
            To::Find { rank, attempt, generations, fetch } => {
                self.find(at, rank, attempt, &generations, fetch);
            }
            To::Checkpoint(order) => self.order_checkpoint(at, order),
            To::Copy { rank, generations, to } => self.copy_out(at, rank, generations, to),
            To::Members { members } => {
                self.new_members(at, members.iter().map(member).collect());
                self.settle_homes(at);
            }
            To::Homes { homes } => {
                self.node(at).into_iter().for_each(|n| n.real.homes.clone_from(&homes));
                self.settle_homes(at);
            }
            To::Held { ask, ranks } => self.tell_held(at, ask, &ranks),
            To::Trim { rank, mut need, det_pos } => {
                // Nothing is known yet of how many channels there are.
                need.resize(self.ranks() as usize * 2, 0);
                self.trim(at, rank, &need, det_pos);
            }
            To::Remove { rank, generations } => {
                if let Some(node) = self.node(at) {
                    generations.iter().for_each(|g| drop(node.disk.remove(&(rank, *g))));
                }
            }
            To::Signal { signal: libc::SIGCONT } => self.all_go_on(at),
            To::Signal { signal: libc::SIGKILL } => {
                let all: Vec<u32> = (0..self.ranks()).collect();
                self.note_stood(at, &all);
                self.kill_ranks(at, &all);
                self.give_up_starts(at);
            }
            To::Kill { ranks } => {
                self.note_stood(at, &ranks);
                self.kill_ranks(at, &ranks);
            }
            To::Renew { epoch, all } => self.reset(at, Member { node: at.node, epoch }, all),
            To::Look { ask, .. } => {
                let ranks = (0..self.ranks()).filter(|r| self.is_at(at, *r)).map(|r| *look(r));
                let (ranks, own) = (ranks.collect(), NodeLook::default());
                self.tell_real(at, control::FromNode::Looks { ask, ranks, own });
            }
            To::SaveLog { rank, .. } => {
                self.tell_real(at, control::FromNode::Saved { rank, error: None });
            }
            To::Clusters { of, .. } => {
                self.neighbours.place(of.clone());
                self.sites.place(of.clone());
                self.node(at).into_iter().for_each(|n| n.gate.place(of.clone()));
            }
            To::Finish => self.finish(at),
            To::Depart => self.finish(at),
            To::Dismissed => self.perish(at),
            other => self.obey_leave(at, other),
        }
    }

    /// Orders about nodes that leave, and jobs that stand still.
    fn obey_leave(&mut self, at: Member, order: control::ToNode) {
        use control::ToNode as To;
        match order {
            To::Leaving { round, nodes } => {
                let known = self.nodes.get(&at).map(|n| n.members.clone()).unwrap_or_default();
                let leaving: Vec<Member> =
                    known.into_iter().filter(|m| nodes.contains(&m.node)).collect();
                self.hear_leaving(at, round, &leaving);
            }
            To::Vacate => {
                let ranks = self.ranks_at(at);
                self.hurt(ranks);
                self.vacate_really(at);
            }
            To::LetGo { rank } => self.rank_goes_on(at, rank),
            To::Slow { rank, part } => {
                self.node(at).into_iter().for_each(|n| _ = n.real.slow.insert(rank, part));
            }
            To::Yield { rank } => self.yield_rank(at, rank),
            To::Halt { turn } => self.suspend(at, turn),
            To::EndHalt => self.end_suspend(at),
            To::Vault(order) => self.obey_vault(at, order),
            other => self.obey_set(at, other),
        }
    }

    /// A mutation: a rank that has ended is not run again.
    fn stays_done(&self, rank: u32) -> bool {
        self.mutated(Mutation::DoneForgotten) && self.controller.done.contains_key(&rank)
    }

    fn is_at(&self, at: Member, rank: u32) -> bool {
        self.nodes.get(&at).is_some_and(|n| n.procs.contains_key(&rank))
    }

    /// A member, as a node knows it by its number.
    pub fn known_member(&self, at: Member, node: u32) -> Option<Member> {
        self.nodes.get(&at)?.members.iter().copied().find(|m| m.node == node)
    }

    pub fn tell_real(&mut self, at: Member, said: control::FromNode) {
        self.tell(at, FromNode::Real(Box::new(Told { said, note: Note::None })));
    }

    /// The same when all that it depends on is known to others.
    fn leave_real(&mut self, at: Member, said: control::FromNode) {
        self.leave(at, FromNode::Real(Box::new(Told { said, note: Note::None })));
    }

    /// Homes are told by node, and nodes are members by what was told of them.
    fn settle_homes(&mut self, at: Member) {
        let homes = self.nodes.get(&at).map(|n| n.real.homes.clone()).unwrap_or_default();
        for (rank, home) in (0u32..).zip(homes) {
            let known = self.known_member(at, home);
            let before = self.nodes.get(&at).and_then(|n| n.homes[rank as usize]);
            if let Some(home) = known.filter(|home| before != Some(*home)) {
                self.new_home(at, rank, home);
            }
        }
    }

    fn tell_held(&mut self, at: Member, ask: u64, ranks: &[u32]) {
        let Some(node) = self.nodes.get(&at) else { return };
        let mut answer = node.replicas.answer(ranks);
        self.own_answer(at, ranks, &mut answer);
        for answer in answer.parts() {
            let in_step = answer.in_step.iter().map(|m| (m.node, m.epoch)).collect();
            let words = |(rank, w): (&u32, &Words)| Determinants {
                rank: *rank,
                first: w.first,
                words: w.words.clone(),
            };
            let held = answer.held.iter().map(words).collect();
            let held = DeterminantsHeld { ask, in_step, held, partly: answer.partly };
            self.tell_real(at, control::FromNode::Held(held));
        }
    }

    fn find(
        &mut self,
        at: Member,
        rank: u32,
        attempt: u64,
        generations: &[u32],
        fetch: Option<Fetch>,
    ) {
        let Some(&generation) = generations.first() else {
            let choice = Choice::Nothing;
            return self.tell_real(at, control::FromNode::Found { rank, attempt, choice });
        };
        let holder = fetch.and_then(|fetch| fetch.from);
        let from = holder.and_then(|node| match node {
            node if node == VAULT.node => Some(VAULT),
            node => self.known_member(at, node),
        });
        if holder.is_some() && from.is_none() {
            // It is gone: another order follows.
            return;
        }
        // There is not much to be brought of the program's beginning.
        if generation > 0 && self.stumbles(at) == Some(Stumble::NoImage) {
            self.report.unfit += 1;
            let why = String::from("No space left on device");
            let choice = match self.mutated(Mutation::PlaceForImage) {
                true => Choice::Refused { generation, why, fetched: holder.is_some() },
                false => Choice::Unfit(why),
            };
            return self.tell_real(at, control::FromNode::Found { rank, attempt, choice });
        }
        let incarnation = FIND | attempt as u32;
        let (words, told) = (None, false);
        let order = RestoreOrder { rank, incarnation, generation, from, words, told };
        let Some(node) = self.node(at) else { return };
        node.procs.remove(&rank);
        node.orders.insert(rank, (order, None));
        self.try_order(at, rank);
    }

    fn start_ordered(
        &mut self,
        at: Member,
        rank: u32,
        start: u32,
        generation: u32,
        moved: Option<Determinants>,
    ) {
        let comes_back = moved.is_some() || generation > 0;
        if comes_back && self.stumbles(at) == Some(Stumble::NoStart) {
            self.report.unfit += 1;
            let why = (Fault::Place, String::from("Cannot allocate memory"));
            let start = u64::from(start);
            return self.tell_real(at, control::FromNode::NotStarted { rank, start, why });
        }
        self.node(at).into_iter().for_each(|n| _ = n.real.slow.remove(&rank));
        let words = moved.map(|m| Words { first: m.first, words: m.words });
        let (incarnation, from, told) = (start, None, true);
        let order = RestoreOrder { rank, incarnation, generation, from, words, told };
        let Some(node) = self.node(at) else { return };
        node.procs.remove(&rank);
        node.orders.insert(rank, (order, None));
        self.try_order(at, rank);
    }

    fn give_up_starts(&mut self, at: Member) {
        let Some(node) = self.node(at) else { return };
        let told = |(rank, order): (&u32, &(RestoreOrder, _))| (*rank, order.0.incarnation);
        let starts = node.orders.iter().filter(|o| o.1.0.told).map(told).collect::<Vec<_>>();
        for (rank, start) in starts {
            self.node(at).into_iter().for_each(|n| drop(n.orders.remove(&rank)));
            let why = (Fault::Unknown, String::from("the job ends"));
            self.tell_real(at, control::FromNode::NotStarted { rank, start: start.into(), why });
        }
    }

    fn order_checkpoint(&mut self, at: Member, order: CheckpointOrder) {
        let CheckpointOrder { rank, start, generation, partner, hold, .. } = order;
        let proc = self.nodes.get(&at).and_then(|n| n.procs.get(&rank));
        let runs = proc.is_some_and(|p| u64::from(p.incarnation) == start && !p.done);
        let known = partner.and_then(|node| self.known_member(at, node));
        let result = match runs {
            false => CheckpointResult::Died,
            true if partner.is_some() && known.is_none() => {
                CheckpointResult::NoPartner(String::from("its partner is gone"))
            }
            true => {
                self.node(at).into_iter().for_each(|n| n.real.taking.extend([(rank, generation)]));
                self.check_quiet(at, rank, self.router_of(rank));
                self.capture(at, rank, generation, known, hold);
                return self.goes_on(at, rank, generation);
            }
        };
        let over = control::FromNode::CheckpointOver { rank, start, generation, result };
        self.tell_real(at, over);
    }

    /// The rank of an image has died before that was whole.
    pub fn tell_spoilt(&mut self, at: Member, rank: u32, generation: u32, start: u32) {
        let (start, result) = (u64::from(start), CheckpointResult::Died);
        let over = control::FromNode::CheckpointOver { rank, start, generation, result };
        self.tell_real(at, over);
    }

    fn copy_out(&mut self, at: Member, rank: u32, generations: Vec<u32>, to: u32) {
        let Some(&generation) = generations.last() else { return };
        let known = self.known_member(at, to);
        let Some(node) = self.node(at) else { return };
        let there = known.filter(|to| node.peers.contains_key(to));
        let stored = node.disk.get(&(rank, generation)).map(|s| (s.bad, s.image.clone()));
        let failed = |damaged, text: &str| Some(NotCopied { damaged, text: text.to_string() });
        let error = match (stored, there) {
            (Some((true, _)), _) => {
                node.disk.remove(&(rank, generation));
                failed(true, "its checksum is wrong")
            }
            (Some((false, image)), Some(to)) => {
                node.copies.push((to, rank, generation));
                let (image, taken) = (Some(image), true);
                return self.tell_peer(at, to, PeerMsg::File { rank, generation, image, taken });
            }
            _ => failed(false, "it is not there, or not reached"),
        };
        self.tell_real(at, control::FromNode::Copied { rank, generations, to, error });
    }

    /// Another node has what was copied there.
    pub fn copied(&mut self, at: Member, peer: Member, rank: u32, generation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let copies = node.copies.len();
        node.copies.retain(|c| *c != (peer, rank, generation));
        if node.copies.len() < copies {
            let (generations, to) = (vec![generation], peer.node);
            self.tell_real(at, control::FromNode::Copied { rank, generations, to, error: None });
        }
    }

    /// Ends processes as a signal does.
    pub fn kill_ranks(&mut self, at: Member, ranks: &[u32]) {
        for &rank in ranks {
            let spoils = self.random.one_in(2);
            let Some(node) = self.node(at) else { return };
            let Some(proc) = node.procs.get(&rank).filter(|p| !p.done) else { continue };
            let (start, progress) = (proc.incarnation, progress(&proc.state));
            node.procs.remove(&rank);
            if let Some(&generation) = node.capturing.get(&rank)
                && node.real.taking.contains(&(rank, generation))
                && !node.disk.contains_key(&(rank, generation))
                && spoils
            {
                node.real.spoilt.insert((rank, generation));
            }
            let death = Death::Signal(libc::SIGKILL);
            self.leave_real(at, ended(rank, start, death, Said::Running, progress));
        }
    }

    fn finish(&mut self, at: Member) {
        let Some(node) = self.node(at) else { return };
        node.procs.clear();
        node.orders.clear();
        node.real.finished = true;
        self.tell_real(at, control::FromNode::Finished { left: 0 });
        let (node, deaths) = (at.node, self.report.controllers);
        let after = 5 + self.random.below(400);
        self.at(after, Event::Real(Happens::Gone { node, deaths }));
    }

    fn vacate_really(&mut self, at: Member) {
        self.give_up_starts(at);
        let procs = self.nodes.get(&at).map(|n| n.procs.clone()).unwrap_or_default();
        self.vacate(at);
        for (rank, proc) in procs.into_iter().filter(|(_, p)| !p.done) {
            let death = Death::Signal(libc::SIGKILL);
            let progress = progress(&proc.state);
            self.leave_real(at, ended(rank, proc.incarnation, death, Said::Running, progress));
        }
        self.tell_real(at, control::FromNode::Vacated { left: 0 });
    }

    /// A mutation: with one image of a unit those of all of it are there.
    pub fn mistake_parts(&mut self, at: Member, what: &FromNode) {
        let FromNode::Stored { rank, generation, image, .. } = what else { return };
        if !self.mutated(Mutation::PartCounts) {
            return;
        }
        let mates = self.ranks_of(self.slot(*rank)).into_iter().filter(|mate| mate != rank);
        for mate in mates.collect::<Vec<_>>() {
            let Some(proc) = self.nodes.get(&at).and_then(|n| n.procs.get(&mate)) else { continue };
            let (start, generation) = (u64::from(proc.incarnation), *generation);
            let result = CheckpointResult::Taken(Box::new(taken(mate, generation, image)));
            self.tell_real(
                at,
                control::FromNode::CheckpointOver { rank: mate, start, generation, result },
            );
        }
    }

    /// A node of which something is recorded that no other one holds: now and then it dies.
    pub fn lose_unheld(&mut self, at: Member) {
        if self.faults_left > 0 && self.random.one_in(UNHELD) {
            let after = self.random.below(60);
            self.at(after, Event::Real(Happens::LoseThis { member: at }));
        }
    }

    /// What the models say, as the real controller is told it. None: it does not matter to it.
    pub fn as_told(&self, at: Member, what: FromNode) -> Option<FromNode> {
        use control::FromNode as From;
        let mut note = Note::None;
        let said = match what {
            FromNode::Real(told) => return Some(FromNode::Real(told)),
            FromNode::Restored { rank, incarnation } => {
                let (start, files) = (u64::from(incarnation), Vec::new());
                From::Started { rank, start, pid: 1000 + incarnation, files }
            }
            looked @ (FromNode::ImageBad { .. } | FromNode::Found { .. }) => {
                self.looked(at, looked)?
            }
            FromNode::Stored { rank, generation, image, .. } => {
                note = Note::Stored(image.depends.clone());
                let result = CheckpointResult::Taken(Box::new(taken(rank, generation, &image)));
                let runs = self.nodes.get(&at).and_then(|n| n.procs.get(&rank));
                // A mutation: it passes for one of the process that is there now.
                let late = runs.filter(|_| self.mutated(Mutation::LateImages));
                let start = u64::from(late.map_or(image.incarnation, |p| p.incarnation));
                From::CheckpointOver { rank, start, generation, result }
            }
            FromNode::NotCopied { rank, generation, to } => {
                let error = NotCopied { damaged: false, text: String::from("it is not reached") };
                let (generations, to) = (vec![generation], to.node);
                From::Copied { rank, generations, to, error: Some(error) }
            }
            FromNode::NoCheckpoint { rank } => {
                let generation = *self.nodes.get(&at)?.capturing.get(&rank)?;
                let result = CheckpointResult::NoPartner(String::from("its partner is gone"));
                From::CheckpointOver { rank, start: 0, generation, result }
            }
            FromNode::RankDone { rank, incarnation, hash, depends } => {
                note = Note::Done(hash, depends);
                let proc = self.nodes.get(&at).and_then(|n| n.procs.get(&rank));
                let progress = proc.map_or(0, |p| progress(&p.state));
                ended(rank, incarnation, Death::Exit(0), Said::Nothing, progress)
            }
            FromNode::Output { rank, incarnation, line, depends, .. } => {
                note = Note::Prints(depends);
                let (start, stream) = (u64::from(incarnation), Stream::Stdout);
                From::Output { rank, start, stream, bytes: super::line(line) }
            }
            FromNode::SnapshotStands { generation, .. } => {
                From::Stands { generation, result: Ok(Vec::new()), sent: self.have_sent(at) }
            }
            FromNode::Paused { rank, generation } => From::Paused { rank, generation },
            FromNode::Guarded { round } => From::Guarded { round },
            FromNode::Suspended { turn } => From::Halted { turn, restless: Vec::new() },
            FromNode::Down => self.joins(at),
        };
        Some(FromNode::Real(Box::new(Told { said, note })))
    }

    /// What came of looking for an image, or of starting from one.
    fn looked(&self, at: Member, what: FromNode) -> Option<control::FromNode> {
        use control::FromNode as From;
        Some(match what {
            FromNode::ImageBad { rank, incarnation, generation, at: of }
                if incarnation & FIND > 0 =>
            {
                let why = String::from("its checksum is wrong");
                let choice = Choice::Refused { generation, why, fetched: of != at };
                From::Found { rank, attempt: u64::from(incarnation & !FIND), choice }
            }
            FromNode::ImageBad { rank, incarnation, .. } => {
                let why = (Fault::Image, String::from("its checksum is wrong"));
                From::NotStarted { rank, start: u64::from(incarnation), why }
            }
            FromNode::Found { rank, image, incarnation } => {
                let attempt = u64::from(incarnation & !FIND);
                let stored = self.nodes.get(&at).and_then(|n| n.disk.get(&(rank, image)));
                let choice = match stored.filter(|_| image > 0) {
                    Some(stored) => Choice::Image(Box::new(meta(rank, image, &stored.image))),
                    None => Choice::Beginning,
                };
                From::Found { rank, attempt, choice }
            }
            _ => return None,
        })
    }

    /// What a node says first.
    pub fn joins(&self, at: Member) -> control::FromNode {
        let (link, store) = (address(at.node), address(at.node));
        control::FromNode::Joined { pid: 100 + at.node, link, store }
    }
}

fn member(peer: &Peer) -> Member {
    Member { node: peer.node, epoch: peer.epoch }
}
