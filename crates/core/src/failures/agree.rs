//! Agreement among the members of a communicator that live: what is agreed on, its letters, and the
//! state machine of `protocol::consensus` for each.
//!
//! Kept true: an agreement is kept when it is decided, also when its communicator is freed, as
//! others may have to be told of it; so many of one communicator as cannot be under way any more
//! are given up. What a rank knows of lost members goes in with its contribution, so all decide by
//! the same.

use std::rc::Rc;

use eyrie_protocol::consensus::{Consensus, Members, Message, Out, Value};

use super::letters::AGREEMENT;
use crate::comm::Comm;
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::Op;

/// Context and number.
pub(super) type Key = (u32, u32);
/// Decided agreements of one communicator that are kept.
const KEPT: u32 = 64;

/// What is agreed on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Agreed {
    /// Of all members.
    pub flag: u32,
    /// The greatest context that any proposes for a communicator.
    pub ctx: u32,
    /// Members that are lost, and those that everybody has acknowledged.
    pub failed: Members,
    pub acked: Members,
}

impl Value for Agreed {
    fn merge(&mut self, other: &Agreed) {
        self.flag &= other.flag;
        self.ctx = self.ctx.max(other.ctx);
        self.failed.add(&other.failed);
        self.acked.keep(&other.acked);
    }

    fn without(&mut self, failed: &Members) {
        self.failed.add(failed);
    }
}

impl Agreed {
    /// Somebody is lost whom not everybody has acknowledged.
    fn error(&self) -> Option<Class> {
        (!self.failed.are_in(&self.acked)).then_some(class::PROC_FAILED)
    }
}

/// What is done with a decision that nobody waits for in a call.
pub(super) enum Then {
    /// The program's flag.
    Flag(*mut i32),
    /// Told to the program: a communicator, or the group of who is lost.
    Shrunk(Box<dyn Fn(Handle)>),
    Failed(Box<dyn Fn(Handle)>),
}

/// One agreement.
pub(super) struct Instance {
    /// World ranks of the members.
    members: Rc<Vec<u32>>,
    state: Consensus<Agreed>,
    /// The request that it completes, and its communicator.
    then: Option<(Handle, Rc<Comm>, Then)>,
}

impl Instance {
    /// Who is lost of the members, and who of those is acknowledged, as this rank knows.
    fn known(&self, comm: &Comm) -> (Members, Members) {
        let size = self.members.len() as u32;
        let (mut failed, mut acked) = (Members::none(size), Members::none(size));
        for (at, world) in comm.health.lost.borrow().iter().enumerate() {
            let place = self.members.iter().position(|m| m == world);
            let Some(member) = place.and_then(|p| u32::try_from(p).ok()) else { continue };
            failed.insert(member);
            if at < comm.health.acked.get() {
                acked.insert(member);
            }
        }
        (failed, acked)
    }
}

/// A message of it, as words.
pub(super) struct Letter {
    key: Key,
    kind: u64,
    ballot: u32,
    /// The rest: sets of members, values.
    sets: Vec<u64>,
}

const GIVEN: u64 = 0;
const LOCK: u64 = 1;
const LOCKED: u64 = 2;
const DECIDED: u64 = 3;

impl Letter {
    pub(super) fn parse(words: &[u64]) -> Option<Letter> {
        let [key, kind, sets @ ..] = words else { return None };
        let key = ((*key >> 32) as u32, *key as u32);
        Some(Letter { key, kind: *kind & 3, ballot: (*kind >> 2) as u32, sets: sets.to_vec() })
    }

    fn write((ctx, number): Key, message: &Message<Agreed>) -> Vec<u64> {
        let mut words = vec![AGREEMENT, u64::from(ctx) << 32 | u64::from(number)];
        let head = |kind: u64, ballot: u32| kind | u64::from(ballot) << 2;
        let value = |words: &mut Vec<u64>, v: &Agreed| {
            words.push(u64::from(v.ctx) << 32 | u64::from(v.flag));
            words.extend_from_slice(v.failed.words());
            words.extend_from_slice(v.acked.words());
        };
        match message {
            Message::Given { who, value: own } => {
                words.push(head(GIVEN, 0));
                words.extend_from_slice(who.words());
                value(&mut words, own);
            }
            Message::Lock { ballot, value: v } => {
                words.push(head(LOCK, *ballot));
                value(&mut words, v);
            }
            Message::Locked { ballot, who } => {
                words.push(head(LOCKED, *ballot));
                words.extend_from_slice(who.words());
            }
            Message::Decided { value: v } => {
                words.push(head(DECIDED, 0));
                value(&mut words, v);
            }
        }
        words
    }

    fn read(&self, size: u32) -> Option<Message<Agreed>> {
        let (mut rest, ballot) = (&self.sets[..], self.ballot);
        let message = match self.kind {
            GIVEN => {
                let (who, value) = (take_set(&mut rest, size)?, take_value(&mut rest, size)?);
                Message::Given { who, value }
            }
            LOCK => Message::Lock { ballot, value: take_value(&mut rest, size)? },
            LOCKED => Message::Locked { ballot, who: take_set(&mut rest, size)? },
            _ => Message::Decided { value: take_value(&mut rest, size)? },
        };
        rest.is_empty().then_some(message)
    }
}

fn take_set(rest: &mut &[u64], size: u32) -> Option<Members> {
    let (words, more) = rest.split_at_checked(Members::none(size).words().len())?;
    *rest = more;
    Some(Members::of_words(words, size))
}

fn take_value(rest: &mut &[u64], size: u32) -> Option<Agreed> {
    let (first, more) = rest.split_first()?;
    let (ctx, flag) = ((*first >> 32) as u32, *first as u32);
    *rest = more;
    Some(Agreed { flag, ctx, failed: take_set(rest, size)?, acked: take_set(rest, size)? })
}

/// All members of a communicator, in an order that all know: of two groups that one is first whose
/// first member is.
fn members_of(comm: &Comm) -> Vec<u32> {
    let own = comm.group.members();
    let Some(remote) = &comm.remote else { return own.to_vec() };
    let other = remote.group.members();
    let (first, second) = if own.first() < other.first() { (own, other) } else { (other, own) };
    first.iter().chain(second).copied().collect()
}

impl Machine {
    /// Begins the next agreement of a communicator.
    pub(super) fn begin_agreement(
        &mut self,
        comm: &Rc<Comm>,
        flag: u32,
        ctx: u32,
        then: Option<(Handle, Rc<Comm>, Then)>,
    ) -> Key {
        self.heed_failures();
        let number = comm.health.agreements.get();
        comm.health.agreements.set(number.wrapping_add(1));
        let key = (comm.ctx(), number);
        self.prune_agreements(key);
        if !self.failures.agreements.contains_key(&key) {
            let instance = self.new_instance(comm);
            self.failures.agreements.insert(key, instance);
        }
        let Some(instance) = self.failures.agreements.get_mut(&key) else { return key };
        instance.then = then;
        let (failed, acked) = instance.known(comm);
        let out = instance.state.contribute(Agreed { flag, ctx, failed, acked });
        self.send_agreement(key, out);
        key
    }

    fn prune_agreements(&mut self, (ctx, number): Key) {
        let old = number.saturating_sub(KEPT);
        let is_old =
            |key: &Key, i: &Instance| key.0 == ctx && key.1 < old && i.state.decided().is_some();
        self.failures.agreements.retain(|key, i| !is_old(key, i));
    }

    fn new_instance(&self, comm: &Comm) -> Instance {
        let members = members_of(comm);
        let me = self.endpoint.rank();
        let own = members.iter().position(|m| *m == me).unwrap_or(0);
        let mut state = Consensus::new(own as u32, members.len() as u32);
        for (at, world) in (0..).zip(&members) {
            if self.failures.is_lost(*world) {
                // Nobody has contributed here yet, so there is nothing to say.
                state.fail(at);
            }
        }
        Instance { members: Rc::new(members), state, then: None }
    }

    /// False: its communicator is not known yet.
    pub(super) fn hear_agreement(&mut self, source: u32, letter: Letter) -> bool {
        let key = letter.key;
        if !self.failures.agreements.contains_key(&key) {
            let Some(comm) = self.comms.all().find(|c| c.ctx() == key.0).cloned() else {
                return false;
            };
            if key.1.wrapping_sub(comm.health.agreements.get()) > u32::MAX / 2 {
                // One that was given up.
                return true;
            }
            let instance = self.new_instance(&comm);
            self.failures.agreements.insert(key, instance);
        }
        let Some(instance) = self.failures.agreements.get_mut(&key) else { return true };
        let size = instance.members.len() as u32;
        let from = instance.members.iter().position(|m| *m == source);
        let (Some(from), Some(message)) = (from, letter.read(size)) else { return true };
        if is_sound(&message, size) {
            let out = instance.state.hear(from as u32, message);
            self.send_agreement(key, out);
        }
        true
    }

    /// A rank is lost: all agreements learn of it.
    pub(super) fn tell_agreements(&mut self, rank: u32) {
        let keys: Vec<Key> = self.failures.agreements.keys().copied().collect();
        for key in keys {
            let Some(instance) = self.failures.agreements.get_mut(&key) else { continue };
            let Some(member) = instance.members.iter().position(|m| *m == rank) else { continue };
            let out = instance.state.fail(member as u32);
            self.send_agreement(key, out);
        }
    }

    fn send_agreement(&mut self, key: Key, out: Out<Agreed>) {
        let Some(instance) = self.failures.agreements.get_mut(&key) else { return };
        let members = instance.members.clone();
        let done = instance.state.decided().cloned();
        let then = if done.is_some() { instance.then.take() } else { None };
        for (to, message) in out {
            // What cannot be sent for want of memory ends the job, as it does elsewhere.
            if let Err(e) = self.write_letter(members[to as usize], &Letter::write(key, &message)) {
                self.endpoint.abort(e.0, "an agreement cannot go on");
            }
        }
        if let (Some(agreed), Some((req, comm, then))) = (done, then) {
            self.complete_agreement(req, &comm, &agreed, &then);
        }
    }

    fn complete_agreement(&mut self, req: Handle, comm: &Rc<Comm>, agreed: &Agreed, then: &Then) {
        let error = match then {
            Then::Flag(at) => {
                // SAFETY: the program promised it until the request is complete.
                unsafe { **at = agreed.flag as i32 };
                agreed.error()
            }
            Then::Shrunk(put) => self.shrunk(comm, agreed).map(put).err(),
            Then::Failed(put) => self.failed_group(comm, agreed).map(put).err(),
        };
        if let Some(r) = self.engine.reqs.get_mut(req) {
            r.error = error;
        }
        self.finish(req);
    }

    /// The decision.
    pub(super) fn await_agreement(&mut self, key: Key) -> Res<Agreed> {
        let decided =
            |m: &Machine| m.failures.agreements.get(&key).and_then(|i| i.state.decided()).cloned();
        self.wait_for(|m| decided(m).is_some());
        decided(self).ok_or(class::INTERN)
    }

    /// A request that is complete when the next agreement is decided.
    pub(super) fn agree_later(
        &mut self,
        comm: &Rc<Comm>,
        handle: Handle,
        (flag, ctx): (u32, u32),
        then: Then,
    ) -> Res<Handle> {
        let req = self.new_request(comm, handle, Op::Nothing)?;
        self.begin_agreement(comm, flag, ctx, Some((req, comm.clone(), then)));
        Ok(req)
    }

    pub(super) fn agreed_error(agreed: &Agreed) -> Res<()> {
        agreed.error().map_or(Ok(()), Err)
    }

    /// World ranks of the members that are lost, as all have decided.
    pub(super) fn lost_in(comm: &Comm, agreed: &Agreed) -> Vec<u32> {
        let members = members_of(comm);
        agreed.failed.iter().filter_map(|m| members.get(m as usize).copied()).collect()
    }
}

/// Whether a member could have written it.
fn is_sound(message: &Message<Agreed>, size: u32) -> bool {
    match message {
        Message::Lock { ballot, .. } | Message::Locked { ballot, .. } => *ballot < size,
        Message::Given { .. } | Message::Decided { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(members: &[u32], size: u32) -> Members {
        let mut all = Members::none(size);
        members.iter().for_each(|m| all.insert(*m));
        all
    }

    #[test]
    fn letters_say_what_they_were_told() {
        let size = 70;
        let value = |n: u32| Agreed {
            flag: n,
            ctx: 1 << 31 | n,
            failed: some(&[n, 69], size),
            acked: some(&[1], size),
        };
        let all = [
            Message::Given { who: some(&[3, 64], size), value: value(7) },
            Message::Lock { ballot: 69, value: value(1) },
            Message::Locked { ballot: 2, who: some(&[2], size) },
            Message::Decided { value: value(2) },
        ];
        for message in all {
            let words = Letter::write((40, 5), &message);
            let letter = Letter::parse(&words[1..]).unwrap();
            assert_eq!(letter.key, (40, 5));
            assert_eq!(letter.read(size), Some(message));
            for shorter in 1..words.len() {
                assert_eq!(Letter::parse(&words[1..shorter]).and_then(|l| l.read(size)), None);
            }
        }
    }

    #[test]
    fn a_loss_that_not_all_have_acknowledged_is_an_error() {
        let one = |failed: &[u32], acked: &[u32]| Agreed {
            flag: u32::MAX,
            ctx: 0,
            failed: some(failed, 4),
            acked: some(acked, 4),
        };
        assert_eq!(one(&[], &[]).error(), None);
        assert_eq!(one(&[2], &[2]).error(), None);
        let mut all = one(&[2], &[2]);
        all.merge(&one(&[2], &[]));
        assert_eq!(all.error(), Some(class::PROC_FAILED));
    }
}
