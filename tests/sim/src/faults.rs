//! What goes wrong, and when: drawn from the seed, with a liking for recoveries and checkpoints.

use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;

impl World {
    /// Something delicate begins: once in `n` times a fault comes right now.
    pub fn fault_nearby(&mut self, n: u64) {
        if self.faults_left > 0 && self.random.one_in(n) {
            let after = self.random.below(900);
            self.at(after, Event::Fault);
        }
    }

    /// Breaks something.
    pub fn fault(&mut self) {
        if self.faults_left == 0 || self.over {
            return;
        }
        self.count_anew();
        self.faults_left -= 1;
        self.report.faults += 1;
        let site = self.sites.are_known() && self.random.one_in(3);
        if !site || !self.lose_cluster() {
            self.fault_of_one();
        }
        let after = if self.random.one_in(3) { 50 } else { 4000 };
        let after = self.random.below(after);
        self.at(after, Event::Fault);
    }

    fn fault_of_one(&mut self) {
        match self.random.below(15) {
            0..=2 => self.kill_rank(),
            3..=5 => self.kill_node(),
            6 => {
                self.kill_node();
                self.kill_node();
            }
            7 => self.cut_off(),
            8 => self.cut_link(),
            9 => self.double_link(),
            10 => self.damage_image(),
            11..=13 if self.journal.is_some() => self.kill_controller(),
            _ => {
                self.kill_rank();
                self.kill_rank();
                self.kill_node();
            }
        }
    }

    fn victims(&self) -> Vec<Member> {
        self.nodes.keys().copied().collect()
    }

    fn kill_rank(&mut self) {
        let live = |(at, n): (&Member, &crate::node::Node)| {
            let procs = n.procs.iter().filter(|p| !p.1.done);
            procs.map(|p| (*at, *p.0, p.1.incarnation)).collect::<Vec<_>>()
        };
        let all: Vec<(Member, u32, u32)> = self.nodes.iter().flat_map(live).collect();
        let Some((at, rank, incarnation)) = self.random.pick(&all) else { return };
        self.trace(|| format!("FAULT rank {rank} on {at} dies"));
        self.truth.hurt.insert(self.slot(rank));
        if let Some(node) = self.node(at) {
            node.procs.remove(&rank);
        }
        self.tell(at, FromNode::RankDied { rank, incarnation });
    }

    fn kill_node(&mut self) {
        let victims = self.victims();
        if victims.len() < 2 {
            return;
        }
        let Some(member) = self.random.pick(&victims) else { return };
        self.trace(|| format!("FAULT {member} dies"));
        self.count_death();
        self.perish(member);
    }

    pub fn count_death(&mut self) {
        self.truth.deaths += 1;
        self.report.node_deaths += 1;
        if !self.random.one_in(4) {
            let after = 500 + self.random.below(3000);
            self.at(after, Event::Join);
        }
    }

    /// A node ends: its processes, segment and storage are gone.
    pub fn perish(&mut self, member: Member) {
        if self.nodes.remove(&member).is_none() {
            return;
        }
        self.trace(|| format!("{member} is gone"));
        let ends = |c: &&usize| self.conns[**c].side(Endpoint::Node(member)).is_some();
        let all: Vec<usize> = (0..self.conns.len()).collect();
        let own: Vec<usize> = all.iter().filter(ends).copied().collect();
        for conn in own {
            self.conns[conn].blocked = false;
            if !self.conns[conn].broken {
                self.cut(conn);
            }
        }
    }

    /// The controller no longer reaches a node, which goes on for a while.
    fn cut_off(&mut self) {
        let victims = self.victims();
        if victims.len() < 2 {
            return;
        }
        if let Some(member) = self.random.pick(&victims) {
            self.cut_this_off(member);
        }
    }

    /// Whether it had a controller.
    pub fn cut_this_off(&mut self, member: Member) -> bool {
        let Some(conn) = self.controller.conns.get(&member).copied() else { return false };
        self.trace(|| format!("FAULT {member} is cut off"));
        self.count_death();
        self.conns[conn].blocked = true;
        let after = 100 + self.random.below(400);
        self.at(after, Event::Suspect { member });
        let after = after + 200 + self.random.below(3000);
        self.at(after, Event::Perish { member, conn });
        true
    }

    /// A node that was cut off gives the controller up, if it was with no other one since.
    pub fn despair(&mut self, member: Member, conn: usize) {
        let own = |c: &crate::net::Conn| {
            c.side(Endpoint::Node(member)).is_some() && c.side(Endpoint::Controller).is_some()
        };
        if !self.conns[conn + 1..].iter().any(own) {
            self.perish(member);
        }
    }

    pub fn links(&self) -> Vec<(Member, Member, usize)> {
        let of = |(at, n): (&Member, &crate::node::Node)| {
            n.peers.iter().map(|(p, link)| (*at, *p, link.conn)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of).collect()
    }

    pub fn cut_link(&mut self) {
        let links = self.links();
        let Some((a, b, conn)) = self.random.pick(&links) else { return };
        self.trace(|| format!("FAULT the link of {a} and {b} breaks"));
        self.cut(conn);
    }

    /// A second connection between two nodes, while the first is still being read.
    pub fn double_link(&mut self) {
        let links = self.links();
        let Some((a, b, conn)) = self.random.pick(&links) else { return };
        self.trace(|| format!("FAULT {a} and {b} connect a second time"));
        self.connect(a, b);
        if self.random.one_in(2) {
            self.cut(conn);
        }
    }

    /// One copy of an image turns out to be torn, or all are.
    pub fn damage_image(&mut self) {
        let of = |(at, n): (&Member, &crate::node::Node)| {
            n.disk.keys().map(|k| (*at, *k)).collect::<Vec<_>>()
        };
        let all: Vec<(Member, (u32, u32))> = self.nodes.iter().flat_map(of).collect();
        if self.nodes.values().any(|n| n.disk.values().any(|s| s.bad)) {
            return;
        }
        let Some((at, image)) = self.random.pick(&all) else { return };
        self.trace(|| format!("FAULT image {} of rank {} on {at} is damaged", image.1, image.0));
        let all = self.real && self.random.one_in(2);
        self.damaged.insert(image);
        for (_, node) in self.nodes.iter_mut().filter(|n| all || *n.0 == at) {
            let stored = node.disk.get_mut(&image);
            stored.into_iter().for_each(|stored| stored.bad = true);
        }
    }
}
