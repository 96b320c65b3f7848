//! Several threads of the program that call MPI at the same time (MPI_THREAD_MULTIPLE).
//!
//! One thread is inside at a time: the ABI layer takes the lock (`TurnLock`) around each call, and
//! a thread that waits lets the others in (`let_others_in`). Of those that wait one looks for
//! messages, and sleeps on the rank's doorbell; the others sleep until something has moved.
//!
//! Kept true, where ranks may be repeated: the order in which threads make *steps* is recorded, and
//! dictated in a replay. A step is what others or the program can tell apart by its order: a call
//! begins or ends, a message or receive is begun, an outcome goes through the door. What is between
//! two steps of a thread (waiting, moving messages) has no order that anybody could see. A thread
//! whose step it is not waits for it as for a message. What threads do to each other outside of MPI
//! is the program's.
//!
//! A thread is found again in a replay by its key: that of the thread that made it, and how many
//! that one had made (`thread_begins`). One that was made past this library has a key by the order
//! of the first calls.

use std::time::Duration;

use eyrie_channel::turn_lock::{TurnLock, this_thread};
use eyrie_channel::waiting::{Round, yield_core};
use eyrie_ledger::divergence::Divergence;
use eyrie_ledger::door::Turn;

use crate::engine::Wake;
use crate::machine::Machine;
use crate::turns::{KEY, MAIN_KEY, NONE, NUMBER, STRANGER_KEY, Threads, mixed};
pub use crate::turns::{next_key, thread_begins, thread_is_made};

/// A rank that is run again alone, and has stood still for so long, is at its log's end.
const END_OF_LOG: Duration = Duration::from_secs(5);
/// A replay whose next step is that of a thread outside of MPI does not go on if the process has
/// stood still for so long: its threads wait for each other in another order than they did.
const STUCK: Duration = Duration::from_secs(60);
/// A step moves the rank's place in its course on by so much: a message that is begun in it goes
/// with the place between.
const STEP: u64 = 2;
/// A process whose threads have stood still for so long waits.
const WAITS: Duration = Duration::from_millis(400);

impl Machine {
    /// From now on threads call it at the same time, each of which holds the lock meanwhile. The
    /// calling one is the main thread.
    pub fn share(&mut self, lock: &'static TurnLock) {
        let recorded = self.endpoint.door.records();
        self.endpoint.share();
        self.threads = Threads { lock: Some(lock), recorded, known: 1, ..Threads::default() };
        NUMBER.set(0);
        KEY.set(MAIN_KEY);
    }

    // ---- waiting

    /// Runs `wait`, which touches nothing of the library, while others may be inside.
    #[inline(never)]
    pub(crate) fn let_others_in(&mut self, wait: impl FnOnce()) {
        self.tell_waiting();
        let Some(lock) = self.threads.lock else { return wait() };
        let waits = self.threads.known <= 1 || self.threads.quiet.look() >= WAITS;
        let depth = self.endpoint.step_aside(waits);
        let me = NUMBER.get();
        self.threads.waiting.push(me);
        // Others find the machine by what is lent here, so that nothing of it is taken to be as
        // before.
        self.lend(|| {
            let held = lock.give_way();
            wait();
            lock.take_back(held);
        });
        self.endpoint.step_back(depth);
        if let Some(at) = self.threads.waiting.iter().rposition(|n| *n == me) {
            self.threads.waiting.swap_remove(at);
        }
    }

    /// Wakes threads that may wait for what has moved.
    pub(crate) fn tell_waiting(&mut self) {
        let Some(lock) = self.threads.lock.filter(|_| self.threads.stirred) else { return };
        self.threads.stirred = false;
        lock.stir();
        if self.threads.asleep {
            self.endpoint.wake_own();
        }
    }

    /// As `wait_until`.
    #[cold]
    pub(crate) fn wait_among_threads(&mut self, done: &mut dyn FnMut(&mut Self) -> bool) -> Wake {
        let born = self.endpoint.incarnation();
        let me = this_thread();
        let mut idle = 0u32;
        let wake = loop {
            if done(self) {
                break Wake::Done;
            }
            if self.moves(idle, self.endpoint.naps(idle)) {
                idle = 0;
                continue;
            }
            if self.threads.poller == 0 || self.threads.poller == me {
                self.threads.poller = me;
                self.poll_round(idle, done);
            } else {
                self.await_stir();
            }
            // Another thread may have noticed it before this one.
            if self.endpoint.woke_restored() {
                self.rebuild();
            }
            if self.endpoint.incarnation() != born {
                break Wake::Restored;
            }
            idle = idle.saturating_add(1);
        };
        if self.threads.poller == me {
            // Another one that waits takes its place.
            self.threads.poller = 0;
            self.threads.stir();
        }
        wake
    }

    fn moves(&mut self, idle: u32, naps: u32) -> bool {
        let moved = self.progress() | self.serve() || self.heed_failures();
        let moved = moved || self.relieve(idle, naps);
        self.threads.note(moved)
    }

    /// One round of waiting of the thread that looks for messages.
    fn poll_round(&mut self, idle: u32, done: &mut dyn FnMut(&mut Self) -> bool) {
        let wanted = self.threads.lock.is_some_and(TurnLock::is_wanted) || self.threads.stirred;
        match self.endpoint.round(idle) {
            Round::Look | Round::Spin if wanted => self.let_others_in(|| ()),
            Round::Look | Round::Spin => self.endpoint.spin_once(),
            Round::Yield => self.let_others_in(yield_core),
            Round::Sleep => self.poll_asleep(idle, done),
        }
    }

    fn poll_asleep(&mut self, idle: u32, done: &mut dyn FnMut(&mut Self) -> bool) {
        let kept = self.keeps_far();
        let bed = self.endpoint.lie_down(idle, kept || self.engine.queued_total > 0);
        if !done(self) && !self.moves(idle, 1) {
            if self.endpoint.alone() && self.threads.quiet.look() >= END_OF_LOG {
                self.endpoint.end_of_log(&self.engine.awaited());
            }
            self.end_if_stuck();
            self.threads.asleep = true;
            self.let_others_in(|| bed.sleep());
            self.threads.asleep = false;
        }
        self.endpoint.disarm();
    }

    /// In a replay: whoever has the next step may never make it.
    fn end_if_stuck(&mut self) {
        let repeats = self.repeats_steps();
        let threads = &mut self.threads;
        let next = threads.current;
        if repeats
            && threads.recorded
            && !threads.waiting.contains(&next)
            && NUMBER.get() != next
            && threads.quiet.look() >= STUCK
        {
            let rank = self.endpoint.rank();
            let text = format!(
                "rank {rank}: threads wait for thread {next}, which waits for something outside of \
                 MPI: there they go on in another order than they did"
            );
            self.endpoint.diverged(&Divergence(text));
        }
    }

    /// Sleeps until another thread has moved something.
    fn await_stir(&mut self) {
        let Some(lock) = self.threads.lock else { return };
        let seen = lock.await_stir();
        self.let_others_in(|| lock.sleep(seen));
        lock.is_awake();
    }

    /// After a fruitless poll, so many in a row.
    #[cold]
    pub(crate) fn polled_among_threads(&mut self, fruitless: u32) {
        if self.threads.lock.is_some_and(TurnLock::is_wanted) {
            self.let_others_in(|| ());
        } else if self.endpoint.yields_when_polled(fruitless) {
            self.let_others_in(yield_core);
        }
        if self.endpoint.woke_restored() {
            self.rebuild();
        }
    }

    // ---- steps

    /// This thread makes a step, when it is its turn.
    #[inline]
    pub(crate) fn step(&mut self) {
        if self.threads.are_many() {
            self.step_in_turn();
        }
    }

    /// The same for what was begun in the turn that this thread has.
    #[inline]
    pub(crate) fn steps_made(&mut self, steps: bool) {
        if self.threads.recorded && steps {
            self.threads.done += 1;
            self.engine.place += STEP;
        }
    }

    /// A message is begun in the step that was just made. Where more than one thread may send, it
    /// does not leave before others know how far the rank has come.
    #[inline]
    pub(crate) fn message_in_turn(&mut self) {
        if self.threads.recorded && self.threads.may_be_several() && !self.is_serving() {
            self.endpoint.door.pass(self.engine.place - 1);
        }
    }

    /// Steps of this rank are known that it has not made again yet.
    fn repeats_steps(&self) -> bool {
        self.endpoint.replaying() || self.engine.place < self.endpoint.door.passed()
    }

    /// Whether this thread may make a step at once, without anything being recorded.
    #[inline]
    pub(crate) fn has_turn(&self) -> bool {
        !self.threads.recorded || !(self.threads.may_be_several() || self.repeats_steps())
    }

    #[inline(never)]
    fn step_in_turn(&mut self) {
        self.endpoint.arm();
        if !self.threads.recorded {
            if NUMBER.get() == NONE {
                NUMBER.set(self.threads.known);
                self.threads.known += 1;
            }
            return;
        }
        if self.is_serving() {
            return;
        }
        self.await_turn();
        let me = self.number();
        if me != self.threads.current {
            let number = self.threads.turn.wrapping_add(1) & Turn::NUMBERS;
            let turn = Turn { number, thread: me, before: self.threads.done };
            self.endpoint.door.record_turn(turn);
            self.begin_turn(turn);
        }
        self.threads.done += 1;
        self.engine.place += STEP;
    }

    /// In a replay: until this thread's next step is what comes next.
    #[inline]
    pub(crate) fn await_turn(&mut self) {
        if self.threads.recorded && self.repeats_steps() && !self.is_serving() {
            self.wait_for(|m| !m.repeats_steps() || m.is_own_turn());
        }
    }

    /// What is applied to windows has places of its own in the course of the rank.
    fn is_serving(&self) -> bool {
        self.engine.serving && self.threads.server == this_thread()
    }

    /// This thread applies operations of others from now on.
    pub(crate) fn serves_here(&mut self) {
        if self.threads.are_many() {
            self.threads.server = this_thread();
        }
    }

    fn is_own_turn(&mut self) -> bool {
        let Some(me) = self.known_number() else { return false };
        while let Some(next) = self.endpoint.door.next_turn() {
            if next.before > self.threads.done {
                break;
            }
            if next.before < self.threads.done {
                let (rank, had) = (self.endpoint.rank(), next.before);
                let text = format!(
                    "rank {rank}: thread {} went on after {had} steps of its turn, which were all \
                     that it had",
                    self.threads.current
                );
                self.endpoint.diverged(&Divergence(text));
            }
            self.endpoint.door.begin_turn();
            self.begin_turn(next);
        }
        self.threads.current == me
    }

    fn begin_turn(&mut self, turn: Turn) {
        self.threads.current = turn.thread;
        self.threads.turn = turn.number;
        self.threads.done = 0;
        self.threads.stir();
    }

    fn known_number(&mut self) -> Option<u32> {
        if NUMBER.get() != NONE {
            return Some(NUMBER.get());
        }
        if KEY.get() == 0 {
            self.threads.strangers += 1;
            KEY.set(mixed(STRANGER_KEY, self.threads.strangers));
        }
        let number = self.endpoint.door.thread_of(KEY.get())?;
        self.threads.known = self.threads.known.max(number + 1);
        NUMBER.set(number);
        Some(number)
    }

    /// The number of this thread, which makes a step now.
    fn number(&mut self) -> u32 {
        if let Some(number) = self.known_number() {
            return number;
        }
        let number = self.threads.known.max(self.endpoint.door.threads_named());
        self.threads.known = number + 1;
        NUMBER.set(number);
        self.endpoint.door.record_thread(number, KEY.get());
        number
    }

    /// After a restore: what the image has of it does not come again.
    pub(crate) fn rebuild_turns(&mut self) {
        let (turn, known) = (self.threads.turn, self.threads.known);
        self.endpoint.door.forget_turns_up_to(turn, known.max(1));
    }
}

#[cfg(test)]
#[path = "threads_tests.rs"]
mod tests;
