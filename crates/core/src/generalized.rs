//! Generalized requests (MPI 5.0 section 12.2): operations of the program, which says itself when
//! they are complete.

use std::rc::Rc;

use crate::consts::COMM_SELF;
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Op, State};
use crate::status::Status;

/// Fills a status; returns an error code.
pub type QueryFn = Rc<dyn Fn(&mut Status) -> i32>;
pub type FreeFn = Rc<dyn Fn() -> i32>;
/// Whether the request is complete already.
pub type CancelFn = Rc<dyn Fn(bool) -> i32>;

/// The program's functions of one.
#[derive(Clone)]
pub struct Generalized {
    pub query: QueryFn,
    pub free: FreeFn,
    pub cancel: CancelFn,
}

fn result(code: i32) -> Res<()> {
    if code == 0 { Ok(()) } else { Err(Class(code)) }
}

impl Machine {
    pub fn grequest_start(&mut self, functions: Generalized) -> Res<Handle> {
        let comm = self.comms.get(COMM_SELF)?;
        self.new_request(&comm, COMM_SELF, Op::Generalized(functions))
    }

    pub(crate) fn generalized(&self, req: Handle) -> Option<Generalized> {
        match self.request(req).map(|r| &r.op) {
            Some(Op::Generalized(functions)) => Some(functions.clone()),
            _ => None,
        }
    }

    pub fn grequest_complete(&mut self, req: Handle) -> Res<()> {
        let functions = self.generalized(req).ok_or(class::REQUEST)?;
        let r = self.request(req).ok_or(class::REQUEST)?;
        if r.state != State::Active {
            return Err(class::REQUEST);
        }
        let freed = r.orphan;
        self.finish(req);
        if freed { result(self.lend(|| (functions.free)())) } else { Ok(()) }
    }

    /// The status of one that is complete.
    pub(crate) fn query(&mut self, functions: &Generalized) -> (Status, Option<Class>) {
        let mut status = Status::EMPTY;
        let code = self.lend(|| (functions.query)(&mut status));
        (status, result(code).err())
    }

    /// The last that is heard of one.
    pub(crate) fn release(&mut self, functions: &Generalized) -> Option<Class> {
        result(self.lend(|| (functions.free)())).err()
    }

    pub(crate) fn cancel_generalized(
        &mut self,
        functions: &Generalized,
        complete: bool,
    ) -> Res<()> {
        result(self.lend(|| (functions.cancel)(complete)))
    }
}
