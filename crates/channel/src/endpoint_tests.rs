//! Tests of a rank's end of its channels.

use super::*;
use eyrie_ledger::segment::{FT_LOGGED, Geometry};

#[test]
fn what_was_taken_early_is_needed_until_it_is_here_and_no_longer_elsewhere() {
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
