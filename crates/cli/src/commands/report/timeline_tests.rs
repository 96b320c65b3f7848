//! Timelines of made-up jobs.

use super::*;
use EventKind::*;
use eyrie_control::account::stood_text;

/// When, what, which rank, which node, which checkpoint.
pub type Step = (f64, EventKind, Option<u32>, Option<u32>, u32);

/// Four ranks on two nodes; rank 2 has a checkpoint, dies, comes back and repeats.
pub const STEPS: [Step; 13] = [
    (1.0, Started, Some(0), Some(0), 0),
    (1.0, Started, Some(1), Some(0), 0),
    (2.0, Started, Some(2), Some(1), 0),
    (2.0, Started, Some(3), Some(1), 0),
    (100.0, Checkpointing, Some(2), None, 1),
    (130.0, Checkpointed, Some(2), None, 1),
    (300.0, Detected, Some(2), None, 0),
    (340.0, Restored, Some(2), Some(1), 1),
    (342.0, Replaying, Some(2), None, 0),
    (390.0, CaughtUp, Some(2), None, 0),
    (800.0, Exited, Some(0), None, 0),
    (900.0, Exited, Some(2), None, 0),
    (1000.0, Ended, None, None, 0),
];

pub fn events(steps: &[Step]) -> Vec<Event> {
    let event = |(ms, kind, rank, node, generation): &Step| {
        let mut event = Event::new(*ms, *kind);
        (event.rank, event.node) = (*rank, *node);
        event.generation = Some(*generation).filter(|g| *g > 0);
        match kind {
            Checkpointed => {
                (event.bytes, event.took_ms) = (Some(1 << 20), Some(30.0));
                event.text = stood_text(1.5, "twin");
            }
            Detected => event.text = "died of SIGKILL".into(),
            Restored => event.took_ms = Some(40.0),
            CaughtUp => event.count = Some(77),
            _ => {}
        }
        event
    };
    steps.iter().map(event).collect()
}

fn spans(timeline: &Timeline, rank: usize) -> Vec<(f64, f64, State)> {
    timeline.ranks[rank].spans.iter().map(|s| (s.from_ms, s.to_ms, s.state)).collect()
}

#[test]
fn a_rank_computes_dies_repeats_and_ends() {
    let timeline = Timeline::of(4, &events(&STEPS), None);
    let want = [
        (2.0, 300.0, State::Computing),
        (300.0, 340.0, State::Down),
        (340.0, 390.0, State::Repeating),
        (390.0, 900.0, State::Computing),
    ];
    assert_eq!(spans(&timeline, 2), want);
    assert_eq!(spans(&timeline, 0), [(1.0, 800.0, State::Computing)]);
    assert_eq!(spans(&timeline, 3), [(2.0, 1000.0, State::Computing)]);
    assert!(timeline.ranks[2].spans.iter().all(|s| s.node == Some(1)));
    let checkpoint = &timeline.checkpoints[0];
    assert_eq!((checkpoint.from_ms, checkpoint.to_ms), (100.0, 130.0));
    assert_eq!((checkpoint.bytes, checkpoint.stood_ms), (1 << 20, Some(1.5)));
    let [recovery] = &timeline.recoveries[..] else { panic!("{timeline:?}") };
    assert_eq!((recovery.from_ms, recovery.restored_ms), (300.0, Some(40.0)));
    assert_eq!((recovery.repeated_ms, recovery.back_ms), (Some(50.0), Some(90.0)));
    assert_eq!((recovery.reproduced, recovery.cause.as_str()), (77, "died of SIGKILL"));
    assert_eq!(recovery.from_checkpoints, [1].into());
    assert_eq!(timeline.marks.len(), 1);
}

#[test]
fn a_node_takes_its_ranks_along_and_what_dies_meanwhile_is_the_same_recovery() {
    let mut steps = STEPS[..4].to_vec();
    steps.extend([
        (50.0, NodeLost, None, Some(1), 0),
        (55.0, Detected, Some(0), None, 0),
        (70.0, Restored, Some(2), Some(0), 0),
        (80.0, Restored, Some(0), Some(0), 0),
        (90.0, Restored, Some(3), Some(0), 0),
        (95.0, Detected, Some(1), None, 0),
    ]);
    let timeline = Timeline::of(4, &events(&steps), Some(120.0));
    let [first, second] = &timeline.recoveries[..] else { panic!("{timeline:?}") };
    assert_eq!((&first.ranks, first.back_ms), (&[0, 2, 3].into(), Some(40.0)));
    assert_eq!(first.nodes_lost, [1].into());
    assert_eq!((&second.ranks, second.back_ms), (&[1].into(), None), "it is still down");
    assert_eq!(timeline.ranks[2].spans.last().map(|s| (s.to_ms, s.node)), Some((120.0, Some(0))));
    assert_eq!(spans(&timeline, 1)[1], (95.0, 120.0, State::Down));
}

#[test]
fn all_ranks_go_back_in_one_recovery() {
    let mut steps = STEPS[..4].to_vec();
    steps.extend((0..4).map(|rank| (50.0, Detected, Some(rank), None, 0)));
    steps.push((51.0, RolledBack, None, None, 3));
    steps.extend((0..4).map(|rank| (60.0, Restored, Some(rank), Some(0), 3)));
    let mut all = events(&steps);
    all[8].took_ms = Some(20.0);
    let timeline = Timeline::of(4, &all, Some(100.0));
    let [recovery] = &timeline.recoveries[..] else { panic!("{timeline:?}") };
    assert_eq!((recovery.together, recovery.again_ms), (true, Some(20.0)));
    assert_eq!((recovery.ranks.len(), recovery.back_ms), (4, Some(10.0)));
}

#[test]
fn a_suspended_job_stands_and_odd_events_harm_nobody() {
    let mut steps = STEPS[..4].to_vec();
    steps.extend([
        (40.0, Suspended, None, None, 0),
        (60.0, Resumed, None, None, 0),
        (f64::NAN, Detected, Some(1), None, 0),
        (61.0, Detected, Some(99), None, 0),
        (62.0, CaughtUp, Some(99), None, 0),
        (62.0, CheckpointFailed, Some(3), None, 8),
        (10.0, Checkpointed, Some(1), None, 7),
    ]);
    let timeline = Timeline::of(4, &events(&steps), Some(f64::INFINITY));
    let want = [
        (1.0, 40.0, State::Computing),
        (40.0, 60.0, State::Suspended),
        (60.0, 62.0, State::Computing),
    ];
    assert_eq!(spans(&timeline, 1), want);
    assert_eq!(timeline.checkpoints[1].from_ms, 0.0, "it was begun before it was asked for");
    assert_eq!(Timeline::of(0, &[], None), Timeline::default());
}
