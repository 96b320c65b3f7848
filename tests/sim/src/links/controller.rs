//! The controller of the simulated job: it never dies, and knows nothing of connections. It tells
//! who the members are, waits until all have heard of a loss, and brings ranks back from images
//! that lie in a safe place.

use super::log::Log;
use super::process::Node;
use super::program::State;
use super::world::{Event, World};
use eyrie_protocol::membership::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A checkpoint of a rank, with its own log.
pub struct Image {
    pub state: State,
    /// From where on it needs each stream: less than it has read of what came early.
    pub need: Vec<u64>,
    pub logs: BTreeMap<u32, Log>,
    pub floors: Vec<u64>,
}

/// To a node.
#[derive(Clone)]
pub enum NodeOrder {
    Members { version: u64, all: Vec<Member> },
    Homes(Vec<u32>),
    Restore { rank: u32, incarnation: u32, image: Rc<Image>, install: bool },
    Trim { rank: u32, need: Vec<u64> },
}

pub struct Controller {
    pub members: Vec<Member>,
    /// Of the members.
    version: u64,
    answered: BTreeSet<Member>,
    /// Ranks that are lost with their node and wait until all have heard of that.
    lost: BTreeSet<u32>,
    pub homes: Vec<u32>,
    pub incarnations: Vec<u32>,
    /// The newest two of each rank, the beginning being the first.
    kept: Vec<Vec<Rc<Image>>>,
    pub next_epoch: u64,
    pub next_node: u32,
}

impl Controller {
    pub fn new(homes: Vec<u32>) -> Controller {
        let ranks = homes.len() as u32;
        let none = vec![0; ranks as usize];
        let beginning = || {
            let (need, floors) = (none.clone(), none.clone());
            Rc::new(Image { state: State::new(ranks), need, logs: BTreeMap::new(), floors })
        };
        Controller {
            members: Vec::new(),
            version: 0,
            answered: BTreeSet::new(),
            lost: BTreeSet::new(),
            homes,
            incarnations: vec![0; ranks as usize],
            kept: (0..ranks).map(|_| vec![beginning()]).collect(),
            next_epoch: 1,
            next_node: 0,
        }
    }

    pub fn member(&self, node: u32) -> Option<Member> {
        self.members.iter().copied().find(|m| m.node == node)
    }
}

impl World {
    fn tell(&mut self, member: Member, order: NodeOrder) {
        let late = self.random.one_in(8);
        let due = self.now + 5 + self.random.below(if late { 900 } else { 60 });
        let lane = self.lanes.entry(member).or_default();
        *lane = due.max(*lane);
        let after = *lane - self.now;
        self.at(after, Event::Told { at: member, order });
    }

    fn tell_all(&mut self, order: &NodeOrder) {
        let all = self.controller.members.clone();
        all.into_iter().for_each(|member| self.tell(member, order.clone()));
    }

    fn tell_members(&mut self) {
        let controller = &mut self.controller;
        controller.version += 1;
        controller.answered.clear();
        let (version, all) = (controller.version, controller.members.clone());
        self.tell_all(&NodeOrder::Members { version, all });
    }

    /// A node joins, under a new number or one whose node is gone.
    pub fn join(&mut self) -> Member {
        let controller = &mut self.controller;
        let gone = (0..controller.next_node).find(|n| controller.member(*n).is_none());
        let reused = gone.filter(|_| self.random.one_in(2));
        let node = reused.unwrap_or(controller.next_node);
        controller.next_node = controller.next_node.max(node + 1);
        let member = Member { node, epoch: controller.next_epoch };
        controller.next_epoch += 1;
        controller.members.push(member);
        self.trace(|| format!("{member} joins"));
        let ranks = self.controller.homes.len() as u32;
        self.nodes.insert(member, Node::new(member, ranks));
        member
    }

    /// The same when the job runs.
    pub fn join_late(&mut self) {
        let member = self.join();
        self.tell_members();
        let homes = self.controller.homes.clone();
        self.tell(member, NodeOrder::Homes(homes));
        for rank in 0..self.controller.homes.len() as u32 {
            let need = self.controller.kept[rank as usize][0].need.clone();
            self.tell(member, NodeOrder::Trim { rank, need });
        }
    }

    pub fn begin(&mut self) {
        self.tell_members();
        self.tell_all(&NodeOrder::Homes(self.controller.homes.clone()));
        for rank in 0..self.controller.homes.len() as u32 {
            self.bring_back(rank, false);
        }
    }

    /// A node takes what it is told.
    pub fn told(&mut self, at: Member, order: NodeOrder) {
        if self.is_cut_off(at) {
            return;
        }
        self.with(at, |world, node| match order {
            NodeOrder::Members { version, all } => {
                node.members(world, &all);
                let after = 5 + world.random.below(60);
                world.at(after, Event::Answered { at, version });
            }
            NodeOrder::Homes(homes) => {
                for (home, rank) in homes.into_iter().zip(0..) {
                    if home != at.node {
                        node.die(world, rank);
                    }
                    node.home(world, rank, home);
                }
            }
            NodeOrder::Restore { rank, incarnation, image, install } => {
                world.trace(|| format!("rank {rank} starts on {at} as incarnation {incarnation}"));
                world.check_alone(rank);
                node.restore(world, rank, incarnation, &image, install);
            }
            NodeOrder::Trim { rank, need } => {
                for (need, src) in need.into_iter().zip(0..) {
                    let floor = node.floors.entry((src, rank)).or_default();
                    *floor = need.max(*floor);
                    let log = node.logs.get_mut(&(src, rank));
                    log.into_iter().for_each(|log| log.trim(need));
                }
            }
        });
    }

    /// A node has heard who the members are.
    pub fn answered(&mut self, at: Member, version: u64) {
        let controller = &mut self.controller;
        if version != controller.version || self.lost.contains(&at) {
            return;
        }
        controller.answered.insert(at);
        let all = controller.members.iter().all(|m| controller.answered.contains(m));
        if !all {
            return;
        }
        let lost = std::mem::take(&mut controller.lost);
        for &rank in &lost {
            let known = self.known_of(rank);
            self.trace(|| format!("of rank {rank} {known:?} messages are known"));
            self.truth.lose(rank, known);
        }
        for &rank in &lost {
            let home = self.random.pick(&self.controller.members.clone()).map_or(0, |m| m.node);
            self.controller.homes[rank as usize] = home;
        }
        if !lost.is_empty() {
            self.tell_all(&NodeOrder::Homes(self.controller.homes.clone()));
        }
        for rank in lost {
            self.bring_back(rank, true);
        }
    }

    /// How many of a rank's messages to each other somebody has.
    fn known_of(&self, rank: u32) -> Vec<u64> {
        let next = |log: &Log| log.entries.values().filter(|e| !e.pad).map(|e| e.number + 1).max();
        (0..self.controller.homes.len())
            .map(|dst| {
                let live = self.nodes.values().filter(|n| !self.lost.contains(&n.own));
                let mirrors = live.clone().filter_map(|n| next(n.logs.get(&(rank, dst as u32))?));
                let states = live.filter_map(|n| n.processes.get(&(dst as u32)));
                let states = states.map(|p| p.state.received[rank as usize].1);
                let own = self.controller.kept[rank as usize].iter();
                let own = own.flat_map(|i| {
                    [i.logs.get(&(dst as u32)).and_then(next), Some(i.state.sent[dst].1)]
                });
                let images = self.controller.kept[dst].iter();
                let images = images.map(|i| i.state.received[rank as usize].1);
                mirrors.chain(states).chain(own.flatten()).chain(images).max().unwrap_or(0)
            })
            .collect()
    }

    /// Has a rank start at its home: from its newest image, or the one before if that is damaged.
    pub fn bring_back(&mut self, rank: u32, install: bool) {
        let damaged = self.random.one_in(5);
        let kept = &mut self.controller.kept[rank as usize];
        if damaged && kept.len() > 1 {
            kept.pop();
        }
        let (Some(image), home) = (kept.last().cloned(), self.controller.homes[rank as usize])
        else {
            return;
        };
        self.controller.incarnations[rank as usize] += 1;
        let incarnation = self.controller.incarnations[rank as usize];
        self.report.restored += 1;
        if let Some(member) = self.controller.member(home) {
            self.tell(member, NodeOrder::Restore { rank, incarnation, image, install });
        }
    }

    /// An image of a rank is in a safe place.
    pub fn keep(&mut self, rank: u32, incarnation: u32, image: Rc<Image>) {
        if self.controller.incarnations[rank as usize] != incarnation {
            return;
        }
        let kept = &mut self.controller.kept[rank as usize];
        kept.push(image);
        if kept.len() > 2 {
            kept.remove(0);
        }
        let need = kept[0].need.clone();
        self.report.images += 1;
        self.tell_all(&NodeOrder::Trim { rank, need });
    }

    /// A rank is going to live on another node: the image has its last moment.
    pub fn moves(&mut self, rank: u32, incarnation: u32, image: Rc<Image>, to: Member) {
        self.keep(rank, incarnation, image);
        self.controller.homes[rank as usize] = to.node;
        self.tell_all(&NodeOrder::Homes(self.controller.homes.clone()));
        self.bring_back(rank, true);
    }

    /// A node is taken for dead.
    pub fn suspect(&mut self, member: Member) {
        if !self.controller.members.contains(&member) {
            return;
        }
        self.trace(|| format!("{member} is declared lost"));
        self.lost.insert(member);
        self.controller.members.retain(|m| *m != member);
        let homes = self.controller.homes.iter().zip(0..);
        let ranks: Vec<u32> = homes.filter(|(h, _)| **h == member.node).map(|(_, r)| r).collect();
        self.controller.lost.extend(ranks);
        self.tell_members();
    }

    /// No other process of a rank runs on a member.
    fn check_alone(&mut self, rank: u32) {
        let others = self.nodes.values().filter(|n| self.is_reached(n.own));
        if others.filter(|n| n.processes.contains_key(&rank)).count() > 0 {
            self.fail(format!("rank {rank} is started while it runs"));
        }
    }

    /// Whether it is being brought back, or is going to.
    pub fn is_on_its_way(&self, rank: u32) -> bool {
        self.controller.lost.contains(&rank)
    }
}
