//! Tests of a rank's end of its channels.

use super::*;
use eyrie_ledger::segment::{FT_LOGGED, Geometry};

#[test]
fn what_was_taken_ahead_of_the_log_is_needed_until_it_is_here_and_no_longer_elsewhere() {
    let (_, seg) = Segment::create("t", Geometry::new(2, 1 << 20), FT_LOGGED, 2).unwrap();
    let mut ep = Endpoint::join(Box::leak(Box::new(seg)), 1);
    let rx = &mut ep.rx[0];
    let need = |rx: &mut Rx| {
        rx.publish_need();
        rx.ctl.need.load(Relaxed)
    };
    rx.ctl.here.store(4000, Relaxed);
    (rx.reader.pos, rx.ahead) = (5000, true);
    assert_eq!(need(rx), 4000);
    // Restored on a node that has nothing of the stream, with what its image says.
    rx.ctl.here.store(0, Relaxed);
    assert_eq!(need(rx), 4000);
    rx.ctl.here.store(4500, Relaxed);
    assert_eq!(need(rx), 4500);
    rx.ahead = false;
    assert_eq!(need(rx), 5000);
}

fn message(ep: &mut Endpoint, dst: u32, byte: u8) {
    let mut msg = Outgoing::new(Envelope { len: 8, ctx: 2, tag: 1, crank: 0, flags: 0 });
    assert!(ep.append(dst, &mut msg, |_, out| out.fill(byte)));
}

/// Another life of rank 1, in a call of MPI, that has something to repeat.
fn reborn(seg: &'static Segment) -> Endpoint {
    let mut ep = Endpoint::join(seg, 1);
    let _ = ep.enter();
    assert_eq!(seg.rank(1).replaying.load(Relaxed), 1);
    ep
}

#[test]
fn the_call_that_repeats_the_last_of_what_is_recorded_says_so() {
    let (_, seg) = Segment::create("t", Geometry::new(2, 1 << 20), FT_LOGGED, 2).unwrap();
    let seg: &Segment = Box::leak(Box::new(seg));
    let flag = &seg.rank(1).replaying;
    let mut ep = Endpoint::join(seg, 1);
    assert_eq!(flag.load(Relaxed), 0);
    ep.door.record(Call::Waitany, &Outcome::One(2));
    message(&mut ep, 0, 7);
    // The last is a message.
    let mut ep = reborn(seg);
    assert_eq!(ep.door.ask(Call::Waitany), Ok(Verdict::Forced(Outcome::One(2))));
    ep.leave();
    let _ = ep.enter();
    assert_eq!(flag.load(Relaxed), 1, "there is a message more");
    message(&mut ep, 0, 7);
    assert_eq!(flag.load(Relaxed), 1, "the call is not over");
    let bell = seg.header().bell.load(Relaxed);
    ep.leave();
    assert_eq!(flag.load(Relaxed), 0);
    assert!(seg.header().bell.load(Relaxed) > bell, "the daemon hears of it");
    // What follows from that is left to the next call.
    assert!(ep.replaying());
    let _ = ep.enter();
    assert!(ep.end_replay() && !ep.replaying());
    // The last is a fruitless call.
    ep.door.fruitless();
    ep.door.fruitless();
    let mut ep = reborn(seg);
    let _ = ep.door.ask(Call::Waitany);
    message(&mut ep, 0, 7);
    assert_eq!(ep.door.ask(Call::Test), Ok(Verdict::Fruitless));
    ep.leave();
    let _ = ep.enter();
    assert_eq!(flag.load(Relaxed), 1);
    assert_eq!(ep.door.ask(Call::Test), Ok(Verdict::Fruitless));
    ep.leave();
    assert_eq!(flag.load(Relaxed), 0);
}
