//! What waits until the record of its turn is durable. It is carried out by `commit`.

use crate::clock::Moment;
use crate::outside::{ClientHandle, Lead, NodeLine};
use eyrie_control::node::ToNode;
use eyrie_control::{Event, NodeMsg};
use eyrie_protocol::session::Numbered;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// What a turn leads to.
#[derive(Default)]
pub(crate) struct Effects {
    pub frames: Vec<(u32, Numbered<ToNode>)>,
    /// What was taken of each node is confirmed.
    pub heard: Vec<(u32, u64)>,
    /// Nodes that may be granted more.
    pub grants: Vec<(u32, u64)>,
    pub events: Vec<Event>,
    /// Lost nodes, of which all is to end, and how long one may take that is cut off.
    pub clears: Vec<(u32, Duration)>,
    pub dismissed: Vec<Box<dyn NodeLine>>,
    pub console: Vec<NodeMsg>,
    /// What clients are told that wait for checkpoints, or for the job to be saved.
    pub answers: Vec<(ClientHandle, NodeMsg)>,
    /// What is saved is of no use any more.
    pub outgrown: bool,
}

impl Effects {
    pub(super) fn is_empty(&self) -> bool {
        let none = self.frames.is_empty() && self.heard.is_empty() && self.events.is_empty();
        none && self.grants.is_empty()
            && self.clears.is_empty()
            && self.dismissed.is_empty()
            && self.console.is_empty()
            && self.answers.is_empty()
            && !self.outgrown
    }
}

/// What is gathered in a turn, and what waits.
#[derive(Default)]
pub(crate) struct Commit {
    /// For the console.
    pub printed: RefCell<Vec<NodeMsg>>,
    /// As in `Effects`.
    pub answers: Vec<(ClientHandle, NodeMsg)>,
    pub clears: Vec<(u32, Duration)>,
    pub dismissed: Vec<Box<dyn NodeLine>>,
    /// The journal that this controller began with says less than nodes have heard.
    pub lacks_end: bool,
    /// When the journal could not be written, or begun anew, last.
    pub journal_lost: Option<Moment>,
    /// If the journal is in etcd.
    pub ha: Option<Ha>,
}

/// How the state in etcd is, as the job sees it.
pub(crate) struct Ha {
    pub(super) lead: Rc<dyn Lead>,
    pub(super) waiting: VecDeque<(u64, Effects)>,
    /// The number of the latest record, and of the latest that is durable.
    pub(super) written: u64,
    pub(super) durable: u64,
    pub(super) away: Option<String>,
    pub(super) deposed: Option<String>,
    /// How many addresses and hosts were announced.
    pub(super) announced: (usize, usize),
}
