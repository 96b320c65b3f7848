//! Making communicators: duplicate, create from a group, split.
//!
//! Context ids are agreed without a central place: each process keeps the least context it has
//! never used, the participants take the greatest of theirs, and all of them go on behind it. So a
//! context is new to every participant, whatever it did in other communicators, and the outcome
//! depends only on what the program did before, not on timing. Disjoint groups of one split share
//! a context: no process is in both. Where nobody may wait for the others (`later`), or there is no
//! communicator yet to agree in, one process picks: it has numbers of its own in the upper half.
//! A process of which several threads may agree at the same time proposes a number of its own, too:
//! two agreements have no proposal in common, hence no outcome.
//! Contexts are never used again (there are 2^29 of each kind).

use std::rc::Rc;

use eyrie_ledger::door::Call;

use super::{
    CONTEXTS, Comm, GROUP_TAG, Remote, TYPE_HW_GUIDED, TYPE_HW_UNGUIDED, TYPE_RESOURCE_GUIDED,
    TYPE_SHARED,
};
use crate::attr::AttrKind;
use crate::consts::{COMM_NULL, SPARES, UNDEFINED};
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
/// A colour that no program can give: that of the node which the rank is on.
const BY_NODE: i32 = i32::MIN;

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
    /// The remote group, of an inter-communicator.
    pub(crate) remote: Option<Rc<Group>>,
}

/// From here on contexts are picked by one process.
pub(crate) const PICKED_CTX: u32 = 1 << 31;
/// What a new communicator takes: an inter-communicator has one in it.
pub(crate) const TAKEN: u32 = 2 * CONTEXTS;

/// Who of a group has voted for this color, by key, then by rank: their world ranks.
pub(super) fn chosen(
    votes: impl Iterator<Item = (i32, i32)>,
    color: i32,
    group: &Group,
) -> Vec<u32> {
    let mut chosen: Vec<(i32, u32)> =
        votes.zip(0..).filter(|((c, _), _)| *c == color).map(|((_, key), r)| (key, r)).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, rank)| group.world(rank)).collect()
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

    /// Same group, nothing else: for the library's own objects.
    pub(crate) fn comm_dup_bare(&mut self, comm: &Rc<Comm>) -> Res<Handle> {
        let ctx = self.agree_context_of(comm)?;
        self.comm_install(comm, ctx, comm.group.clone(), Inherit::default())
    }

    fn dup_with_hints(&mut self, handle: Handle, hints: Info) -> Res<Handle> {
        let comm = self.comms.get(handle)?;
        let ctx = self.agree_context_of(&comm)?;
        let remote = comm.remote.as_ref().map(|r| r.group.clone());
        let inherit = Inherit { hints, topology: comm.topology.clone(), remote };
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
        if comm.is_inter() {
            return self.create_across(&comm, &group);
        }
        let ctx = self.agree_context_of(&comm)?;
        if group.rank().is_none() {
            return Ok(COMM_NULL);
        }
        self.comm_install(&comm, ctx, group, Inherit::default())
    }

    /// Collective over `group` only; `COMM_NULL` outside it.
    pub fn comm_create_group(&mut self, comm: Handle, group: Handle, tag: i32) -> Res<Handle> {
        let comm = self.comms.intra(comm)?;
        let group = self.groups.get(group)?;
        if tag < 0 {
            return Err(class::TAG);
        }
        let ranks: Option<Vec<u32>> =
            group.members().iter().map(|&w| comm.rank_of_world(w)).collect();
        let ranks = ranks.ok_or(class::GROUP)?;
        let Some(me) = group.rank() else { return Ok(COMM_NULL) };
        let tag = GROUP_TAG | tag & (GROUP_TAG - 1);
        let ctx = if self.reports_failures() {
            // Others in the communicator may be lost.
            let (among, all) = (self.among(group.clone()), 0..group.size());
            self.agree_context(&among, &all.collect::<Vec<_>>(), me as usize, tag)?
        } else {
            self.agree_context(&comm, &ranks, me as usize, tag)?
        };
        self.comm_install(&comm, ctx, group, Inherit::default())
    }

    /// One communicator per color, ordered by key, then by old rank.
    pub fn comm_split(&mut self, comm: Handle, color: i32, key: i32) -> Res<Handle> {
        if color == BY_NODE {
            return self.comms.get_ref(comm).and(Err(class::ARG));
        }
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
        let me = self.comms.get(comm)?.rank;
        let info = self.infos.get_optional(info)?.cloned().unwrap_or_default();
        let shared = info.get(b"mpi_hw_resource_type") == Some(b"mpi_shared_memory");
        let color = match split_type {
            TYPE_SHARED => BY_NODE,
            TYPE_HW_GUIDED | TYPE_RESOURCE_GUIDED if shared => BY_NODE,
            TYPE_RESOURCE_GUIDED => match info.get(b"mpi_pset_name") {
                Some(b"mpi://WORLD") => 0,
                Some(b"mpi://SELF") => me as i32,
                Some(SPARES) if self.spare_ranks().contains(&self.comms.me) => 0,
                _ => UNDEFINED,
            },
            // No finer resource is known, so there is no proper part to give.
            TYPE_HW_GUIDED | TYPE_HW_UNGUIDED | UNDEFINED => UNDEFINED,
            _ => return Err(class::ARG),
        };
        self.split_with(comm, color, key, Inherit { hints: info, ..Inherit::default() })
    }

    pub(crate) fn split_with(
        &mut self,
        comm: Handle,
        color: i32,
        key: i32,
        inherit: Inherit,
    ) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        if color < 0 && ![UNDEFINED, BY_NODE].contains(&color) {
            return Err(class::ARG);
        }
        if comm.is_inter() {
            let color = if color == BY_NODE { self.node() as i32 & i32::MAX } else { color };
            return self.split_across(&comm, color, key);
        }
        let next_ctx = self.proposal()?;
        let own = Vote { color, key, next_ctx };
        let votes = self.exchange_votes(&comm, own)?;
        let greatest = votes.iter().map(|v| v.next_ctx).max().unwrap_or(own.next_ctx);
        let ctx = self.claim_context(greatest)?;
        let by_node = votes.iter().any(|v| v.color == BY_NODE);
        let nodes = if by_node { self.nodes_of(&comm)? } else { Vec::new() };
        if color == UNDEFINED {
            return Ok(COMM_NULL);
        }
        let node = |rank: usize| nodes[rank] as i32 & i32::MAX;
        let color = if color == BY_NODE { node(comm.rank as usize) } else { color };
        let of = |(rank, vote): (usize, &Vote)| match vote.color {
            BY_NODE => (node(rank), vote.key),
            given => (given, vote.key),
        };
        let group = chosen(votes.iter().enumerate().map(of), color, &comm.group);
        let group = Rc::new(Group::new(group, self.comms.me));
        self.comm_install(&comm, ctx, group, inherit)
    }

    /// The nodes of all ranks, as the first one sees them: what each says of itself may be of
    /// moments between which some came back elsewhere.
    fn nodes_of(&mut self, comm: &Rc<Comm>) -> Res<Vec<u32>> {
        let mut bytes = vec![0; 4 * comm.size() as usize];
        if comm.rank == 0 {
            let node = |rank| self.endpoint.node_of(comm.world_rank(rank)).to_ne_bytes();
            let seen = (0..comm.size()).flat_map(node).collect();
            let seen = self.recorded(Call::Node, || Ok(seen))?;
            if seen.len() != bytes.len() {
                self.misreplayed(Call::Node);
            }
            bytes = seen;
        }
        self.bcast_bytes(comm, &mut bytes)?;
        let word = |b: &[u8]| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
        Ok(bytes.chunks_exact(4).map(word).collect())
    }

    /// Puts a communicator that this process belongs to into the table.
    pub(crate) fn comm_install(
        &mut self,
        parent: &Comm,
        ctx: u32,
        group: Rc<Group>,
        inherit: Inherit,
    ) -> Res<Handle> {
        let eh = parent.errhandler.get();
        self.comm_insert(ctx, group, inherit, eh).map(|(handle, _)| handle)
    }

    /// The same with an error handler of its own.
    pub(crate) fn comm_insert(
        &mut self,
        ctx: u32,
        group: Rc<Group>,
        inherit: Inherit,
        errhandler: Handle,
    ) -> Res<(Handle, Rc<Comm>)> {
        let me = self.comms.me;
        let mut comm = Comm::new(ctx, group.clone(), me);
        comm.topology = inherit.topology;
        comm.take_hints(Some(&inherit.hints));
        comm.errhandler.set(errhandler);
        comm.remote = inherit.remote.map(|remote| {
            let health = comm.health.clone();
            let local = Rc::new(Comm { health, ..Comm::new(ctx + CONTEXTS, group, me) });
            Remote { group: remote, local }
        });
        self.comms.group_up(&comm);
        let comm = Rc::new(comm);
        let handle = self.comms.insert(comm.clone())?;
        self.examine(&comm);
        self.errhandlers.acquire(errhandler)?;
        Ok((handle, comm))
    }

    /// Agrees on a context among all ranks of `comm`, and of its remote group.
    pub(crate) fn agree_context_of(&mut self, comm: &Rc<Comm>) -> Res<u32> {
        let own = self.greatest_context_of(comm)?;
        let greatest = if comm.is_inter() { self.greatest_across(comm, own)? } else { own };
        self.claim_context(greatest)
    }

    /// The greatest proposal in the (local) group.
    pub(crate) fn greatest_context_of(&mut self, comm: &Rc<Comm>) -> Res<u32> {
        let comm = comm.remote.as_ref().map_or(comm, |r| &r.local).clone();
        if comm.groups.get().is_some() {
            // All hear all of them: that crosses the wide area once, a tree does twice.
            let vote = Vote { color: 0, key: 0, next_ctx: self.proposal()? };
            let votes = self.exchange_votes(&comm, vote)?;
            return Ok(votes.iter().map(|v| v.next_ctx).max().unwrap_or(vote.next_ctx));
        }
        let ranks: Vec<u32> = (0..comm.size()).collect();
        self.greatest_context(&comm, &ranks, comm.rank as usize, comm.next_tag())
    }

    pub(crate) fn claim_context(&mut self, ctx: u32) -> Res<u32> {
        if ctx >= PICKED_CTX {
            // It was picked.
            return Ok(ctx);
        }
        self.comms.next_ctx = self.comms.next_ctx.max(ctx + TAKEN);
        if self.comms.next_ctx > PICKED_CTX { Err(class::OTHER) } else { Ok(ctx) }
    }

    /// What this process proposes.
    pub(crate) fn proposal(&mut self) -> Res<u32> {
        self.step();
        if self.threads.several() { self.pick_context() } else { Ok(self.comms.next_ctx) }
    }

    /// A context that no other process gives away.
    pub(crate) fn pick_context(&mut self) -> Res<u32> {
        let (me, ranks) = self.world();
        let number = u64::from(self.comms.picks) * u64::from(ranks) + u64::from(me);
        let ctx = u64::from(PICKED_CTX) + number * u64::from(TAKEN);
        self.comms.picks += 1;
        u32::try_from(ctx + u64::from(TAKEN)).map(|end| end - TAKEN).map_err(|_| class::OTHER)
    }

    fn agree_context(&mut self, comm: &Rc<Comm>, ranks: &[u32], me: usize, tag: i32) -> Res<u32> {
        let greatest = self.greatest_context(comm, ranks, me, tag)?;
        self.claim_context(greatest)
    }

    /// Agrees on a context among `ranks` of `comm`, of which this process is number `me`: the
    /// greatest proposal goes up a binomial tree and comes down again.
    fn greatest_context(
        &mut self,
        comm: &Rc<Comm>,
        ranks: &[u32],
        me: usize,
        tag: i32,
    ) -> Res<u32> {
        let mut greatest = self.proposal()?;
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
        Ok(greatest)
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
