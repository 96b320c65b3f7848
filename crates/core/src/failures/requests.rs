//! Operations that will not complete any more, as somebody who is needed is lost, or their
//! communicator is revoked: they are given up.
//!
//! Kept true: a request that is given up is complete, with an error, and no message is put into its
//! buffer any more. A message to a rank that lives is not broken off in the middle, for the next
//! one follows in the same stream: the rest of it is copied, and goes on its way without its
//! request. A receive from any source stays: it completes when its message comes, or is waited for
//! in vain.

use crate::comm::Comm;
use crate::consts::{ANY_TAG, COMM_SELF};
use crate::datatype::predefined::BYTE;
use crate::engine::Sink;
use crate::error::{Class, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Data, Keep, Op, Request, State};
use crate::status::Status;

impl Machine {
    /// Gives up all operations that cannot complete any more.
    pub(super) fn give_up_all(&mut self) {
        if self.failures.seen > 0 {
            // Also communicators that have no handle, or none any more.
            for (_, r) in self.engine.reqs.iter().filter(|(_, r)| r.state == State::Active) {
                let ranks = 0..self.endpoint.size();
                ranks
                    .filter(|rank| self.failures.is_lost(*rank))
                    .for_each(|rank| r.comm.loses(rank));
            }
        }
        let reqs = self.engine.reqs.iter().filter(|(_, r)| r.state == State::Active);
        let lost: Vec<(Handle, Class)> =
            reqs.filter_map(|(h, r)| Some((h, self.why_lost(r)?))).collect();
        for (req, why) in lost {
            self.give_up(req, why);
        }
        self.close_contexts();
    }

    /// What has come, or comes, for operations that are given up is passed over.
    fn close_contexts(&mut self) {
        let mut closed = Vec::new();
        for comm in self.comms.all().filter(|comm| comm.is_troubled()) {
            let local = comm.remote.as_ref().map(|r| r.local.clone());
            for comm in std::iter::once(comm.clone()).chain(local) {
                if comm.usable().is_err() {
                    closed.extend([
                        comm.ctx(),
                        comm.partitioned_ctx(true),
                        comm.partitioned_ctx(false),
                    ]);
                }
                if comm.whole().is_err() {
                    closed.push(comm.coll_ctx());
                }
            }
        }
        for ctx in closed {
            if self.failures.closed.insert(ctx) {
                self.pass_over(ctx);
            }
        }
    }

    /// Messages of a context that nobody has asked for.
    fn pass_over(&mut self, ctx: u32) {
        while let Some((src, found)) = self.engine.queues(ctx).find_unexpected(None, ANY_TAG) {
            let Some(message) = self.engine.take_unexpected(found.slot) else { return };
            if !message.whole {
                self.engine.inbound[src as usize] = None;
            }
            if message.stashed.is_none() {
                self.endpoint.release(src, message.reader.pos);
            }
        }
    }

    /// Why an operation will not complete, if it will not.
    fn why_lost(&self, r: &Request) -> Option<Class> {
        let comm: &Comm = &r.comm;
        if !matches!(r.op, Op::Send(_) | Op::Recv(_)) {
            // Its parts have requests of their own, or others have.
            return None;
        }
        let (world, ctx) = match &r.op {
            Op::Send(op) => (Some(op.dst), op.out.env.ctx),
            Op::Recv(op) => (op.src, op.ctx),
            _ => (None, comm.ctx()),
        };
        if comm.is_troubled() {
            let all = if ctx == comm.coll_ctx() { comm.whole() } else { comm.usable() };
            if let Err(why) = all {
                return Some(why);
            }
        }
        // Windows and files have messages of their own, in whichever communicator.
        world.filter(|world| self.failures.is_lost(*world)).map(|_| class::PROC_FAILED)
    }

    /// After an operation has begun: it may be one that cannot complete.
    #[inline]
    pub(crate) fn check_begun(&mut self, req: Handle, comm: &Comm) {
        if comm.is_troubled() {
            self.check_begun_closely(req);
        }
    }

    /// After a receive of the library's own has begun, whose communicator may not tell of the rank
    /// that it is from.
    #[inline]
    pub(crate) fn check_received(&mut self, req: Handle) {
        if self.failures.seen > 0 {
            self.check_begun_closely(req);
        }
    }

    #[cold]
    pub(crate) fn check_begun_closely(&mut self, req: Handle) {
        let Some(r) = self.engine.reqs.get(req).filter(|r| r.state == State::Active) else {
            return;
        };
        if let Some(why) = self.why_lost(r) {
            self.give_up(req, why);
        }
    }

    /// A request that is complete from the start, with this error.
    pub(crate) fn fail_at_once(&mut self, req: Handle, why: Class) {
        self.activate(req, Op::Nothing, State::Done, Status::EMPTY);
        if let Some(r) = self.engine.reqs.get_mut(req) {
            r.error = Some(why);
        }
    }

    /// Whether a receive waits for a message of anybody, and some who could have sent it are lost.
    #[inline]
    pub(crate) fn is_stuck(&self, req: Handle) -> bool {
        let Some(r) = self.engine.reqs.get(req) else { return false };
        r.comm.is_troubled() && self.is_stuck_looked_at(r)
    }

    #[cold]
    fn is_stuck_looked_at(&self, r: &Request) -> bool {
        let waits = match &r.op {
            Op::Recv(op) => r.state == State::Active && op.src.is_none() && !op.matched,
            Op::Parts(parts) => {
                let any = |part: &Handle| self.is_stuck(*part);
                return r.state == State::Active && parts.receives.iter().any(any);
            }
            _ => false,
        };
        waits && r.comm.blocks_any_source()
    }

    /// A receive that the same call has begun does not complete.
    pub(crate) fn take_back(&mut self, req: Handle) -> Class {
        self.give_up(req, class::PROC_FAILED);
        self.engine.reqs.remove(req);
        class::PROC_FAILED
    }

    /// The operation is complete, with this error.
    fn give_up(&mut self, req: Handle, why: Class) {
        let Some(r) = self.engine.reqs.get_mut(req) else { return };
        r.error = Some(why);
        match &r.op {
            Op::Recv(op) => {
                let (ctx, src) = (op.ctx, op.src);
                self.engine.queues(ctx).withdraw(req);
                self.engine.late.retain(|late| !late.is_of(req));
                for (from, sink) in (0..).zip(&mut self.engine.inbound) {
                    let is_its =
                        matches!(sink, Some(Sink::Request(r) | Sink::Deferred(r)) if *r == req);
                    if is_its && src.is_none_or(|src| src == from) {
                        // The rest of the message is passed over.
                        *sink = None;
                    }
                }
            }
            Op::Send(_) => self.give_up_send(req),
            _ => {}
        }
        self.finish(req);
    }

    fn give_up_send(&mut self, req: Handle) {
        self.engine.unacked.retain(|r| *r != req);
        let Some(Request { op: Op::Send(op), .. }) = self.engine.reqs.get(req) else { return };
        let (dst, half) = (op.dst, op.out.started && !op.is_logged());
        let Some(at) = self.engine.queued[dst as usize].iter().position(|r| *r == req) else {
            return;
        };
        match half && !self.failures.is_lost(dst) {
            true => self.detach(req, dst, at),
            false => {
                self.engine.queued[dst as usize].remove(at);
                self.engine.queued_total -= 1;
            }
        }
    }

    /// The rest of a message goes on from memory of the library's own.
    fn detach(&mut self, req: Handle, dst: u32, at: usize) {
        let comm = self.failures.post.clone();
        let Ok(byte) = self.types.get(BYTE) else { return };
        let Some(r) = self.engine.reqs.get_mut(req) else { return };
        let Op::Send(mut op) = std::mem::replace(&mut r.op, Op::Nothing) else { return };
        if op.offered {
            self.endpoint.hide(dst);
            op.offered = false;
        }
        let mut rest = vec![0; op.data.bytes as usize];
        let done = op.out.done as usize;
        // SAFETY: the operation is not complete: what the program promised for it still holds.
        unsafe { op.data.gather(op.out.done, &mut rest[done..]) };
        op.data = Data::new(rest.as_mut_ptr(), rest.len() as u64, byte);
        op.needs_ack = false;
        let Ok(whole) = self.new_request(&comm, COMM_SELF, Op::Nothing) else { return };
        self.begin_parts(whole, Keep::Bytes { _held: rest }, false);
        if let Some(r) = self.engine.reqs.get_mut(whole) {
            r.orphan = true;
        }
        if let Ok(part) = self.part(whole, &comm, Op::Send(op)) {
            self.engine.queued[dst as usize][at] = part;
        }
        self.all_begun(whole);
    }
}
