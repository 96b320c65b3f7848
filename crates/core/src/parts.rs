//! Operations of several messages: each is a request of the library's own, and the operation is
//! complete when they are.
//!
//! Kept true, for replay: all messages of one are begun in one call of the program, so their places
//! in the channels and among the receives follow from its calls alone. A reduction, which may be a
//! function of the program, runs in the call in which the program learns that all is done.

use std::rc::Rc;

use crate::comm::Comm;
use crate::datatype::predefined::BYTE;
use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::{SendMode, check_tag, peer, source_of};
use crate::request::{Data, Keep, Op, Parts, RecvOp, SendOp, State};
use crate::status::Status;

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// Makes a request one of messages that are begun next, until `all_begun`.
    pub(crate) fn begin_parts(&mut self, whole: Handle, keep: Keep, received: bool) {
        let parts = Parts { left: 1, received, open: false, receives: Vec::new(), keep };
        self.activate(whole, Op::Parts(parts), State::Active, Status::EMPTY);
    }

    pub(crate) fn part(&mut self, whole: Handle, comm: &Rc<Comm>, op: Op) -> Res<Handle> {
        let part = self.new_request(comm, crate::consts::COMM_SELF, op)?;
        if let Some(r) = self.engine.reqs.get_mut(part) {
            r.part_of = Some(whole);
        }
        if let Some(Op::Parts(parts)) = self.engine.reqs.get_mut(whole).map(|r| &mut r.op) {
            parts.left += 1;
        }
        Ok(part)
    }

    pub(crate) fn send_part(&mut self, whole: Handle, comm: &Rc<Comm>, op: SendOp) -> Res<()> {
        if !op.is_logged() || op.needs_ack {
            let part = self.part(whole, comm, Op::Send(op))?;
            self.track_send(part);
        }
        Ok(())
    }

    pub(crate) fn recv_part(&mut self, whole: Handle, comm: &Rc<Comm>, op: RecvOp) -> Res<()> {
        let part = self.part(whole, comm, Op::Recv(op))?;
        if let Some(Op::Parts(parts)) = self.engine.reqs.get_mut(whole).map(|r| &mut r.op) {
            parts.receives.push(part);
        }
        self.post_recv(part);
        self.check_begun(part, comm);
        Ok(())
    }

    /// No further messages follow.
    pub(crate) fn all_begun(&mut self, whole: Handle) {
        self.one_less(whole);
    }

    /// A message is done. The request of a send goes; those of receives go with the operation, as
    /// the payload may have to wait until then.
    pub(crate) fn part_done(&mut self, part: Handle) {
        let Some(r) = self.engine.reqs.get(part) else { return };
        let (status, error, whole) = (r.status, r.error, r.part_of);
        let receives = matches!(r.op, Op::Recv(_));
        if !receives {
            self.engine.reqs.remove(part);
        }
        let Some(whole) = whole else { return };
        let Some(r) = self.engine.reqs.get_mut(whole) else { return };
        r.error = r.error.or(error);
        if let (Op::Parts(Parts { received: true, .. }), true) = (&r.op, receives) {
            r.status = status;
        }
        self.one_less(whole);
    }

    fn one_less(&mut self, whole: Handle) {
        let Some(r) = self.engine.reqs.get_mut(whole) else { return };
        let Op::Parts(parts) = &mut r.op else { return };
        parts.left -= 1;
        if parts.left == 0 {
            let mut made = None;
            if let Keep::Later(later) = &parts.keep {
                later.settle();
                made = Some(later.made().clone());
            }
            made.iter().for_each(|comm| self.examine(comm));
            self.finish(whole);
        }
    }

    /// What a finished operation still has to do with what came; once.
    #[inline]
    pub(crate) fn put_together(&mut self, req: Handle) {
        if self.engine.is_done(req) {
            self.place(req);
        }
        let Some(r) = self.engine.reqs.get_mut(req) else { return };
        let Op::Parts(parts) = &mut r.op else { return };
        if r.state != State::Done {
            return;
        }
        let keep = std::mem::replace(&mut parts.keep, Keep::Nothing);
        if let (Keep::Plan(plan), None) = (keep, r.error) {
            // SAFETY: the program promised the buffers until this.
            let result = unsafe { self.end_plan(&plan) };
            if let Some(r) = self.engine.reqs.get_mut(req) {
                r.error = result.err();
            }
        }
    }

    /// # Safety
    /// The buffers hold until the request is complete, and do not overlap.
    pub unsafe fn isendrecv(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        dest: i32,
        stag: i32,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
        source: i32,
        rtag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let out = self.data(sbuf.cast_mut(), scount, sdt)?;
        let inn = self.data(rbuf, rcount, rdt)?;
        self.both_ways(comm, (out, dest, stag), (inn, source, rtag), Keep::Nothing)
    }

    /// # Safety
    /// The buffer holds until the request is complete.
    pub unsafe fn isendrecv_replace(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        dest: i32,
        stag: i32,
        source: i32,
        rtag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let inn = self.data(buf, count, dt)?;
        let mut copy = vec![0u8; inn.bytes as usize];
        // SAFETY: the caller's promise.
        unsafe { inn.gather(0, &mut copy) };
        let out = Data::new(copy.as_mut_ptr(), inn.bytes, self.types.get(BYTE)?);
        self.both_ways(comm, (out, dest, stag), (inn, source, rtag), Keep::Bytes { _held: copy })
    }

    fn both_ways(
        &mut self,
        handle: Handle,
        (out, dest, stag): (Data, i32, i32),
        (inn, source, rtag): (Data, i32, i32),
        keep: Keep,
    ) -> Res<Handle> {
        let comm = self.comms.get(handle)?;
        check_tag(stag)?;
        let dest = peer(&comm, dest)?;
        let source = source_of(&comm, source, rtag)?;
        let whole = self.new_request(&comm, handle, Op::Nothing)?;
        if let Some(Err(why)) = dest.map(|dest| self.check_peer(&comm, dest)) {
            self.fail_at_once(whole, why);
            return Ok(whole);
        }
        self.begin_parts(whole, keep, true);
        match source {
            Some(src) => {
                let op = self.recv_op(comm.ctx(), inn, src, rtag);
                self.recv_part(whole, &comm, op)?;
            }
            None => {
                if let Some(r) = self.engine.reqs.get_mut(whole) {
                    r.status = Status::PROC_NULL;
                }
            }
        }
        if let Some(dest) = dest {
            let op = self.start_send(&comm, comm.ctx(), out, dest, stag, SendMode::Standard);
            self.send_part(whole, &comm, op)?;
        }
        self.all_begun(whole);
        Ok(whole)
    }
}
