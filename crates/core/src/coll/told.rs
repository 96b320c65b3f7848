//! Which way a blocking collective takes on a communicator of all ranks, in words, for who asks.
//!
//! Kept true: it goes by the constants by which the collectives themselves go. Elements are taken
//! to have 8 bytes, and operations to be MPI's own.

use super::brief::BRIEF_BYTES;
use super::{FEW_RANKS, LARGE_BYTES, allgather, alltoall, bcast};
use crate::clusters::{Cut, clusters_heard};

/// The collectives that are known.
pub const NAMES: [&str; 9] = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "allgather",
    "gather",
    "scatter",
    "alltoall",
];

/// What is known of the job.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// One of `NAMES`.
    pub name: &'a str,
    /// As the call's count says: of one block, or of the whole vector.
    pub bytes: u64,
    pub ranks: u32,
    /// What ranks are told of clusters (`clusters::clusters_told`); empty: there is one.
    pub clusters: &'a str,
    pub canonical: bool,
}

/// The way, and why; none of what is not known.
pub fn way(asked: &Asked) -> Option<(String, String)> {
    NAMES.contains(&asked.name).then_some(())?;
    let (clusters, rate) = clusters_heard(asked.clusters, asked.ranks);
    let mut counts = std::collections::BTreeMap::<u32, u64>::new();
    clusters.iter().for_each(|cluster| *counts.entry(*cluster).or_default() += 1);
    let counts: Vec<u64> = counts.into_values().collect();
    let several = counts.len() > 1;
    let reduces = ["reduce", "allreduce", "reduce_scatter"].contains(&asked.name);
    if several && !(reduces && asked.canonical) && !is_one_exchange(asked) {
        return Some(wide(asked, &counts, rate));
    }
    let (way, mut why) = flat(asked);
    if several && reduces && asked.canonical {
        why += "; clusters do not count, as the order of reductions is canonical";
    }
    Some((way.to_string(), why))
}

/// Of little data among few ranks.
fn is_one_exchange(asked: &Asked) -> bool {
    let few = asked.ranks <= FEW_RANKS;
    match asked.name {
        "barrier" => few,
        "bcast" => few && asked.bytes <= BRIEF_BYTES,
        "reduce" | "allreduce" => few && asked.ranks >= 3 && asked.bytes <= BRIEF_BYTES,
        "gather" | "scatter" | "alltoall" => true,
        _ => false,
    }
}

fn wide(asked: &Asked, counts: &[u64], rate: u64) -> (String, String) {
    let cut = Cut::of(rate);
    let most = counts.iter().copied().max().unwrap_or(1);
    let parts = cut.parts(asked.bytes, most);
    let way = match asked.name {
        "barrier" => String::from("the first rank of each cluster speaks for the others"),
        "bcast" | "allgather" if parts == 1 => {
            String::from("a block goes to one rank of each other cluster, which passes it on")
        }
        "bcast" | "allgather" => format!(
            "a block goes to up to {parts} ranks of each other cluster in parts, which they pass \
             on in pieces of {} bytes or more",
            cut.piece
        ),
        _ => format!(
            "each cluster reduces segments of {} bytes or more at up to {parts} of its ranks; what \
             these have crosses once",
            cut.segment
        ),
    };
    let ranks: Vec<String> = counts.iter().map(u64::to_string).collect();
    let known = match rate {
        0 => String::from("1 Gbit/s is assumed, as --wan-rate says nothing"),
        rate => format!("--wan-rate is {} Mbit/s", rate * 8 / 1_000_000),
    };
    let why = format!(
        "the ranks began in {} clusters ({}); {known}, so a part has {} bytes at least",
        counts.len(),
        ranks.join(" + "),
        cut.part
    );
    (way, why)
}

fn flat(asked: &Asked) -> (&'static str, String) {
    let Asked { bytes, ranks, .. } = *asked;
    let many = ranks > FEW_RANKS;
    let large = LARGE_BYTES.max(u64::from(ranks) * 2048);
    let said = |limit: u64| format!("{ranks} ranks, {bytes} bytes; the limit is {limit} bytes");
    let few = || format!("{ranks} ranks; {FEW_RANKS} are few");
    match asked.name {
        "barrier" if !many => ("each rank hears from each other one at once", few()),
        "barrier" => ("in rounds, each from twice as far", few()),
        "gather" | "scatter" => ("the root deals with each rank", said(0)),
        "bcast" | "reduce" | "allreduce" if is_one_exchange(asked) => {
            ("one exchange: all that need it get it at once", said(BRIEF_BYTES))
        }
        "bcast" if bytes >= 4 * LARGE_BYTES && ranks >= bcast::SCATTER_RANKS_MIN => (
            "each rank gets a part of the root, and the others of each other",
            said(4 * LARGE_BYTES),
        ),
        "bcast" => ("a binomial tree", said(4 * LARGE_BYTES)),
        "reduce" | "allreduce" if ranks > 1 && bytes >= large => {
            ("each rank reduces a share, and sends that to who needs it", said(large))
        }
        "reduce" => ("a binomial tree", said(large)),
        "allreduce" => ("recursive doubling", said(large)),
        "reduce_scatter" if many && bytes < LARGE_BYTES => {
            ("a binomial tree to rank 0, which gives each its share", said(LARGE_BYTES))
        }
        "reduce_scatter" => ("each rank reduces its share", said(LARGE_BYTES)),
        "allgather" if many && (1..=allgather::SMALL_BLOCK_BYTES).contains(&bytes) => {
            ("in rounds (Bruck)", said(allgather::SMALL_BLOCK_BYTES))
        }
        "alltoall"
            if many && (1..=alltoall::SMALL_BLOCK_BYTES).contains(&bytes) && !spans(asked) =>
        {
            ("in rounds (Bruck)", said(alltoall::SMALL_BLOCK_BYTES))
        }
        _ => ("each rank deals with each other one", said(0)),
    }
}

fn spans(asked: &Asked) -> bool {
    let clusters = clusters_heard(asked.clusters, asked.ranks).0;
    clusters.windows(2).any(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(name: &'a str, bytes: u64, ranks: u32, clusters: &'a str) -> Asked<'a> {
        Asked { name, bytes, ranks, clusters, canonical: false }
    }

    #[test]
    fn ways_are_told_with_their_reasons() {
        let way = |asked| super::way(&asked).unwrap();
        assert!(way(asked("allreduce", 1024, 4, "0*2,1*2@0")).0.contains("one exchange"));
        let (what, why) = way(asked("allreduce", 1 << 20, 4, "0*2,1*2@12500000"));
        assert!(what.contains("up to 2 of its ranks") && what.contains("16384 bytes"), "{what}");
        assert!(why.contains("2 clusters (2 + 2)") && why.contains("100 Mbit/s"), "{why}");
        let canonical = Asked { canonical: true, ..asked("reduce", 1 << 20, 4, "0*2,1*2@0") };
        assert!(way(canonical).1.contains("canonical"));
        assert!(way(asked("allreduce", 1 << 20, 4, "")).0.contains("reduces a share"));
        assert!(way(asked("alltoall", 8, 16, "0*8,1*8@0")).0.contains("each rank deals"));
        assert!(way(asked("alltoall", 8, 16, "")).0.contains("Bruck"));
        assert!(super::way(&asked("scan", 8, 16, "")).is_none());
        for name in NAMES {
            for clusters in ["", "0*6,1*6@0"] {
                for bytes in [0, 8, 4096, 1 << 22] {
                    let (what, why) = way(asked(name, bytes, 12, clusters));
                    assert!(!what.is_empty() && !why.is_empty());
                }
            }
        }
    }
}
