//! A save that meets obstacles: those that pass are waited for.

use super::tests::{begun, orders, say};
use super::{Frames, Memory};
use crate::Job;
use crate::clock::Now;
use eyrie_control::node::{CheckpointResult, FromNode};
use eyrie_control::signals::SIGQUIT;
use eyrie_control::{NodeMsg, ToNode};
use std::time::Duration;

/// A job of two ranks on two nodes which both run.
struct Running {
    job: Job,
    memory: Memory,
    frames: Frames,
    /// The frames that each node has sent.
    sent: [u64; 2],
    passed: Duration,
}

impl Running {
    fn new() -> Running {
        let (memory, frames) = (Memory::default(), Frames::default());
        let job = begun(&memory, &frames);
        let mut running = Running { job, memory, frames, sent: [1, 1], passed: Duration::ZERO };
        let start = |order: &(u64, ToNode)| match &order.1 {
            ToNode::Start { rank, start, .. } => Some((*rank, *start)),
            _ => None,
        };
        let starts: Vec<_> = orders(&running.frames).iter().filter_map(start).collect();
        assert_eq!(starts.len(), 2);
        for (rank, start) in starts {
            running.says(rank, FromNode::Started { rank, start, pid: 200 + rank, files: vec![] });
        }
        assert_eq!(running.job.status().phase, "running");
        // Those that had begun before are not for the save.
        for order in running.ordered() {
            running.fails(order, "it is early", false);
        }
        running.job.stop(SIGQUIT);
        running.job.end_turn();
        running.said();
        running
    }

    fn says(&mut self, node: u32, message: FromNode) {
        self.sent[node as usize] += 1;
        say(&mut self.job, node, self.sent[node as usize], message);
        self.job.end_turn();
    }

    fn wait(&mut self, time: Duration) {
        self.passed += time;
        self.job.set_now(Now::of_test().after(self.passed));
        self.job.schedule();
        self.job.end_turn();
    }

    /// Checkpoints that were ordered since: rank, start, generation.
    fn ordered(&self) -> Vec<(u32, u64, u32)> {
        let order = |(_, order)| match order {
            ToNode::Checkpoint(order) => Some((order.rank, order.start, order.generation)),
            _ => None,
        };
        orders(&self.frames).into_iter().filter_map(order).collect()
    }

    fn fails(&mut self, (rank, start, generation): (u32, u64, u32), why: &str, lasting: bool) {
        let result = CheckpointResult::Failed { text: why.into(), lasting };
        self.says(rank, FromNode::CheckpointOver { rank, start, generation, result });
    }

    fn said(&self) -> Vec<String> {
        let line = |message| match message {
            NodeMsg::Say(line) => Some(line),
            _ => None,
        };
        self.memory.take_said().into_iter().filter_map(line).collect()
    }
}

#[test]
fn what_passes_is_waited_for_and_told_once() {
    let mut running = Running::new();
    let mut ordered = running.ordered();
    assert!(!ordered.is_empty());
    let mut lines = Vec::new();
    for _ in 0..5 {
        for order in std::mem::take(&mut ordered) {
            running.fails(order, "it has not accepted a connection", false);
        }
        lines.extend(running.said());
        assert!(running.job.save_is_asked());
        let pause = running.job.next_save();
        assert!(pause > Duration::ZERO && pause <= Duration::from_secs(1), "{pause:?}");
        running.wait(pause);
        ordered = running.ordered();
        assert!(!ordered.is_empty(), "it is tried again");
    }
    let waits = lines.iter().filter(|l| l.contains("saving the job waits")).count();
    assert_eq!((waits, lines.len()), (1, 1), "{lines:?}");
    // The time is over: the next that fails is the last.
    running.wait(Duration::from_secs(60));
    ordered.extend(running.ordered());
    running.fails(ordered[0], "it has not accepted a connection", false);
    let lines = running.said();
    let told = |l: &String| l.starts_with("the job is not saved, and goes on") && l.contains("acc");
    assert!(lines.iter().any(told), "{lines:?}");
    assert!(!running.job.save_is_asked() && running.job.saving.under_way.is_none());
}

#[test]
fn what_lasts_is_told_at_once() {
    let mut running = Running::new();
    let ordered = running.ordered();
    running.fails(ordered[0], "it has a KVM", true);
    let lines = running.said();
    assert!(lines.iter().any(|l| l.starts_with("the job is not saved, and goes on")), "{lines:?}");
    assert!(running.job.saving.under_way.is_none());
}
