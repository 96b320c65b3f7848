//! The nodes of a job: what is sent to them, and what they say.

use super::{Job, Msg};
use crate::monitor;
use eyrie_control::EventKind;
use eyrie_control::node::{FromNode, ToNode};
use std::time::Duration;
use tokio::sync::mpsc;

/// A node, as the controller reaches it.
pub struct Node {
    /// Orders are carried out in this order.
    orders: mpsc::UnboundedSender<ToNode>,
    /// Bytes of output that it may not be told yet that they were taken.
    pub(super) taken: u64,
}

impl Node {
    pub fn new(orders: mpsc::UnboundedSender<ToNode>) -> Node {
        Node { orders, taken: 0 }
    }

    pub(super) fn send(&self, message: ToNode) {
        // A node that is gone is noticed elsewhere.
        let _ = self.orders.send(message);
    }
}

impl Job {
    /// Sends to the node that a rank lives on.
    pub(super) fn to_home(&self, rank: u32, message: ToNode) {
        let home = self.ranks[rank as usize].home;
        self.nodes[home as usize].send(message);
    }

    pub(super) fn to_all(&self, message: &ToNode) {
        self.nodes.iter().for_each(|n| n.send(message.clone()));
    }

    /// Takes what a node says.
    pub(super) fn from_node(&mut self, node: u32, message: FromNode) {
        match message {
            FromNode::Started { rank, start, pid } => self.started(rank, start, pid),
            FromNode::NotStarted { rank, start, text } => self.not_started(rank, start, text),
            FromNode::Found { rank, attempt, choice } => self.candidate(rank, attempt, choice),
            FromNode::Ended { rank, start, death, said, progress, look } => {
                self.process_ended(rank, start, death, said, progress, *look);
            }
            FromNode::Output { rank, start, stream, bytes } => {
                self.output(rank, start, stream, &bytes);
                self.output_taken(node, bytes.len() as u64);
            }
            FromNode::InputFed { start, position } => self.input_fed(start, position),
            FromNode::Said { rank, start, said } => {
                if self.proc(rank, start).is_some() {
                    self.step(monitor::Input::Reported { rank, said });
                }
            }
            FromNode::Replaying { rank, start } => self.replaying(rank, start),
            FromNode::CaughtUp { rank, start, count } => self.caught_up(rank, start, count),
            FromNode::Pressed { rank, start, relief } => self.relieve(rank, start, &relief),
            FromNode::CheckpointOver { rank, start: _, generation, result } => {
                self.checkpoint_over(rank, generation, result);
            }
            FromNode::Looks { ask, ranks } => self.take_looks(node, ask, ranks),
            FromNode::Saved { rank, error } => self.log_saved(rank, error),
            FromNode::Forced { error } => self.forced(error),
            FromNode::Judged(judgement) => self.judged(&judgement),
            FromNode::Stuck { text } => self.stuck(text),
            FromNode::Failed { text } => self.fatal(text),
            FromNode::Finished { left } => self.finished.push(left),
        }
    }

    /// Orders the end of all processes.
    pub fn finish(&self) {
        self.to_all(&ToNode::Finish);
    }

    /// How many processes are left that cannot be killed, once all nodes have said so.
    pub fn finished(&self) -> Option<u64> {
        (self.finished.len() >= self.nodes.len()).then(|| self.finished.iter().sum())
    }

    fn replaying(&mut self, rank: u32, start: u64) {
        if self.proc(rank, start).is_some() {
            let mut event = self.event(EventKind::Replaying);
            event.rank = Some(rank);
            self.log_event(event);
        }
    }

    fn caught_up(&mut self, rank: u32, start: u64, count: u64) {
        if self.proc(rank, start).is_none() {
            return;
        }
        let since = self.rank(rank).died_at;
        let mut event = self.event(EventKind::CaughtUp);
        event.rank = Some(rank);
        event.count = Some(count);
        event.took_ms = since.map(|at| at.elapsed().as_secs_f64() * 1e3);
        event.text = format!("{count} events and sends reproduced");
        self.log_event(event);
    }

    /// Calls `looks_over` when the nodes had time to answer.
    pub(super) fn arm_looks(&self, ask: u64, limit: Duration) {
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            let _ = tell.send(Msg::LooksOver { ask });
        });
    }
}
