//! The single-copy path for large messages of protected jobs: while the sender writes a message to
//! its log, the receiver reads it where the sender has it, and takes the rest from the log when the
//! sender is done first. The two copies overlap, and neither waits for the other.
//!
//! Kept true: bytes count only if the sender still offered the message *after* they were read, and
//! was then still the incarnation that offered it. The sender withdraws a message before its send
//! completes, so before the program may write to the memory; the daemon counts an incarnation
//! before it starts one, so memory of a restored sender (same process number, same address, older
//! content) is never taken for that of its predecessor. `tests/loom_models.rs` has the model.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use eyrie_ledger::segment::{ChannelCtl, RankCtl};

use crate::remote;

/// Bytes read between two looks whether the message is still offered: what is lost at most.
const PIECE_BYTES: u64 = 1024 * 1024;

/// Offers the message that starts at position `start` of the channel and lies at `at`.
pub fn offer(ctl: &ChannelCtl, start: u64, at: u64, pid: u32, incarnation: u32) {
    // Release: who sees these sees what came before, the withdrawal of the last message.
    ctl.shown_at.store(at, Release);
    ctl.shown_by.store(u64::from(pid) << 32 | u64::from(incarnation), Release);
    ctl.shown.store(start + 1, Release);
}

/// Withdraws what is offered, after up to `looks` looks whether a receiver that is reading it is
/// done.
pub fn withdraw(ctl: &ChannelCtl, looks: u32) {
    let shown = ctl.shown.load(Relaxed);
    if shown == 0 {
        return;
    }
    // Worth it for the receiver, which would have to read its last piece again; no more than that.
    for _ in 0..looks {
        if ctl.viewing.load(Relaxed) != shown {
            break;
        }
        std::hint::spin_loop();
    }
    ctl.shown.store(0, Release);
    // The program may write to the memory from now on.
    fence(SeqCst);
}

/// A message that its sender offers.
pub struct SingleCopy<'a> {
    ctl: &'a ChannelCtl,
    sender: &'a RankCtl,
    /// Value of `ChannelCtl::shown`.
    shown: u64,
    at: u64,
    pid: u32,
    incarnation: u32,
}

impl<'a> SingleCopy<'a> {
    /// The message that starts at `start`, if it is offered.
    pub fn find(ctl: &'a ChannelCtl, sender: &'a RankCtl, start: u64) -> Option<Self> {
        let shown = ctl.shown.load(Acquire);
        if shown != start + 1 {
            return None;
        }
        let (at, by) = (ctl.shown_at.load(Acquire), ctl.shown_by.load(Acquire));
        let (pid, incarnation) = ((by >> 32) as u32, by as u32);
        let this = SingleCopy { ctl, sender, shown, at, pid, incarnation };
        this.stands().then_some(this)
    }

    /// Whether what was read until now is the message.
    fn stands(&self) -> bool {
        // What was read came before these looks.
        fence(SeqCst);
        self.sender.incarnation.load(Acquire) == self.incarnation
            && self.ctl.shown.load(Acquire) == self.shown
    }

    /// Reads bytes `from..to` of it to `out + from`. Returns up to where they are right; `Err`: the
    /// system does not let us read.
    ///
    /// # Safety
    /// `out` must be valid for writing `to` bytes.
    pub unsafe fn read(&self, out: *mut u8, from: u64, to: u64) -> Result<u64, u64> {
        self.ctl.viewing.store(self.shown, Relaxed);
        let mut right = from;
        let mut refused = false;
        while right < to {
            let bytes = PIECE_BYTES.min(to - right);
            let place = out.wrapping_add(right as usize);
            // SAFETY: `place` is valid for `bytes` bytes by the caller's promise.
            let read = unsafe { remote::read(self.pid, self.at + right, place, bytes) };
            refused = read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
            if read.is_err() || !self.stands() {
                break;
            }
            right += bytes;
        }
        self.ctl.viewing.store(0, Relaxed);
        if refused { Err(right) } else { Ok(right) }
    }
}

#[cfg(test)]
mod tests {
    use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};

    use super::*;

    const START: u64 = 4096;

    /// A segment in which rank 0 shows rank 1 `message`.
    fn offering(message: &[u8]) -> Segment {
        let (_, seg) = Segment::create("t", Geometry::new(2, 1 << 20), FT_LOGGED, 2).unwrap();
        seg.rank(0).incarnation.store(3, Relaxed);
        let at = message.as_ptr() as u64;
        offer(seg.channel(0, 1), START, at, std::process::id(), 3);
        seg
    }

    fn message() -> Vec<u8> {
        (0..3 * PIECE_BYTES + 5).map(|i| ((i * 7) >> 3) as u8).collect()
    }

    #[test]
    fn what_is_offered_is_read_from_anywhere_to_anywhere() {
        let message = message();
        let seg = offering(&message);
        let whole = message.len() as u64;
        for (from, to) in [(0, whole), (100, PIECE_BYTES), (PIECE_BYTES + 1, 2 * PIECE_BYTES + 9)] {
            let mut out = vec![0u8; to as usize];
            let shown = SingleCopy::find(seg.channel(0, 1), seg.rank(0), START).unwrap();
            // SAFETY: `out` is `to` bytes long.
            assert_eq!(unsafe { shown.read(out.as_mut_ptr(), from, to) }, Ok(to));
            assert_eq!(out[from as usize..], message[from as usize..to as usize]);
            assert!(out[..from as usize].iter().all(|&b| b == 0));
        }
        assert_eq!(seg.channel(0, 1).viewing.load(Relaxed), 0);
    }

    #[test]
    fn another_message_or_a_withdrawn_one_is_not_found() {
        let message = message();
        let seg = offering(&message);
        assert!(SingleCopy::find(seg.channel(0, 1), seg.rank(0), START + 64).is_none());
        withdraw(seg.channel(0, 1), 0);
        assert!(SingleCopy::find(seg.channel(0, 1), seg.rank(0), START).is_none());
    }

    #[test]
    fn what_is_read_after_the_end_of_the_send_does_not_count() {
        let message = message();
        let seg = offering(&message);
        let shown = SingleCopy::find(seg.channel(0, 1), seg.rank(0), START).unwrap();
        withdraw(seg.channel(0, 1), 0);
        let mut out = vec![0u8; message.len()];
        // SAFETY: `out` is as long as the message.
        assert_eq!(unsafe { shown.read(out.as_mut_ptr(), 9, out.len() as u64) }, Ok(9));
    }

    #[test]
    fn what_a_later_incarnation_has_there_does_not_count() {
        let message = message();
        let seg = offering(&message);
        let shown = SingleCopy::find(seg.channel(0, 1), seg.rank(0), START).unwrap();
        seg.rank(0).incarnation.store(4, Relaxed);
        let mut out = vec![0u8; message.len()];
        // SAFETY: `out` is as long as the message.
        assert_eq!(unsafe { shown.read(out.as_mut_ptr(), 0, out.len() as u64) }, Ok(0));
        assert!(SingleCopy::find(seg.channel(0, 1), seg.rank(0), START).is_none());
    }

    #[test]
    fn memory_that_is_gone_is_not_an_error() {
        let seg = offering(&[]);
        offer(seg.channel(0, 1), START, 64, std::process::id(), 3);
        let shown = SingleCopy::find(seg.channel(0, 1), seg.rank(0), START).unwrap();
        let mut out = vec![0u8; 100];
        // SAFETY: `out` is 100 bytes long.
        assert_eq!(unsafe { shown.read(out.as_mut_ptr(), 0, 100) }, Ok(0));
    }
}
