//! What a rank does in an operation that is begun: copies, receives, sends, and in the end perhaps
//! a reduction.

use std::rc::Rc;

use super::How;
use super::blocks::Piece;
use crate::coll::data::{Data, Scratch, copy, pack};
use crate::coll::reduce::Reduction;
use crate::comm::Comm;
use crate::consts::REQUEST_NULL;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::SendMode;
use crate::request::{self, Keep, Op, Template};

/// The whole of it; a persistent one goes through it again at each start. The pointers are the
/// program's buffers and `room`.
pub(crate) struct Plan {
    comm: Rc<Comm>,
    tag: i32,
    /// Packed away first: what is sent from there is received over.
    packs: Vec<(Piece, *mut u8)>,
    copies: Vec<(Piece, Piece)>,
    receives: Vec<(Piece, u32)>,
    sends: Vec<(Piece, u32)>,
    fold: Option<Fold>,
    /// Temporary memory, and where it is.
    room: Option<(Scratch, *mut u8)>,
}

/// A reduction of operands that lie one after the other.
pub(super) struct Fold {
    pub reduction: Reduction,
    pub operands: *mut u8,
    pub number: u64,
    /// Elements of one operand.
    pub count: u64,
    /// Which of them are wanted: first and number.
    pub kept: (u64, u64),
    pub target: *mut u8,
}

impl Plan {
    pub(super) fn new(comm: Rc<Comm>, tag: i32) -> Plan {
        Plan {
            comm,
            tag,
            packs: Vec::new(),
            copies: Vec::new(),
            receives: Vec::new(),
            sends: Vec::new(),
            fold: None,
            room: None,
        }
    }

    /// To a rank of the communicator; nothing at all is not sent.
    pub(super) fn send(&mut self, piece: Piece, to: u32) {
        if piece.bytes() > 0 {
            self.sends.push((piece, to));
        }
    }

    pub(super) fn receive(&mut self, piece: Piece, from: u32) {
        if piece.bytes() > 0 {
            self.receives.push((piece, from));
        }
    }

    /// A word without content, each way.
    pub(super) fn meet(&mut self, nothing: &Piece, peer: u32) {
        self.sends.push((nothing.clone(), peer));
        self.receives.push((nothing.clone(), peer));
    }

    pub(super) fn copy(&mut self, from: Piece, to: Piece) -> Res<()> {
        if from.bytes() > to.bytes() {
            self.comm.take_tag(self.tag);
            return Err(class::TRUNCATE);
        }
        self.copies.push((from, to));
        Ok(())
    }

    pub(super) fn pack(&mut self, from: Piece, at: *mut u8) {
        self.packs.push((from, at));
    }

    /// Takes hold of a temporary; returns where it is, from now on.
    pub(super) fn hold(&mut self, mut room: Scratch) -> *mut u8 {
        let at = room.ptr();
        self.room.insert((room, at)).1
    }

    pub(super) fn held(&self) -> Option<*mut u8> {
        self.room.as_ref().map(|room| room.1)
    }

    pub(super) fn fold(&mut self, fold: Fold) {
        self.fold = Some(fold);
    }
}

impl Machine {
    /// A plan that does nothing yet; `planned` takes its tag.
    pub(super) fn plan(&self, comm: Handle) -> Res<(Rc<Comm>, Plan)> {
        let (comm, tag) = self.start_collective(comm)?;
        Ok((comm.clone(), Plan::new(comm, tag)))
    }

    /// The request of an operation that does this.
    ///
    /// # Safety
    /// The buffers hold until it is complete, or as long as the request is persistent.
    pub(super) unsafe fn planned(&mut self, plan: Plan, handle: Handle, how: How) -> Res<Handle> {
        let comm = plan.comm.clone();
        comm.take_tag(plan.tag);
        let plan = Rc::new(plan);
        match how {
            How::Started => self.persistent(&comm, handle, Template::Plan(plan)),
            How::Now => {
                let req = self.new_request(&comm, handle, Op::Nothing)?;
                // SAFETY: the caller's promise.
                if let Err(e) = unsafe { self.begin_plan(req, plan) } {
                    self.engine.reqs.remove(req);
                    return Err(e);
                }
                Ok(req)
            }
        }
    }

    /// The same in one call.
    ///
    /// # Safety
    /// The buffers hold.
    pub(super) unsafe fn done_at_once(&mut self, plan: Plan) -> Res<()> {
        // SAFETY: the caller's promise.
        let mut req = unsafe { self.planned(plan, crate::consts::COMM_SELF, How::Now)? };
        let done = self.wait(&mut req);
        debug_assert!(req == REQUEST_NULL);
        done.map(drop)
    }

    /// # Safety
    /// The buffers hold until the request is complete.
    pub(crate) unsafe fn begin_plan(&mut self, req: Handle, plan: Rc<Plan>) -> Res<()> {
        // SAFETY: the caller's promise; `pack` has room for the bytes, which `copy` has checked.
        unsafe {
            for (from, at) in &plan.packs {
                pack(from.data(), *at);
            }
            for (from, to) in &plan.copies {
                copy(from.data(), to.data())?;
            }
        }
        if let Err(why) = plan.comm.whole() {
            self.fail_at_once(req, why);
            return Ok(());
        }
        self.begin_parts(req, Keep::Plan(plan.clone()), false);
        let (comm, ctx) = (&plan.comm, plan.comm.coll_ctx());
        let whole = |p: &Piece| request::Data::new(p.ptr, p.count, p.dt.clone());
        let mut result = Ok(());
        for (piece, from) in &plan.receives {
            let op = self.recv_op(ctx, whole(piece), Some(comm.world_rank(*from)), plan.tag);
            result = result.and(self.recv_part(req, comm, op));
        }
        for (piece, to) in &plan.sends {
            let op = self.start_send(comm, ctx, whole(piece), *to, plan.tag, SendMode::Standard);
            result = result.and(self.send_part(req, comm, op));
        }
        self.all_begun(req);
        result
    }

    /// All has come.
    ///
    /// # Safety
    /// As for `begin_plan`.
    pub(crate) unsafe fn end_plan(&mut self, plan: &Plan) -> Res<()> {
        let Some(fold) = &plan.fold else { return Ok(()) };
        let r = &fold.reduction;
        let at = |i: u64| r.part(fold.operands, (i * fold.count, fold.count)).ptr;
        let mut list: Vec<*mut u8> = (0..fold.number).map(at).collect();
        // SAFETY: the operands are ours, the target is the program's.
        unsafe {
            let result = self.balanced(r, &mut list, fold.count)?;
            copy(r.part(result, fold.kept), Data::new(fold.target, fold.kept.1, &r.dt))
        }
    }
}
