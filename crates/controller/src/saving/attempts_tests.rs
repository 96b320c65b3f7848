//! How often a save is tried.

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

fn later(ms: u64) -> Now {
    Now::of_test().after(Duration::from_millis(ms))
}

#[test]
fn attempts_have_growing_pauses_and_the_last_is_at_the_end_of_the_time() {
    let mut attempts = Attempts::for_so_long(LIMIT, later(0));
    assert_eq!(attempts.pause(later(0)), None, "none failed");
    let (mut now, mut pauses) = (0, Vec::new());
    while attempts.failed(later(now)) {
        // That of another rank, in the same attempt.
        assert!(attempts.failed(later(now)));
        let pause = attempts.pause(later(now)).unwrap().as_millis() as u64;
        pauses.push(pause);
        now += pause.max(1);
        attempts.due = false;
    }
    assert_eq!(now, LIMIT.as_millis() as u64);
    assert!(pauses[0] < pauses[1] && pauses[1] < pauses[2], "{pauses:?}");
    assert!(pauses.len() < 60 && pauses.iter().all(|p| *p <= 1000), "{pauses:?}");
}

#[test]
fn what_it_waits_for_is_told_once() {
    let mut attempts = Attempts::for_so_long(LIMIT, later(0));
    assert!(attempts.is_news("file descriptor 3 is not accepted"));
    assert!(!attempts.is_news("file descriptor 4 is not accepted"));
    assert!(attempts.is_news("a ring"));
    assert!(!attempts.is_news("file descriptor 3 is not accepted"));
}

#[test]
fn a_save_that_nothing_is_known_of_is_not_tried_again() {
    assert!(!Attempts::default().failed(later(0)));
}
