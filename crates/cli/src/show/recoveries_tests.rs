//! What is told, with made-up events.

use super::*;
use eyrie_control::Account;

fn event(ms: f64, kind: EventKind, rank: Option<u32>) -> Event {
    Event { rank, ..Event::new(ms, kind) }
}

fn started(rank: u32, node: Option<u32>) -> Event {
    Event { node, ..event(1.0, EventKind::Started, Some(rank)) }
}

fn died(ms: f64, rank: u32) -> Event {
    Event { text: "died of SIGKILL".into(), ..event(ms, EventKind::Detected, Some(rank)) }
}

fn back(ms: f64, rank: u32) -> Event {
    Event { took_ms: Some(1.0), ..event(ms, EventKind::Restored, Some(rank)) }
}

fn lost(ms: f64, node: u32) -> Event {
    Event { node: Some(node), ..Event::new(ms, EventKind::NodeLost) }
}

/// All lines that events give whose times are also those of the reader.
fn told(events: &[Event]) -> Vec<String> {
    let mut told = RecoveryReporter::default();
    let at = |event: &Event| Duration::from_secs_f64(event.ms / 1e3);
    let mut lines: Vec<String> =
        events.iter().flat_map(|event| told.take(event, at(event))).collect();
    let late = events.last().map_or(Duration::ZERO, at) + SETTLES;
    lines.extend(told.tick(late));
    lines.extend(told.tick(late + LONG));
    lines
}

#[test]
fn nothing_is_told_of_what_does_not_die() {
    let mut events = vec![started(0, None), started(1, None)];
    events.push(event(9.0, EventKind::Exited, Some(0)));
    events.push(event(10.0, EventKind::Ended, None));
    assert!(told(&events).is_empty());
}

#[test]
fn a_rank_that_comes_back_is_one_line() {
    let mut events = vec![started(2, None), died(100.0, 2), back(117.0, 2)];
    let line = "rank 2 died of SIGKILL; back after 17 ms, nothing was lost";
    assert_eq!(told(&events), [line], "it repeats nothing");
    events.push(event(118.0, EventKind::Replaying, Some(2)));
    assert!(told(&events).iter().all(|line| line.ends_with("bringing back")), "it repeats");
    events.push(event(170.0, EventKind::CaughtUp, Some(2)));
    assert_eq!(told(&events), ["rank 2 died of SIGKILL; back after 70 ms, nothing was lost"]);
}

#[test]
fn many_at_once_are_one_line() {
    let mut events: Vec<Event> = (0..16).map(|rank| started(rank, None)).collect();
    events.extend([0, 3, 4].map(|rank| died(100.0 + f64::from(rank), rank)));
    events.extend([0, 3, 4].map(|rank| back(400.0 + f64::from(rank), rank)));
    assert_eq!(told(&events), ["ranks 0,3-4 died of SIGKILL; back after 304 ms, nothing was lost"]);
    events.extend((0..12).map(|rank| died(2000.0, rank)));
    events.extend((0..12).map(|rank| back(2500.0, rank)));
    assert_eq!(told(&events)[1], "12 ranks died of SIGKILL; back after 500 ms, nothing was lost");
}

/// The death of one is noticed when another one is back already.
#[test]
fn who_is_killed_together_is_told_together() {
    let killed = |ms, rank| event(ms, EventKind::Injected, Some(rank));
    let mut events: Vec<Event> = (0..3).map(|rank| started(rank, None)).collect();
    events.extend([killed(99.0, 1), killed(99.0, 2), died(100.0, 1), back(105.0, 1)]);
    events.push(event(108.0, EventKind::CaughtUp, Some(1)));
    let before = events.len();
    events.extend([died(113.0, 2), back(119.0, 2), event(125.0, EventKind::CaughtUp, Some(2))]);
    assert_eq!(told(&events), ["ranks 1-2 died of SIGKILL; back after 25 ms, nothing was lost"]);
    // One that does not die after all is not waited for.
    let line = "rank 1 died of SIGKILL; back after 8.00 ms, nothing was lost";
    assert_eq!(told(&events[..before]).first().map(String::as_str), Some(line));
    let mut ends = events[..before].to_vec();
    ends.push(event(109.0, EventKind::Exited, Some(2)));
    assert_eq!(told(&ends), [line]);
}

/// What is read late, as the reader did not run, is told as if it had been read at once.
#[test]
fn a_reader_that_is_late_tells_of_no_long_recovery() {
    let mut reporter = RecoveryReporter::default();
    let late = LONG * 2;
    assert!(reporter.take(&started(0, None), Duration::ZERO).is_empty());
    assert!(reporter.take(&died(100.0, 0), Duration::ZERO).is_empty());
    assert!(reporter.take(&event(107.0, EventKind::CaughtUp, Some(0)), late).len() == 1);
    assert!(reporter.tick(late * 2).is_empty());
}

#[test]
fn ranks_of_a_node_go_by_the_node() {
    let mut events: Vec<Event> = (0..16).map(|rank| started(rank, Some(rank / 12))).collect();
    events.extend([lost(50.0, 7), lost(100.0, 0)]);
    events.extend((0..12).map(|rank| back(900.0, rank)));
    let line = "node 0 was lost with 12 ranks; back after 800 ms, nothing was lost";
    assert_eq!(told(&events), [line], "of node 7, which had none, nothing is told");
}

#[test]
fn why_a_node_was_lost_is_told_where_it_is_more_than_a_kill() {
    let silent = |ms| Event { text: "nothing was heard of it for 8.0 s".into(), ..lost(ms, 1) };
    let mut events = vec![started(0, Some(0)), started(1, Some(1)), silent(100.0), back(300.0, 1)];
    assert_eq!(
        told(&events),
        ["node 1 was lost with rank 1 (nothing was heard of it for 8.0 s); back after 200 ms, \
          nothing was lost"]
    );
    events[2].text = "its daemon died of SIGKILL".into();
    let line = "node 1 was lost with rank 1; back after 200 ms, nothing was lost";
    assert_eq!(told(&events), [line]);
    // It is told before anything else is, and when nobody comes back.
    let mut other = RecoveryReporter::default();
    let now = Duration::from_millis(100);
    assert!(events[..3].iter().all(|event| other.take(event, now).is_empty()));
    assert!(!other.takes("node 7 is lost: its daemon died of SIGKILL"));
    let said = "node 1 on host old1 is lost: its daemon died of SIGKILL";
    assert!(other.takes(said));
    assert_eq!(other.first().as_deref(), Some("node 1 on host old1 was lost with rank 1"));
    assert!(!other.takes(said) && other.first().is_none());
    let more = other.take(&events[3], now).into_iter().chain(other.tick(now + SETTLES));
    assert_eq!(more.collect::<Vec<_>>(), ["rank 1 is back after 200 ms, nothing was lost"]);
    events[3] = event(200.0, EventKind::Ended, None);
    assert_eq!(told(&events), ["node 1 was lost with rank 1"]);
}

#[test]
fn a_long_recovery_is_told_twice() {
    let mut events = vec![started(0, Some(0)), started(1, Some(1)), died(100.0, 0)];
    // Somebody else's event comes later.
    events.push(event(3000.0, EventKind::Replaying, Some(1)));
    events.push(back(9000.0, 0));
    assert_eq!(
        told(&events),
        ["rank 0 died of SIGKILL; bringing back", "rank 0 is back after 8.9 s, nothing was lost"]
    );
}

#[test]
fn all_going_back_says_what_is_done_again() {
    let mut events: Vec<Event> = (0..4).map(|rank| started(rank, None)).collect();
    events.extend([2, 3, 1, 0].map(|rank| died(1000.0 + f64::from(rank), rank)));
    let mut rolled = event(1010.0, EventKind::RolledBack, None);
    (rolled.generation, rolled.took_ms) = (Some(3), Some(640.0));
    rolled.text = "all ranks, together".into();
    events.push(rolled.clone());
    events.extend((0..4).map(|rank| back(1702.0, rank)));
    assert_eq!(
        told(&events),
        ["rank 2 died of SIGKILL; back after 700 ms, all ranks from checkpoint 3: 640 ms of work \
          done again"]
    );
    // The daemon tells of returns to a snapshot itself.
    let at = events.len() - 5;
    events[at].text = "all ranks returned to the snapshot of 10:00:00".into();
    assert_eq!(told(&events), ["all 4 ranks are back after 700 ms"]);
    // They go on elsewhere, where they stood: nothing died.
    let moves: Vec<Event> = (0..4).map(|rank| started(rank, None)).chain([rolled]).collect();
    assert!(told(&moves).is_empty());
}

#[test]
fn who_goes_back_with_its_unit_does_work_again() {
    let mut events: Vec<Event> = (0..4).map(|rank| started(rank, Some(rank / 2))).collect();
    let mut with = died(101.0, 1);
    with.text += WITH_UNIT;
    events.extend([died(100.0, 0), with, back(200.0, 0), back(200.0, 1)]);
    assert_eq!(
        told(&events),
        ["rank 0 died of SIGKILL; back after 100 ms, with rank 1 of its unit: their work is done \
          again"]
    );
}

#[test]
fn a_job_that_ends_has_nobody_back() {
    let events = [started(0, None), died(100.0, 0), event(110.0, EventKind::Ended, None)];
    assert!(told(&events).is_empty());
}

fn record(account: Account) -> Record {
    Record {
        format: 1,
        job: "kaaa".into(),
        name: None,
        program: "/bin/heat".into(),
        args: Vec::new(),
        size: 4,
        ft: "logged".into(),
        nodes: 0,
        begun_unix_ms: 0,
        clocks: Vec::new(),
        ended_unix_ms: Some(1),
        exit_code: Some(0),
        took_ms: 61_200,
        messages: 12_044,
        message_bytes: 3 << 20,
        logged: true,
        events_left_out: 0,
        rank_clusters: String::new(),
        reduce_order: String::new(),
        account,
    }
}

#[test]
fn the_summary_says_what_was_lost() {
    let mut account = Account::default();
    (account.checkpoints, account.checkpoint_bytes) = (24, 3 << 29);
    account.stood_ms = 200.0;
    let second = "the job took 1m01s; 24 checkpoints, 1.5 GiB, for which each rank stood still \
                  50 ms; 12044 messages logged, 3.0 MiB";
    assert_eq!(summary(&record(account.clone())), ["nothing died", second]);
    (account.deaths, account.nodes_lost, account.recoveries) = (2, 1, 4);
    account.recovery_ms = 1900.0;
    let first = "2 deaths, 1 node lost, 4 ranks brought back, 1.9 s in recoveries";
    let all = [format!("nothing was lost: {first}"), second.into()];
    assert_eq!(summary(&record(account.clone())), all);
    let mut failed = record(account.clone());
    failed.exit_code = Some(139);
    assert_eq!(summary(&failed)[0], first, "the job itself was lost");
    (account.rollbacks, account.again_ms) = (1, 4100.0);
    assert_eq!(
        summary(&record(account))[0],
        "2 deaths, 1 node lost, 4 ranks brought back, all ranks went back 1 time, 4.1 s of work \
         done again, 1.9 s in recoveries"
    );
}
