//! Making communicators: duplicate, create from a group, split.
//!
//! Context ids are agreed without a central place: each process keeps the least context it has
//! never used, the participants take the greatest of theirs, and all of them go on behind it. So a
//! context is new to every participant, whatever it did in other communicators, and the outcome
//! depends only on what the program did before, not on timing. Disjoint groups of one split share
//! a context: no process is in both. Contexts are never used again (there are 2^31).

use std::rc::Rc;

use super::{Comm, GROUP_TAG, TYPE_HW_GUIDED, TYPE_HW_UNGUIDED, TYPE_RESOURCE_GUIDED, TYPE_SHARED};
use crate::attr::AttrKind;
use crate::consts::{COMM_NULL, UNDEFINED};
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::info::Info;
use crate::machine::Machine;
use crate::topology::Topology;

/// What a rank tells the others in a split.
#[derive(Clone, Copy)]
struct Vote {
    color: i32,
    key: i32,
    next_ctx: u32,
}

const VOTE_BYTES: usize = 12;

impl Vote {
    fn bytes(self) -> [u8; VOTE_BYTES] {
        let mut out = [0; VOTE_BYTES];
        out[..4].copy_from_slice(&self.color.to_ne_bytes());
        out[4..8].copy_from_slice(&self.key.to_ne_bytes());
        out[8..].copy_from_slice(&self.next_ctx.to_ne_bytes());
        out
    }

    fn parse(from: &[u8]) -> Vote {
        let word = |at: usize| [from[at], from[at + 1], from[at + 2], from[at + 3]];
        Vote {
            color: i32::from_ne_bytes(word(0)),
            key: i32::from_ne_bytes(word(4)),
            next_ctx: u32::from_ne_bytes(word(8)),
        }
    }
}

/// What a new communicator has from the one it is made from, besides its group.
#[derive(Default)]
pub(crate) struct Inherit {
    pub(crate) hints: Info,
    pub(crate) topology: Option<Topology>,
}

impl Machine {
    /// Same group, attributes by their copy functions, hints and topology.
    pub fn comm_dup(&mut self, comm: Handle) -> Res<Handle> {
        let hints = self.comms.get(comm)?.hints.borrow().clone();
        self.dup_with_hints(comm, hints)
    }

    /// As `comm_dup`, but with the hints of `info`.
    pub fn comm_dup_with_info(&mut self, comm: Handle, info: Handle) -> Res<Handle> {
        self.comms.get_ref(comm)?;
        let hints = self.infos.get_optional(info)?.cloned().unwrap_or_default();
        self.dup_with_hints(comm, hints)
    }

    fn dup_with_hints(&mut self, handle: Handle, hints: Info) -> Res<Handle> {
        let comm = self.comms.get(handle)?;
        let ctx = self.agree_context_of(&comm)?;
        let inherit = Inherit { hints, topology: comm.topology.clone() };
        let mut new = self.comm_install(&comm, ctx, comm.group.clone(), inherit)?;
        if let Err(e) = self.attr_copy_all(AttrKind::Comm, handle, new) {
            // The copy's error is the one to report.
            let _ = self.comm_free(&mut new);
            return Err(e);
        }
        Ok(new)
    }

    /// `COMM_NULL` for ranks outside `group`.
    pub fn comm_create(&mut self, comm: Handle, group: Handle) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        let group = self.groups.get(group)?;
        if group.members().iter().any(|&w| comm.rank_of_world(w).is_none()) {
            return Err(class::GROUP);
        }
        let ctx = self.agree_context_of(&comm)?;
        if group.rank().is_none() {
            return Ok(COMM_NULL);
        }
        self.comm_install(&comm, ctx, group, Inherit::default())
    }

    /// Collective over `group` only; `COMM_NULL` outside it.
    pub fn comm_create_group(&mut self, comm: Handle, group: Handle, tag: i32) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        let group = self.groups.get(group)?;
        if tag < 0 {
            return Err(class::TAG);
        }
        let ranks: Option<Vec<u32>> =
            group.members().iter().map(|&w| comm.rank_of_world(w)).collect();
        let ranks = ranks.ok_or(class::GROUP)?;
        let Some(me) = group.rank() else { return Ok(COMM_NULL) };
        let tag = GROUP_TAG | tag & (GROUP_TAG - 1);
        let ctx = self.agree_context(&comm, &ranks, me as usize, tag)?;
        self.comm_install(&comm, ctx, group, Inherit::default())
    }

    /// One communicator per color, ordered by key, then by old rank.
    pub fn comm_split(&mut self, comm: Handle, color: i32, key: i32) -> Res<Handle> {
        self.split_with(comm, color, key, Inherit::default())
    }

    /// `split_type`: `TYPE_*` or `UNDEFINED`. Ranks share memory that are on one node now; that is
    /// recorded, and stays so if they move.
    pub fn comm_split_type(
        &mut self,
        comm: Handle,
        split_type: i32,
        key: i32,
        info: Handle,
    ) -> Res<Handle> {
        let me = self.comms.get_ref(comm)?.rank;
        let info = self.infos.get_optional(info)?.cloned().unwrap_or_default();
        let shared = info.get(b"mpi_hw_resource_type") == Some(b"mpi_shared_memory");
        let color = match split_type {
            TYPE_SHARED => self.node() as i32 & i32::MAX,
            TYPE_HW_GUIDED | TYPE_RESOURCE_GUIDED if shared => self.node() as i32 & i32::MAX,
            TYPE_RESOURCE_GUIDED => match info.get(b"mpi_pset_name") {
                Some(b"mpi://WORLD") => 0,
                Some(b"mpi://SELF") => me as i32,
                _ => UNDEFINED,
            },
            // No finer resource is known, so there is no proper part to give.
            TYPE_HW_GUIDED | TYPE_HW_UNGUIDED | UNDEFINED => UNDEFINED,
            _ => return Err(class::ARG),
        };
        self.split_with(comm, color, key, Inherit { hints: info, topology: None })
    }

    pub(crate) fn split_with(
        &mut self,
        comm: Handle,
        color: i32,
        key: i32,
        inherit: Inherit,
    ) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        if color < 0 && color != UNDEFINED {
            return Err(class::ARG);
        }
        let own = Vote { color, key, next_ctx: self.comms.next_ctx };
        let votes = self.exchange_votes(&comm, own)?;
        let greatest = votes.iter().map(|v| v.next_ctx).max().unwrap_or(own.next_ctx);
        let ctx = self.claim_context(greatest)?;
        if color == UNDEFINED {
            return Ok(COMM_NULL);
        }
        let mut chosen: Vec<(i32, u32)> = votes
            .iter()
            .zip(0..)
            .filter(|(vote, _)| vote.color == color)
            .map(|(vote, rank)| (vote.key, rank))
            .collect();
        chosen.sort_unstable();
        let members = chosen.into_iter().map(|(_, rank)| comm.world_rank(rank)).collect();
        let group = Rc::new(Group::new(members, self.comms.me));
        self.comm_install(&comm, ctx, group, inherit)
    }

    /// Puts a communicator that this process belongs to into the table.
    pub(crate) fn comm_install(
        &mut self,
        parent: &Comm,
        ctx: u32,
        group: Rc<Group>,
        inherit: Inherit,
    ) -> Res<Handle> {
        let mut comm = Comm::new(ctx, group, self.comms.me);
        comm.topology = inherit.topology;
        comm.take_hints(Some(&inherit.hints));
        let eh = parent.errhandler.get();
        comm.errhandler.set(eh);
        let handle = self.comms.insert(comm)?;
        self.errhandlers.acquire(eh)?;
        Ok(handle)
    }

    /// Agrees on a context among all ranks of `comm`.
    pub(crate) fn agree_context_of(&mut self, comm: &Rc<Comm>) -> Res<u32> {
        let ranks: Vec<u32> = (0..comm.size()).collect();
        self.agree_context(comm, &ranks, comm.rank as usize, comm.next_tag())
    }

    fn claim_context(&mut self, ctx: u32) -> Res<u32> {
        self.comms.next_ctx = ctx.checked_add(2).ok_or(class::OTHER)?;
        Ok(ctx)
    }

    /// Agrees on a context among `ranks` of `comm`, of which this process is number `me`: the
    /// greatest proposal goes up a binomial tree and comes down again.
    fn agree_context(&mut self, comm: &Rc<Comm>, ranks: &[u32], me: usize, tag: i32) -> Res<u32> {
        let mut greatest = self.comms.next_ctx;
        let mut step = 1;
        while me & step == 0 && me + step < ranks.len() {
            greatest = greatest.max(self.recv_u32(comm, ranks[me + step], tag)?);
            step <<= 1;
        }
        // Past the end of the list the tree has gaps: skip to the bit that leads to the parent.
        while me & step == 0 && step < ranks.len() {
            step <<= 1;
        }
        if me != 0 {
            let parent = ranks[me & !step];
            self.send_u32(comm, greatest, parent, tag)?;
            greatest = self.recv_u32(comm, parent, tag)?;
        }
        while step > 1 {
            step >>= 1;
            if me + step < ranks.len() {
                self.send_u32(comm, greatest, ranks[me + step], tag)?;
            }
        }
        self.claim_context(greatest)
    }

    fn send_u32(&mut self, comm: &Rc<Comm>, value: u32, to: u32, tag: i32) -> Res<()> {
        let byte = self.types.get(BYTE)?;
        let bytes = value.to_ne_bytes();
        // SAFETY: the array is readable for its length until the call returns.
        unsafe { self.coll_send(comm, bytes.as_ptr(), 4, &byte, to, tag) }
    }

    fn recv_u32(&mut self, comm: &Rc<Comm>, from: u32, tag: i32) -> Res<u32> {
        let byte = self.types.get(BYTE)?;
        let mut bytes = [0; 4];
        // SAFETY: the array is writable for its length until the call returns.
        unsafe { self.coll_recv(comm, bytes.as_mut_ptr(), 4, &byte, from, tag)? };
        Ok(u32::from_ne_bytes(bytes))
    }

    /// The votes of all ranks, by rank.
    fn exchange_votes(&mut self, comm: &Rc<Comm>, own: Vote) -> Res<Vec<Vote>> {
        let own = own.bytes();
        let mut all = vec![0; VOTE_BYTES * comm.size() as usize];
        let byte = self.types.get(BYTE)?;
        // SAFETY: `own` has VOTE_BYTES bytes and `all` that many for every rank.
        unsafe {
            self.allgather_bytes(comm, &byte, own.as_ptr(), all.as_mut_ptr(), VOTE_BYTES)?;
        }
        Ok(all.chunks_exact(VOTE_BYTES).map(Vote::parse).collect())
    }
}
