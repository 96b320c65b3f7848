//! What ranks tell each other of communicators besides messages of the program: that one is
//! revoked, what an agreement needs, that a rank finalizes.
//!
//! Kept true: a letter has a context of its own, so no receive of the program gets it; it is read
//! where a call would wait. Who is told of a revocation, and when, `protocol::revocation` says.

use std::rc::Rc;

use eyrie_protocol::revocation::Revocation;

use super::agree;
use crate::comm::{CONTROL_CTX, Comm};
use crate::consts::{ANY_TAG, COMM_SELF, COMM_WORLD};
use crate::datatype::predefined::BYTE;
use crate::dynamic::state::Room;
use crate::error::{Res, class};
use crate::machine::Machine;
use crate::request::{Data, Op, RecvOp};

const WORD: usize = size_of::<u64>();

/// What the first word of a letter says.
const REVOKED: u64 = 1;
pub(super) const AGREEMENT: u64 = 2;
const FINISHING: u64 = 3;

/// What is known of a communicator that is revoked, also when it is freed, or not known here yet:
/// others may have to be told of it.
#[derive(Default)]
pub(super) struct Revoked {
    state: Revocation,
    /// World ranks of the other members, once they are known here.
    others: Option<Rc<[u32]>>,
    /// They are to be told as soon as they are known.
    owed: bool,
}

impl Machine {
    pub(super) fn write_letter(&mut self, to: u32, words: &[u64]) -> Res<()> {
        if self.failures.is_lost(to) {
            return Ok(());
        }
        let post = self.failures.post.clone();
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.post_bytes(&post, CONTROL_CTX, to, 0, bytes)
    }

    /// Reads what has come, whole. True if anything.
    pub(super) fn read_letters(&mut self) -> bool {
        let mut read = false;
        for (source, words) in std::mem::take(&mut self.failures.early) {
            read |= self.heed_letter(source, words);
        }
        for source in 0..self.endpoint.size() {
            while let Some(words) = self.next_letter(source) {
                self.heed_letter(source, words);
                read = true;
            }
        }
        read
    }

    /// The next letter of a rank, if all of it is there.
    fn next_letter(&mut self, source: u32) -> Option<Vec<u64>> {
        let (_, found) = self.engine.queues(CONTROL_CTX).find_unexpected(Some(source), ANY_TAG)?;
        let (len, whole) =
            self.engine.unexpected.get(found.slot)?.as_ref().map(|u| (u.len, u.whole))?;
        if !whole {
            // Of somebody who lives the rest follows.
            self.failures.mail |= !self.failures.is_lost(source);
            return None;
        }
        self.receive_letter(source, len).ok()
    }

    fn receive_letter(&mut self, source: u32, len: u64) -> Res<Vec<u64>> {
        let post = self.failures.post.clone();
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| class::NO_MEM)?];
        let data = Data::new(bytes.as_mut_ptr(), len, self.types.get(BYTE)?);
        let op = RecvOp { open: true, ..self.recv_op(CONTROL_CTX, data, Some(source), ANY_TAG) };
        let req = self.new_request(&post, COMM_SELF, Op::Recv(op))?;
        self.post_recv(req);
        self.coll_wait(&[req])?;
        Ok(bytes
            .chunks_exact(WORD)
            .map(|word| word.try_into().map_or(0, u64::from_le_bytes))
            .collect())
    }

    /// False: it is of a communicator that is not known here yet, and is kept.
    fn heed_letter(&mut self, source: u32, words: Vec<u64>) -> bool {
        match words.split_first() {
            Some((&REVOKED, [ctx])) => self.hear_revoked(source, *ctx as u32),
            Some((&AGREEMENT, rest)) => {
                let Some(letter) = agree::Letter::parse(rest) else { return true };
                if !self.hear_agreement(source, letter) {
                    self.failures.early.push((source, words));
                    return false;
                }
            }
            Some((&FINISHING, [program])) => {
                let ended = &mut self.failures.finishing[source as usize];
                *ended = program.saturating_add(1).max(*ended);
            }
            _ => debug_assert!(false, "a letter of rank {source} that nobody writes"),
        }
        true
    }

    /// Nothing but agreements goes on in it any more, here and wherever its members are.
    pub(super) fn revoke_and_tell(&mut self, comm: &Rc<Comm>) {
        let tell = self.failures.revoked.entry(comm.ctx()).or_default().state.begin();
        self.becomes_revoked(comm, tell);
    }

    pub(super) fn hear_revoked(&mut self, source: u32, ctx: u32) {
        let is_lost = self.failures.is_lost(source);
        let known = self.comms.all().find(|comm| comm.ctx() == ctx).cloned();
        let revoked = self.failures.revoked.entry(ctx).or_default();
        let tell = revoked.state.hear(source, is_lost);
        match known {
            Some(comm) => self.becomes_revoked(&comm, tell),
            None => self.tell_revoked(ctx, tell),
        }
    }

    /// A communicator that was just made may be one that others have spoken of before.
    pub(super) fn examine_revoked(&mut self, comm: &Rc<Comm>) {
        if self.failures.revoked.contains_key(&comm.ctx()) {
            self.becomes_revoked(comm, false);
        }
    }

    /// A rank is lost: what only it has told everybody may not have been told to all.
    pub(super) fn teller_is_lost(&mut self, rank: u32) {
        let all = self.failures.revoked.iter_mut();
        let cut_short: Vec<u32> =
            all.filter_map(|(ctx, revoked)| revoked.state.fail(rank).then_some(*ctx)).collect();
        cut_short.into_iter().for_each(|ctx| self.tell_revoked(ctx, true));
    }

    fn becomes_revoked(&mut self, comm: &Rc<Comm>, tell: bool) {
        if comm.usable().is_ok() {
            comm.revoke();
            self.give_up_all();
        }
        let me = self.endpoint.rank();
        let revoked = self.failures.revoked.entry(comm.ctx()).or_default();
        if revoked.others.is_none() {
            let remote = comm.remote.iter().flat_map(|r| r.group.members());
            let all = comm.group.members().iter().chain(remote);
            revoked.others = Some(all.copied().filter(|member| *member != me).collect());
        }
        self.tell_revoked(comm.ctx(), tell);
    }

    fn tell_revoked(&mut self, ctx: u32, tell: bool) {
        let Some(revoked) = self.failures.revoked.get_mut(&ctx) else { return };
        revoked.owed |= tell;
        let Some(others) = revoked.others.clone().filter(|_| revoked.owed) else { return };
        revoked.owed = false;
        for to in others.iter() {
            // A letter that cannot be sent is of a job that is about to end.
            let _ = self.write_letter(*to, &[REVOKED, u64::from(ctx)]);
        }
    }

    /// `MPI_Finalize`: nobody leaves while others may still need what it knows of agreements.
    pub(crate) fn finish_with_others(&mut self) {
        if !self.failures.reports {
            return;
        }
        let (me, size) = (self.endpoint.rank(), self.endpoint.size());
        if let Ok(world) = self.comms.get(COMM_WORLD) {
            self.acquaint(&world);
        }
        // One that has met this rank may not be known here. The keeper of a room reads no letters
        // before it is asked for something.
        let keeper = Room::of(size, self.endpoint.room()).map(|room| room.keeper);
        let own = u64::from(self.endpoint.world());
        for to in (0..size).filter(|to| *to != me && Some(*to) != keeper) {
            let _ = self.write_letter(to, &[FINISHING, own]);
        }
        self.wait_for(|m| {
            let f = &m.failures;
            let ended = |r: u32| f.finishing[r as usize] > u64::from(m.endpoint.addressed(r));
            let there = |r: u32| ended(r) || f.is_lost(r);
            (0..size).all(|r| r == me || !f.met[r as usize] || there(r))
        });
    }
}
