//! Ranks that are lost and not brought back, and communicators that are revoked (`--on-failure
//! report`): what this rank knows of them, and what that means for its operations.
//!
//! Kept true: nothing is looked at in the way of a message. The node's word for lost ranks is read
//! where a call would wait, or polls in vain; from then on the communicators concerned know it
//! (`Health`), and operations look there. What could not complete any more is given up at that
//! moment (`requests`): so a call that waits for it returns, and nothing of it stays behind. A
//! collective operation needs all members: it fails on each as soon as one of them is lost, whoever
//! a rank waits for. What ranks tell each other besides (`letters`) has a context of its own.

mod agree;
mod calls;
mod letters;
mod reach;
mod requests;

pub(crate) use reach::HINTS as REACH_HINTS;
use reach::{RANGE, Range, UNIFORM, Uniform};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::comm::Comm;
use crate::error::{Res, class};
use crate::machine::Machine;

/// In each of so many calls (a power of two) who only sends looks whether somebody is lost.
const HEEDED_CALLS: u64 = 16;

/// What is known of failures among the members of a communicator.
#[derive(Default)]
pub(crate) struct Health {
    /// Any of what follows: operations look closer.
    troubled: Cell<bool>,
    revoked: Cell<bool>,
    /// Members that are lost, as world ranks, in the order in which this rank learned of them.
    lost: RefCell<Vec<u32>>,
    /// So many of the first ones are acknowledged.
    acked: Cell<usize>,
    /// Number of the next agreement.
    agreements: Cell<u32>,
    /// Its members have nothing in common: an operation fails by whom it is with, and by no other.
    apart: Cell<bool>,
    /// How far a loss is told by it, and whose errors are the same on all (`reach`).
    range: Cell<Range>,
    uniform: Cell<Uniform>,
}

/// What this rank knows.
pub(crate) struct Failures {
    /// Lost ranks are reported to it.
    reports: bool,
    /// In which letters are sent: nobody can revoke it.
    post: Rc<Comm>,
    /// How many it has taken notice of, and which those are, by world rank.
    seen: u32,
    failed: Vec<bool>,
    /// A message of the kind that only the library sends is there.
    pub(crate) mail: bool,
    /// By context: communicators that are revoked, also such as are not known here yet.
    revoked: BTreeMap<u32, letters::Revoked>,
    /// Contexts in which nothing is received any more.
    closed: BTreeSet<u32>,
    /// What others have said of communicators that are not known here yet.
    early: Vec<(u32, Vec<u64>)>,
    /// By context and number.
    agreements: BTreeMap<agree::Key, agree::Instance>,
    /// By rank: how many of its programs are in `MPI_Finalize`, or were. A place has several.
    finishing: Vec<u64>,
    /// Ranks with which this one has had a communicator: they may need what it knows.
    met: Vec<bool>,
}

impl Failures {
    pub(crate) fn new(ranks: u32, reports: bool, post: Rc<Comm>) -> Failures {
        Failures {
            reports,
            post,
            seen: 0,
            failed: vec![false; ranks as usize],
            mail: false,
            revoked: BTreeMap::new(),
            closed: BTreeSet::new(),
            early: Vec::new(),
            agreements: BTreeMap::new(),
            finishing: vec![0; ranks as usize],
            met: vec![false; ranks as usize],
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self, ctx: u32) -> bool {
        !self.closed.is_empty() && self.closed.contains(&ctx)
    }

    #[inline]
    fn is_lost(&self, rank: u32) -> bool {
        self.failed[rank as usize]
    }
}

impl Comm {
    /// Whether an operation on it has to look closer.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        self.health.troubled.get()
    }

    /// It is not revoked.
    pub(crate) fn usable(&self) -> Res<()> {
        if self.health.revoked.get() { Err(class::REVOKED) } else { Ok(()) }
    }

    /// All its members can take part in an operation.
    #[inline]
    pub(crate) fn whole(&self) -> Res<()> {
        if self.is_troubled() { self.whole_looked_at() } else { Ok(()) }
    }

    #[cold]
    fn whole_looked_at(&self) -> Res<()> {
        self.usable()?;
        if self.health.lost.borrow().is_empty() { Ok(()) } else { Err(class::PROC_FAILED) }
    }

    fn has_member(&self, world: u32) -> bool {
        let remote = self.remote.as_ref().is_some_and(|r| r.group.rank_of(world).is_some());
        remote || self.group.rank_of(world).is_some()
    }

    /// A member is lost.
    fn loses(&self, world: u32) {
        if self.health.apart.get() {
            return;
        }
        let mut lost = self.health.lost.borrow_mut();
        if self.has_member(world) && !lost.contains(&world) {
            lost.push(world);
            self.health.troubled.set(true);
        }
    }

    /// Its members are of programs that may have nothing to do with each other.
    pub(crate) fn set_apart(&self) {
        self.health.apart.set(true);
    }

    /// A hint was set; a value that nobody knows changes nothing. Whether it is kept.
    pub(crate) fn reaches(&self, key: &[u8], value: &[u8]) -> bool {
        match key {
            RANGE => Range::of(value).map(|range| self.health.range.set(range)).is_some(),
            UNIFORM => Uniform::of(value).map(|how| self.health.uniform.set(how)).is_some(),
            _ => true,
        }
    }

    fn revoke(&self) {
        self.health.revoked.set(true);
        self.health.troubled.set(true);
    }

    /// Whether a receive from any source could be for a message of somebody who is lost, which is
    /// not acknowledged.
    fn blocks_any_source(&self) -> bool {
        let lost = self.health.lost.borrow();
        let unknown = lost.get(self.health.acked.get()..).unwrap_or_default();
        unknown.iter().any(|world| self.peers().rank_of(*world).is_some())
    }
}

impl Machine {
    /// Whether ranks that are lost are reported to this one.
    pub fn reports_failures(&self) -> bool {
        self.failures.reports
    }

    /// Who only sends never waits: takes notice now and then all the same.
    #[inline]
    pub(crate) fn heed_now_and_then(&mut self) {
        // By calls, for these are counted one by one: none of them can step over it.
        if self.engine.calls & (HEEDED_CALLS - 1) == 0 {
            self.heed_failures();
        }
    }

    /// Where a call would wait: takes notice of what others know. True: something may be otherwise.
    #[inline]
    pub(crate) fn heed_failures(&mut self) -> bool {
        let news = self.failures.reports && self.endpoint.failures() != self.failures.seen;
        if !news && !self.failures.mail {
            return false;
        }
        self.take_notice(news)
    }

    #[cold]
    fn take_notice(&mut self, news: bool) -> bool {
        if news {
            self.take_failures();
        }
        let read = std::mem::take(&mut self.failures.mail) && self.read_letters();
        news || read
    }

    /// More ranks are lost than was known.
    fn take_failures(&mut self) {
        let count = self.endpoint.failures();
        let is_new = |r: &u32| self.endpoint.is_failed(*r) && !self.failures.is_lost(*r);
        let lost: Vec<u32> = (0..self.endpoint.size()).filter(is_new).collect();
        // What they had sent comes first.
        for &rank in &lost {
            self.poll(rank);
        }
        self.failures.seen = count;
        for &rank in &lost {
            self.failures.failed[rank as usize] = true;
            self.comms.all().for_each(|comm| comm.loses(rank));
        }
        self.revoke_by_range(&lost);
        self.give_up_all();
        for &rank in &lost {
            self.endpoint.abandon(rank);
            self.teller_is_lost(rank);
            self.tell_agreements(rank);
        }
    }

    /// A communicator that was just made learns what is known of its members.
    pub(crate) fn examine(&mut self, comm: &Rc<Comm>) {
        if self.failures.reports {
            self.acquaint(comm);
        }
        if self.failures.seen > 0 {
            let ranks = 0..self.endpoint.size();
            ranks.filter(|r| self.failures.is_lost(*r)).for_each(|r| comm.loses(r));
        }
        self.examine_revoked(comm);
        // Others may have spoken of it before.
        self.failures.mail |= !self.failures.early.is_empty();
    }

    /// Tells whether a rank is lost, and does not come back.
    pub(crate) fn lost_for_good(&self) -> impl Fn(u32) -> bool + use<> {
        let known = self.endpoint.lost_ranks();
        let reports = self.failures.reports;
        move |rank| reports && known(rank)
    }

    /// These are lost: communicators whose range that is are revoked.
    fn revoke_by_range(&mut self, lost: &[u32]) {
        let concerned = |comm: &Rc<Comm>| match comm.health.range.get() {
            Range::Local => false,
            Range::Group => lost.iter().any(|rank| comm.has_member(*rank)),
            Range::Universe => true,
        };
        let all: Vec<Rc<Comm>> = self.comms.all().filter(|c| concerned(c)).cloned().collect();
        for comm in all {
            self.revoke_and_tell(&comm);
        }
    }

    /// Members of a communicator leave together.
    fn acquaint(&mut self, comm: &Comm) {
        let remote = comm.remote.iter().flat_map(|r| r.group.members());
        for rank in comm.group.members().iter().chain(remote) {
            self.failures.met[*rank as usize] = true;
        }
    }

    /// An operation with this peer can still be had.
    #[inline]
    pub(crate) fn check_peer(&self, comm: &Comm, peer: u32) -> Res<()> {
        if comm.is_troubled() { self.check_peer_closely(comm, peer) } else { Ok(()) }
    }

    #[cold]
    fn check_peer_closely(&self, comm: &Comm, peer: u32) -> Res<()> {
        comm.usable()?;
        match self.failures.is_lost(comm.world_rank(peer)) {
            true => Err(class::PROC_FAILED),
            false => Ok(()),
        }
    }

    /// Why a message from there (none: from anybody) will not come.
    pub(crate) fn hopeless(&self, comm: &Comm, src: Option<u32>) -> Option<crate::error::Class> {
        if !comm.is_troubled() {
            return None;
        }
        if let Err(why) = comm.usable() {
            return Some(why);
        }
        let lost = match src {
            Some(src) => self.failures.is_lost(src),
            None => comm.blocks_any_source(),
        };
        lost.then_some(class::PROC_FAILED)
    }
}
