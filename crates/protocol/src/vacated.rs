//! Ranks that leave a node, as that node knows them.
//!
//! Pure: what is recorded is handed in. Kept true: what a node has recorded of its own ranks is
//! with it alone until others hold it, so it answers for them as long as it is there, from when
//! their processes are told to end until they start there again.

use crate::membership::Member;
use crate::replicas::{Answer, Words, longest};

/// Ranks that were here when they were told to leave for good.
#[derive(Debug, Clone, Default)]
pub struct Vacated {
    ranks: Vec<u32>,
}

impl Vacated {
    /// All that are here are.
    pub fn all(here: impl IntoIterator<Item = u32>) -> Vacated {
        Vacated { ranks: here.into_iter().collect() }
    }

    /// A rank that died here time and again comes back elsewhere.
    pub fn yields(&mut self, rank: u32) {
        if !self.ranks.contains(&rank) {
            self.ranks.push(rank);
        }
    }

    /// A rank starts here: others hold what is recorded of it, and this node only for itself.
    pub fn stays(&mut self, rank: u32) {
        self.ranks.retain(|r| *r != rank);
    }

    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Adds what is recorded here of those that are asked for. The node is in step with itself.
    pub fn answer(
        &self,
        own: Member,
        ranks: &[u32],
        recorded: impl Fn(u32) -> Words,
        answer: &mut Answer,
    ) {
        if self.ranks.is_empty() {
            return;
        }
        answer.in_step.push(own);
        for rank in self.ranks.iter().filter(|r| ranks.contains(r)) {
            let held = answer.held.remove(rank);
            let known = longest(held.into_iter().chain([recorded(*rank)]));
            answer.held.extend(known.map(|words| (*rank, words)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Member = Member { node: 1, epoch: 4 };

    fn told(vacated: &Vacated, ranks: &[u32], mut answer: Answer) -> Answer {
        let recorded = |rank| Words { first: 0, words: vec![u64::from(rank); 3] };
        vacated.answer(OWN, ranks, recorded, &mut answer);
        answer
    }

    #[test]
    fn a_node_answers_for_ranks_that_leave_it_and_for_no_others() {
        let mut vacated = Vacated::all([0, 2]);
        let answer = told(&vacated, &[1, 2], Answer::default());
        assert_eq!(answer.in_step, [OWN]);
        assert_eq!(answer.held.keys().collect::<Vec<_>>(), [&2]);
        vacated.stays(2);
        assert!(told(&vacated, &[2], Answer::default()).held.is_empty());
        vacated.stays(0);
        assert!(told(&vacated, &[0], Answer::default()).in_step.is_empty(), "none left");
    }

    #[test]
    fn what_it_holds_of_them_for_others_counts_if_that_is_more() {
        let mut vacated = Vacated::default();
        vacated.yields(7);
        let mut answer = Answer::default();
        answer.held.insert(7, Words { first: 0, words: vec![7; 5] });
        assert_eq!(told(&vacated, &[7], answer).held[&7].words.len(), 5);
    }
}
