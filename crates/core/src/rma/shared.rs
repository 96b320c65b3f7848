//! Windows whose memory several ranks of a node map: those of `MPI_Win_allocate_shared`, and those
//! of `MPI_Win_allocate` where nothing is recorded of what a rank does, so that operations go
//! straight into the target's memory (`near`).
//!
//! The memory lies in the arena of a rank (`eyrie_ledger::windows`). Kept true: a part of it is
//! given out once until its window is freed; ranks that map it are one recovery unit, or never come
//! back; all ranks of a window succeed or fail together.

use std::rc::Rc;
use std::time::Duration;

use eyrie_channel::Apart;
use eyrie_ledger::windows::MappedArena;

use super::reach::{PAGE, Reach, Room};
use super::window::{Flavor, Memory, Window, word};
use crate::comm::Comm;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::machine::Machine;

/// How long a rank that was restored waits for those that it shares memory with to be brought to
/// its node: five minutes, as their images may be large. Looks, as no clock is asked here.
const HOME_LOOKS: u32 = 300_000;
/// How long one that is to share memory waits for that: all of its unit are ordered back at one
/// time, and who is elsewhere for good is to be told so. Looks, too.
const MATE_LOOKS: u32 = 10_000;
const HOME_PAUSE: Duration = Duration::from_millis(1);
/// What a rank says of having memory in common with the others: nothing is in the way, what is
/// passes when the job goes on with larger recovery units, or something that stays.
const FREE: u64 = 0;
const STANDS: u64 = 1;
const PASSES: u64 = 2;
/// In place of an offset: there is no room.
const NOWHERE: u64 = u64::MAX;

/// Why two ranks cannot have memory in common.
struct Obstacle {
    peer: u32,
    why: String,
    /// They can as soon as they are one recovery unit, which they may become.
    passes: bool,
}

impl Machine {
    /// `MPI_Win_allocate_shared` on several ranks: one part of the first one's arena.
    pub(super) fn share_memory(&mut self, comm: &Rc<Comm>, own: Memory, apart: bool) -> Res<Reach> {
        let all = loop {
            let obstacle = self.obstacle(comm);
            let said = obstacle.as_ref().map_or(FREE, |o| if o.passes { PASSES } else { STANDS });
            let all = self.gather_words(comm, [own.bytes, said, u64::from(apart)])?;
            if let Some(first) = all.iter().position(|w| w[1] == STANDS) {
                if let Some(o) = obstacle.filter(|_| first == comm.rank as usize) {
                    eprintln!("eyrie: {}", o.why);
                }
                return Err(class::RMA_SHARED);
            }
            if all.iter().all(|w| w[1] == FREE) {
                break all;
            }
            self.await_unit(comm);
        };
        // One after the other, or each in pages of its own if all want that.
        let align = if all.iter().all(|w| w[2] != 0) { PAGE } else { 1 };
        let mut end = Some(PAGE);
        let mut begins = Vec::new();
        for [bytes, ..] in &all {
            let begin = end.and_then(|at| at.checked_next_multiple_of(align));
            begins.push(begin.unwrap_or(0));
            end = begin.and_then(|at| at.checked_add(*bytes));
        }
        let first = comm.world_rank(0);
        let (mut part, mut offset) = (None, NOWHERE);
        if comm.rank == 0 {
            (part, offset) = self.give_part(end)?;
        }
        let offset = self.gather_words(comm, [offset, 0, 0])?[0][0];
        if comm.rank != 0 && offset != NOWHERE {
            part = self.endpoint.map_arena(first, offset, end.unwrap_or(0)).ok();
        }
        let part = self.all_have(comm, part, (comm.rank == 0).then_some(offset))?;
        let bases = begins.iter().map(|at| part.base().wrapping_add(*at as usize)).collect();
        let locks = vec![part.base(); begins.len()];
        let own = (comm.rank == 0).then_some(offset);
        Ok(Reach { room: Room::Mapped { parts: vec![part], own }, bases, locks })
    }

    /// `MPI_Win_allocate` where operations may go straight into the memory: each rank's lies in its
    /// own arena, and those of one node map each other's. `None`: not here, or not for all.
    pub(super) fn share_own_memory(&mut self, comm: &Rc<Comm>, bytes: u64) -> Res<Option<Reach>> {
        let endpoint = &self.endpoint;
        let near = comm.size() > 1 && endpoint.is_unrecorded() && endpoint.stays_whole();
        if !near {
            return Ok(None);
        }
        let (part, offset) = self.give_part(bytes.checked_add(PAGE))?;
        let all = self.gather_words(comm, [offset, bytes, 0])?;
        let (mut parts, mut locks) = (Vec::new(), Vec::new());
        let mut failed = part.is_none();
        let own = part.as_ref().map(MappedArena::base);
        for (rank, [offset, bytes, _]) in (0..).zip(all) {
            let world = comm.world_rank(rank);
            let mapped = if rank == comm.rank {
                own
            } else if offset == NOWHERE || self.endpoint.apart_from(world).is_some() {
                None
            } else {
                let part = self.endpoint.map_arena(world, offset, bytes + PAGE).ok();
                failed |= part.is_none();
                let base = part.as_ref().map(MappedArena::base);
                parts.extend(part);
                base
            };
            locks.push(mapped.unwrap_or(std::ptr::null_mut()));
        }
        // All or none: who reaches memory by itself is not to meet one who is asked.
        let fits = self.gather_words(comm, [u64::from(failed), 0, 0])?.iter().all(|w| w[0] == 0);
        match part.filter(|_| fits) {
            Some(part) => {
                parts.push(part);
                let behind = |at: &*mut u8| match at.is_null() {
                    true => *at,
                    false => at.wrapping_add(PAGE as usize),
                };
                let bases = locks.iter().map(behind).collect();
                let room = Room::Mapped { parts, own: Some(offset) };
                Ok(Some(Reach { room, bases, locks }))
            }
            None => {
                self.windows.arena.give_back(offset);
                Ok(None)
            }
        }
    }

    /// A part of this rank's arena, cleared, and its place there.
    fn give_part(&mut self, bytes: Option<u64>) -> Res<(Option<MappedArena>, u64)> {
        let Some(bytes) = bytes else { return Ok((None, NOWHERE)) };
        let rank = self.endpoint.rank();
        let Some(at) = self.windows.arena.take(bytes, self.endpoint.arena_bytes()) else {
            return Ok((None, NOWHERE));
        };
        let mapped = self.endpoint.map_arena(rank, at, bytes);
        match mapped.and_then(|part| part.clear().map(|()| part)) {
            Ok(part) => Ok((Some(part), at)),
            Err(_) => {
                self.windows.arena.give_back(at);
                Ok((None, NOWHERE))
            }
        }
    }

    /// The part that this rank has mapped, if all have.
    fn all_have(
        &mut self,
        comm: &Rc<Comm>,
        part: Option<MappedArena>,
        given: Option<u64>,
    ) -> Res<MappedArena> {
        let all = self.gather_words(comm, [u64::from(part.is_some()), 0, 0])?;
        if let Some(part) = part
            && all.iter().all(|w| w[0] != 0)
        {
            return Ok(part);
        }
        given.into_iter().for_each(|at| self.windows.arena.give_back(at));
        Err(class::NO_MEM)
    }

    /// Why the ranks of a communicator cannot have memory in common, if they cannot: what stays in
    /// the way before what passes.
    fn obstacle(&self, comm: &Comm) -> Option<Obstacle> {
        let own = self.endpoint.rank();
        let peers = (0..comm.size()).map(|r| comm.world_rank(r)).filter(|peer| *peer != own);
        let all = peers.filter_map(|peer| {
            if self.endpoint.is_back() {
                self.await_home(&[peer], MATE_LOOKS);
            }
            let apart = self.endpoint.apart_from(peer)?;
            let passes = apart == Apart::Units && self.endpoint.grows_units();
            Some(Obstacle { peer, why: self.why_apart(peer, apart), passes })
        });
        all.min_by_key(|o| o.passes)
    }

    /// Waits until the ranks of a communicator are one recovery unit, or cannot be.
    fn await_unit(&mut self, comm: &Rc<Comm>) {
        self.wait_for(|m| {
            let peer = m.obstacle(comm).filter(|o| o.passes).map(|o| o.peer);
            m.endpoint.wants_unit_with(peer);
            peer.is_none()
        });
    }

    fn why_apart(&self, peer: u32, apart: Apart) -> String {
        let (name, own) = ("MPI_Win_allocate_shared", self.endpoint.rank());
        match apart {
            Apart::Nodes => format!(
                "{name}: ranks {own} and {peer} are on different nodes: use the communicator of \
                 MPI_Comm_split_type with MPI_COMM_TYPE_SHARED"
            ),
            Apart::Units => format!(
                "{name}: ranks {own} and {peer} cannot share memory, as each may come back without \
                 the other: run the job with --ft coordinated, with --ft none, or over nodes with \
                 --ft node"
            ),
            Apart::Room => format!(
                "{name}: there is no room for it in the job's memory: raise the limit of file \
                 sizes (ulimit -f)"
            ),
        }
    }

    /// Three words of every rank.
    fn gather_words(&mut self, comm: &Rc<Comm>, own: [u64; 3]) -> Res<Vec<[u64; 3]>> {
        const BYTES: usize = 24;
        let mut said = [0u8; BYTES];
        for (at, w) in own.iter().enumerate() {
            said[at * 8..][..8].copy_from_slice(&w.to_ne_bytes());
        }
        let mut all = vec![0; BYTES * comm.size() as usize];
        let byte = self.types.get(BYTE)?;
        // SAFETY: `all` has room for what each rank says.
        unsafe { self.allgather_bytes(comm, &byte, said.as_ptr(), all.as_mut_ptr(), BYTES)? };
        let words = |b: &[u8]| [word(b), word(&b[8..]), word(&b[16..])];
        Ok(all.chunks_exact(BYTES).map(words).collect())
    }

    /// A window is freed.
    pub(super) fn give_back_memory(&mut self, window: &Window) {
        if let Room::Mapped { parts, own: Some(at) } = &window.reach.room {
            // What is not given up now is when it is given out again.
            let _ = parts.last().map(MappedArena::clear);
            self.windows.arena.give_back(*at);
        }
    }

    /// One of these ranks that is not on this node, also after a while: the node learns that
    /// another rank has its home there when it begins to bring that back.
    fn await_home(&self, mates: &[u32], looks: u32) -> Option<u32> {
        let far = || mates.iter().copied().find(|r| !self.endpoint.is_here(*r));
        for _ in 0..looks {
            far()?;
            std::thread::sleep(HOME_PAUSE);
        }
        far()
    }

    /// After a restore: ranks that share memory must be on one node again.
    pub(crate) fn check_shared_windows(&self) {
        for window in self.windows.iter().filter(|w| w.reach.is_mapped()) {
            let mates =
                (0..window.comm.size()).filter(|r| !window.reach.bases[*r as usize].is_null());
            let mates: Vec<u32> = mates.map(|r| window.comm.world_rank(r)).collect();
            if let Some(far) = self.await_home(&mates, HOME_LOOKS) {
                let own = self.endpoint.rank();
                let why = format!(
                    "ranks {own} and {far} share the memory of a window, and came back on \
                     different nodes: give the job spare nodes (--spares), or use --ft node"
                );
                self.endpoint.abort(class::RMA_SHARED.0, &why);
            }
        }
    }

    /// Makes the memory of a window that the library allocates.
    pub(super) fn make_memory(
        &mut self,
        flavor: Flavor,
        comm: &Rc<Comm>,
        own: Memory,
        apart: bool,
    ) -> Res<Reach> {
        if flavor == Flavor::Shared && comm.size() > 1 {
            return self.share_memory(comm, own, apart);
        }
        if let Some(reach) = self.share_own_memory(comm, own.bytes)? {
            return Ok(reach);
        }
        let words = usize::try_from(own.bytes.div_ceil(16)).map_err(|_| class::NO_MEM)?.max(1);
        let mut room: Vec<u128> = Vec::new();
        room.try_reserve_exact(words).map_err(|_| class::NO_MEM)?;
        room.resize(words, 0);
        let base = room.as_mut_ptr().cast();
        Ok(Reach::own(comm.size(), comm.rank, base, Room::Own { _words: room }))
    }
}
