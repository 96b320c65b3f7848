//! The store: who leads, by a lease, who has said where it is, and whether the node is lost.

use crate::timing::LEASE_MS;
use eyrie_protocol::leader_lease::StoreView;

#[derive(Debug, Clone, Copy)]
pub enum Ask {
    Look,
    /// This controller wants to lead.
    Take(usize),
    /// That of this term has its lease renewed, or takes the lead again.
    Keep(u64),
    /// It says where it is; it writes that the node is lost.
    Announce(u64),
    Lose(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Told(StoreView),
    /// The term, and whether the node is lost.
    Taken(u64, bool),
    Held,
    Done,
    /// The lead was nobody's, and is taken again.
    Again,
    /// Nobody leads.
    Lapsed,
    Deposed,
}

#[derive(Default)]
pub struct Store {
    pub term: u64,
    leads: bool,
    until: u64,
    announced: Option<u64>,
    lost: bool,
    /// Which controller had each term.
    whose: Vec<usize>,
}

impl Store {
    pub fn controller(&self, term: u64) -> Option<usize> {
        self.whose.get(term.checked_sub(1)? as usize).copied()
    }

    pub fn leader(&self) -> Option<u64> {
        self.leads.then_some(self.term)
    }

    pub fn expire(&mut self, now: u64) {
        self.leads &= now < self.until;
    }

    pub fn answer(&mut self, ask: Ask, now: u64) -> Answer {
        let term = match ask {
            Ask::Look => {
                let (leads, announced) = (self.leads, self.announced);
                return Answer::Told(StoreView { leads, term: Some(self.term), announced });
            }
            Ask::Take(_) if self.leads => return Answer::Held,
            Ask::Take(who) => {
                self.term += 1;
                self.whose.push(who);
                (self.leads, self.until) = (true, now + LEASE_MS);
                return Answer::Taken(self.term, self.lost);
            }
            Ask::Keep(term) | Ask::Announce(term) | Ask::Lose(term) => term,
        };
        if term != self.term {
            return Answer::Deposed;
        }
        match ask {
            Ask::Keep(_) => {
                self.until = now + LEASE_MS;
                return if std::mem::replace(&mut self.leads, true) {
                    Answer::Done
                } else {
                    Answer::Again
                };
            }
            _ if !self.leads => return Answer::Lapsed,
            Ask::Announce(_) => self.announced = Some(term),
            _ => self.lost = true,
        }
        Answer::Done
    }
}
