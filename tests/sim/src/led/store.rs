//! The store: who leads, by a lease, who has said where it is, and whether the node is lost.

use eyrie_protocol::led::{LEASE_MS, Told};

#[derive(Debug, Clone, Copy)]
pub enum Ask {
    Look,
    /// This controller wants to lead.
    Take(usize),
    /// That of this reign has its lease renewed, or takes the lead again.
    Keep(u64),
    /// It says where it is; it writes that the node is lost.
    Announce(u64),
    Lose(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Told(Told),
    /// The reign, and whether the node is lost.
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
    pub reign: u64,
    leads: bool,
    until: u64,
    announced: Option<u64>,
    lost: bool,
    /// Which controller had each reign.
    whose: Vec<usize>,
}

impl Store {
    pub fn controller(&self, reign: u64) -> Option<usize> {
        self.whose.get(reign.checked_sub(1)? as usize).copied()
    }

    pub fn leader(&self) -> Option<u64> {
        self.leads.then_some(self.reign)
    }

    pub fn expire(&mut self, now: u64) {
        self.leads &= now < self.until;
    }

    pub fn answer(&mut self, ask: Ask, now: u64) -> Answer {
        let reign = match ask {
            Ask::Look => {
                let (leads, announced) = (self.leads, self.announced);
                return Answer::Told(Told { leads, reign: Some(self.reign), announced });
            }
            Ask::Take(_) if self.leads => return Answer::Held,
            Ask::Take(who) => {
                self.reign += 1;
                self.whose.push(who);
                (self.leads, self.until) = (true, now + LEASE_MS);
                return Answer::Taken(self.reign, self.lost);
            }
            Ask::Keep(reign) | Ask::Announce(reign) | Ask::Lose(reign) => reign,
        };
        if reign != self.reign {
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
            Ask::Announce(_) => self.announced = Some(reign),
            _ => self.lost = true,
        }
        Answer::Done
    }
}
