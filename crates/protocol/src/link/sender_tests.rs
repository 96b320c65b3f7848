//! Pieces go out in order, as far as they may.

use super::*;

const S: Stream = (0, 1);

fn resumed(sender: &mut Sender<u64>, from: u64, credit: u64) {
    sender.news(S);
    assert_eq!(sender.next(|_| true), Some(Send::Open { stream: S }));
    let resume = Backward::Resume { stream: S, serial: 3, life: 0, from, need: 0, credit };
    let effect = sender.answer(resume).unwrap();
    assert_eq!(effect, Effect::Rewind { stream: S, from, need: 0 });
}

fn piece(from: u64, end: u64) -> Option<Send> {
    Some(Send::Piece { stream: S, serial: 3, from, end, bytes: end - from })
}

#[test]
fn nothing_is_sent_before_the_receiver_says_where_to_go_on() {
    let mut sender = Sender::default();
    sender.news(S);
    assert_eq!(sender.next(|_: u64| true), None, "no connection");
    sender.connected();
    resumed(&mut sender, 100, 300);
    assert_eq!((sender.cut(S), sender.next(|_| true)), (Some(100), None));
    for end in [200, 300, 400] {
        sender.piece(S, end, 100, end);
    }
    assert_eq!(sender.next(|t| t < 200), None, "its ticket is not due");
    assert_eq!(sender.next(|t| t < 250), piece(100, 200));
    assert_eq!(sender.next(|_| true), piece(200, 300));
    assert_eq!(sender.next(|_| true), None, "beyond the credit");
    let progress = Backward::Progress { stream: S, have: 300, need: 250, credit: 500 };
    let moved = Effect::Moved { stream: S, have: 300, need: 250 };
    assert_eq!(sender.answer(progress), Ok(moved));
    assert_eq!(sender.next(|_| true), piece(300, 400));
}

#[test]
fn a_new_connection_asks_anew() {
    let mut sender = Sender::default();
    sender.connected();
    resumed(&mut sender, 0, 1000);
    sender.piece(S, 64, 64, 0);
    sender.connected();
    assert_eq!(sender.next(|_| true), Some(Send::Open { stream: S }));
    assert_eq!(sender.cut(S), None);
    let late = Backward::Acked { stream: S, position: 9 };
    assert_eq!(sender.answer(late), Ok(Effect::Nothing));
    resumed_again(&mut sender);
}

fn resumed_again(sender: &mut Sender<u64>) {
    let resume = Backward::Resume { stream: S, serial: 3, life: 0, from: 64, need: 0, credit: 128 };
    sender.answer(resume).unwrap();
    sender.piece(S, 128, 64, 0);
    assert_eq!(sender.next(|_| true), piece(64, 128));
}

#[test]
fn one_stream_holds_up_no_other() {
    let other = (0, 2);
    let mut sender = Sender::default();
    sender.connected();
    resumed(&mut sender, 0, 0);
    sender.piece(S, 64, 64, 0);
    sender.news(other);
    assert_eq!(sender.next(|_| true), Some(Send::Open { stream: other }));
    let resume =
        Backward::Resume { stream: other, serial: 1, life: 0, from: 0, need: 0, credit: 64 };
    sender.answer(resume).unwrap();
    sender.piece(other, 64, 64, 0);
    let Some(Send::Piece { stream, .. }) = sender.next(|_| true) else { panic!("nothing") };
    assert_eq!(stream, other);
}

#[test]
fn answers_that_do_not_go_together_are_refused() {
    let mut sender = Sender::default();
    sender.connected();
    resumed(&mut sender, 100, 300);
    let beyond = Backward::Progress { stream: S, have: 101, need: 0, credit: 300 };
    assert!(sender.answer(beyond).is_err());
    assert!(sender.answer(Backward::Acked { stream: S, position: 100 }).is_err());
    let less = Backward::Resume { stream: S, serial: 4, life: 0, from: 100, need: 0, credit: 99 };
    assert!(sender.answer(less).is_err());
    let unknown = Backward::Acked { stream: (7, 7), position: 100 };
    assert_eq!(sender.answer(unknown), Ok(Effect::Nothing));
}

/// Also not `Open`, of a stream that begins anew as its sender is elsewhere: the answer to what was
/// asked for before says nothing any more.
#[test]
fn nothing_goes_to_a_rank_that_is_held() {
    let mut sender = Sender::default();
    sender.connected();
    resumed(&mut sender, 0, 1000);
    sender.piece(S, 64, 64, 0);
    sender.hold(S.1);
    assert_eq!(sender.next(|_| true), None, "not even what was cut");
    sender.forget(|stream| stream == S);
    sender.news(S);
    assert_eq!(sender.next(|_| true), None);
    let late = Backward::Resume { stream: S, serial: 2, life: 0, from: 0, need: 0, credit: 9 };
    assert_eq!(sender.answer(late), Ok(Effect::Nothing));
    assert_eq!(sender.next(|_| true), None);
    sender.let_go(S.1);
    resumed(&mut sender, 0, 1000);
    sender.piece(S, 64, 64, 0);
    assert_eq!(sender.next(|_| true), piece(0, 64));
}
