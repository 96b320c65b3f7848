//! One moment of a job whose ranks are checkpointed each by itself (`--ft logged`): which outcomes
//! were recorded by then.
//!
//! The newest image of every rank, and what was recorded of it between that and one moment, are a
//! state of the job that it can be restarted from: what a rank had received by then others had
//! sent by then, and send again. So all ranks of all nodes are stopped, what is recorded of them is
//! read, and they go on; images are brought afterwards (`periodic`), at leisure.
//!
//! Kept true: no rank runs between the first and the last of these readings, else it counts for
//! nothing; no image of a later moment is among those that are brought.

use crate::Job;
use crate::saving::archive;
use crate::saving::model::Cut;
use eyrie_control::node::{Determinants, ToNode};
use eyrie_protocol::consistent_cut;
use eyrie_protocol::consistent_cut::Verdict;
use eyrie_protocol::recovery::Planner;
use std::collections::BTreeMap;

impl Job {
    /// Whether no checkpoint is to begin, as all ranks are to be stopped. Has that done as soon as
    /// nothing is in the way.
    pub(crate) fn cut_if_due(&mut self) -> bool {
        if self.saving.periodic.cut.is_some() {
            return true;
        }
        let now = self.ranks_ms();
        let has_image = |r: &crate::Rank| r.retention.newest().is_some_and(|k| k.generation > 0);
        let runs = |r: &crate::Rank| !r.gone && r.proc.is_some() && r.starting.is_none();
        let ready = |r: &crate::Rank| runs(r) && has_image(r);
        let placed = self.recovery.planner.as_ref().is_some_and(Planner::placed);
        let reached = self.nodes.are_reached(0..self.size());
        let placed = placed && reached && self.leaving.nodes.is_empty();
        let all = placed && self.ranks.all.iter().all(ready);
        if self.checkpoints.coordinated.is_some() || !self.may_flush(now) || !all {
            return false;
        }
        let busy = |r: &crate::Rank| r.capture.generation.is_some() || r.pending.is_some();
        if !self.ranks.all.iter().any(busy)
            && let Err(error) = self.begin_cut()
        {
            self.flush_failed(&error.to_string());
        }
        true
    }

    fn begin_cut(&mut self) -> std::io::Result<()> {
        let state = self.newest_state()?;
        let attempt = self.saving.archive.next_attempt();
        let mut parts: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for (rank, r) in (0u32..).zip(&self.ranks.all) {
            let Some(proc) = &r.proc else { continue };
            parts.entry(self.nodes.placement.home(rank)).or_default().push((rank, proc.start));
        }
        let rule = consistent_cut::ConsistentCut::new(parts.keys().copied().collect());
        for (node, ranks) in parts {
            self.nodes.all[node as usize].send(ToNode::Cut { attempt, ranks });
        }
        self.saving.periodic.cut = Some(Cut { attempt, rule, words: BTreeMap::new(), state });
        Ok(())
    }

    /// The ranks of a node stand, and this is what is recorded of them.
    pub(crate) fn node_is_cut(
        &mut self,
        node: u32,
        attempt: u32,
        result: Result<Vec<Determinants>, String>,
        partly: bool,
    ) {
        let Some(cut) = self.saving.periodic.cut.as_mut().filter(|c| c.attempt == attempt) else {
            if !partly {
                self.nodes.all[node as usize].send(ToNode::CutOver { attempt });
            }
            return;
        };
        let words = |all: Vec<Determinants>| {
            cut.words.extend(all.into_iter().map(|d| (d.rank, d)));
        };
        let result = result.map(words);
        if partly {
            return;
        }
        let verdicts = cut.rule.stands(node, result);
        self.follow_cut(verdicts);
    }

    /// The ranks of a node go on. `whole`: they have stood until that was ordered.
    pub(crate) fn node_goes_on(&mut self, node: u32, attempt: u32, whole: bool) {
        let Some(cut) = self.saving.periodic.cut.as_mut().filter(|c| c.attempt == attempt) else {
            return;
        };
        let verdicts = cut.rule.goes_on(node, whole);
        self.follow_cut(verdicts);
    }

    pub(crate) fn cut_loses(&mut self, node: u32) {
        let verdicts =
            self.saving.periodic.cut.as_mut().map(|c| c.rule.lost(node)).unwrap_or_default();
        self.follow_cut(verdicts);
    }

    fn follow_cut(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            let Some(attempt) = self.saving.periodic.cut.as_ref().map(|c| c.attempt) else {
                return;
            };
            match verdict {
                Verdict::GoOn(nodes) => {
                    for node in nodes {
                        self.nodes.all[node as usize].send(ToNode::CutOver { attempt });
                    }
                }
                Verdict::Over(failed) => self.end_cut(failed),
            }
        }
    }

    /// All ranks go on: has the images brought.
    fn end_cut(&mut self, failed: Option<String>) {
        let Some(mut cut) = self.saving.periodic.cut.take() else { return };
        if let Some(why) = failed {
            return self.flush_failed(&why);
        }
        (cut.state.input, cut.state.input_hash) =
            (self.console.input.known(), self.console.input.hash());
        archive::put_words(&mut cut.state, cut.words);
        self.bring(cut.attempt, cut.state);
    }

    /// It is of no use any more.
    pub(crate) fn forget_cut(&mut self) {
        if let Some(cut) = self.saving.periodic.cut.take() {
            self.nodes.to_all(&ToNode::CutOver { attempt: cut.attempt });
        }
    }
}
