//! What a controller with `--ha` says of its lead to nodes, and what it waits for before ranks of a
//! lost one start elsewhere (`protocol::leader_lease`).

use eyrie_process::clock::Moment;
use eyrie_protocol::leader_lease::LeaderLease;
use eyrie_protocol::timing::Lease;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at a lead that may be lost.
const LOOK: Duration = Duration::from_secs(1);

/// Whether this controller leads for sure.
pub struct Vouch {
    begun: Moment,
    lease: Mutex<LeaderLease>,
    /// Nothing is started elsewhere any more.
    over: AtomicBool,
}

impl Vouch {
    pub fn new(lease: &Lease) -> Vouch {
        let lease = Mutex::new(LeaderLease::new(lease));
        Vouch { begun: Moment::now(), lease, over: AtomicBool::new(false) }
    }

    fn lease(&self) -> MutexGuard<'_, LeaderLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, which goes on while this machine sleeps: the lease does as well.
    pub fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// etcd, which was asked then, has renewed the lease that the leader's key goes with.
    pub fn confirmed(&self, asked_ms: u64) {
        self.lease().confirmed(asked_ms, self.now_ms());
    }

    /// Nobody leads, or nobody did for a moment.
    pub fn lapsed(&self) {
        self.lease().lapsed();
    }

    pub fn holds(&self) -> bool {
        self.lease().holds(self.now_ms())
    }

    /// The job ends without etcd: nothing is waited for because of that.
    pub fn forsake(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn left(&self, lost_ms: u64, span: Duration) -> Duration {
        let now_ms = self.now_ms();
        if self.over.load(Ordering::Relaxed) {
            return span.saturating_sub(Duration::from_millis(now_ms.saturating_sub(lost_ms)));
        }
        let span_ms = span.as_millis() as u64;
        Duration::from_millis(self.lease().left_ms(lost_ms, span_ms, now_ms))
    }
}

/// How long a node may live that was lost at the beginning of this.
pub struct CutOff {
    span: Duration,
    /// While this machine sleeps a node on it does as well.
    begun: Instant,
    /// And the time by that at the beginning.
    vouch: Option<(Arc<Vouch>, u64)>,
}

impl CutOff {
    pub fn new(span: Duration, vouch: Option<Arc<Vouch>>) -> CutOff {
        let begins = |vouch: Arc<Vouch>| {
            let lost_ms = vouch.now_ms();
            (vouch, lost_ms)
        };
        CutOff { span, begun: Instant::now(), vouch: vouch.map(begins) }
    }

    pub fn left(&self) -> Duration {
        match &self.vouch {
            Some((vouch, lost_ms)) => vouch.left(*lost_ms, self.span),
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
