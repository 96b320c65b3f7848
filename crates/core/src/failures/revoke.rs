//! Communicators that are revoked: who is told of it, and when (`protocol::revocation`).
//!
//! Kept true: what is known of one stays when it is freed, as others may have to be told of it; so
//! does what is said of one that is not known here yet.

use std::rc::Rc;

use eyrie_protocol::revocation::Revocation;

use super::letters::REVOKED;
use crate::comm::Comm;
use crate::machine::Machine;

/// What is known of one.
#[derive(Default)]
pub(super) struct Revoked {
    state: Revocation,
    /// World ranks of the other members, once they are known here.
    others: Option<Rc<[u32]>>,
    /// They are to be told as soon as they are known.
    owed: bool,
}

impl Machine {
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
}
