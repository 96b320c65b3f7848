//! Images that another node has, and that are to be restored here.
//!
//! Kept true: what is restored was checked here, with the files of earlier generations that it
//! refers to; what cannot be used here does not stay under its name.

use super::death::Over;
use super::network::{log_of, names};
use super::vault::Unread;
use crate::checkpoint::image_path;
use crate::recovery::{ARCHIVE, VAULT};
use crate::store::{Client, Identity, Members, StoreError};
use eyrie_control::node::{Choice, Fetch};
use eyrie_ledger::saved;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between attempts to reach a member.
const PAUSE: Duration = Duration::from_millis(100);
/// Attempts to reach a member, before what it has counts as lost.
const ATTEMPTS: u32 = 50;

/// Removes the files of images.
pub(crate) fn remove(images: &Path, rank: u32, generations: &[u32]) {
    for generation in generations {
        let path = image_path(images, rank, *generation);
        let _ = eyrie_image::remove_image(&path);
        let _ = std::fs::remove_file(log_of(&path));
    }
}

/// The images of a rank, here and on other nodes.
pub(super) struct Elsewhere {
    pub own: Identity,
    pub members: Members,
    pub images: PathBuf,
    pub rank: u32,
    /// How long the archive may be gone, which comes back with the next controller.
    pub archive_gone: Duration,
    /// Nobody waits for it any more: what is here is left to the next search.
    pub over: Over,
}

impl Elsewhere {
    /// Has an image here that is good, as `check` says. `None`: who was to give it is gone, or
    /// nobody waits for it.
    pub fn obtain(
        &self,
        fetch: &Fetch,
        generation: u32,
        job: &str,
        check: impl Fn() -> Choice,
    ) -> Option<Choice> {
        let check = || match check() {
            Choice::Image(meta) if fetch.log => match self.check_log(generation, job) {
                Ok(()) => Choice::Image(meta),
                Err(why) => Choice::Refused { generation, why, fetched: false },
            },
            choice => choice,
        };
        let Some(from) = fetch.from.filter(|n| *n != self.own.node) else {
            let choice = check();
            if self.is_over() {
                return None;
            }
            if matches!(choice, Choice::Refused { .. }) {
                remove(&self.images, self.rank, &[generation]);
            }
            return Some(choice);
        };
        let vaulted = from == VAULT.node;
        let epoch = if vaulted { VAULT.epoch } else { self.epoch(from)? };
        // What was here may be what is bad: the second time all of it is fetched.
        for again in [false, true] {
            if again {
                remove(&self.images, self.rank, &fetch.files);
            }
            let fetched = match vaulted {
                true => self.fetch_vaulted(fetch)?,
                false => self
                    .fetch(&fetch.files, from, epoch)?
                    .map_err(|error| format!("it is not fetched from node {from}: {error}")),
            };
            if let Err(why) = fetched {
                return Some(Choice::Refused { generation, why, fetched: true });
            }
            let choice = check();
            if self.is_over() {
                return None;
            }
            match choice {
                Choice::Refused { .. } if !again => {}
                Choice::Refused { why, .. } => {
                    remove(&self.images, self.rank, &[generation]);
                    return Some(Choice::Refused { generation, why, fetched: true });
                }
                choice => return Some(choice),
            }
        }
        None
    }

    fn check_log(&self, generation: u32, job: &str) -> Result<(), String> {
        let path = log_of(&image_path(&self.images, self.rank, generation));
        let loaded = File::open(path).map_err(saved::SavedError::from);
        let loaded = loaded.and_then(|log| saved::load(&log, job));
        loaded.map(|_| ()).map_err(|e| format!("its log: {e}"))
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The epoch of a member.
    fn epoch(&self, node: u32) -> Option<u64> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().find(|m| m.0 == node).map(|m| m.1)
    }

    /// Reads the files that are not here out of the vault. `None`: too much of that is gone.
    fn fetch_vaulted(&self, fetch: &Fetch) -> Option<Result<(), String>> {
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match self.unvault(fetch) {
                Ok(()) => return Some(Ok(())),
                Err(Unread::Gone) => return None,
                Err(_) if self.is_over() => return None,
                Err(Unread::Later(why)) if left > 0 => {
                    tracing::warn!(rank = self.rank, "the vault is not read yet: {why}");
                    std::thread::sleep(PAUSE);
                }
                Err(Unread::Later(why) | Unread::Never(why)) => {
                    return Some(Err(format!("it is not read out of the vault: {why}")));
                }
            }
        }
    }

    /// Fetches the files that are not here. `None`: the member is gone.
    fn fetch(&self, files: &[u32], from: u32, epoch: u64) -> Option<Result<(), StoreError>> {
        let more = match from == ARCHIVE.node {
            true => self.archive_gone.as_millis() / PAUSE.as_millis(),
            false => 0,
        };
        let mut left = ATTEMPTS + more as u32;
        loop {
            let wanted = files.iter().flat_map(|g| names(self.rank, *g));
            let wanted: Vec<String> = wanted.filter(|n| !self.images.join(n).exists()).collect();
            if wanted.is_empty() {
                return Some(Ok(()));
            }
            let result = Client::connect(&self.own, &self.members, from).and_then(|mut client| {
                wanted.iter().try_for_each(|name| client.get(&self.images, name))
            });
            left -= 1;
            match result {
                Ok(()) => return Some(Ok(())),
                Err(_) if self.is_over() => return None,
                Err(error @ StoreError::Refused(_)) => return Some(Err(error)),
                Err(_) if self.epoch(from) != Some(epoch) => return None,
                Err(error) if left == 0 => return Some(Err(error)),
                Err(error) => {
                    tracing::warn!(rank = self.rank, from, %error, "images are not fetched yet");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}
