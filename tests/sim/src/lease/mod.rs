//! Controllers of one job, a store like etcd, and a node, each two of which may be cut off from
//! each other, around the real `protocol::leader_lease` and `protocol::failure_detector`: do ranks
//! of a node run while they are started elsewhere, by whatever controller?
//!
//! Modelled: the store with the leader's lease, what is announced there, and whether the node's
//! loss is written; questions and writes that are lost, whose answers are lost, or that arrive long
//! after they were given up; controllers that stand still or die, and followers that wait for a
//! vacancy; beats, calls and greetings that take their time; ranks that come to stand slowly, or
//! never and are killed.

mod controller;
mod node;
mod store;
mod world;

pub use world::run;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A node goes on as long as its controller does.
    NeverStands,
    /// A controller says that it leads whether its lease may have run out or not.
    SureAlways,
    /// That another controller has come is waited for once more when it says where it is.
    NewIsHope,
    /// The time of a node that looks for a controller is looked at between two calls only.
    LooksBetween,
    /// A leader forgets that nobody led for a moment.
    GapForgotten,
    /// It starts ranks of a lost node elsewhere when that would have ended without a store.
    HastyStart,
    /// A new controller does not wait for nodes.
    HastyLoss,
    /// When the connection ends, a node's time begins anew.
    CountedAnew,
}

impl Mistake {
    pub const ALL: [Mistake; 8] = [
        Mistake::NeverStands,
        Mistake::SureAlways,
        Mistake::NewIsHope,
        Mistake::LooksBetween,
        Mistake::GapForgotten,
        Mistake::HastyStart,
        Mistake::HastyLoss,
        Mistake::CountedAnew,
    ];
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub terms: u64,
    pub retaken: u64,
    pub cuts: u64,
    pub deaths: u64,
    pub stood: u64,
    pub went_on: u64,
    pub ended: u64,
    pub elsewhere: u64,
    pub followed: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.terms += other.terms;
        self.retaken += other.retaken;
        self.cuts += other.cuts;
        self.deaths += other.deaths;
        self.stood += other.stood;
        self.went_on += other.went_on;
        self.ended += other.ended;
        self.elsewhere += other.elsewhere;
        self.followed += other.followed;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { terms, retaken, cuts, deaths, .. } = self;
        let Report { stood, went_on, ended, elsewhere, followed, .. } = self;
        write!(
            f,
            "{terms} terms, {retaken} taken again, {cuts} cuts, {deaths} controllers died, \
             {stood} times ranks stood, {went_on} times they went on, {followed} times a node \
             followed a controller, {ended} nodes ended, {elsewhere} had their ranks started \
             elsewhere"
        )
    }
}

/// Where something is; controllers come first.
type Site = usize;
const CONTROLLERS: usize = 3;
const STORE: Site = 3;
const NODE: Site = 4;
const SITES: usize = 5;
