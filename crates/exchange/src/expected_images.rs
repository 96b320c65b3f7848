//! Images that may come to this node while they are written: each by a key that the controller made
//! for this one and gave to the two ends only.
//!
//! Kept true: a key lets one image in, each of its files once; who has another key, or comes again
//! with it, is refused, whoever he is, unless he brings more of a file while it comes; of each rank
//! there is the key of its newest image only, so that what is known stays little, and no key is
//! forgotten that is in use.

use crate::image_files::Named;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a caller waits until the controller's word of him is here.
const WAIT: Duration = Duration::from_secs(5);
/// Most files of one.
const MAX_FILES: usize = 1 << 9;

/// A key of one image.
pub type Token = [u8; 32];

/// What is known of an image.
struct Entry {
    generation: u32,
    token: Token,
    /// Files of it that came, or come.
    came: BTreeMap<String, Weak<File>>,
}

/// The images that may come, by rank: one is begun when that before it has come, or never will.
#[derive(Default)]
pub struct ExpectedImages {
    all: Mutex<BTreeMap<u32, Entry>>,
    more: Condvar,
}

fn is_same(a: &Token, b: &Token) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl ExpectedImages {
    /// This image of a rank may come, with this key.
    pub fn invite(&self, rank: u32, generation: u32, token: Token) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(rank, Entry { generation, token, came: BTreeMap::new() });
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
            let known = all.get_mut(&named.rank).filter(|e| e.generation == named.generation);
            if let Some(entry) = known {
                return is_same(&entry.token, token)
                    && entry.came.len() < MAX_FILES
                    && entry.came.insert(name.to_string(), Weak::new()).is_none();
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

impl ExpectedImages {
    /// This file, which was let in, comes from now on, as long as it is held.
    pub fn comes(&self, named: Named, name: &str, file: &Arc<File>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.get_mut(&named.rank).filter(|e| e.generation == named.generation);
        if let Some(known) = entry.and_then(|entry| entry.came.get_mut(name)) {
            *known = Arc::downgrade(file);
        }
    }

    /// A file that comes, to whoever brings more of it with its key.
    pub fn coming(&self, named: Named, name: &str, token: &Token) -> Option<Arc<File>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.get(&named.rank).filter(|e| e.generation == named.generation)?;
        entry.came.get(name).filter(|_| is_same(&entry.token, token))?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_files::parse;
    use std::sync::Arc;

    fn admit(invited: &ExpectedImages, name: &str, token: u8, wait: Duration) -> bool {
        invited.admit_within(parse(name).unwrap(), name, &[token; 32], wait)
    }

    #[test]
    fn a_key_lets_one_image_in_once() {
        let invited = ExpectedImages::default();
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
        let invited = ExpectedImages::default();
        let admit = |name, token| admit(&invited, name, token, Duration::ZERO);
        assert!(!admit("rank-0.gen-1.1", 1), "nobody is invited");
        invited.invite(0, 1, [1; 32]);
        assert!(admit("rank-0.gen-1", 1) && admit("rank-0.gen-1.1", 1));
        assert!(!admit("rank-0.gen-1.1", 1), "a second time");
        assert!(!admit("rank-0.gen-1.2", 2) && !admit("rank-0.gen-2.1", 1));
        assert!(admit("rank-0.gen-1.1.1", 1));
    }

    #[test]
    fn of_many_ranks_and_rounds_no_key_is_forgotten_that_is_in_use() {
        let invited = ExpectedImages::default();
        let admit = |name: &str, token| admit(&invited, name, token, Duration::ZERO);
        for (rank, generation) in (0..300).flat_map(|rank| (1..18).map(move |g| (rank, g))) {
            invited.invite(rank, generation, [generation as u8; 32]);
        }
        assert!((0..300).all(|rank| admit(&format!("rank-{rank}.gen-17"), 17)));
        assert!(!admit("rank-7.gen-16", 16), "there is a newer one");
        assert_eq!(invited.all.lock().unwrap().len(), 300);
    }

    #[test]
    fn more_of_a_file_comes_by_its_key_while_it_comes() {
        let (invited, name) = (ExpectedImages::default(), "rank-0.gen-1");
        let file = Arc::new(File::open("/dev/null").unwrap());
        let named = parse(name).unwrap();
        let coming = |token: u8| invited.coming(named, name, &[token; 32]).is_some();
        invited.invite(0, 1, [1; 32]);
        invited.comes(named, name, &file);
        assert!(!coming(1), "it was not let in");
        assert!(admit(&invited, name, 1, Duration::ZERO));
        assert!(!coming(1), "it has not begun");
        invited.comes(named, name, &file);
        assert!(coming(1) && !coming(2));
        assert!(!admit(&invited, name, 1, Duration::ZERO), "a second time");
        drop(file);
        assert!(!coming(1), "it has come");
    }

    #[test]
    fn who_comes_before_the_word_of_him_waits() {
        let invited = Arc::new(ExpectedImages::default());
        let caller = {
            let invited = Arc::clone(&invited);
            std::thread::spawn(move || admit(&invited, "rank-0.gen-1", 1, WAIT))
        };
        invited.invite(0, 1, [1; 32]);
        assert!(caller.join().unwrap());
    }
}
