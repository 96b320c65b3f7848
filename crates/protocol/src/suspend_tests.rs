//! Jobs that are held by users and clients at random, over nodes that are slow, lost and new.

use super::*;
use std::collections::VecDeque;

/// Nodes as they are while the controller decides: orders and answers on their way.
#[derive(Default)]
struct World {
    suspend: SuspendState,
    now: u64,
    nodes: BTreeMap<u32, Node>,
    next: u32,
    /// Leases as they were promised.
    leases: BTreeMap<Suspender, Option<u64>>,
}

#[derive(Default)]
struct Node {
    orders: VecDeque<(u64, bool)>,
    answers: VecDeque<u64>,
    stands: bool,
}

impl World {
    fn join(&mut self) {
        let mut node = Node::default();
        node.orders.extend(self.suspend.order_for_new().map(|turn| (turn, true)));
        self.nodes.insert(self.next, node);
        self.next += 1;
    }

    fn tend(&mut self, ready: bool) {
        self.suspend.lapse(self.now);
        let order = match self.suspend.order(self.now, ready) {
            Some(SuspendOrder::Stop(turn)) => (turn, true),
            Some(SuspendOrder::GoOn(turn)) => (turn, false),
            None => return,
        };
        self.nodes.values_mut().for_each(|n| n.orders.push_back(order));
    }

    /// A node obeys its next order, or its answer arrives.
    fn deliver(&mut self, node: u32, answer: bool) {
        let Some(n) = self.nodes.get_mut(&node) else { return };
        if answer {
            if let Some(turn) = n.answers.pop_front() {
                self.suspend.stands(node, turn);
            }
        } else if let Some((turn, stop)) = n.orders.pop_front() {
            n.stands = stop;
            if stop {
                n.answers.push_back(turn);
            }
        }
    }

    fn check(&self) {
        let live: Vec<u32> = self.nodes.keys().copied().collect();
        if self.suspend.whole(live) {
            // No order to go on is on its way either: it would be a later one.
            assert!(self.nodes.values().all(|n| n.stands), "said to stand, and does not");
        }
        let held = |until: &Option<u64>| until.is_none_or(|until| self.now < until);
        assert_eq!(self.suspend.wanted(), self.leases.values().any(held));
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn it_stands_when_it_is_said_to_and_goes_on_when_nobody_holds_it() {
    for seed in 1..400u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut world = World::default();
        (0..3).for_each(|_| world.join());
        for _ in 0..300 {
            let (what, who) = (random(&mut dice) % 10, random(&mut dice));
            let holder = if who % 3 == 0 { Suspender::User } else { Suspender::Client(who % 3) };
            let node = (who % 8) as u32;
            match what {
                0 => {
                    let until = (holder != Suspender::User).then(|| world.now + who % 40);
                    world.suspend.hold(holder, until);
                    world.leases.insert(holder, until);
                }
                1 => {
                    world.suspend.release(holder);
                    world.leases.remove(&holder);
                }
                2 if world.nodes.len() < 5 => world.join(),
                3 if world.nodes.len() > 1 => drop(world.nodes.remove(&node)),
                4 => world.now += who % 20,
                5..=7 => world.deliver(node, false),
                _ => world.deliver(node, true),
            }
            world.tend(who % 4 > 0);
            world.check();
        }
        // The clients are gone, without a word; the user lets it go on.
        world.suspend.release(Suspender::User);
        world.leases.remove(&Suspender::User);
        world.now += 100;
        world.tend(true);
        for node in 0..world.next {
            (0..400).for_each(|_| world.deliver(node, false));
        }
        assert!(world.nodes.values().all(|n| !n.stands), "seed {seed}: a node stands for ever");
    }
}

#[test]
fn the_clock_of_the_ranks_stands_with_them() {
    let mut suspend = SuspendState::default();
    assert_eq!(suspend.order(50, true), None);
    suspend.hold(Suspender::User, None);
    assert_eq!(suspend.order(100, false), None);
    assert_eq!(suspend.ranks_ms(150), 150);
    assert_eq!(suspend.order(200, true), Some(SuspendOrder::Stop(1)));
    assert_eq!((suspend.ranks_ms(900), suspend.for_ms(900)), (200, Some(700)));
    assert!(suspend.release(Suspender::User) && !suspend.release(Suspender::User));
    assert_eq!(suspend.order(1200, false), Some(SuspendOrder::GoOn(2)));
    assert_eq!(
        (suspend.ranks_ms(1300), suspend.stood_ms(1300), suspend.for_ms(1300)),
        (300, 1000, None)
    );
}

#[test]
fn an_answer_to_an_earlier_order_does_not_count() {
    let mut suspend = SuspendState::default();
    suspend.hold(Suspender::User, None);
    suspend.order(0, true);
    suspend.release(Suspender::User);
    suspend.order(1, true);
    suspend.hold(Suspender::Client(7), Some(50));
    suspend.order(2, true);
    suspend.stands(0, 1);
    assert!(!suspend.whole([0]));
    suspend.stands(0, 3);
    assert!(suspend.whole([0]) && !suspend.whole([0, 1]));
    assert_eq!((suspend.lapse(49), suspend.lapse(50)), (0, 1));
    assert_eq!(suspend.order(50, false), Some(SuspendOrder::GoOn(4)));
}
