//! A controller over nodes that is driven in memory: it begins, dies, and another goes on.

use super::{Asked, Frames, Memory, Sent};
use crate::journal;
use crate::{Job, Msg, Node, Now, Place};
use eyrie_control::node::FromNode;
use eyrie_control::{JobSpec, ToNode};
use eyrie_protocol::session::Numbered;
use eyrie_state::saved_job::testing::spec;
use std::path::PathBuf;
use std::time::Duration;

fn of_two_nodes() -> JobSpec {
    let mut spec = spec();
    (spec.program.size, spec.placement.nodes) = (2, 2);
    spec.timing.controller_limit_ms = 60_000;
    spec
}

fn place() -> Place {
    Place { id: "job".into(), folder: "/job".into() }
}

/// A node calls on a line of its number, and says that it is ready.
fn joins(job: &mut Job, frames: &Frames, node: u32, epoch: u64) {
    let wired = frames.line(u64::from(node) + 1);
    job.take(Msg::Connected { node, epoch, wired });
    let at = |port| ([127, 0, 0, 1], port).into();
    say(job, node, 1, FromNode::Joined { pid: 100 + node, link: at(1), store: at(2) });
}

/// What a node says by its frame of this number.
pub(super) fn say(job: &mut Job, node: u32, number: u64, message: FromNode) {
    let frame = Numbered { number, heard: 0, message };
    job.take(Msg::Framed { node, line: u64::from(node) + 1, frame });
}

pub(super) fn begun(memory: &Memory, frames: &Frames) -> Job {
    let outside = memory.outside();
    let start = |node| outside.launcher.start_daemon(node, u64::from(node) + 1, None).unwrap();
    let nodes = (0..2).map(|node| Node::there(start(node))).collect();
    let now = Now::of_test();
    let mut job = Job::begin(place(), of_two_nodes(), None, nodes, outside, now).unwrap();
    job.await_first();
    job.begin_gateways();
    job.begin_journal();
    job.end_turn();
    for node in 0..2 {
        joins(&mut job, frames, node, u64::from(node) + 1);
        job.end_turn();
    }
    job
}

pub(super) fn orders(frames: &Frames) -> Vec<(u64, ToNode)> {
    let order = |(line, sent)| match sent {
        Sent::Frame(frame) => Some((line, frame.message)),
        Sent::Confirmed(_) | Sent::HungUp => None,
    };
    frames.take().into_iter().filter_map(order).collect()
}

#[test]
fn a_job_over_nodes_begins_when_all_have_called() {
    let (memory, frames) = (Memory::default(), Frames::default());
    let job = begun(&memory, &frames);
    let started = |asked: &Asked| matches!(asked, Asked::StartDaemon { .. });
    assert_eq!(memory.take_asked().iter().filter(|asked| started(asked)).count(), 2);
    let orders = orders(&frames);
    for line in [1, 2] {
        let told = |wanted: fn(&ToNode) -> bool| orders.iter().any(|o| o.0 == line && wanted(&o.1));
        assert!(told(|order| matches!(order, ToNode::Members { .. })), "{orders:?}");
        assert!(told(|order| matches!(order, ToNode::Start { .. })), "{orders:?}");
    }
    let status = job.status();
    assert_eq!((status.phase.as_str(), status.nodes.len()), ("running", 2));
}

#[test]
fn a_successor_goes_on_with_what_the_dead_controller_left() {
    let (memory, frames) = (Memory::default(), Frames::default());
    let before = begun(&memory, &frames).status();
    memory.take_asked();
    let bytes = memory.journal_bytes().unwrap();
    let mut known = journal::parse(PathBuf::from("journal"), &bytes).unwrap();
    known.head.reign += 1;
    let now = Now::of_test().after(Duration::from_secs(1));
    let mut job = Job::resume(place(), known, None, memory.outside(), now).unwrap();
    let watched = |asked: &Asked| matches!(asked, Asked::WatchAdopted { .. });
    assert_eq!(memory.take_asked().iter().filter(|asked| watched(asked)).count(), 2);
    let after = job.status();
    assert_eq!((after.reign, after.phase), (2, before.phase));
    assert!(after.nodes.iter().all(|node| node.state == "awaited"), "{:?}", after.nodes);
    // Nobody comes: all nodes are lost in time, and with them the job.
    job.set_now(now.after(Duration::from_secs(3600)));
    for _ in 0..100 {
        let Some(timer) = job.due_timer() else { break };
        job.take(timer);
        job.end_turn();
    }
    let cleared = |asked: &Asked| matches!(asked, Asked::Clear { .. });
    assert_eq!(memory.take_asked().iter().filter(|asked| cleared(asked)).count(), 2);
}
