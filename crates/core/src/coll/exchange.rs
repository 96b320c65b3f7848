//! The message patterns that collectives are made of.
//!
//! An error (a message longer than its buffer) does not break a pattern off: the others may be
//! waiting for the rest. The first error is returned at the end.

use std::rc::Rc;

use super::data::{Data, copy};
use crate::comm::Comm;
use crate::error::Res;
use crate::machine::Machine;
use crate::p2p::ReqId;

/// Buffer for or from each rank.
pub(super) type ByRank<'a, 'd> = &'a dyn Fn(u32) -> Data<'d>;

/// Sends of one rank that may be under way at once.
const SENDS_MAX: usize = 16;

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

    /// Every rank sends `out(r)` to each rank `r` and receives `inn(r)` from it, one partner after
    /// the other; its own part is copied, unless `own` is false (it is in place already).
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
            for k in 1..n {
                let (to, from) = ((me + k) % n, (me + n - k) % n);
                let step = self.exchange(comm, tag, (out(to), to), (inn(from), from));
                result = result.and(step);
            }
        }
        result
    }

    /// At the root of a gather: receives `inn(r)` from every other rank.
    ///
    /// # Safety
    /// The buffers are writable.
    pub(super) unsafe fn collect(&mut self, comm: &Rc<Comm>, tag: i32, inn: ByRank) -> Res<()> {
        let mut result = Ok(());
        for from in (0..comm.size()).filter(|&r| r != comm.rank) {
            // SAFETY: the caller's promise.
            result = result.and(unsafe { self.receive(comm, tag, inn(from), from) });
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
