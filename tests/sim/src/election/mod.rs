//! Controllers of one job whose journal is in a store like etcd, around the real
//! `protocol::election`: is what a leader was told to be durable found by the next one, and nothing
//! else, and does the job come to its end?
//!
//! Modelled: the store with its leases, attempts that are lost, whose answers are lost, or that
//! arrive long after they were given up; controllers that die, stand still for longer than a lease,
//! wait for a vacancy, and come back; records that are appended, journals that are replaced.

mod controller;
mod store;
mod world;

pub use world::run;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Writes are repeated without a number.
    Unnumbered,
    /// A write does not ask who leads.
    Unled,
    /// Effects come when a record is given away to be written.
    EarlyEffects,
    /// The journal is read before the lead is taken.
    ReadBefore,
    /// A journal is replaced in its place.
    InPlace,
    /// Who has ended the job and did not hear it is deposed.
    EndForgotten,
}

impl Mistake {
    pub const ALL: [Mistake; 6] = [
        Mistake::Unnumbered,
        Mistake::Unled,
        Mistake::EarlyEffects,
        Mistake::ReadBefore,
        Mistake::InPlace,
        Mistake::EndForgotten,
    ];
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub records: u64,
    pub terms: u64,
    pub deposed: u64,
    pub deaths: u64,
    pub stood_still: u64,
    pub late: u64,
    pub lapses: u64,
    pub renewed: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.records += other.records;
        self.terms += other.terms;
        self.deposed += other.deposed;
        self.deaths += other.deaths;
        self.stood_still += other.stood_still;
        self.late += other.late;
        self.lapses += other.lapses;
        self.renewed += other.renewed;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { records, terms, deposed, deaths, stood_still, late, lapses, renewed } = self;
        write!(
            f,
            "{records} records, {terms} terms, {deposed} controllers deposed, {deaths} died, \
             {stood_still} stood still, {late} attempts came late, {lapses} leases ran out, \
             {renewed} journals replaced"
        )
    }
}

/// Of a controller: its number, and how often it was started.
type Who = (usize, u32);

/// What of a controller asks the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Looks who leads, takes the lead, reads the journal.
    Seeker,
    Lease,
    Writer,
}
