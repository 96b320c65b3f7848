//! What a controller with `--ha` says of its lead to nodes, and what it waits for before ranks of a
//! lost one start elsewhere (`protocol::led`).

use eyrie_protocol::led::Surety;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at a lead that may be lost.
const LOOK: Duration = Duration::from_secs(1);

/// Whether this controller leads for sure.
pub struct Vouch {
    begun: Instant,
    surety: Mutex<Surety>,
    /// Nothing is started elsewhere any more.
    over: AtomicBool,
}

impl Default for Vouch {
    fn default() -> Self {
        Vouch { begun: Instant::now(), surety: Mutex::default(), over: AtomicBool::new(false) }
    }
}

impl Vouch {
    fn surety(&self) -> MutexGuard<'_, Surety> {
        self.surety.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_millis() as u64
    }

    /// etcd, which was asked then, has renewed the lease that the leader's key goes with.
    pub fn confirmed(&self, asked: Instant) {
        self.surety().confirmed(self.ms(asked), self.ms(Instant::now()));
    }

    /// Nobody leads, or nobody did for a moment.
    pub fn lapsed(&self) {
        self.surety().lapsed();
    }

    pub fn holds(&self) -> bool {
        self.surety().holds(self.ms(Instant::now()))
    }

    /// The job ends without etcd: nothing is waited for because of that.
    pub fn forsake(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn left(&self, lost: Instant, span: Duration) -> Duration {
        if self.over.load(Ordering::Relaxed) {
            return span.saturating_sub(lost.elapsed());
        }
        let (lost, span) = (self.ms(lost), span.as_millis() as u64);
        Duration::from_millis(self.surety().left_ms(lost, span, self.ms(Instant::now())))
    }
}

/// How long a node may live that was lost at the beginning of this.
pub struct CutOff {
    span: Duration,
    begun: Instant,
    vouch: Option<Arc<Vouch>>,
}

impl CutOff {
    pub fn new(span: Duration, vouch: Option<Arc<Vouch>>) -> CutOff {
        CutOff { span, begun: Instant::now(), vouch }
    }

    pub fn left(&self) -> Duration {
        match &self.vouch {
            Some(vouch) => vouch.left(self.begun, self.span),
            None => self.span.saturating_sub(self.begun.elapsed()),
        }
    }

    /// Waits until it is over. The lead may be lost and taken again meanwhile.
    pub fn wait(&self) {
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}
