//! Communicators (MPI 5.0 chapter 7): the objects, their table and the local functions.
//!
//! A communicator is a group with message contexts of its own: `ctx` for point-to-point, the next
//! for collectives, two for partitioned messages. Kept true: a context belongs to one communicator
//! among all that any one process holds or ever held (see `create`). Freeing takes the handle away;
//! operations under way keep the object.
//!
//! An inter-communicator (`inter`) has a second group, the remote one: its peers are there, while
//! its own rank and size are those of the local group.

mod create;
mod inter;
#[cfg(test)]
#[path = "comm/tests.rs"]
mod job_tests;
mod later;

pub(crate) use create::{Inherit, PICKED_CTX, TAKEN};
pub(crate) use later::Later;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::attr::AttrKind;
use crate::bsend::Attached;
use crate::clusters::Groups;
use crate::consts::{
    COMM_NULL, COMM_SELF, COMM_WORLD, CONGRUENT, ERRORS_ARE_FATAL, IDENT, INFO_NULL, SIMILAR,
    UNEQUAL,
};
use crate::dynamic::state::Dynamic;
use crate::error::{Res, class};
use crate::failures::{Health, REACH_HINTS};
use crate::group::Group;
use crate::handle::{Handle, Kind, Slab};
use crate::info::Info;
use crate::machine::Machine;
use crate::topology::Topology;

/// `MPI_COMM_TYPE_*`
pub const TYPE_SHARED: i32 = 221;
pub const TYPE_HW_UNGUIDED: i32 = 222;
pub const TYPE_HW_GUIDED: i32 = 223;
pub const TYPE_RESOURCE_GUIDED: i32 = 224;

/// Longest name in bytes (`MPI_MAX_OBJECT_NAME` less the terminator).
pub const MAX_NAME_BYTES: usize = 127;

/// Contexts of one communicator.
const CONTEXTS: u32 = 4;
const WORLD_CTX: u32 = 0;
const SELF_CTX: u32 = CONTEXTS;
/// In which communicators are made from groups alone (`MPI_Comm_create_from_group`).
const GROUPS_CTX: u32 = 2 * CONTEXTS;
/// In which ports are called.
pub(crate) const PORTS_CTX: u32 = 3 * CONTEXTS;
/// In which the room for programs that are started later is given away.
pub(crate) const ROOM_CTX: u32 = 4 * CONTEXTS;
/// What the library's letters are in (`failures`): it is none of those above.
pub(crate) const CONTROL_CTX: u32 = GROUPS_CTX + 2;
/// Contexts below are predefined.
const FIRST_CTX: u32 = 32;

/// Tags of collectives stay below; those of `MPI_Comm_create_group` have this bit.
const GROUP_TAG: i32 = 1 << 30;

/// The hints that the standard defines on communicators; those on failures besides, others are not
/// kept.
const HINTS: [&[u8]; 4] = [
    b"mpi_assert_no_any_tag",
    b"mpi_assert_no_any_source",
    b"mpi_assert_exact_length",
    b"mpi_assert_allow_overtaking",
];

/// One communicator.
pub struct Comm {
    /// The first of its contexts; not known yet while it is made (`later`).
    ctx: Cell<u32>,
    pub group: Rc<Group>,
    /// This process's rank in it.
    pub rank: u32,
    /// Of an inter-communicator.
    pub(crate) remote: Option<Remote>,
    /// The handle it was made under (stale once the communicator is freed).
    pub handle: Cell<Handle>,
    pub(crate) errhandler: Cell<Handle>,
    pub(crate) topology: Option<Topology>,
    name: RefCell<Vec<u8>>,
    hints: RefCell<Info>,
    sequence: Cell<i32>,
    pub(crate) buffer: RefCell<Attached>,
    /// How many partitioned requests were made, by direction, peer and tag.
    pairs: RefCell<BTreeMap<(bool, i32, i32), i32>>,
    /// Of an inter-communicator also that of what the local group uses among itself.
    pub(crate) health: Rc<Health>,
    /// The clusters that it spans, if there are several.
    pub(crate) groups: OnceCell<Rc<Groups>>,
    /// Then the ranks of the own cluster among themselves, in the same contexts.
    local: OnceCell<Rc<Comm>>,
}

/// What an inter-communicator has besides its local group.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) group: Rc<Group>,
    /// What the local group uses among itself; no handle names it.
    pub(crate) local: Rc<Comm>,
}

impl Comm {
    fn new(ctx: u32, group: Rc<Group>, me: u32) -> Comm {
        Comm {
            ctx: Cell::new(ctx),
            remote: None,
            buffer: RefCell::default(),
            pairs: RefCell::default(),
            health: Rc::default(),
            rank: group.rank_of(me).unwrap_or(0),
            group,
            handle: Cell::new(COMM_NULL),
            errhandler: Cell::new(ERRORS_ARE_FATAL),
            topology: None,
            name: RefCell::default(),
            hints: RefCell::default(),
            sequence: Cell::new(0),
            groups: OnceCell::new(),
            local: OnceCell::new(),
        }
    }

    pub fn size(&self) -> u32 {
        self.group.size()
    }

    pub fn is_inter(&self) -> bool {
        self.remote.is_some()
    }

    /// Those that messages go to: the remote group of an inter-communicator, else its own.
    pub fn peers(&self) -> &Rc<Group> {
        self.remote.as_ref().map_or(&self.group, |r| &r.group)
    }

    /// The ranks of its own cluster among themselves.
    pub(crate) fn local(self: &Rc<Comm>) -> &Rc<Comm> {
        self.local.get().unwrap_or(self)
    }

    /// World rank of the peer `rank`, which is below the number of `peers()`.
    #[inline]
    pub fn world_rank(&self, rank: u32) -> u32 {
        self.peers().world(rank)
    }

    /// Rank here of a process given by its world rank.
    pub fn rank_of_world(&self, world: u32) -> Option<u32> {
        self.group.rank_of(world)
    }

    /// Context of point-to-point messages.
    #[inline]
    pub fn ctx(&self) -> u32 {
        self.ctx.get()
    }

    /// Context of the collectives.
    #[inline]
    pub fn coll_ctx(&self) -> u32 {
        self.ctx() + 1
    }

    /// Contexts of partitioned messages (`partitioned`).
    pub(crate) fn partitioned_ctx(&self, first: bool) -> u32 {
        self.ctx() + if first { 2 } else { 3 }
    }

    /// Tag of the next collective operation: the same on all ranks, as all start them in one order.
    pub(crate) fn next_tag(&self) -> i32 {
        let tag = self.sequence.get();
        self.take_tag(tag);
        tag
    }

    /// The tag that the next operation would have.
    pub(crate) fn tag_ahead(&self) -> i32 {
        self.sequence.get()
    }

    /// An operation that saw this tag ahead takes it; it may say so again.
    pub(crate) fn take_tag(&self, tag: i32) {
        self.sequence.set((tag + 1) & (GROUP_TAG - 1));
    }

    /// The number of the next partitioned request to or from a peer with a tag.
    pub(crate) fn next_pair(&self, sends: bool, peer: i32, tag: i32) -> i32 {
        let mut pairs = self.pairs.borrow_mut();
        let next = pairs.entry((sends, peer, tag)).or_default();
        let number = *next;
        *next = number.wrapping_add(1);
        number
    }

    /// A rank that the program gave for an argument called root.
    pub(crate) fn root(&self, root: i32) -> Res<u32> {
        u32::try_from(root).ok().filter(|&r| r < self.size()).ok_or(class::ROOT)
    }

    fn take_hints(&self, info: Option<&Info>) {
        let Some(info) = info else { return };
        let mut hints = self.hints.borrow_mut();
        for key in HINTS.into_iter().chain(REACH_HINTS) {
            if let Some(value) = info.get(key)
                && self.reaches(key, value)
            {
                hints.set(key, value);
            }
        }
    }
}

/// All communicators of this rank.
pub struct CommTable {
    world: Rc<Comm>,
    own: Rc<Comm>,
    pub(crate) slab: Slab<Rc<Comm>>,
    /// Least context that no communicator of this process has ever had.
    next_ctx: u32,
    /// How often this process has chosen a context for others.
    picks: u32,
    me: u32,
    /// The cluster of each rank of the job when it began; none: there was but one.
    clusters: Rc<[u32]>,
    /// Bytes a second between two of them; 0: not known.
    rate: u64,
    /// Reductions give the same bits whatever the clusters (`--reduce-order canonical`).
    pub(crate) canonical: bool,
    /// By what groups meet that have no communicator in common.
    pub(crate) dynamic: Dynamic,
}

impl CommTable {
    /// The table of rank `me` of a job of `ranks`.
    pub fn new(me: u32, ranks: u32) -> Self {
        CommTable::of_world(me, (0..ranks).collect(), WORLD_CTX, FIRST_CTX)
    }

    /// The same of a group that was started later, in contexts of its own.
    pub(crate) fn of_started(me: u32, members: Vec<u32>, ctx: u32, next_ctx: u32) -> Self {
        CommTable::of_world(me, members, ctx, next_ctx.max(FIRST_CTX))
    }

    /// The same of some of the job's ranks.
    pub(crate) fn of_part(me: u32, members: Vec<u32>) -> Self {
        CommTable::of_world(me, members, WORLD_CTX, FIRST_CTX)
    }

    fn of_world(me: u32, members: Vec<u32>, ctx: u32, next_ctx: u32) -> Self {
        let predefined = |ctx, members, handle, name: &[u8]| {
            let comm = Comm::new(ctx, Rc::new(Group::new(members, me)), me);
            comm.handle.set(handle);
            *comm.name.borrow_mut() = name.to_vec();
            Rc::new(comm)
        };
        let own = ctx + SELF_CTX - WORLD_CTX;
        CommTable {
            world: predefined(ctx, members, COMM_WORLD, b"MPI_COMM_WORLD"),
            own: predefined(own, vec![me], COMM_SELF, b"MPI_COMM_SELF"),
            slab: Slab::new(Kind::Comm),
            next_ctx,
            picks: 0,
            me,
            clusters: Rc::default(),
            rate: 0,
            canonical: false,
            dynamic: Dynamic::default(),
        }
    }

    #[inline]
    pub fn get(&self, h: Handle) -> Res<Rc<Comm>> {
        self.get_ref(h).cloned()
    }

    #[inline]
    pub fn get_ref(&self, h: Handle) -> Res<&Rc<Comm>> {
        match h {
            COMM_WORLD => Ok(&self.world),
            COMM_SELF => Ok(&self.own),
            _ => self.slab.get(h).ok_or(class::COMM),
        }
    }

    /// One that is no inter-communicator.
    pub(crate) fn intra(&self, h: Handle) -> Res<Rc<Comm>> {
        self.get(h).and_then(|c| if c.is_inter() { Err(class::COMM) } else { Ok(c) })
    }

    /// Learns the cluster of every rank, before any communicator is made. None: there is but one.
    /// `rate`: bytes a second between two of them, 0 if it is not known.
    pub(crate) fn divide(&mut self, clusters: Rc<[u32]>, rate: u64) {
        (self.clusters, self.rate) = (clusters, rate);
        self.group_up(&self.world);
    }

    /// A communicator is new: it has no groups yet.
    fn group_up(&self, comm: &Comm) {
        let Some(groups) = Groups::of((&self.clusters, self.rate), comm.group.members()) else {
            return;
        };
        let own = &groups.members[groups.cluster(comm.rank)];
        let own = own.iter().map(|rank| comm.group.world(*rank)).collect();
        let local = Comm::new(comm.ctx(), Rc::new(Group::new(own, self.me)), self.me);
        let _ = comm.local.set(Rc::new(Comm { health: comm.health.clone(), ..local }));
        let _ = comm.groups.set(Rc::new(groups));
    }

    /// All ranks, in none of their communicators.
    pub(crate) fn of_all_ranks(&self) -> Rc<Comm> {
        Rc::new(Comm::new(GROUPS_CTX, self.world.group.clone(), self.me))
    }

    /// All that have a handle.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<Comm>> {
        [&self.world, &self.own].into_iter().chain(self.slab.iter().map(|(_, comm)| comm))
    }

    fn insert(&mut self, comm: Rc<Comm>) -> Res<Handle> {
        let handle = self.slab.insert(comm.clone())?;
        comm.handle.set(handle);
        Ok(handle)
    }
}

impl Machine {
    pub fn comm_size(&self, comm: Handle) -> Res<i32> {
        Ok(self.comms.get_ref(comm)?.size() as i32)
    }

    pub fn comm_rank(&self, comm: Handle) -> Res<i32> {
        Ok(self.comms.get_ref(comm)?.rank as i32)
    }

    /// A new handle of its group.
    pub fn comm_group(&mut self, comm: Handle) -> Res<Handle> {
        let group = self.comms.get(comm)?.group.clone();
        self.groups.insert(group)
    }

    pub fn comm_test_inter(&self, comm: Handle) -> Res<bool> {
        self.comms.get_ref(comm).map(|c| c.is_inter())
    }

    fn remote_of(&self, comm: Handle) -> Res<&Remote> {
        self.comms.get_ref(comm)?.remote.as_ref().ok_or(class::COMM)
    }

    pub fn comm_remote_size(&self, comm: Handle) -> Res<i32> {
        Ok(self.remote_of(comm)?.group.size() as i32)
    }

    /// A new handle of the remote group.
    pub fn comm_remote_group(&mut self, comm: Handle) -> Res<Handle> {
        let group = self.remote_of(comm)?.group.clone();
        self.groups.insert(group)
    }

    /// `IDENT`, `CONGRUENT`, `SIMILAR` or `UNEQUAL`.
    pub fn comm_compare(&self, a: Handle, b: Handle) -> Res<i32> {
        let (a, b) = (self.comms.get_ref(a)?, self.comms.get_ref(b)?);
        if Rc::ptr_eq(a, b) {
            return Ok(IDENT);
        }
        let own = a.group.compare(&b.group);
        let all = match (&a.remote, &b.remote) {
            (None, None) => own,
            (Some(a), Some(b)) => match (own, a.group.compare(&b.group)) {
                (UNEQUAL, _) | (_, UNEQUAL) => UNEQUAL,
                (IDENT, IDENT) => IDENT,
                _ => SIMILAR,
            },
            _ => UNEQUAL,
        };
        Ok(if all == IDENT { CONGRUENT } else { all })
    }

    /// Runs the delete functions of the attributes; if one fails, the communicator stays.
    pub fn comm_free(&mut self, comm: &mut Handle) -> Res<()> {
        let handle = *comm;
        self.comms.get_ref(handle)?;
        if handle == COMM_WORLD || handle == COMM_SELF {
            return Err(class::COMM);
        }
        self.attr_delete_all(AttrKind::Comm, handle)?;
        let freed = self.comms.slab.remove(handle).ok_or(class::COMM)?;
        self.errhandlers.release(freed.errhandler.get());
        self.forget_contexts(&freed);
        if let Some(remote) = &freed.remote {
            self.forget_contexts(&remote.local);
        }
        *comm = COMM_NULL;
        Ok(())
    }

    fn forget_contexts(&mut self, comm: &Comm) {
        (comm.ctx()..comm.ctx() + CONTEXTS).for_each(|ctx| self.engine.forget(ctx));
    }

    /// `MPI_Comm_disconnect`: frees it when what was sent is on its way.
    pub fn comm_disconnect(&mut self, comm: &mut Handle) -> Res<()> {
        self.comms.get_ref(*comm)?;
        self.drain_sends();
        self.comm_free(comm)
    }

    /// Cut to `MAX_NAME_BYTES`.
    pub fn comm_set_name(&mut self, comm: Handle, name: &[u8]) -> Res<()> {
        let comm = self.comms.get_ref(comm)?;
        *comm.name.borrow_mut() = name[..name.len().min(MAX_NAME_BYTES)].to_vec();
        Ok(())
    }

    /// Works for `COMM_NULL` too.
    pub fn comm_get_name(&self, comm: Handle) -> Res<Vec<u8>> {
        if comm == COMM_NULL {
            return Ok(b"MPI_COMM_NULL".to_vec());
        }
        Ok(self.comms.get_ref(comm)?.name.borrow().clone())
    }

    /// Keeps the hints that the standard defines.
    pub fn comm_set_info(&mut self, comm: Handle, info: Handle) -> Res<()> {
        let comm = self.comms.get_ref(comm)?;
        if info == INFO_NULL {
            return Err(class::INFO);
        }
        comm.take_hints(Some(self.infos.get(info)?));
        Ok(())
    }

    /// A new info object with the hints in use.
    pub fn comm_get_info(&mut self, comm: Handle) -> Res<Handle> {
        let hints = self.comms.get_ref(comm)?.hints.borrow().clone();
        self.infos.insert(hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_communicators_know_themselves() {
        let table = CommTable::new(2, 5);
        let world = table.get(COMM_WORLD).unwrap();
        assert_eq!((world.rank, world.size(), world.handle.get()), (2, 5, COMM_WORLD));
        let own = table.get(COMM_SELF).unwrap();
        assert_eq!((own.rank, own.size(), own.world_rank(0)), (0, 1, 2));
        assert!(
            world.coll_ctx() < own.ctx()
                && GROUPS_CTX < PORTS_CTX
                && ROOM_CTX + CONTEXTS < FIRST_CTX
        );
        assert_eq!(table.get(COMM_NULL).map(|c| c.rank), Err(class::COMM));
    }

    #[test]
    fn collective_tags_wrap_below_those_of_create_group() {
        let comm = Comm::new(16, Rc::new(Group::new(vec![0], 0)), 0);
        comm.sequence.set(GROUP_TAG - 1);
        assert_eq!(comm.next_tag(), GROUP_TAG - 1);
        assert_eq!(comm.next_tag(), 0);
    }

    #[test]
    fn roots_are_checked() {
        let comm = Comm::new(16, Rc::new(Group::new(vec![4, 0], 0)), 0);
        assert_eq!(comm.rank, 1);
        assert_eq!(comm.root(1), Ok(1));
        assert_eq!(comm.root(2), Err(class::ROOT));
        assert_eq!(comm.root(-1), Err(class::ROOT));
    }
}
