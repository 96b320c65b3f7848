//! The simulated controller: the real planner, and the real rules of a snapshot.

use super::vault::Round;
use super::world::{Mistake, World};
use super::*;
use eyrie_protocol::barrier::RestoreBarrier;
use eyrie_protocol::coordinated_snapshot::CoordinatedSnapshot;
use eyrie_protocol::recovery::{Action, Input, Planner, Rule};
use eyrie_protocol::socket_restore::{NodeEnds, SocketRestore, Step};
use eyrie_protocol::units::{Extent, Units};
use std::net::Ipv4Addr;

/// How far a roll-back has come, and the nodes that are awaited.
#[derive(Debug, Clone)]
enum Phase {
    Running,
    Killing(BTreeSet<u32>),
    Joining(BTreeSet<u32>, Vec<Member>),
}

/// Ranks that come back from a snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct Return {
    barrier: Option<RestoreBarrier>,
    under_way: Option<(BTreeSet<u32>, SocketRestore)>,
    turn: u64,
    /// The step that is under way is the first one.
    looks: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub planner: Planner,
    pub sessions: BTreeMap<u32, Session<ToNode>>,
    pub back: Return,
    /// What is being brought into the vault.
    pub round: Option<Round>,
    pub rounds: u64,
    /// Live nodes, as far as is known.
    pub(super) known: BTreeMap<u32, Member>,
    /// Those that were told to forget all, and have not joined again.
    pub(super) emptied: BTreeSet<u32>,
    homes: Vec<Option<u32>>,
    phase: Phase,
    pub(super) snapshot: Option<CoordinatedSnapshot>,
    /// The snapshot after which ranks stand for nodes that leave, and since when that counts.
    pub held: Option<u32>,
    pub stands: bool,
    pub last: u32,
    /// Snapshots that count, oldest first; 0: the beginning.
    kept: Vec<u32>,
    done: BTreeSet<u32>,
    every: u64,
    due: u64,
}

/// How many snapshots are kept.
const KEPT: usize = 2;

impl Controller {
    pub fn new(map: Vec<u32>, every: u64, bears: Option<u64>) -> Controller {
        let rule = |bears| Rule::Vault { least: bears as usize + 1 };
        let planner = Planner::new(Units::new(Extent::Job, &map, |node| node), map.clone());
        Controller {
            planner: bears.map(rule).map_or(planner.clone(), |rule| planner.with_rule(rule)),
            sessions: BTreeMap::new(),
            back: Return::default(),
            round: None,
            rounds: 0,
            known: BTreeMap::new(),
            emptied: BTreeSet::new(),
            homes: vec![None; map.len()],
            phase: Phase::Running,
            snapshot: None,
            held: None,
            stands: false,
            last: 0,
            kept: vec![0],
            done: BTreeSet::new(),
            every,
            due: every,
        }
    }

    /// Whether parts of a snapshot are being written.
    pub fn writes_snapshot(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|s| !s.is_over())
    }

    /// Those that count, but for the beginning.
    pub fn kept_snapshots(&self) -> Vec<u32> {
        self.kept.iter().copied().filter(|g| *g > 0).collect()
    }

    /// How many nodes there are, as far as is known.
    fn there(&self) -> usize {
        self.known.len() - self.emptied.len()
    }

    /// The newest snapshot that counts.
    pub fn newest(&self) -> u32 {
        self.kept.last().copied().unwrap_or(0)
    }
}

impl World {
    pub fn begin(&mut self) {
        let todo = self.controller.planner.start();
        self.carry_out(todo);
    }

    pub fn input(&mut self, input: Input) {
        if !(self.makes(Mistake::DownUnwritten) && matches!(input, Input::AllDown { .. })) {
            self.plans.push(input.clone());
        }
        let todo = self.controller.planner.step(input);
        self.carry_out(todo);
    }

    pub fn say_to(&mut self, node: u32, said: ToNode) {
        self.turn.push((node, said));
    }

    fn say_to_all(&mut self, said: &ToNode) {
        let all: Vec<u32> = self.controller.known.keys().copied().collect();
        all.into_iter().for_each(|node| self.say_to(node, said.clone()));
    }

    fn carry_out(&mut self, todo: Vec<Action>) {
        for action in todo {
            if !matches!(action, Action::Members(_) | Action::Home { .. }) {
                self.trace(|| format!("planner: {action:?}"));
            }
            match action {
                Action::Members(members) => self.say_to_all(&ToNode::Members(members)),
                Action::Home { rank, at } => {
                    self.controller.homes[rank as usize] = Some(at.node);
                    self.say_to_all(&ToNode::Homes(self.controller.homes.clone()));
                }
                Action::Kill { .. } | Action::Gather { .. } => {
                    self.fail(String::from("there are no units"));
                }
                Action::Query { .. } => self.fail(String::from("nodes are asked for outcomes")),
                Action::Restore { rank, incarnation, at, generation, from, .. } => {
                    self.restore(at, RestoreOrder { rank, incarnation, generation, from });
                }
                Action::Copy { rank, generation, from, to } => {
                    self.say_to(from.node, ToNode::Copy { rank, generation, to });
                }
                Action::Complete { rank, generation } => {
                    self.check_copies(rank, generation);
                    if rank + 1 == self.ranks() {
                        self.snapshot_counts(generation);
                    }
                }
                Action::Discard { rank, generation } => {
                    self.say_to_all(&ToNode::Remove { rank, generation });
                    let snapshot = self.controller.snapshot.as_mut();
                    let snapshot = snapshot.filter(|s| s.generation() == generation);
                    let verdict = snapshot.and_then(|s| s.spoil(String::from("a part is bad")));
                    self.tell(verdict);
                    self.snapshot_over();
                }
                Action::Damaged { rank, generation } => {
                    if generation == self.controller.newest() && self.is_bearable() {
                        self.fail(format!("set {generation} is given up, and it was there"));
                    }
                    self.controller.kept.retain(|g| *g != generation);
                    self.vault.remove(&(rank, generation));
                    self.say_to_all(&ToNode::Remove { rank, generation });
                }
                Action::RollBack { why } => {
                    if why == "ranks go on elsewhere" {
                        self.check_nothing_since(self.controller.newest());
                    }
                    self.roll_back();
                }
                Action::Leaving { round, .. } => self.say_to_all(&ToNode::Leaving { round }),
                Action::Vacate { member } => {
                    let home = |rank| self.controller.planner.home(rank);
                    if (0..self.ranks()).any(|rank| home(rank) == Some(member)) {
                        self.fail(String::from("ranks leave alone"));
                    }
                }
                Action::Dismiss { member } => self.dismiss(member),
                Action::Lost => self.fail(String::from("all is lost, and there are nodes")),
                Action::Yield { .. } | Action::Unpinned { .. } => {
                    self.fail(String::from("nobody comes back alone"));
                }
            }
        }
    }

    fn restore(&mut self, at: Member, order: RestoreOrder) {
        let RestoreOrder { rank, generation, .. } = order;
        if generation != self.controller.planner.snapshot() {
            self.fail(format!("rank {rank} comes from {generation}, and the others do not"));
        }
        self.controller.done.remove(&rank);
        let ranks = self.plan.len();
        let image = self.images.get(&(rank, generation));
        self.truth[rank as usize] = image.map_or(State::new(ranks), |i| i.state.clone());
        self.say_to(at.node, ToNode::Find(order));
    }

    /// The image of a rank is at its home. With the last one of a snapshot all come back.
    fn found(&mut self, rank: u32, incarnation: u32, generation: u32) {
        if incarnation != self.controller.planner.incarnation(rank) {
            return;
        }
        if generation == 0 {
            return self.order_start(rank);
        }
        let ranks = self.ranks();
        let back = &mut self.controller.back;
        let barrier = back.barrier.get_or_insert_with(|| RestoreBarrier::new(generation, 0..ranks));
        let Some(ranks) = barrier.found(rank, generation) else { return };
        let home = |rank: &u32| self.controller.planner.home(*rank).map(|m| m.node);
        let nodes = ranks.iter().filter_map(home).collect();
        let back = &mut self.controller.back;
        back.turn += 1;
        back.under_way = Some((ranks, SocketRestore::new(nodes, back.turn)));
        self.take_step(Some(Step::Look));
    }

    /// A node has done a step. There are no connections between nodes.
    fn rejoined_step(&mut self, node: u32, turn: u64) {
        let Some((_, rejoin)) = &mut self.controller.back.under_way else { return };
        let place =
            || NodeEnds { network: Vec::new(), here: Ipv4Addr::LOCALHOST.into(), ends: Vec::new() };
        let step = match self.controller.back.looks {
            true => rejoin.looked(node, turn, place()),
            false => rejoin.settled(node, turn),
        };
        self.take_step(step);
    }

    fn take_step(&mut self, step: Option<Step>) {
        let back = &mut self.controller.back;
        let Some((step, (_, rejoin))) = step.zip(back.under_way.as_ref()) else { return };
        let (turn, nodes): (u64, Vec<u32>) = (rejoin.turn(), rejoin.nodes().collect());
        back.turn = turn;
        match step {
            Step::Look | Step::Settle => {
                back.looks = step == Step::Look;
                nodes.into_iter().for_each(|node| self.say_to(node, ToNode::Rejoin(turn)));
            }
            Step::Over => {
                let ranks = back.under_way.take().map(|u| u.0).unwrap_or_default();
                ranks.into_iter().for_each(|rank| self.order_start(rank));
            }
            other => self.fail(format!("there are no connections, and {other:?}")),
        }
    }

    fn order_start(&mut self, rank: u32) {
        let planner = &self.controller.planner;
        let (incarnation, home) = (planner.incarnation(rank), planner.home(rank));
        let Some(home) = home else { return };
        self.say_to(home.node, ToNode::Start { rank, incarnation });
        self.input(Input::Starting { rank, incarnation });
    }

    /// An image that counts lies on two nodes, of those that are there, or in the vault.
    fn check_copies(&mut self, rank: u32, generation: u32) {
        if self.controller.planner.vaults() {
            if !self.vault.contains_key(&(rank, generation)) {
                self.fail(format!("image {generation} of rank {rank} counts, and is in no vault"));
            }
            return;
        }
        let has = |n: &&Node| n.disk.contains_key(&(rank, generation));
        let copies = self.nodes.values().filter(has).count() as u64;
        let dead = self.controller.known.keys().filter(|n| !self.nodes.contains_key(n)).count();
        let enough = 2.min(self.controller.there() as u64);
        let only_given = self.is_only_given(&(rank, generation));
        if copies + (dead as u64) < enough && !only_given {
            self.fail(format!("{copies} copies of image {generation} of rank {rank} count"));
        }
    }

    /// Whether the newest snapshot that counts has to be there, with what was lost since.
    fn is_bearable(&self) -> bool {
        self.losses <= if self.vaulted { self.bears() } else { 1 }
    }

    /// What may have been lost of a snapshot that is not in the vault before it counted.
    fn lost_copies(&self, generation: u32) -> u64 {
        let bad = |n: &Node| n.disk.iter().filter(|d| d.0.1 == generation && d.1.bad).count();
        let bad = self.nodes.values().map(bad).sum::<usize>();
        // Nodes whose death is not known yet may have been the ones that had a copy.
        let known = self.controller.known.keys();
        let dead = known.filter(|n| !self.nodes.contains_key(n)).count();
        // Of one node there is one copy.
        (bad + dead) as u64 + u64::from(self.controller.there() < 2)
    }

    fn snapshot_counts(&mut self, generation: u32) {
        self.trace(|| format!("set {generation} counts"));
        self.report.snapshots += 1;
        self.vaulted = self.is_vaulted(generation);
        self.losses = match self.vaulted {
            // What only the vault has any more is not brought into it anew.
            true => self.borne_of(generation),
            false => self.lost_copies(generation),
        };
        let controller = &mut self.controller;
        controller.snapshot = None;
        controller.stands = controller.held == Some(generation);
        controller.due = self.now + controller.every;
        controller.kept.push(generation);
        let surplus = controller.kept.len().saturating_sub(KEPT);
        let old: Vec<u32> = controller.kept.drain(..surplus).collect();
        for generation in old {
            for rank in 0..self.ranks() {
                self.say_to_all(&ToNode::Remove { rank, generation });
                self.vault.remove(&(rank, generation));
                self.input(Input::Dropped { rank, generation });
            }
        }
    }

    fn roll_back(&mut self) {
        if !matches!(self.controller.phase, Phase::Running) {
            return self.fail(String::from("a roll-back in a roll-back"));
        }
        self.report.roll_backs += 1;
        self.fault_nearby(8);
        self.controller.snapshot = None;
        self.controller.held = None;
        self.controller.round = None;
        let turn = self.controller.back.turn;
        self.controller.back = Return { turn, ..Return::default() };
        self.controller.phase = Phase::Killing(self.controller.known.keys().copied().collect());
        self.say_to_all(&ToNode::Kill);
        self.go_on();
    }

    /// Goes on with a roll-back as far as it can.
    fn go_on(&mut self) {
        match &self.controller.phase {
            Phase::Killing(left) if left.is_empty() => {
                let known: Vec<u32> = self.controller.known.keys().copied().collect();
                self.controller.emptied.clear();
                for node in &known {
                    let member = Member { node: *node, epoch: self.next_epoch };
                    self.next_epoch += 1;
                    self.controller.known.insert(*node, member);
                    self.say_to(*node, ToNode::Renew(member));
                }
                let left = known.into_iter().collect();
                self.controller.phase = Phase::Joining(left, Vec::new());
                self.go_on();
            }
            Phase::Joining(left, members) if left.is_empty() => {
                let members = members.clone();
                self.controller.phase = Phase::Running;
                self.controller.due = self.now + self.controller.every;
                let newest = self.controller.newest();
                let bearable = self.is_bearable();
                self.input(Input::AllDown { members });
                let snapshot = self.controller.planner.snapshot();
                self.report.beginnings += u64::from(snapshot == 0);
                if snapshot < newest && bearable {
                    self.fail(format!("all go back to {snapshot}, and {newest} was there"));
                }
                if snapshot == 0 {
                    self.controller.kept = vec![0];
                }
            }
            _ => {}
        }
    }

    pub fn joined(&mut self, member: Member, spare: bool) {
        self.controller.known.insert(member.node, member);
        self.controller.sessions.insert(member.node, Session::default());
        self.input(Input::Joined { member, spare });
        self.tell_homes(member.node);
    }

    pub fn tell_homes(&mut self, node: u32) {
        self.say_to(node, ToNode::Homes(self.controller.homes.clone()));
    }

    pub fn is_running(&self) -> bool {
        matches!(self.controller.phase, Phase::Running)
    }

    /// A node more, when nothing is in the way.
    pub fn join_late(&mut self) {
        if matches!(self.controller.phase, Phase::Running) {
            self.join(true);
        } else {
            self.at(300, Event::Join);
        }
    }

    pub fn suspect(&mut self, dead: Member) {
        let Some(member) = self.controller.known.remove(&dead.node) else { return };
        self.controller.sessions.remove(&dead.node);
        self.controller.emptied.remove(&dead.node);
        self.lines.remove(&dead.node);
        self.controller.round = None;
        match &mut self.controller.phase {
            Phase::Killing(left) => drop(left.remove(&dead.node)),
            Phase::Joining(left, members) => {
                left.remove(&dead.node);
                members.retain(|m| m.node != dead.node);
            }
            Phase::Running => {}
        }
        self.input(Input::NodeDied { member });
        self.go_on();
    }

    pub fn controller_hears(&mut self, from: Member, said: FromNode) {
        if !self.controller.known.contains_key(&from.node) {
            return;
        }
        match said {
            FromNode::Killed => {
                if let Phase::Killing(left) = &mut self.controller.phase {
                    left.remove(&from.node);
                }
                self.go_on();
            }
            FromNode::Joined(member) => {
                self.is_emptied(member);
                if let Phase::Joining(left, members) = &mut self.controller.phase
                    && left.remove(&member.node)
                {
                    members.push(member);
                }
                self.go_on();
            }
            said => self.hear(from, said),
        }
    }

    /// What concerns ranks and images.
    fn hear(&mut self, from: Member, said: FromNode) {
        // What a node said before it was renewed concerns nobody any more, except for its disk.
        let stale = self.controller.known.get(&from.node) != Some(&from);
        if stale || !matches!(self.controller.phase, Phase::Running) {
            if let FromNode::Taken { part, generation, .. } = said {
                self.say_to_all(&ToNode::Remove { rank: part.rank, generation });
            }
            return;
        }
        match said {
            FromNode::Fetched { rank, incarnation, generation } => {
                self.input(Input::Stored { rank, incarnation, generation, at: vec![from] });
            }
            FromNode::Found { rank, incarnation, generation } => {
                self.found(rank, incarnation, generation);
            }
            FromNode::Rejoined(turn) => self.rejoined_step(from.node, turn),
            FromNode::ImageBad { rank, incarnation, generation, at } => {
                self.input(Input::ImageBad { rank, incarnation, generation, at });
            }
            FromNode::Started { rank, incarnation } => {
                self.input(Input::Restored { rank, incarnation });
            }
            FromNode::Stands { generation } => {
                let snapshot =
                    self.controller.snapshot.as_mut().filter(|s| s.generation() == generation);
                let verdict = snapshot.and_then(|s| s.stands(from.node, Ok(Vec::new())));
                self.tell(verdict);
            }
            FromNode::Taken { part, generation, at } => {
                let (rank, incarnation) = (part.rank, part.incarnation);
                let snapshot =
                    self.controller.snapshot.as_mut().filter(|s| s.generation() == generation);
                let Some(snapshot) = snapshot else {
                    return self.say_to_all(&ToNode::Remove { rank, generation });
                };
                snapshot.part(rank, Ok(()));
                self.input(Input::Stored { rank, incarnation, generation, at });
                self.snapshot_over();
            }
            FromNode::NoPart { rank, generation } => {
                let snapshot =
                    self.controller.snapshot.as_mut().filter(|s| s.generation() == generation);
                let verdict = snapshot.and_then(|s| s.part(rank, Err(String::from("no part"))));
                self.tell(verdict);
                self.snapshot_over();
            }
            FromNode::Copied { rank, generation, to } => {
                // Of whichever incarnation it is: it is known.
                let at = vec![to];
                self.input(Input::Stored { rank, incarnation: 0, generation, at });
            }
            FromNode::NotCopied { rank, generation, to } => {
                self.input(Input::NotCopied { rank, generation, to });
            }
            FromNode::Died { rank, incarnation } => {
                self.input(Input::RankDied { rank, incarnation });
            }
            FromNode::Done { rank, incarnation } => {
                if incarnation == self.controller.planner.incarnation(rank) {
                    self.input(Input::RankDone { rank });
                    self.controller.done.insert(rank);
                    self.over = self.controller.done.len() == self.plan.len();
                }
            }
            FromNode::Vaulted { round, images } => self.heard_round(from, round, images),
            FromNode::Guarded { round } => self.input(Input::Guarded { from, round }),
            FromNode::Killed | FromNode::Joined(_) => {}
        }
    }

    fn tell(&mut self, verdict: Option<Verdict>) {
        let Some((verdict, snapshot)) = verdict.zip(self.controller.snapshot.as_ref()) else {
            return;
        };
        let (generation, nodes) = (snapshot.generation(), snapshot.nodes());
        for node in nodes {
            self.say_to(node, ToNode::Verdict { generation, verdict });
        }
    }

    fn snapshot_over(&mut self) {
        let over = |s: &mut CoordinatedSnapshot| s.is_over() && s.failed().is_some();
        let Some(snapshot) = self.controller.snapshot.take_if(over) else { return };
        self.report.void += 1;
        self.let_go_on(snapshot.generation());
        self.controller.due = self.now + self.controller.every;
        self.input(Input::Void { generation: snapshot.generation() });
    }

    /// Begins a snapshot if one is due.
    pub fn schedule(&mut self) {
        self.at(100, Event::Schedule);
        if self.is_running() {
            self.dismiss_early();
        }
        if matches!(self.controller.phase, Phase::Running) {
            self.begin_round();
        }
        let c = &self.controller;
        let ready = matches!(c.phase, Phase::Running) && c.planner.placed() && c.done.is_empty();
        let leaves = ready && self.tend_leaves();
        let c = &self.controller;
        if !ready || c.snapshot.is_some() || c.held.is_some() || (self.now < c.due && !leaves) {
            if ready && self.random.one_in(8) {
                self.input(Input::Tick);
            }
            return;
        }
        self.controller.last += 1;
        let generation = self.controller.last;
        let mut homes = BTreeMap::new();
        let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
        for rank in 0..self.ranks() {
            let planner = &self.controller.planner;
            let Some(home) = planner.home(rank) else { return };
            let (incarnation, partner) = (planner.incarnation(rank), planner.partner(rank));
            let part = Part { rank, incarnation, partner };
            homes.insert(rank, home.node);
            parts.entry(home.node).or_default().push(part);
        }
        self.trace(|| format!("set {generation}"));
        self.fault_nearby(12);
        self.controller.snapshot = Some(CoordinatedSnapshot::new(generation, homes));
        self.controller.held = leaves.then_some(generation);
        self.controller.stands = false;
        for (node, parts) in parts {
            self.say_to(node, ToNode::Snapshot { generation, parts, hold: leaves });
        }
    }
}
