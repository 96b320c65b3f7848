//! What comes is taken once and in order, and the sender hears what it must.

use super::*;

const S: Stream = (0, 1);
const WINDOW: u64 = 1000;

fn resumed(out: &[Backward]) -> (u32, u64, u64) {
    match out {
        [Backward::Resume { serial, from, credit, .. }, ..] => (*serial, *from, *credit),
        other => panic!("{other:?}"),
    }
}

fn receiver() -> (Receiver, u32) {
    let (mut receiver, mut out) = (Receiver::new(WINDOW), Vec::new());
    receiver.open(S, 0, &mut out);
    assert!(out.is_empty(), "nobody is there to receive");
    receiver.attach(S, (0, 0), [], &mut out);
    let (serial, from, credit) = resumed(&out);
    assert_eq!((from, credit), (0, WINDOW));
    (receiver, serial)
}

#[test]
fn pieces_are_taken_in_order_under_the_last_serial() {
    let (mut receiver, serial) = receiver();
    assert_eq!(receiver.piece(S, serial, 0), Ok(Piece::Take));
    assert_eq!(receiver.took(S, 200, []), Ok(false));
    assert!(receiver.piece(S, serial, 0).is_err(), "again");
    assert!(receiver.piece(S, serial, 300).is_err(), "a gap");
    assert!(receiver.piece(S, serial + 9, 200).is_err(), "never given");
    assert!(receiver.piece((5, 1), 1, 0).is_err(), "not opened");
    let mut out = Vec::new();
    receiver.attach(S, (64, 70), [], &mut out);
    assert_eq!(receiver.piece(S, serial, 200), Ok(Piece::Ignore), "on its way meanwhile");
    assert_eq!(receiver.piece(S, resumed(&out).0, 64), Ok(Piece::Take));
    receiver.detach(S);
    assert_eq!(receiver.piece(S, resumed(&out).0, 64), Ok(Piece::Ignore), "nobody is there");
}

#[test]
fn credit_follows_what_was_looked_at_not_what_was_taken() {
    let (mut receiver, _) = receiver();
    assert_eq!(receiver.took(S, 1000, []), Ok(true));
    let mut out = Vec::new();
    receiver.moved(S, (0, 600), |_| false, &mut out);
    assert_eq!(out, [Backward::Progress { stream: S, have: 1000, need: 0, credit: 1600 }]);
    out.clear();
    receiver.moved(S, (600, 700), |_| false, &mut out);
    assert!(matches!(out[..], [Backward::Progress { need: 600, credit: 1700, .. }]));
    assert!(receiver.took(S, 1701, []).is_err(), "more than was asked for");
}

#[test]
fn an_acknowledgement_is_told_on_every_connection_until_it_is_left_behind() {
    let (mut receiver, _) = receiver();
    receiver.took(S, 300, [64, 128]).unwrap();
    let mut out = Vec::new();
    receiver.moved(S, (0, 300), |position| position == 128, &mut out);
    assert_eq!(out[0], Backward::Acked { stream: S, position: 128 });
    receiver.connected(0, |(src, _)| src == 0);
    out.clear();
    receiver.open(S, 0, &mut out);
    assert_eq!(out[1..], [Backward::Acked { stream: S, position: 128 }]);
    out.clear();
    receiver.moved(S, (300, 300), |_| false, &mut out);
    assert_eq!(out[0], Backward::Acked { stream: S, position: 64 });
    out.clear();
    receiver.open(S, 0, &mut out);
    assert_eq!(out.len(), 1, "both are left behind");
}

#[test]
fn for_want_of_room_a_stream_waits_and_begins_again_there() {
    let (mut receiver, serial) = receiver();
    receiver.took(S, 200, []).unwrap();
    let mut out = Vec::new();
    receiver.starve(S, &mut out);
    assert_eq!(resumed(&out), (resumed(&out).0, 200, 200));
    assert_eq!(receiver.piece(S, serial, 200), Ok(Piece::Ignore));
    assert_eq!(receiver.feed(0), [S]);
    out.clear();
    receiver.moved(S, (0, 0), |_| false, &mut out);
    assert!(matches!(out[..], [Backward::Progress { credit: 1000, .. }]));
}

/// Its sender writes its log again, and waits for no acknowledgement of what was matched long ago.
#[test]
fn a_receiver_that_begins_ahead_of_what_is_here_stays_there() {
    let (mut receiver, mut out) = (Receiver::new(WINDOW), Vec::new());
    receiver.open(S, 0, &mut out);
    receiver.attach(S, (0, 832), [], &mut out);
    assert!(matches!(out[..], [Backward::Resume { from: 0, need: 832, .. }]));
    assert_eq!(receiver.took(S, 640, [256]), Ok(true));
    out.clear();
    receiver.moved(S, (832, 832), |_| false, &mut out);
    assert_eq!(out[0], Backward::Acked { stream: S, position: 256 });
    assert!(matches!(out[1], Backward::Progress { have: 640, need: 832, .. }));
    out.clear();
    receiver.moved(S, (900, 900), |_| false, &mut out);
    assert!(out.is_empty(), "beyond what is here");
}

#[test]
fn what_is_on_its_way_when_a_stream_comes_from_elsewhere_is_passed_over() {
    let (mut receiver, serial) = receiver();
    receiver.connected(0, |stream| stream == S);
    assert_eq!(receiver.piece(S, serial, 0), Ok(Piece::Ignore));
    assert!(receiver.piece(S, serial + 1, 0).is_err(), "never given");
}

/// A node that has heard earlier that the sender comes to it has asked already.
#[test]
fn a_stream_that_comes_back_goes_on() {
    let (mut receiver, serial) = receiver();
    let mut out = Vec::new();
    receiver.come_from(|stream| (stream == S).then_some(7), &mut out);
    assert!(out.is_empty(), "node 7 has not asked");
    assert_eq!(receiver.piece(S, serial, 0), Ok(Piece::Ignore));
    receiver.come_from(|_| Some(0), &mut out);
    assert_eq!(receiver.piece(S, resumed(&out).0, 0), Ok(Piece::Take));
}

/// A router may have sent it on before it heard that the sender is at the receiver's node, and hear
/// only later that the sender is elsewhere.
#[test]
fn what_came_while_the_sender_was_here_is_asked_for_when_it_leaves() {
    let (mut receiver, serial) = receiver();
    receiver.detach(S);
    assert_eq!(receiver.piece(S, serial, 0), Ok(Piece::Ignore));
    let mut out = Vec::new();
    receiver.open(S, 0, &mut out);
    assert!(out.is_empty(), "the sender's log is here");
    receiver.attach(S, (0, 0), [], &mut out);
    let (anew, from, _) = resumed(&out);
    assert_eq!((from, receiver.piece(S, serial, 0)), (0, Ok(Piece::Ignore)));
    assert_eq!(receiver.piece(S, anew, 0), Ok(Piece::Take));
}
