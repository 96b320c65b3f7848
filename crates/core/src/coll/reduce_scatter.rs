//! Reduce_scatter and reduce_scatter_block.

use super::How;
use super::data::{Scratch, check_count, copy};
use super::reduce::{Reduction, input};
use super::{FEW_RANKS, Ints, LARGE_BYTES};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// Elements of the input that belong to a rank: first and number.
pub(super) type Share = (u64, u64);

/// The share of each of `n` ranks, and the elements of all.
///
/// # Safety
/// If not null, `rcounts` has `n` entries.
pub(super) unsafe fn shares_of(rcounts: Ints, n: u32) -> Res<(Vec<Share>, i64)> {
    // SAFETY: the caller's promise.
    unsafe { rcounts.check_counts(n)? };
    let mut shares = Vec::with_capacity(n as usize);
    let mut total = 0i64;
    for rank in 0..n {
        // SAFETY: the caller's promise.
        let count = unsafe { rcounts.at(rank) };
        shares.push((total as u64, count as u64));
        total = total.checked_add(count).ok_or(class::COUNT)?;
    }
    Ok((shares, total))
}

/// The elements of each of `n` ranks that have as many, and of all.
pub(super) fn even_shares(rcount: i64, n: u32) -> Res<(u64, i64)> {
    let each = check_count(rcount)?;
    Ok((each, rcount.checked_mul(i64::from(n)).ok_or(class::COUNT)?))
}

impl Machine {
    /// # Safety
    /// The buffers are valid for the type, as MPI requires; `rcounts` has an entry per rank.
    pub unsafe fn reduce_scatter(
        &mut self,
        sbuf: *const u8,
        rbuf: *mut u8,
        rcounts: Ints,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<()> {
        let c = self.comms.get_ref(comm)?;
        let n = c.size();
        if c.is_inter() {
            // SAFETY: the caller's promise.
            let begun =
                unsafe { self.reduce_scatter_begun(How::Now, sbuf, rbuf, rcounts, dt, op, comm) };
            return self.in_one_call(begun);
        }
        // SAFETY: the caller's promise.
        let (shares, total) = unsafe { shares_of(rcounts, n)? };
        let (total, r) = self.reduction(total, dt, op, comm)?;
        let of = |rank: u32| shares[rank as usize];
        // SAFETY: the caller's promise.
        unsafe { self.scatter_reduced(&r, sbuf, rbuf, total, &of) }
    }

    /// # Safety
    /// The buffers are valid for the type, as MPI requires.
    pub unsafe fn reduce_scatter_block(
        &mut self,
        sbuf: *const u8,
        rbuf: *mut u8,
        rcount: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<()> {
        let c = self.comms.get_ref(comm)?;
        let (each, total) = even_shares(rcount, c.size())?;
        if c.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.reduce_scatter_block_begun(How::Now, sbuf, rbuf, rcount, dt, op, comm)
            };
            return self.in_one_call(begun);
        }
        let (total, r) = self.reduction(total, dt, op, comm)?;
        let of = |rank: u32| (u64::from(rank) * each, each);
        // SAFETY: the caller's promise.
        unsafe { self.scatter_reduced(&r, sbuf, rbuf, total, &of) }
    }

    unsafe fn scatter_reduced(
        &mut self,
        r: &Reduction,
        sbuf: *const u8,
        rbuf: *mut u8,
        total: u64,
        of: &dyn Fn(u32) -> (u64, u64),
    ) -> Res<()> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        let count = of(me).1;
        let source = input(self, r, sbuf, rbuf, (total, count))?;
        if total * r.dt.size == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; in place, the result is written only when the whole input
        // has been sent or reduced.
        unsafe {
            if let Some(groups) = self.wide_reduction(r, total) {
                return self.scatter_wide(r, &groups, source, rbuf, total, of);
            }
            if n > FEW_RANKS && total * r.dt.size < LARGE_BYTES {
                return self.scatter_from_tree(r, source, rbuf, total, of);
            }
            if source != rbuf {
                return self.reduce_shares(r, source, of, rbuf);
            }
            let mut result = Scratch::typed(&r.dt, count)?;
            let at = result.ptr();
            self.reduce_shares(r, source, of, at)?;
            copy(r.data(at, count), r.data(rbuf, count))
        }
    }

    /// Reduces to rank 0, which gives every rank its share.
    unsafe fn scatter_from_tree(
        &mut self,
        r: &Reduction,
        source: *mut u8,
        rbuf: *mut u8,
        total: u64,
        of: &dyn Fn(u32) -> (u64, u64),
    ) -> Res<()> {
        let me = r.comm.rank;
        let own = r.data(rbuf, of(me).1);
        // SAFETY: as for `scatter_reduced`; the temporary holds all shares.
        unsafe {
            if me != 0 {
                self.reduce_tree(r, source, rbuf, total, 0)?;
                return self.receive(&r.comm, r.tag, own, 0);
            }
            let mut whole = Scratch::typed(&r.dt, total)?;
            let base = whole.ptr();
            self.reduce_tree(r, source, base, total, 0)?;
            self.distribute(&r.comm, r.tag, &|rank| r.part(base, of(rank)))?;
            copy(r.part(base, of(0)), own)
        }
    }
}
