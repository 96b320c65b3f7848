//! What breaks at nodes and between them. When that comes: `real::faults`.

use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;

impl World {
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
        let all = self.random.one_in(2);
        self.damaged.insert(image);
        for (_, node) in self.nodes.iter_mut().filter(|n| all || *n.0 == at) {
            let stored = node.disk.get_mut(&image);
            stored.into_iter().for_each(|stored| stored.bad = true);
        }
    }
}
