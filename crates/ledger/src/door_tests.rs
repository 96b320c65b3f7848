//! Tests of the door: what is recorded is dictated, from any point on, and then it is live again.

use std::sync::atomic::Ordering::Relaxed;

use crate::door::{Call, Door, Outcome, Post, Verdict};
use crate::segment::{FT_LOGGED, Geometry, Segment};

fn segment() -> &'static Segment {
    let geo = Geometry { ranks: 1, chunk_bytes: 4096, pool_chunks: 8, det_words: 1 << 18 };
    let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
    Box::leak(Box::new(seg))
}

#[test]
fn calls_and_posts_are_dictated_as_recorded() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    assert_eq!(door.ask_post(1, true), Post::Free);
    assert_eq!(door.ask_post(2, true), Post::Free);
    for _ in 0..5 {
        assert_eq!(door.ask(Call::Iprobe).unwrap(), Verdict::Live);
        door.fruitless();
    }
    door.record_match(2, 7);
    door.fruitless();
    door.record(Call::Iprobe, &Outcome::One(3));
    door.record(Call::Waitsome, &Outcome::Many(vec![4, 1]));
    door.record_cancelled(9);
    door.fruitless();
    door.fruitless();

    let mut again = Door::new(seg, 0);
    assert!(again.replaying());
    assert_eq!(again.ask_post(1, true), Post::Held);
    assert_eq!(again.ask_post(2, true), Post::Source(7));
    for _ in 0..6 {
        assert_eq!(again.ask(Call::Iprobe).unwrap(), Verdict::Fruitless);
    }
    assert_eq!(again.ask(Call::Iprobe).unwrap(), Verdict::Forced(Outcome::One(3)));
    let many = Verdict::Forced(Outcome::Many(vec![4, 1]));
    assert_eq!(again.ask(Call::Waitsome).unwrap(), many);
    assert_eq!(again.ask_post(9, false), Post::Never);
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Fruitless);
    assert!(again.replaying());
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Fruitless);
    assert!(!again.replaying());
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Live);
    // The open run goes on being counted in its word.
    let tail = seg.rank(0).det_tail.load(Relaxed);
    again.fruitless();
    assert_eq!(seg.rank(0).det_tail.load(Relaxed), tail);
    let mut third = Door::new(seg, 0);
    let mut fruitless = 0;
    while third.replaying() {
        match third.ask(Call::Test) {
            Ok(Verdict::Fruitless) => fruitless += 1,
            Ok(_) | Err(_) => {
                third.ask_post(2, true);
                third.ask_post(9, false);
            }
        }
        if fruitless > 100 {
            break;
        }
    }
    assert!(!third.replaying());
}

#[test]
fn another_kind_of_call_is_a_divergence() {
    let seg = segment();
    Door::new(seg, 0).record(Call::Testany, &Outcome::One(0));
    assert!(Door::new(seg, 0).ask(Call::Iprobe).is_err());
}

/// An image taken anywhere (here: a door whose private state stays) goes on from there.
#[test]
fn an_image_taken_between_events_replays_only_what_came_after() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.ask_post(1, true);
    door.record(Call::Test, &Outcome::One(0));
    door.fruitless();
    door.fruitless();
    // The image: three events have happened, post 1 is outstanding. Later, in a second door that
    // stands for the process that went on:
    let mut on = Door::new(seg, 0);
    on.ask_post(1, true);
    on.ask(Call::Test).unwrap();
    on.ask(Call::Iprobe).unwrap();
    on.ask(Call::Iprobe).unwrap();
    assert!(!on.replaying());
    on.fruitless();
    on.record_match(1, 3);
    on.record(Call::Iprobe, &Outcome::One(3));
    // Restored from the image:
    door.rebuild();
    assert_eq!(door.ask_post(1, true), Post::Source(3));
    door.forget_posts_up_to(1);
    assert_eq!(door.ask(Call::Iprobe).unwrap(), Verdict::Fruitless);
    assert_eq!(door.ask(Call::Iprobe).unwrap(), Verdict::Forced(Outcome::One(3)));
    assert!(!door.replaying());
    assert_eq!(seg.rank(0).det_pos.load(Relaxed), seg.rank(0).det_tail.load(Relaxed));
}

#[test]
fn posts_matched_before_an_image_taken_in_mid_replay_are_forgotten() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.record(Call::Test, &Outcome::One(0));
    door.ask_post(1, true);
    door.record(Call::Test, &Outcome::One(1));
    door.record_match(1, 0);
    let mut image = Door::new(seg, 0);
    image.ask(Call::Test).unwrap();
    assert_eq!(image.ask_post(1, true), Post::Source(0));
    image.rebuild();
    image.forget_posts_up_to(1);
    assert_eq!(image.ask(Call::Test).unwrap(), Verdict::Forced(Outcome::One(1)));
    assert!(!image.replaying());
}
