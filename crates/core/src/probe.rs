//! Probes, matched probes and matched receives (MPI 5.0 section 3.8).
//!
//! Whether a message is there, and from whom, is chance: it goes through the door. A blocking probe
//! of a named source has only one outcome and does not.

use std::rc::Rc;

use eyrie_ledger::door::{Call, Outcome, Verdict};

use crate::comm::Comm;
use crate::consts::{MESSAGE_NO_PROC, MESSAGE_NULL};
use crate::engine::Wake;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::source_of;
use crate::request::Op;
use crate::status::Status;

/// What a probe looks for.
#[derive(Clone)]
struct Wanted {
    comm: Rc<Comm>,
    ctx: u32,
    src: Option<u32>,
    tag: i32,
}

impl Machine {
    pub fn probe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<Status> {
        let Some(want) = self.wanted(source, tag, comm)? else { return Ok(Status::PROC_NULL) };
        let (slot, _) = self.probe_blocking(Call::Probe, &want)?;
        self.unexpected_status(slot).ok_or(class::INTERN)
    }

    pub fn iprobe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<Option<Status>> {
        let Some(want) = self.wanted(source, tag, comm)? else {
            return Ok(Some(Status::PROC_NULL));
        };
        let Some((slot, _)) = self.probe_now(Call::Iprobe, &want)? else { return Ok(None) };
        Ok(self.unexpected_status(slot))
    }

    pub fn mprobe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<(Handle, Status)> {
        let Some(want) = self.wanted(source, tag, comm)? else {
            return Ok((MESSAGE_NO_PROC, Status::PROC_NULL));
        };
        let (slot, src) = self.probe_blocking(Call::Mprobe, &want)?;
        self.take_message(slot, src)
    }

    pub fn improbe(
        &mut self,
        source: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Option<(Handle, Status)>> {
        let Some(want) = self.wanted(source, tag, comm)? else {
            return Ok(Some((MESSAGE_NO_PROC, Status::PROC_NULL)));
        };
        match self.probe_now(Call::Improbe, &want)? {
            Some((slot, src)) => self.take_message(slot, src).map(Some),
            None => Ok(None),
        }
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`.
    pub unsafe fn mrecv(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        message: &mut Handle,
    ) -> Res<Status> {
        // SAFETY: the caller's promise.
        let mut req = unsafe { self.imrecv(buf, count, dt, message)? };
        self.wait(&mut req)
    }

    /// # Safety
    /// `buf` must hold `count` elements of `dt`, until the request is complete.
    pub unsafe fn imrecv(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        message: &mut Handle,
    ) -> Res<Handle> {
        let data = self.data(buf, count, dt)?;
        let own = crate::consts::COMM_SELF;
        let comm = self.comms.get(own)?;
        if *message == MESSAGE_NO_PROC {
            *message = MESSAGE_NULL;
            return self.finished_request(&comm, own, Status::PROC_NULL);
        }
        let found = self.engine.messages.remove(*message).ok_or(class::REQUEST)?;
        *message = MESSAGE_NULL;
        let mut op = self.recv_op(found.ctx, data, Some(found.src), found.tag);
        op.forced = true;
        let req = self.new_request(&comm, own, Op::Recv(op))?;
        self.consume_unexpected(req, found);
        self.check_begun_closely(req);
        Ok(req)
    }

    /// Waits for a message of the library's own, which is received from the rank that this gives,
    /// or until `other` finds something: that number behind those of all ranks.
    pub(crate) fn probe_library(
        &mut self,
        ctx: u32,
        tag: i32,
        other: impl Fn(&Machine) -> Option<u32>,
    ) -> u32 {
        let ranks = self.world().1;
        loop {
            match self.ask(Call::Probe) {
                Verdict::Forced(Outcome::One(was)) => return was,
                Verdict::Forced(_) | Verdict::Fruitless => self.misreplayed(Call::Probe),
                Verdict::Live => {
                    let mut found = None;
                    let look = |m: &mut Machine| {
                        let src = m.found(ctx, None, tag).map(|(_, src)| src);
                        found = src.or_else(|| other(m).map(|number| ranks + number));
                        found.is_some()
                    };
                    if self.wait_until(look) == Wake::Restored {
                        continue;
                    }
                    if let Some(found) = found {
                        self.record(Call::Probe, &Outcome::One(found));
                        return found;
                    }
                }
            }
        }
    }

    fn wanted(&self, source: i32, tag: i32, comm: Handle) -> Res<Option<Wanted>> {
        let comm = self.comms.get(comm)?;
        let src = source_of(&comm, source, tag)?;
        comm.usable()?;
        let ctx = comm.ctx();
        Ok(src.map(|src| Wanted { comm, ctx, src, tag }))
    }

    fn find(&mut self, want: &Wanted) -> Option<(usize, u32)> {
        self.found(want.ctx, want.src, want.tag)
    }

    /// The slot and source of a message that nobody has asked for yet.
    fn found(&mut self, ctx: u32, src: Option<u32>, tag: i32) -> Option<(usize, u32)> {
        let found = self.engine.queues(ctx).find_unexpected(src, tag);
        found.map(|(src, w)| (w.slot, src))
    }

    fn await_message(&mut self, want: &Wanted) -> Res<(usize, u32)> {
        loop {
            self.wait_for(|m| m.find(want).is_some() || m.is_hopeless(want));
            if let Some(found) = self.find(want) {
                return Ok(found);
            }
            self.hopeless(&want.comm, want.src).map_or(Ok(()), Err)?;
        }
    }

    fn is_hopeless(&self, want: &Wanted) -> bool {
        self.hopeless(&want.comm, want.src).is_some()
    }

    /// Waits for a message: its slot and source.
    fn probe_blocking(&mut self, call: Call, want: &Wanted) -> Res<(usize, u32)> {
        if want.src.is_some() {
            return self.await_message(want);
        }
        loop {
            match self.ask(call) {
                Verdict::Forced(Outcome::One(src)) => {
                    return self.await_message(&Wanted { src: Some(src), ..want.clone() });
                }
                Verdict::Forced(_) | Verdict::Fruitless => self.misreplayed(call),
                Verdict::Live => {
                    let settled = |m: &mut Self| m.find(want).is_some() || m.is_hopeless(want);
                    if self.wait_until(settled) == Wake::Restored {
                        continue;
                    }
                    if let Some((slot, src)) = self.find(want) {
                        self.record(call, &Outcome::One(src));
                        return Ok((slot, src));
                    }
                    self.hopeless(&want.comm, want.src).map_or(Ok(()), Err)?;
                }
            }
        }
    }

    /// Looks for a message without waiting.
    fn probe_now(&mut self, call: Call, want: &Wanted) -> Res<Option<(usize, u32)>> {
        Ok(match self.ask(call) {
            Verdict::Forced(Outcome::One(src)) => {
                Some(self.await_message(&Wanted { src: Some(src), ..want.clone() })?)
            }
            Verdict::Forced(Outcome::Many(_)) => self.misreplayed(call),
            Verdict::Fruitless => None,
            Verdict::Live => {
                self.progress();
                let found = self.find(want);
                match found {
                    Some((_, src)) => self.record(call, &Outcome::One(src)),
                    None => {
                        self.fruitless();
                        self.polled();
                        self.hopeless(&want.comm, want.src).map_or(Ok(()), Err)?;
                    }
                }
                found
            }
        })
    }

    fn unexpected_status(&self, slot: usize) -> Option<Status> {
        let u = self.engine.unexpected.get(slot)?.as_ref()?;
        let source = u.crank as i32;
        Some(Status { source, tag: u.tag, error: 0, bytes: u.len, cancelled: false })
    }

    /// A matched probe takes the message away from all receives.
    fn take_message(&mut self, slot: usize, src: u32) -> Res<(Handle, Status)> {
        let status = self.unexpected_status(slot).ok_or(class::INTERN)?;
        let message = self.engine.take_unexpected(slot).ok_or(class::INTERN)?;
        let whole = message.whole;
        let handle = self.engine.messages.insert(message)?;
        if !whole {
            self.redirect(src, handle);
        }
        Ok((handle, status))
    }
}
