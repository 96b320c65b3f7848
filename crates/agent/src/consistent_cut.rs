//! What is recorded of the ranks here at one moment of the whole job.
//!
//! Kept true: from before the first word is read until the controller says that the ranks of all
//! nodes stood still, none of them runs; if it does not say so in time they go on, and it is told.
//! Nobody else holds a rank when that begins, and nobody takes the number of one that has died
//! before it is over.

use super::state::cuts::{Cut, Due};
use super::{Agent, Msg};
use eyrie_control::node::{Determinants, FromNode};
use eyrie_image::Frozen;
use eyrie_ledger::segment::Segment;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// What is recorded of ranks, or why it is not known.
type Read = Result<Vec<Determinants>, String>;

impl Agent {
    /// Stops these ranks, and tells what is recorded of them.
    pub(super) fn begin_cut(&mut self, attempt: u32, ranks: Vec<(u32, u64)>) {
        self.forget_cut();
        self.cuts.due = Some(Due(attempt, ranks));
        self.tend_cut();
    }

    /// Begins what is due, if nobody holds a rank any more.
    pub(super) fn tend_cut(&mut self) {
        let held = |r: &super::Rank| r.capture.freezing.is_some() || r.stand.standing.is_some();
        if self.cuts.now.is_some() || self.ranks.iter().any(held) {
            return;
        }
        if let Some(Due(attempt, ranks)) = self.cuts.due.take() {
            self.cut_now(attempt, &ranks);
        }
    }

    fn cut_now(&mut self, attempt: u32, ranks: &[(u32, u64)]) {
        let proc = |&(rank, start): &(u32, u64)| Some((rank, self.proc(rank, start)?.pid));
        let pids: Option<Vec<_>> = ranks.iter().map(proc).collect();
        let Some(pids) = pids else {
            return self.no_cut(attempt, "a rank has died");
        };
        let (go_on, told) = mpsc::channel();
        let (segment, out) = (Arc::clone(&self.segment), Arc::clone(&self.out));
        let tell = self.tell.clone();
        // How long the ranks of this node stand for those of others.
        let limit = Duration::from_millis(self.spec.timing.intervals.limits.cut_ms);
        let work = move || {
            let say = |result, partly| out(FromNode::Cut { attempt, result, partly });
            let whole = stand(&segment, &pids, (&told, limit), say);
            let _ = tell.send(Msg::CutOver { attempt, whole });
        };
        let ranks = ranks.iter().map(|r| r.0).collect();
        match std::thread::Builder::new().name(String::from("eyrie-cut")).spawn(work) {
            Ok(_) => self.cuts.now = Some(Cut { attempt, ranks, go_on: Some(go_on) }),
            Err(error) => self.no_cut(attempt, &error.to_string()),
        }
    }

    fn no_cut(&self, attempt: u32, why: &str) {
        self.say(FromNode::Cut { attempt, result: Err(why.to_string()), partly: false });
        self.say(FromNode::CutOver { attempt, whole: false });
    }

    /// The ranks go on.
    pub(super) fn end_cut(&mut self, attempt: u32) {
        if self.cuts.due.take_if(|due| due.0 == attempt).is_some() {
            return self.no_cut(attempt, "its ranks were held");
        }
        let cut = self.cuts.now.as_mut().filter(|c| c.attempt == attempt);
        if let Some(go_on) = cut.and_then(|c| c.go_on.take()) {
            let _ = go_on.send(());
        }
    }

    /// None of those that there are is of use any more.
    pub(super) fn forget_cut(&mut self) {
        self.cuts.now.iter_mut().for_each(|cut| cut.go_on = None);
        if let Some(Due(attempt, _)) = self.cuts.due.take() {
            self.no_cut(attempt, "it is not wanted any more");
        }
    }

    /// The ranks are not held any more.
    pub(super) fn cut_over(&mut self, attempt: u32, whole: bool) {
        let Some(cut) = self.cuts.now.take_if(|c| c.attempt == attempt) else { return };
        self.say(FromNode::CutOver { attempt, whole });
        for rank in cut.ranks {
            if let Some(search) = self.rank(rank).restart.find_later.take() {
                self.find(rank, search);
            }
        }
        self.tend_cut();
    }
}

/// Stops processes, tells what is recorded of their ranks, and waits. Whether they stood until that
/// was over.
fn stand(
    segment: &Segment,
    ranks: &[(u32, libc::pid_t)],
    (told, limit): (&Receiver<()>, Duration),
    say: impl Fn(Read, bool),
) -> bool {
    let stop = |&(rank, pid): &(u32, libc::pid_t)| {
        Frozen::stop(pid).map_err(|e| format!("rank {rank} cannot be stopped: {e}"))
    };
    let frozen: Vec<Frozen> = match ranks.iter().map(stop).collect() {
        Ok(frozen) => frozen,
        Err(why) => {
            say(Err(why), false);
            return false;
        }
    };
    // All of them may be too long for one message.
    for (n, (rank, _)) in ranks.iter().enumerate() {
        say(Ok(vec![recorded(segment, *rank)]), n + 1 < ranks.len());
    }
    let whole = told.recv_timeout(limit).is_ok();
    drop(frozen);
    whole
}

/// All that is recorded of a rank whose home is here.
pub(super) fn recorded(segment: &Segment, rank: u32) -> Determinants {
    let ctl = segment.rank(rank);
    let first = ctl.det_trim.load(Ordering::Acquire);
    let end = ctl.det_tail.load(Ordering::Acquire);
    let word = |at| segment.det(rank, at).load(Ordering::Acquire);
    Determinants { rank, first, words: (first..end).map(word).collect() }
}
