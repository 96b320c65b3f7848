//! More is lost than the job bears: what is gone, and the newest state of all ranks that can still
//! be had, for the line that is told before they go back.
//!
//! Kept true: nothing is decided here. A controller that took another's place meanwhile knows which
//! ranks have no image left, not which nodes of the vault that was.

use crate::Job;
use crate::recovery::model::LostImage;
use eyrie_protocol::membership::Member;
use std::time::{Duration, UNIX_EPOCH};

/// So many ranks are named.
const NAMED: usize = 8;

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
fn lost_images_text(gone: &[(u32, LostImage)]) -> String {
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
    /// What the vault says of an image that it does not have any more.
    fn vault_shortfall(&self, rank: u32, generation: u32) -> Option<String> {
        let files = self.ranks.files_of(rank, generation);
        files.into_iter().find_map(|file| {
            let (number, nodes, tolerates) = self.vaults.guards_of((rank, file))?;
            let (gone, all): (Vec<u32>, usize) =
                (nodes.iter().copied().filter(|n| self.nodes.is_lost(*n)).collect(), nodes.len());
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
    pub(crate) fn note_lost_image(&mut self, rank: u32, generation: u32) {
        let known =
            self.recovery.lost_images.get(&rank).is_some_and(|gone| gone.generation > generation);
        if !known {
            let vault = self.vault_shortfall(rank, generation);
            self.recovery.lost_images.insert(rank, LostImage { generation, vault });
        }
    }

    /// What to tell of a loss because of which ranks cannot be brought back alone.
    pub(crate) fn describe_loss(&self, why: &str) -> String {
        let without_image =
            self.recovery.planner.as_ref().map(|p| p.lost_images()).unwrap_or_default();
        let known = |(rank, newest): (u32, u32)| {
            let noted = self.recovery.lost_images.get(&rank).cloned();
            (rank, noted.unwrap_or(LostImage { generation: newest, vault: None }))
        };
        let gone: Vec<(u32, LostImage)> = without_image.into_iter().map(known).collect();
        format!("{why}\n{}", self.loss_text(&gone, 0))
    }

    /// Of ranks that go back together: tells if these nodes do not have the newest set.
    pub(crate) fn tell_lost_images(&self, members: &[Member]) {
        let Some(planner) =
            self.recovery.planner.as_ref().filter(|_| self.checkpoints.coordinated.is_some())
        else {
            return;
        };
        let of = |(rank, generation)| {
            (rank, LostImage { generation, vault: self.vault_shortfall(rank, generation) })
        };
        let gone: Vec<(u32, LostImage)> =
            planner.lost_images_on(members).into_iter().map(of).collect();
        if !gone.is_empty() {
            self.journal.say(self.loss_text(&gone, planner.newest_whole_on(members)));
        }
    }

    fn loss_text(&self, gone: &[(u32, LostImage)], set: u32) -> String {
        let lost: Vec<u32> =
            (0..self.nodes.all.len() as u32).filter(|n| self.nodes.is_lost(*n)).collect();
        let mut text = format!("nodes lost so far: {}", listed(&lost));
        if !gone.is_empty() {
            text += &format!("; {}", lost_images_text(gone));
        }
        format!("{text}\nthe newest state of all ranks that can be had: {}", self.newest_text(set))
    }

    /// `set`: the one of all ranks that nodes have; 0: none.
    fn newest_text(&self, set: u32) -> String {
        let clock = self.clock.now();
        if set > 0 {
            return format!("checkpoint {set} of all of them, on the nodes");
        }
        if let Some(snapshot) = self.checkpoints.newest_snapshot() {
            return snapshot;
        }
        if self.saving.archive.holds() {
            let there = self.saving.periodic.there;
            let number = there.map_or(self.saving.archive.newest(), |there| there.set);
            let age = there.and_then(|there| {
                let at = UNIX_EPOCH + Duration::from_millis(there.unix_ms);
                clock.wall.duration_since(at).ok()
            });
            let age = age.map_or(String::new(), |age| format!(", {} s old", age.as_secs()));
            return format!("the one in the job's folder (checkpoint {number}{age})");
        }
        let ft = self.spec.protection.ft;
        let hint = match self.spec.saves() {
            true => "nothing was brought to the job's folder yet",
            false if ft.goes_back_alone() || ft.all_go_back() => {
                "`--save-every` keeps one in the job's folder"
            }
            false => "no other is kept",
        };
        format!("only their beginning ({hint})")
    }
}

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
        let of = |rank: u32| (rank, LostImage { generation: 5 * rank, vault: vault.clone() });
        let two: Vec<(u32, LostImage)> = (0..2).map(of).collect();
        assert_eq!(
            lost_images_text(&two),
            "gone: all images of rank 0, checkpoint 5 of rank 1 (three are lost)"
        );
        let text = lost_images_text(&(1..12).map(of).collect::<Vec<_>>());
        assert!(text.contains("of rank 8 and 3 more (three"), "{text}");
    }
}
