//! Point-to-point communication (MPI 5.0 chapter 3): sends, receives, persistent requests.
//!
//! A send is complete when it is in the log (which is its buffer), a synchronous one when its
//! receiver has matched it, a remote one (unprotected jobs) when it was read. Sends to one peer go
//! into the log in the order of the calls, whatever happens in between.

use std::rc::Rc;

use eyrie_channel::Endpoint;
use eyrie_ledger::entry::{Envelope, SYNC};
use eyrie_ledger::sendlog::Outgoing;

use crate::comm::Comm;
use crate::consts::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use crate::datatype::Datatype;
use crate::direct::Sent;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Data, Op, RecvOp, SendOp, State, Template};
use crate::status::Status;

/// Send modes (section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

/// A request of the library's own (collectives): not visible to the program.
pub type ReqId = Handle;

/// From this size on, an unprotected job's receiver reads out of the sender's memory.
const REMOTE_BYTES: u64 = 32 * 1024;

#[allow(clippy::too_many_arguments)]
impl Machine {
    // ---- for the collectives: named peers, the collective context. Sends of one rank to one peer
    // are received in the order of these calls.

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
        let data = Data::new(buf.cast_mut(), count, dt.clone());
        let op = self.start_send(comm, comm.ctx + 1, data, dest, tag, SendMode::Standard);
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
        let data = Data::new(buf.cast_mut(), count, dt.clone());
        let op = self.start_send(comm, comm.ctx + 1, data, dest, tag, SendMode::Standard);
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
        let data = Data::new(buf, count, dt.clone());
        let src = Some(comm.world_rank(src));
        let op = self.recv_op(comm.ctx + 1, data, src, tag);
        let req = self.new_request(comm, crate::consts::COMM_SELF, Op::Recv(op))?;
        self.post_recv(req);
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

    // ---- for the ABI

    /// # Safety
    /// `buf` must hold `count` elements of `dt`.
    pub unsafe fn send(
        &mut self,
        mode: SendMode,
        buf: *const u8,
        count: i64,
        dt: Handle,
        dest: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<()> {
        let mut begun = None;
        if mode != SendMode::Synchronous {
            // SAFETY: the caller's promise.
            match unsafe { self.send_direct(buf, count, dt, dest, tag, comm) } {
                Sent::Whole => return Ok(()),
                Sent::Part(out) => begun = Some(out),
                Sent::No => {}
            }
        }
        let comm = self.comms.get(comm)?;
        let data = self.data(buf.cast_mut(), count, dt)?;
        check_tag(tag)?;
        let Some(dest) = peer(&comm, dest)? else { return Ok(()) };
        let op = match begun {
            Some(out) => {
                let dst = comm.world_rank(dest);
                SendOp { data, dst, out, remote: false, needs_ack: false }
            }
            None => self.start_send(&comm, comm.ctx, data, dest, tag, mode),
        };
        self.complete_send(&comm, op)
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`, until the request is complete.
    pub unsafe fn isend(
        &mut self,
        mode: SendMode,
        buf: *const u8,
        count: i64,
        dt: Handle,
        dest: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let c = self.comms.get(comm)?;
        let data = self.data(buf.cast_mut(), count, dt)?;
        check_tag(tag)?;
        let Some(dest) = peer(&c, dest)? else {
            return self.finished_request(&c, comm, Status::EMPTY);
        };
        let op = self.start_send(&c, c.ctx, data, dest, tag, mode);
        self.send_request(&c, comm, op)
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`.
    pub unsafe fn recv(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        source: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Status> {
        // SAFETY: the caller's promise.
        if let Some(got) = unsafe { self.recv_direct(buf, count, dt, source, tag, comm) } {
            return got;
        }
        // SAFETY: the caller's promise.
        let mut req = unsafe { self.irecv(buf, count, dt, source, tag, comm)? };
        self.wait(&mut req)
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`, until the request is complete.
    pub unsafe fn irecv(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        source: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let c = self.comms.get(comm)?;
        let data = self.data(buf, count, dt)?;
        let Some(src) = source_of(&c, source, tag)? else {
            return self.finished_request(&c, comm, Status::PROC_NULL);
        };
        let op = self.recv_op(c.ctx, data, src, tag);
        let req = self.new_request(&c, comm, Op::Recv(op))?;
        self.post_recv(req);
        Ok(req)
    }

    /// # Safety
    /// As `send` and `recv`; the buffers do not overlap.
    pub unsafe fn sendrecv(
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
    ) -> Res<Status> {
        self.comms.get(comm)?;
        self.data(sbuf.cast_mut(), scount, sdt)?;
        check_tag(stag)?;
        // SAFETY: the caller's promise.
        unsafe {
            let mut recv = self.irecv(rbuf, rcount, rdt, source, rtag, comm)?;
            let sent = self.send(SendMode::Standard, sbuf, scount, sdt, dest, stag, comm);
            if let Err(e) = sent {
                self.request_free(&mut recv)?;
                return Err(e);
            }
            self.wait(&mut recv)
        }
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`.
    pub unsafe fn sendrecv_replace(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        dest: i32,
        stag: i32,
        source: i32,
        rtag: i32,
        comm: Handle,
    ) -> Res<Status> {
        let data = self.data(buf, count, dt)?;
        let mut copy = vec![0u8; data.bytes as usize];
        // SAFETY: the caller's promise; `copy` outlives the send, which completes here.
        unsafe {
            data.gather(0, &mut copy);
            let byte = crate::datatype::predefined::BYTE;
            let len = copy.len() as i64;
            let mode = SendMode::Standard;
            let mut sent = self.isend(mode, copy.as_ptr(), len, byte, dest, stag, comm)?;
            let got = self.recv(buf, count, dt, source, rtag, comm);
            self.wait(&mut sent)?;
            got
        }
    }

    /// # Safety
    /// The buffer must hold whenever the request is active.
    pub unsafe fn send_init(
        &mut self,
        mode: SendMode,
        buf: *const u8,
        count: i64,
        dt: Handle,
        dest: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let c = self.comms.get(comm)?;
        let data = self.data(buf.cast_mut(), count, dt)?;
        check_tag(tag)?;
        peer(&c, dest)?;
        self.persistent(&c, comm, Template::Send { mode, data, dest, tag })
    }

    /// # Safety
    /// The buffer must hold whenever the request is active.
    pub unsafe fn recv_init(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        source: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let c = self.comms.get(comm)?;
        let data = self.data(buf, count, dt)?;
        source_of(&c, source, tag)?;
        self.persistent(&c, comm, Template::Recv { data, source, tag })
    }

    fn persistent(&mut self, comm: &Rc<Comm>, handle: Handle, template: Template) -> Res<Handle> {
        let req = self.new_request(comm, handle, Op::Nothing)?;
        if let Some(r) = self.engine.reqs.get_mut(req) {
            r.state = State::Inactive;
            r.template = Some(Box::new(template));
        }
        Ok(req)
    }

    /// Starts a persistent request.
    pub fn start(&mut self, req: Handle) -> Res<()> {
        let r = self.engine.reqs.get(req).ok_or(class::REQUEST)?;
        let template = *r.template.clone().ok_or(class::REQUEST)?;
        if r.state != State::Inactive {
            return Err(class::REQUEST);
        }
        let comm = r.comm.clone();
        match template {
            Template::Send { mode, data, dest, tag } => match peer(&comm, dest)? {
                None => self.activate(req, Op::Nothing, State::Done, Status::EMPTY),
                Some(dest) => {
                    let op = self.start_send(&comm, comm.ctx, data, dest, tag, mode);
                    self.activate(req, Op::Send(op), State::Active, Status::EMPTY);
                    self.track_send(req);
                }
            },
            Template::Recv { data, source, tag } => match source_of(&comm, source, tag)? {
                None => self.activate(req, Op::Nothing, State::Done, Status::PROC_NULL),
                Some(src) => {
                    let op = self.recv_op(comm.ctx, data, src, tag);
                    self.activate(req, Op::Recv(op), State::Active, Status::EMPTY);
                    self.post_recv(req);
                }
            },
        }
        Ok(())
    }

    fn activate(&mut self, req: Handle, op: Op, state: State, status: Status) {
        if let Some(r) = self.engine.reqs.get_mut(req) {
            r.op = op;
            r.state = state;
            r.status = status;
            r.error = None;
        }
    }

    // ---- inside

    /// Checks the program's buffer arguments.
    pub(crate) fn data(&self, buf: *mut u8, count: i64, dt: Handle) -> Res<Data> {
        let dt = self.types.get(dt)?;
        if count < 0 {
            return Err(class::COUNT);
        }
        if !dt.committed.get() {
            return Err(class::TYPE);
        }
        let data = Data::new(buf, count as u64, dt);
        if buf.is_null() && data.bytes > 0 && data.dt.true_lb == 0 {
            return Err(class::BUFFER);
        }
        Ok(data)
    }

    pub(crate) fn recv_op(&mut self, ctx: u32, data: Data, src: Option<u32>, tag: i32) -> RecvOp {
        self.engine.next_post += 1;
        let post = self.engine.next_post;
        RecvOp { data, src, tag, ctx, post, forced: false, got: 0, len: 0, matched: false }
    }

    /// A request that is complete from the start.
    pub(crate) fn finished_request(
        &mut self,
        comm: &Rc<Comm>,
        handle: Handle,
        status: Status,
    ) -> Res<Handle> {
        let req = self.new_request(comm, handle, Op::Nothing)?;
        self.activate(req, Op::Nothing, State::Done, status);
        Ok(req)
    }

    /// Puts as much of a message into the log as goes at once; `dest` is a rank in `comm`.
    #[inline]
    fn start_send(
        &mut self,
        comm: &Comm,
        ctx: u32,
        data: Data,
        dest: u32,
        tag: i32,
        mode: SendMode,
    ) -> SendOp {
        let dst = comm.world_rank(dest);
        let flags = if mode == SendMode::Synchronous { SYNC } else { 0 };
        let env = Envelope { len: data.bytes, ctx, tag, crank: comm.rank, flags };
        let remote = self.endpoint.single_copy()
            && data.bytes >= REMOTE_BYTES
            && data.flat.is_some()
            && mode != SendMode::Buffered
            && dst != self.endpoint.rank();
        let env = if remote { Endpoint::remote_envelope(env) } else { env };
        let needs_ack = remote || flags & SYNC != 0;
        let mut op = SendOp { data, dst, out: Outgoing::new(env), remote, needs_ack };
        if self.engine.queued[dst as usize].is_empty() {
            self.push_send(&mut op);
        }
        op
    }

    /// Appends to the log. True when the whole message is there.
    #[inline]
    fn push_send(&mut self, op: &mut SendOp) -> bool {
        if op.remote {
            let at = op.data.flat.unwrap_or(op.data.buf);
            return self.endpoint.append_remote(op.dst, &mut op.out, at, op.data.bytes);
        }
        let data = &op.data;
        self.endpoint.append(op.dst, &mut op.out, |offset, out| {
            // SAFETY: the program promised the buffer until the send is complete; `append` asks
            // for bytes of the message only.
            unsafe { data.gather(offset, out) }
        })
    }

    /// Blocks until a send is complete. No request is made unless it has to wait.
    #[inline]
    fn complete_send(&mut self, comm: &Rc<Comm>, op: SendOp) -> Res<()> {
        if op.is_logged() && !op.needs_ack {
            return Ok(());
        }
        let req = self.send_request(comm, crate::consts::COMM_SELF, op)?;
        self.await_request(req);
        self.engine.reqs.remove(req);
        Ok(())
    }

    fn send_request(&mut self, comm: &Rc<Comm>, handle: Handle, op: SendOp) -> Res<Handle> {
        let req = self.new_request(comm, handle, Op::Send(op))?;
        self.track_send(req);
        Ok(req)
    }

    /// Puts a started send where progress finds it.
    fn track_send(&mut self, req: Handle) {
        let Some(r) = self.engine.reqs.get(req) else { return };
        let Op::Send(op) = &r.op else { return };
        let (logged, needs_ack, dst) = (op.is_logged(), op.needs_ack, op.dst as usize);
        if !logged {
            self.engine.queued[dst].push_back(req);
            self.engine.queued_total += 1;
            self.endpoint.press(true);
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

    /// Waits for one request, whatever happens to the process meanwhile.
    #[inline]
    pub(crate) fn await_request(&mut self, req: Handle) {
        if !self.engine.is_done(req) {
            self.wait_for(|m| m.engine.is_done(req));
        }
    }
}

impl SendOp {
    /// Whether the whole message is in the log.
    fn is_logged(&self) -> bool {
        self.out.started && self.out.done == self.out.env.len
    }
}

fn check_tag(tag: i32) -> Res<()> {
    if tag >= 0 { Ok(()) } else { Err(class::TAG) }
}

/// A destination's rank in the communicator; `None` for MPI_PROC_NULL.
fn peer(comm: &Comm, rank: i32) -> Res<Option<u32>> {
    match rank {
        PROC_NULL => Ok(None),
        r if r >= 0 && (r as u32) < comm.size() => Ok(Some(r as u32)),
        _ => Err(class::RANK),
    }
}

/// World rank (or any) of a receive's or probe's source; outer `None` for MPI_PROC_NULL.
pub(crate) fn source_of(comm: &Comm, source: i32, tag: i32) -> Res<Option<Option<u32>>> {
    if tag != ANY_TAG {
        check_tag(tag)?;
    }
    if source == ANY_SOURCE {
        return Ok(Some(None));
    }
    Ok(peer(comm, source)?.map(|r| Some(comm.world_rank(r))))
}
