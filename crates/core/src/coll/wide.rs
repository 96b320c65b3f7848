//! Barrier, broadcast and allgather where a communicator spans clusters.
//!
//! Kept true: a block crosses to each other cluster once, cut into parts for several ranks there,
//! so that all their connections carry some of it. A rank passes a part on to the others of its
//! cluster in pieces, while more of it comes. Who sends what to whom follows from the sizes and the
//! groups alone; all messages between two ranks are received in the order in which they were sent.

use std::rc::Rc;

use super::bcast::part;
use super::data::{Data, Scratch, copy, pack, unpack};
use super::exchange::ByRank;
use crate::clusters::Groups;
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::machine::Machine;
use crate::p2p::ReqId;

/// Most pieces that a part is passed on in: they are larger then.
const PIECES_MAX: u64 = 32;

/// Blocks that ranks have and all others are to get.
struct Spread<'a> {
    comm: &'a Rc<Comm>,
    groups: &'a Groups,
    tag: i32,
    byte: &'a Rc<Datatype>,
    /// Where the block of a rank is, and its bytes.
    at: &'a dyn Fn(u32) -> (*mut u8, u64),
    /// The own cluster's ranks are to get it too.
    near: bool,
}

/// A part of a rank's block: who gets it from there, its offset and length.
type Part = (u32, u64, u64);

impl<'a> Spread<'a> {
    /// The parts of the block of `source` for a cluster.
    fn parts(&self, source: u32, cluster: usize) -> Vec<Part> {
        let members = &self.groups.members[cluster];
        let mut to: Vec<u32> = members.iter().copied().filter(|r| *r != source).collect();
        if to.is_empty() {
            return Vec::new();
        }
        // Not the same ranks get the blocks of all.
        let turn = self.groups.place(source) as usize % to.len();
        to.rotate_left(turn);
        let bytes = (self.at)(source).1;
        let count = self.groups.cut.parts(bytes, to.len() as u64);
        let cut = |(number, to)| {
            let (start, len) = part(bytes, count, number);
            (to, start, len)
        };
        (0..count).zip(to).map(cut).collect()
    }

    /// Piece `number` of a part of the block of `source`.
    fn piece(&self, source: u32, (_, start, len): Part, number: u64) -> Data<'a> {
        let step = len.div_ceil(PIECES_MAX).max(self.groups.cut.piece);
        let skipped = (number * step).min(len);
        let (start, len) = (start + skipped, (len - skipped).min(step));
        Data::new((self.at)(source).0.wrapping_add(start as usize), len, self.byte)
    }
}

impl Machine {
    /// Every rank of a cluster tells its first one that it is there; those tell each other.
    pub(super) fn barrier_wide(
        &mut self,
        comm: &Rc<Comm>,
        groups: &Groups,
        tag: i32,
        byte: &Rc<Datatype>,
    ) -> Res<()> {
        let me = comm.rank;
        let own = &groups.members[groups.cluster(me)];
        let nothing = std::ptr::null_mut();
        let heads: Vec<u32> = groups.members.iter().map(|all| all[0]).collect();
        // SAFETY: nothing is read or written at the address, as the counts are 0.
        unsafe {
            if me != own[0] {
                self.coll_send(comm, nothing, 0, byte, own[0], tag)?;
                return self.coll_recv(comm, nothing, 0, byte, own[0], tag);
            }
            for from in &own[1..] {
                self.coll_recv(comm, nothing, 0, byte, *from, tag)?;
            }
            let mut sent = Vec::new();
            for to in heads.iter().filter(|head| **head != me) {
                sent.push(self.coll_isend(comm, nothing, 0, byte, *to, tag)?);
            }
            for from in heads.iter().filter(|head| **head != me) {
                self.coll_recv(comm, nothing, 0, byte, *from, tag)?;
            }
            for to in &own[1..] {
                sent.push(self.coll_isend(comm, nothing, 0, byte, *to, tag)?);
            }
            self.coll_wait(&sent)
        }
    }

    /// # Safety
    /// `data` is valid for its type.
    pub(super) unsafe fn bcast_wide(
        &mut self,
        comm: &Rc<Comm>,
        groups: &Groups,
        tag: i32,
        data: Data<'_>,
        root: u32,
    ) -> Res<()> {
        let (bytes, byte) = (data.bytes(), self.types.get(BYTE)?);
        // What goes out as bytes is cleared of padding when it is packed.
        let run = data.dt.contiguous_run(data.count).filter(|_| !data.dt.is_padded());
        let mut temporary = Scratch::bytes(if run.is_some() { 0 } else { bytes })?;
        let base = match run {
            Some(at) => data.ptr.wrapping_offset(at as isize),
            None => {
                temporary.zero();
                temporary.ptr()
            }
        };
        let at = |_| (base, bytes);
        let spread = Spread { comm, groups, tag, byte: &byte, at: &at, near: true };
        // SAFETY: there are `bytes` bytes at `base`, which are the program's run or ours.
        unsafe {
            if comm.rank == root && run.is_none() {
                pack(data, base);
            }
            let mut result = self.spread(&spread, &[root], |_| Ok(()));
            if comm.rank != root && run.is_none() {
                result = result.and(unpack(base, bytes, data));
            }
            result
        }
    }

    /// # Safety
    /// `own` and all of `inn` are valid for their types; `own` is copied to its place there if
    /// `copy_own`, else it is there.
    pub(super) unsafe fn allgather_wide(
        &mut self,
        comm: &Rc<Comm>,
        groups: &Groups,
        tag: i32,
        own: Data<'_>,
        inn: ByRank<'_, '_>,
        copy_own: bool,
    ) -> Res<()> {
        let (n, me, near_tag, byte) =
            (comm.size(), comm.rank, comm.next_tag(), self.types.get(BYTE)?);
        if own.bytes() > inn(me).bytes() {
            return Err(class::TRUNCATE);
        }
        let flat = |rank: u32| {
            let data = inn(rank);
            let run = data.dt.contiguous_run(data.count).filter(|_| !data.dt.is_padded());
            run.map(|at| data.ptr.wrapping_offset(at as isize))
        };
        let in_place = (0..n).all(|rank| inn(rank).bytes() == 0 || flat(rank).is_some());
        let mut starts = Vec::with_capacity(n as usize);
        let mut total = 0u64;
        for rank in 0..n {
            starts.push(total as usize);
            total = total.checked_add(inn(rank).bytes()).ok_or(class::NO_MEM)?;
        }
        let mut temporary = Scratch::bytes(if in_place { 0 } else { total })?;
        temporary.zero();
        let base = temporary.ptr();
        let at = |rank: u32| match in_place {
            true => (flat(rank).unwrap_or(base), inn(rank).bytes()),
            false => (base.wrapping_add(starts[rank as usize]), inn(rank).bytes()),
        };
        let spread = Spread { comm, groups, tag, byte: &byte, at: &at, near: false };
        let sources: Vec<u32> = (0..n).collect();
        let members = &groups.members[groups.cluster(me)];
        let block = |place: u32| {
            let rank = members[place as usize];
            Data::new(at(rank).0, at(rank).1, &byte)
        };
        let mine = block(groups.place(me));
        // SAFETY: each block has its place at `at`, which is the program's or ours.
        unsafe {
            match in_place {
                true if copy_own => copy(own, inn(me))?,
                true => {}
                false => pack(own, at(me).0),
            }
            let mut result = self.spread(&spread, &sources, |m| {
                m.pairwise(comm.local(), near_tag, &|_| mine, &block, false)
            });
            if !in_place {
                for rank in (0..n).filter(|rank| *rank != me || copy_own) {
                    result = result.and(unpack(at(rank).0, at(rank).1, inn(rank)));
                }
            }
            result
        }
    }

    /// Gives all the blocks of `sources`; `meanwhile` is done when what goes out is on its way.
    unsafe fn spread(
        &mut self,
        s: &Spread<'_>,
        sources: &[u32],
        meanwhile: impl FnOnce(&mut Machine) -> Res<()>,
    ) -> Res<()> {
        let (me, own) = (s.comm.rank, s.groups.cluster(s.comm.rank));
        let (mut sent, mut passed, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut result = Ok(());
        let mut keep = |begun: Res<ReqId>, list: &mut Vec<ReqId>| match begun {
            Ok(req) => list.push(req),
            Err(e) => result = result.and(Err(e)),
        };
        let comes = |rank: &u32| *rank != me && (s.near || s.groups.cluster(*rank) != own);
        let coming: Vec<(u32, Part)> = sources
            .iter()
            .filter(|rank| comes(rank))
            .flat_map(|rank| s.parts(*rank, own).into_iter().map(|part| (*rank, part)))
            .collect();
        let mut going = Vec::new();
        if sources.contains(&me) {
            let far = (0..s.groups.members.len()).filter(|cluster| *cluster != own);
            going.extend(far.flat_map(|cluster| s.parts(me, cluster)));
            going.extend(s.near.then(|| s.parts(me, own)).into_iter().flatten());
        }
        // SAFETY: the caller's promise: a block is where `at` says.
        unsafe {
            for number in 0..PIECES_MAX {
                for part in &going {
                    let out = s.piece(me, *part, number);
                    if out.count > 0 {
                        keep(
                            self.coll_isend(s.comm, out.ptr, out.count, out.dt, part.0, s.tag),
                            &mut sent,
                        );
                    }
                }
                for (source, part) in &coming {
                    let inn = s.piece(*source, *part, number);
                    if inn.count == 0 {
                        continue;
                    }
                    let is_mine = part.0 == me;
                    let from = if is_mine { *source } else { part.0 };
                    let begun = self.coll_irecv(s.comm, inn.ptr, inn.count, inn.dt, from, s.tag);
                    if is_mine {
                        passed.push((*source, inn, begun));
                    } else {
                        keep(begun, &mut others);
                    }
                }
            }
            let mut all = meanwhile(self);
            for (source, data, begun) in passed {
                all = all.and(begun.and_then(|req| self.coll_wait(&[req])));
                let to = s.groups.members[own].iter().filter(|r| **r != me && **r != source);
                for to in to {
                    keep(
                        self.coll_isend(s.comm, data.ptr, data.count, data.dt, *to, s.tag),
                        &mut sent,
                    );
                }
            }
            let ended = self.coll_wait(&others).and(self.coll_wait(&sent));
            result.and(all).and(ended)
        }
    }
}
