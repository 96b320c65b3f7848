//! Reduce, allreduce and reduce_local.
//!
//! Kept true: operands are combined in rank order (`lower op higher`), so operations need not
//! commute, and both partners of an exchange compute the same expression on the same bits. Where
//! an operation commutes a tree may start at the root; its order is fixed all the same.

use std::mem::swap;
use std::rc::Rc;

use super::How;
use super::LARGE_BYTES;
use super::brief::is_brief;
use super::data::{Data, Scratch, check_alias, check_buffer, copy, element, is_in_place};
use super::exchange::Ahead;
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op::{self, Op};

/// Large reductions are worked off in pieces of this size.
const SEGMENT_BYTES: u64 = 64 << 10;

/// What one reduction is about.
pub(super) struct Reduction {
    pub(super) comm: Rc<Comm>,
    pub(super) dt: Rc<Datatype>,
    dt_handle: Handle,
    pub(super) op: Rc<Op>,
    pub(super) tag: i32,
}

impl Reduction {
    /// The same among others.
    pub(super) fn among(&self, comm: &Rc<Comm>) -> Reduction {
        let (comm, dt, op) = (comm.clone(), self.dt.clone(), self.op.clone());
        Reduction { comm, dt, op, ..*self }
    }

    pub(super) fn data(&self, ptr: *mut u8, count: u64) -> Data<'_> {
        Data::new(ptr, count, &self.dt)
    }

    /// Elements `start..start + count` of the array at `base`.
    pub(super) fn part(&self, base: *mut u8, (start, count): (u64, u64)) -> Data<'_> {
        Data::new(element(base, start as i64, &self.dt), count, &self.dt)
    }
}

/// Elements of `count` that belong to rank `rank` of `n`: first and number.
pub(super) fn share(count: u64, n: u32, rank: u32) -> (u64, u64) {
    let (n, rank) = (u64::from(n), u64::from(rank));
    let (least, more) = (count / n, count % n);
    (least * rank + rank.min(more), least + u64::from(rank < more))
}

impl Machine {
    /// The objects of a reduction over `count` elements; its tag is not taken yet.
    pub(super) fn reduction(
        &self,
        count: i64,
        dt_handle: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<(u64, Reduction)> {
        let (comm, tag) = self.start_collective(comm)?;
        let (count, dt) = self.checked_type(count, dt_handle)?;
        let op = self.ops.get(op)?;
        op.check(&dt)?;
        Ok((count, Reduction { comm, dt, dt_handle, op, tag }))
    }

    /// `inout = left op inout`.
    ///
    /// # Safety
    /// Both hold `count` elements, and do not overlap.
    pub(super) unsafe fn combine(
        &mut self,
        r: &Reduction,
        left: *const u8,
        inout: *mut u8,
        count: u64,
    ) -> Res<()> {
        // SAFETY: the caller's promise.
        let apply = || unsafe { op::reduce_local(&r.op, &r.dt, r.dt_handle, left, inout, count) };
        if r.op.builtin().is_some() { apply() } else { self.lend(apply) }
    }

    /// # Safety
    /// The buffers are valid for the type, as MPI requires.
    pub unsafe fn reduce_local(
        &mut self,
        inbuf: *const u8,
        inout: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
    ) -> Res<()> {
        let (count, r) = self.reduction(count, dt, op, crate::consts::COMM_SELF)?;
        check_buffer(inbuf, count, &r.dt)?;
        check_buffer(inout, count, &r.dt)?;
        check_alias(Data::source(inbuf, count, &r.dt), r.data(inout, count))?;
        // SAFETY: the caller's promise.
        unsafe { self.combine(&r, inbuf, inout, count) }
    }

    /// # Safety
    /// The buffers are valid for the type, as MPI requires.
    pub unsafe fn allreduce(
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
            // SAFETY: the caller's promise.
            let begun =
                unsafe { self.allreduce_begun(How::Now, sbuf, rbuf, count as i64, dt, op, comm) };
            return self.in_one_call(begun);
        }
        check_buffer(rbuf, count, &r.dt)?;
        let bytes = count * r.dt.size;
        let in_place = is_in_place(sbuf);
        if !in_place {
            check_buffer(sbuf, count, &r.dt)?;
            check_alias(Data::source(sbuf, count, &r.dt), r.data(rbuf, count))?;
        }
        self.begin_collective(&r.comm, r.tag)?;
        if bytes == 0 {
            return Ok(());
        }
        let n = u64::from(r.comm.size());
        let source = if in_place { rbuf } else { sbuf.cast_mut() };
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(groups) = self.wide_reduction(&r, count) {
                return self.allreduce_wide(&r, &groups, source, rbuf, count);
            }
            if n > 1 && bytes >= LARGE_BYTES.max(n * 2048) && count >= n {
                return self.allreduce_parts(&r, source, rbuf, count);
            }
            if is_brief(&r, count) {
                return self.allreduce_at_once(&r, source, rbuf, count);
            }
            if !in_place {
                copy(r.data(source, count), r.data(rbuf, count))?;
            }
            if n == 1 { Ok(()) } else { self.allreduce_doubling(&r, rbuf, count) }
        }
    }

    /// Recursive doubling; ranks beyond a power of two first give their data to a neighbour.
    unsafe fn allreduce_doubling(&mut self, r: &Reduction, buf: *mut u8, count: u64) -> Res<()> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        let power = 1 << n.ilog2();
        let extra = n - power;
        let mut temporary = Scratch::typed(&r.dt, count)?;
        let (mut mine, mut other) = (buf, temporary.ptr());
        // The first `extra` pairs act as one: the odd rank acts, the even one waits.
        let paired = me < 2 * extra;
        // SAFETY: both buffers hold `count` elements.
        unsafe {
            if paired && me.is_multiple_of(2) {
                self.send_to(&r.comm, r.tag, r.data(mine, count), me + 1)?;
                return self.receive(&r.comm, r.tag, r.data(mine, count), me + 1);
            }
            if paired {
                self.receive(&r.comm, r.tag, r.data(other, count), me - 1)?;
                self.combine(r, other, mine, count)?;
            }
            let acting = if paired { me / 2 } else { me - extra };
            let mut step = 1;
            while step < power {
                let partner = acting ^ step;
                let peer = if partner < extra { 2 * partner + 1 } else { partner + extra };
                let (out, inn) = (r.data(mine, count), r.data(other, count));
                self.exchange(&r.comm, r.tag, (out, peer), (inn, peer))?;
                if peer < me {
                    self.combine(r, other, mine, count)?;
                } else {
                    self.combine(r, mine, other, count)?;
                    swap(&mut mine, &mut other);
                }
                step <<= 1;
            }
            if paired {
                self.send_to(&r.comm, r.tag, r.data(mine, count), me - 1)?;
            }
            if mine != buf { copy(r.data(mine, count), r.data(buf, count)) } else { Ok(()) }
        }
    }

    /// Every rank reduces its share of the elements and sends the result to all.
    unsafe fn allreduce_parts(
        &mut self,
        r: &Reduction,
        source: *mut u8,
        rbuf: *mut u8,
        count: u64,
    ) -> Res<()> {
        let n = r.comm.size();
        let of = |rank| share(count, n, rank);
        let own = r.part(rbuf, of(r.comm.rank));
        // SAFETY: the shares tile both buffers; sends of the first phase are complete before the
        // second one overwrites their data.
        unsafe {
            self.reduce_shares(r, source, &of, own.ptr)?;
            let from = |rank| r.part(rbuf, of(rank));
            self.pairwise(&r.comm, r.tag, &|_| own, &from, false)
        }
    }

    /// # Safety
    /// The buffers are valid for the type, as MPI requires.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn reduce(
        &mut self,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<()> {
        if self.comms.get_ref(comm)?.is_inter() {
            // SAFETY: the caller's promise.
            let begun =
                unsafe { self.reduce_begun(How::Now, sbuf, rbuf, count, dt, op, root, comm) };
            return self.in_one_call(begun);
        }
        let (count, r) = self.reduction(count, dt, op, comm)?;
        let root = r.comm.root(root)?;
        let own = rooted_input(self, &r, sbuf, rbuf, count, root)?;
        let bytes = count * r.dt.size;
        if bytes == 0 {
            return Ok(());
        }
        let n = u64::from(r.comm.size());
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(groups) = self.wide_reduction(&r, count) {
                self.reduce_wide(&r, &groups, own, rbuf, count, root)
            } else if n > 1 && bytes >= LARGE_BYTES.max(n * 2048) && count >= n {
                self.reduce_parts(&r, own, rbuf, count, root)
            } else if is_brief(&r, count) {
                self.reduce_at_once(&r, own, rbuf, count, root)
            } else {
                self.reduce_tree(&r, own, rbuf, count, root)
            }
        }
    }

    /// Binomial tree. `own` is only read unless it is `rbuf`; `rbuf` counts at the root only.
    pub(super) unsafe fn reduce_tree(
        &mut self,
        r: &Reduction,
        own: *mut u8,
        rbuf: *mut u8,
        count: u64,
        root: u32,
    ) -> Res<()> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        // In rank order the tree must start at rank 0.
        let top = if r.op.is_commutative() { root } else { 0 };
        let relative = (me + n - top) % n;
        let rank = |relative: u32| (relative + top) % n;
        let children = (n - relative).next_power_of_two().trailing_zeros();
        let children = children.min(if relative == 0 { 32 } else { relative.trailing_zeros() });
        let room = |needed: bool| Scratch::typed(&r.dt, if needed { count } else { 0 });
        let (mut one, mut two) = (room(children > 0)?, room(children > 1)?);
        let (mut free, mut next) = (one.ptr(), two.ptr());
        let mut mine = own;
        let mut step = 1;
        // SAFETY: the temporaries hold `count` elements where they are used: the first child's
        // data comes into one, the second's into the other, then the two take turns.
        unsafe {
            while relative & step == 0 && relative + step < n {
                self.receive(&r.comm, r.tag, r.data(free, count), rank(relative + step))?;
                self.combine(r, mine, free, count)?;
                mine = free;
                swap(&mut free, &mut next);
                step <<= 1;
            }
            let mut result = Ok(());
            if relative != 0 {
                let parent = relative & (relative - 1);
                result = self.send_to(&r.comm, r.tag, r.data(mine, count), rank(parent));
            }
            if top != root && me == top {
                result = result.and(self.send_to(&r.comm, r.tag, r.data(mine, count), root));
            } else if top != root && me == root {
                let inn = r.data(rbuf, count);
                result = result.and(self.receive(&r.comm, r.tag, inn, top));
            } else if me == root && mine != rbuf {
                result = result.and(copy(r.data(mine, count), r.data(rbuf, count)));
            }
            result
        }
    }

    /// Every rank reduces its share of the elements and sends the result to the root.
    unsafe fn reduce_parts(
        &mut self,
        r: &Reduction,
        own: *mut u8,
        rbuf: *mut u8,
        count: u64,
        root: u32,
    ) -> Res<()> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        let of = |rank| share(count, n, rank);
        // SAFETY: the shares tile the buffers.
        unsafe {
            if me == root {
                self.reduce_shares(r, own, &of, r.part(rbuf, of(me)).ptr)?;
                return self.collect(&r.comm, r.tag, &|rank| r.part(rbuf, of(rank)));
            }
            let mut result = Scratch::typed(&r.dt, of(me).1)?;
            let at = result.ptr();
            self.reduce_shares(r, own, &of, at)?;
            self.send_to(&r.comm, r.tag, r.data(at, of(me).1), root)
        }
    }

    /// Reduces the share of each rank at that rank: `source` holds all shares, rank `i`'s at
    /// `of(i)` (first element, number); the own result goes to `target`, which may be the own
    /// share in `source`.
    ///
    /// Ranks below come first, nearest first, then those above from the last one down: both halves
    /// are in rank order and are joined at the end.
    ///
    /// # Safety
    /// `source` holds all shares, `target` the own one; they overlap nowhere else.
    pub(super) unsafe fn reduce_shares(
        &mut self,
        r: &Reduction,
        source: *mut u8,
        of: &dyn Fn(u32) -> (u64, u64),
        target: *mut u8,
    ) -> Res<()> {
        let count = of(r.comm.rank).1;
        let most = (0..r.comm.size()).map(|rank| of(rank).1).max().unwrap_or(0);
        // In segments, so that what arrives is still in the cache when it is combined.
        let segment = (SEGMENT_BYTES / r.dt.size.max(1)).max(1);
        let piece = |number: u64, rank: u32| {
            let (start, count) = of(rank);
            let skipped = (number * segment).min(count);
            (start + skipped, (count - skipped).min(segment))
        };
        let ordered = !r.op.is_commutative();
        let mut one = Scratch::typed(&r.dt, count.min(segment))?;
        let mut two = Scratch::typed(&r.dt, if ordered { count.min(segment) } else { 0 })?;
        let mut exchange = Shares {
            source,
            piece: &piece,
            segments: most.div_ceil(segment),
            temporaries: (one.ptr(), two.ptr()),
            ahead: self.ahead(),
        };
        let mut result = Ok(());
        for number in 0..exchange.segments {
            let target = element(target, (number * segment) as i64, &r.dt);
            // SAFETY: the caller's promise; the temporaries hold a segment.
            result = unsafe { self.reduce_segment(r, &mut exchange, number, target) };
            if result.is_err() {
                break;
            }
        }
        result.and(self.end_steps(&mut exchange.ahead))
    }

    /// Segment `number` of `reduce_shares`. Its own parts of later segments may leave meanwhile.
    unsafe fn reduce_segment(
        &mut self,
        r: &Reduction,
        shares: &mut Shares,
        number: u64,
        target: *mut u8,
    ) -> Res<()> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        let (source, piece) = (shares.source, shares.piece);
        let (mut fresh, mut above) = shares.temporaries;
        let (start, count) = piece(number, me);
        let ordered = !r.op.is_commutative() && me + 1 < n;
        let others = u64::from(n - 1);
        let out = |step: u64| {
            let to = (me + 1 + (step % others) as u32) % n;
            (r.part(source, piece(step / others, to)), to)
        };
        // SAFETY: all buffers hold `count` elements.
        unsafe {
            let own = r.part(source, (start, count));
            if own.ptr != target {
                copy(own, r.data(target, count))?;
            }
            for k in 1..n {
                let from = (me + n - k) % n;
                let inn = r.data(fresh, count);
                let at = (number * others + u64::from(k - 1), shares.segments * others);
                self.begin_steps(&r.comm, r.tag, &mut shares.ahead, at, (&out, None))?;
                let received = self.receive(&r.comm, r.tag, inn, from);
                received.and(self.end_step(&mut shares.ahead))?;
                if count == 0 {
                    continue;
                }
                if !ordered || from < me {
                    self.combine(r, fresh, target, count)?;
                } else if from == n - 1 {
                    swap(&mut fresh, &mut above);
                } else {
                    self.combine(r, fresh, above, count)?;
                }
            }
            if ordered && count != 0 {
                self.combine(r, target, above, count)?;
                copy(r.data(above, count), r.data(target, count))?;
            }
        }
        Ok(())
    }
}

/// What `reduce_shares` is at.
struct Shares<'a> {
    source: *mut u8,
    /// Part of a segment (by its number) that belongs to a rank: first element, number.
    piece: &'a dyn Fn(u64, u32) -> (u64, u64),
    segments: u64,
    /// Each holds a segment, the second one if order matters.
    temporaries: (*mut u8, *mut u8),
    ahead: Ahead,
}

/// Refuses a reduce's buffers, or takes its tag; returns where the input is.
pub(super) fn rooted_input(
    m: &mut Machine,
    r: &Reduction,
    sbuf: *const u8,
    rbuf: *mut u8,
    count: u64,
    root: u32,
) -> Res<*mut u8> {
    let at_root = r.comm.rank == root;
    if at_root {
        check_buffer(rbuf, count, &r.dt)?;
    }
    if at_root && is_in_place(sbuf) {
        m.begin_collective(&r.comm, r.tag)?;
        return Ok(rbuf);
    }
    check_buffer(sbuf, count, &r.dt)?;
    if at_root {
        check_alias(Data::source(sbuf, count, &r.dt), r.data(rbuf, count))?;
    }
    m.begin_collective(&r.comm, r.tag)?;
    Ok(sbuf.cast_mut())
}

/// The same as scan and reduce_scatter do it.
pub(super) fn input(
    m: &mut Machine,
    r: &Reduction,
    sbuf: *const u8,
    rbuf: *mut u8,
    (scount, rcount): (u64, u64),
) -> Res<*mut u8> {
    if is_in_place(rbuf) {
        return Err(class::BUFFER);
    }
    check_buffer(rbuf, rcount, &r.dt)?;
    if is_in_place(sbuf) {
        check_buffer(rbuf, scount, &r.dt)?;
        m.begin_collective(&r.comm, r.tag)?;
        return Ok(rbuf);
    }
    check_buffer(sbuf, scount, &r.dt)?;
    check_alias(Data::source(sbuf, scount, &r.dt), r.data(rbuf, rcount.max(scount)))?;
    m.begin_collective(&r.comm, r.tag)?;
    Ok(sbuf.cast_mut())
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_tile_the_elements() {
        for count in 0..50u64 {
            for n in 1..9 {
                let mut at = 0;
                for rank in 0..n {
                    let (start, len) = share(count, n, rank);
                    assert_eq!(start, at);
                    at += len;
                }
                assert_eq!(at, count);
            }
        }
    }
}
