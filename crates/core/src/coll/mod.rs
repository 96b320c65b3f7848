//! Blocking collectives on intra-communicators (MPI 5.0 chapter 6).

use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

/// An array of counts or displacements as the program passed it: `int` or `MPI_Count`/`MPI_Aint`.
/// May be null where the standard says that the argument is not significant.
#[derive(Clone, Copy, Debug)]
pub enum Ints {
    I32(*const i32),
    I64(*const i64),
}

/// The types of alltoallw by rank.
pub type TypesOf<'a> = &'a dyn Fn(usize) -> Handle;

#[allow(unused_variables, clippy::too_many_arguments, clippy::missing_safety_doc)]
impl Machine {
    pub fn barrier(&mut self, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn bcast(&mut self, buf: *mut u8, count: i64, dt: Handle, root: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn gather(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, rbuf: *mut u8, rcount: i64, rdt: Handle, root: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn gatherv(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, rbuf: *mut u8, rcounts: Ints, displs: Ints, rdt: Handle, root: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn scatter(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, rbuf: *mut u8, rcount: i64, rdt: Handle, root: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn scatterv(&mut self, sbuf: *const u8, scounts: Ints, displs: Ints, sdt: Handle, rbuf: *mut u8, rcount: i64, rdt: Handle, root: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn allgather(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, rbuf: *mut u8, rcount: i64, rdt: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn allgatherv(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, rbuf: *mut u8, rcounts: Ints, displs: Ints, rdt: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn alltoall(&mut self, sbuf: *const u8, scount: i64, sdt: Handle, rbuf: *mut u8, rcount: i64, rdt: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn alltoallv(&mut self, sbuf: *const u8, scounts: Ints, sdispls: Ints, sdt: Handle, rbuf: *mut u8, rcounts: Ints, rdispls: Ints, rdt: Handle, comm: Handle) -> Res<()> { todo!() }
    /// Displacements in bytes.
    pub unsafe fn alltoallw(&mut self, sbuf: *const u8, scounts: Ints, sdispls: Ints, sdts: TypesOf, rbuf: *mut u8, rcounts: Ints, rdispls: Ints, rdts: TypesOf, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn reduce(&mut self, sbuf: *const u8, rbuf: *mut u8, count: i64, dt: Handle, op: Handle, root: i32, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn allreduce(&mut self, sbuf: *const u8, rbuf: *mut u8, count: i64, dt: Handle, op: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn reduce_scatter(&mut self, sbuf: *const u8, rbuf: *mut u8, rcounts: Ints, dt: Handle, op: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn reduce_scatter_block(&mut self, sbuf: *const u8, rbuf: *mut u8, rcount: i64, dt: Handle, op: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn scan(&mut self, sbuf: *const u8, rbuf: *mut u8, count: i64, dt: Handle, op: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn exscan(&mut self, sbuf: *const u8, rbuf: *mut u8, count: i64, dt: Handle, op: Handle, comm: Handle) -> Res<()> { todo!() }
    pub unsafe fn reduce_local(&mut self, inbuf: *const u8, inout: *mut u8, count: i64, dt: Handle, op: Handle) -> Res<()> { todo!() }
}
