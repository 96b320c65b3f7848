//! Processes of ours on their way to their programs.
//!
//! A new process has copies of all descriptors that its parent has in that moment, also of those
//! that another thread has borrowed, or holds for a process that it is making. `O_CLOEXEC` closes
//! them when the program is executed, which may be long after on a busy machine, and somewhat later
//! than who started it is told. Until then a pipe has a writer, a pseudo-terminal another end, and
//! a lock a holder, that nobody knows of.
//!
//! Kept true: as long as anything is held ([`hold`]) nobody begins to start a process, if all who
//! do so do it within [`while_starting`]; but for those of this crate, which are known to have
//! closed all else when they are done ([`Starting`]): before a process is let run whose descriptors
//! were held, these are waited for ([`settle`]). Each wait has a limit.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long it is waited. What takes longer is taken to hang, such as in a file system; what waits
/// must not do that as well.
const LIMIT: Duration = Duration::from_secs(10);

static STARTS: Starts = Starts::new();

#[derive(Debug, Default)]
struct State {
    /// How many starts of ours there were, and which of them are under way.
    count: u64,
    ours: BTreeSet<u64>,
    /// Starts of others under way.
    others: usize,
    /// Those who hold something, or want to.
    holders: usize,
}

#[derive(Debug)]
struct Starts {
    state: Mutex<State>,
    changed: Condvar,
}

/// A start under way, which is over when the process has closed all descriptors that are not its
/// own, or has ended.
pub(crate) struct Starting(u64);

/// Descriptors of others are held here.
pub(crate) struct Held(());

/// Starts a process, as [`std::process::Command::spawn`] does, in a moment in which no descriptors
/// of others are held here.
pub fn while_starting<T>(start: impl FnOnce() -> T) -> T {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            STARTS.change(|state| state.others -= 1);
        }
    }
    STARTS.begin_other(LIMIT);
    let _over = Over;
    start()
}

/// To be called before anything is held.
pub(crate) fn hold() -> Held {
    STARTS.hold(LIMIT);
    Held(())
}

/// To be called when all is closed that was held of a process, before that is let run.
pub(crate) fn settle() {
    STARTS.settle(LIMIT);
}

impl Drop for Held {
    fn drop(&mut self) {
        STARTS.change(|state| state.holders -= 1);
    }
}

impl Starting {
    /// To be called before the new process is made.
    pub fn begin() -> Starting {
        Starting(STARTS.begin())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        STARTS.change(|state| state.ours.remove(&self.0));
    }
}

impl Starts {
    const fn new() -> Starts {
        let state = State { count: 0, ours: BTreeSet::new(), others: 0, holders: 0 };
        Starts { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        limit: Duration,
        is_early: impl FnMut(&mut State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        let waited = self.changed.wait_timeout_while(state, limit, is_early);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, !timeout.timed_out())
    }

    /// Tells whether it was waited to the end, as the next two do.
    fn begin_other(&self, limit: Duration) -> bool {
        let (mut state, free) = self.wait(self.state(), limit, |state| state.holders > 0);
        state.others += 1;
        free
    }

    fn hold(&self, limit: Duration) -> bool {
        let mut state = self.state();
        state.holders += 1;
        self.wait(state, limit, |state| state.others > 0).1
    }

    /// Waits for those that are under way now; later ones find nothing to copy.
    fn settle(&self, limit: Duration) -> bool {
        let last = self.state().count;
        self.settle_up_to(last, limit)
    }

    fn settle_up_to(&self, last: u64, limit: Duration) -> bool {
        self.wait(self.state(), limit, |state| state.ours.range(..=last).next().is_some()).1
    }

    fn begin(&self) -> u64 {
        let mut state = self.state();
        state.count += 1;
        let number = state.count;
        state.ours.insert(number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn nobody_starts_while_something_is_held_and_the_other_way_round() {
        let starts = Starts::new();
        assert!(starts.hold(SHORT) && starts.hold(SHORT), "several may hold");
        assert!(!starts.begin_other(SHORT), "it is held");
        starts.change(|state| (state.others, state.holders) = (0, 0));
        assert!(starts.begin_other(SHORT) && starts.begin_other(SHORT), "several may start");
        assert!(!starts.hold(SHORT), "they are under way");
    }

    #[test]
    fn who_starts_is_waited_for_and_who_comes_later_is_not() {
        let starts = Starts::new();
        assert!(starts.settle(SHORT), "nobody starts");
        let first = starts.begin();
        assert!(!starts.settle(SHORT), "one is under way");
        let later = starts.begin();
        starts.change(|state| state.ours.remove(&first));
        assert!(starts.settle_up_to(first, SHORT), "the other one came later");
        assert!(!starts.settle(SHORT));
        starts.change(|state| state.ours.remove(&later));
        assert!(starts.settle(SHORT));
    }
}
