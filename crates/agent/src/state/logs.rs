//! What the logs of a node wait for.
//!
//! Kept true: nothing is given up while a thread reads them. Giving up is left to the outer `logs`.

use eyrie_control::node::ToNode;
use eyrie_ledger::acked;
use eyrie_ledger::segment::Segment;
use eyrie_process::futex;

/// Source, receiver, position.
pub(crate) type Ack = (u32, u32, u64);

/// What the logs of a node wait for.
#[derive(Default)]
pub(crate) struct Logs {
    /// Threads that read them; nothing of those is released meanwhile.
    readers: u32,
    waiting: Vec<ToNode>,
    /// Acknowledgements for what is not written again yet.
    owed: Vec<Ack>,
}

impl Logs {
    pub fn begin_read(&mut self) {
        self.readers += 1;
    }

    pub fn end_read(&mut self) {
        self.readers -= 1;
    }

    /// The order, unless it has to wait for those that read.
    pub(crate) fn put_off(&mut self, order: ToNode) -> Option<ToNode> {
        if self.readers == 0 {
            return Some(order);
        }
        self.waiting.push(order);
        None
    }

    /// Orders that need not wait any more.
    pub(crate) fn due(&mut self) -> Vec<ToNode> {
        if self.readers == 0 { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }

    /// There is another segment: positions of the one that was mean nothing.
    pub fn begin_anew(&mut self) {
        self.waiting.clear();
        self.owed.clear();
    }

    pub fn owe(&mut self, acks: impl Iterator<Item = Ack>) {
        self.owed.extend(acks);
    }

    pub fn owe_nothing_to(&mut self, is_receiver: impl Fn(u32) -> bool) {
        self.owed.retain(|(_, receiver, _)| !is_receiver(*receiver));
    }

    pub fn owes_acks(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Acknowledges what its sender has written again by now.
    pub(crate) fn mark(&mut self, segment: &Segment) {
        self.owed.retain(|(src, dst, at)| {
            let marked = acked::mark(segment, *src, *dst, *at);
            if marked {
                futex::ring(&segment.rank(*src).doorbell);
            }
            !marked
        });
    }
}
