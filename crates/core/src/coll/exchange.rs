//! The message patterns that collectives are made of.
//!
//! An error (a message longer than its buffer) does not break a pattern off: the others may be
//! waiting for the rest. The first error is returned at the end.

use std::rc::Rc;

use super::data::{Data, copy};
use crate::comm::Comm;
use crate::consts::REQUEST_NULL;
use crate::error::Res;
use crate::machine::Machine;
use crate::p2p::ReqId;

/// Buffer for or from each rank.
pub(super) type ByRank<'a, 'd> = &'a dyn Fn(u32) -> Data<'d>;

/// Sends of one rank that may be under way at once.
const SENDS_MAX: usize = 16;
/// Steps that a rank may be ahead of what it waits for.
const STEPS_AHEAD_MAX: usize = 64;

/// Steps of a pattern that were begun and not completed: while a rank waits for what it is sent in
/// one step, what it sends in later ones is on its way, so that all wait for one delay and not one
/// after the other.
///
/// No two ranks can wait for each other: a rank has begun the step that it waits for, and of what
/// it waits for the earliest was sent by somebody who had completed all steps before. That it finds
/// room in the log is what `limit` is for.
pub(super) struct Ahead {
    begun: [(ReqId, ReqId, u64); STEPS_AHEAD_MAX],
    first: u64,
    next: u64,
    bytes: u64,
    limit: u64,
}

/// By the number of a step: what goes to whom or comes from whom.
pub(super) type ByStep<'a, 'd> = &'a dyn Fn(u64) -> (Data<'d>, u32);
/// What goes out, and what is to be received along with it.
pub(super) type Both<'a, 'd> = (ByStep<'a, 'd>, Option<ByStep<'a, 'd>>);

impl Ahead {
    /// Whether the next step of so many bytes may begin while `step` is waited for.
    fn admits(&self, step: u64, bytes: u64) -> bool {
        let room = self.bytes.saturating_add(bytes) <= self.limit;
        self.next == step || (room && self.next - self.first < STEPS_AHEAD_MAX as u64)
    }

    fn slot(step: u64) -> usize {
        (step % STEPS_AHEAD_MAX as u64) as usize
    }
}

impl Machine {
    /// Sends `out` to `to` while receiving `inn` from `from`; empty data is not sent.
    ///
    /// # Safety
    /// `out` is readable, `inn` writable, and they do not overlap.
    pub(super) unsafe fn exchange(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        (out, to): (Data, u32),
        (inn, from): (Data, u32),
    ) -> Res<()> {
        // SAFETY: the caller's promise; the send is complete before the call returns.
        unsafe {
            if out.bytes() == 0 {
                return self.receive(comm, tag, inn, from);
            }
            let sent = self.coll_isend(comm, out.ptr, out.count, out.dt, to, tag)?;
            let received = self.receive(comm, tag, inn, from);
            received.and(self.coll_wait(&[sent]))
        }
    }

    /// Sends unless empty.
    ///
    /// # Safety
    /// `out` is readable.
    pub(super) unsafe fn send_to(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        out: Data,
        to: u32,
    ) -> Res<()> {
        if out.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.coll_send(comm, out.ptr, out.count, out.dt, to, tag) }
    }

    /// Receives unless empty.
    ///
    /// # Safety
    /// `inn` is writable.
    pub(super) unsafe fn receive(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        inn: Data,
        from: u32,
    ) -> Res<()> {
        if inn.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.coll_recv(comm, inn.ptr, inn.count, inn.dt, from, tag) }
    }

    pub(super) fn ahead(&self) -> Ahead {
        let begun = [(REQUEST_NULL, REQUEST_NULL, 0); STEPS_AHEAD_MAX];
        Ahead { begun, first: 0, next: 0, bytes: 0, limit: self.endpoint.ahead_bytes() }
    }

    /// Begins the sends of `step` and of as many after it as may go ahead, of `steps` in all, and
    /// what `inn` names of receives; empty data is not sent.
    ///
    /// # Safety
    /// What `out` and `inn` name is readable and writable until the step is completed.
    pub(super) unsafe fn begin_steps<'d>(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        ahead: &mut Ahead,
        (step, steps): (u64, u64),
        (out, inn): Both<'_, 'd>,
    ) -> Res<()> {
        let mut result = Ok(());
        while ahead.next < steps {
            let at = ahead.next;
            let (data, to) = out(at);
            let bytes = data.bytes();
            if !ahead.admits(step, bytes) {
                break;
            }
            let (mut sent, mut posted) = (Ok(REQUEST_NULL), Ok(REQUEST_NULL));
            // SAFETY: the caller's promise.
            unsafe {
                if let Some((room, from)) = inn.map(|inn| inn(at)).filter(|r| r.0.bytes() > 0) {
                    posted = self.coll_irecv(comm, room.ptr, room.count, room.dt, from, tag);
                }
                if bytes > 0 {
                    sent = self.coll_isend(comm, data.ptr, data.count, data.dt, to, tag);
                }
            }
            let reqs = [sent, posted].map(|r| r.unwrap_or(REQUEST_NULL));
            result = result.and(sent.and(posted).map(drop));
            ahead.begun[Ahead::slot(at)] = (reqs[0], reqs[1], bytes);
            ahead.bytes += bytes;
            ahead.next += 1;
        }
        result
    }

    /// Completes the first step that is not complete yet.
    pub(super) fn end_step(&mut self, ahead: &mut Ahead) -> Res<()> {
        let (sent, posted, bytes) = ahead.begun[Ahead::slot(ahead.first)];
        ahead.first += 1;
        ahead.bytes -= bytes;
        self.coll_wait(&[posted, sent])
    }

    /// Completes what was begun.
    pub(super) fn end_steps(&mut self, ahead: &mut Ahead) -> Res<()> {
        let mut result = Ok(());
        while ahead.first < ahead.next {
            result = result.and(self.end_step(ahead));
        }
        result
    }

    /// Every rank sends `out(r)` to each rank `r` and receives `inn(r)` from it, in one order,
    /// as many at once as may go ahead; its own part is copied, unless `own` is false (it is in
    /// place already).
    ///
    /// # Safety
    /// As for `exchange`, for all ranks.
    pub(super) unsafe fn pairwise(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        out: ByRank,
        inn: ByRank,
        own: bool,
    ) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let mut result = Ok(());
        // SAFETY: the caller's promise.
        unsafe {
            if own {
                result = copy(out(me), inn(me));
            }
            let steps = u64::from(n - 1);
            let peers = |step: u64| {
                let k = step as u32 + 1;
                ((me + k) % n, (me + n - k) % n)
            };
            let give = |step| (out(peers(step).0), peers(step).0);
            let take = |step| (inn(peers(step).1), peers(step).1);
            let mut ahead = self.ahead();
            for step in 0..steps {
                let both: Both = (&give, Some(&take));
                let begun = self.begin_steps(comm, tag, &mut ahead, (step, steps), both);
                result = result.and(begun).and(self.end_step(&mut ahead));
            }
        }
        result
    }

    /// At the root of a gather: receives `inn(r)` from every other rank.
    ///
    /// # Safety
    /// The buffers are writable.
    pub(super) unsafe fn collect(&mut self, comm: &Rc<Comm>, tag: i32, inn: ByRank) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let steps = u64::from(n - 1);
        let take = |step: u64| {
            let from = (me + 1 + step as u32) % n;
            (inn(from), from)
        };
        let nothing = inn(me);
        let give = |_| (Data { count: 0, ..nothing }, me);
        let mut ahead = self.ahead();
        let mut result = Ok(());
        for step in 0..steps {
            let both: Both = (&give, Some(&take));
            // SAFETY: the caller's promise.
            let begun = unsafe { self.begin_steps(comm, tag, &mut ahead, (step, steps), both) };
            result = result.and(begun).and(self.end_step(&mut ahead));
        }
        result
    }

    /// At the root of a scatter: sends `out(r)` to every other rank.
    ///
    /// # Safety
    /// The buffers are readable.
    pub(super) unsafe fn distribute(&mut self, comm: &Rc<Comm>, tag: i32, out: ByRank) -> Res<()> {
        let mut pending: [ReqId; SENDS_MAX] = [crate::consts::REQUEST_NULL; SENDS_MAX];
        let mut used = 0;
        let mut result = Ok(());
        for to in (0..comm.size()).filter(|&r| r != comm.rank) {
            let data = out(to);
            if data.bytes() == 0 {
                continue;
            }
            // SAFETY: the caller's promise; all sends are complete before the call returns.
            match unsafe { self.coll_isend(comm, data.ptr, data.count, data.dt, to, tag) } {
                Ok(request) => {
                    pending[used] = request;
                    used += 1;
                }
                Err(e) => result = result.and(Err(e)),
            }
            if used == SENDS_MAX {
                result = result.and(self.coll_wait(&pending));
                used = 0;
            }
        }
        result.and(self.coll_wait(&pending[..used]))
    }
}
