//! Point-to-point communication (MPI 5.0 chapter 3): what the ABI and the collectives call.

use std::rc::Rc;

use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::status::Status;

/// Send modes (section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

/// A request of the library's own (collectives): not visible to the program, not subject to chance.
pub type ReqId = Handle;

#[allow(unused_variables, clippy::too_many_arguments, clippy::missing_safety_doc)]
impl Machine {
    // ---- for the collectives: named peers (ranks in `comm`), the collective context, no errors
    // but truncation; sends of one rank to one peer are received in the order of these calls.
    pub unsafe fn coll_send(&mut self, comm: &Rc<Comm>, buf: *const u8, count: u64, dt: &Rc<Datatype>, dest: u32, tag: i32) -> Res<()> { todo!() }
    pub unsafe fn coll_recv(&mut self, comm: &Rc<Comm>, buf: *mut u8, count: u64, dt: &Rc<Datatype>, src: u32, tag: i32) -> Res<()> { todo!() }
    pub unsafe fn coll_isend(&mut self, comm: &Rc<Comm>, buf: *const u8, count: u64, dt: &Rc<Datatype>, dest: u32, tag: i32) -> Res<ReqId> { todo!() }
    pub unsafe fn coll_irecv(&mut self, comm: &Rc<Comm>, buf: *mut u8, count: u64, dt: &Rc<Datatype>, src: u32, tag: i32) -> Res<ReqId> { todo!() }
    /// Completes and frees them all; first error wins, but all are completed.
    pub fn coll_wait(&mut self, reqs: &[ReqId]) -> Res<()> { todo!() }

    // ---- for the ABI
    pub unsafe fn send(&mut self, mode: SendMode, buf: *const u8, count: i64, dt: Handle, dest: i32, tag: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn isend(&mut self, mode: SendMode, buf: *const u8, count: i64, dt: Handle, dest: i32, tag: i32, comm: Handle) -> Res<Handle> { todo!() }
    pub unsafe fn recv(&mut self, buf: *mut u8, count: i64, dt: Handle, source: i32, tag: i32, comm: Handle) -> Res<Status> { todo!() }
    pub unsafe fn irecv(&mut self, buf: *mut u8, count: i64, dt: Handle, source: i32, tag: i32, comm: Handle) -> Res<Handle> { todo!() }
    pub unsafe fn sendrecv(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, dest: i32, stag: i32, rbuf: *mut u8, rcount: i64, rdt: Handle, source: i32, rtag: i32, comm: Handle) -> Res<Status> { todo!() }
    pub unsafe fn sendrecv_replace(&mut self, buf: *mut u8, count: i64, dt: Handle, dest: i32, stag: i32, source: i32, rtag: i32, comm: Handle) -> Res<Status> { todo!() }
    pub unsafe fn send_init(&mut self, mode: SendMode, buf: *const u8, count: i64, dt: Handle, dest: i32, tag: i32, comm: Handle) -> Res<Handle> { todo!() }
    pub unsafe fn recv_init(&mut self, buf: *mut u8, count: i64, dt: Handle, source: i32, tag: i32, comm: Handle) -> Res<Handle> { todo!() }
    pub fn start(&mut self, req: Handle) -> Res<()> { todo!() }

    pub fn probe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<Status> { todo!() }
    pub fn iprobe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<Option<Status>> { todo!() }
    pub fn mprobe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<(Handle, Status)> { todo!() }
    pub fn improbe(&mut self, source: i32, tag: i32, comm: Handle) -> Res<Option<(Handle, Status)>> { todo!() }
    pub unsafe fn mrecv(&mut self, buf: *mut u8, count: i64, dt: Handle, message: &mut Handle) -> Res<Status> { todo!() }
    pub unsafe fn imrecv(&mut self, buf: *mut u8, count: i64, dt: Handle, message: &mut Handle) -> Res<Handle> { todo!() }

    // Completion. Finished requests are set to REQUEST_NULL (persistent ones become inactive).
    // `Err` of a single request is its own class; of several: IN_STATUS with `Status::error` set in
    // each. `statuses`: empty when ignored, else as long as `reqs`.
    pub fn wait(&mut self, req: &mut Handle) -> Res<Status> { todo!() }
    pub fn test(&mut self, req: &mut Handle) -> Res<Option<Status>> { todo!() }
    pub fn waitall(&mut self, reqs: &mut [Handle], statuses: &mut [Status]) -> Res<()> { todo!() }
    pub fn testall(&mut self, reqs: &mut [Handle], statuses: &mut [Status]) -> Res<bool> { todo!() }
    /// `None`: no active request (index is MPI_UNDEFINED).
    pub fn waitany(&mut self, reqs: &mut [Handle]) -> Res<Option<(usize, Status)>> { todo!() }
    /// Outer `None`: nothing completed (flag false); inner `None`: no active request.
    pub fn testany(&mut self, reqs: &mut [Handle]) -> Res<Option<Option<(usize, Status)>>> { todo!() }
    /// Indices in the order reported, statuses beside them; `None`: no active request.
    pub fn waitsome(&mut self, reqs: &mut [Handle]) -> Res<Option<Vec<(usize, Status)>>> { todo!() }
    pub fn testsome(&mut self, reqs: &mut [Handle]) -> Res<Option<Vec<(usize, Status)>>> { todo!() }
    pub fn request_get_status(&mut self, req: Handle) -> Res<Option<Status>> { todo!() }
    pub fn request_free(&mut self, req: &mut Handle) -> Res<()> { todo!() }
    pub fn cancel(&mut self, req: Handle) -> Res<()> { todo!() }
    /// Communicator whose error handler an error of this request goes to (COMM_SELF if none).
    pub fn request_comm(&self, req: Handle) -> Handle { todo!() }

    pub fn buffer_attach(&mut self, addr: *mut u8, bytes: i64) -> Res<()> { todo!() }
    pub fn buffer_detach(&mut self) -> Res<(*mut u8, i64)> { todo!() }
}
