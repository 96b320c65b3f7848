//! Futexes in the job segment, and a thread that listens to its bell.
//!
//! Kept true: all futexes here are shared between processes; the thread ends with its `Bell`.

pub use eyrie_ledger::futex::{wait, wake};
use eyrie_ledger::segment::Segment;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Bumps a futex and wakes its waiters.
pub fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    wake(word);
}

/// Listens to the bell of a segment.
pub struct Bell {
    segment: Arc<Segment>,
    over: Arc<AtomicBool>,
}

impl Bell {
    /// Calls `heard` in a thread of its own after the bell rang. Several rings may be one call.
    pub fn listen(
        segment: Arc<Segment>,
        heard: impl Fn() + Send + 'static,
    ) -> std::io::Result<Bell> {
        let over = Arc::new(AtomicBool::new(false));
        let (seg, end) = (Arc::clone(&segment), Arc::clone(&over));
        std::thread::Builder::new().name("eyrie-bell".into()).spawn(move || {
            let bell = &seg.header().bell;
            let mut seen = bell.load(Ordering::Acquire);
            while !end.load(Ordering::Acquire) {
                wait(bell, seen, Duration::from_secs(3600));
                let now = bell.load(Ordering::Acquire);
                if now != seen {
                    seen = now;
                    heard();
                }
            }
        })?;
        Ok(Bell { segment, over })
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        ring(&self.segment.header().bell);
    }
}
