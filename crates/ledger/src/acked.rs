//! Acknowledgements of synchronous messages that were lost with a node, when sender and receiver
//! both come back from images.
//!
//! The acknowledgement is a flag in the entry, in the log. A receiver that was restored does not
//! give again what it gave before its image; so what it had acknowledged is put into the log here.
//! Kept true: only entries are touched that are published and want an acknowledgement.

use crate::segment::Segment;
use crate::walk::{self, Walk};

/// Calls `found` with the position of each published entry from `from` to before `to` that wants
/// an acknowledgement.
fn each(seg: &Segment, src: u32, dst: u32, (from, to): (u64, u64), mut found: impl FnMut(u64)) {
    let chunk = u64::from(seg.geometry().chunk_bytes);
    for n in from / chunk..to.div_ceil(chunk) {
        let Some(mut walk) = Walk::from_chunk(seg, src, dst, n) else { continue };
        while walk.pos() < to.min((n + 1) * chunk) {
            let at = walk.pos();
            match walk.step(seg) {
                Ok(Some(spot)) if spot.wants_ack() && at >= from => found(at),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
}

/// What the receiver of a stream, which may still read from `need` on and has looked up to
/// `front`, has acknowledged of that.
pub fn between(seg: &Segment, src: u32, dst: u32, need: u64, front: u64) -> Vec<u64> {
    let mut acked = Vec::new();
    each(seg, src, dst, (need, front), |at| {
        if walk::is_acknowledged(seg, src, dst, at) {
            acked.push(at);
        }
    });
    acked
}

/// The receiver needs nothing before `need`: all of that was matched.
pub fn pass(seg: &Segment, src: u32, dst: u32, need: u64) {
    let chunk = u64::from(seg.geometry().chunk_bytes);
    let first = seg.channel(src, dst).chunks_first.load(std::sync::atomic::Ordering::Acquire);
    let from = first.saturating_mul(chunk).min(need);
    each(seg, src, dst, (from, need), |at| walk::acknowledge(seg, src, dst, at));
}

/// Acknowledges the entry at `pos`, if it is there or will never be. False: not yet.
pub fn mark(seg: &Segment, src: u32, dst: u32, pos: u64) -> bool {
    let ctl = seg.channel(src, dst);
    if ctl.trim.load(std::sync::atomic::Ordering::Acquire) > pos {
        return true;
    }
    let mut marked = false;
    each(seg, src, dst, (pos, pos + 1), |at| {
        walk::acknowledge(seg, src, dst, at);
        marked = true;
    });
    marked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Envelope, SYNC};
    use crate::segment::{FT_LOGGED, Geometry};
    use crate::sendlog::{Append, Outgoing, SendLog};
    use std::sync::atomic::Ordering::Relaxed;

    fn send(log: &mut SendLog, flags: u32) -> u64 {
        let env = Envelope { len: 100, ctx: 0, tag: 1, crank: 0, flags };
        let mut message = Outgoing::new(env);
        assert_eq!(log.append(1, &mut message, |_, out| out.fill(7)).unwrap(), Append::Whole);
        message.start
    }

    fn world() -> (&'static Segment, SendLog) {
        let made = Segment::create("a", Geometry::new(2, 16 << 20), FT_LOGGED, 1).unwrap();
        let seg: &'static Segment = Box::leak(Box::new(made.1));
        (seg, SendLog::new(seg, 0))
    }

    #[test]
    fn what_was_matched_before_is_acknowledged_again() {
        let (seg, mut log) = world();
        let at: Vec<u64> = [SYNC, 0, SYNC, SYNC].map(|flags| send(&mut log, flags)).into();
        walk::acknowledge(seg, 0, 1, at[3]);
        assert_eq!(between(seg, 0, 1, at[1], at[3] + 64), [at[3]]);
        pass(seg, 0, 1, at[2]);
        let acked = |at: &u64| walk::is_acknowledged(seg, 0, 1, *at);
        assert_eq!(at.iter().map(acked).collect::<Vec<_>>(), [true, false, false, true]);
        assert!(mark(seg, 0, 1, at[2]) && acked(&at[2]));
        assert!(!mark(seg, 0, 1, at[3] + 192), "it is not there yet");
    }

    #[test]
    fn a_sender_that_is_behind_its_receiver_gets_the_acknowledgement_at_once() {
        let (seg, mut log) = world();
        seg.channel(0, 1).need.store(200, Relaxed);
        let at = [SYNC, SYNC].map(|flags| send(&mut log, flags));
        assert_eq!(at.map(|at| walk::is_acknowledged(seg, 0, 1, at)), [true, at[1] < 200]);
    }
}
