//! Which of several nodes each of the ranks goes to that move together.
//!
//! Pure. Kept true: afterwards no node has more than it need have; ranks that follow each other, as
//! those of one node do, go to one node as far as that lets them.

use crate::membership::Member;
use std::collections::BTreeMap;

/// For each rank all of the nodes, best first. `loads`: the nodes, and how many ranks each has.
pub fn spread(ranks: &[u32], loads: &[(Member, usize)]) -> BTreeMap<u32, Vec<Member>> {
    let mut gets = vec![0usize; loads.len()];
    for _ in ranks {
        let least = (0..loads.len()).min_by_key(|i| loads[*i].1 + gets[*i]);
        least.into_iter().for_each(|i| gets[i] += 1);
    }
    let turns = gets.iter().enumerate().flat_map(|(i, gets)| std::iter::repeat_n(i, *gets));
    let from = |i: usize| loads.iter().cycle().skip(i).take(loads.len()).map(|l| l.0).collect();
    ranks.iter().zip(turns).map(|(rank, i)| (*rank, from(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(ranks: &[u32], loads: &[usize]) -> Vec<u32> {
        let member = |(node, load): (u32, &usize)| (Member { node, epoch: 1 }, *load);
        let loads: Vec<_> = (0u32..).zip(loads).map(member).collect();
        let all = spread(ranks, &loads);
        assert!(all.values().all(|to| to.len() == loads.len()));
        ranks.iter().map(|rank| all[rank][0].node).collect()
    }

    #[test]
    fn ranks_are_spread_evenly_and_in_blocks() {
        assert_eq!(first(&[0, 1, 2, 3], &[0, 0]), [0, 0, 1, 1]);
        assert_eq!(first(&[4, 5, 0], &[0, 0]), [0, 0, 1]);
        assert_eq!(first(&[0, 1], &[2, 0]), [1, 1]);
        assert_eq!(first(&[0, 1, 2], &[1, 0, 0, 0]), [1, 2, 3]);
        assert!(spread(&[1], &[]).is_empty());
    }
}
