//! Loom models of what crosses processes through the segment: publishing an entry and sleeping on
//! the doorbell. Run with `RUSTFLAGS="--cfg loom" cargo test -p eyrie-channel --test loom_models`.
//!
//! They repeat the orderings of `ledger::sendlog`/`reader` and `channel::waiting`, step by step,
//! on loom's atomics; a change there is a change here.
#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

/// Two slots of a chunk that held old bytes: stamp and payload, as `SendLog::put` writes them.
struct Slots {
    dir: AtomicU64,
    stamp: [AtomicU64; 2],
    payload: [AtomicU64; 2],
}

#[test]
fn a_reader_never_takes_old_bytes_for_an_entry() {
    loom::model(|| {
        // The chunk is recycled: both slots hold what looks like entry 2 of its former life.
        let slots = Arc::new(Slots {
            dir: AtomicU64::new(0),
            stamp: [AtomicU64::new(2), AtomicU64::new(2)],
            payload: [AtomicU64::new(77), AtomicU64::new(77)],
        });
        let writer = {
            let s = slots.clone();
            thread::spawn(move || {
                // enter_chunk: first stamp cleared, then the directory entry.
                s.stamp[0].store(0, Relaxed);
                s.dir.store(1, Release);
                for i in 0..2 {
                    s.payload[i].store(100 + i as u64, Relaxed);
                    if i + 1 < 2 {
                        s.stamp[i + 1].store(0, Relaxed);
                    }
                    s.stamp[i].store(1 + i as u64, Release);
                }
            })
        };
        if slots.dir.load(Acquire) == 1 {
            for i in 0..2 {
                match slots.stamp[i].load(Acquire) {
                    0 => break,
                    stamp => {
                        assert_eq!(stamp, 1 + i as u64, "an old stamp was seen");
                        assert_eq!(slots.payload[i].load(Relaxed), 100 + i as u64);
                    }
                }
            }
        }
        writer.join().unwrap();
    });
}

/// Wakes who may sleep, behind what it has to see.
fn ring(sleeping: &AtomicU32, doorbell: &AtomicU32) {
    fence(SeqCst);
    if sleeping.load(Relaxed) != 0 {
        doorbell.fetch_add(1, SeqCst);
    }
}

/// Before it looks once more; it sleeps only if the doorbell still has this value then.
fn arm(sleeping: &AtomicU32, doorbell: &AtomicU32) -> u32 {
    let seen = doorbell.load(SeqCst);
    sleeping.store(1, SeqCst);
    fence(SeqCst);
    seen
}

#[test]
fn a_sleeper_is_always_woken() {
    loom::model(|| {
        let stamp = Arc::new(AtomicU32::new(0));
        let sleeping = Arc::new(AtomicU32::new(0));
        let doorbell = Arc::new(AtomicU32::new(0));
        let sender = {
            let (stamp, sleeping, doorbell) = (stamp.clone(), sleeping.clone(), doorbell.clone());
            thread::spawn(move || {
                stamp.store(1, Release);
                ring(&sleeping, &doorbell);
            })
        };
        let seen = arm(&sleeping, &doorbell);
        let found = stamp.load(Acquire) == 1;
        sender.join().unwrap();
        let would_sleep_for_ever = !found && doorbell.load(SeqCst) == seen;
        assert!(!would_sleep_for_ever);
    });
}

/// `ledger::failures`: the bit of a lost rank, then how many there are, then the bell. Whoever sees
/// the number finds the bit, and whoever is about to sleep sees the number or is woken.
#[test]
fn a_lost_rank_is_heard_of() {
    loom::model(|| {
        let bits = Arc::new(AtomicU64::new(0));
        let count = Arc::new(AtomicU32::new(0));
        let sleeping = Arc::new(AtomicU32::new(0));
        let doorbell = Arc::new(AtomicU32::new(0));
        let daemon = {
            let (bits, count) = (bits.clone(), count.clone());
            let (sleeping, doorbell) = (sleeping.clone(), doorbell.clone());
            thread::spawn(move || {
                bits.fetch_or(4, SeqCst);
                count.fetch_add(1, SeqCst);
                ring(&sleeping, &doorbell);
            })
        };
        let seen = arm(&sleeping, &doorbell);
        let heard = count.load(Acquire) == 1;
        assert!(!heard || bits.load(Acquire) == 4, "the number grows behind the bits");
        daemon.join().unwrap();
        assert!(heard || doorbell.load(SeqCst) != seen, "it sleeps for ever");
    });
}

/// `channel::single_copy`: a sender that shows two messages one after the other from the same
/// memory and writes to it in between; a receiver of the first. Memory is two words; sound reads
/// are equal.
#[test]
fn what_counts_of_a_shown_message_is_the_message() {
    loom::model(|| {
        struct Channel {
            shown: AtomicU64,
            at: AtomicU64,
            memory: [AtomicU64; 2],
        }
        let channel = Arc::new(Channel {
            shown: AtomicU64::new(0),
            at: AtomicU64::new(0),
            memory: [AtomicU64::new(10), AtomicU64::new(20)],
        });
        let sender = {
            let c = channel.clone();
            thread::spawn(move || {
                c.at.store(0, Release);
                c.shown.store(1, Release);
                c.shown.store(0, Release);
                fence(SeqCst);
                // The send is complete: the program writes, then sends from elsewhere.
                c.memory[0].store(11, Relaxed);
                c.at.store(1, Release);
                c.shown.store(2, Release);
            })
        };
        if channel.shown.load(Acquire) == 1 {
            let at = channel.at.load(Acquire) as usize;
            let read = channel.memory[at].load(Relaxed);
            fence(SeqCst);
            if channel.shown.load(Acquire) == 1 {
                assert_eq!(read, 10, "not the message that was shown");
            }
        }
        sender.join().unwrap();
    });
}

/// `ledger::dirty`: one word of dirty bits, the summary over it, and the bell.
struct Bits {
    summary: AtomicU64,
    word: AtomicU64,
    bell: AtomicU32,
    asleep: AtomicU32,
    stamp: AtomicU64,
}

impl Bits {
    fn mark(&self) {
        self.stamp.store(1, Release);
        fence(SeqCst);
        if self.word.load(Relaxed) & 2 == 0 {
            self.word.fetch_or(2, SeqCst);
        }
        fence(SeqCst);
        if self.summary.load(Relaxed) & 1 == 0 {
            self.summary.fetch_or(1, SeqCst);
        }
        fence(SeqCst);
        if self.asleep.load(Relaxed) != 0 {
            self.bell.fetch_add(1, SeqCst);
        }
    }

    /// Whether the marked stream was found.
    fn take(&self) -> bool {
        if self.summary.load(Acquire) == 0 {
            return false;
        }
        self.summary.swap(0, SeqCst);
        fence(SeqCst);
        if self.word.load(Acquire) == 0 {
            return false;
        }
        let found = self.word.swap(0, SeqCst) & 2 != 0;
        fence(SeqCst);
        if found {
            assert_eq!(self.stamp.load(Acquire), 1, "marked before it was published");
        }
        found
    }
}

/// Two ranks mark streams of one word, one of them is killed between its bit and the summary; the
/// thread that sends takes what is marked, then goes to sleep. What was marked to the end is taken,
/// or wakes the thread.
#[test]
fn a_mark_is_taken_or_wakes_the_links() {
    loom::model(|| {
        let bits = Arc::new(Bits {
            summary: AtomicU64::new(0),
            word: AtomicU64::new(0),
            bell: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            stamp: AtomicU64::new(0),
        });
        let (one, two) = (bits.clone(), bits.clone());
        let killed = thread::spawn(move || one.word.fetch_or(1, SeqCst));
        let rank = thread::spawn(move || two.mark());
        let mut found = bits.take();
        // arm_links; sleep only if there is no news and the bell still has the value seen.
        let seen = bits.bell.load(SeqCst);
        bits.asleep.store(1, SeqCst);
        fence(SeqCst);
        if bits.summary.load(Acquire) != 0 {
            found |= bits.take();
        }
        killed.join().unwrap();
        rank.join().unwrap();
        let woken = bits.bell.load(SeqCst) != seen || bits.summary.load(Acquire) != 0;
        let left = bits.word.load(SeqCst) & 2 != 0;
        assert!(found || (woken && left), "a mark is lost");
    });
}

/// The bells of `ledger::dirty` while messages are sent as datagrams: news that may wait for a
/// tick, in the moment in which ticks end, and urgent news in the moment before a tick.
struct Ticks {
    summary: AtomicU64,
    ticks: AtomicU32,
    urgent: AtomicU32,
    bell: AtomicU32,
    asleep: AtomicU32,
}

impl Ticks {
    fn new() -> Arc<Ticks> {
        Arc::new(Ticks {
            summary: AtomicU64::new(0),
            ticks: AtomicU32::new(1),
            urgent: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
        })
    }

    fn mark(&self, urgent: bool) {
        self.summary.fetch_or(1, SeqCst);
        if urgent {
            self.urgent.store(1, Relaxed);
        }
        fence(SeqCst);
        if (urgent || self.ticks.load(Relaxed) == 0) && self.asleep.load(Relaxed) != 0 {
            self.bell.fetch_add(1, SeqCst);
        }
    }
}

#[test]
fn news_that_wait_for_a_tick_are_not_left_behind_by_the_last() {
    loom::model(|| {
        let t = Ticks::new();
        let rank = {
            let t = t.clone();
            thread::spawn(move || t.mark(false))
        };
        // arm_links, after the last tick.
        t.ticks.store(0, SeqCst);
        let seen = t.bell.load(SeqCst);
        t.asleep.store(1, SeqCst);
        fence(SeqCst);
        let found = t.summary.load(Acquire) != 0;
        rank.join().unwrap();
        assert!(found || t.bell.load(SeqCst) != seen, "it sleeps for long beside news");
    });
}

#[test]
fn urgent_news_do_not_wait_for_a_tick() {
    loom::model(|| {
        let t = Ticks::new();
        let rank = {
            let t = t.clone();
            thread::spawn(move || t.mark(true))
        };
        let found = t.summary.swap(0, SeqCst) != 0;
        // arm_links_for_a_tick
        let seen = t.bell.load(SeqCst);
        t.asleep.store(1, SeqCst);
        fence(SeqCst);
        let urgent = t.urgent.swap(0, SeqCst) != 0;
        rank.join().unwrap();
        assert!(found || urgent || t.bell.load(SeqCst) != seen, "it sleeps beside urgent news");
    });
}

/// `ledger::mirror`: a piece of two entries is written with the stamp of the first kept back, over
/// a slot that held old bytes; the reader takes none of it before all of it is there.
#[test]
fn a_piece_of_a_mirror_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let slots = Arc::new(Slots {
            dir: AtomicU64::new(1),
            stamp: [AtomicU64::new(0), AtomicU64::new(7)],
            payload: [AtomicU64::new(77), AtomicU64::new(77)],
        });
        let writer = {
            let s = slots.clone();
            thread::spawn(move || {
                s.stamp[1].store(2, Relaxed);
                s.payload[1].store(101, Relaxed);
                s.payload[0].store(100, Relaxed);
                s.stamp[0].store(1, Release);
            })
        };
        if slots.stamp[0].load(Acquire) == 1 {
            assert_eq!(slots.payload[0].load(Relaxed), 100);
            assert_eq!(slots.stamp[1].load(Acquire), 2, "an old stamp was seen");
            assert_eq!(slots.payload[1].load(Relaxed), 101);
        }
        writer.join().unwrap();
    });
}

/// What a rank gives to a direct connection (`DirectConnections::give`) is carried by the links if
/// they hear meanwhile of another process of the receiver (`Outbound::answer`, `OutLog::rewind`),
/// or taken back.
#[test]
fn what_goes_to_a_receiver_that_is_gone_is_carried() {
    loom::model(|| {
        const DOOR: u64 = 7;
        const END: u64 = 64;
        let (door, run) = (Arc::new(AtomicU64::new(DOOR)), Arc::new(AtomicU64::new(0)));
        let links = {
            let (door, run) = (door.clone(), run.clone());
            thread::spawn(move || {
                door.store(0, Release);
                fence(SeqCst);
                // Nothing before this is set aside.
                run.load(Acquire)
            })
        };
        run.store(END, Release);
        fence(SeqCst);
        let stands = door.load(Acquire) == DOOR;
        if !stands {
            run.store(0, Release);
        }
        let carried = links.join().unwrap();
        assert!(carried == END || run.load(Acquire) == 0, "it is set aside, and nobody brings it");
    });
}

/// `TurnLock`: the lock is given in the order of asking, by a store that one who sleeps is told of.
#[test]
fn who_asks_for_the_lock_gets_it() {
    loom::model(|| {
        let next = Arc::new(AtomicU32::new(0));
        let served = Arc::new(AtomicU32::new(0));
        // Raised where `pass_on` wakes: a sleeper that saw the old value goes on.
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::new(AtomicU64::new(0));
        let other = {
            let (next, served) = (next.clone(), served.clone());
            let (woken, count) = (woken.clone(), count.clone());
            thread::spawn(move || inside(&next, &served, &woken, &count))
        };
        inside(&next, &served, &woken, &count);
        other.join().unwrap();
        assert_eq!(count.load(Relaxed), 2);
    });
}

fn inside(next: &AtomicU32, served: &AtomicU32, woken: &AtomicU32, count: &AtomicU64) {
    let own = next.fetch_add(1, SeqCst);
    // All these accesses are of one order; loom has that for fences only.
    fence(SeqCst);
    if served.load(SeqCst) != own {
        // The futex sleeps only if the value is still that; who changes it later sees `next`.
        while woken.load(SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(served.load(SeqCst), own);
    }
    let seen = count.load(Relaxed);
    count.store(seen + 1, Relaxed);
    let after = served.load(Relaxed) + 1;
    served.store(after, SeqCst);
    fence(SeqCst);
    if next.load(SeqCst) != after {
        woken.store(1, SeqCst);
    }
}
