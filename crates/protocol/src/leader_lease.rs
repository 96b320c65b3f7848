//! Whether a node's controller still leads, where another one may follow it without its word
//! (`--ha`): who is cut off together with a controller that was followed must not go on with ranks
//! which the next one starts elsewhere.
//!
//! Pure: the caller says what time it is, and tells what the store answers. Kept true: ranks run
//! only as long as a sign is not too old that nobody had followed their controller yet; a node that
//! has lost its controller waits for another one only as long as none can have given it up for
//! good; ranks of a lost node start elsewhere when, by all that, its own stand or are dead, however
//! often the lead was lost and taken again meanwhile.

use crate::failure_detector::CLEARING_MS;
use crate::timing::{Grace, Lease};

/// So much longer than a leader counts as one that is not heard of, a node without a controller
/// waits for a sign that one may come.
const ANNOUNCING_MS: u64 = 3_000;

/// So often a lease is renewed before it runs out.
const RENEWALS: u64 = 5;

impl Lease {
    /// How often a leader renews it, and nodes ask who leads.
    pub const fn renewed_every_ms(&self) -> u64 {
        self.lease_ms / RENEWALS
    }

    /// How long a node without a controller waits for a sign that one may come.
    pub const fn disconnected_ms(&self) -> u64 {
        self.lease_ms + ANNOUNCING_MS
    }

    /// How much later than without a store nothing of a lost node runs any more: its ranks come to
    /// stand, and those of a node on which they do not are killed then.
    pub const fn unleased_ms(&self, grace: &Grace) -> u64 {
        self.disconnected_ms() + grace.stand_within_ms + CLEARING_MS
    }
}

/// In what a controller says that it grants: it may have been followed by now.
const UNSURE: u64 = 1 << 32;

/// A grant as it is said to a node, with the word whether the controller leads for sure.
pub fn say(grant_ms: u64, sure: bool) -> u64 {
    if sure { grant_ms } else { grant_ms | UNSURE }
}

/// The same as a node hears it.
pub fn hear(said: u64) -> (u64, bool) {
    (said & !UNSURE, said & UNSURE == 0)
}

/// What a controller knows of its own lead.
#[derive(Debug, Clone)]
pub struct LeaderLease {
    lease_ms: u64,
    /// Since when it leads without a gap, and until when for sure.
    since_ms: u64,
    until_ms: u64,
}

impl LeaderLease {
    /// It leads not yet.
    pub fn new(lease: &Lease) -> LeaderLease {
        LeaderLease { lease_ms: lease.lease_ms, since_ms: 0, until_ms: 0 }
    }

    /// The store has renewed the lease that the leader's key goes with; it was asked to at
    /// `asked_ms`.
    pub fn confirmed(&mut self, asked_ms: u64, now_ms: u64) {
        if asked_ms >= self.until_ms {
            // The lease may have run out in between, which nodes may have been told.
            self.since_ms = now_ms;
        }
        self.until_ms = self.until_ms.max(asked_ms + self.lease_ms);
    }

    /// Nobody leads, or nobody did for a moment.
    pub fn lapsed(&mut self) {
        self.until_ms = 0;
    }

    /// Whether nobody else can lead.
    pub fn holds(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }

    /// How long ranks of a node are still to wait that was lost then, and that has ended so long
    /// after it knows of nobody. Zero: they may start elsewhere, whatever becomes of the lead.
    pub fn left_ms(&self, lost_ms: u64, span_ms: u64, now_ms: u64) -> u64 {
        let since = if self.holds(now_ms) { self.since_ms } else { now_ms };
        (lost_ms.max(since) + span_ms).saturating_sub(now_ms)
    }
}

/// What the store says of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreView {
    /// Somebody leads now.
    pub leads: bool,
    /// The latest term. None: there is no such job any more.
    pub term: Option<u64>,
    /// The latest one that has said where it is.
    pub announced: Option<u64>,
}

/// What a node knows of its being led.
#[derive(Debug, Clone)]
pub struct LeaseWatch {
    lease: Lease,
    /// Of the controller that it is with, or was last; and the latest that it knows to be called.
    with: u64,
    latest: u64,
    /// Nobody had followed that one by then.
    sign_ms: u64,
    /// Without a controller: the last sign that one may come.
    hope_ms: Option<u64>,
    /// It has waited too long.
    lost: bool,
}

impl LeaseWatch {
    pub fn new(lease: Lease, now_ms: u64) -> LeaseWatch {
        LeaseWatch { lease, with: 0, latest: 0, sign_ms: now_ms, hope_ms: None, lost: false }
    }

    /// A controller takes this node. False: it was followed, or comes too late.
    pub fn met(&mut self, term: u64, now_ms: u64) -> bool {
        if term < self.latest || self.is_lost(now_ms) {
            return false;
        }
        (self.with, self.latest, self.hope_ms) = (term, term, None);
        true
    }

    /// The controller had heard what this node said then; and was sure to lead when it said so.
    pub fn beaten(&mut self, stamp_ms: u64, sure: bool) {
        if sure {
            self.sign_ms = self.sign_ms.max(stamp_ms);
        }
    }

    /// The connection to the controller is over, which had heard what this node said then; so
    /// long a silence was borne. That it is over may have been known late.
    pub fn parted(&mut self, heard_ms: u64, bears_ms: u64, now_ms: u64) {
        self.hope_ms.get_or_insert(now_ms.min(heard_ms + bears_ms));
    }

    /// What the store answers to a question of then. Whether a controller says anew where it is.
    pub fn answered(&mut self, asked_ms: u64, told: StoreView, now_ms: u64) -> bool {
        if self.is_lost(now_ms) {
            return false;
        }
        if told.term == Some(self.with) {
            self.sign_ms = self.sign_ms.max(asked_ms);
        }
        // Whoever leads after a vacancy waits before it starts ranks elsewhere; one that leads and
        // has not said where it is yet has written nothing.
        let vacant = !told.leads && told.term.is_some();
        let unknown = told.term > Some(self.with).max(told.announced);
        if let Some(hope) = self.hope_ms.as_mut().filter(|_| unknown || vacant) {
            *hope = asked_ms.max(*hope);
        }
        let anew = told.announced.is_some_and(|term| term > self.latest);
        self.latest = self.latest.max(told.announced.unwrap_or(0));
        anew
    }

    /// Another controller leads than the one that this node is with.
    pub fn is_deposed(&self) -> bool {
        self.with < self.latest
    }

    /// The latest controller that this node knows to be called.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// How long this node may still look for a controller.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        let waits_ms = self.lease.disconnected_ms();
        match self.hope_ms {
            _ if self.lost => 0,
            Some(hope) => (hope + waits_ms).saturating_sub(now_ms),
            None => waits_ms,
        }
    }

    /// Whether it has looked for too long: it ends, whatever comes.
    pub fn is_lost(&mut self, now_ms: u64) -> bool {
        self.lost |= self.left_ms(now_ms) == 0;
        self.lost
    }

    /// Whether ranks are to stand: their controller may have been followed, and they may run
    /// elsewhere soon.
    pub fn stands(&mut self, now_ms: u64) -> bool {
        self.is_lost(now_ms) || now_ms >= self.sign_ms + self.lease.stand_after_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L: Lease = Lease::DEFAULT;
    const LEASE_MS: u64 = L.lease_ms;
    const BEARS_MS: u64 = L.stand_after_ms;
    const DISCONNECTED_MS: u64 = L.disconnected_ms();

    fn told(leads: bool, term: u64, announced: u64) -> StoreView {
        StoreView { leads, term: Some(term), announced: Some(announced) }
    }

    fn led(now_ms: u64) -> LeaseWatch {
        let mut led = LeaseWatch::new(L, now_ms);
        assert!(led.met(1, now_ms));
        led
    }

    #[test]
    fn a_grant_bears_the_word_whether_the_controller_leads() {
        assert_eq!(hear(say(2_500, true)), (2_500, true));
        assert_eq!(hear(say(2_500, false)), (2_500, false));
    }

    #[test]
    fn ranks_run_as_long_as_nobody_can_have_followed() {
        let mut led = led(0);
        led.beaten(4_000, true);
        led.beaten(9_000, false);
        assert!(!led.stands(4_000 + BEARS_MS - 1) && led.stands(4_000 + BEARS_MS));
        // The store says so, too; of another term it says nothing that helps.
        assert!(!led.answered(40_000, told(false, 2, 1), 40_001));
        assert!(led.stands(40_001));
        led.answered(50_000, told(true, 1, 1), 50_001);
        assert!(!led.stands(50_001) && !led.is_deposed());
    }

    #[test]
    fn who_has_lost_its_controller_waits_as_long_as_none_can_have_given_it_up() {
        let mut one = led(0);
        one.parted(900, 2_500, 1_000);
        // It leads, and does not take this node.
        one.answered(3_000, told(true, 1, 1), 3_001);
        assert_eq!(one.left_ms(3_001), DISCONNECTED_MS - 2_001);
        one.answered(5_000, told(false, 1, 1), 5_001);
        one.answered(9_000, told(true, 2, 1), 9_001);
        assert_eq!(one.left_ms(9_001), DISCONNECTED_MS - 1);
        assert!(one.answered(9_500, told(true, 2, 2), 9_501) && one.is_deposed());
        assert!(!one.answered(9_600, told(true, 2, 2), 9_601));
        assert!(!one.met(1, 9_700), "it was followed");
        let mut other = one.clone();
        assert!(one.met(2, 9_700) && !one.is_deposed());
        assert_eq!(one.left_ms(99_000), DISCONNECTED_MS);
        assert!(other.stands(9_000 + DISCONNECTED_MS) && !other.met(2, 9_700));
        assert!(!other.answered(20_000, told(true, 3, 2), 20_001) && other.is_lost(20_001));
    }

    #[test]
    fn who_hears_late_that_it_has_no_controller_has_less_time() {
        let mut led = led(0);
        led.parted(1_000, 2_500, 9_000);
        assert_eq!(led.left_ms(9_000), 1_000 + 2_500 + DISCONNECTED_MS - 9_000);
    }

    #[test]
    fn nobody_waits_for_a_controller_of_a_job_that_is_over() {
        let mut led = led(0);
        led.parted(900, 2_500, 1_000);
        led.answered(2_000, StoreView::default(), 2_001);
        assert!(!led.is_lost(1_000 + DISCONNECTED_MS - 1) && led.is_lost(1_000 + DISCONNECTED_MS));
    }

    #[test]
    fn what_a_leader_is_sure_of_counts_from_its_question_and_without_a_gap() {
        let mut leader_lease = LeaderLease::new(&L);
        assert!(!leader_lease.holds(0));
        assert_eq!(leader_lease.left_ms(0, 7_000, 10_000), 7_000, "it does not lead");
        leader_lease.confirmed(100, 1_100);
        assert!(leader_lease.holds(100 + LEASE_MS - 1) && !leader_lease.holds(100 + LEASE_MS));
        leader_lease.confirmed(5_000, 5_050);
        assert_eq!(leader_lease.left_ms(2_000, 7_000, 6_000), 3_000);
        leader_lease.confirmed(9_000, 9_100);
        assert_eq!(leader_lease.left_ms(2_000, 7_000, 9_100), 0);
        // Nobody may have led for a moment.
        leader_lease.lapsed();
        leader_lease.confirmed(12_000, 14_200);
        assert_eq!(leader_lease.left_ms(2_000, 7_000, 14_200), 7_000);
    }
}
