//! What goes wrong, drawn from the seed.

use super::world::{Event, World};
use eyrie_protocol::membership::Member;

impl World {
    pub fn fault(&mut self) {
        if self.faults_left == 0 || self.over {
            return;
        }
        self.faults_left -= 1;
        self.report.faults += 1;
        match self.random.below(16) {
            0..=3 => self.break_one(false),
            4..=5 => self.break_one(true),
            6..=7 => self.double(),
            8 => self.stall(),
            9 => self.tighten(),
            10..=11 => self.kill_rank(),
            12 => self.kill_node(),
            13 => self.cut_off(),
            14 => self.move_rank(),
            _ => {
                self.double();
                self.kill_rank();
                self.break_one(true);
            }
        }
        let soon = self.random.one_in(3);
        let after = self.random.below(if soon { 60 } else { 1500 });
        self.at(after, Event::Fault);
    }

    fn pick_connection(&mut self) -> Option<usize> {
        let all: Vec<usize> = (0..self.connections.len())
            .filter(|c| self.connections[*c].open == [true; 2] && !self.connections[*c].broken)
            .collect();
        self.random.pick(&all)
    }

    /// A connection breaks at any byte; half open: one end notices much later.
    fn break_one(&mut self, half_open: bool) {
        let Some(connection) = self.pick_connection() else { return };
        let ends = self.connections[connection].ends;
        self.trace(|| format!("FAULT {} -> {} breaks", ends[0], ends[1]));
        self.report.broken += 1;
        self.report.half_open += u64::from(half_open);
        let late = self.random.below(2) as usize;
        self.break_at(connection, [0, 1].map(|side| half_open && side == late));
    }

    /// One node calls another a second time while the first connection is read.
    fn double(&mut self) {
        let Some(connection) = self.pick_connection() else { return };
        let [caller, called] = self.connections[connection].ends;
        self.trace(|| format!("FAULT {caller} calls {called} a second time"));
        self.report.doubled += 1;
        self.call(caller, called);
        if self.random.one_in(2) {
            self.stall_one(connection);
        }
    }

    fn stall(&mut self) {
        if let Some(connection) = self.pick_connection() {
            self.stall_one(connection);
        }
    }

    fn stall_one(&mut self, connection: usize) {
        self.connections[connection].stalled_until = self.now + 100 + self.random.below(2000);
    }

    /// A node has no room for what comes, for a while.
    fn tighten(&mut self) {
        let all: Vec<Member> = self.nodes.keys().copied().collect();
        let Some(at) = self.random.pick(&all) else { return };
        self.trace(|| format!("FAULT {at} has no room"));
        self.nodes.get_mut(&at).into_iter().for_each(|node| node.tight = true);
        let after = 50 + self.random.below(800);
        self.at(after, Event::Roomy { at });
    }

    /// Ranks that run on nodes that the controller reaches.
    fn running(&self) -> Vec<(Member, u32, u32)> {
        let live = self.nodes.values().filter(|n| self.is_reached(n.own));
        live.flat_map(|n| {
            let all = n.processes.iter();
            all.map(|(rank, p)| (n.own, *rank, p.incarnation)).collect::<Vec<_>>()
        })
        .filter(|(at, rank, incarnation)| {
            let home = self.controller.homes[*rank as usize] == at.node;
            home && self.controller.incarnations[*rank as usize] == *incarnation
        })
        .collect()
    }

    fn kill_rank(&mut self) {
        let running = self.running();
        let Some((at, rank, incarnation)) = self.random.pick(&running) else { return };
        self.trace(|| format!("FAULT rank {rank} on {at} dies"));
        self.with(at, |world, node| node.die(world, rank));
        let after = 20 + self.random.below(300);
        self.at(after, Event::Restart { rank, incarnation });
    }

    /// Members that the job can do without.
    fn victims(&self) -> Vec<Member> {
        let reached = |m: &&Member| self.is_reached(**m);
        let all: Vec<Member> = self.controller.members.iter().filter(reached).copied().collect();
        if all.len() > 2 { all } else { Vec::new() }
    }

    fn kill_node(&mut self) {
        let victims = self.victims();
        let Some(member) = self.random.pick(&victims) else { return };
        self.trace(|| format!("FAULT {member} dies"));
        self.report.nodes_lost += 1;
        self.perish(member);
        let after = 20 + self.random.below(600);
        self.at(after, Event::Suspect { member });
        self.replace();
    }

    /// The controller and a node do not reach each other: it is declared dead, and goes on.
    fn cut_off(&mut self) {
        let victims = self.victims();
        let Some(member) = self.random.pick(&victims) else { return };
        self.trace(|| format!("FAULT {member} is cut off"));
        self.report.cut_off += 1;
        self.cut.insert(member);
        let after = 20 + self.random.below(600);
        self.at(after, Event::Suspect { member });
        let after = after + 500 + self.random.below(4000);
        self.at(after, Event::Perish { member });
        self.replace();
    }

    fn replace(&mut self) {
        if !self.random.one_in(4) {
            let after = 100 + self.random.below(2000);
            self.at(after, Event::Join);
        }
    }

    /// A node ends with all that is on it.
    pub fn perish(&mut self, member: Member) {
        if self.nodes.remove(&member).is_none() {
            return;
        }
        for connection in 0..self.connections.len() {
            if let Some(side) = self.connections[connection].ends.iter().position(|m| *m == member)
            {
                let late = self.random.one_in(4);
                self.break_at(connection, [late; 2]);
                self.connections[connection].open[side] = false;
            }
        }
    }

    fn move_rank(&mut self) {
        let (running, members) = (self.running(), self.controller.members.clone());
        let Some((at, rank, incarnation)) = self.random.pick(&running) else { return };
        let others: Vec<Member> = members.into_iter().filter(|m| *m != at).collect();
        let Some(to) = self.random.pick(&others) else { return };
        let image = self.with(at, |world, node| {
            let image = node.image(rank);
            node.die(world, rank);
            image
        });
        let Some(image) = image.flatten() else { return };
        self.trace(|| format!("FAULT rank {rank} moves from {at} to {to}"));
        self.report.moved += 1;
        self.moves(rank, incarnation, image, to);
    }
}
