//! The store: keys with values, some of which go with leases.

use eyrie_protocol::election::{JOURNAL, JournalKeys, LEADER, Op, Seen, TERM, Txn, WRITTEN};
use std::collections::BTreeMap;

/// A leader's lease.
pub use crate::timing::LEASE_MS;

#[derive(Debug, Clone)]
pub enum Ask {
    Look,
    Grant,
    Keep(i64),
    /// With this lease.
    Txn(Txn, i64),
    Read,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Seen(Seen, bool),
    Granted(i64),
    Kept(bool),
    Held(bool, Seen),
    /// The generation of the journal, and its bytes. None: there are gaps, or no journal.
    Read(Option<(u64, String)>),
}

#[derive(Default)]
pub struct Store {
    keys: BTreeMap<String, (String, Option<i64>)>,
    /// Until when each goes.
    leases: BTreeMap<i64, u64>,
    granted: i64,
}

impl Store {
    pub fn get(&self, key: &str) -> Option<String> {
        self.keys.get(key).map(|(value, _)| value.clone())
    }

    pub fn seen(&self) -> Seen {
        let term = self.get(TERM).and_then(|r| r.parse().ok());
        let lease = self.keys.get(LEADER).and_then(|(_, lease)| *lease);
        Seen { term, leader: self.get(LEADER), lease, written: self.get(WRITTEN) }
    }

    pub fn is_ended(&self) -> bool {
        self.keys.contains_key("ended")
    }

    /// Leases that are over go, and what goes with them.
    pub fn expire(&mut self, now: u64) -> usize {
        let before = self.keys.len();
        self.leases.retain(|_, until| now < *until);
        let leases = &self.leases;
        self.keys.retain(|_, (_, lease)| lease.is_none_or(|l| leases.contains_key(&l)));
        before - self.keys.len()
    }

    pub fn answer(&mut self, ask: Ask, now: u64) -> Option<Answer> {
        Some(match ask {
            Ask::Look => Answer::Seen(self.seen(), self.is_ended()),
            Ask::Grant => {
                self.granted += 1;
                self.leases.insert(self.granted, now + LEASE_MS);
                Answer::Granted(self.granted)
            }
            Ask::Keep(lease) => {
                let until = self.leases.get_mut(&lease);
                Answer::Kept(until.map(|until| *until = now + LEASE_MS).is_some())
            }
            Ask::Txn(txn, lease) => {
                let held = txn.if_so.iter().all(|is| self.get(is.key) == is.value);
                if held {
                    self.carry_out(txn.then, lease)?;
                }
                Answer::Held(held, self.seen())
            }
            Ask::Read => Answer::Read(self.read()),
        })
    }

    /// None: the lease is over, which is an error.
    fn carry_out(&mut self, steps: Vec<Op>, lease: i64) -> Option<()> {
        let leased = |op: &Op| matches!(op, Op::Put { leased: true, .. });
        if steps.iter().any(leased) && !self.leases.contains_key(&lease) {
            return None;
        }
        for step in steps {
            match step {
                Op::Put { key, value, leased } => {
                    let value = String::from_utf8_lossy(&value).into_owned();
                    self.keys.insert(key, (value, leased.then_some(lease)));
                }
                Op::Delete(key) => drop(self.keys.remove(&key)),
                Op::DeleteAll(prefix) => self.keys.retain(|key, _| !key.starts_with(&prefix)),
            }
        }
        Some(())
    }

    fn read(&self) -> Option<(u64, String)> {
        let generation = self.get(JOURNAL)?.parse().ok()?;
        let prefix = JournalKeys::chunks(generation);
        let chunks = self.keys.iter().filter(|(key, _)| key.starts_with(&prefix));
        let mut bytes = String::new();
        for (due, (key, (value, _))) in chunks.enumerate() {
            if *key != format!("{prefix}{due:016x}") {
                return None;
            }
            bytes.push_str(value);
        }
        Some((generation, bytes))
    }
}
