//! Reductions where a communicator spans clusters.
//!
//! Each cluster reduces its operands, a share at each of its ranks, who send what others want of
//! that; who wants it combines what comes of all clusters. So each element crosses between two
//! clusters once each way, and several ranks' connections carry a part. Large data is worked off in
//! segments: while one crosses the next is reduced.
//!
//! Kept true: who reduces what follows from the groups, the count and the type alone. Within a
//! cluster operands are combined as everywhere, and clusters in the order of their first ranks, by
//! the same expression wherever the result is wanted: all ranks get the same bits, and again in a
//! replay. An operation that does not commute takes this way only where that is rank order.

use std::collections::VecDeque;
use std::rc::Rc;

use super::brief::is_brief;
use super::data::{Scratch, copy, element};
use super::reduce::{Reduction, share};
use crate::clusters::Groups;
use crate::error::Res;
use crate::machine::Machine;
use crate::p2p::ReqId;

/// Segments of what is not so large that these would be larger than so many times the least.
const SEGMENT_TIMES: u64 = 16;
const SEGMENTS: u64 = 4;
/// Segments that are on their way at once.
const UNDER_WAY_MAX: usize = 8;

/// First element and number.
type Span = (u64, u64);

fn overlap(a: Span, b: Span) -> Span {
    let start = a.0.max(b.0);
    let end = (a.0 + a.1).min(b.0 + b.1);
    (start, end.saturating_sub(start))
}

/// What each rank wants of a segment.
type Wanted<'a> = &'a dyn Fn(u32, Span) -> Span;

struct Wide<'a> {
    r: &'a Reduction,
    groups: &'a Groups,
    /// The same in the own cluster.
    near: Reduction,
    source: *mut u8,
    wanted: Wanted<'a>,
    /// Where the result goes, and its first element.
    target: (*mut u8, u64),
    /// Of what is sent from cluster to cluster, and to all of a cluster at the end.
    tags: (i32, Option<i32>),
}

/// A segment under way.
struct Segment {
    span: Span,
    /// The own share of what this cluster has reduced.
    partial: Scratch,
    /// Of each cluster, what this rank wants.
    operands: Vec<Scratch>,
    begun: Vec<ReqId>,
}

/// What a rank reduces of a segment for its cluster: of little data not all have a share.
fn own_share(r: &Reduction, groups: &Groups, rank: u32, (first, count): Span) -> Span {
    let members = groups.members[groups.cluster(rank)].len() as u64;
    let place = groups.place(rank);
    let sharers = groups.cut.parts(count * r.dt.size, members);
    let (start, len) = if place < sharers { share(count, sharers, place) } else { (count, 0) };
    (first + start, len)
}

impl Wide<'_> {
    fn share(&self, rank: u32, span: Span) -> Span {
        own_share(self.r, self.groups, rank, span)
    }
}

impl Machine {
    /// The clusters of a reduction that is to cross between them once.
    pub(super) fn wide_reduction(&self, r: &Reduction, count: u64) -> Option<Rc<Groups>> {
        let groups = r.comm.groups.get()?;
        let ordered = r.op.is_commutative() || groups.in_order();
        let wide = ordered && !self.comms.canonical && !is_brief(r, count);
        wide.then(|| groups.clone())
    }

    /// # Safety
    /// `source` and `rbuf` hold `count` elements, and are the same or do not overlap.
    pub(super) unsafe fn allreduce_wide(
        &mut self,
        r: &Reduction,
        groups: &Groups,
        source: *mut u8,
        rbuf: *mut u8,
        count: u64,
    ) -> Res<()> {
        let wanted = |rank: u32, span: Span| own_share(r, groups, rank, span);
        // SAFETY: the caller's promise.
        unsafe { self.reduce_wanted(r, groups, (source, count), &wanted, (rbuf, 0), true) }
    }

    /// # Safety
    /// As above; `rbuf` counts at the root only.
    pub(super) unsafe fn reduce_wide(
        &mut self,
        r: &Reduction,
        groups: &Groups,
        source: *mut u8,
        rbuf: *mut u8,
        count: u64,
        root: u32,
    ) -> Res<()> {
        let wanted = |rank: u32, (start, len): Span| (start, if rank == root { len } else { 0 });
        // SAFETY: the caller's promise.
        unsafe { self.reduce_wanted(r, groups, (source, count), &wanted, (rbuf, 0), false) }
    }

    /// # Safety
    /// As above; `rbuf` has room for the own share, or is `source`.
    pub(super) unsafe fn scatter_wide(
        &mut self,
        r: &Reduction,
        groups: &Groups,
        source: *mut u8,
        rbuf: *mut u8,
        total: u64,
        of: &dyn Fn(u32) -> Span,
    ) -> Res<()> {
        let wanted = |rank: u32, span: Span| overlap(of(rank), span);
        let (first, count) = of(r.comm.rank);
        // SAFETY: in place, the result is written when the whole input has been reduced.
        unsafe {
            let mut result = Scratch::typed(&r.dt, if source == rbuf { count } else { 0 })?;
            let at = if source == rbuf { result.ptr() } else { rbuf };
            self.reduce_wanted(r, groups, (source, total), &wanted, (at, first), false)?;
            if source == rbuf { copy(r.data(at, count), r.data(rbuf, count)) } else { Ok(()) }
        }
    }

    /// `target`: where the result goes, and the number of the element that lies there. `shared`:
    /// what the ranks of a cluster want are their shares of the whole, which all of them get.
    unsafe fn reduce_wanted(
        &mut self,
        r: &Reduction,
        groups: &Groups,
        (source, count): (*mut u8, u64),
        wanted: Wanted<'_>,
        target: (*mut u8, u64),
        shared: bool,
    ) -> Res<()> {
        let across = r.comm.next_tag();
        let after = r.comm.next_tag();
        let near = r.among(r.comm.local());
        let tags = (across, shared.then_some(after));
        let wide = Wide { r, groups, near, source, wanted, target, tags };
        let least = groups.cut.segment;
        let bytes = (count * r.dt.size / SEGMENTS).clamp(least, SEGMENT_TIMES * least);
        let step = (bytes / r.dt.size.max(1)).max(1);
        let mut under_way = VecDeque::new();
        let mut result = Ok(());
        for number in 0..count.div_ceil(step) {
            let start = number * step;
            // SAFETY: the caller's promise; a segment's buffers are kept until it is complete.
            unsafe {
                if under_way.len() == UNDER_WAY_MAX
                    && let Some(first) = under_way.pop_front()
                {
                    result = result.and(self.end_segment(&wide, first));
                }
                match self.begin_segment(&wide, (start, step.min(count - start))) {
                    Ok(segment) => under_way.push_back(segment),
                    Err(e) => {
                        result = result.and(Err(e));
                        break;
                    }
                }
            }
        }
        for segment in under_way {
            // SAFETY: as above.
            result = result.and(unsafe { self.end_segment(&wide, segment) });
        }
        result
    }

    /// Reduces a segment in the own cluster, and sends what others want of the own share.
    unsafe fn begin_segment(&mut self, wide: &Wide<'_>, span: Span) -> Res<Segment> {
        let (r, groups, me) = (wide.r, wide.groups, wide.r.comm.rank);
        let mine = wide.share(me, span);
        let want = (wide.wanted)(me, span);
        let partial = Scratch::lasting(&r.dt, mine.1)?;
        let mut operands = Vec::new();
        for _ in &groups.members {
            operands.push(Scratch::lasting(&r.dt, want.1)?);
        }
        let mut segment = Segment { span, partial, operands, begun: Vec::new() };
        // SAFETY: the caller's promise.
        let exchanged = unsafe { self.exchange_operands(wide, &mut segment, mine, want) };
        match exchanged {
            Ok(()) => Ok(segment),
            // What was begun is over before its buffers go.
            Err(e) => self.coll_wait(&segment.begun).and(Err(e)),
        }
    }

    unsafe fn exchange_operands(
        &mut self,
        wide: &Wide<'_>,
        segment: &mut Segment,
        mine: Span,
        want: Span,
    ) -> Res<()> {
        let (r, groups, me) = (wide.r, wide.groups, wide.r.comm.rank);
        let own = &groups.members[groups.cluster(me)];
        let (span, tag) = (segment.span, wide.tags.0);
        let Segment { partial, operands, begun, .. } = segment;
        // SAFETY: the caller's promise; operands hold what this rank wants.
        unsafe {
            for (members, operand) in groups.members.iter().zip(operands.iter_mut()) {
                for from in members.iter().filter(|from| **from != me) {
                    let (start, len) = overlap(wide.share(*from, span), want);
                    if len > 0 {
                        let at = element(operand.ptr(), (start - want.0) as i64, &r.dt);
                        begun.push(self.coll_irecv(&r.comm, at, len, &r.dt, *from, tag)?);
                    }
                }
            }
            let of = |place: u32| wide.share(own[place as usize], span);
            self.reduce_shares(&wide.near, wide.source, &of, partial.ptr())?;
            let ranks = groups.members.iter().flatten().filter(|rank| **rank != me);
            for to in ranks {
                let (start, len) = overlap(mine, (wide.wanted)(*to, span));
                if len > 0 {
                    let at = element(partial.ptr(), (start - mine.0) as i64, &r.dt);
                    begun.push(self.coll_isend(&r.comm, at, len, &r.dt, *to, tag)?);
                }
            }
            let (start, len) = overlap(mine, want);
            if len > 0 {
                let from = element(partial.ptr(), (start - mine.0) as i64, &r.dt);
                let operand = operands[groups.cluster(me)].ptr();
                let to = element(operand, (start - want.0) as i64, &r.dt);
                copy(r.data(from, len), r.data(to, len))?;
            }
        }
        Ok(())
    }

    /// Combines what has come of all clusters, and gives it to the own one.
    unsafe fn end_segment(&mut self, wide: &Wide<'_>, mut segment: Segment) -> Res<()> {
        let (r, groups, me) = (wide.r, wide.groups, wide.r.comm.rank);
        let (target, first) = wide.target;
        let at = |(start, _): Span| element(target, start as i64 - first as i64, &r.dt);
        let want = (wide.wanted)(me, segment.span);
        let mut result = self.coll_wait(&segment.begun);
        drop(segment.partial);
        // SAFETY: each operand holds what this rank wants; so has the target.
        unsafe {
            if want.1 > 0 && result.is_ok() {
                let mut list: Vec<*mut u8> =
                    segment.operands.iter_mut().map(Scratch::ptr).collect();
                let whole = self.balanced(r, &mut list, want.1)?;
                result = result.and(copy(r.data(whole, want.1), r.data(at(want), want.1)));
            }
            if let Some(tag) = wide.tags.1 {
                let own = &groups.members[groups.cluster(me)];
                let part = |place: u32| {
                    let span = (wide.wanted)(own[place as usize], segment.span);
                    r.data(at(span), span.1)
                };
                let mine = part(groups.place(me));
                let shared = self.pairwise(&wide.near.comm, tag, &|_| mine, &part, false);
                result = result.and(shared);
            }
        }
        result
    }
}
