//! What tools are told of the machine (MPI_T). The numbers are what they happen to be, so all that
//! a program reads goes through the door.

use eyrie_channel::counters::Gauges;
use eyrie_ledger::door::{Call, Outcome, Verdict};

use crate::env::{packed, unpacked};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// A queue of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Receives that wait for a message.
    Posted,
    /// Messages that wait for a receive.
    Unexpected,
}

impl Machine {
    pub fn gauges(&self) -> Gauges {
        self.endpoint.gauges()
    }

    /// The length of a communicator's queue.
    pub fn queue_length(&self, queue: Queue, comm: Handle) -> Res<u64> {
        let (posted, unexpected) = self.engine.queue_lengths(self.comms.get(comm)?.ctx());
        Ok(match queue {
            Queue::Posted => posted,
            Queue::Unexpected => unexpected,
        } as u64)
    }

    /// Bytes that a tool reads: in a replay those that it had read.
    pub fn read_by_tool(&mut self, now: &[u8]) -> Res<Vec<u8>> {
        self.recorded(Call::Input, || Ok(now.to_vec()))
    }

    /// A number that a tool reads.
    pub fn number_for_tool(&mut self, now: u64) -> Res<u64> {
        let told = self.read_by_tool(&now.to_le_bytes())?;
        told.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or(class::INTERN)
    }

    /// Looks whether numbers are not what they were when it was looked last. That a call found
    /// nothing is recorded like a poll without success.
    pub fn changed<const N: usize>(
        &mut self,
        seen: [u64; N],
        now: impl FnOnce() -> [u64; N],
    ) -> Option<[u64; N]> {
        match self.ask(Call::Input) {
            Verdict::Live => {
                let now = now();
                if now == seen {
                    self.endpoint.door.fruitless();
                    return None;
                }
                self.endpoint.door.record(Call::Input, &packed(&bytes_of(now)));
                Some(now)
            }
            Verdict::Fruitless => None,
            Verdict::Forced(Outcome::Many(words)) => match unpacked(&words).and_then(numbers_of) {
                Some(then) => Some(then),
                None => self.misreplayed(Call::Input),
            },
            Verdict::Forced(Outcome::One(_)) => self.misreplayed(Call::Input),
        }
    }
}

fn bytes_of<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn numbers_of<const N: usize>(bytes: Vec<u8>) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let (words, rest) = bytes.as_chunks::<8>();
    if words.len() != N || !rest.is_empty() {
        return None;
    }
    numbers.iter_mut().zip(words).for_each(|(n, word)| *n = u64::from_le_bytes(*word));
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consts::COMM_WORLD;
    use crate::datatype::predefined::BYTE;
    use crate::p2p::SendMode;
    use crate::testing;
    use eyrie_channel::counters::Gauge;

    #[test]
    fn what_a_tool_reads_is_what_it_was() {
        let seg = testing::segment(1);
        let mut first = testing::machine(seg, 0, 1);
        assert_eq!(first.number_for_tool(7), Ok(7));
        assert_eq!(first.changed([0, 0], || [0, 0]), None);
        assert_eq!(first.changed([0, 0], || [0, 0]), None);
        assert_eq!(first.changed([0, 0], || [0, 3]), Some([0, 3]));
        let mut again = testing::machine(seg, 0, 2);
        assert_eq!(again.number_for_tool(8), Ok(7));
        assert_eq!(again.changed([0, 0], || panic!()), None);
        assert_eq!(again.changed([0, 0], || panic!()), None);
        assert_eq!(again.changed([0, 0], || panic!()), Some([0, 3]));
        assert_eq!(again.changed([0, 3], || [1, 3]), Some([1, 3]));
    }

    #[test]
    fn messages_and_queues_are_counted() {
        let seg = testing::segment(1);
        let mut m = testing::machine(seg, 0, 1);
        let (data, mut into) = ([1u8; 40], [0u8; 64]);
        for _ in 0..3 {
            // SAFETY: `data` holds that many bytes.
            unsafe { m.send(SendMode::Standard, data.as_ptr(), 40, BYTE, 0, 5, COMM_WORLD) }
                .unwrap();
        }
        // SAFETY: `into` has room, until the request is complete.
        let other = unsafe { m.irecv(into.as_mut_ptr(), 64, BYTE, 0, 6, COMM_WORLD) }.unwrap();
        m.iprobe(0, 7, COMM_WORLD).unwrap();
        assert_eq!(m.queue_length(Queue::Posted, COMM_WORLD), Ok(1));
        assert_eq!(m.queue_length(Queue::Unexpected, COMM_WORLD), Ok(3));
        for _ in 0..3 {
            // SAFETY: `into` has room.
            unsafe { m.recv(into.as_mut_ptr(), 64, BYTE, 0, 5, COMM_WORLD) }.unwrap();
        }
        assert_eq!(m.queue_length(Queue::Unexpected, COMM_WORLD), Ok(0));
        let gauges = m.gauges();
        assert_eq!(gauges.get(Gauge::MessagesSent), 3);
        assert_eq!(gauges.get(Gauge::BytesSent), 120);
        assert_eq!(gauges.get(Gauge::MessagesReceived), 3);
        assert_eq!(gauges.get(Gauge::BytesReceived), 120);
        m.cancel(other).unwrap();
    }
}
