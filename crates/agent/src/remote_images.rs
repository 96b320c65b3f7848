//! Images that another node has, and that are to be restored here.
//!
//! Kept true: what is restored was checked here, with the files of earlier generations that it
//! refers to; what is found bad does not stay under its name; what only cannot be had here, for
//! whatever this node lacks or as it does not reach who has it, is not called bad.

use super::faults;
use super::network::MoveError;
use super::state::restart::Over;
use eyrie_control::node::{Choice, Fault, Fetch};
use eyrie_exchange::image_files::{self, image_path, log_of};
use eyrie_exchange::image_stream;
use eyrie_exchange::lazy_fetch::{LazyFetch, Unread};
use eyrie_exchange::retries::{PAUSE, Retries};
use eyrie_exchange::store_client::Client;
use eyrie_exchange::store_protocol::{Identity, Members, StoreError};
use eyrie_image::Image;
use eyrie_ledger::saved;
use eyrie_protocol::recovery::{ARCHIVE, VAULT};
use eyrie_state::sealing;
use eyrie_state::shortage;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// In which its kernel is to answer.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// Why an image does not come.
pub(super) enum Missed {
    /// What there is of it where it was to come from cannot be used.
    Bad(String),
    /// It cannot be had here.
    Here(String),
}

/// `None`: too much of the vault is gone.
fn of_unread(why: Unread) -> Option<Missed> {
    let not_read = |why| format!("it is not read out of the vault: {why}");
    match why {
        Unread::Gone => None,
        Unread::Later(why) => Some(Missed::Here(not_read(why))),
        Unread::Never(why) => Some(Missed::Bad(not_read(why))),
    }
}

/// What of an image that comes out of the vault is to be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// All of it, under its name.
    All,
    /// What a restore has the process wait for; `late`: pages may come when it runs.
    First { late: bool },
}

/// The images of a rank, here and on other nodes.
pub(super) struct Elsewhere {
    pub own: Identity,
    pub members: Members,
    pub images: PathBuf,
    pub rank: u32,
    /// How long is tried to have what does not come.
    pub patience: Duration,
    /// How long the archive may be gone, which comes back with the next controller.
    pub archive_gone: Duration,
    /// Nobody waits for it any more: what is here is left to the next search.
    pub over: Over,
    pub wait: Wait,
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
                Err(error) => {
                    let fault = faults::of_move(&error);
                    let why = error.to_string();
                    match fault {
                        Fault::Place => Choice::Unfit(why),
                        _ => Choice::Refused { generation, why, fetched: false },
                    }
                }
            },
            choice => choice,
        };
        let Some(from) = fetch.from.filter(|n| *n != self.own.node) else {
            let choice = check();
            if self.is_over() {
                return None;
            }
            if matches!(choice, Choice::Refused { .. }) {
                image_files::remove(&self.images, self.rank, &[generation]);
            }
            return Some(choice);
        };
        let vaulted = from == VAULT.node;
        let epoch = if vaulted { VAULT.epoch } else { self.epoch(from)? };
        // What was here may be what is bad: the second time all of it is fetched.
        for again in [false, true] {
            if again {
                image_files::remove(&self.images, self.rank, &fetch.files);
            }
            let brought = match vaulted {
                true => self.fetch_vaulted(fetch)?,
                false => self.fetch(&fetch.files, from, epoch)?.map(|()| None),
            };
            let found = match brought {
                Ok(feed) => self.look_at(feed, generation, check)?,
                Err(missed) => Err(missed),
            };
            let choice = match found {
                Ok(choice) => choice,
                Err(Missed::Bad(why)) => {
                    return Some(Choice::Refused { generation, why, fetched: true });
                }
                Err(Missed::Here(why)) => return Some(Choice::Unfit(why)),
            };
            if self.is_over() {
                return None;
            }
            match choice {
                Choice::Refused { .. } if !again => {}
                Choice::Refused { why, .. } => {
                    image_files::remove(&self.images, self.rank, &[generation]);
                    return Some(Choice::Refused { generation, why, fetched: true });
                }
                choice => return Some(choice),
            }
        }
        None
    }

    /// What an image is like that is here, or comes. `None`: who was to give it is gone.
    fn look_at(
        &self,
        feed: Option<LazyFetch>,
        generation: u32,
        check: impl Fn() -> Choice,
    ) -> Option<Result<Choice, Missed>> {
        let choice = check();
        let Some(feed) = feed else { return Some(Ok(choice)) };
        let waited = match choice {
            Choice::Image(_) => self.wait_for(&feed, generation),
            _ => Ok(()),
        };
        match (feed.failed(), waited) {
            (Some(why), _) => of_unread(why).map(Err),
            (None, Err(why)) => Some(Ok(Choice::Refused { generation, why, fetched: true })),
            (None, Ok(())) => Some(Ok(choice)),
        }
    }

    fn check_log(&self, generation: u32, job: &str) -> Result<(), MoveError> {
        let path = log_of(&image_path(&self.images, self.rank, generation));
        saved::load(&sealing::open(&path)?, job)?;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The epoch of a member.
    fn epoch(&self, node: u32) -> Option<u64> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.iter().find(|m| m.0 == node).map(|m| m.1)
    }

    /// Has the files that are not here come out of the vault. `None`: too much of that is gone.
    pub(super) fn fetch_vaulted(&self, fetch: &Fetch) -> Option<Result<Option<LazyFetch>, Missed>> {
        let mut feed = match LazyFetch::start(self.patience) {
            Ok(feed) => feed,
            Err(error) => return Some(Err(Missed::Here(error.to_string()))),
        };
        let mut tries = Retries::new(self.patience);
        loop {
            let read = self.unvault(fetch, &mut feed);
            tries.fails(false);
            let why = match read.err().or_else(|| feed.failed()) {
                None => break,
                Some(_) if self.is_over() => return None,
                Some(why) => why,
            };
            if !matches!(why, Unread::Later(_)) || tries.are_over() || feed.failed().is_some() {
                return Some(Err(of_unread(why)?));
            }
            tracing::warn!(rank = self.rank, "the vault is not read yet: {why}");
            std::thread::sleep(PAUSE);
        }
        for path in feed.paths() {
            if let Ok(identity) = Image::identity_of(&path) {
                image_stream::note_verified(identity);
            }
        }
        Some(Ok(Some(feed).filter(|feed| !feed.is_empty())))
    }

    /// Waits for what is to be here of an image that is good as far as it was looked at.
    fn wait_for(&self, feed: &LazyFetch, generation: u32) -> Result<(), String> {
        match self.wait {
            Wait::All => feed.finish().map_err(|why| why.to_string()),
            Wait::First { late } => {
                let path = image_path(&self.images, self.rank, generation);
                let image = Image::open_knowing(&path, |_| true);
                let first = image.and_then(|image| eyrie_image::wait_for_first(&image, late));
                first.map_err(|error| error.to_string())
            }
        }
    }

    fn call(&self, from: u32) -> Result<Client, StoreError> {
        Client::connect_within(&self.own, &self.members, from, CONNECT)
    }

    /// Fetches the files that are not here. `None`: the member is gone.
    fn fetch(&self, generations: &[u32], from: u32, epoch: u64) -> Option<Result<(), Missed>> {
        let why = |error| format!("it is not fetched from node {from}: {error}");
        let more = match from == ARCHIVE.node {
            true => self.archive_gone,
            false => Duration::ZERO,
        };
        let mut tries = Retries::new(self.patience + more);
        // It is found out once only that an object store is not read from here: that may take its
        // time.
        let (mut came, mut only_from_there) = (BTreeSet::new(), false);
        loop {
            let (mut client, before) = (None, came.len());
            let result = generations.iter().try_for_each(|generation| {
                image_files::complete(&self.images, self.rank, *generation, |name| {
                    let client = match &mut client {
                        Some(client) => client,
                        None => client.insert(self.call(from)?),
                    };
                    if only_from_there {
                        client.only_from_there();
                    }
                    let got = client.get(&self.images, name);
                    only_from_there |= client.is_only_from_there();
                    got.map(|()| {
                        came.insert(name.to_string());
                    })
                })
            });
            if came.len() > before {
                tries.anew();
            }
            let hardly_changes = match &result {
                Err(StoreError::Io(error)) => shortage::is_full(error),
                Err(StoreError::Later(_)) => true,
                _ => false,
            };
            tries.fails(hardly_changes);
            match result {
                Ok(()) => return Some(Ok(())),
                Err(_) if self.is_over() => return None,
                Err(error @ StoreError::Refused(_)) => {
                    return Some(Err(Missed::Bad(why(error))));
                }
                Err(_) if self.epoch(from) != Some(epoch) => return None,
                Err(error) if tries.are_over() => return Some(Err(Missed::Here(why(error)))),
                Err(error) => {
                    tracing::warn!(rank = self.rank, from, %error, "images are not fetched yet");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::auth::Key;
    use eyrie_tls::{Routes, Secret};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    #[test]
    fn a_holder_that_is_cut_off_holds_nobody_up_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // SAFETY: a socket that is open; no memory is touched.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // With a queue that is full it is as behind a firewall that drops what comes.
        let soon = Duration::from_millis(200);
        let calls = || TcpStream::connect_timeout(&at, soon);
        let _held: Vec<TcpStream> = std::iter::from_fn(|| calls().ok()).take(64).collect();
        assert!(calls().is_err());
        let dir = tempfile::tempdir().unwrap();
        let (job, secret) = ("job".into(), Secret::plain(Key::new().unwrap()));
        let (routes, silence) = (Routes::default(), Duration::from_secs(20));
        let patience = Duration::from_secs(3);
        let own = Identity { job, node: 0, epoch: 1, secret, routes, silence };
        let elsewhere = Elsewhere {
            own,
            members: Arc::new(Mutex::new(vec![(1, 2, at)])),
            images: dir.path().into(),
            rank: 0,
            patience,
            archive_gone: Duration::ZERO,
            over: Over::default(),
            wait: Wait::All,
        };
        let begun = Instant::now();
        let Some(Err(Missed::Here(why))) = elsewhere.fetch(&[1], 1, 2) else {
            panic!("it is not called this node's fault")
        };
        assert!(why.contains("not fetched from node 1"), "{why}");
        // It was 20 s for each of 50 attempts.
        let took = begun.elapsed();
        assert!(took >= patience && took < Duration::from_secs(60), "{took:?}");
    }
}
