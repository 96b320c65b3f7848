//! Work on many equal pieces by a few threads, the calling one among them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most threads that work at once, whatever the machine has.
const MAX_THREADS: usize = 8;
/// So many more are of use where each waits for the storage in turn.
const READERS: usize = 4;

/// How many threads this machine runs at once, within reason.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// How many threads keep the processors busy although each also waits for the storage.
pub fn threads_that_wait() -> usize {
    threads() + 2
}

/// How many threads keep a storage busy that is read past the page cache while the processors are
/// busy with what was read: as many again wait then for a processor.
pub fn threads_that_read() -> usize {
    threads_that_wait() + READERS
}

/// Calls `work` for each of `0..count`, begun in this order by so many threads, each with a state
/// of its own from `make`. After a failure nothing more is begun; of several failures the one with
/// the lowest number is returned, which is the same whatever the threads' speed.
pub fn for_each<S, E: Send>(
    threads: usize,
    count: usize,
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<(usize, E)>> = Mutex::new(None);
    let one = || {
        let mut state = make();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            if let Err(error) = work(&mut state, i) {
                next.fetch_max(count, Ordering::Relaxed);
                let mut first = failure.lock().unwrap_or_else(|e| e.into_inner());
                if first.as_ref().is_none_or(|(at, _)| i < *at) {
                    *first = Some((i, error));
                }
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // Without the memory for a thread the others do its work.
            let _ = thread::Builder::new().name("eyrie-image".into()).spawn_scoped(scope, one);
        }
        one();
    });
    let failure = failure.into_inner().unwrap_or_else(|e| e.into_inner());
    failure.map_or(Ok(()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_once() {
        let done: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        let count = |_: &mut (), i: usize| {
            done[i].fetch_add(1, Ordering::Relaxed);
            Ok::<(), ()>(())
        };
        assert_eq!(for_each(4, 1000, || (), count), Ok(()));
        assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
        assert_eq!(for_each(4, 0, || (), |_, _| Err(())), Ok(()));
    }

    #[test]
    fn the_first_of_several_failures_is_told() {
        for _ in 0..50 {
            let fail = |_: &mut (), i: usize| if i >= 7 { Err(i) } else { Ok(()) };
            assert_eq!(for_each(4, 1000, || (), fail), Err(7));
        }
    }
}
