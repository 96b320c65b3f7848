//! The lease that a leader's key goes with, kept in a thread.
//!
//! Kept true: who was deposed hears of it, once; who only was cut off leads again. A controller
//! that stood still for longer than a lease is killed before it acts on what it finds then: the
//! next one goes on by what is written.

use super::{LEADER, LEASE_SECS, Lead, Place, REIGN};
use eyrie_etcd::{Compare, Error, Op, Outcome};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
/// What a call may take, for each endpoint.
const CALL: Duration = Duration::from_secs(3);

/// What the threads tell the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// All up to this number is durable.
    Committed(u64),
    /// Nothing becomes durable at the time.
    Away(String),
    Back,
    /// Another controller has the job.
    Deposed(String),
}

/// Who tells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Lease,
    Writer,
}

/// How etcd is, as the threads see it.
pub struct Health {
    tell: Box<dyn Fn(News) + Send + Sync>,
    away: Mutex<[Option<String>; 2]>,
    over: AtomicBool,
}

impl Health {
    pub fn new(tell: impl Fn(News) + Send + Sync + 'static) -> Arc<Health> {
        let (tell, away) = (Box::new(tell), Mutex::default());
        Arc::new(Health { tell, away, over: AtomicBool::new(false) })
    }

    /// Nobody listens any more: the threads end.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
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

/// Keeps the lease until it is over.
pub fn keep(lead: &Lead, health: &Arc<Health>) -> io::Result<()> {
    let (place, token, reign) = (Arc::clone(&lead.place), lead.token.clone(), lead.reign);
    let (mut lease, health) = (lead.lease, Arc::clone(health));
    let most = Duration::from_secs(LEASE_SECS as u64) + CALL * place.endpoints;
    let work = move || {
        let mut begun = Instant::now();
        while !health.is_over() {
            if begun.elapsed() > most {
                tracing::error!("this controller stood still; another one goes on");
                // SAFETY: plain system call; it ends this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            begun = Instant::now();
            match place.client.keep_alive(lease) {
                Ok(true) => health.report(Side::Lease, None),
                Ok(false) => match again(&place, &token, reign) {
                    Ok(Some(other)) => {
                        lease = other;
                        health.report(Side::Lease, None);
                    }
                    Ok(None) => health.depose(why(&place)),
                    Err(error) => health.report(Side::Lease, Some(error.to_string())),
                },
                Err(error) => health.report(Side::Lease, Some(error.to_string())),
            }
            std::thread::sleep(EVERY);
        }
    };
    std::thread::Builder::new().name("eyrie-lease".into()).spawn(work)?;
    Ok(())
}

/// The lease ran out: takes the lead again, if nobody had it since.
fn again(place: &Place, token: &str, reign: u64) -> Result<Option<i64>, Error> {
    let lease = place.client.grant(LEASE_SECS)?;
    let (key, value) = (place.key(LEADER).into_bytes(), token.as_bytes().to_vec());
    let lead = || Op::Put { key: key.clone(), value: value.clone(), lease };
    let unchanged = || Compare::value(&place.key(REIGN), reign.to_string());
    let vacant = [Compare::absent(&place.key(LEADER)), unchanged()];
    let mine = [place.leads(token), unchanged()];
    // It may be there: with a lease that is over in a moment, or of an answer that was not heard.
    let won = |o: Outcome| o.held;
    let won = place.client.txn(&vacant, &[lead()], &[]).map(won)?
        || place.client.txn(&mine, &[lead()], &[]).map(won)?;
    Ok(won.then_some(lease))
}

/// Why somebody leads no more.
pub(super) fn why(place: &Place) -> String {
    match place.look() {
        Ok(seen) if seen.reign.is_none() => {
            format!("its state in etcd was removed ({})", place.name)
        }
        Ok(seen) => {
            let reign = seen.reign.map(|r| format!("controller {r}"));
            let reign = reign.unwrap_or_else(|| String::from("another controller"));
            format!("{reign} has the job now")
        }
        Err(_) => String::from("another controller has the job now"),
    }
}
