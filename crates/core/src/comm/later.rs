//! Communicators whose context one process picks: duplicates that nobody waits for
//! (`MPI_Comm_idup`), and those made from groups alone (MPI 5.0 sections 7.4.2 and 7.6.3).

use std::cell::Cell;
use std::rc::Rc;

use super::{CONTEXTS, Comm, FIRST_CTX, GROUP_TAG, GROUPS_CTX, Inherit};
use crate::attr::AttrKind;
use crate::consts::COMM_NULL;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::info::Info;
use crate::machine::Machine;
use crate::p2p::SendMode;
use crate::request::{Data, Keep, Op, RecvOp};

/// Of a communicator whose context has not come yet.
const NO_CTX: u32 = FIRST_CTX - CONTEXTS;

/// A communicator that gets its context when a message is there.
pub(crate) struct Later {
    comm: Rc<Comm>,
    ctx: Box<Cell<u32>>,
}

impl Later {
    pub(crate) fn made(&self) -> &Rc<Comm> {
        &self.comm
    }

    pub(crate) fn settle(&self) {
        self.comm.local().ctx.set(self.ctx.get());
        self.comm.ctx.set(self.ctx.get());
        if let Some(remote) = &self.comm.remote {
            remote.local.ctx.set(self.ctx.get() + CONTEXTS);
        }
    }
}

impl Machine {
    /// `MPI_Comm_idup`, with the hints of `info` if there is one: the communicator, which may be
    /// used when the request is complete, and the request.
    pub fn comm_idup(&mut self, handle: Handle, info: Option<Handle>) -> Res<(Handle, Handle)> {
        let comm = self.comms.get(handle)?;
        let hints = match info {
            Some(info) => self.infos.get_optional(info)?.cloned().unwrap_or_default(),
            None => comm.hints.borrow().clone(),
        };
        let remote = comm.remote.as_ref().map(|r| r.group.clone());
        let inherit = Inherit { hints, topology: comm.topology.clone(), remote };
        let eh = comm.errhandler.get();
        let (mut new, made) = self.comm_insert(NO_CTX, comm.group.clone(), inherit, eh)?;
        if let Err(e) = self.attr_copy_all(AttrKind::Comm, handle, new) {
            // The copy's error is the one to report.
            let _ = self.comm_free(&mut new);
            return Err(e);
        }
        let whole = self.new_request(&comm, handle, Op::Nothing)?;
        self.begin_context(whole, &comm, made)?;
        Ok((new, whole))
    }

    /// The first rank of the group whose first rank is the lower in the world picks, and tells
    /// everybody.
    fn begin_context(&mut self, whole: Handle, comm: &Rc<Comm>, made: Rc<Comm>) -> Res<()> {
        let local = comm.remote.as_ref().map_or(comm, |r| &r.local);
        let own_picks = !comm.is_inter() || comm.group.world(0) < comm.peers().world(0);
        let ctx = Box::new(Cell::new(NO_CTX));
        let (at, byte) = (ctx.as_ptr().cast::<u8>(), self.types.get(BYTE)?);
        let data = || Data::new(at, size_of::<u32>() as u64, byte.clone());
        // Both groups count both, whoever is told where.
        let (near, far) = (local.next_tag(), if comm.is_inter() { comm.next_tag() } else { 0 });
        let picks = own_picks && comm.rank == 0;
        if picks {
            ctx.set(self.pick_context()?);
        }
        self.begin_parts(whole, Keep::Later(Later { comm: made, ctx }), false);
        if picks {
            for to in 1..local.size() {
                self.tell_part(whole, local, (to, near), data())?;
            }
            for to in 0..if comm.is_inter() { comm.peers().size() } else { 0 } {
                self.tell_part(whole, comm, (to, far), data())?;
            }
        } else {
            let (from, tag) = if own_picks { (local, near) } else { (comm, far) };
            let op = self.recv_op(from.coll_ctx(), data(), Some(from.world_rank(0)), tag);
            // It goes to memory of our own.
            self.recv_part(whole, from, RecvOp { open: true, ..op })?;
        }
        self.all_begun(whole);
        Ok(())
    }

    fn tell_part(
        &mut self,
        whole: Handle,
        comm: &Rc<Comm>,
        (to, tag): (u32, i32),
        data: Data,
    ) -> Res<()> {
        comm.whole()?;
        let op = self.start_send(comm, comm.coll_ctx(), data, to, tag, SendMode::Standard);
        self.send_part(whole, comm, op)
    }

    /// `MPI_Comm_create_from_group`: collective over the group only. `COMM_NULL` outside it.
    pub fn comm_create_from_group(
        &mut self,
        group: Handle,
        name: &[u8],
        info: Handle,
        errhandler: Handle,
    ) -> Res<Handle> {
        let group = self.groups.get(group)?;
        let hints = self.infos.get_optional(info)?.cloned().unwrap_or_default();
        if group.rank().is_none() {
            return Ok(COMM_NULL);
        }
        let among = self.among(group.clone());
        let own = if among.rank == 0 { vec![self.pick_context()?] } else { Vec::new() };
        let ctx = self.told(&among, 0, own, tag_of(name))?;
        let [ctx] = ctx[..] else { return Err(class::INTERN) };
        let inherit = Inherit { hints, ..Inherit::default() };
        self.comm_insert(ctx, group, inherit, errhandler).map(|(handle, _)| handle)
    }

    /// `MPI_Intercomm_create_from_groups`: the remote group counts at the leader only.
    pub fn intercomm_create_from_groups(
        &mut self,
        (local, local_leader): (Handle, i32),
        (remote, remote_leader): (Handle, i32),
        name: &[u8],
        info: Handle,
        errhandler: Handle,
    ) -> Res<Handle> {
        let local = self.groups.get(local)?;
        let hints: Info = self.infos.get_optional(info)?.cloned().unwrap_or_default();
        let among = self.among(local.clone());
        let leader = among.root(local_leader).map_err(|_| class::RANK)?;
        let tag = tag_of(name);
        let mut known = Vec::new();
        if among.rank == leader {
            let remote = self.groups.get(remote)?;
            let at = u32::try_from(remote_leader).ok().filter(|r| *r < remote.size());
            let (own, other) = (local.world(leader), remote.world(at.ok_or(class::RANK)?));
            let picked = if own < other { self.pick_context()? } else { NO_CTX };
            let pair = self.among(Rc::new(Group::new(vec![own, other], self.comms.me)));
            let theirs = self.swap_words(&pair, 1, tag, &[picked])?;
            let [theirs] = theirs[..] else { return Err(class::INTERN) };
            known.push(if own < other { picked } else { theirs });
            known.extend(self.addresses(remote.members()));
        }
        let known = self.told(&among, leader, known, tag)?;
        let (&ctx, known) = known.split_first().ok_or(class::INTERN)?;
        let members = self.learn_addresses(known)?;
        let remote = Some(Rc::new(Group::new(members, self.comms.me)));
        let inherit = Inherit { hints, remote, ..Inherit::default() };
        self.comm_insert(ctx, local, inherit, errhandler).map(|(handle, _)| handle)
    }

    /// All ranks of the job, in a context that all have.
    pub(crate) fn everybody(&self, ctx: u32) -> Rc<Comm> {
        let (me, ranks) = self.world();
        let all = Comm::new(ctx, Rc::new(Group::new((0..ranks).collect(), me)), me);
        all.set_apart();
        Rc::new(all)
    }

    /// A group that has no communicator: its messages lie in a context that all have.
    pub(super) fn among(&mut self, group: Rc<Group>) -> Rc<Comm> {
        let among = Rc::new(Comm::new(GROUPS_CTX, group, self.comms.me));
        self.examine(&among);
        among
    }
}

/// Two operations under way between the same ranks have different names.
fn tag_of(name: &[u8]) -> i32 {
    let mixed =
        name.iter().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
    (mixed >> 1) as i32 & (GROUP_TAG - 1)
}
