//! What is to happen in a simulated job, in the order of its time; of what happens at the same time
//! first comes what was put down first.

use crate::types::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Events to come.
#[derive(Clone)]
pub struct Agenda<E> {
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, E>,
    numbered: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { queue: BinaryHeap::new(), events: BTreeMap::new(), numbered: 0 }
    }
}

impl<E> Agenda<E> {
    /// Puts an event down for a time.
    pub fn put(&mut self, time: Time, event: E) {
        self.numbered += 1;
        self.events.insert(self.numbered, event);
        self.queue.push(Reverse((time, self.numbered)));
    }

    /// The next one.
    pub fn peek(&self) -> Option<&E> {
        self.queue.peek().and_then(|Reverse((_, number))| self.events.get(number))
    }

    /// Takes the next one, and when it happens.
    pub fn next(&mut self) -> Option<(Time, E)> {
        let Reverse((time, number)) = self.queue.pop()?;
        self.events.remove(&number).map(|event| (time, event))
    }
}
