//! More is lost than the job bears: what is gone, and the newest state of all ranks that can still
//! be had, for the line that is told before they go back.
//!
//! Kept true: nothing is decided here. A controller that took another's place meanwhile knows which
//! ranks have no image left, not which nodes of the vault that was.

use super::Job;
use super::nodes::State;
use crate::membership::Member;
use eyrie_control::Ft;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// So many ranks are named.
const NAMED: usize = 8;

/// Where an image was of which nothing is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    generation: u32,
    /// Why the vault does not have it.
    vault: Option<String>,
}

/// Numbers as they are read out.
fn listed(numbers: &[u32]) -> String {
    let all: Vec<String> = numbers.iter().map(u32::to_string).collect();
    match all.split_last() {
        None => String::from("none"),
        Some((one, [])) => one.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// What is gone, by rank: the number of its newest checkpoint, if that is known.
fn gone_text(gone: &[(u32, Gone)]) -> String {
    let named = gone.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|(rank, gone)| match gone.generation {
            0 => format!("all images of rank {rank}"),
            generation => format!("checkpoint {generation} of rank {rank}"),
        })
        .collect();
    let more = gone.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut why: Vec<&str> = gone.iter().filter_map(|(_, g)| g.vault.as_deref()).collect();
    why.sort_unstable();
    why.dedup();
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    format!("gone: {}{more}{why}", named.join(", "))
}

impl Job {
    fn is_lost(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_none_or(|n| n.state == State::Lost)
    }

    /// What the vault says of an image that it does not have any more.
    fn overdrawn(&self, rank: u32, generation: u32) -> Option<String> {
        let files = self.files_of(rank, generation);
        files.into_iter().find_map(|file| {
            let (number, nodes, tolerates) = self.guards_of((rank, file))?;
            let (gone, all): (Vec<u32>, usize) =
                (nodes.iter().copied().filter(|n| self.is_lost(*n)).collect(), nodes.len());
            (gone.len() > tolerates).then(|| {
                let gone = listed(&gone);
                format!(
                    "generation {number} of the vault was on {all} nodes, of which {gone} are \
                     lost and {tolerates} may be"
                )
            })
        })
    }

    /// Notes where an image was, before it is forgotten.
    pub(super) fn note_gone(&mut self, rank: u32, generation: u32) {
        let known = self.gone.get(&rank).is_some_and(|gone| gone.generation > generation);
        if !known {
            let vault = self.overdrawn(rank, generation);
            self.gone.insert(rank, Gone { generation, vault });
        }
    }

    /// What to tell of a loss because of which ranks cannot be brought back alone.
    pub(super) fn told_of_loss(&self, why: &str) -> String {
        let bereft = self.planner.as_ref().map(|p| p.bereft()).unwrap_or_default();
        let known = |(rank, newest): (u32, u32)| {
            let noted = self.gone.get(&rank).cloned();
            (rank, noted.unwrap_or(Gone { generation: newest, vault: None }))
        };
        let gone: Vec<(u32, Gone)> = bereft.into_iter().map(known).collect();
        format!("{why}\n{}", self.loss_text(&gone, 0))
    }

    /// Of ranks that go back together: tells if these nodes do not have the newest set.
    pub(super) fn tell_gone(&self, members: &[Member]) {
        let Some(planner) = self.planner.as_ref().filter(|_| self.together.is_some()) else {
            return;
        };
        let of = |(rank, generation)| {
            (rank, Gone { generation, vault: self.overdrawn(rank, generation) })
        };
        let gone: Vec<(u32, Gone)> = planner.bereft_on(members).into_iter().map(of).collect();
        if !gone.is_empty() {
            self.say(self.loss_text(&gone, planner.set_on(members)));
        }
    }

    fn loss_text(&self, gone: &[(u32, Gone)], set: u32) -> String {
        let lost: Vec<u32> = (0..self.nodes.len() as u32).filter(|n| self.is_lost(*n)).collect();
        let mut text = format!("nodes lost so far: {}", listed(&lost));
        if !gone.is_empty() {
            text += &format!("; {}", gone_text(gone));
        }
        format!("{text}\nthe newest state of all ranks that can be had: {}", self.newest_text(set))
    }

    /// `set`: the one of all ranks that nodes have; 0: none.
    fn newest_text(&self, set: u32) -> String {
        if set > 0 {
            return format!("checkpoint {set} of all of them, on the nodes");
        }
        if let Some(snapshot) = self.newest_snapshot() {
            return snapshot;
        }
        if self.archive.holds() {
            let there = self.flush.there;
            let number = there.map_or(self.archive.newest(), |there| there.set);
            let age = there.and_then(|there| {
                let at = UNIX_EPOCH + Duration::from_millis(there.unix_ms);
                SystemTime::now().duration_since(at).ok()
            });
            let age = age.map_or(String::new(), |age| format!(", {} s old", age.as_secs()));
            return format!("the one in the job's folder (checkpoint {number}{age})");
        }
        let hint = match (self.spec.saves(), self.spec.ft) {
            (true, _) => "nothing was brought to the job's folder yet",
            (false, Ft::Logged | Ft::Coordinated) => "`--save-every` keeps one in the job's folder",
            _ => "no other is kept",
        };
        format!("only their beginning ({hint})")
    }
}

/// By rank.
pub(super) type AllGone = BTreeMap<u32, Gone>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_named_and_why_once() {
        assert_eq!(
            [&[][..], &[4], &[4, 7], &[1, 2, 3]].map(listed),
            ["none", "4", "4 and 7", "1, 2 and 3"]
        );
        let vault = Some(String::from("three are lost"));
        let of = |rank: u32| (rank, Gone { generation: 5 * rank, vault: vault.clone() });
        let two: Vec<(u32, Gone)> = (0..2).map(of).collect();
        assert_eq!(
            gone_text(&two),
            "gone: all images of rank 0, checkpoint 5 of rank 1 (three are lost)"
        );
        let text = gone_text(&(1..12).map(of).collect::<Vec<_>>());
        assert!(text.contains("of rank 8 and 3 more (three"), "{text}");
    }
}
