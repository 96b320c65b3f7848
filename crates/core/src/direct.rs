//! The direct path of small blocking messages: no request, no queue, one copy on each side.
//!
//! Taken only when nothing else is pending between the two ranks, so that it cannot overtake or
//! be mistaken; else the general path does the same slowly. Named receives only: nothing here is
//! left to chance, and a rank that replays does not come here.

use eyrie_ledger::entry::{Envelope, REMOTE, SYNC};
use eyrie_ledger::sendlog::Outgoing;

use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::matching::accepts;
use crate::status::Status;

/// Larger messages gain nothing here.
const DIRECT_BYTES: u64 = 16 * 1024;

/// A small run of the program's memory and whom it is for.
struct Small {
    at: *mut u8,
    bytes: u64,
    peer: u32,
    ctx: u32,
    me: u32,
}

/// What a direct send came to.
pub(crate) enum Sent {
    /// Not possible here: nothing was done.
    No,
    Whole,
    /// The log was full in the middle: the general path goes on with this.
    Part(Outgoing),
}

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// The arguments, if they are all in order and the data is one small run.
    #[inline]
    fn small(
        &self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        peer: i32,
        tag: i32,
        comm: Handle,
    ) -> Option<Small> {
        let comm = self.comms.get_ref(comm).ok()?;
        let dt = self.types.get_ref(dt).ok()?;
        let (count, peer) = (u64::try_from(count).ok()?, u32::try_from(peer).ok()?);
        let bytes = dt.size.checked_mul(count)?;
        let fits = bytes <= DIRECT_BYTES && peer < comm.peers().size() && tag >= 0;
        let fits = fits && !comm.is_troubled();
        let plain = dt.committed.get() && !dt.is_padded();
        if !fits || !plain || (buf.is_null() && bytes > 0) {
            return None;
        }
        let at = buf.wrapping_offset(dt.contiguous_run(count)? as isize);
        Some(Small { at, bytes, peer: comm.world_rank(peer), ctx: comm.ctx(), me: comm.rank })
    }

    /// # Safety
    /// As `send`.
    #[inline]
    pub(crate) unsafe fn send_direct(
        &mut self,
        buf: *const u8,
        count: i64,
        dt: Handle,
        dest: i32,
        tag: i32,
        comm: Handle,
    ) -> Sent {
        let Some(s) = self.small(buf.cast_mut(), count, dt, dest, tag, comm) else {
            return Sent::No;
        };
        if self.engine.queued_total > 0 || self.keeps_for_others() || !self.has_turn() {
            return Sent::No;
        }
        let env = Envelope {
            len: s.bytes,
            ctx: s.ctx,
            tag,
            crank: s.me,
            flags: self.endpoint.call_bits(),
        };
        let mut out = Outgoing::new(env);
        let whole = self.endpoint.append(s.peer, &mut out, |offset, to| {
            // SAFETY: the program promised `bytes` bytes at `at`; `append` asks for no others.
            unsafe {
                let from = s.at.add(offset as usize);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            }
        });
        self.engine.place += u64::from(out.started);
        self.steps_made(out.started);
        match (whole, out.started) {
            (true, _) => Sent::Whole,
            (false, true) => Sent::Part(out),
            (false, false) => Sent::No,
        }
    }

    /// Receives the message if it is, or comes at once, at the front of the channel.
    ///
    /// # Safety
    /// As `recv`.
    #[inline]
    pub(crate) unsafe fn recv_direct(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        source: i32,
        tag: i32,
        comm: Handle,
    ) -> Option<Res<Status>> {
        let s = self.small(buf, count, dt, source, tag.max(0), comm)?;
        let slow = self.endpoint.replaying() || self.endpoint.is_perturbed();
        if slow || !self.engine.nothing_pending(s.ctx, s.peer) {
            return None;
        }
        // Who looks for long keeps other threads out.
        let looks = if self.threads.may_be_several() { 0 } else { self.endpoint.looks() };
        for _ in 0..=looks {
            let Some(entry) = self.endpoint.peek(s.peer) else { continue };
            let whole = entry.is_first() && entry.is_last();
            let ours = entry.env.ctx == s.ctx && accepts(tag, entry.env.tag);
            if !whole || !ours || entry.flags & (REMOTE | SYNC) != 0 {
                return None;
            }
            let got = entry.frag.min(s.bytes);
            // SAFETY: `peek` vouches for `frag` bytes; the program for `bytes` bytes at `at`.
            unsafe { std::ptr::copy_nonoverlapping(entry.payload, s.at, got as usize) };
            // Posts are numbered alike on both paths: the number is what a recording goes by.
            self.next_post();
            self.endpoint.count_received(entry.frag);
            self.endpoint.consume(s.peer, &entry);
            if entry.frag > s.bytes {
                return Some(Err(class::TRUNCATE));
            }
            let (source, tag) = (entry.env.crank as i32, entry.env.tag);
            return Some(Ok(Status { source, tag, error: 0, bytes: got, cancelled: false }));
        }
        None
    }
}
