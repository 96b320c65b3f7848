//! Point-to-point communication (MPI 5.0 chapter 3): the calls of the program.
//!
//! A send is complete when it is in the log (which is its buffer), a synchronous one when its
//! receiver has matched it, a remote one (unprotected jobs) when it was read. Sends to one peer go
//! into the log in the order of the calls, whatever happens in between.

use std::rc::Rc;

use crate::comm::Comm;
use crate::consts::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use crate::direct::Sent;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Data, Op, Payload, RecvOp, SendOp, State};
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

#[allow(clippy::too_many_arguments)]
impl Machine {
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
        self.heed_now_and_then();
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
        if begun.is_none() {
            comm.usable()?;
        }
        let Some(dest) = peer(&comm, dest)? else { return Ok(()) };
        let op = match begun {
            Some(out) => {
                let dst = comm.world_rank(dest);
                SendOp { data, dst, out, remote: false, offered: false, needs_ack: false }
            }
            None => {
                self.check_peer(&comm, dest)?;
                self.start_send(&comm, comm.ctx(), data, dest, tag, mode)
            }
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
        if let Err(why) = self.check_peer(&c, dest) {
            let req = self.finished_request(&c, comm, Status::EMPTY)?;
            self.fail_at_once(req, why);
            return Ok(req);
        }
        let op = self.start_send(&c, c.ctx(), data, dest, tag, mode);
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
        let mut req = self.begin_recv((buf, count, dt), source, tag, comm, true)?;
        self.wait_own(&mut req)
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
        self.begin_recv((buf, count, dt), source, tag, comm, false)
    }

    /// `completes`: the same call completes it.
    fn begin_recv(
        &mut self,
        (buf, count, dt): (*mut u8, i64, Handle),
        source: i32,
        tag: i32,
        comm: Handle,
        completes: bool,
    ) -> Res<Handle> {
        let c = self.comms.get(comm)?;
        let data = self.data(buf, count, dt)?;
        if completes {
            c.usable()?;
        }
        let Some(src) = source_of(&c, source, tag)? else {
            return self.finished_request(&c, comm, Status::PROC_NULL);
        };
        let mut op = self.recv_op(c.ctx(), data, src, tag);
        op.open |= completes;
        let req = self.new_request(&c, comm, Op::Recv(op))?;
        self.post_recv(req);
        self.check_begun(req, &c);
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
            self.wait_own(&mut recv)
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

    // ---- inside

    /// Waits for a request that the same call has begun: it is gone then.
    fn wait_own(&mut self, req: &mut Handle) -> Res<Status> {
        match self.wait(req) {
            Err(class::PROC_FAILED_PENDING) => Err(self.take_back(*req)),
            done => done,
        }
    }

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

    /// The number of the receive that is begun.
    #[inline]
    pub(crate) fn next_post(&mut self) -> u64 {
        self.step();
        self.engine.last_post += 1;
        self.engine.last_post
    }

    pub(crate) fn recv_op(&mut self, ctx: u32, data: Data, src: Option<u32>, tag: i32) -> RecvOp {
        let post = self.next_post();
        RecvOp {
            data,
            src,
            tag,
            ctx,
            post,
            forced: false,
            got: 0,
            viewed: 0,
            len: 0,
            start: 0,
            matched: false,
            open: !self.endpoint.is_repeatable(),
            payload: Payload::Placed,
        }
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
}

pub(crate) fn check_tag(tag: i32) -> Res<()> {
    if tag >= 0 { Ok(()) } else { Err(class::TAG) }
}

/// A destination's rank in the communicator; `None` for MPI_PROC_NULL.
pub(crate) fn peer(comm: &Comm, rank: i32) -> Res<Option<u32>> {
    match rank {
        PROC_NULL => Ok(None),
        r if r >= 0 && (r as u32) < comm.peers().size() => Ok(Some(r as u32)),
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
