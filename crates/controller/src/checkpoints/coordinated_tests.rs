//! When sets of all ranks come.

use super::*;
use eyrie_protocol::interval::Cost;

const HOUR_MS: u64 = 3_600_000;

#[test]
fn sets_come_by_what_they_cost_and_how_often_all_go_back() {
    let mut t = Coordinated::new(24 * HOUR_MS, 1000, 0);
    assert_eq!(t.due_ms(), 1000);
    assert!(t.why(0).ends_with("together: soon after the start"), "{}", t.why(0));
    t.cost(Cost::whole(200.0));
    t.rest(1500, 1200);
    let measured = t.due_ms() - 1500;
    assert!(measured < HOUR_MS, "{measured}");
    let why = t.why(1500);
    assert!(why.starts_with(&format!("in {:.1} s", measured as f64 / 1e3)), "{why}");
    assert!(why.contains("a checkpoint costs 200.0 ms") && why.contains("a rank dies"), "{why}");
    (0..9).for_each(|_| t.died());
    assert!(t.go_back(2000, false).is_none());
    assert!(t.due_ms() - 2000 < measured / 5, "{} after {measured}", t.due_ms());
}

#[test]
fn sets_are_never_further_apart_than_given_and_take_half_of_the_time_at_most() {
    let mut t = Coordinated::new(300, 1000, 0);
    assert_eq!(t.due_ms(), 300);
    t.cost(Cost::whole(50.0));
    t.rest(400, 350);
    assert_eq!(t.due_ms(), 700);
    t.rest(9000, 4000);
    assert_eq!(t.due_ms(), 14_000);
}

#[test]
fn sets_on_request_only_are_not_measured() {
    let mut t = Coordinated::new(0, 1000, 0);
    t.cost(Cost::whole(50.0));
    t.died();
    t.rest(400, 350);
    assert_eq!((t.due_ms(), t.next_snapshot(1 << 40)), (u64::MAX, None));
    assert_eq!(t.why(500), "on request, all ranks together");
    t.request();
    assert_eq!(t.next_snapshot(500), Some(1));
}
