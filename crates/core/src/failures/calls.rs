//! The calls by which a program handles lost ranks itself (ULFM).
//!
//! Where ranks come back, nobody is ever lost: agreements are then ordinary collective operations,
//! which a rank that comes back repeats, and a communicator cannot be revoked, since when others
//! learn of that is left to chance.

use std::rc::Rc;

use super::agree::{Agreed, Then};
use super::reach::Uniform;
use crate::comm::{Comm, Inherit};
use crate::consts::GROUP_EMPTY;
use crate::error::{Class, Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op;

impl Machine {
    /// Whether ranks can be lost for good, or are at least never repeated.
    fn may_lose(&self) -> bool {
        self.endpoint.loses_for_good()
    }

    /// The program asks for lost ranks, or does something about them.
    fn handles(&mut self) {
        self.progress();
        self.heed_failures();
        if self.failures.reports {
            self.endpoint.handled(self.failures.seen);
        }
    }

    /// `MPI_Comm_revoke`.
    pub fn comm_revoke(&mut self, comm: Handle) -> Res<()> {
        let comm = self.comms.get(comm)?;
        if !self.may_lose() {
            return Err(class::UNSUPPORTED_OPERATION);
        }
        self.handles();
        self.revoke_and_tell(&comm);
        Ok(())
    }

    pub fn comm_is_revoked(&mut self, comm: Handle) -> Res<bool> {
        let comm = self.comms.get(comm)?;
        if self.may_lose() {
            self.handles();
        }
        Ok(comm.usable().is_err())
    }

    fn group_of(&mut self, members: Vec<u32>) -> Res<Handle> {
        if members.is_empty() {
            return Ok(GROUP_EMPTY);
        }
        let me = self.endpoint.rank();
        self.groups.insert(Rc::new(Group::new(members, me)))
    }

    /// `MPI_Comm_get_failed`: members that are lost, in the order in which that was learned.
    pub fn comm_get_failed(&mut self, comm: Handle) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        if self.may_lose() {
            self.handles();
        }
        let lost = comm.health.lost.borrow().clone();
        self.group_of(lost)
    }

    /// `MPI_Comm_ack_failed`: so many of them are acknowledged; how many are.
    pub fn comm_ack_failed(&mut self, comm: Handle, count: i32) -> Res<i32> {
        let comm = self.comms.get(comm)?;
        let count = usize::try_from(count).map_err(|_| class::ARG)?;
        if self.may_lose() {
            self.handles();
        }
        self.acknowledge_lost(&comm, count)
    }

    fn acknowledge_lost(&mut self, comm: &Comm, count: usize) -> Res<i32> {
        let known = comm.health.lost.borrow().len();
        let acked = comm.health.acked.get().max(count.min(known));
        comm.health.acked.set(acked);
        Ok(acked as i32)
    }

    /// `MPIX_Comm_failure_ack`: all that are known.
    pub fn comm_failure_ack(&mut self, comm: Handle) -> Res<()> {
        self.comm_ack_failed(comm, i32::MAX).map(drop)
    }

    /// `MPIX_Comm_failure_get_acked`.
    pub fn comm_failure_get_acked(&mut self, comm: Handle) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        let acked = comm.health.lost.borrow()[..comm.health.acked.get()].to_vec();
        self.group_of(acked)
    }

    /// `MPI_Comm_agree`: the flags of all members that live, bit by bit. An error, on all or none,
    /// if somebody is lost whom not all had acknowledged.
    pub fn comm_agree(&mut self, handle: Handle, flag: &mut i32) -> Res<()> {
        let comm = self.comms.get(handle)?;
        if !self.may_lose() {
            return self.agree_by_reduction(&comm, handle, flag);
        }
        self.handles();
        let key = self.begin_agreement(&comm, *flag as u32, 0, None);
        let agreed = self.await_agreement(key)?;
        *flag = agreed.flag as i32;
        Machine::agreed_error(&agreed)
    }

    /// Nobody is ever lost.
    fn agree_by_reduction(&mut self, comm: &Comm, handle: Handle, flag: &mut i32) -> Res<()> {
        if comm.is_inter() {
            // Its reductions give each group what the other one has.
            return Err(class::UNSUPPORTED_OPERATION);
        }
        let own = *flag;
        let int = crate::datatype::predefined::INT32_T;
        // SAFETY: both are ints, and not the same.
        unsafe {
            let (from, to) = (std::ptr::from_ref(&own), std::ptr::from_mut(flag));
            self.allreduce(from.cast(), to.cast(), 1, int, op::BAND, handle)
        }
    }

    /// `MPI_Comm_iagree`.
    ///
    /// # Safety
    /// `flag` must hold an int until the request is complete.
    pub unsafe fn comm_iagree(&mut self, handle: Handle, flag: *mut i32) -> Res<Handle> {
        let comm = self.losing(handle)?;
        if flag.is_null() {
            return Err(class::ARG);
        }
        self.handles();
        // SAFETY: the caller's promise.
        let own = unsafe { *flag };
        self.agree_later(&comm, handle, (own as u32, 0), Then::Flag(flag))
    }

    /// A communicator some of whose members may be lost.
    fn losing(&self, comm: Handle) -> Res<Rc<Comm>> {
        let comm = self.comms.get(comm)?;
        if self.may_lose() { Ok(comm) } else { Err(class::UNSUPPORTED_OPERATION) }
    }

    /// `MPI_Comm_shrink`: a communicator of the members that live.
    pub fn comm_shrink(&mut self, handle: Handle) -> Res<Handle> {
        let comm = self.comms.get(handle)?;
        if !self.may_lose() {
            if comm.is_inter() {
                return self.comm_dup(handle);
            }
            return self.comm_dup_bare(&comm);
        }
        self.handles();
        let ctx = self.proposal()?;
        let key = self.begin_agreement(&comm, u32::MAX, ctx, None);
        let agreed = self.await_agreement(key)?;
        self.shrunk(&comm, &agreed)
    }

    /// `MPI_Comm_ishrink`: `put` is told the communicator.
    pub fn comm_ishrink(&mut self, handle: Handle, put: Box<dyn Fn(Handle)>) -> Res<Handle> {
        let comm = self.losing(handle)?;
        self.handles();
        let ctx = self.pick_context()?;
        self.agree_later(&comm, handle, (u32::MAX, ctx), Then::Shrunk(put))
    }

    pub(super) fn shrunk(&mut self, comm: &Rc<Comm>, agreed: &Agreed) -> Res<Handle> {
        let ctx = self.claim_context(agreed.ctx)?;
        let lost = Machine::lost_in(comm, agreed);
        let me = self.endpoint.rank();
        let left = |group: &Group| {
            let left = group.members().iter().copied().filter(|m| !lost.contains(m));
            Rc::new(Group::new(left.collect(), me))
        };
        let remote = comm.remote.as_ref().map(|r| left(&r.group));
        let inherit = Inherit { remote, ..Inherit::default() };
        self.comm_install(comm, ctx, left(&comm.group), inherit)
    }

    /// `MPI_Comm_agree_failed`: who is lost, as all members that live see it alike.
    pub fn comm_agree_failed(&mut self, handle: Handle) -> Res<Handle> {
        let comm = self.comms.get(handle)?;
        if !self.may_lose() {
            return Ok(GROUP_EMPTY);
        }
        self.handles();
        let key = self.begin_agreement(&comm, u32::MAX, 0, None);
        let agreed = self.await_agreement(key)?;
        self.failed_group(&comm, &agreed)
    }

    /// `MPI_Comm_iagree_failed`: `put` is told the group.
    pub fn comm_iagree_failed(&mut self, handle: Handle, put: Box<dyn Fn(Handle)>) -> Res<Handle> {
        let comm = self.losing(handle)?;
        self.handles();
        self.agree_later(&comm, handle, (u32::MAX, 0), Then::Failed(put))
    }

    /// The same group on all: in the order of the members.
    pub(super) fn failed_group(&mut self, comm: &Rc<Comm>, agreed: &Agreed) -> Res<Handle> {
        let lost = Machine::lost_in(comm, agreed);
        lost.iter().for_each(|world| comm.loses(*world));
        self.give_up_all();
        self.group_of(lost)
    }

    /// `MPI_Win_revoke`: what is under way in the window, or begins, returns an error.
    pub fn win_revoke(&mut self, win: Handle) -> Res<()> {
        let comm = self.windows.get(win)?.comm.handle.get();
        self.comm_revoke(comm)
    }

    pub fn win_is_revoked(&mut self, win: Handle) -> Res<bool> {
        let comm = self.windows.get(win)?.comm.handle.get();
        self.comm_is_revoked(comm)
    }

    pub fn win_get_failed(&mut self, win: Handle) -> Res<Handle> {
        let comm = self.windows.get(win)?.comm.handle.get();
        self.comm_get_failed(comm)
    }

    /// `MPI_File_revoke`.
    pub fn file_revoke(&mut self, file: Handle) -> Res<()> {
        let comm = self.files.communicator(file)?;
        self.comm_revoke(comm)
    }

    pub fn file_is_revoked(&mut self, file: Handle) -> Res<bool> {
        let comm = self.files.communicator(file)?;
        self.comm_is_revoked(comm)
    }

    /// Before data of a file is accessed, in which a call does not wait for others: it is not
    /// revoked.
    pub(crate) fn file_usable(&mut self, file: Handle) -> Res<()> {
        self.heed_now_and_then();
        let comm = self.files.communicator(file)?;
        self.comms.get_ref(comm)?.usable()
    }

    /// The same of a collective access: nobody is lost who has to take part.
    pub fn file_whole(&mut self, file: Handle) -> Res<()> {
        self.heed_now_and_then();
        let comm = self.files.communicator(file)?;
        self.comms.get_ref(comm)?.whole()
    }

    /// After a collective call on a communicator: whether all members have come through, where that
    /// is to be the same on all.
    #[inline]
    pub fn all_alike<T, E>(&mut self, comm: Handle, done: Result<T, E>) -> Result<T, E>
    where
        E: From<Class>,
    {
        match self.comms.get_ref(comm) {
            Ok(c) if c.health.uniform.get() == Uniform::Coll => self.agree_on(comm, done),
            _ => done,
        }
    }

    /// The same after one that makes a communicator, which is freed if others have none.
    #[inline]
    pub fn all_alike_made<E>(&mut self, comm: Handle, made: Result<Handle, E>) -> Result<Handle, E>
    where
        E: From<Class>,
    {
        match self.comms.get_ref(comm) {
            Ok(c) if c.health.uniform.get() >= Uniform::Create => {}
            _ => return made,
        }
        let own = made.as_ref().ok().copied();
        let agreed = self.agree_on(comm, made);
        if let (Some(mut own), Err(_)) = (own, &agreed)
            && self.comms.get_ref(own).is_ok()
        {
            // Nobody uses it.
            let _ = self.comm_free(&mut own);
        }
        agreed
    }

    #[cold]
    fn agree_on<T, E>(&mut self, comm: Handle, done: Result<T, E>) -> Result<T, E>
    where
        E: From<Class>,
    {
        if !self.endpoint.loses_for_good() {
            return done;
        }
        let comm = self.comms.get(comm)?;
        self.heed_failures();
        let key = self.begin_agreement(&comm, u32::from(done.is_ok()), 0, None);
        let agreed = self.await_agreement(key)?;
        let value = done?;
        if agreed.flag == 1 {
            return Ok(value);
        }
        Err(if comm.usable().is_err() { class::REVOKED.into() } else { class::PROC_FAILED.into() })
    }
}
