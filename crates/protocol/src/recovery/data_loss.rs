//! Data loss: which images are gone when more nodes are lost than images are safe against. It is
//! told to people, before all ranks go back.

use super::{Phase, Planner, Rank};
use crate::membership::Member;

impl Planner {
    /// Ranks of which no image is left, not even the beginning, with the number of the newest that
    /// was given up.
    pub fn lost_images(&self) -> Vec<(u32, u32)> {
        let none = |r: &&(u32, &Rank)| {
            let gone = |(number, holders): (&u32, &std::collections::BTreeSet<Member>)| {
                *number > 0 && holders.is_empty()
            };
            r.1.phase != Phase::Released && r.1.committed.iter().all(gone)
        };
        let ranks: Vec<(u32, &Rank)> = (0..).zip(&self.ranks).collect();
        ranks.iter().filter(none).map(|(number, r)| (*number, r.given_up)).collect()
    }

    /// Where all ranks are one unit: those of whose newest image these nodes have no copy.
    pub fn lost_images_on(&self, members: &[Member]) -> Vec<(u32, u32)> {
        let later = self.renewed(members);
        let newest = |r: &Rank| {
            let (number, holders) = r.committed.last_key_value()?;
            (*number > 0 && holders.is_empty()).then_some(*number)
        };
        (0..).zip(&later).filter_map(|(number, r)| Some((number, newest(r)?))).collect()
    }
}
