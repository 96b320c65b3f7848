//! Scan and exscan, by recursive doubling over blocks of neighbouring ranks.

use std::mem::swap;

use super::brief::is_brief;
use super::data::{Scratch, copy};
use super::reduce::{Reduction, input};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

impl Machine {
    /// # Safety
    /// The buffers are valid for the type, as MPI requires.
    pub unsafe fn scan(
        &mut self,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<()> {
        let (count, r) = self.reduction(count, dt, op, comm)?;
        if r.comm.is_inter() {
            return Err(class::COMM);
        }
        let source = input(self, &r, sbuf, rbuf, (count, count))?;
        // SAFETY: the caller's promise.
        unsafe {
            if source != rbuf {
                copy(r.data(source, count), r.data(rbuf, count))?;
            }
            self.prefix(&r, rbuf, rbuf, count, true)
        }
    }

    /// Rank 0's receive buffer stays as it is.
    ///
    /// # Safety
    /// The buffers are valid for the type, as MPI requires.
    pub unsafe fn exscan(
        &mut self,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<()> {
        let (count, r) = self.reduction(count, dt, op, comm)?;
        if r.comm.is_inter() {
            return Err(class::COMM);
        }
        let source = input(self, &r, sbuf, rbuf, (count, count))?;
        // SAFETY: the caller's promise.
        unsafe { self.prefix(&r, source, rbuf, count, false) }
    }

    /// `rbuf` becomes the reduction of all ranks below, and before them what it holds already if
    /// `started`. `source` may be `rbuf`.
    unsafe fn prefix(
        &mut self,
        r: &Reduction,
        source: *mut u8,
        rbuf: *mut u8,
        count: u64,
        mut started: bool,
    ) -> Res<()> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        if n == 1 || count * r.dt.size == 0 {
            return Ok(());
        }
        if is_brief(r, count) {
            // SAFETY: the caller's promise.
            return unsafe { self.prefix_at_once(r, source, rbuf, count, started) };
        }
        let (mut one, mut two) = (Scratch::typed(&r.dt, count)?, Scratch::typed(&r.dt, count)?);
        // `block`: reduction of the block of ranks that this rank has heard of.
        let (mut block, mut other) = (one.ptr(), two.ptr());
        let mut step = 1;
        // SAFETY: all buffers hold `count` elements.
        unsafe {
            copy(r.data(source, count), r.data(block, count))?;
            while step < n {
                let peer = me ^ step;
                step <<= 1;
                if peer >= n {
                    continue;
                }
                let (out, inn) = (r.data(block, count), r.data(other, count));
                self.exchange(&r.comm, r.tag, (out, peer), (inn, peer))?;
                if peer > me {
                    self.combine(r, block, other, count)?;
                    swap(&mut block, &mut other);
                    continue;
                }
                self.combine(r, other, block, count)?;
                if started {
                    self.combine(r, other, rbuf, count)?;
                } else {
                    copy(r.data(other, count), r.data(rbuf, count))?;
                    started = true;
                }
            }
        }
        Ok(())
    }
}
