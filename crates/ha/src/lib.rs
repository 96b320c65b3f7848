//! A job's state in etcd (`--ha`): who leads it, its journal, and where its controller is. Keys in
//! `docs/formats/ha.md`.
//!
//! Kept true: one controller leads at a time: whatever is written compares the leader's key with
//! the writer's own token, so one that was deposed writes nothing any more. That key goes with a
//! lease; the number of the term stays, so who had the lease run out gets the lead back only if
//! nobody else had it.

#![allow(unsafe_code)] // ending this process

mod lease;
#[cfg(test)]
mod tests;
mod vouch;
mod watch;
mod writer;

pub use eyrie_control::ha::{Announced, News, Pointer};
pub use eyrie_etcd::Error as EtcdError;
pub use lease::{Health, keep};
pub use vouch::{CutOff, Vouch};
pub use watch::Watch;
pub use writer::Writer;

use eyrie_control::Ha;
use eyrie_etcd::{Client, Compare, Config, ConfigError, Error, Limits, Op, Tls};
use eyrie_protocol::election;
use eyrie_protocol::election::Claim;
use eyrie_protocol::election::JOURNAL;
use eyrie_protocol::election::JournalKeys;
use eyrie_protocol::election::LEADER;
use eyrie_protocol::election::TERM;
use eyrie_protocol::election::Txn;
use eyrie_protocol::election::WRITTEN;
use eyrie_protocol::timing::Lease;
use eyrie_state::random;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a node that has no controller waits for an endpoint.
const BRIEF: Limits = Limits { connect: Duration::from_millis(500), call: Duration::from_secs(1) };
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// How long it stays known in etcd that a job has ended.
const ENDED_SECS: i64 = 600;
/// Keys that are read at a time.
const PAGE: u32 = 8;

const CONTROLLER: &str = "controller";
const ENDED: &str = "ended";
const PRINTED: &str = "printed";
const INPUT: &str = "stdin/";

/// Why there is no state to be had from etcd.
#[derive(Debug, thiserror::Error)]
pub enum HaError {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("etcd: {0}")]
    Etcd(#[from] Error),
    #[error("thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error("{0}: there is a job already")]
    Taken(String),
    #[error("{0}: there is no such job (any more)")]
    NoJob(String),
    #[error("{0}: what is there does not fit together")]
    Broken(String),
    #[error("the job has ended with exit code {0}")]
    Ended(i32),
    /// Somebody else leads it.
    #[error("another controller has the job")]
    Held,
}

/// A job, as etcd knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub term: Option<u64>,
    pub leader: Option<String>,
    pub announced: Option<Announced>,
    /// With this exit code.
    pub ended: Option<i32>,
}

/// The keys of a job.
pub struct Place {
    client: Client,
    /// What they begin with.
    base: String,
    /// For people.
    pub name: String,
    endpoints: u32,
}

impl Place {
    /// # Errors
    /// When the certificates are none; etcd is not asked.
    pub fn new(ha: &Ha, job: &str) -> Result<Place, HaError> {
        Self::within(ha, job, Limits::default())
    }

    /// For a node: does not wait long.
    ///
    /// # Errors
    /// As `new`.
    pub fn brief(ha: &Ha, job: &str) -> Result<Place, HaError> {
        Self::within(ha, job, BRIEF)
    }

    fn within(ha: &Ha, job: &str, limits: Limits) -> Result<Place, HaError> {
        let tls = |t: &eyrie_control::ha::HaTls| Tls {
            authorities: t.authorities.clone(),
            own: t.own.clone(),
        };
        let config = Config { endpoints: ha.endpoints.clone(), tls: ha.tls.as_ref().map(tls) };
        let client = Client::new(&config, limits)?;
        let endpoints = ha.endpoints.len() as u32;
        Ok(Place { client, base: ha.of(job), name: format!("{ha}/{job}"), endpoints })
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Carries a transaction out, if what it asks for is so. Whether it was, and how things are
    /// if not.
    fn carry_out(&self, txn: &Txn, lease: i64) -> Result<(bool, election::Seen), Error> {
        let compare = |is: &election::Is| match &is.value {
            Some(value) => Compare::value(&self.key(is.key), value.as_str()),
            None => Compare::absent(&self.key(is.key)),
        };
        let if_so: Vec<Compare> = txn.if_so.iter().map(compare).collect();
        let steps: Vec<Op> = txn.then.iter().map(|op| self.step(op, lease)).collect();
        let ask = [TERM, LEADER, WRITTEN].map(|name| Op::get(&self.key(name)));
        let outcome = self.client.txn(&if_so, &steps, &ask)?;
        let text = |at: usize| {
            let value = &outcome.pages.get(at)?.kvs.first()?.value;
            String::from_utf8(value.clone()).ok()
        };
        let term = text(0).and_then(|t| t.parse().ok());
        let kept = outcome.pages.get(1).and_then(|page| page.kvs.first());
        let lease = kept.map(|kv| kv.lease);
        Ok((outcome.held, election::Seen { term, leader: text(1), lease, written: text(2) }))
    }

    fn step(&self, op: &election::Op, leader: i64) -> Op {
        match op {
            election::Op::Put { key, value, leased } => {
                let lease = if *leased { leader } else { 0 };
                Op::Put { key: self.key(key).into_bytes(), value: value.clone(), lease }
            }
            election::Op::Delete(key) => Op::Delete { key: self.key(key).into_bytes(), end: None },
            election::Op::DeleteAll(prefix) => Op::delete_all(&self.key(prefix)),
        }
    }

    /// How things are.
    ///
    /// # Errors
    /// When etcd does not say.
    pub fn look(&self) -> Result<Seen, Error> {
        let names = [TERM, LEADER, CONTROLLER, ENDED].map(|name| Op::get(&self.key(name)));
        let pages = self.client.txn(&[], &names, &[])?.pages;
        let text = |at: usize| {
            let value = &pages.get(at)?.kvs.first()?.value;
            String::from_utf8(value.clone()).ok()
        };
        Ok(Seen {
            term: text(0).and_then(|t| t.parse().ok()),
            leader: text(1),
            announced: text(2).and_then(|t| serde_json::from_str(&t).ok()),
            ended: text(3).and_then(|t| t.parse().ok()),
        })
    }

    /// The values of all keys that begin so, in order, with the rest of their names.
    fn all(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let first = self.key(prefix);
        let end = eyrie_etcd::after(first.as_bytes());
        let (mut from, mut all) = (first.clone().into_bytes(), Vec::new());
        loop {
            let page = self.client.range(&from, Some(&end), PAGE)?;
            let last = page.kvs.last().map(|kv| kv.key.clone());
            for kv in page.kvs {
                let name = kv.key.get(first.len()..).unwrap_or_default();
                all.push((String::from_utf8_lossy(name).into_owned(), kv.value));
            }
            let Some(last) = last.filter(|_| page.more) else { return Ok(all) };
            from = [last, vec![0]].concat();
        }
    }

    /// The bytes of the journal. To be read by the leader.
    ///
    /// # Errors
    /// When there is none, or etcd does not say.
    pub fn journal(&self) -> Result<Vec<u8>, HaError> {
        let current = self.client.get(&self.key(JOURNAL))?;
        let current = current.ok_or_else(|| HaError::NoJob(self.name.clone()))?;
        let current = String::from_utf8_lossy(&current).parse::<u64>();
        let current = current.map_err(|_| HaError::Broken(self.name.clone()))?;
        let mut bytes = Vec::new();
        for (due, (name, chunk)) in self.all(&JournalKeys::chunks(current))?.into_iter().enumerate()
        {
            if name != format!("{due:016x}") {
                return Err(HaError::Broken(self.name.clone()));
            }
            bytes.extend(chunk);
        }
        Ok(bytes)
    }

    /// Standard input, as far as it is there without a gap. To be read by the leader.
    ///
    /// # Errors
    /// When etcd does not say.
    pub fn input(&self) -> Result<Vec<u8>, HaError> {
        let mut bytes = Vec::new();
        for (name, piece) in self.all(INPUT)? {
            // Others are left of what was read and not written down, and read again since.
            if u64::from_str_radix(&name, 16).is_ok_and(|at| at == bytes.len() as u64) {
                bytes.extend(piece);
            }
        }
        Ok(bytes)
    }

    /// How much was printed, as far as that was known when something was written last.
    ///
    /// # Errors
    /// When etcd does not say.
    pub fn printed(&self) -> Result<Vec<u8>, HaError> {
        Ok(self.client.get(&self.key(PRINTED))?.unwrap_or_default())
    }
}

/// The lead of a job.
pub struct Lead {
    pub place: Arc<Place>,
    pub token: String,
    pub term: u64,
    lease: i64,
    /// How long it was asked for.
    length: Lease,
    /// It is known that the leader's key goes with that.
    sure: bool,
    /// Of the journal that is there.
    generation: u64,
}

/// In etcd's unit.
fn length_s(lease: &Lease) -> i64 {
    (lease.lease_ms / 1_000) as i64
}

fn token() -> String {
    let bytes = random::bytes::<16>().unwrap_or_else(|| {
        // Two controllers do not have number and moment in common.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unique =
            now.unwrap_or_default().as_nanos() as u64 ^ u64::from(std::process::id()) << 44;
        u128::from(unique).to_le_bytes()
    });
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Lead {
    /// That of a new job.
    ///
    /// # Errors
    /// When etcd is not there, or has a job of that name.
    pub fn found(ha: &Ha, job: &str, length: Lease) -> Result<Lead, HaError> {
        let place = Arc::new(Place::new(ha, job)?);
        if place.client.get(&place.key(JOURNAL))?.is_some() {
            return Err(HaError::Taken(place.name.clone()));
        }
        let claim = Claim { token: token(), term: 1 };
        let lease = place.client.grant(length_s(&length))?;
        let txn = claim.take(&election::Seen::default());
        let ask = || place.carry_out(&txn, lease);
        // Who does not hear the answer may have it already.
        let (sure, seen) = ask().or_else(|_| ask())?;
        if !sure && seen.leader.as_ref() != Some(&claim.token) {
            let _ = place.client.revoke(lease);
            return Err(HaError::Taken(place.name.clone()));
        }
        Ok(Lead { place, token: claim.token, term: 1, lease, length, sure, generation: 0 })
    }

    /// That of a job whose controller is gone: nobody leads it, or `last`, which is dead for sure.
    /// Tries again for so long if etcd does not answer, or that one's lease has not run out.
    ///
    /// # Errors
    /// When another one has it.
    pub fn succeed(
        place: Arc<Place>,
        last: Option<&str>,
        patience: Duration,
    ) -> Result<Lead, HaError> {
        let (end, token) = (Instant::now() + patience, token());
        let (mut lease, mut length) = (None, Lease::default());
        loop {
            match attempt(&place, last, &token, &mut length, &mut lease) {
                Err(HaError::Etcd(Error::Unreachable(why))) if Instant::now() < end => {
                    tracing::warn!("etcd: {why}");
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    let _ = lease.map(|lease| place.client.revoke(lease));
                    return Err(error);
                }
                Ok((term, sure, generation)) => {
                    let lease = lease.unwrap_or_default();
                    return Ok(Lead { place, token, term, lease, length, sure, generation });
                }
            }
        }
    }

    /// The job did not begin: nothing of it stays.
    pub fn remove(self) {
        let all = Op::delete_all(&format!("{}/", self.place.base));
        let leads = Compare::value(&self.place.key(LEADER), self.token.as_str());
        let _ = self.place.client.txn(&[leads], &[all], &[]);
        let _ = self.place.client.revoke(self.lease);
    }
}

/// Takes a lead over: its term, whether the leader's key goes with the lease for sure, and the
/// generation of the journal. To be tried again with the same token and lease, as it may have come
/// about though no answer was heard.
fn attempt(
    place: &Place,
    last: Option<&str>,
    token: &str,
    length: &mut Lease,
    lease: &mut Option<i64>,
) -> Result<(u64, bool, u64), HaError> {
    let seen = place.look()?;
    if let Some(code) = seen.ended {
        return Err(HaError::Ended(code));
    }
    let term = seen.term.ok_or_else(|| HaError::NoJob(place.name.clone()))?;
    let generation = || -> Result<u64, HaError> {
        let found = place.client.get(&place.key(JOURNAL))?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&found).parse().unwrap_or(0))
    };
    if seen.leader.as_deref() == Some(token) {
        return Ok((term, false, generation()?));
    }
    if seen.leader.is_some() && seen.leader.as_deref() != last {
        return Err(HaError::Held);
    }
    let kept =
        lease.map(|l| Ok::<_, Error>(place.client.keep_alive(l)?.then_some(l))).transpose()?;
    let held = match kept.flatten() {
        Some(lease) => lease,
        None => {
            let announced = seen.announced.as_ref().and_then(|a| a.lease_ms);
            length.lease_ms = announced.unwrap_or(Lease::DEFAULT.lease_ms);
            place.client.grant(length_s(length))?
        }
    };
    *lease = Some(held);
    let claim = Claim { token: token.to_string(), term: term + 1 };
    let seen = election::Seen { term: Some(term), leader: seen.leader, lease: None, written: None };
    let (sure, now) = place.carry_out(&claim.take(&seen), held)?;
    if !sure && now.leader.as_deref() != Some(token) {
        return Err(HaError::Held);
    }
    Ok((term + 1, sure, generation()?))
}
