//! Which ranks of a communicator were in which cluster when the job began.
//!
//! Kept true: the clusters of all ranks are told at the start, by the environment that every start
//! of a rank has, restarts too; so a communicator's groups are the same on all its members, in
//! every replay, and wherever ranks are by then. One that lies in one cluster has none.

use std::rc::Rc;

/// How data is cut, in bytes: what takes a link about as long, whatever its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// What is not larger goes to one rank of a cluster, and more in such parts to several.
    pub part: u64,
    /// Least that a part is passed on in.
    pub piece: u64,
    /// Least that a reduction is worked off in.
    pub segment: u64,
}

impl Cut {
    /// For a link between two clusters of so many bytes a second; 0: not known.
    pub fn of(rate: u64) -> Cut {
        let rate = if rate == 0 { USUAL_RATE } else { rate };
        let part = (rate / PARTS_A_SECOND).clamp(PART_BYTES_MIN, PART_BYTES_MAX);
        Cut { part, piece: 2 * part, segment: 4 * part }
    }

    /// How many of `most` ranks get a part of so many bytes each.
    pub fn parts(self, bytes: u64, most: u64) -> u32 {
        (bytes / self.part).clamp(1, most.max(1)) as u32
    }
}

/// 1 Gbit/s: of a link of which nothing is known.
const USUAL_RATE: u64 = 125_000_000;
/// A part takes the link so long that what each message costs besides is little.
const PARTS_A_SECOND: u64 = 7630;
const PART_BYTES_MIN: u64 = 4 << 10;
const PART_BYTES_MAX: u64 = 256 << 10;

/// The clusters that a communicator spans: two at least.
pub(crate) struct Groups {
    /// The ranks of each, ascending; the cluster of rank 0 comes first.
    pub(crate) members: Vec<Vec<u32>>,
    /// The cluster of each rank: where it is in `members`.
    of: Vec<usize>,
    /// How data is cut that crosses.
    pub(crate) cut: Cut,
}

impl Groups {
    /// `clusters`: of all ranks of the job, by number; `ranks`: which of them are in it, in order.
    pub(crate) fn of((clusters, rate): (&[u32], u64), ranks: &[u32]) -> Option<Groups> {
        let (mut numbers, mut members, mut of) = (Vec::new(), Vec::<Vec<u32>>::new(), Vec::new());
        for (rank, world) in (0..).zip(ranks) {
            let number = clusters.get(*world as usize).copied().unwrap_or(0);
            let at = numbers.iter().position(|n| *n == number).unwrap_or_else(|| {
                numbers.push(number);
                members.push(Vec::new());
                members.len() - 1
            });
            members[at].push(rank);
            of.push(at);
        }
        if members.len() < 2 {
            return None;
        }
        Some(Groups { members, of, cut: Cut::of(rate) })
    }

    /// The cluster of a rank.
    pub(crate) fn cluster(&self, rank: u32) -> usize {
        self.of[rank as usize]
    }

    /// Where a rank is among those of its cluster.
    pub(crate) fn place(&self, rank: u32) -> u32 {
        let all = &self.members[self.cluster(rank)];
        all.binary_search(&rank).unwrap_or_else(|at| at) as u32
    }

    /// Whether the ranks of each cluster follow each other: what is combined in each of them, and
    /// then over all, is combined in rank order.
    pub(crate) fn in_order(&self) -> bool {
        self.of.is_sorted()
    }
}

/// The clusters of all ranks in few words, and the rate of a link between two of them in bytes a
/// second, 0 if it is not known: `0*2,1*2@0`.
pub fn clusters_told(of: &[u32], rate: u64) -> String {
    let runs = of.chunk_by(|a, b| a == b).map(|run| format!("{}*{}", run[0], run.len()));
    format!("{}@{rate}", runs.collect::<Vec<_>>().join(","))
}

/// What `clusters_told` says; nothing if it is not that, or of another number of ranks.
pub(crate) fn clusters_heard(told: &str, ranks: u32) -> (Rc<[u32]>, u64) {
    let Some((told, rate)) = told.rsplit_once('@') else { return Default::default() };
    let Ok(rate) = rate.parse() else { return Default::default() };
    let run = |run: &str| {
        let (cluster, count) = run.split_once('*')?;
        Some((cluster.parse::<u32>().ok()?, count.parse::<u32>().ok()?.min(ranks) as usize))
    };
    let runs: Option<Vec<(u32, usize)>> = told.split(',').map(run).collect();
    let all = runs.into_iter().flatten().flat_map(|(cluster, count)| vec![cluster; count]);
    let all: Vec<u32> = all.collect();
    if all.len() == ranks as usize { (all.into(), rate) } else { Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(clusters: &[u32], ranks: &[u32]) -> Option<Groups> {
        Groups::of((clusters, 0), ranks)
    }

    #[test]
    fn groups_are_by_cluster_and_nothing_within_one() {
        let clusters = [7, 7, 2, 2, 7];
        assert!(groups(&clusters, &[4, 1, 0]).is_none());
        assert!(groups(&[], &[0, 1]).is_none());
        let all = groups(&clusters, &[3, 0, 4, 2]).unwrap();
        assert_eq!(all.members, [vec![0, 3], vec![1, 2]]);
        assert_eq!((all.cluster(0), all.cluster(1), all.place(3), all.place(1)), (0, 1, 1, 0));
        assert!(!all.in_order() && groups(&clusters, &[2, 3, 4]).unwrap().in_order());
    }

    #[test]
    fn what_is_told_is_heard() {
        for of in [&[0, 0, 1, 1, 0][..], &[3], &[0; 40]] {
            let heard = clusters_heard(&clusters_told(of, 5), of.len() as u32);
            assert_eq!((&*heard.0, heard.1), (of, 5));
        }
        assert_eq!(clusters_told(&[0, 0, 1], 0), "0*2,1*1@0");
        for bad in ["", "0*3", "0*2@0", "0*2,1*2@0", "0*3,@0", "x*3@0", "0*99999999999@0", "0*3@x"]
        {
            assert!(clusters_heard(bad, 3).0.is_empty(), "{bad}");
        }
    }

    #[test]
    fn data_is_cut_by_the_rate() {
        assert_eq!(Cut::of(0).part, 16382);
        assert_eq!((Cut::of(1).part, Cut::of(u64::MAX).part), (PART_BYTES_MIN, PART_BYTES_MAX));
        let cut = Cut::of(0);
        assert_eq!([0, 1, 40_000, 1 << 30].map(|bytes| cut.parts(bytes, 4)), [1, 1, 2, 4]);
    }
}
