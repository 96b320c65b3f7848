//! Locks of files that are held for as long as somebody lives (flock), and asked for by others.
//!
//! Who asks whether such a lock is held shares it for a moment. Kept true: who claims it takes that
//! for no holder, however long the moment is (a command that asks may be stopped in it).

use std::fs::File;
use std::thread;
use std::time::Duration;

/// How often a lock is tried that somebody has alone: that may be another who claims it, or a
/// holder that is about to end.
const TRIES: u32 = 50;
/// How often one is tried that others only share.
const TRIES_SHARED: u32 = 6000;
const PAUSE: Duration = Duration::from_millis(5);

/// Takes the lock of a file that was opened for reading and writing (NFS wants both). False:
/// somebody else holds it.
pub fn claim_lock(file: &File) -> bool {
    claim_with(file, || thread::sleep(PAUSE))
}

fn claim_with(file: &File, mut pause: impl FnMut()) -> bool {
    let mut alone = 0;
    for _ in 0..TRIES_SHARED {
        if file.try_lock().is_ok() {
            return true;
        }
        if file.try_lock_shared().is_ok() {
            let _ = file.unlock();
        } else {
            alone += 1;
            if alone == TRIES {
                return false;
            }
        }
        pause();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened_twice() -> (File, File) {
        let place = tempfile::NamedTempFile::new().unwrap();
        (place.reopen().unwrap(), place.reopen().unwrap())
    }

    #[test]
    fn who_asks_for_long_is_no_holder() {
        let (asks, claims) = opened_twice();
        asks.try_lock_shared().unwrap();
        let mut pauses = 0;
        assert!(claim_with(&claims, || {
            pauses += 1;
            if pauses == 10 * TRIES {
                asks.unlock().unwrap();
            }
        }));
        assert_eq!(pauses, 10 * TRIES);
    }

    #[test]
    fn one_who_never_ends_to_ask_is_not_waited_for_without_end() {
        let (asks, claims) = opened_twice();
        asks.try_lock_shared().unwrap();
        assert!(!claim_with(&claims, || {}));
    }

    #[test]
    fn a_holder_is_given_a_moment_to_end() {
        let (holds, claims) = opened_twice();
        holds.try_lock().unwrap();
        let mut pauses = 0;
        assert!(!claim_with(&claims, || pauses += 1));
        assert_eq!(pauses, TRIES - 1);
        let mut pauses = 0;
        assert!(claim_with(&claims, || {
            pauses += 1;
            if pauses == TRIES - 1 {
                holds.unlock().unwrap();
            }
        }));
    }
}
