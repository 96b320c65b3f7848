//! What keys do.

use super::*;
use crate::show::screen::tests::{job, rank};

pub fn node(node: u32, state: &str, ranks: &[u32]) -> NodeStatus {
    let text = serde_json::json!({
        "node": node, "state": state, "epoch": node, "host": null, "pid": 100 + node,
        "address": null, "ranks": ranks, "routes": null, "logged_bytes": 0, "transport": "tcp",
        "libfabric_connections": 0, "pauses": 0, "paused_ms": 0.0, "strangers": 0, "fenced": 0,
        "malformed": 0,
    });
    serde_json::from_value(text).unwrap()
}

/// Four ranks on two nodes; one comes back.
pub fn four() -> JobStatus {
    let mut ranks: Vec<RankStatus> = (0..4).map(|r| rank(r, "running")).collect();
    ranks[2].state = "recovering".into();
    ranks[3].node = 1;
    let mut job = job(ranks);
    job.nodes = vec![node(0, "live", &[0, 1]), node(1, "live", &[2, 3]), node(2, "lost", &[])];
    job
}

fn named(id: &str) -> JobStatus {
    JobStatus { job: id.into(), ..four() }
}

fn keys(model: &mut Model, keys: &str) -> Act {
    let key = |c| match c {
        '\n' => Key::Enter,
        '\x1b' => Key::Esc,
        '<' => Key::Backspace,
        c => Key::Char(c),
    };
    keys.chars().map(|c| model.key(key(c))).last().unwrap()
}

fn note(model: &Model) -> &str {
    model.note.as_ref().map_or("", |(text, _)| text)
}

#[test]
fn a_job_is_chosen_entered_and_left() {
    let mut model = Model::default();
    assert_eq!(keys(&mut model, "j\n"), Act::Nothing, "there is none yet");
    model.set_jobs(vec![named("kaaa"), named("kbbb"), named("kccc")]);
    assert_eq!(keys(&mut model, "jjjjk"), Act::Nothing);
    assert_eq!(model.row, 1);
    model.set_jobs(vec![named("kzzz"), named("kaaa"), named("kbbb")]);
    assert_eq!(model.row, 2, "the choice stays with its job");
    assert_eq!(keys(&mut model, "\n"), Act::Watch(Some("kbbb".into())));
    model.set_job(named("kaaa"), None, vec!["x".into()]);
    assert_eq!(model.watched.as_ref().unwrap().status, None, "that is another one");
    model.set_job(named("kbbb"), None, (0..500).map(|n| n.to_string()).collect());
    let watched = model.watched.as_ref().unwrap();
    assert_eq!((watched.events.len(), watched.events[199].as_str()), (MOST_EVENTS, "499"));
    assert_eq!(keys(&mut model, "jjjjjjjj"), Act::Nothing);
    assert_eq!(model.watched.as_ref().unwrap().row, 3, "two states of ranks, two of nodes");
    assert_eq!(keys(&mut model, "\x1b"), Act::Watch(None));
    assert_eq!(keys(&mut model, "?q"), Act::Quit);
    assert_eq!(keys(&mut model, "q"), Act::Quit);
}

#[test]
fn a_rank_is_killed_only_when_that_is_confirmed() {
    let mut model = Model { watched: Some(Watched::of("k7mq")), ..Model::default() };
    model.set_job(four(), None, Vec::new());
    let kill = |rank| Act::Order { job: "k7mq".into(), order: Order::Kill { rank } };
    assert_eq!(keys(&mut model, "K"), Act::Nothing);
    assert_eq!(model.question.as_ref().unwrap().number, "2", "the worst is chosen");
    assert_eq!(keys(&mut model, "\n"), kill(2));
    assert_eq!(keys(&mut model, "K<3\n"), kill(3));
    assert_eq!(keys(&mut model, "K<99\n"), Act::Nothing);
    assert_eq!(note(&model), "there is no rank '99'");
    assert_eq!(keys(&mut model, "K<\n"), Act::Nothing);
    assert_eq!(keys(&mut model, "K\x1b\n"), Act::Nothing);
    assert_eq!(keys(&mut model, "Kq"), Act::Nothing, "it is not left, either");
    assert_eq!(note(&model), "nothing was done");
    keys(&mut model, "K<123456789");
    assert_eq!(model.question.take().unwrap().number, "123456");
    model.set_job(four(), Some(7), Vec::new());
    assert_eq!(keys(&mut model, "K\n"), Act::Nothing);
    assert!(model.question.is_none());
}

#[test]
fn nodes_are_drained_and_checkpoints_taken() {
    let mut model = Model::default();
    model.set_jobs(vec![four()]);
    let order = |order| Act::Order { job: "k7mq".into(), order };
    assert_eq!(keys(&mut model, "c"), order(Order::Checkpoint));
    assert_eq!(keys(&mut model, "d\n"), Act::Watch(Some("k7mq".into())));
    model.set_job(four(), None, Vec::new());
    assert_eq!(keys(&mut model, "jjjd\n"), order(Order::Drain { node: 0 }));
    assert_eq!(keys(&mut model, "d<1\n"), order(Order::Drain { node: 1 }));
    let alone = JobStatus { nodes: Vec::new(), ..four() };
    model.set_job(alone, None, Vec::new());
    assert_eq!(keys(&mut model, "d\n"), Act::Nothing);
    assert!(model.question.is_none());
}
