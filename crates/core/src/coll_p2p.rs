//! What the collectives send and receive with: named peers in the collective context.
//!
//! Sends of one rank to one peer are received in the order of these calls. Nothing here is left to
//! chance, so nothing goes through the door.

use std::rc::Rc;

use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::Res;
use crate::machine::Machine;
use crate::p2p::{ReqId, SendMode};
use crate::request::{Data, Op, RecvOp};

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// # Safety
    /// `buf` must hold `count` elements of `dt`.
    pub unsafe fn coll_send(
        &mut self,
        comm: &Rc<Comm>,
        buf: *const u8,
        count: u64,
        dt: &Rc<Datatype>,
        dest: u32,
        tag: i32,
    ) -> Res<()> {
        self.heed_now_and_then();
        comm.whole()?;
        let data = Data::new(buf.cast_mut(), count, dt.clone());
        let op = self.start_send(comm, comm.coll_ctx(), data, dest, tag, SendMode::Standard);
        self.complete_send(comm, op)
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`.
    pub unsafe fn coll_recv(
        &mut self,
        comm: &Rc<Comm>,
        buf: *mut u8,
        count: u64,
        dt: &Rc<Datatype>,
        src: u32,
        tag: i32,
    ) -> Res<()> {
        // SAFETY: the caller's promise.
        let req = unsafe { self.coll_irecv(comm, buf, count, dt, src, tag)? };
        self.coll_wait(&[req])
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`, until `coll_wait`. The null request if the message
    /// is in the log already.
    pub unsafe fn coll_isend(
        &mut self,
        comm: &Rc<Comm>,
        buf: *const u8,
        count: u64,
        dt: &Rc<Datatype>,
        dest: u32,
        tag: i32,
    ) -> Res<ReqId> {
        self.heed_now_and_then();
        comm.whole()?;
        let data = Data::new(buf.cast_mut(), count, dt.clone());
        let op = self.start_send(comm, comm.coll_ctx(), data, dest, tag, SendMode::Standard);
        if op.is_logged() && !op.needs_ack {
            return Ok(crate::consts::REQUEST_NULL);
        }
        self.send_request(comm, crate::consts::COMM_SELF, op)
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`, until `coll_wait`.
    pub unsafe fn coll_irecv(
        &mut self,
        comm: &Rc<Comm>,
        buf: *mut u8,
        count: u64,
        dt: &Rc<Datatype>,
        src: u32,
        tag: i32,
    ) -> Res<ReqId> {
        comm.whole()?;
        let data = Data::new(buf, count, dt.clone());
        let src = Some(comm.world_rank(src));
        // The call that begins it completes it, and sends nothing from there before.
        let op = RecvOp { open: true, ..self.recv_op(comm.coll_ctx(), data, src, tag) };
        let req = self.new_request(comm, crate::consts::COMM_SELF, Op::Recv(op))?;
        self.post_recv(req);
        self.check_received(req);
        Ok(req)
    }

    /// Completes and frees them all; the first error wins, but all are completed.
    pub fn coll_wait(&mut self, reqs: &[ReqId]) -> Res<()> {
        let mut result = Ok(());
        for &req in reqs {
            self.await_request(req);
            if let Some(error) = self.engine.reqs.remove(req).and_then(|r| r.error) {
                result = result.and(Err(error));
            }
        }
        result
    }
}
