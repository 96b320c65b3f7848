//! Images that may come to this node while they are written: each by a key that the controller made
//! for this one and gave to the two ends only.
//!
//! Kept true: a key lets one image in, each of its files once; who has another key, or comes again
//! with it, is refused, whoever he is.

use crate::files::Named;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a caller waits until the controller's word of him is here.
const WAIT: Duration = Duration::from_secs(5);
/// Most images that are known of.
const MAX_KNOWN: usize = 1 << 12;
/// Most files of one.
const MAX_FILES: usize = 1 << 9;

/// A key of one image.
pub type Token = [u8; 32];

/// What is known of an image.
struct Entry {
    token: Token,
    /// Files of it that came.
    came: BTreeSet<String>,
}

/// The images that may come, by rank and generation.
#[derive(Default)]
pub struct Invited {
    all: Mutex<BTreeMap<(u32, u32), Entry>>,
    more: Condvar,
}

fn is_same(a: &Token, b: &Token) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Invited {
    /// This image of a rank may come, with this key.
    pub fn invite(&self, rank: u32, generation: u32, token: Token) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_KNOWN {
            all.clear();
        }
        all.insert((rank, generation), Entry { token, came: BTreeSet::new() });
        self.more.notify_all();
    }

    /// Whether this file of an image may come now; not again with this key.
    pub fn admit(&self, named: Named, name: &str, token: &Token) -> bool {
        self.admit_within(named, name, token, WAIT)
    }

    fn admit_within(&self, named: Named, name: &str, token: &Token, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(entry) = all.get_mut(&(named.rank, named.generation)) {
                return is_same(&entry.token, token)
                    && entry.came.len() < MAX_FILES
                    && entry.came.insert(name.to_string());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.more.wait_timeout(all, left);
            all = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::parse;
    use std::sync::Arc;

    fn admit(invited: &Invited, name: &str, token: u8, wait: Duration) -> bool {
        invited.admit_within(parse(name).unwrap(), name, &[token; 32], wait)
    }

    #[test]
    fn a_key_lets_one_image_in_once() {
        let invited = Invited::default();
        let admit = |name, token| admit(&invited, name, token, Duration::ZERO);
        assert!(!admit("rank-0.gen-1", 1), "nobody is invited");
        invited.invite(0, 1, [1; 32]);
        assert!(!admit("rank-0.gen-1", 2) && !admit("rank-1.gen-1", 1));
        assert!(admit("rank-0.gen-1", 1));
        assert!(!admit("rank-0.gen-1", 1), "a second time");
        invited.invite(0, 1, [3; 32]);
        assert!(!admit("rank-0.gen-1", 1), "the key of before");
        assert!(admit("rank-0.gen-1", 3));
    }

    #[test]
    fn children_come_once_each_by_the_key_of_their_parent() {
        let invited = Invited::default();
        let admit = |name, token| admit(&invited, name, token, Duration::ZERO);
        assert!(!admit("rank-0.gen-1.1", 1), "nobody is invited");
        invited.invite(0, 1, [1; 32]);
        assert!(admit("rank-0.gen-1", 1) && admit("rank-0.gen-1.1", 1));
        assert!(!admit("rank-0.gen-1.1", 1), "a second time");
        assert!(!admit("rank-0.gen-1.2", 2) && !admit("rank-0.gen-2.1", 1));
        assert!(admit("rank-0.gen-1.1.1", 1));
    }

    #[test]
    fn who_comes_before_the_word_of_him_waits() {
        let invited = Arc::new(Invited::default());
        let caller = {
            let invited = Arc::clone(&invited);
            std::thread::spawn(move || admit(&invited, "rank-0.gen-1", 1, WAIT))
        };
        invited.invite(0, 1, [1; 32]);
        assert!(caller.join().unwrap());
    }
}
