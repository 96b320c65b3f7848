//! The calls that move data (MPI 5.0 section 12.3): at the origin each is a message, and where
//! something comes back a receive of it.

use std::rc::Rc;

use super::message::{Kind, Message, Run};
use super::window::{Flavor, Held, Window};
use crate::comm::Comm;
use crate::consts::{COMM_SELF, PROC_NULL, REQUEST_NULL};
use crate::datatype::Datatype;
use crate::datatype::predefined::{BYTE, Element};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op::{NO_OP, REPLACE};
use crate::p2p::SendMode;
use crate::request::{Data, Keep, Op};
use crate::status::Status;

/// Data of the program's at the origin.
#[derive(Clone, Copy)]
pub struct Operand {
    pub buf: *mut u8,
    pub count: i64,
    pub dt: Handle,
}

/// Data at the target.
#[derive(Clone, Copy)]
pub struct Target {
    pub rank: i32,
    pub disp: i64,
    pub count: i64,
    pub dt: Handle,
}

/// Whether the program gets the request of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Yes,
    No,
}

impl Machine {
    /// # Safety
    /// The buffer holds the elements.
    pub unsafe fn rma_put(&mut self, win: Handle, from: Operand, to: Target) -> Res<()> {
        let Some(way) = self.rma_way(win, &to)? else { return Ok(()) };
        let data = self.data(from.buf, from.count, from.dt)?;
        // SAFETY: the caller's promise.
        if unsafe { self.rma_copy(&way, &data, &to, Kind::Put)? } {
            return Ok(());
        }
        let mut message = self.rma_message(Kind::Put, &to, data.bytes)?;
        // SAFETY: the caller's promise.
        message.data = unsafe { gathered(&data) };
        self.rma_send(&way, message)
    }

    /// The receive of what comes, which a flush or the end of the epoch completes.
    ///
    /// # Safety
    /// The buffer holds the elements, until the operation is complete.
    pub unsafe fn rma_get(
        &mut self,
        win: Handle,
        into: Operand,
        from: Target,
        told: Told,
    ) -> Res<Handle> {
        let Some(way) = self.rma_way(win, &from)? else { return self.rma_done(told) };
        let data = self.data(into.buf, into.count, into.dt)?;
        // SAFETY: the caller's promise.
        if unsafe { self.rma_copy(&way, &data, &from, Kind::Get)? } {
            return self.rma_done(told);
        }
        let message = self.rma_message(Kind::Get, &from, data.bytes)?;
        self.rma_fetch(&way, message, data, told)
    }

    /// # Safety
    /// As `rma_put`.
    pub unsafe fn rma_accumulate(
        &mut self,
        win: Handle,
        from: Operand,
        to: Target,
        op: Handle,
    ) -> Res<()> {
        let Some(way) = self.rma_way(win, &to)? else { return Ok(()) };
        let data = self.data(from.buf, from.count, from.dt)?;
        let mut message = self.rma_message(Kind::Accumulate, &to, data.bytes)?;
        self.rma_operation(&mut message, op, to.dt)?;
        // SAFETY: the caller's promise.
        message.data = unsafe { gathered(&data) };
        self.rma_send(&way, message)
    }

    /// `MPI_Get_accumulate`, and `MPI_Fetch_and_op` for one element.
    ///
    /// # Safety
    /// As `rma_put` and `rma_get`.
    pub unsafe fn rma_get_accumulate(
        &mut self,
        win: Handle,
        from: Operand,
        into: Operand,
        to: Target,
        op: Handle,
        told: Told,
    ) -> Res<Handle> {
        let Some(way) = self.rma_way(win, &to)? else { return self.rma_done(told) };
        let result = self.data(into.buf, into.count, into.dt)?;
        let mut message = self.rma_message(Kind::GetAccumulate, &to, result.bytes)?;
        self.rma_operation(&mut message, op, to.dt)?;
        if op != NO_OP {
            let data = self.data(from.buf, from.count, from.dt)?;
            if data.bytes != result.bytes {
                return Err(class::ARG);
            }
            // SAFETY: the caller's promise.
            message.data = unsafe { gathered(&data) };
        }
        self.rma_fetch(&way, message, result, told)
    }

    /// # Safety
    /// All buffers hold one element, that of the result until the operation is complete.
    pub unsafe fn rma_compare_and_swap(
        &mut self,
        win: Handle,
        (new, compare, into): (*const u8, *const u8, *mut u8),
        to: Target,
    ) -> Res<()> {
        // MPI 5.0, section 12.3.6: integers, truth values and bytes.
        match self.types.get_ref(to.dt)?.element() {
            Some(Element::One(basic)) if basic.is_compared_by_bytes() => {}
            _ => return Err(class::TYPE),
        }
        let Some(way) = self.rma_way(win, &to)? else { return Ok(()) };
        let result = self.data(into, 1, to.dt)?;
        let mut message = self.rma_message(Kind::CompareAndSwap, &to, result.bytes)?;
        for part in [new, compare] {
            let data = self.data(part.cast_mut(), 1, to.dt)?;
            // SAFETY: the caller's promise.
            message.data.extend(unsafe { gathered(&data) });
        }
        self.rma_fetch(&way, message, result, Told::No).map(drop)
    }

    /// A request, if the program gets one, of an operation that has nothing to wait for: its data
    /// has left when the call returns.
    pub fn rma_done(&mut self, told: Told) -> Res<Handle> {
        if told == Told::No {
            return Ok(REQUEST_NULL);
        }
        let comm = self.comms.get(COMM_SELF)?;
        self.finished_request(&comm, COMM_SELF, Status::EMPTY)
    }

    /// The window and the target's rank, which may be accessed now; `None` for MPI_PROC_NULL.
    fn rma_way(&self, win: Handle, to: &Target) -> Res<Option<(Rc<Window>, u32)>> {
        let window = self.windows.get(win)?;
        if to.rank == PROC_NULL {
            return Ok(None);
        }
        let rank = u32::try_from(to.rank).ok().filter(|r| *r < window.comm.size());
        let rank = rank.ok_or(class::RANK)?;
        let epochs = window.epochs.borrow();
        let started = epochs.access.as_ref().is_some_and(|group| group.contains(&rank));
        let locked = epochs.all || epochs.held[rank as usize] != Held::No;
        if !epochs.fenced && !started && !locked {
            return Err(class::RMA_SYNC);
        }
        Ok(Some((window.clone(), rank)))
    }

    /// An operation on so many bytes.
    fn rma_message(&self, kind: Kind, to: &Target, bytes: u64) -> Res<Message> {
        let dt = self.types.get_committed(to.dt)?;
        let count = u64::try_from(to.count).map_err(|_| class::COUNT)?;
        let all = dt.bytes(count).ok_or(class::COUNT)?;
        if all != bytes {
            return Err(class::ARG);
        }
        Ok(Message { disp: to.disp, runs: runs_of(dt, all)?, ..Message::of(kind, 0) })
    }

    /// Which operation on which elements.
    fn rma_operation(&self, message: &mut Message, op: Handle, dt: Handle) -> Res<()> {
        let operation = self.ops.get(op)?;
        if operation.builtin().is_none() {
            return Err(class::OP);
        }
        message.element = BYTE;
        if message.target_bytes() == 0 {
            // Nothing is combined, whether type and operation fit or not.
            message.op = NO_OP;
            return Ok(());
        }
        message.op = op;
        let element = self.types.predefined_of(self.types.get_ref(dt)?);
        if op != REPLACE && op != NO_OP {
            operation.check(self.types.get_ref(element.ok_or(class::TYPE)?)?)?;
        }
        message.element = element.unwrap_or(BYTE);
        Ok(())
    }

    /// To the target, or applied at once where that is this rank.
    pub(super) fn rma_send(
        &mut self,
        (window, to): &(Rc<Window>, u32),
        message: Message,
    ) -> Res<()> {
        if window.flavor != Flavor::Dynamic {
            window.check_range(*to, &message)?;
        }
        if window.is_near(*to) {
            return self.rma_near(window, *to, &message).map(drop);
        }
        if *to == window.comm.rank {
            return self.rma_apply_own(window, message);
        }
        window.epochs.borrow_mut().sent[*to as usize] = true;
        self.rma_post(window, window.comm.ctx(), *to, 0, message.bytes())
    }

    /// Sends one that has a reply, and begins to receive that.
    fn rma_fetch(
        &mut self,
        way: &(Rc<Window>, u32),
        message: Message,
        into: Data,
        told: Told,
    ) -> Res<Handle> {
        let (window, to) = way;
        if window.is_near(*to) {
            window.check_range(*to, &message)?;
            let before = self.rma_near(window, *to, &message)?;
            // SAFETY: the caller's promise, by which the program's buffer holds the data.
            unsafe { into.scatter(0, &before) };
            return self.rma_done(told);
        }
        let tag = window.next_reply(*to);
        let req = self.rma_reply(window, *to, tag, into)?;
        let sent = self.rma_send(way, Message { reply: tag, ..message });
        if let Err(e) = sent {
            self.request_free(&mut { req })?;
            return Err(e);
        }
        let known = |r: &(Handle, bool)| self.request(r.0).is_some();
        let replies = &mut window.epochs.borrow_mut().replies[*to as usize];
        replies.retain(known);
        replies.push((req, told == Told::Yes));
        Ok(req)
    }

    /// A receive of a reply, as a request that the program may have.
    fn rma_reply(&mut self, window: &Rc<Window>, from: u32, tag: i32, into: Data) -> Res<Handle> {
        let comm = &window.comm;
        let whole = self.new_request(comm, window.comm_handle, Op::Nothing)?;
        self.begin_parts(whole, Keep::Nothing, false);
        let source = Some(comm.world_rank(from));
        let op = self.recv_op(comm.partitioned_ctx(true), into, source, tag);
        self.recv_part(whole, comm, op)?;
        self.all_begun(whole);
        Ok(whole)
    }

    pub(super) fn rma_post(
        &mut self,
        window: &Rc<Window>,
        ctx: u32,
        to: u32,
        tag: i32,
        bytes: Vec<u8>,
    ) -> Res<()> {
        self.post_bytes(&window.comm, ctx, to, tag, bytes)
    }

    /// Sends bytes that nobody waits for.
    pub(crate) fn post_bytes(
        &mut self,
        comm: &Rc<Comm>,
        ctx: u32,
        to: u32,
        tag: i32,
        mut bytes: Vec<u8>,
    ) -> Res<()> {
        self.check_peer(comm, to)?;
        let data = Data::new(bytes.as_mut_ptr(), bytes.len() as u64, self.types.get(BYTE)?);
        let whole = self.new_request(comm, COMM_SELF, Op::Nothing)?;
        self.begin_parts(whole, Keep::Bytes { _held: bytes }, false);
        if let Some(r) = self.engine.reqs.get_mut(whole) {
            r.orphan = true;
        }
        let op = self.start_send(comm, ctx, data, to, tag, SendMode::Standard);
        let sent = self.send_part(whole, comm, op);
        self.all_begun(whole);
        sent
    }
}

impl Window {
    /// The number of the next reply from a target.
    pub(super) fn next_reply(&self, target: u32) -> i32 {
        let mut epochs = self.epochs.borrow_mut();
        let next = &mut epochs.numbers[target as usize];
        *next = next.wrapping_add(1) & i32::MAX;
        *next
    }

    fn check_range(&self, target: u32, message: &Message) -> Res<()> {
        let (bytes, unit) = self.shown[target as usize];
        let start = message.disp.checked_mul(unit).ok_or(class::RMA_RANGE)?;
        let inside = |(at, len): &Run| {
            let first = start.checked_add(*at).and_then(|at| u64::try_from(at).ok());
            first.and_then(|at| at.checked_add(*len)).is_some_and(|end| end <= bytes)
        };
        if message.runs.iter().all(inside) { Ok(()) } else { Err(class::RMA_RANGE) }
    }
}

/// The runs of a datatype's elements, those that touch as one.
fn runs_of(dt: &Datatype, bytes: u64) -> Res<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    dt.runs(0, 0, bytes, &mut |at, len| {
        match runs.last_mut() {
            Some((start, have)) if *start + *have as i64 == at => *have += len,
            _ => runs.push((at, len)),
        }
        Ok(true)
    })?;
    Ok(runs)
}

/// # Safety
/// The program's buffer holds the data.
unsafe fn gathered(data: &Data) -> Vec<u8> {
    let mut bytes = vec![0; data.bytes as usize];
    // SAFETY: the caller's promise; it is as long as the data.
    unsafe { data.gather(0, &mut bytes) };
    bytes
}
