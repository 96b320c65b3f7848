//! Images that may come to this node while they are written: each by a key that the controller made
//! for this one and gave to the two ends only.
//!
//! Kept true: a key lets one image in, once; who has another key, or comes again with it, is
//! refused, whoever he is.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a caller waits until the controller's word of him is here.
const WAIT: Duration = Duration::from_secs(5);
/// Most images that are known of.
const MAX_KNOWN: usize = 1 << 12;

/// A key of one image.
pub type Token = [u8; 32];

/// What is known of an image.
enum Entry {
    Awaited(Token),
    Came,
}

/// The images that may come, by name.
#[derive(Default)]
pub struct Invited {
    all: Mutex<BTreeMap<String, Entry>>,
    more: Condvar,
}

fn is_same(a: &Token, b: &Token) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Invited {
    /// This image may come, with this key.
    pub fn invite(&self, name: String, token: Token) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_KNOWN {
            all.clear();
        }
        all.insert(name, Entry::Awaited(token));
        self.more.notify_all();
    }

    /// Whether this image may come now; not again with this key.
    pub fn admit(&self, name: &str, token: &Token) -> bool {
        self.admit_within(name, token, WAIT)
    }

    fn admit_within(&self, name: &str, token: &Token, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match all.get_mut(name) {
                Some(Entry::Came) => return false,
                Some(entry @ Entry::Awaited(_)) => {
                    let right = matches!(entry, Entry::Awaited(known) if is_same(known, token));
                    if right {
                        *entry = Entry::Came;
                    }
                    return right;
                }
                None => {}
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
    use std::sync::Arc;

    #[test]
    fn a_key_lets_one_image_in_once() {
        let invited = Invited::default();
        let admit = |name, token| invited.admit_within(name, &[token; 32], Duration::ZERO);
        assert!(!admit("rank-0.gen-1", 1), "nobody is invited");
        invited.invite("rank-0.gen-1".into(), [1; 32]);
        assert!(!admit("rank-0.gen-1", 2) && !admit("rank-1.gen-1", 1));
        assert!(admit("rank-0.gen-1", 1));
        assert!(!admit("rank-0.gen-1", 1), "a second time");
        invited.invite("rank-0.gen-1".into(), [3; 32]);
        assert!(admit("rank-0.gen-1", 3));
    }

    #[test]
    fn who_comes_before_the_word_of_him_waits() {
        let invited = Arc::new(Invited::default());
        let caller = {
            let invited = Arc::clone(&invited);
            std::thread::spawn(move || invited.admit("rank-0.gen-1", &[1; 32]))
        };
        invited.invite("rank-0.gen-1".into(), [1; 32]);
        assert!(caller.join().unwrap());
    }
}
