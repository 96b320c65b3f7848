//! The ranks of a node that is given less time than it takes to leave: they are stopped, each with
//! an image, one after the other.
//!
//! Kept true: most of them come over in the time that there is: the smallest are first, and no two
//! share the link; one that cannot be stopped for now holds up no other; for which there is no time
//! is known at once.

use crate::Job;
use crate::leaving::seconds;
use eyrie_control::LeaveStep;
use std::collections::BTreeSet;

impl Job {
    /// Whether the ranks of a node are stopped one after the other. Those that are one unit, or
    /// checkpointed together, or whose images are one round of the vault, or all of which move or
    /// none, are not.
    fn is_sequential(&self, node: u32) -> bool {
        let late = self.leaving.nodes.get(&node).is_some_and(|leave| !leave.precopy);
        let alone = self.checkpoints.units.partition().are_ranks();
        late && !self.spec.is_vaulted() && alone && !self.leaving.migrates(node)
    }

    /// Of units that have ranks on a node, those that may be stopped now. One by one each is a
    /// rank.
    pub(crate) fn may_stop_now(&self, node: u32, units: &BTreeSet<u32>) -> Vec<u32> {
        let clock = self.clock.now();
        let live: Vec<u32> = units.iter().copied().collect();
        if !self.is_sequential(node) {
            return live;
        }
        let coming = |r: &u32| {
            let stop = self.ranks.all[*r as usize].moves.stop.as_ref();
            stop.is_some_and(|stop| !stop.counts)
        };
        if live.iter().any(coming) {
            return Vec::new();
        }
        let ready = |r: &u32| {
            let r = &self.ranks.all[*r as usize];
            let idle = r.proc.is_some() && r.capture.generation.is_none();
            idle && r.moves.stop.is_none() && r.failing.failures.pause(clock).is_none()
        };
        let ready = live.iter().copied().filter(ready);
        let size = |r: &u32| (self.ranks.all[*r as usize].look.resident_bytes, *r);
        ready.min_by_key(size).into_iter().collect()
    }

    /// It is given less time than it takes.
    pub(crate) fn tell_late(&mut self, node: u32, limit_ms: u64, needed_ms: f64) {
        let (order, without) = match self.is_sequential(node) {
            true => (
                ", one after the other, the smallest first",
                self.ranks_without_time(node, limit_ms),
            ),
            false => ("", Vec::new()),
        };
        let late = match &without[..] {
            [] if self.leaving.migrates(node) => {
                String::from("if they are not elsewhere in time they go on where they are")
            }
            [] => String::from("what is not elsewhere in time comes back from the newest images"),
            [one] => format!(
                "there is no time for its rank {one}, by that: it comes back from its \
                              newest image"
            ),
            many => {
                let list: Vec<String> = many.iter().map(u32::to_string).collect();
                let list = list.join(", ");
                format!(
                    "there is no time for its ranks {list}, by that: they come back from their \
                         newest images"
                )
            }
        };
        let text = format!(
            "it takes about {} by what its ranks' checkpoints have taken, or by their memory, and \
             is given {}: its ranks are stopped at once{order}; {late}",
            seconds(needed_ms),
            seconds(limit_ms as f64)
        );
        self.tell_leave(node, LeaveStep::Late, text);
    }

    /// The ranks of a node for which that much time does not do.
    fn ranks_without_time(&self, node: u32, limit_ms: u64) -> Vec<u32> {
        let rate = self.link_rate();
        let image_ms = |rank: u32| {
            let r = &self.ranks.all[rank as usize];
            match r.look.resident_bytes {
                0 => r.moves.counted_ms.unwrap_or(0.0),
                bytes => bytes as f64 / rate,
            }
        };
        let live = self.nodes.placement.ranks_on(node).into_iter();
        let live = live.filter(|rank| !self.ranks.all[*rank as usize].gone);
        not_over_in_time(live.map(|rank| (rank, image_ms(rank))).collect(), limit_ms as f64)
    }
}

/// Of ranks whose images take so long, those that are not over in time, if the shortest are first.
fn not_over_in_time(mut ranks: Vec<(u32, f64)>, limit_ms: f64) -> Vec<u32> {
    ranks.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mut over_ms = 0.0;
    let ends = ranks.into_iter().map(|(rank, ms)| {
        over_ms += ms;
        (rank, over_ms)
    });
    let mut late: Vec<u32> = ends.filter(|end| end.1 > limit_ms).map(|end| end.0).collect();
    late.sort_unstable();
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_come_over_as_can() {
        let ranks = || vec![(4, 900.0), (5, 100.0), (6, 300.0), (7, 300.0)];
        assert_eq!(not_over_in_time(ranks(), 50.0), [4, 5, 6, 7]);
        assert_eq!(not_over_in_time(ranks(), 400.0), [4, 7], "of two alike the first");
        assert_eq!(not_over_in_time(ranks(), 700.0), [4]);
        assert!(not_over_in_time(ranks(), 1600.0).is_empty());
        assert!(not_over_in_time(vec![(0, 0.0)], 0.0).is_empty(), "nothing is known of it");
    }
}
