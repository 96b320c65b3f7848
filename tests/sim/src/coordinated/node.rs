//! A simulated node whose ranks go back with all others.

use super::world::{Mistake, World};
use super::*;
use eyrie_protocol::recovery::VAULT;

impl World {
    /// A node says something in this life of its, as soon as it has a controller.
    pub fn say(&mut self, at: Member, said: FromNode) {
        let Some(node) = self.nodes.get_mut(&at.node) else { return };
        let (line, frame) = (node.line, node.session.number((at, said)));
        self.send(Packet::FromNode { node: at.node, line, frame });
    }

    pub fn node_hears(&mut self, number: u32, said: ToNode) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let own = node.own;
        match said {
            ToNode::Members(members) => node.members = members,
            ToNode::Homes(homes) => {
                let before = std::mem::replace(&mut node.homes, homes);
                let moved = before.iter().zip(&node.homes).map(|(a, b)| a != b);
                let moved: Vec<u32> =
                    (0..).zip(moved).filter(|m| m.1).map(|(rank, _)| rank).collect();
                let here: Vec<u32> = node.procs.keys().copied().collect();
                for (rank, src) in here.iter().flat_map(|r| moved.iter().map(move |m| (*r, *m))) {
                    self.want(number, (src, rank));
                    self.pump(number, (rank, src));
                }
            }
            ToNode::Find(order) => {
                node.orders.insert(order.rank, order.clone());
                self.find(order, own);
            }
            ToNode::Rejoin(turn) => self.say(own, FromNode::Rejoined(turn)),
            ToNode::Start { rank, incarnation } => self.start(rank, incarnation, own),
            ToNode::Snapshot { generation, parts, hold } => {
                self.snapshot_begins(own, generation, parts, hold);
            }
            ToNode::Verdict { generation, verdict } => self.verdict(number, generation, verdict),
            ToNode::Copy { rank, generation, to } => {
                let after = 30 + self.random.below(500);
                self.at(after, Event::Brought { at: own, to, rank, generation });
            }
            ToNode::Remove { rank, generation } => drop(node.disk.remove(&(rank, generation))),
            ToNode::Vault { round, images } => self.encode(own, round, &images),
            ToNode::Kill => {
                node.procs.clear();
                node.orders.clear();
                node.found.clear();
                node.snapshot = None;
                self.say(own, FromNode::Killed);
            }
            ToNode::Leaving { round } => self.say(own, FromNode::Guarded { round }),
            ToNode::GoOn => {
                node.procs.values_mut().for_each(|p| p.stands = false);
                self.wake_all(number);
            }
            ToNode::Depart => drop(self.nodes.remove(&number)),
            ToNode::Reset(member) => {
                node.disk.clear();
                self.renew(number, member);
                self.forget_in_vault(number);
            }
            ToNode::Renew(member) => self.renew(number, member),
        }
    }

    /// A node begins anew, with what it has stored.
    fn renew(&mut self, number: u32, member: Member) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let (disk, session) = (std::mem::take(&mut node.disk), std::mem::take(&mut node.session));
        let line = node.line;
        *node = Node { disk, session, line, ..Node::new(member, self.plan.len()) };
        self.say(member, FromNode::Joined(member));
    }

    /// Has the image of a rank at hand.
    fn find(&mut self, order: RestoreOrder, at: Member) {
        let RestoreOrder { rank, incarnation, generation, from } = order;
        let Some(node) = self.nodes.get_mut(&at.node) else { return };
        let good = node.disk.get(&(rank, generation)).filter(|s| !s.bad);
        let image = match (good, from) {
            _ if generation == 0 => None,
            (Some(stored), from) => {
                let image = Rc::clone(&stored.image);
                if from.is_some() {
                    // A copy that came too late to be heard of: it is there all the same.
                    self.say(at, FromNode::Fetched { rank, incarnation, generation });
                }
                Some(image)
            }
            (None, Some(_)) => {
                let after = 30 + self.random.below(500);
                return self.at(after, Event::Fetched { at, order });
            }
            (None, None) => {
                node.orders.remove(&rank);
                return self.say(at, FromNode::ImageBad { rank, incarnation, generation, at });
            }
        };
        if let Some(node) = self.nodes.get_mut(&at.node) {
            node.found.insert(rank, image);
        }
        self.say(at, FromNode::Found { rank, incarnation, generation });
    }

    /// Starts a rank whose image is at hand.
    fn start(&mut self, rank: u32, incarnation: u32, at: Member) {
        let Some(node) = self.nodes.get_mut(&at.node) else { return };
        if node.orders.get(&rank).is_none_or(|o| o.incarnation != incarnation) {
            return;
        }
        let Some(image) = node.found.remove(&rank) else { return };
        node.orders.remove(&rank);
        self.check_alone(rank);
        let ranks = self.plan.len();
        let state = image.as_ref().map_or(State::new(ranks), |i| i.state.clone());
        let Some(node) = self.nodes.get_mut(&at.node) else { return };
        for (dst, log) in image.iter().flat_map(|i| &i.log) {
            node.logs.insert((rank, *dst), log.clone());
        }
        let proc = Proc { incarnation, state, stands: false, done: false, awake: false };
        node.procs.insert(rank, proc);
        self.trace(|| format!("{at} starts rank {rank} incarnation {incarnation}"));
        self.say(at, FromNode::Started { rank, incarnation });
        self.wake_all(at.node);
        for other in 0..self.ranks() {
            self.want(at.node, (other, rank));
            self.pump(at.node, (rank, other));
        }
    }

    pub fn fetched(&mut self, at: Member, order: RestoreOrder) {
        let Some(from) = order.from else { return };
        let key = (order.rank, order.generation);
        let stored = if from == VAULT {
            let Some(read) = self.unvault(at, &order) else { return };
            read.map(|image| Stored { image, bad: false })
        } else {
            let Some(source) = self.nodes.get(&from.node) else { return };
            source.disk.get(&key).filter(|s| !s.bad).cloned()
        };
        let Some(node) = self.nodes.get_mut(&at.node).filter(|n| n.own == at) else { return };
        let current = node.orders.get(&order.rank).map(|o| o.incarnation);
        if current != Some(order.incarnation) {
            return;
        }
        let RestoreOrder { rank, incarnation, generation, .. } = order;
        let Some(stored) = stored else {
            node.orders.remove(&rank);
            let said = FromNode::ImageBad { rank, incarnation, generation, at: from };
            return self.say(at, said);
        };
        node.disk.insert(key, stored);
        self.say(at, FromNode::Fetched { rank, incarnation, generation });
        self.find(RestoreOrder { from: None, ..order }, at);
    }

    pub fn brought(&mut self, at: Member, to: Member, rank: u32, generation: u32) {
        let key = (rank, generation);
        let live = |n: &&Node, member: Member| n.own == member;
        let Some(from) = self.nodes.get(&at.node).filter(|n| live(n, at)) else { return };
        let stored = from.disk.get(&key).cloned();
        if stored.as_ref().is_some_and(|s| s.bad) {
            let said = FromNode::ImageBad { rank, incarnation: 0, generation, at };
            return self.say(at, said);
        }
        let target = self.nodes.get_mut(&to.node).filter(|n| n.own == to);
        let said = match target.zip(stored) {
            Some((target, stored)) => {
                target.disk.insert(key, stored);
                FromNode::Copied { rank, generation, to }
            }
            None => FromNode::NotCopied { rank, generation, to },
        };
        self.say(at, said);
    }

    fn snapshot_begins(&mut self, own: Member, generation: u32, parts: Vec<Part>, hold: bool) {
        let Some(node) = self.nodes.get_mut(&own.node) else { return };
        let runs = |p: &Part| {
            let proc = node.procs.get(&p.rank);
            proc.is_some_and(|r| r.incarnation == p.incarnation && !r.done)
        };
        let lacks = parts.iter().any(|p| !runs(p));
        let left = parts.iter().map(|p| p.rank).collect();
        let images = BTreeMap::new();
        node.snapshot = Some(NodeSnapshot { generation, parts: parts.clone(), left, images, hold });
        if lacks {
            return self.void(own.node);
        }
        let late = self.random.one_in(40);
        for Part { rank, incarnation, .. } in parts {
            let after = self.random.below(80);
            let node = own.node;
            self.at(after, Event::Stand { node, generation, rank, incarnation, late });
        }
    }

    /// The ranks of a node go on without a checkpoint.
    fn void(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(snapshot) = node.snapshot.take() else { return };
        let own = node.own;
        node.procs.values_mut().for_each(|p| p.stands = false);
        for part in snapshot.parts {
            let (rank, generation) = (part.rank, snapshot.generation);
            self.say(own, FromNode::NoPart { rank, generation });
        }
        self.wake_all(number);
    }

    pub fn stand(&mut self, number: u32, generation: u32, rank: u32, inc: u32, late: bool) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(snapshot) = node.snapshot.as_mut().filter(|s| s.generation == generation) else {
            return;
        };
        let proc = node.procs.get_mut(&rank).filter(|p| p.incarnation == inc && !p.done);
        let Some(proc) = proc.filter(|_| !late) else { return self.void(number) };
        proc.stands = true;
        snapshot.left.remove(&rank);
        if !snapshot.left.is_empty() {
            return;
        }
        for part in &snapshot.parts {
            let Some(proc) = node.procs.get(&part.rank) else { continue };
            let (state, log) = (proc.state.clone(), logs_of(&node.logs, part.rank));
            snapshot.images.insert(part.rank, Image { state, log });
        }
        let own = node.own;
        self.say(own, FromNode::Stands { generation });
        if self.makes(Mistake::NoBarrier) {
            self.verdict(number, generation, Verdict::Keep);
        }
    }

    fn verdict(&mut self, number: u32, generation: u32, verdict: Verdict) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        if node.snapshot.as_ref().is_none_or(|s| s.generation != generation) {
            return;
        }
        if verdict == Verdict::Void {
            return self.void(number);
        }
        let own = node.own;
        let Some(mut snapshot) = node.snapshot.take() else { return };
        let holds = snapshot.hold && self.mistake != Some(Mistake::NotHeld);
        node.procs.values_mut().for_each(|p| p.stands = holds);
        for part in snapshot.parts {
            let Some(image) = snapshot.images.remove(&part.rank) else { continue };
            let after = 30 + self.random.below(1000);
            let image = Rc::new(image);
            self.at(after, Event::Written { at: own, part, generation, image });
        }
        self.wake_all(number);
    }

    pub fn written(&mut self, at: Member, part: Part, generation: u32, image: Rc<Image>) {
        let late = self.makes(Mistake::LateLog);
        let Some(node) = self.nodes.get_mut(&at.node).filter(|n| n.own == at) else { return };
        let image = match late {
            true => {
                let (state, log) = (image.state.clone(), logs_of(&node.logs, part.rank));
                Rc::new(Image { state, log })
            }
            false => image,
        };
        let stored = Stored { image: Rc::clone(&image), bad: false };
        node.disk.insert((part.rank, generation), stored);
        let after = 20 + self.random.below(300);
        self.at(after, Event::Copied { at, part, generation, image });
    }

    /// An image is with its partner, if it has one that lives.
    pub fn taken(&mut self, at: Member, part: Part, generation: u32, image: &Rc<Image>) {
        if self.nodes.get(&at.node).is_none_or(|n| n.own != at) {
            return;
        }
        let key = (part.rank, generation);
        self.images.insert(key, Rc::clone(image));
        let mut holders = vec![at];
        if let Some(partner) = part.partner {
            let Some(node) = self.nodes.get_mut(&partner.node).filter(|n| n.own == partner) else {
                return self.say(at, FromNode::NoPart { rank: part.rank, generation });
            };
            node.disk.insert(key, Stored { image: Rc::clone(image), bad: false });
            holders.push(partner);
        }
        self.say(at, FromNode::Taken { part, generation, at: holders });
    }

    fn wake_all(&mut self, number: u32) {
        (0..self.ranks()).for_each(|rank| self.wake(number, rank));
    }

    fn wake(&mut self, number: u32, rank: u32) {
        let Some(proc) = self.nodes.get_mut(&number).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        if proc.awake || proc.stands || proc.done {
            return;
        }
        proc.awake = true;
        let (node, incarnation) = (number, proc.incarnation);
        let after = 2 + self.random.below(40);
        self.at(after, Event::Step { node, rank, incarnation });
    }

    /// One message is sent or received.
    pub fn step(&mut self, number: u32, rank: u32, incarnation: u32) {
        let plan = self.plan[rank as usize].clone();
        let due: Vec<usize> = self.plan.iter().map(|row| row[rank as usize]).collect();
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(proc) = node.procs.get_mut(&rank).filter(|p| p.incarnation == incarnation) else {
            return;
        };
        proc.awake = false;
        if proc.stands || proc.done {
            return;
        }
        let (state, all) = (&proc.state, 0..plan.len() as u32);
        let left = |d: &u32| state.sent[*d as usize].len() < plan[*d as usize];
        let lacks = |s: &u32| state.received[*s as usize].len() < due[*s as usize];
        let there = |s: &u32| {
            let position = state.received[*s as usize].len() as u64;
            let stream = match node.homes[*s as usize] == Some(number) {
                true => node.logs.get(&(*s, rank)),
                false => node.mirrors.get(&(*s, rank)),
            };
            stream.and_then(|log| log.get(&position).copied())
        };
        let mut choices: Vec<(u32, Option<u64>)> =
            all.clone().filter(left).map(|d| (d, None)).collect();
        choices.extend(all.clone().filter_map(|s| Some((s, Some(there(&s)?)))));
        if !all.clone().any(|r| left(&r) || lacks(&r)) {
            proc.done = true;
            let own = node.own;
            return self.say(own, FromNode::Done { rank, incarnation });
        }
        match self.random.pick(&choices) {
            None => return,
            Some((dst, None)) => self.send_one(number, rank, dst),
            Some((src, Some(id))) => self.receive_one(number, rank, src, id),
        }
        self.wake(number, rank);
    }

    fn send_one(&mut self, number: u32, rank: u32, dst: u32) {
        self.messages += 1;
        let id = self.messages;
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(proc) = node.procs.get_mut(&rank) else { return };
        let sent = &mut proc.state.sent[dst as usize];
        let position = sent.len() as u64;
        sent.push(id);
        // What is in the log already is not written again.
        node.logs.entry((rank, dst)).or_default().entry(position).or_insert(id);
        self.truth[rank as usize].sent[dst as usize].push(id);
        self.wake(number, dst);
        self.pump(number, (rank, dst));
    }

    fn receive_one(&mut self, number: u32, rank: u32, src: u32, id: u64) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(proc) = node.procs.get_mut(&rank) else { return };
        let received = &mut proc.state.received[src as usize];
        let position = received.len() as u64;
        received.push(id);
        self.truth[rank as usize].received[src as usize].push(id);
        let channel = (src, rank);
        if node.homes[src as usize] == Some(number) {
            node.logs.entry(channel).or_default().remove(&position);
        } else {
            node.mirrors.entry(channel).or_default().remove(&position);
            self.say_to_sender(number, channel, Said::Upto(position + 1));
        }
        self.check_received(channel, position, id);
    }

    fn say_to_sender(&mut self, number: u32, channel: Channel, said: Said) {
        let Some(node) = self.nodes.get(&number) else { return };
        let Some(home) = node.homes[channel.0 as usize].filter(|h| *h != number) else { return };
        let (from, to) = (node.own, node.members.iter().copied().find(|m| m.node == home));
        if let Some(to) = to {
            self.send(Packet::Peer { from, to, channel, said });
        }
    }

    /// Says from where on the messages of a channel to a rank here are wanted.
    fn want(&mut self, number: u32, channel: Channel) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(proc) = node.procs.get(&channel.1) else { return };
        let position = proc.state.received[channel.0 as usize].len() as u64;
        node.mirrors.remove(&channel);
        self.say_to_sender(number, channel, Said::Have(position));
    }

    /// Sends what is wanted and there.
    fn pump(&mut self, number: u32, channel: Channel) {
        let given = self.makes(Mistake::GivenToMirror);
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(home) = node.homes[channel.1 as usize].filter(|h| *h != number) else { return };
        let Some(to) = node.members.iter().copied().find(|m| m.node == home) else { return };
        let (from, mut out) = (node.own, Vec::new());
        let Some(next) = node.next.get_mut(&channel) else { return };
        let Some(log) = node.logs.get_mut(&channel) else { return };
        while let Some(id) = log.get(next).copied() {
            out.push(Said::Data(*next, id));
            if given {
                log.remove(next);
            }
            *next += 1;
        }
        out.into_iter().for_each(|said| self.send(Packet::Peer { from, to, channel, said }));
    }

    pub fn peer_hears(&mut self, from: Member, to: Member, channel: Channel, said: Said) {
        let lax = self.makes(Mistake::OldLife);
        let Some(node) = self.nodes.get_mut(&to.node) else { return };
        let newest = node.members.iter().map(|m| m.epoch).max().unwrap_or(0);
        // Who has not heard of the others yet is called again.
        // Who has not heard yet where the receiver lives would send elsewhere.
        let asks = matches!(said, Said::Have(_)) && to == node.own;
        let unknown = asks && node.homes[channel.1 as usize] != Some(from.node);
        let early = to.epoch > node.own.epoch || from.epoch > newest || unknown;
        if early {
            return self.at(50, Event::Arrive(Packet::Peer { from, to, channel, said }));
        }
        if !lax && (to != node.own || !node.members.contains(&from)) {
            return;
        }
        match said {
            Said::Have(position) => {
                node.next.insert(channel, position);
                self.pump(to.node, channel);
            }
            Said::Upto(upto) => {
                let log = node.logs.entry(channel).or_default();
                *log = log.split_off(&upto);
            }
            Said::Data(position, id) => {
                let Some(proc) = node.procs.get(&channel.1) else { return };
                let mirror = node.mirrors.entry(channel).or_default();
                let read = proc.state.received[channel.0 as usize].len() as u64;
                if position == read + mirror.len() as u64 {
                    mirror.insert(position, id);
                    self.wake(to.node, channel.1);
                }
            }
        }
    }
}

fn logs_of(logs: &BTreeMap<Channel, Log>, rank: u32) -> Vec<(u32, Log)> {
    let own = logs.iter().filter(|l| l.0.0 == rank);
    own.map(|(channel, log)| (channel.1, log.clone())).collect()
}
