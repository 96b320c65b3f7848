//! The commit of a generation: the controller's machine and the members' parts, with messages
//! between them that are passed on here.

use super::{Begun, Order, Vault, VaultError};
use crate::coordinator::{Action, Base, Coordinator, Event, Outcome};
use crate::cost;
use crate::disk::Disk;
use crate::encoding::Message;
use crate::member::{Member, MemberError};
use crate::record::Commit;
use crate::strategy;
use std::collections::{BTreeSet, VecDeque};

impl<D: Disk> Vault<D> {
    /// Encodes and commits what was begun.
    pub fn commit(&mut self) -> Result<u64, VaultError> {
        let Some(begun) = self.begun.take() else {
            return Err(VaultError::NoGeneration(self.last + 1));
        };
        let (base, why) = (self.base_of(&begun), begun.why);
        let (generation, groups) = (begun.generation, begun.groups);
        let (measured, scheme, fixed) = (self.measured, self.scheme, self.encoder);
        let choose = Box::new(move |payloads: &[u64]| {
            fixed.unwrap_or_else(|| cost::choose(&measured, scheme, payloads).encoder)
        });
        let ids = (generation, self.term);
        let coordinator = Coordinator::new(self.id, ids, scheme, groups.clone(), choose);
        let coordinator = coordinator.over(base).because(why);
        let mut run = Run {
            coordinator,
            groups,
            events: VecDeque::new(),
            messages: Vec::new(),
            commit: None,
            outcome: None,
        };
        for (node, member) in &mut self.members {
            let event = match member.offer().map(|offer| (offer, member.changed())) {
                Ok((offer, None)) => Event::Offered(offer),
                Ok((offer, Some(runs))) => Event::Changed(offer, runs),
                Err(error) => Event::Failed { node: *node, why: error.to_string() },
            };
            run.events.push_back(event);
        }
        self.sent = 0;
        self.run(generation, &mut run);
        match (run.outcome, run.commit) {
            (Some(Outcome::Committed), Some(commit)) => {
                self.commits.insert(generation, commit);
                Ok(generation)
            }
            (Some(Outcome::Aborted { why }), _) => Err(VaultError::Aborted { generation, why }),
            _ => Err(VaultError::Uncertain(generation)),
        }
    }

    /// What parity may be updated, and when it is.
    fn base_of(&self, begun: &Begun) -> Option<Base> {
        let commit = self.commits.get(&begun.base?)?.clone();
        let (measured, scheme, why) = (self.measured, self.scheme, begun.why.clone());
        let prefer = Box::new(move |payloads: &[u64], changed: &[u64]| {
            let (update, told) = strategy::updates(&measured, scheme, payloads, changed);
            (update, if why.is_empty() { told } else { format!("{why}; {told}") })
        });
        Some(Base { commit, encoder: self.encoder, prefer })
    }

    fn run(&mut self, generation: u64, run: &mut Run) {
        while run.outcome.is_none() {
            if let Some(event) = run.events.pop_front() {
                for action in run.coordinator.handle(event) {
                    self.carry_out(generation, run, action);
                }
            } else if !run.messages.is_empty() {
                let (from, to, message) = run.next(&mut self.order);
                self.sent += message.block.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
                self.deliver(run, to, |member| member.message(from, message));
            } else {
                // Nothing is under way, and it is not over: a defect.
                run.events.push_back(Event::Failed { node: 0, why: "nothing goes on".into() });
            }
        }
    }

    /// Lets a member do something, and passes on what it says.
    fn deliver(
        &mut self,
        run: &mut Run,
        node: u32,
        work: impl FnOnce(&mut Member<D>) -> Result<Vec<(usize, Message)>, MemberError>,
    ) {
        let Some(member) = self.members.get_mut(&node) else { return };
        let group = run.groups.iter().find(|g| g.contains(&node)).cloned().unwrap_or_default();
        let done = work(member).and_then(|messages| Ok((messages, member.settle()?)));
        match done {
            Ok((messages, prepared)) => {
                let message = |(to, message): (usize, Message)| (node, group[to], message);
                run.messages.extend(messages.into_iter().map(message));
                run.events.extend(prepared.map(Event::Prepared));
            }
            Err(error) => {
                run.events.push_back(Event::Failed { node, why: error.to_string() });
            }
        }
    }

    fn carry_out(&mut self, generation: u64, run: &mut Run, action: Action) {
        match action {
            Action::Encode { group, payloads, encoder } => {
                let nodes = run.groups[group].clone();
                for node in &nodes {
                    self.deliver(run, *node, |m| m.encode(&nodes, &payloads, encoder));
                }
            }
            Action::Update { group, payloads, changed, encoder } => {
                let nodes = run.groups[group].clone();
                for node in &nodes {
                    self.deliver(run, *node, |m| m.update(&nodes, &payloads, &changed, encoder));
                }
            }
            Action::Commit(commit) => {
                for (node, member) in &mut self.members {
                    let event = match member.commit(&commit) {
                        Ok(()) => Event::Committed { node: *node },
                        Err(error) => Event::Failed { node: *node, why: error.to_string() },
                    };
                    run.events.push_back(event);
                }
                run.commit = Some(commit);
            }
            Action::Abort => {
                // What cannot be removed now is when the vault is opened.
                self.members.values_mut().for_each(|m| drop(m.abort(generation)));
            }
            Action::Ended(outcome) => run.outcome = Some(outcome),
        }
    }
}

/// A commit that is under way.
struct Run {
    coordinator: Coordinator,
    groups: Vec<Vec<u32>>,
    events: VecDeque<Event>,
    /// From, to, what.
    messages: Vec<(u32, u32, Message)>,
    commit: Option<Commit>,
    outcome: Option<Outcome>,
}

impl Run {
    /// The next message: any that is the first between its two members.
    fn next(&mut self, order: &mut Order) -> (u32, u32, Message) {
        let mut seen = BTreeSet::new();
        let first = |(at, (from, to, _)): (usize, &(u32, u32, Message))| {
            seen.insert((*from, *to)).then_some(at)
        };
        let firsts: Vec<usize> = self.messages.iter().enumerate().filter_map(first).collect();
        let pick = order(firsts.len()).min(firsts.len() - 1);
        self.messages.remove(firsts[pick])
    }
}
