//! Rounds that come to nothing: when the next one follows, and what is told of it.
//!
//! Kept true: however long something is in the way - a full disk, say - all nodes do not write
//! everything again and again; of images that are kept, and that the vault cannot guard anew, it is
//! told once, and once that it does again.

use crate::Job;
use crate::vault::model::{LONGEST_PAUSE_MS, Retry, Trouble, Vaults};
use crate::vault::{File, QUIET_ROUNDS};
use eyrie_control::status::VaultUnguarded;

impl Vaults {
    /// Nothing that is kept is to be guarded: what could not be is kept no more.
    pub fn nothing_to_guard(&mut self) {
        self.retry.trouble = None;
    }
}

impl Job {
    /// A round has come to nothing, because of a loss or for another reason.
    pub(crate) fn round_failed(&mut self, images: &[File], why: &str, lost: bool) {
        let now = self.clock.now_ms();
        let vaults = &mut self.vaults;
        vaults.retry.one_more(now, lost);
        vaults.failed = if lost { 0 } else { vaults.failed + 1 };
        if vaults.failed >= QUIET_ROUNDS {
            self.not_vaulted(images, why);
        }
    }

    /// All that was to be guarded is.
    pub(crate) fn round_succeeded(&mut self) {
        self.vaults.failed = 0;
        if std::mem::take(&mut self.vaults.retry).trouble.is_some() {
            self.journal.say(String::from("the vault guards all checkpoints that are kept again"));
        }
    }

    /// Images could not be brought into the vault. It is tried again, unless they are a set of all
    /// ranks that does not count yet: another one is taken.
    fn not_vaulted(&mut self, images: &[File], why: &str) {
        let pending = |(rank, image): &File| {
            let pending = self.ranks.all[*rank as usize].pending.as_ref();
            pending.is_some_and(|p| p.generation == *image)
        };
        let counts = |(rank, image): &&File| {
            let holders = self.recovery.planner.iter().flat_map(|p| p.holders(*rank, *image));
            holders.count() > 0
        };
        let new: Vec<File> = images.iter().copied().filter(pending).collect();
        let kept = images.iter().filter(counts).count();
        match kept {
            0 => self.vaults.nothing_to_guard(),
            kept => self.not_guarded(kept as u32, why),
        }
        if self.checkpoints.coordinated.is_some() {
            if let Some(set) = new.iter().map(|image| image.1).max() {
                self.vaults.failed = 0;
                self.spoil_coordinated(set, format!("the vault did not take it: {why}"));
            }
            return;
        }
        for (rank, image) in new {
            let why = format!("the vault did not take it: {why}");
            self.checkpoint_failed(rank, image, why, true);
        }
    }

    fn not_guarded(&mut self, images: u32, why: &str) {
        let trouble = Trouble { images, why: why.to_string() };
        if self.vaults.retry.trouble.replace(trouble).is_none() {
            let most = LONGEST_PAUSE_MS / 1000;
            self.journal.say(format!(
                "{images} checkpoints that are kept cannot be guarded by the vault again: {why}; \
                 until they are fewer nodes than before may be lost; it is tried again, every \
                 {most} s at least (see `eyrie status`)"
            ));
        }
    }

    /// What `eyrie status` tells of it.
    pub(crate) fn vault_unguarded(&self) -> Option<VaultUnguarded> {
        let Retry { rounds, not_before_ms, trouble } = &self.vaults.retry;
        let planner = self.recovery.planner.as_ref().filter(|planner| planner.vaults())?;
        let trouble = trouble.as_ref().filter(|_| !planner.unguarded().is_empty())?;
        Some(VaultUnguarded {
            images: trouble.images,
            rounds: *rounds,
            next_ms: not_before_ms.saturating_sub(self.clock.now_ms()),
            why: trouble.why.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::model::pause_ms;

    #[test]
    fn rounds_that_come_to_nothing_are_ever_rarer() {
        let pauses: Vec<u64> = (1..=9).map(pause_ms).collect();
        let all = [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(pauses, all);
        assert_eq!([64, 65, u32::MAX].map(pause_ms), [60_000; 3]);
        let mut retry = Retry::default();
        retry.one_more(7, false);
        retry.one_more(1000, false);
        assert_eq!(retry.not_before_ms, 2000);
        retry.one_more(3000, true);
        assert_eq!(retry.not_before_ms, 3500, "after a loss it may be another matter");
    }
}
