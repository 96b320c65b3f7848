//! The lease that a leader's key goes with, kept in a thread.
//!
//! Kept true: who was deposed hears of it, once; who only was cut off leads again. A controller
//! that stood still for longer than a lease is killed before it acts on what it finds then: the
//! next one goes on by what is written.

use super::{Lead, News, Place, Vouch, length_s};
use eyrie_etcd::Error;
use eyrie_protocol::election::{Claim, LeaderKey, Outcome};
use eyrie_protocol::timing::Lease;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a call may take, for each endpoint.
const CALL: Duration = Duration::from_secs(3);

/// Who tells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Lease,
    Writer,
}

/// How etcd is, as the threads see it.
pub struct Health {
    /// What the lease says of the lead.
    pub vouch: Arc<Vouch>,
    tell: Box<dyn Fn(News) + Send + Sync>,
    away: Mutex<[Option<String>; 2]>,
    over: AtomicBool,
    /// The writer found no leader.
    lapsed: AtomicBool,
    /// The job is over, and the writer hears what becomes of its keys.
    ending: AtomicBool,
}

impl Health {
    pub fn new(lead: &Lead, tell: impl Fn(News) + Send + Sync + 'static) -> Arc<Health> {
        let (tell, away) = (Box::new(tell), Mutex::default());
        let [over, lapsed, ending] = [(); 3].map(|()| AtomicBool::new(false));
        let vouch = Arc::new(Vouch::new(&lead.length));
        Arc::new(Health { vouch, tell, away, over, lapsed, ending })
    }

    /// Nobody listens any more: the threads end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The leader's key is not there, whatever is known of the lease.
    pub(super) fn lapsed(&self) {
        self.lapsed.store(true, Ordering::Relaxed);
    }

    /// From now on the lead may be gone as this controller gives it up.
    pub(super) fn ending(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(super) fn tell(&self, news: News) {
        if !self.is_over() {
            (self.tell)(news);
        }
    }

    /// Another controller leads.
    pub(super) fn depose(&self, why: String) {
        if !self.over.swap(true, Ordering::Relaxed) {
            (self.tell)(News::Deposed(why));
        }
    }

    /// It works, or why it does not.
    pub(super) fn report(&self, side: Side, why: Option<String>) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let before = away.iter().any(Option::is_some);
        let news = why.clone().map_or(News::Back, News::Away);
        away[side as usize] = why;
        if before != away.iter().any(Option::is_some) {
            self.tell(news);
        }
    }
}

/// Whether this controller stood still. From one look to the next there is no more than one call
/// and a pause, so that a slow etcd, which may take its time for each of several calls, is not
/// taken for that.
struct Stood {
    most: Duration,
    looked: Instant,
}

impl Stood {
    fn new(length: &Lease, endpoints: u32, now: Instant) -> Stood {
        let most = Duration::from_millis(length.lease_ms) + CALL * endpoints;
        Stood { most, looked: now }
    }

    /// Whether it did, since the last look.
    fn still(&mut self, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.looked, now);
        now.saturating_duration_since(before) > self.most
    }

    /// If so, this is its end.
    fn look(&mut self) {
        if self.still(Instant::now()) {
            tracing::error!("this controller stood still; another one goes on");
            // SAFETY: plain system call; it ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }
}

/// Keeps the lease until it is over.
pub fn keep(lead: &Lead, health: &Arc<Health>) -> io::Result<()> {
    let (place, health) = (Arc::clone(&lead.place), Arc::clone(health));
    let claim = Claim { token: lead.token.clone(), term: lead.term };
    let mut hold = LeaderKey::new(claim, lead.lease, lead.sure);
    let length = lead.length;
    let work = move || {
        let mut stood = Stood::new(&length, place.endpoints, Instant::now());
        while !health.is_over() {
            stood.look();
            if health.lapsed.swap(false, Ordering::Relaxed) {
                health.vouch.lapsed();
                hold.lapsed();
            }
            match look_after(&place, &length, &mut hold, &health.vouch, &mut stood) {
                Ok(Outcome::Done | Outcome::Lapsed) => health.report(Side::Lease, None),
                Ok(Outcome::Deposed) if health.ending.load(Ordering::Relaxed) => {}
                Ok(Outcome::Deposed) => health.depose(why(&place)),
                Err(error) => health.report(Side::Lease, Some(error.to_string())),
            }
            std::thread::sleep(Duration::from_millis(length.renewed_every_ms()));
        }
    };
    std::thread::Builder::new().name("eyrie-lease".into()).spawn(work)?;
    Ok(())
}

/// Has the lease go on; if it ran out, takes the lead again, if nobody had it since.
fn look_after(
    place: &Place,
    length: &Lease,
    hold: &mut LeaderKey,
    vouch: &Vouch,
    stood: &mut Stood,
) -> Result<Outcome, Error> {
    let asked_ms = vouch.now_ms();
    hold.kept(place.client.keep_alive(hold.lease())?);
    stood.look();
    if hold.is_over() {
        vouch.lapsed();
        hold.granted(place.client.grant(length_s(length))?);
        stood.look();
    }
    let Some(claim) = hold.to_claim() else {
        vouch.confirmed(asked_ms);
        return Ok(Outcome::Done);
    };
    let (held, seen) = place.carry_out(&claim, hold.lease())?;
    stood.look();
    if held {
        // Nobody led.
        vouch.lapsed();
    }
    let outcome = hold.claimed(held, &seen);
    if outcome == Outcome::Done {
        vouch.confirmed(asked_ms);
    }
    Ok(outcome)
}

/// Why somebody leads no more.
pub(super) fn why(place: &Place) -> String {
    match place.look() {
        Ok(seen) if seen.term.is_none() => {
            format!("its state in etcd was removed ({})", place.name)
        }
        Ok(seen) => {
            let term = seen.term.map(|r| format!("controller {r}"));
            let term = term.unwrap_or_else(|| String::from("another controller"));
            format!("{term} has the job now")
        }
        Err(_) => String::from("another controller has the job now"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_that_takes_its_time_for_each_call_is_no_standing_still() {
        let length = Lease::default();
        let [every, lease] =
            [length.renewed_every_ms(), length.lease_ms].map(Duration::from_millis);
        for endpoints in [1, 3] {
            let mut now = Instant::now();
            let mut stood = Stood::new(&length, endpoints, now);
            // Keepalive, grant and claim, each as slow as it may be, then the pause.
            for passed in [CALL * endpoints, CALL * endpoints, CALL * endpoints, every] {
                now += passed;
                assert!(!stood.still(now));
            }
            // A moment of all of that in which the process did not run for a lease.
            now += CALL * endpoints + every + lease;
            assert!(stood.still(now));
            assert!(!stood.still(now));
        }
    }
}
