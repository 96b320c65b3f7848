//! What a node takes and refuses of other nodes' determinants.

use super::*;

const HOME: Member = Member { node: 4, epoch: 9 };
const RUN: u64 = 1 << 56;

fn frame(first: u64, base: bool, words: &[u64]) -> ToReplica {
    let piece = Piece { rank: 0, first, base, words: words.to_vec() };
    ToReplica { pieces: vec![piece], upto: Some(1) }
}

fn held(replicas: &Replicas) -> Words {
    replicas.answer(&[0]).held.remove(&0).unwrap_or_default()
}

#[test]
fn a_log_grows_at_its_end_and_is_trimmed_at_its_beginning() {
    let mut all = Replicas::default();
    assert_eq!(all.take(HOME, &frame(10, true, &[1, 2, RUN | 1])), Ok(Some(1)));
    assert_eq!(all.take(HOME, &frame(12, false, &[RUN | 5, 4])), Ok(Some(1)));
    all.trim(0, 11);
    assert_eq!(held(&all), Words { first: 11, words: vec![2, RUN | 5, 4] });
    // Everything again, on a new connection.
    assert_eq!(all.take(HOME, &frame(11, true, &[2, RUN | 5, 4, 6])), Ok(Some(1)));
    assert_eq!((held(&all).end(), all.words()), (15, 4));
    // An older frame that comes late takes nothing away.
    assert_eq!(all.take(HOME, &frame(9, true, &[8, 1, 2, RUN | 2])), Ok(Some(1)));
    assert_eq!(held(&all), Words { first: 11, words: vec![2, RUN | 5, 4, 6] });
}

#[test]
fn what_comes_after_it_was_released_is_not_kept() {
    let mut all = Replicas::default();
    all.trim(0, 12);
    assert_eq!(all.take(HOME, &frame(10, true, &[1, 2, 3])), Ok(Some(1)));
    assert_eq!(held(&all), Words { first: 12, words: vec![3] });
    assert_eq!(all.take(HOME, &frame(12, false, &[3, 4])), Ok(Some(1)));
    assert_eq!(held(&all).end(), 14);
}

#[test]
fn gaps_and_differences_are_refused() {
    let mut all = Replicas::default();
    all.take(HOME, &frame(0, true, &[1, RUN | 3, 2])).unwrap();
    assert_eq!(
        all.take(HOME, &frame(4, false, &[1])),
        Err(Refused::Gap { rank: 0, first: 4, end: 3 })
    );
    assert_eq!(all.take(HOME, &frame(0, true, &[9])), Err(Refused::Differs { rank: 0, at: 0 }));
    let grown = all.take(HOME, &frame(1, false, &[RUN | 4]));
    assert_eq!(grown, Err(Refused::Differs { rank: 0, at: 1 }), "not the last any more");
    assert_eq!(held(&all).words, [1, RUN | 3, 2]);
    assert_eq!(all.take(HOME, &frame(7, true, &[5])), Ok(Some(1)), "all before it is covered");
    assert_eq!(held(&all), Words { first: 7, words: vec![5] });
}

#[test]
fn the_dead_are_not_listened_to() {
    let mut all = Replicas::default();
    all.take(HOME, &frame(0, true, &[1])).unwrap();
    all.fence(HOME);
    assert_eq!(all.take(HOME, &frame(1, false, &[2])), Err(Refused::Fenced(HOME)));
    assert_eq!(all.answer(&[0, 1]).in_step, [HOME]);
    assert_eq!(held(&all).words, [1]);
    let next = Member { epoch: HOME.epoch + 1, ..HOME };
    assert_eq!(all.take(next, &frame(1, false, &[2])), Ok(Some(1)));
    all.restart(&[next]);
    assert_eq!(all.answer(&[0]), Answer::default());
    assert!(all.take(next, &frame(0, true, &[2])).is_err());
}

#[test]
fn the_longest_wins_also_by_its_growing_end() {
    let of = |first, words: &[u64]| Words { first, words: words.to_vec() };
    let all = [of(2, &[1, RUN | 2]), of(2, &[1, RUN | 7]), of(3, &[RUN | 7]), of(0, &[])];
    assert_eq!(longest(all), Some(of(2, &[1, RUN | 7])));
    assert_eq!(longest([of(2, &[1, RUN | 7]), of(4, &[9])]), Some(of(4, &[9])));
    assert_eq!(longest([]), None);
}
