//! What is given up of the logs in the segment, and acknowledged of them.
//!
//! Kept true: nothing is given up while a thread reads the logs; a position is acknowledged when
//! its sender has written so far again.

use super::Agent;
use eyrie_control::node::ToNode;
use eyrie_process::futex;
use std::sync::atomic::Ordering;

impl Agent {
    /// Gives up parts of the logs, as soon as no thread reads them.
    pub(super) fn give_up_logs(&mut self, order: ToNode) {
        let Some(order) = self.logs.put_off(order) else { return };
        match order {
            ToNode::Trim { rank, need, det_pos } => self.trim(rank, &need, det_pos),
            ToNode::Release { rank } => self.release_channels_to(rank),
            _ => {}
        }
    }

    pub(super) fn logs_read(&mut self) {
        self.logs.end_read();
        for order in self.logs.due() {
            self.give_up_logs(order);
        }
    }

    /// Gives up what no kept checkpoint of `rank` needs.
    fn trim(&mut self, rank: u32, need: &[u64], det_pos: u64) {
        for (source, need) in (0..self.size()).zip(need) {
            self.segment.channel(source, rank).trim.fetch_max(*need, Ordering::Release);
        }
        self.segment.rank(rank).det_trim.fetch_max(det_pos, Ordering::Release);
        if let Some(links) = self.links() {
            links.replicas(|r| r.trim(rank, det_pos));
            links.trimmed(rank);
        }
        self.ring_pressed();
        // It may not have been enough.
        self.look();
    }

    /// Nobody reads them any more.
    fn release_channels_to(&mut self, rank: u32) {
        for source in 0..self.size() {
            let channel = self.segment.channel(source, rank);
            let need = channel.need.load(Ordering::Acquire);
            channel.trim.fetch_max(need, Ordering::Release);
        }
        self.links().into_iter().for_each(|l| l.trimmed(rank));
        self.ring_pressed();
    }

    /// Rings the ranks that wait for log space.
    pub(super) fn ring_pressed(&self) {
        for ctl in (0..self.spec.program.size).map(|r| self.segment.rank(r)) {
            if ctl.pressure.load(Ordering::Acquire) != 0 {
                futex::ring(&ctl.doorbell);
            }
        }
    }

    /// Acknowledges what its sender has written again by now.
    pub(super) fn mark_early(&mut self) {
        self.logs.mark(&self.segment);
    }
}
