//! Whether all ranks of a communicator call the same collective in the same way, where a program is
//! checked in full (`EYRIE_CHECK=full`).
//!
//! Before a blocking collective begins, each rank tells the first one what it was called with, and
//! hears from that whether all were called alike. So a collective waits for all, and takes longer.
//! Kept true: who tells whom follows from the communicator alone, so a replay does the same; a call
//! whose arguments are refused has told nobody, and can be made again.

use std::rc::Rc;

use crate::agreement::{CALL_BYTES, Collective, NOTHING, in_words};
use crate::comm::Comm;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::machine::Machine;

/// What is heard: the first rank that was called otherwise, its call and that of the first rank.
const VERDICT_BYTES: usize = 4 + 2 * CALL_BYTES;

impl Machine {
    /// A collective takes its tag: all its arguments were found right.
    #[inline]
    pub(crate) fn begin_collective(&mut self, comm: &Rc<Comm>, tag: i32) -> Res<()> {
        comm.take_tag(tag);
        match self.agreement.call.take() {
            None => Ok(()),
            Some(call) => self.agree(comm, &call),
        }
    }

    #[cold]
    fn agree(&mut self, comm: &Rc<Comm>, call: &Collective) -> Res<()> {
        if comm.size() == 1 {
            return Ok(());
        }
        let (own, tag) = (call.told(), comm.next_tag());
        let verdict = match comm.rank {
            0 => self.compare(comm, tag, &own)?,
            _ => self.hear(comm, tag, &own)?,
        };
        let (rank, calls) = verdict.split_at(4);
        let rank = rank.try_into().map_or(NOTHING, u32::from_le_bytes);
        if rank == NOTHING {
            return Ok(());
        }
        let (theirs, first) = calls.split_at(CALL_BYTES);
        let (theirs, first) = (in_words(theirs), in_words(first));
        self.agreement.difference =
            Some(format!("rank {rank} of the communicator called {theirs}, rank 0 {first}"));
        Err(class::NOT_SAME)
    }

    /// The first rank hears all calls and tells what it found.
    fn compare(&mut self, comm: &Rc<Comm>, tag: i32, own: &[u8]) -> Res<[u8; VERDICT_BYTES]> {
        let byte = self.types.get(BYTE)?;
        let mut verdict = [0; VERDICT_BYTES];
        verdict[..4].copy_from_slice(&NOTHING.to_le_bytes());
        for rank in 1..comm.size() {
            let mut theirs = [0; CALL_BYTES];
            let (to, room) = (theirs.as_mut_ptr(), CALL_BYTES as u64);
            // SAFETY: the buffer has so many bytes.
            unsafe { self.coll_recv(comm, to, room, &byte, rank, tag)? };
            if theirs != *own && verdict[..4] == NOTHING.to_le_bytes() {
                verdict[..4].copy_from_slice(&rank.to_le_bytes());
                verdict[4..4 + CALL_BYTES].copy_from_slice(&theirs);
                verdict[4 + CALL_BYTES..].copy_from_slice(own);
            }
        }
        for rank in 1..comm.size() {
            let (from, bytes) = (verdict.as_ptr(), VERDICT_BYTES as u64);
            // SAFETY: as above.
            unsafe { self.coll_send(comm, from, bytes, &byte, rank, tag)? };
        }
        Ok(verdict)
    }

    fn hear(&mut self, comm: &Rc<Comm>, tag: i32, own: &[u8]) -> Res<[u8; VERDICT_BYTES]> {
        let byte = self.types.get(BYTE)?;
        let mut verdict = [0; VERDICT_BYTES];
        // SAFETY: both buffers have so many bytes.
        unsafe {
            self.coll_send(comm, own.as_ptr(), own.len() as u64, &byte, 0, tag)?;
            let (to, room) = (verdict.as_mut_ptr(), VERDICT_BYTES as u64);
            self.coll_recv(comm, to, room, &byte, 0, tag)?;
        }
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consts::COMM_WORLD;
    use crate::testing;

    fn barrier() -> Collective {
        Collective { name: "MPI_Barrier", root: None, op: None, bytes: None }
    }

    #[test]
    fn who_is_called_otherwise_is_told_to_all() {
        testing::run(4, |m| {
            let (me, _) = m.world();
            for _ in 0..3 {
                m.agreement.call = Some(barrier());
                m.barrier(COMM_WORLD).unwrap();
            }
            let other = Collective { root: Some(1), name: "MPI_Bcast", ..barrier() };
            m.agreement.call = Some(if me == 2 { other } else { barrier() });
            assert_eq!(m.barrier(COMM_WORLD), Err(class::NOT_SAME));
            let told = m.agreement.difference.take().unwrap();
            assert!(told.starts_with("rank 2 of"), "{told}");
            assert!(told.ends_with("called MPI_Bcast (root 1), rank 0 MPI_Barrier"), "{told}");
            // They are in step.
            m.barrier(COMM_WORLD).unwrap();
        });
    }
}
