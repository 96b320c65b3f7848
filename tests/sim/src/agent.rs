//! What a simulated node's daemon does: restores, checkpoints, links.

use crate::node::{Node, Proc, Stored};
use crate::program::{Channel, State};
use crate::types::*;
use crate::world::World;
use eyrie_protocol::gate::Ticket;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::VAULT;
use eyrie_protocol::session::Numbered;
use std::rc::Rc;

impl World {
    /// To the controller, at once.
    pub fn tell(&mut self, at: Member, what: FromNode) {
        self.mistake_parts(at, &what);
        let what = self.as_told(at, what);
        let (Some(node), Some(what)) = (self.nodes.get_mut(&at), what) else { return };
        let fleeting = matches!(&what, FromNode::Real(told) if told.said.is_fleeting());
        let frame = match fleeting {
            true => Numbered::beside(node.session.heard(), what),
            false => node.session.number(what),
        };
        let conn = node.conn;
        self.send(conn, Endpoint::Node(at), Packet::FromNode(frame));
    }

    pub fn tell_peer(&mut self, at: Member, peer: Member, what: PeerMsg) {
        let Some(conn) = self.nodes.get(&at).and_then(|n| n.peers.get(&peer)).map(|p| p.conn)
        else {
            return;
        };
        self.send(conn, Endpoint::Node(at), Packet::Peer(what));
    }

    pub fn node_hears(&mut self, at: Member, frame: Numbered<eyrie_control::ToNode>) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        match node.session.hear(frame.number, frame.heard) {
            Ok(true) => {}
            Ok(false) => return,
            Err(foreign) => return self.fail(format!("{at} hears: {foreign}")),
        }
        self.obey(at, frame.message);
        self.wake_pump(at);
    }

    /// Whoever is missing is dead: nothing of it is taken from now on.
    pub fn new_members(&mut self, at: Member, members: Vec<Member>) {
        let lax = self.mutated(Mutation::NoFence);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let gone: Vec<Member> =
            node.members.iter().copied().filter(|m| !members.contains(m)).collect();
        node.members = members;
        node.gate.set_members(&node.members);
        self.new_routers(at);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let mut lost = Vec::new();
        for dead in gone {
            if lax {
                continue;
            }
            node.replicas.fence(dead);
            if let Some(peer) = node.peers.remove(&dead) {
                let conn = &mut self.conns[peer.conn];
                if let Some(side) = conn.side(Endpoint::Node(at)) {
                    conn.open[side] = false;
                }
                lost.push(dead);
            }
        }
        lost.into_iter().for_each(|peer| self.lost_copies(at, peer));
    }

    pub fn new_home(&mut self, at: Member, rank: u32, home: Member) {
        let kept = self.mutated(Mutation::KeptWatermark);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let old = node.homes[rank as usize].replace(home);
        if old != Some(home) {
            node.standing.forget(rank);
        }
        node.paths.set_home(rank, home.node);
        if old == Some(at) && home != at {
            node.gate.detach(rank);
            node.left(rank);
        }
        if !kept {
            node.redirect(rank);
        }
        if old != Some(home) {
            let local: Vec<u32> = node.procs.keys().copied().collect();
            for to in local {
                self.want(at, to, Some(rank));
            }
            self.want_routed(at, |channel| channel.0 == rank);
            self.ask_home(at, rank, home);
        }
    }

    /// Says from where on the streams to a rank here are wanted (those from `only`, or all).
    pub fn want(&mut self, at: Member, rank: u32, only: Option<u32>) {
        let Some(node) = self.nodes.get(&at) else { return };
        let Some(proc) = node.procs.get(&rank) else { return };
        let mut wants: Vec<(Member, Channel, u64)> = Vec::new();
        for (from, home) in (0u32..).zip(&node.homes) {
            let Some(home) = *home else { continue };
            if home == at || only.is_some_and(|o| o != from) {
                continue;
            }
            let Some(origin) = self.origin(at, (from, rank, 0)) else { continue };
            for kind in 0..2 {
                let channel = (from, rank, kind);
                let held = node.segment.streams.get(&channel);
                let mut position = proc.state.next(from, kind);
                while held.is_some_and(|s| s.messages.contains_key(&position)) {
                    position += 1;
                }
                wants.push((origin, channel, position));
            }
        }
        let life = self.life(at, rank);
        for (home, channel, position) in wants {
            if self.is_inner(channel)
                && let Some(link) = self.node(at).and_then(|n| n.peers.get_mut(&home))
            {
                // What was received is told again behind it.
                link.told.remove(&channel);
            }
            self.tell_peer(at, home, PeerMsg::Have { channel, position, life });
        }
        if self.is_spread() {
            self.wake_pump(at);
        }
    }

    /// Goes on with a restore as far as it can.
    pub fn try_order(&mut self, at: Member, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some((order, ticket)) = node.orders.get(&rank) else { return };
        let (order, ticket) = (order.clone(), *ticket);
        if let Some(ticket) = ticket {
            // The real agent waits for what it was brought only.
            let open = self.mutated(Mutation::NoWriteBack) || order.words.is_none();
            let Some(node) = self.nodes.get_mut(&at) else { return };
            if open || node.gate.may_leave(ticket, None) {
                node.orders.remove(&rank);
                self.start_rank(at, &order);
            }
            return;
        }
        let generation = order.generation;
        if generation > 0 {
            match node.disk.get(&(rank, generation)) {
                Some(stored) if stored.bad && order.from.is_some() => {
                    // That is known already: another copy is to be fetched.
                    node.disk.remove(&(rank, generation));
                    return self.try_order(at, rank);
                }
                Some(stored) if stored.bad => {
                    node.orders.remove(&rank);
                    let incarnation = order.incarnation;
                    let said = FromNode::ImageBad { rank, incarnation, generation, at };
                    return self.tell(at, said);
                }
                Some(_) => {}
                None => {
                    let Some(from) = order.from else {
                        node.orders.remove(&rank);
                        let incarnation = order.incarnation;
                        let said = FromNode::ImageBad { rank, incarnation, generation, at };
                        return self.tell(at, said);
                    };
                    if from == VAULT {
                        let after = 50 + self.random.below(1500);
                        return self.at(after, Event::Unvault { at, rank, generation });
                    }
                    self.tell_peer(at, from, PeerMsg::Want { rank, generation });
                    return;
                }
            }
        }
        if order.told {
            return self.load(at, &order);
        }
        let incarnation = order.incarnation;
        // The order to start it says all that is to be known.
        self.node(at).into_iter().for_each(|node| drop(node.orders.remove(&rank)));
        self.tell(at, FromNode::Found { rank, image: generation, incarnation });
    }

    /// Puts log and determinants into the segment; the gate has them replicated.
    fn load(&mut self, at: Member, order: &RestoreOrder) {
        let rank = order.rank;
        let skip = self.mutated(Mutation::NoWriteBack);
        let inner: Vec<bool> = (0..self.ranks()).map(|r| self.is_inner((rank, r, 0))).collect();
        let forgets = order.words.is_none() && self.mutated(Mutation::UnitForgetsOutcomes);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let image = node.disk.get(&(rank, order.generation)).map(|s| Rc::clone(&s.image));
        if let Some(words) = &order.words {
            let mut words = words.clone();
            let least = image.as_ref().map_or(0, |i| i.point().det_pos);
            if words.words.is_empty() && words.first <= least {
                words.first = least;
                // The image's own last word, which the rank lets grow.
                let run = image.as_ref().and_then(|i| i.run).filter(|(at, _)| *at == least);
                words.words.extend(run.map(|(_, made)| crate::segment::RUN | made));
            }
            if words.first > least {
                let why =
                    format!("rank {rank}: determinants from {} on, {least} needed", words.first);
                return self.fail(why);
            }
            node.segment.det.insert(rank, words);
        }
        for (channel, log) in image.iter().flat_map(|i| &i.log) {
            if order.words.is_none() && !inner[channel.1 as usize] {
                continue;
            }
            let floor = node.floor(*channel);
            let stream = node.segment.streams.entry(*channel).or_default();
            for (position, message) in log.range(floor..) {
                stream.messages.entry(*position).or_insert_with(|| message.clone());
            }
        }
        if forgets && let Some(log) = node.segment.det.get_mut(&rank) {
            let least = image.as_ref().map_or(0, |i| i.point().det_pos);
            log.words.truncate(least.saturating_sub(log.first) as usize);
        }
        node.gate.attach(rank, &node.segment);
        if skip {
            node.gate.detach(rank);
        }
        let ticket = node.gate.sample(&node.segment);
        if let Some(order) = node.orders.get_mut(&rank) {
            order.1 = Some(ticket);
        }
        // What it brings may be what others here wait for, and nobody sends that again, also if it
        // is never started here.
        (0..self.ranks()).for_each(|other| self.wake(at, other));
        self.wake_pump(at);
    }

    fn start_rank(&mut self, at: Member, order: &RestoreOrder) {
        let ranks = self.ranks();
        let (rank, incarnation) = (order.rank, order.incarnation);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if order.generation > 0 && !node.disk.contains_key(&(rank, order.generation)) {
            let generation = order.generation;
            return self.tell(at, FromNode::ImageBad { rank, incarnation, generation, at });
        }
        node.vacated.stays(rank);
        let image = node.disk.get(&(rank, order.generation)).map(|s| Rc::clone(&s.image));
        let proc = match image {
            Some(image) => Proc {
                incarnation,
                state: image.state.clone(),
                depends: image.depends.to_vec(),
                cursor: image.cursor,
                run: image.run,
                waits: false,
                done: false,
                stands: false,
                would_go_on: false,
                held: false,
                suspended: false,
            },
            None => Proc {
                incarnation,
                state: State::new(rank, ranks),
                depends: vec![0; ranks as usize],
                cursor: 0,
                run: None,
                waits: false,
                done: false,
                stands: false,
                would_go_on: false,
                held: false,
                suspended: false,
            },
        };
        self.check_alone(at, rank);
        self.check_nothing_again(rank, proc.state.at);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        for (from, home) in (0u32..).zip(&node.homes) {
            for kind in 0..2 {
                let stream = node.segment.streams.entry((from, rank, kind)).or_default();
                // What the image has received, whoever sent it and wherever that was.
                stream.taken = stream.taken.max(proc.state.next(from, kind));
                if *home != Some(at) {
                    stream.messages.clear();
                }
            }
        }
        node.procs.insert(rank, proc);
        self.suspend_new(at, rank);
        self.trace(|| format!("{at} starts rank {rank} incarnation {incarnation}"));
        // The controller numbers the starts of all ranks together.
        let first = self.ranks();
        self.report.recoveries += u64::from(incarnation > first);
        self.want(at, rank, None);
        // What its image has received may be what others here wait for.
        (0..ranks).for_each(|other| self.wake(at, other));
        self.tell(at, FromNode::Restored { rank, incarnation });
        let after = 5 + self.random.below(50);
        self.at(after, Event::Step { at, rank, incarnation });
    }

    pub fn capture(
        &mut self,
        at: Member,
        rank: u32,
        generation: u32,
        partner: Option<Member>,
        hold: bool,
    ) {
        let Some(image) = self.image_of(at, rank) else {
            return self.tell(at, FromNode::NoCheckpoint { rank });
        };
        let late = self.nodes.get_mut(&at).and_then(|n| n.real.late.remove(&rank));
        let image = late.map_or(image, |late| (*late).clone());
        let hold = hold && !self.mutated(Mutation::NotHeld);
        self.node(at).into_iter().for_each(|n| n.capturing.extend([(rank, generation)]));
        let proc = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank));
        if let Some(proc) = proc.filter(|_| hold) {
            proc.held = true;
        }
        self.write(at, (rank, generation), partner, image);
    }

    /// What an image of a rank has now, if it runs.
    pub fn image_of(&self, at: Member, rank: u32) -> Option<Image> {
        let bare = self.mutated(Mutation::NoLogInImage);
        let without = self.mutated(Mutation::InnerNotInSnapshot);
        let node = self.nodes.get(&at)?;
        let proc = node.procs.get(&rank).filter(|p| !p.done)?;
        let left_out = |c: &Channel| bare || (without && self.is_inner(*c));
        let own = node.segment.streams.iter().filter(|s| s.0.0 == rank && !left_out(s.0));
        Some(Image {
            incarnation: proc.incarnation,
            state: proc.state.clone(),
            depends: Rc::new(proc.depends.clone()),
            cursor: proc.cursor,
            run: proc.run,
            log: own.map(|(channel, s)| (*channel, s.messages.clone())).collect(),
        })
    }

    /// An image is written, and copied to a partner if there is one.
    pub fn write(
        &mut self,
        at: Member,
        (rank, generation): (u32, u32),
        partner: Option<Member>,
        image: Image,
    ) {
        let image = Rc::new(image);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        partner.map(|p| node.taking.insert((rank, generation), p));
        let after = 50 + self.random.below(self.longest_write);
        self.at(after, Event::Written { at, rank, generation, image });
    }

    pub fn written(&mut self, at: Member, rank: u32, generation: u32, image: Rc<Image>) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let key = (rank, generation);
        let own = node.real.taking.remove(&key);
        if node.real.spoilt.remove(&key) {
            node.taking.remove(&key);
            return self.tell_spoilt(at, rank, generation, image.incarnation);
        }
        let image = self.mistake_image(at, rank, image);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let replaced = node.disk.get(&key).is_some_and(|old| old.bad || old.replaced);
        node.disk.insert(key, Stored { image: Rc::clone(&image), bad: false, replaced });
        if let Some(home) = node.kept_for.remove(&key) {
            self.tell_peer(at, home, PeerMsg::Kept { rank, generation });
        } else if let Some(partner) = node.taking.remove(&key) {
            if self.mutation == Some(Mutation::OneCopyCounts) {
                let image = Rc::clone(&image);
                self.leave(at, FromNode::Stored { rank, generation, image, partner: None });
            }
            let Some(node) = self.nodes.get_mut(&at) else { return };
            node.taken.insert(key, (partner, Rc::clone(&image)));
            if !node.peers.contains_key(&partner) {
                return self.lost_copies(at, partner);
            }
            let image = Some(image);
            self.tell_peer(at, partner, PeerMsg::File { rank, generation, image, taken: true });
        } else if own {
            self.leave(at, FromNode::Stored { rank, generation, image, partner: None });
        }
        self.try_order(at, rank);
    }

    /// Mutations: an image has what was sent after it was taken; of a process that is gone it is
    /// kept for the next one.
    fn mistake_image(&mut self, at: Member, rank: u32, image: Rc<Image>) -> Rc<Image> {
        let late = self.mutated(Mutation::LateLog) && self.lives_on(at, rank, image.incarnation);
        let Some(node) = self.nodes.get_mut(&at) else { return image };
        if self.mutation == Some(Mutation::LateImages)
            && node.procs.get(&rank).is_none_or(|p| p.incarnation != image.incarnation)
        {
            node.real.late.insert(rank, Rc::clone(&image));
        }
        if !late {
            return image;
        }
        let own = node.segment.streams.iter().filter(|s| s.0.0 == rank);
        let log = own.map(|(channel, s)| (*channel, s.messages.clone())).collect();
        Rc::new(Image { log, ..(*image).clone() })
    }

    /// The partner has an image that was taken here, too.
    fn kept(&mut self, at: Member, peer: Member, rank: u32, generation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some((partner, image)) = node.taken.remove(&(rank, generation)) else {
            return self.copied(at, peer, rank, generation);
        };
        if partner == peer {
            self.leave(at, FromNode::Stored { rank, generation, image, partner: Some(peer) });
        }
    }

    pub fn trim(&mut self, at: Member, rank: u32, need: &[u64], det_pos: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.floors.insert(rank, need.to_vec());
        if let Some(proc) = node.procs.get(&rank) {
            let position = proc.run.map_or(proc.cursor, |(at, _)| at.min(proc.cursor));
            let needs = proc.state.received.iter().zip(need).any(|(own, floor)| own < floor);
            if position < det_pos || needs {
                let why = format!("{at} releases what rank {rank} is still replaying");
                return self.fail(why);
            }
        }
        node.replicas.trim(rank, det_pos);
        node.segment.trim_determinants(rank, det_pos);
        // Wherever their senders are: it holds for one that comes here later, too.
        for (channel, stream) in node.segment.streams.iter_mut().filter(|s| s.0.1 == rank) {
            let need = need[crate::program::slot(channel.0, channel.2)];
            stream.messages = stream.messages.split_off(&need);
        }
        self.routed_trim(at, rank);
    }

    /// A node begins anew under another epoch. Of all that go back together (`all`) nobody is who
    /// it was; else only this one is not.
    pub fn reset(&mut self, at: Member, member: Member, all: bool) {
        let Some(old) = self.nodes.remove(&at) else { return };
        // A mutation: what is on its way from before all go back is taken afterwards.
        let lax = self.together && self.mutated(Mutation::NoFence);
        for peer in old.peers.values().filter(|_| !lax) {
            self.cut(peer.conn);
        }
        let conn = old.conn;
        for end in &mut self.conns[conn].ends {
            if *end == Endpoint::Node(at) {
                *end = Endpoint::Node(member);
            }
        }
        let mut node = Node::new(member, self.ranks(), self.replicas, conn);
        node.session = old.session;
        node.real = old.real;
        node.gate = node.gate.with_neighbours(self.neighbours.clone());
        node.segment.frozen_runs = self.mutated(Mutation::RunsUnnoticed);
        if self.mutated(Mutation::NotEmptied) {
            (node.segment, node.vacated) = (old.segment, old.vacated);
        }
        if self.together || self.keeps_images {
            // What it stores outlives its epoch.
            node.disk = old.disk;
            self.renew_guard(at, member);
        }
        node.suspend = old.suspend.filter(|_| all || self.together);
        let mut dead = if all { old.members } else { vec![] };
        dead.push(at);
        node.replicas.restart(&dead);
        self.nodes.insert(member, node);
        if lax {
            self.keep_links(at, member, &old.peers);
        }
        self.tell(member, FromNode::Down);
    }

    /// Sends all that may be sent.
    pub fn pump(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.pumping = false;
        let ticket = node.gate.sample(&node.segment);
        let missing = |m: &Member| {
            m.node > at.node && !node.peers.contains_key(m) && !node.connecting.contains(m)
        };
        let missing: Vec<Member> = node.members.iter().copied().filter(missing).collect();
        node.connecting.extend(missing.iter().copied());
        for to in missing {
            let after = 20 + self.random.below(150);
            self.at(after, Event::Connect { from: at, to });
        }
        let peers: Vec<Member> = self.nodes[&at].peers.keys().copied().collect();
        for peer in peers {
            loop {
                let Some(node) = self.nodes.get_mut(&at) else { return };
                let Some(frame) = node.gate.next_frame(peer, &node.segment) else { break };
                self.tell_peer(at, peer, PeerMsg::Determinants(frame));
            }
            self.pump_streams(at, peer, ticket);
            self.send_marks(at, peer);
        }
        self.pump_leaving(at);
        let orders: Vec<u32> = self.nodes[&at].orders.keys().copied().collect();
        for rank in orders {
            if self.nodes[&at].orders.get(&rank).is_some_and(|o| o.1.is_some()) {
                self.try_order(at, rank);
            }
        }
    }

    fn may_leave(&self, at: Member, ticket: Ticket, to: Option<Member>) -> bool {
        self.mutated(Mutation::OpenGate) || self.nodes[&at].gate.may_leave(ticket, to)
    }

    fn pump_streams(&mut self, at: Member, peer: Member, ticket: Ticket) {
        let forgets = self.mutated(Mutation::SendersForget);
        let silent = self.mutated(Mutation::RouterKeepsAcks);
        let heedless = self.mutated(Mutation::SendsWhilePaused);
        let given = self.mutated(Mutation::GivenToMirror);
        let closed = !self.may_leave(at, ticket, Some(peer));
        if !self.nodes[&at].gate.may_leave(ticket, Some(peer)) {
            self.lose_unheld(at);
        }
        if closed && !self.mutated(Mutation::UnitUngated) {
            return;
        }
        let (all, units) = (self.ranks(), self.units.clone());
        let inner = |c: &Channel| {
            units.get(c.0 as usize).is_some_and(|u| units.get(c.1 as usize) == Some(u))
        };
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let ranks = node.paths.ranks();
        let paused = |rank| node.standing.holds(rank) && !heedless;
        let goes = |rank| node.goes_to(rank, peer) && !paused(rank);
        let elsewhere: Vec<bool> = (0..ranks).map(|rank| !goes(rank)).collect();
        let Some(link) = node.peers.get_mut(&peer) else { return };
        let mut out = Vec::new();
        for (channel, next) in &mut link.next {
            if elsewhere[channel.1 as usize] || (closed && !inner(channel)) {
                continue;
            }
            let home = node.homes[channel.0 as usize] == Some(at);
            let routes = node.paths.routes(channel.1);
            if !home && !routes {
                continue;
            }
            let Some(stream) = node.segment.streams.get_mut(channel) else { continue };
            while let Some(message) = stream.messages.get(next) {
                let (channel, position, message) = (*channel, *next, message.clone());
                out.push(PeerMsg::Data { channel, position, message });
                *next += 1;
            }
            let mirrored = given && inner(channel);
            if mirrored || (forgets && node.paths.router(channel.1) == peer.node) {
                stream.messages = stream.messages.split_off(next);
            }
        }
        for (rank, proc) in node.procs.iter().filter(|_| !closed) {
            let kinds = |from: u32| (0..2).map(move |kind| (from, kind));
            for (from, kind) in (0..all).flat_map(kinds) {
                let channel = (from, *rank, kind);
                // Of others only what is acknowledged is told.
                if kind != crate::program::NAMED && !inner(&channel) {
                    continue;
                }
                let upto = proc.state.next(from, kind);
                let told = link.told.entry(channel).or_default();
                let origin = node.paths.origin((from, *rank));
                if origin == peer.node && *told < upto {
                    *told = upto;
                    out.push(PeerMsg::Taken { channel, upto });
                }
            }
        }
        if !silent {
            out.extend(node.relay(peer));
        }
        out.into_iter().for_each(|said| self.tell_peer(at, peer, said));
    }

    fn pump_leaving(&mut self, at: Member) {
        while let Some(node) = self.nodes.get(&at)
            && let Some((ticket, _)) = node.leaving.front()
            && self.may_leave(at, *ticket, None)
        {
            let front = self.nodes.get_mut(&at).and_then(|n| n.leaving.pop_front());
            front.into_iter().for_each(|(_, what)| self.tell(at, what));
        }
    }

    /// Whether nothing of a peer is taken, also not on an earlier connection of it.
    fn is_fenced(&self, at: Member, peer: Member) -> bool {
        let knows = self.nodes.get(&at).is_none_or(|n| n.members.contains(&peer));
        !knows && !self.mutated(Mutation::NoFence)
    }

    pub fn peer_hears(&mut self, at: Member, peer: Member, conn: usize, said: PeerMsg) {
        if self.is_fenced(at, peer) || self.says_nothing(at, peer, &said) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let current = node.peers.get(&peer).is_some_and(|p| p.conn == conn);
        match said {
            PeerMsg::Open { from, inner } => self.opened(at, from, inner),
            PeerMsg::Have { channel, position, .. } => {
                let kept = self.mutation == Some(Mutation::KeptWatermark);
                if let Some(link) = node.peers.get_mut(&peer).filter(|_| current) {
                    let next = link.next.entry(channel).or_insert(position);
                    *next = if kept { (*next).max(position) } else { position };
                }
            }
            PeerMsg::Data { channel, position, message } => {
                self.data(at, channel, position, message);
            }
            PeerMsg::Taken { channel, upto } => {
                let inner = self.is_inner(channel);
                let Some(node) = self.nodes.get_mut(&at) else { return };
                let stream = node.segment.streams.entry(channel).or_default();
                stream.taken = stream.taken.max(upto);
                if self.mutation == Some(Mutation::RouterForgets) && node.paths.routes(channel.1) {
                    stream.messages = stream.messages.split_off(&upto);
                }
                if inner && current {
                    stream.messages = stream.messages.split_off(&upto);
                    // It may have had some of it on its way when this node began anew.
                    let next = node.peers.get_mut(&peer).and_then(|p| p.next.get_mut(&channel));
                    next.into_iter().for_each(|next| *next = upto.max(*next));
                }
                self.wake(at, channel.0);
            }
            PeerMsg::Determinants(frame) => match node.replicas.take(peer, &frame) {
                Ok(Some(upto)) => {
                    self.send(conn, Endpoint::Node(at), Packet::Peer(PeerMsg::Held(upto)))
                }
                Ok(None) => {}
                Err(refused) if current => self.fail(format!("{at}: {refused}")),
                Err(_) => {}
            },
            PeerMsg::Held(upto) => node.gate.acked(peer, upto),
            PeerMsg::Want { rank, generation } => {
                let image = node.disk.get(&(rank, generation)).filter(|s| !s.bad);
                let image = image.map(|s| Rc::clone(&s.image));
                self.tell_peer(at, peer, PeerMsg::File { rank, generation, image, taken: false });
            }
            PeerMsg::File { rank, generation, image, taken } => {
                if taken {
                    node.kept_for.insert((rank, generation), peer);
                }
                let slow = !taken && self.random.one_in(4);
                self.file(at, peer, (rank, generation), image, slow);
            }
            PeerMsg::Kept { rank, generation } => self.kept(at, peer, rank, generation),
            PeerMsg::Mark { rank, generation } => {
                let said = PeerMsg::Marked { rank, generation };
                self.send(conn, Endpoint::Node(at), Packet::Peer(said));
            }
            PeerMsg::Marked { .. } | PeerMsg::GoOn { .. } if !current => {}
            PeerMsg::Marked { rank, generation } => self.mark_answered(at, rank, generation),
            PeerMsg::GoOn { rank, generation } => _ = node.standing.resume(rank, generation),
        }
        self.wake_pump(at);
    }

    fn data(&mut self, at: Member, channel: Channel, position: u64, message: Message) {
        let doubles = self.mutated(Mutation::DuplicatesTaken);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if node.paths.routes(channel.1) {
            return node.log(channel, position, message);
        }
        let Some(proc) = node.procs.get(&channel.1) else { return };
        if node.homes[channel.0 as usize] == Some(at) {
            return;
        }
        let stream = node.segment.streams.entry(channel).or_default();
        let mut end = proc.state.next(channel.0, channel.2);
        while stream.messages.contains_key(&end) {
            end += 1;
        }
        if position == end || (doubles && position < end) {
            stream.messages.insert(end, message);
            self.wake(at, channel.1);
        }
    }

    fn file(
        &mut self,
        at: Member,
        peer: Member,
        (rank, gen_): (u32, u32),
        image: Option<Rc<Image>>,
        slow: bool,
    ) {
        if let Some(image) = image {
            let after = 50 + self.random.below(if slow { 5000 } else { 500 });
            self.at(after, Event::Written { at, rank, generation: gen_, image });
            return;
        }
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if let Some((order, None)) = node.orders.get(&rank)
            && order.generation == gen_
        {
            let incarnation = order.incarnation;
            node.orders.remove(&rank);
            let said = FromNode::ImageBad { rank, incarnation, generation: gen_, at: peer };
            self.tell(at, said);
        }
    }
}
