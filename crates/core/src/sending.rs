//! How a send gets into the log, and when it is complete.
//!
//! Kept true: sends to one peer enter the log in the order of the calls; one that finds the log
//! full waits in a queue of its peer, and everything after it does too.

use std::rc::Rc;

use eyrie_channel::Endpoint;
use eyrie_ledger::entry::{Envelope, SYNC};
use eyrie_ledger::sendlog::Outgoing;

use crate::comm::Comm;
use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::SendMode;
use crate::request::{Data, Op, SendOp};
use crate::streaming::streaming_copy;

/// From this size on, an unprotected job's receiver reads out of the sender's memory.
const REMOTE_BYTES: u64 = 32 * 1024;
/// From this size on, a protected job's receiver reads there too, while the sender logs.
pub(crate) const SINGLE_COPY_BYTES: u64 = 128 * 1024;

impl Machine {
    /// Puts as much of a message into the log as goes at once; `dest` is a rank in `comm`.
    #[inline]
    pub(crate) fn start_send(
        &mut self,
        comm: &Comm,
        ctx: u32,
        data: Data,
        dest: u32,
        tag: i32,
        mode: SendMode,
    ) -> SendOp {
        self.pass_place();
        let dst = comm.world_rank(dest);
        let flags = if mode == SendMode::Synchronous { SYNC } else { 0 };
        let bits = flags | self.endpoint.call_bits();
        let env = Envelope { len: data.bytes, ctx, tag, crank: comm.rank, flags: bits };
        let remote = self.endpoint.single_copy(dst)
            && data.bytes >= REMOTE_BYTES
            && data.flat.is_some()
            && mode != SendMode::Buffered;
        let env = if remote { Endpoint::remote_envelope(env) } else { env };
        let needs_ack = remote || flags & SYNC != 0;
        let offered = self.endpoint.offers_to(dst)
            && data.bytes >= SINGLE_COPY_BYTES
            && data.is_plain()
            && mode != SendMode::Buffered;
        let mut op = SendOp { data, dst, out: Outgoing::new(env), remote, offered, needs_ack };
        if self.engine.queued[dst as usize].is_empty() {
            self.push_send(&mut op);
        }
        op
    }

    /// A message, or what takes the place of one, follows.
    #[inline]
    pub(crate) fn pass_place(&mut self) {
        self.step();
        self.message_in_turn();
        if self.keeps_for_others() {
            self.before_message();
        }
        self.engine.place += 1;
    }

    /// What was applied before a message is applied, in a replay, too.
    fn before_message(&mut self) {
        if self.endpoint.door.has_applied() {
            self.serve();
        } else if !self.endpoint.replaying() {
            self.endpoint.door.pass(self.engine.place);
        }
    }

    /// Appends to the log. True when the whole message is there.
    #[inline]
    pub(crate) fn push_send(&mut self, op: &mut SendOp) -> bool {
        if op.remote {
            let at = op.data.flat.unwrap_or(op.data.buf);
            return self.endpoint.append_remote(op.dst, &mut op.out, at, op.data.bytes);
        }
        let data = &op.data;
        if let (Some(at), true) = (data.flat, op.offered) {
            return self.endpoint.append_offered(op.dst, &mut op.out, at, |offset, out| {
                // SAFETY: as below; the data is one run without padding.
                unsafe { streaming_copy(at.wrapping_add(offset as usize), out) }
            });
        }
        self.endpoint.append(op.dst, &mut op.out, |offset, out| {
            // SAFETY: the program promised the buffer until the send is complete; `append` asks
            // for bytes of the message only.
            unsafe { data.gather(offset, out) }
        })
    }

    /// Blocks until a send is complete. No request is made unless it has to wait.
    #[inline]
    pub(crate) fn complete_send(&mut self, comm: &Rc<Comm>, op: SendOp) -> Res<()> {
        if op.is_logged() && !op.needs_ack {
            return Ok(());
        }
        let req = self.send_request(comm, crate::consts::COMM_SELF, op)?;
        self.await_request(req);
        self.engine.reqs.remove(req).and_then(|r| r.error).map_or(Ok(()), Err)
    }

    pub(crate) fn send_request(
        &mut self,
        comm: &Rc<Comm>,
        handle: Handle,
        op: SendOp,
    ) -> Res<Handle> {
        let req = self.new_request(comm, handle, Op::Send(op))?;
        self.track_send(req);
        Ok(req)
    }

    /// Puts a started send where progress finds it.
    pub(crate) fn track_send(&mut self, req: Handle) {
        let Some(r) = self.engine.reqs.get(req) else { return };
        let Op::Send(op) = &r.op else { return };
        let (logged, needs_ack, dst) = (op.is_logged(), op.needs_ack, op.dst as usize);
        if !logged {
            self.engine.queued[dst].push_back(req);
            self.engine.queued_total += 1;
            self.endpoint.press_all();
        } else if needs_ack {
            self.engine.unacked.push(req);
        } else {
            self.finish(req);
        }
    }

    /// Tries the sends that wait for log space. True if one went on.
    pub(crate) fn push_queued(&mut self) -> bool {
        let mut moved = false;
        for dst in 0..self.engine.queued.len() {
            while let Some(&req) = self.engine.queued[dst].front() {
                let Some(r) = self.engine.reqs.get_mut(req) else {
                    self.engine.queued[dst].pop_front();
                    self.engine.queued_total -= 1;
                    continue;
                };
                let Op::Send(mut op) = std::mem::replace(&mut r.op, Op::Nothing) else { break };
                let before = op.out.done;
                let whole = self.push_send(&mut op);
                moved |= op.out.done > before || whole;
                if let Some(r) = self.engine.reqs.get_mut(req) {
                    r.op = Op::Send(op);
                }
                if !whole {
                    break;
                }
                self.engine.queued[dst].pop_front();
                self.engine.queued_total -= 1;
                self.track_send(req);
            }
        }
        if self.engine.queued_total == 0 {
            self.endpoint.press(false);
        }
        moved
    }

    /// Looks which sends were acknowledged.
    pub(crate) fn check_acks(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&req) = self.engine.unacked.get(at) {
            let acked = match self.engine.reqs.get(req).map(|r| &r.op) {
                Some(Op::Send(op)) => self.endpoint.acknowledged(op.dst, op.out.start),
                _ => true,
            };
            if acked {
                self.engine.unacked.swap_remove(at);
                self.finish(req);
                moved = true;
            } else {
                at += 1;
            }
        }
        moved
    }

    /// Waits for one request, whatever happens to the process meanwhile: until it is complete, or
    /// stuck (`is_stuck`).
    #[inline]
    pub(crate) fn await_request(&mut self, req: Handle) {
        if !self.engine.is_done(req) {
            self.open(req);
            self.wait_for(|m| m.engine.is_done(req) || m.is_stuck(req));
        }
    }
}

impl SendOp {
    /// Whether the whole message is in the log.
    pub(crate) fn is_logged(&self) -> bool {
        self.out.started && self.out.done == self.out.env.len
    }
}
