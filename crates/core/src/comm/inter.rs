//! Inter-communicators (MPI 5.0 section 7.6): made of two groups that have no rank in common.
//!
//! The first ranks of both groups (the leaders, when one is made) exchange what both need to know,
//! and share it in their groups. All of it is sent in an order that follows from the calls alone.

use std::rc::Rc;

use super::create::chosen;
use super::{Comm, GROUP_TAG, Inherit};
use crate::consts::{COMM_NULL, UNDEFINED};
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;

const WORD_BYTES: usize = 4;

impl Machine {
    /// `MPI_Intercomm_create`: `peer`, `remote_leader` and `tag` count at the local leader only.
    pub fn intercomm_create(
        &mut self,
        local: Handle,
        local_leader: i32,
        peer: Handle,
        remote_leader: i32,
        tag: i32,
    ) -> Res<Handle> {
        let local = self.comms.intra(local)?;
        let leader = local.root(local_leader).map_err(|_| class::RANK)?;
        let mut theirs = Vec::new();
        let peers = match local.rank == leader {
            false => None,
            true => {
                let peers = self.comms.get(peer)?;
                let known = 0..peers.peers().size() as i32;
                if !known.contains(&remote_leader) {
                    return Err(class::RANK);
                }
                if tag < 0 {
                    return Err(class::TAG);
                }
                Some(peers)
            }
        };
        let greatest = self.greatest_context_of(&local)?;
        if let Some(peers) = peers {
            let mut own = vec![greatest];
            own.extend(self.addresses(local.group.members()));
            let tag = GROUP_TAG | tag & (GROUP_TAG - 1);
            theirs = self.swap_words(&peers, remote_leader as u32, tag, &own)?;
        }
        let theirs = self.share_words(&local, leader, theirs)?;
        let (&their_ctx, theirs) = theirs.split_first().ok_or(class::INTERN)?;
        let members = self.learn_addresses(theirs)?;
        let ctx = self.claim_context(greatest.max(their_ctx))?;
        if members.iter().any(|&w| local.rank_of_world(w).is_some()) {
            return Err(class::COMM);
        }
        let remote = Some(Rc::new(Group::new(members, self.comms.me)));
        let inherit = Inherit { remote, ..Inherit::default() };
        self.comm_install(&local, ctx, local.group.clone(), inherit)
    }

    /// `MPI_Intercomm_merge`: the group that says `high` comes last; if both say the same, the one
    /// whose first rank is the lower in the world comes first.
    pub fn intercomm_merge(&mut self, comm: Handle, high: bool) -> Res<Handle> {
        let comm = self.comms.get(comm)?;
        if !comm.is_inter() {
            return Err(class::COMM);
        }
        let greatest = self.greatest_context_of(&comm)?;
        let theirs = self.across(&comm, &[greatest, high.into()])?;
        let [their_ctx, their_high] = theirs[..] else { return Err(class::INTERN) };
        let ctx = self.claim_context(greatest.max(their_ctx))?;
        let (own, other) = (comm.group.members(), comm.peers().members());
        let first = (u32::from(high), own[0]) < (their_high, other[0]);
        let members = if first { [own, other].concat() } else { [other, own].concat() };
        let group = Rc::new(Group::new(members, self.comms.me));
        self.comm_install(&comm, ctx, group, Inherit::default())
    }

    /// `MPI_Comm_create` on an inter-communicator.
    pub(super) fn create_across(&mut self, comm: &Rc<Comm>, group: &Rc<Group>) -> Res<Handle> {
        let greatest = self.greatest_context_of(comm)?;
        let mut own = vec![greatest];
        own.extend_from_slice(group.members());
        let theirs = self.across(comm, &own)?;
        let (&their_ctx, members) = theirs.split_first().ok_or(class::INTERN)?;
        let ctx = self.claim_context(greatest.max(their_ctx))?;
        self.install_across(comm, ctx, group.clone(), members.to_vec())
    }

    /// `MPI_Comm_split` on an inter-communicator.
    pub(super) fn split_across(&mut self, comm: &Rc<Comm>, color: i32, key: i32) -> Res<Handle> {
        let greatest = self.greatest_context_of(comm)?;
        let local = local_of(comm)?;
        let own = self.collect_words(&local, &[color as u32, key as u32])?;
        let mut said = vec![greatest];
        said.extend_from_slice(&own);
        let theirs = self.across(comm, &said)?;
        let (&their_ctx, theirs) = theirs.split_first().ok_or(class::INTERN)?;
        let ctx = self.claim_context(greatest.max(their_ctx))?;
        if color == UNDEFINED {
            return Ok(COMM_NULL);
        }
        let votes = |words: &[u32]| -> Vec<(i32, i32)> {
            words.chunks_exact(2).map(|v| (v[0] as i32, v[1] as i32)).collect()
        };
        let group = chosen(votes(&own).into_iter(), color, &comm.group);
        let remote = chosen(votes(theirs).into_iter(), color, comm.peers());
        let group = Rc::new(Group::new(group, self.comms.me));
        self.install_across(comm, ctx, group, remote)
    }

    /// One without ranks on both sides is none.
    fn install_across(
        &mut self,
        comm: &Rc<Comm>,
        ctx: u32,
        group: Rc<Group>,
        remote: Vec<u32>,
    ) -> Res<Handle> {
        if group.rank().is_none() || remote.is_empty() {
            return Ok(COMM_NULL);
        }
        let remote = Some(Rc::new(Group::new(remote, self.comms.me)));
        self.comm_install(comm, ctx, group, Inherit { remote, ..Inherit::default() })
    }

    /// The greater of both groups' contexts.
    pub(super) fn greatest_across(&mut self, comm: &Rc<Comm>, own: u32) -> Res<u32> {
        let theirs = self.across(comm, &[own])?;
        Ok(theirs.first().map_or(own, |theirs| own.max(*theirs)))
    }

    /// What the other group says for what this one does; all of a group say the same.
    fn across(&mut self, comm: &Rc<Comm>, own: &[u32]) -> Res<Vec<u32>> {
        let tag = comm.next_tag();
        let mut theirs = Vec::new();
        if comm.rank == 0 {
            theirs = self.swap_words(comm, 0, tag, own)?;
        }
        self.share_words(&local_of(comm)?, 0, theirs)
    }

    /// Exchanges words with a peer.
    pub(super) fn swap_words(
        &mut self,
        comm: &Rc<Comm>,
        peer: u32,
        tag: i32,
        own: &[u32],
    ) -> Res<Vec<u32>> {
        let sent = self.send_words(comm, peer, tag, own);
        let theirs = self.recv_words(comm, peer, tag);
        sent.and(theirs)
    }

    /// Gives all of a communicator the words that its rank `root` has.
    pub(crate) fn share_words(
        &mut self,
        comm: &Rc<Comm>,
        root: u32,
        words: Vec<u32>,
    ) -> Res<Vec<u32>> {
        let tag = comm.next_tag();
        self.told(comm, root, words, tag)
    }

    /// The same with a tag of the caller's.
    pub(super) fn told(
        &mut self,
        comm: &Rc<Comm>,
        root: u32,
        words: Vec<u32>,
        tag: i32,
    ) -> Res<Vec<u32>> {
        if comm.rank != root {
            return self.recv_words(comm, root, tag);
        }
        for to in (0..comm.size()).filter(|to| *to != root) {
            self.send_words(comm, to, tag, &words)?;
        }
        Ok(words)
    }

    /// The words of all ranks, by rank; all have as many.
    fn collect_words(&mut self, comm: &Rc<Comm>, own: &[u32]) -> Res<Vec<u32>> {
        let byte = self.types.get(BYTE)?;
        let own = bytes_of(own);
        let mut all = vec![0; own.len() * comm.size() as usize];
        // SAFETY: `all` has room for as many bytes of each rank as `own` has.
        unsafe {
            self.allgather_bytes(comm, &byte, own.as_ptr(), all.as_mut_ptr(), own.len())?;
        }
        Ok(words_of(&all))
    }

    /// Their number first. The send log takes them, so nobody waits for the receiver.
    pub(crate) fn send_words(
        &mut self,
        comm: &Rc<Comm>,
        to: u32,
        tag: i32,
        words: &[u32],
    ) -> Res<()> {
        let byte = self.types.get(BYTE)?;
        let number = (words.len() as u32).to_ne_bytes();
        let words = bytes_of(words);
        // SAFETY: both are readable for their lengths until the calls return.
        unsafe {
            self.coll_send(comm, number.as_ptr(), WORD_BYTES as u64, &byte, to, tag)?;
            self.coll_send(comm, words.as_ptr(), words.len() as u64, &byte, to, tag)
        }
    }

    pub(crate) fn recv_words(&mut self, comm: &Rc<Comm>, from: u32, tag: i32) -> Res<Vec<u32>> {
        let byte = self.types.get(BYTE)?;
        let mut number = [0; WORD_BYTES];
        // SAFETY: both are writable for their lengths until the calls return.
        unsafe {
            let at = number.as_mut_ptr();
            self.coll_recv(comm, at, WORD_BYTES as u64, &byte, from, tag)?;
            let mut words = vec![0; u32::from_ne_bytes(number) as usize * WORD_BYTES];
            let (at, bytes) = (words.as_mut_ptr(), words.len() as u64);
            self.coll_recv(comm, at, bytes, &byte, from, tag)?;
            Ok(words_of(&words))
        }
    }
}

fn local_of(comm: &Comm) -> Res<Rc<Comm>> {
    comm.remote.as_ref().map(|r| r.local.clone()).ok_or(class::COMM)
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(WORD_BYTES).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}
