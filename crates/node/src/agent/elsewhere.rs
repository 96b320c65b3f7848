//! Images that another node has, and that are to be restored here.
//!
//! Kept true: what is restored was checked here, with the files of earlier generations that it
//! refers to; what is found bad does not stay under its name; what only cannot be had here, for
//! whatever this node lacks or as it does not reach who has it, is not called bad.

use super::death::Over;
use super::network::MoveError;
use super::unfit;
use super::vault::Unread;
use crate::files::{self, image_path, log_of};
use crate::recovery::{ARCHIVE, VAULT};
use crate::store::{Client, Identity, Members, StoreError};
use eyrie_control::node::{Choice, Fault, Fetch};
use eyrie_ledger::saved;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between attempts to reach a member.
const PAUSE: Duration = Duration::from_millis(100);
/// In which its kernel is to answer.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// So long after the last file that came what is not here cannot be had ...
const PATIENCE: Duration = Duration::from_secs(10);
/// ... but so often it is tried after that, as one attempt may end in the middle of a long file ...
const FEWEST_ATTEMPTS: u32 = 3;
/// ... and no more often while there is no room here, or it does not come out of an object store.
const ATTEMPTS_WHEN_FULL: u32 = 5;

/// Attempts since the last file that came.
struct Tries {
    since: Instant,
    made: u32,
    /// Of these, such that hardly anything changes about.
    full: u32,
    patience: Duration,
}

impl Tries {
    fn new(patience: Duration) -> Tries {
        Tries { since: Instant::now(), made: 0, full: 0, patience }
    }

    /// A file has come.
    fn anew(&mut self) {
        (self.since, self.made) = (Instant::now(), 0);
    }

    fn fails(&mut self, hardly_changes: bool) {
        self.made += 1;
        self.full += u32::from(hardly_changes);
    }

    fn are_over(&self) -> bool {
        let late = self.made >= FEWEST_ATTEMPTS && self.since.elapsed() >= self.patience;
        late || self.full >= ATTEMPTS_WHEN_FULL
    }
}

/// Why an image does not come.
enum Missed {
    /// What there is of it where it was to come from cannot be used.
    Bad(String),
    /// It cannot be had here.
    Here(String),
}

fn not_read(why: &str) -> String {
    format!("it is not read out of the vault: {why}")
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
                Err(error) => {
                    let fault = unfit::of_move(&error);
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
                files::remove(&self.images, self.rank, &[generation]);
            }
            return Some(choice);
        };
        let vaulted = from == VAULT.node;
        let epoch = if vaulted { VAULT.epoch } else { self.epoch(from)? };
        // What was here may be what is bad: the second time all of it is fetched.
        for again in [false, true] {
            if again {
                files::remove(&self.images, self.rank, &fetch.files);
            }
            let fetched = match vaulted {
                true => self.fetch_vaulted(fetch)?,
                false => self.fetch(&fetch.files, from, epoch)?,
            };
            match fetched {
                Ok(()) => {}
                Err(Missed::Bad(why)) => {
                    return Some(Choice::Refused { generation, why, fetched: true });
                }
                Err(Missed::Here(why)) => return Some(Choice::Unfit(why)),
            }
            let choice = check();
            if self.is_over() {
                return None;
            }
            match choice {
                Choice::Refused { .. } if !again => {}
                Choice::Refused { why, .. } => {
                    files::remove(&self.images, self.rank, &[generation]);
                    return Some(Choice::Refused { generation, why, fetched: true });
                }
                choice => return Some(choice),
            }
        }
        None
    }

    fn check_log(&self, generation: u32, job: &str) -> Result<(), MoveError> {
        let path = log_of(&image_path(&self.images, self.rank, generation));
        saved::load(&File::open(path)?, job)?;
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

    /// Reads the files that are not here out of the vault. `None`: too much of that is gone.
    fn fetch_vaulted(&self, fetch: &Fetch) -> Option<Result<(), Missed>> {
        let mut tries = Tries::new(PATIENCE);
        loop {
            let read = self.unvault(fetch);
            tries.fails(false);
            match read {
                Ok(()) => return Some(Ok(())),
                Err(Unread::Gone) => return None,
                Err(_) if self.is_over() => return None,
                Err(Unread::Later(why)) if !tries.are_over() => {
                    tracing::warn!(rank = self.rank, "the vault is not read yet: {why}");
                    std::thread::sleep(PAUSE);
                }
                Err(Unread::Later(why)) => return Some(Err(Missed::Here(not_read(&why)))),
                Err(Unread::Never(why)) => return Some(Err(Missed::Bad(not_read(&why)))),
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
        let mut tries = Tries::new(PATIENCE + more);
        // It is found out once only that an object store is not read from here: that may take its
        // time.
        let (mut came, mut only_from_there) = (BTreeSet::new(), false);
        loop {
            let (mut client, before) = (None, came.len());
            let result = generations.iter().try_for_each(|generation| {
                files::complete(&self.images, self.rank, *generation, |name| {
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
                Err(StoreError::Io(error)) => unfit::is_full(error),
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

    #[test]
    fn what_does_not_come_is_tried_for_a_while_and_a_few_times() {
        let mut tries = Tries::new(Duration::ZERO);
        for made in 1..=FEWEST_ATTEMPTS {
            tries.fails(false);
            assert_eq!(tries.are_over(), made == FEWEST_ATTEMPTS);
        }
        tries.anew();
        assert!(!tries.are_over());
        let mut tries = Tries::new(Duration::from_secs(3600));
        (0..100).for_each(|_| tries.fails(false));
        assert!(!tries.are_over());
        (0..ATTEMPTS_WHEN_FULL).for_each(|_| tries.fails(true));
        assert!(tries.are_over());
    }

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
        let own = Identity { job, node: 0, epoch: 1, secret, routes: Routes::default() };
        let elsewhere = Elsewhere {
            own,
            members: Arc::new(Mutex::new(vec![(1, 2, at)])),
            images: dir.path().into(),
            rank: 0,
            archive_gone: Duration::ZERO,
            over: Over::default(),
        };
        let begun = Instant::now();
        let Some(Err(Missed::Here(why))) = elsewhere.fetch(&[1], 1, 2) else {
            panic!("it is not called this node's fault")
        };
        assert!(why.contains("not fetched from node 1"), "{why}");
        // It was 20 s for each of 50 attempts.
        let took = begun.elapsed();
        assert!(took >= PATIENCE && took < Duration::from_secs(60), "{took:?}");
    }
}
