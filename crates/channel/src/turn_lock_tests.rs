//! One lock, several threads, as a rank has them.

use super::*;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;

/// A count that only the lock protects.
struct Count(UnsafeCell<u64>);

// SAFETY: it is touched by the lock's holder only.
unsafe impl Sync for Count {}

impl Count {
    fn raise(&self) {
        // SAFETY: the calling thread holds the lock.
        unsafe { *self.0.get() += 1 };
    }
}

#[test]
fn one_at_a_time_is_inside() {
    let (lock, count) = (TurnLock::new(), Count(UnsafeCell::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    assert!(lock.lock());
                    count.raise();
                    if round % 3 == 0 {
                        assert!(!lock.lock(), "it is held already");
                        let depth = lock.give_way();
                        assert_eq!(depth, 2);
                        lock.take_back(depth);
                        count.raise();
                        lock.unlock();
                    }
                    lock.unlock();
                }
            });
        }
    });
    assert_eq!(count.0.into_inner(), 4 * (2_000 + 667));
}

#[test]
fn who_waits_for_something_is_woken_when_it_moves() {
    let (lock, turns) = (TurnLock::new(), AtomicU64::new(0));
    const ROUNDS: u64 = 500;
    std::thread::scope(|scope| {
        for me in 0..3 {
            let (lock, turns) = (&lock, &turns);
            scope.spawn(move || {
                lock.lock();
                for round in 0..ROUNDS {
                    while turns.load(Relaxed) != round * 3 + me {
                        let seen = lock.await_stir();
                        let depth = lock.give_way();
                        lock.sleep(seen);
                        lock.take_back(depth);
                        lock.is_awake();
                    }
                    turns.store(round * 3 + me + 1, Relaxed);
                    lock.stir();
                }
                lock.unlock();
            });
        }
    });
    assert_eq!(turns.into_inner(), 3 * ROUNDS);
}

#[test]
fn a_handler_of_a_signal_knows_that_its_thread_is_at_the_lock() {
    let lock = TurnLock::new();
    assert!(!is_at_lock());
    lock.lock();
    assert!(!is_at_lock());
    let depth = lock.give_way();
    assert!(is_at_lock());
    lock.take_back(depth);
    assert!(!is_at_lock() && !lock.is_wanted());
    lock.unlock();
}
