//! One rank with several threads, which is run again: they begin in another order, and go on in the
//! same.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};

use super::*;
use crate::consts::{ANY_SOURCE, ANY_TAG, COMM_WORLD};
use crate::datatype::predefined::BYTE;
use crate::p2p::SendMode;
use crate::testing;

const THREADS: u64 = 3;
const SENDS: i64 = 60;

/// A machine that the threads of a rank call.
struct Shared {
    lock: &'static TurnLock,
    machine: *mut Machine,
}

// SAFETY: it is touched by who holds the lock.
unsafe impl Sync for Shared {}

impl Shared {
    fn call<R>(&self, f: impl FnOnce(&mut Machine) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held; the machine is alive as long as the threads are.
        let m = unsafe { &mut *self.machine };
        m.enter();
        m.called("test");
        let result = f(m);
        m.leave();
        self.lock.unlock();
        result
    }

    fn send(&self, tag: i32) {
        let byte = [7u8];
        // SAFETY: the byte is there for the call.
        self.call(|m| unsafe {
            m.send(SendMode::Standard, byte.as_ptr(), 1, BYTE, 0, tag, COMM_WORLD)
        })
        .unwrap();
    }

    fn receive(&self, source: i32, tag: i32) -> i32 {
        let mut byte = [0u8];
        // SAFETY: as above.
        self.call(|m| unsafe { m.recv(byte.as_mut_ptr(), 1, BYTE, source, tag, COMM_WORLD) })
            .unwrap()
            .tag
    }
}

/// Runs `f` as the main thread of a rank.
fn life<R: Send>(seg: &'static Segment, number: u32, f: impl FnOnce(&Shared) -> R + Send) -> R {
    std::thread::scope(|scope| {
        let run = move || {
            let mut machine = testing::machine(seg, 0, number);
            let lock = Box::leak(Box::new(TurnLock::new()));
            machine.share(lock);
            machine.leave();
            f(&Shared { lock, machine: &raw mut machine })
        };
        scope.spawn(run).join().unwrap()
    })
}

/// Threads of the rank, each with its number, which begin in the order of `order`.
fn threads(shared: &Shared, order: [u64; THREADS as usize], f: impl Fn(u64) + Sync) {
    let keys: Vec<u64> = (0..THREADS)
        .map(|_| {
            let key = next_key();
            thread_is_made();
            key
        })
        .collect();
    let (begun, keys, f) = (&AtomicU32::new(0), &keys, &f);
    std::thread::scope(|scope| {
        for (place, t) in (0..).zip(order) {
            scope.spawn(move || {
                thread_begins(keys[t as usize]);
                while begun.load(Relaxed) < place {
                    std::thread::yield_now();
                }
                begun.fetch_add(1, Relaxed);
                f(t);
            });
        }
    });
    let _ = shared;
}

fn segment(ft: u32) -> &'static Segment {
    let geo = Geometry { det_words: 1 << 20, ..Geometry::new(1, 64 << 20) };
    Box::leak(Box::new(Segment::create("test", geo, ft, 2).unwrap().1))
}

/// What comes to the main thread when all threads send at the same time.
fn sends(shared: &Shared, order: [u64; 3]) -> Vec<i32> {
    threads(shared, order, |t| (0..SENDS).for_each(|_| shared.send(t as i32)));
    (0..THREADS as i64 * SENDS).map(|_| shared.receive(ANY_SOURCE, ANY_TAG)).collect()
}

#[test]
fn threads_send_in_the_order_in_which_they_did() {
    let seg = segment(FT_LOGGED);
    let first = life(seg, 1, |shared| sends(shared, [0, 1, 2]));
    let again = life(seg, 2, |shared| sends(shared, [2, 1, 0]));
    assert_eq!(first, again);
}

/// Each thread is given what the one before it sends, so that all wait in turn.
fn relay(shared: &Shared, order: [u64; 3], rounds: i32) {
    threads(shared, order, |t| {
        for round in 0..rounds {
            if round > 0 || t > 0 {
                assert_eq!(shared.receive(0, t as i32), t as i32);
            }
            shared.send((t as i32 + 1) % THREADS as i32);
        }
    });
    assert_eq!(shared.receive(0, 0), 0);
}

#[test]
fn who_waits_lets_others_in() {
    for ft in [0, FT_LOGGED] {
        let seg = segment(ft);
        life(seg, 1, |shared| relay(shared, [0, 1, 2], 300));
        if ft != 0 {
            life(seg, 2, |shared| relay(shared, [1, 2, 0], 300));
        }
    }
}

/// Each thread takes whatever comes, by polls and by wildcards.
fn takes(shared: &Shared, order: [u64; 3]) -> Vec<Vec<i32>> {
    let got: [std::sync::Mutex<Vec<i32>>; 3] = Default::default();
    threads(shared, order, |t| {
        for n in 0..SENDS {
            shared.send(t as i32 * 100 + n as i32);
            let found = |m: &mut Machine| m.improbe(ANY_SOURCE, ANY_TAG, COMM_WORLD).unwrap();
            let tag = loop {
                if n % 2 == 0 {
                    break shared.receive(ANY_SOURCE, ANY_TAG);
                }
                if let Some((mut message, status)) = shared.call(found) {
                    let mut byte = [0u8];
                    let at = byte.as_mut_ptr();
                    // SAFETY: the byte is there for the call.
                    let take = |m: &mut Machine| unsafe { m.mrecv(at, 1, BYTE, &mut message) };
                    shared.call(take).unwrap();
                    break status.tag;
                }
            };
            got[t as usize].lock().unwrap().push(tag);
        }
    });
    got.map(|g| g.into_inner().unwrap()).to_vec()
}

#[test]
fn threads_are_told_what_they_were_told() {
    let seg = segment(FT_LOGGED);
    let first = life(seg, 1, |shared| takes(shared, [0, 1, 2]));
    let again = life(seg, 2, |shared| takes(shared, [2, 0, 1]));
    assert_eq!(first, again);
    let mut all: Vec<i32> = first.concat();
    all.sort_unstable();
    let sent = (0..THREADS as i32).flat_map(|t| (0..SENDS as i32).map(move |n| t * 100 + n));
    assert_eq!(all, sent.collect::<Vec<_>>());
}

#[test]
fn a_program_of_one_thread_records_no_turns() {
    let seg = segment(FT_LOGGED);
    life(seg, 1, |shared| {
        shared.send(1);
        shared.receive(0, 1);
    });
    assert_eq!(eyrie_ledger::door::Door::new(seg, 0).next_turn(), None);
}

#[test]
fn keys_differ() {
    let mut keys: Vec<u64> = (0..300).map(|n| mixed(MAIN_KEY, n)).collect();
    keys.extend((0..300).map(|n| mixed(mixed(MAIN_KEY, 0), n)));
    keys.extend((0..300).map(|n| mixed(STRANGER_KEY, n)));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 900);
}
