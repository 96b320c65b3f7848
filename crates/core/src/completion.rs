//! Completion of requests (MPI 5.0 sections 3.7.3 to 3.7.6, 3.8.4): wait, test and cancel.
//!
//! Wait and Waitall have one outcome; all others ask the door. An outcome is recorded before it is
//! returned; after a restore in the middle of a live wait the door is asked again.

use eyrie_ledger::divergence::Divergence;
use eyrie_ledger::door::{Call, Outcome, Verdict};

use crate::consts::REQUEST_NULL;
use crate::engine::Wake;
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Op, Request, State};
use crate::status::Status;

/// Which of several requests is complete, its status, and the error it met.
pub type Found = (usize, Status, Option<Class>);

impl Machine {
    /// Asks the door; a replay that does not fit ends here.
    pub(crate) fn ask(&mut self, call: Call) -> Verdict {
        self.await_turn();
        match self.endpoint.door.ask(call) {
            // It is made when the outcome is recorded.
            Ok(Verdict::Live) => Verdict::Live,
            Ok(verdict) => {
                self.step();
                verdict
            }
            Err(d) => self.endpoint.diverged(&d),
        }
    }

    /// Records what a call came to.
    pub(crate) fn record(&mut self, call: Call, outcome: &Outcome) {
        self.step();
        self.endpoint.door.record(call, outcome);
    }

    /// Records that a call was fruitless.
    pub(crate) fn fruitless(&mut self) {
        self.step();
        self.endpoint.door.fruitless();
    }

    /// The recorded outcome cannot be one of this call with these arguments.
    pub(crate) fn misreplayed(&self, call: Call) -> ! {
        let rank = self.endpoint.rank();
        let text = format!("rank {rank}: the recorded outcome does not fit this {call:?}");
        self.endpoint.diverged(&Divergence(text))
    }

    /// Whether the handle names a request that will complete (not null, not inactive).
    pub fn active(&self, req: Handle) -> Res<bool> {
        if req == REQUEST_NULL {
            return Ok(false);
        }
        let r = self.request(req).ok_or(class::REQUEST)?;
        Ok(r.state != State::Inactive)
    }

    fn actives(&self, reqs: &[Handle]) -> Res<bool> {
        let mut any = false;
        for &req in reqs {
            any |= self.active(req)?;
        }
        Ok(any)
    }

    /// Ends a finished request: its status, with its error if it had one.
    fn take(&mut self, req: &mut Handle) -> (Status, Option<Class>) {
        self.put_together(*req);
        let Some(r) = self.engine.reqs.get_mut(*req) else { return (Status::EMPTY, None) };
        if r.state != State::Done {
            return (Status::EMPTY, None);
        }
        if matches!(r.op, Op::Generalized(_)) {
            return self.take_generalized(req);
        }
        let result = (r.told(), r.error);
        r.op = Op::Nothing;
        if r.template.is_some() {
            r.state = State::Inactive;
        } else {
            self.engine.reqs.remove(*req);
            *req = REQUEST_NULL;
        }
        result
    }

    fn take_generalized(&mut self, req: &mut Handle) -> (Status, Option<Class>) {
        let Some(functions) = self.generalized(*req) else { return (Status::EMPTY, None) };
        let (status, error) = self.query(&functions);
        let freed = self.release(&functions);
        self.engine.reqs.remove(*req);
        *req = REQUEST_NULL;
        (status, error.or(freed))
    }

    fn take_one(&mut self, req: &mut Handle) -> Res<Status> {
        let (status, error) = self.take(req);
        error.map_or(Ok(status), Err)
    }

    pub fn wait(&mut self, req: &mut Handle) -> Res<Status> {
        if !self.active(*req)? {
            return Ok(Status::EMPTY);
        }
        self.await_request(*req);
        if self.is_stuck(*req) {
            return Err(class::PROC_FAILED_PENDING);
        }
        self.take_one(req)
    }

    pub fn test(&mut self, req: &mut Handle) -> Res<Option<Status>> {
        if !self.active(*req)? {
            return Ok(Some(Status::EMPTY));
        }
        let h = *req;
        if !self.poll_call(Call::Test, &[h]) {
            return if self.is_stuck(h) { Err(class::PROC_FAILED_PENDING) } else { Ok(None) };
        }
        self.take_one(req).map(Some)
    }

    fn all_done(&self, reqs: &[Handle]) -> bool {
        reqs.iter().all(|r| self.engine.is_done(*r))
    }

    /// A yes-or-no call: whether all of these are complete, as chance or the recording has it.
    fn poll_call(&mut self, call: Call, reqs: &[Handle]) -> bool {
        match self.ask(call) {
            Verdict::Fruitless => false,
            Verdict::Forced(_) => {
                reqs.iter().for_each(|req| self.open(*req));
                self.wait_for(|m| m.all_done(reqs));
                true
            }
            Verdict::Live => {
                self.progress();
                if self.all_done(reqs) {
                    self.record(call, &Outcome::One(0));
                    return true;
                }
                self.fruitless();
                self.polled();
                false
            }
        }
    }

    /// Statuses: empty slice when ignored, else one for each request.
    pub fn waitall(&mut self, reqs: &mut [Handle], statuses: &mut [Status]) -> Res<()> {
        self.actives(reqs)?;
        reqs.iter().for_each(|req| self.open(*req));
        for req in reqs.iter() {
            self.await_request(*req);
        }
        self.take_all(reqs, statuses)
    }

    fn take_all(&mut self, reqs: &mut [Handle], statuses: &mut [Status]) -> Res<()> {
        let mut result = Ok(());
        for (at, req) in reqs.iter_mut().enumerate() {
            let stuck = self.is_stuck(*req).then_some(class::PROC_FAILED_PENDING);
            let (mut status, error) = self.take(req);
            if let Some(error) = error.or(stuck) {
                status.error = error.0;
                result = Err(class::IN_STATUS);
            }
            if let Some(slot) = statuses.get_mut(at) {
                *slot = status;
            }
        }
        result
    }

    pub fn testall(&mut self, reqs: &mut [Handle], statuses: &mut [Status]) -> Res<bool> {
        if self.actives(reqs)? {
            let all = reqs.to_vec();
            if !self.poll_call(Call::Testall, &all) && !self.all_settled(&all) {
                return Ok(false);
            }
        }
        self.take_all(reqs, statuses).map(|()| true)
    }

    /// Whether each is complete or stuck, and one is stuck.
    fn all_settled(&self, reqs: &[Handle]) -> bool {
        let stuck = |req: &Handle| self.is_stuck(*req);
        reqs.iter().any(stuck) && reqs.iter().all(|req| self.engine.is_done(*req) || stuck(req))
    }

    fn first_stuck(&self, reqs: &[Handle]) -> Option<usize> {
        reqs.iter().position(|req| self.is_stuck(*req))
    }

    /// One of them is complete, or none will be before that is handled.
    fn any_settled(&self, reqs: &[Handle]) -> bool {
        self.first_done(reqs).or_else(|| self.first_stuck(reqs)).is_some()
    }

    /// Of several requests the only one that can complete is the one that is going to be named.
    fn open_only(&mut self, reqs: &[Handle]) {
        let mut active = reqs.iter().filter(|req| self.active(**req).unwrap_or(false));
        if let (Some(&only), None) = (active.next(), active.next()) {
            self.open(only);
        }
    }

    fn first_done(&self, reqs: &[Handle]) -> Option<usize> {
        let done = |r: &Handle| self.request(*r).is_some_and(|r| r.state == State::Done);
        reqs.iter().position(done)
    }

    /// `None`: no active request.
    pub fn waitany(&mut self, reqs: &mut [Handle]) -> Res<Option<Found>> {
        if !self.actives(reqs)? {
            return Ok(None);
        }
        let list = reqs.to_vec();
        let index = loop {
            match self.ask(Call::Waitany) {
                Verdict::Forced(outcome) => break self.forced_index(Call::Waitany, &list, outcome),
                Verdict::Fruitless => self.misreplayed(Call::Waitany),
                Verdict::Live => {
                    self.open_only(&list);
                    if self.wait_until(|m| m.any_settled(&list)) == Wake::Restored {
                        continue;
                    }
                    if let (None, Some(index)) = (self.first_done(&list), self.first_stuck(&list)) {
                        return Ok(Some(stuck(index)));
                    }
                    if let Some(index) = self.first_done(&list) {
                        let outcome = Outcome::One(index as u32);
                        self.record(Call::Waitany, &outcome);
                        break index;
                    }
                }
            }
        };
        Ok(Some(self.take_found(reqs, index)))
    }

    /// Outer `None`: nothing is complete; inner `None`: no active request.
    pub fn testany(&mut self, reqs: &mut [Handle]) -> Res<Option<Option<Found>>> {
        if !self.actives(reqs)? {
            return Ok(Some(None));
        }
        let index = match self.ask(Call::Testany) {
            Verdict::Fruitless => return Ok(None),
            Verdict::Forced(outcome) => self.forced_index(Call::Testany, reqs, outcome),
            Verdict::Live => {
                self.progress();
                let Some(index) = self.first_done(reqs) else {
                    self.fruitless();
                    self.polled();
                    return Ok(self.first_stuck(reqs).map(|index| Some(stuck(index))));
                };
                self.record(Call::Testany, &Outcome::One(index as u32));
                index
            }
        };
        Ok(Some(Some(self.take_found(reqs, index))))
    }

    /// Which request failed is told as well: its handle is gone.
    fn take_found(&mut self, reqs: &mut [Handle], index: usize) -> Found {
        let (status, error) = self.take(&mut reqs[index]);
        (index, status, error)
    }

    /// The recorded index, once that request is complete.
    fn forced_index(&mut self, call: Call, reqs: &[Handle], outcome: Outcome) -> usize {
        let Outcome::One(index) = outcome else { self.misreplayed(call) };
        let Some(&req) = reqs.get(index as usize) else { self.misreplayed(call) };
        if !self.active(req).unwrap_or(false) {
            self.misreplayed(call);
        }
        self.await_request(req);
        index as usize
    }

    /// Indices in the order they are reported; `None`: no active request.
    pub fn waitsome(&mut self, reqs: &mut [Handle]) -> Res<Option<Vec<(usize, Status)>>> {
        if !self.actives(reqs)? {
            return Ok(None);
        }
        let list = reqs.to_vec();
        loop {
            match self.ask(Call::Waitsome) {
                Verdict::Forced(outcome) => {
                    let many = self.forced_many(Call::Waitsome, &list, outcome);
                    return self.take_some(reqs, &many).map(Some);
                }
                Verdict::Fruitless => self.misreplayed(Call::Waitsome),
                Verdict::Live => {
                    self.open_only(&list);
                    if self.wait_until(|m| m.any_settled(&list)) == Wake::Restored {
                        continue;
                    }
                    let many = self.record_done(Call::Waitsome, &list);
                    let found = self.take_some(reqs, &many)?;
                    return Ok(Some(self.with_stuck(reqs, found)));
                }
            }
        }
    }

    pub fn testsome(&mut self, reqs: &mut [Handle]) -> Res<Option<Vec<(usize, Status)>>> {
        if !self.actives(reqs)? {
            return Ok(None);
        }
        let many = match self.ask(Call::Testsome) {
            Verdict::Fruitless => return Ok(Some(Vec::new())),
            Verdict::Forced(outcome) => self.forced_many(Call::Testsome, reqs, outcome),
            Verdict::Live => {
                self.progress();
                if self.first_done(reqs).is_none() {
                    self.fruitless();
                    self.polled();
                    return Ok(Some(self.with_stuck(reqs, Vec::new())));
                }
                self.record_done(Call::Testsome, reqs)
            }
        };
        self.take_some(reqs, &many).map(Some)
    }

    fn record_done(&mut self, call: Call, reqs: &[Handle]) -> Vec<usize> {
        let done = |r: &Handle| self.request(*r).is_some_and(|r| r.state == State::Done);
        let many: Vec<usize> =
            reqs.iter().enumerate().filter(|(_, r)| done(r)).map(|(i, _)| i).collect();
        let outcome = Outcome::Many(many.iter().map(|i| *i as u32).collect());
        self.record(call, &outcome);
        many
    }

    fn forced_many(&mut self, call: Call, reqs: &[Handle], outcome: Outcome) -> Vec<usize> {
        let Outcome::Many(many) = outcome else { self.misreplayed(call) };
        for &index in &many {
            self.forced_index(call, reqs, Outcome::One(index));
        }
        many.iter().map(|i| *i as usize).collect()
    }

    /// The same with those that are stuck, which stay.
    fn with_stuck(&self, reqs: &[Handle], mut found: Vec<(usize, Status)>) -> Vec<(usize, Status)> {
        let stuck = (0..).zip(reqs).filter(|(_, req)| self.is_stuck(**req));
        let error = class::PROC_FAILED_PENDING.0;
        found.extend(stuck.map(|(index, _)| (index, Status { error, ..Status::EMPTY })));
        found
    }

    fn take_some(&mut self, reqs: &mut [Handle], many: &[usize]) -> Res<Vec<(usize, Status)>> {
        let mut out = Vec::with_capacity(many.len());
        for &index in many {
            let (mut status, error) = self.take(&mut reqs[index]);
            status.error = error.map_or(0, |e| e.0);
            out.push((index, status));
        }
        Ok(out)
    }

    pub fn request_get_status(&mut self, req: Handle) -> Res<Option<Status>> {
        if !self.active(req)? {
            return Ok(Some(Status::EMPTY));
        }
        if !self.poll_call(Call::GetStatus, &[req]) {
            return Ok(None);
        }
        self.put_together(req);
        if let Some(functions) = self.generalized(req) {
            let (status, error) = self.query(&functions);
            return error.map_or(Ok(Some(status)), Err);
        }
        Ok(self.request(req).map(Request::told))
    }

    /// Frees the request; an active one goes when it is complete.
    pub fn request_free(&mut self, req: &mut Handle) -> Res<()> {
        let r = self.engine.reqs.get_mut(*req).ok_or(class::REQUEST)?;
        let active = r.state == State::Active;
        if active {
            r.template = None;
        }
        if let (Op::Generalized(functions), false) = (&r.op, active) {
            let functions = functions.clone();
            self.engine.reqs.remove(*req);
            *req = REQUEST_NULL;
            return self.release(&functions).map_or(Ok(()), Err);
        }
        if !self.free_later(*req) {
            match self.engine.reqs.get_mut(*req) {
                Some(r) if active => r.orphan = true,
                _ => drop(self.engine.reqs.remove(*req)),
            }
        }
        *req = REQUEST_NULL;
        Ok(())
    }

    /// Cancels a receive that has not matched. Sends are in the log already and stay.
    pub fn cancel(&mut self, req: Handle) -> Res<()> {
        if let Some(functions) = self.generalized(req) {
            let complete = self.engine.is_done(req);
            return self.cancel_generalized(&functions, complete);
        }
        let r = self.engine.reqs.get(req).ok_or(class::REQUEST)?;
        let (post, ctx) = match (&r.op, r.state) {
            (Op::Recv(recv), State::Active) => (recv.post, recv.ctx),
            (Op::Recv(recv), State::Done) => (recv.post, recv.ctx),
            (_, State::Inactive) => return Err(class::REQUEST),
            _ => return Ok(()),
        };
        let cancelled = match self.ask(Call::Cancel) {
            Verdict::Fruitless => self.misreplayed(Call::Cancel),
            Verdict::Forced(Outcome::One(yes)) => yes == 1,
            Verdict::Forced(Outcome::Many(_)) => self.misreplayed(Call::Cancel),
            Verdict::Live => {
                let matched = self.request(req).is_some_and(|r| {
                    matches!(&r.op, Op::Recv(v) if v.matched) || r.state == State::Done
                });
                if !matched {
                    self.endpoint.door.record_cancelled(post);
                }
                self.record(Call::Cancel, &Outcome::One(u32::from(!matched)));
                !matched
            }
        };
        if cancelled {
            self.engine.queues(ctx).withdraw(req);
            if let Some(r) = self.engine.reqs.get_mut(req) {
                r.status = Status { cancelled: true, ..Status::EMPTY };
            }
            self.finish(req);
        }
        Ok(())
    }

    /// Communicator whose error handler an error of this request goes to; none if it is no request.
    pub fn request_comm(&self, req: Handle) -> Handle {
        self.request(req).map_or(Handle(0), |r| r.comm_handle)
    }

    /// Whether any communication is still pending (finalize waits for it).
    pub fn has_pending_sends(&self) -> bool {
        self.engine.queued_total > 0 || !self.engine.unacked.is_empty()
    }

    /// Completes what was started and not waited for.
    pub fn drain_sends(&mut self) {
        self.wait_for(|m| !m.has_pending_sends());
    }
}

/// A receive that does not complete before a loss is acknowledged.
fn stuck(index: usize) -> Found {
    (index, Status::EMPTY, Some(class::PROC_FAILED_PENDING))
}
