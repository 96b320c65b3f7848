//! Partitioned communication (MPI 5.0 section 4.2): a message whose sender tells part by part that
//! it is ready. It leaves when the last part is.
//!
//! A send and a receive belong together by the order in which they were made for the same peer and
//! tag. So each has a number among those; the messages of the first go by the tag alone, in a
//! context of their own, those of others by tag and number in another. Whether a part has arrived
//! is chance, and goes through the door.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::{SendMode, check_tag, peer};
use crate::request::{Data, Op, State, Template};
use crate::status::Status;

/// Pairs of one peer and tag that are told apart, while tags are below 2^20.
const PAIRS: i32 = 1 << 11;

/// What a partitioned request is.
pub(crate) struct Partitioned {
    sends: bool,
    data: Data,
    peer: i32,
    tag: i32,
    /// Whether its pair is the first of its peer and tag, and the tag of its messages.
    lane: (bool, i32),
    parts: u32,
    /// Of a send that is active: which parts are ready, and how many are not.
    ready: RefCell<Vec<bool>>,
    left: Cell<u32>,
}

/// The program's buffer: so many parts of `count` elements each.
pub struct Parts {
    pub buf: *mut u8,
    pub parts: i32,
    pub count: i64,
    pub dt: Handle,
}

impl Partitioned {
    /// The status of one that is complete, with the program's tag in place of the lane's.
    pub(crate) fn told(&self, status: Status) -> Status {
        match status.tag == self.lane.1 {
            true => Status { tag: self.tag, ..status },
            false => status,
        }
    }
}

impl Machine {
    /// `MPI_Psend_init` and `MPI_Precv_init`.
    ///
    /// # Safety
    /// The buffer must hold whenever the request is active.
    pub unsafe fn partitioned_init(
        &mut self,
        sends: bool,
        of: Parts,
        rank: i32,
        tag: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let c = self.comms.get(comm)?;
        let parts = u32::try_from(of.parts).map_err(|_| class::ARG)?;
        let all = of.count.checked_mul(i64::from(parts)).ok_or(class::COUNT)?;
        let data = self.data(of.buf, all, of.dt)?;
        check_tag(tag)?;
        peer(&c, rank)?;
        let number = c.next_pair(sends, rank, tag);
        let lane = match number {
            0 => (true, tag),
            k => (false, tag.wrapping_mul(PAIRS).wrapping_add(k % PAIRS) & i32::MAX),
        };
        let (ready, left) = (RefCell::default(), Cell::new(0));
        let what = Partitioned { sends, data, peer: rank, tag, lane, parts, ready, left };
        self.persistent(&c, comm, Template::Partitioned(Rc::new(what)))
    }

    /// `MPI_Start` of one.
    pub(crate) fn start_partitioned(&mut self, req: Handle, p: &Partitioned) -> Res<()> {
        let comm = self.request(req).ok_or(class::REQUEST)?.comm.clone();
        let Some(peer) = peer(&comm, p.peer)? else {
            let status = if p.sends { Status::EMPTY } else { Status::PROC_NULL };
            self.activate(req, Op::Nothing, State::Done, status);
            return Ok(());
        };
        if !p.sends {
            let ctx = comm.partitioned_ctx(p.lane.0);
            let op = self.recv_op(ctx, p.data.clone(), Some(comm.world_rank(peer)), p.lane.1);
            self.activate(req, Op::Recv(op), State::Active, Status::EMPTY);
            self.post_recv(req);
            self.check_begun(req, &comm);
            return Ok(());
        }
        *p.ready.borrow_mut() = vec![false; p.parts as usize];
        p.left.set(p.parts);
        self.activate(req, Op::Nothing, State::Active, Status::EMPTY);
        if p.parts == 0 {
            self.send_parts(req, p);
        }
        Ok(())
    }

    fn partitioned(&self, req: Handle, sends: bool) -> Res<Rc<Partitioned>> {
        let r = self.request(req).ok_or(class::REQUEST)?;
        match r.template.as_deref() {
            Some(Template::Partitioned(p)) if p.sends == sends => Ok(p.clone()),
            _ => Err(class::REQUEST),
        }
    }

    /// `MPI_Pready` for the parts `first..=last`.
    pub fn pready(&mut self, req: Handle, first: i32, last: i32) -> Res<()> {
        let p = self.partitioned(req, true)?;
        if self.request(req).is_none_or(|r| r.state == State::Inactive) {
            return Err(class::REQUEST);
        }
        let known = 0..i64::from(p.parts);
        if first <= last && !(known.contains(&first.into()) && known.contains(&last.into())) {
            return Err(class::ARG);
        }
        for part in first..=last {
            // Where there is no peer, nothing is kept of it.
            let mut ready = p.ready.borrow_mut();
            let Some(ready) = ready.get_mut(part as usize) else { continue };
            if std::mem::replace(ready, true) {
                return Err(class::ARG);
            }
            p.left.set(p.left.get() - 1);
        }
        if first <= last && p.left.get() == 0 && !p.ready.borrow().is_empty() {
            p.ready.borrow_mut().clear();
            self.send_parts(req, &p);
        }
        Ok(())
    }

    fn send_parts(&mut self, req: Handle, p: &Partitioned) {
        let Some(comm) = self.request(req).map(|r| r.comm.clone()) else { return };
        let Ok(Some(dest)) = peer(&comm, p.peer) else { return };
        if let Err(why) = self.check_peer(&comm, dest) {
            self.fail_at_once(req, why);
            return;
        }
        let ctx = comm.partitioned_ctx(p.lane.0);
        let op = self.start_send(&comm, ctx, p.data.clone(), dest, p.lane.1, SendMode::Standard);
        self.activate(req, Op::Send(op), State::Active, Status::EMPTY);
        self.track_send(req);
    }

    /// `MPI_Parrived`: a part has when all have.
    pub fn parrived(&mut self, req: Handle, part: i32) -> Res<bool> {
        if req == crate::consts::REQUEST_NULL {
            return Ok(true);
        }
        let p = self.partitioned(req, false)?;
        if !(0..i64::from(p.parts)).contains(&part.into()) {
            return Err(class::ARG);
        }
        self.request_get_status(req).map(|status| status.is_some())
    }
}
