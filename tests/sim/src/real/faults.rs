//! What goes wrong around the real controller, and when.

use crate::real::fate::Fate;
use crate::real::host::Simulation;
use crate::real::{Faults, Happens};
use crate::types::{Endpoint, Event};
use eyrie_protocol::membership::Member;

/// A connection that stands still does so for so long.
const STALLED: u64 = 1_500;
/// A cluster dies when all is whole, or after so many looks.
const LOOKS: u32 = 100;
/// Once in so many times that an image is found to come back from the controller dies.
const FOUND: u64 = 15;
/// Once in so many times that an image has come into the vault the node of its rank dies.
const VAULTED: u64 = 8;

impl Simulation {
    /// Something delicate begins: once in `n` times a fault comes right now.
    pub fn fault_nearby(&mut self, n: u64) {
        if self.world.faults_left > 0 && self.world.random.one_in(n) {
            let after = self.world.random.below(400);
            self.world.at(after, Event::Real(Happens::Fault));
        }
    }

    /// All ranks go back: often another node dies while they do.
    pub fn loss_nearby(&mut self) {
        if self.rollbacks == 0 && !self.world.together && !self.setup.small {
            // By then there may have been as many as there were to be.
            self.world.faults_left = self.world.faults_left.max(1);
        }
        match self.world.random.below(4) {
            0 => self.fault_nearby(1),
            1 | 2 => {
                let after = self.world.random.below(120);
                self.world.at(after, Event::Real(Happens::Loss));
            }
            _ => {}
        }
    }

    /// It does.
    pub fn loss(&mut self) {
        if self.world.faults_left > 0 && !self.ended() {
            self.begin_fault();
            self.kill_node();
        }
    }

    /// This one does, if it is there.
    pub fn lose_this(&mut self, member: Member) {
        if self.world.faults_left > 0 && !self.ended() && self.setup.faults >= Faults::Nodes {
            self.begin_fault();
            self.kill_this_node(Some(member));
        }
    }

    /// An image counts that is in the vault: now and then the node of its rank dies, so that it is
    /// read out of there. That comes as a fault of its own until one was read, as by then there may
    /// have been as many as there were to be; not in runs that nothing disturbs.
    pub fn loss_of_vaulted(&mut self, rank: u32, generation: u32) {
        let world = &mut self.world;
        let disturbed = world.faults_left > 0 || world.report.faults > 0;
        let all = self.setup.faults == Faults::All && !self.setup.small;
        let wanted = all && disturbed && world.report.unvaulted == 0;
        if !wanted || !world.vault.contains_key(&(rank, generation)) {
            return;
        }
        let home = world.controller.planner.home(rank);
        let Some(member) = home.filter(|_| world.random.one_in(VAULTED)) else { return };
        world.faults_left += 1;
        let after = world.random.below(600);
        world.at(after, Event::Real(Happens::LoseThis { member }));
    }

    fn begin_fault(&mut self) {
        self.sync();
        self.world.count_anew();
        self.world.faults_left -= 1;
        self.world.report.faults += 1;
    }

    /// Breaks something.
    pub fn fault(&mut self) {
        if self.world.faults_left == 0 || self.ended() {
            return;
        }
        self.begin_fault();
        match self.setup.faults {
            Faults::None => {}
            Faults::Ranks => self.kill_rank(),
            Faults::Nodes if self.world.random.one_in(2) => self.kill_rank(),
            Faults::Nodes => self.kill_node(),
            Faults::All if self.world.sites.are_known() && self.world.random.one_in(3) => {
                self.world.at(0, Event::Real(Happens::LoseCluster { looks: LOOKS }));
            }
            // With its snapshots a job is over that has lost more than it bears.
            Faults::All if self.setup.fallback && !self.world.random.one_in(4) => {
                match self.world.random.one_in(2) {
                    true => self.kill_rank(),
                    false => self.kill_controller(),
                }
            }
            Faults::All => self.fault_of_one(),
        }
        let after = if self.world.random.one_in(3) { 50 } else { 4000 };
        let after = self.world.random.below(after);
        self.world.at(after, Event::Real(Happens::Fault));
    }

    /// All nodes of a cluster die, if another one is left: as one, if copies are outside. That is
    /// waited for a while, and that there is something to lose.
    pub fn lose_cluster(&mut self, looks: u32) {
        if self.ended() {
            return;
        }
        self.sync();
        let planner = &self.world.controller.planner;
        let counts = self.newest.iter().filter(|(_, image)| **image > 0);
        let home = |(rank, image): (&u32, &u32)| Some(((*rank, *image), planner.home(*rank)?));
        let images: Vec<((u32, u32), Member)> = counts.filter_map(home).collect();
        let is_ripe = images.len() * 2 >= self.world.ranks() as usize && self.world.is_whole();
        if looks > 0 && !is_ripe {
            let after = 1 + self.world.random.below(30);
            return self.world.at(after, Event::Real(Happens::LoseCluster { looks: looks - 1 }));
        }
        self.world.count_anew();
        // One that has all copies of an image.
        let sites = &self.world.sites;
        let all_near = |(image, home): &&((u32, u32), Member)| {
            let mut holders = self.world.nodes.iter().filter(|(_, n)| n.disk.contains_key(image));
            holders.all(|(m, _)| sites.cluster(m.node) == sites.cluster(home.node))
        };
        let near = images.iter().find(all_near).copied();
        let picked = near.or_else(|| self.world.random.pick(&images));
        let cluster = picked.map_or(0, |(_, home)| self.world.sites.cluster(home.node));
        let there = |m: &&Member| self.world.sites.cluster(m.node) == cluster;
        let (lost, left): (Vec<&Member>, Vec<&Member>) = self.world.nodes.keys().partition(there);
        if lost.is_empty() || left.is_empty() {
            return self.fault_of_one();
        }
        let lost: Vec<Member> = lost.into_iter().copied().collect();
        let deaths = self.world.truth.deaths;
        let one = self.world.is_copied_outside(&lost);
        self.world.trace(|| format!("FAULT cluster {cluster} is lost, as one: {one}"));
        lost.into_iter().for_each(|member| self.lose(member));
        if one {
            self.world.truth.deaths = deaths + 1;
        }
    }

    /// A rank dies, as a part of a fault that was counted.
    pub fn lose_rank(&mut self, rank: Option<u32>) {
        if self.ended() {
            return;
        }
        let Some(rank) = rank else { return self.kill_rank() };
        let runs = |n: &(&Member, &crate::node::Node)| {
            n.1.procs.get(&rank).is_some_and(|process| !process.done)
        };
        let home = self.world.nodes.iter().find(runs).map(|(at, _)| *at);
        home.into_iter().for_each(|at| self.kill_this_rank(at, rank));
    }

    /// A rank at one end of a link that has a mate at the other.
    fn mate_over(&self, a: Member, b: Member) -> Option<u32> {
        let at = |m: Member| self.world.nodes.get(&m).into_iter().flat_map(|n| n.procs.keys());
        let has_mate = |rank: &&u32| at(b).any(|mate| self.world.is_inner((**rank, *mate, 0)));
        at(a).find(has_mate).copied()
    }

    /// The controller dies in what it does now, or next: once in so many times.
    pub fn controller_nearby(&mut self) {
        let all = self.setup.faults == Faults::All && self.fate.is_none();
        if all && self.world.faults_left > 0 && !self.ended() && self.world.random.one_in(FOUND) {
            self.begin_fault();
            self.kill_controller();
        }
    }

    /// It does, whatever it does next.
    pub(super) fn lose_controller(&mut self) {
        if self.fate.is_none() && !self.ended() {
            self.world.faults_left = self.world.faults_left.max(1);
            self.begin_fault();
            self.kill_controller();
        }
    }

    fn fault_of_one(&mut self) {
        match self.world.random.below(20) {
            0..=2 => self.kill_rank(),
            3..=5 => self.kill_node(),
            6 => {
                self.kill_node();
                self.kill_node();
            }
            7 => self.lose_connection(),
            8 => self.world.cut_link(),
            9 => self.world.double_link(),
            10 => {
                self.world.damage_image();
                // With it a snapshot may be lost, as with a node.
                self.world.truth.deaths += u64::from(self.world.together);
            }
            11..=14 => self.kill_controller(),
            15 => self.stall_replica(),
            18 | 19 => self.stall_link(),
            16 => self.lose_connection(),
            _ => {
                self.kill_rank();
                self.kill_rank();
                self.kill_node();
            }
        }
    }

    /// What a node records does not come to who is to hold it for a while, and then the node dies.
    fn stall_replica(&mut self) {
        let of = |(at, n): (&Member, &crate::node::Node)| {
            let link = |to: Member| n.peers.get(&to).map(|peer| (*at, peer.conn));
            n.gate.replicas().filter_map(link).collect::<Vec<_>>()
        };
        let all: Vec<(Member, usize)> = self.world.nodes.iter().flat_map(of).collect();
        let Some((member, conn)) = self.world.random.pick(&all) else { return };
        let c = &mut self.world.conns[conn];
        if c.blocked || c.broken {
            return;
        }
        c.blocked = true;
        self.world.trace(|| format!("FAULT what {member} records is late"));
        self.world.at(STALLED, Event::Heal { conn });
        let after = 50 + self.world.random.below(600);
        // It comes as one fault.
        self.world.faults_left += 1;
        self.world.at(after, Event::Real(Happens::LoseThis { member }));
    }

    /// What two nodes say to each other comes late, and meanwhile a rank dies.
    fn stall_link(&mut self) {
        let links = self.world.links();
        let inner = |l: &&(Member, Member, usize)| self.mate_over(l.0, l.1).is_some();
        let inner: Vec<_> = links.iter().filter(inner).copied().collect();
        let links = if inner.is_empty() { links } else { inner };
        let Some((a, b, conn)) = self.world.random.pick(&links) else { return };
        let rank = self.mate_over(a, b);
        let c = &mut self.world.conns[conn];
        if c.blocked || c.broken {
            return;
        }
        c.blocked = true;
        self.world.trace(|| format!("FAULT what {a} and {b} say to each other is late"));
        self.world.at(STALLED, Event::Heal { conn });
        let after = self.world.random.below(400);
        self.world.at(after, Event::Real(Happens::LoseRank { rank }));
    }

    fn kill_rank(&mut self) {
        let live = |(at, n): (&Member, &crate::node::Node)| {
            let procs = n.procs.iter().filter(|p| !p.1.done);
            procs.map(|p| (*at, *p.0)).collect::<Vec<_>>()
        };
        let all: Vec<(Member, u32)> = self.world.nodes.iter().flat_map(live).collect();
        let Some((at, rank)) = self.world.random.pick(&all) else { return };
        self.kill_this_rank(at, rank);
    }

    pub fn kill_this_rank(&mut self, at: Member, rank: u32) {
        self.world.trace(|| format!("FAULT rank {rank} on {at} dies"));
        self.world.hurt([rank]);
        self.world.kill_ranks(at, &[rank]);
    }

    /// Somebody who takes part in a checkpoint of a rank with a router dies: the rank, its node,
    /// its router or the controller.
    pub fn strike(&mut self, rank: u32) {
        if self.world.faults_left == 0 || self.ended() || self.setup.faults != Faults::All {
            return;
        }
        self.begin_fault();
        let runs = |n: &(&Member, &crate::node::Node)| n.1.procs.contains_key(&rank);
        let home = self.world.nodes.iter().find(runs).map(|n| *n.0);
        match self.world.random.below(4) {
            0 => home.into_iter().for_each(|at| self.kill_this_rank(at, rank)),
            1 => self.kill_this_node(self.world.router_of(rank)),
            2 => self.kill_this_node(home),
            _ => self.kill_controller(),
        }
    }

    pub fn kill_this_node(&mut self, member: Option<Member>) {
        let there = member.filter(|m| self.world.nodes.contains_key(m));
        if let Some(member) = there.filter(|_| self.world.nodes.len() > 1) {
            self.world.trace(|| format!("FAULT {member} dies"));
            self.lose(member);
        }
    }

    fn kill_node(&mut self) {
        let victims: Vec<Member> = self.world.nodes.keys().copied().collect();
        if victims.len() < 2 {
            return;
        }
        let Some(member) = self.world.random.pick(&victims) else { return };
        self.world.trace(|| format!("FAULT {member} dies"));
        self.lose(member);
    }

    /// A node dies: its processes and its storage are gone, and the controller may be told.
    pub fn lose(&mut self, member: Member) {
        self.world.truth.deaths += 1;
        self.world.report.node_deaths += 1;
        let ranks = self.world.ranks_at(member);
        self.world.hurt(ranks);
        self.world.perish(member);
        if self.setup.faults == Faults::All && !self.world.random.one_in(4) {
            let after = 500 + self.world.random.below(3_000);
            self.world.at(after, Event::Real(Happens::Grow));
        }
        let (node, deaths) = (member.node, self.world.report.controllers);
        let after = 5 + self.world.random.below(600);
        self.world.at(after, Event::Real(Happens::Gone { node, deaths }));
    }

    fn lose_connection(&mut self) {
        let victims: Vec<Member> = self.world.nodes.keys().copied().collect();
        if let Some(member) = self.world.random.pick(&victims).filter(|_| victims.len() > 1) {
            self.lose_this_connection(member);
        }
    }

    /// The connection of a node to the controller breaks; for the controller it is lost. False: it
    /// has none.
    pub fn lose_this_connection(&mut self, member: Member) -> bool {
        let conn = self.world.nodes[&member].conn;
        let open = |c: &crate::net::Conn| c.side(Endpoint::Controller).is_some() && !c.broken;
        if self.controller.is_none() || !open(&self.world.conns[conn]) {
            return false;
        }
        self.world.trace(|| format!("FAULT the connection of {member} breaks"));
        // Half of them go on until they are cleared away: those that call earlier are told to go.
        let away = self.world.random.below(2) * self.world.random.below(4_000);
        let until = self.world.now + away;
        self.world.nodes.entry(member).and_modify(|node| node.real.away_until = until);
        self.world.truth.deaths += 1;
        self.world.report.node_deaths += 1;
        let ranks = self.world.ranks_at(member);
        self.world.hurt(ranks);
        self.world.cut(conn);
        true
    }

    fn kill_controller(&mut self) {
        if self.controller.is_none() {
            return;
        }
        self.fate = self.world.random.pick(&Fate::ALL);
        let fate = self.fate;
        self.world.trace(|| format!("FAULT the controller dies in its next turn: {fate:?}"));
    }
}
