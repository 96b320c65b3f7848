//! Persistent requests (MPI 5.0 section 3.9).

use std::rc::Rc;

use crate::comm::Comm;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::{SendMode, check_tag, peer, source_of};
use crate::request::{Op, State, Template};
use crate::status::Status;

#[allow(clippy::too_many_arguments)]
impl Machine {
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

    pub(crate) fn persistent(
        &mut self,
        comm: &Rc<Comm>,
        handle: Handle,
        template: Template,
    ) -> Res<Handle> {
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
            // SAFETY: the program promised the buffers with the request.
            Template::Plan(plan) => unsafe { self.begin_plan(req, plan)? },
            Template::Partitioned(p) => self.start_partitioned(req, &p)?,
            Template::Send { mode, data, dest, tag } => match peer(&comm, dest)? {
                None => self.activate(req, Op::Nothing, State::Done, Status::EMPTY),
                Some(dest) if self.check_peer(&comm, dest).is_err() => {
                    let why = self.check_peer(&comm, dest).err().unwrap_or(class::OTHER);
                    self.fail_at_once(req, why);
                }
                Some(dest) => {
                    let op = self.start_send(&comm, comm.ctx(), data, dest, tag, mode);
                    self.activate(req, Op::Send(op), State::Active, Status::EMPTY);
                    self.track_send(req);
                }
            },
            Template::Recv { data, source, tag } => match source_of(&comm, source, tag)? {
                None => self.activate(req, Op::Nothing, State::Done, Status::PROC_NULL),
                Some(src) => {
                    let op = self.recv_op(comm.ctx(), data, src, tag);
                    self.activate(req, Op::Recv(op), State::Active, Status::EMPTY);
                    self.post_recv(req);
                    self.check_begun(req, &comm);
                }
            },
        }
        Ok(())
    }

    pub(crate) fn activate(&mut self, req: Handle, op: Op, state: State, status: Status) {
        if let Some(r) = self.engine.reqs.get_mut(req) {
            r.op = op;
            r.state = state;
            r.status = status;
            r.error = None;
        }
    }
}
