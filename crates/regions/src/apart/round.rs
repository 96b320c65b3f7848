//! A generation of the vault: what members write, offer, encode and commit, each for itself, and
//! all by the same coordinator, of which every process has one that is told the same.
//!
//! Kept true: it is decided when all have told all that what they have is durable; from a failure
//! before that nothing stays. All processes return the same way from each step.

use super::mirrored::{Mirrored, Storage};
use super::packet::{Packet, hear, of_sum, say, to_sum};
use super::parts::{Asked, hand_over, release};
use super::{Apart, Assembly, share};
use crate::config::Config;
use crate::error::{RegionsError, file};
use crate::fence::Fenced;
use crate::label::{Label, Stamp};
use crate::peers::Peers;
use crate::store;
use eyrie_vault::coordinator::{Action, Base, Coordinator, Event, Outcome};
use eyrie_vault::cost::{self, Measured};
use eyrie_vault::encoding::Messages;
use eyrie_vault::layout::{Place, lay_out};
use eyrie_vault::member::{Member, MemberError};
use eyrie_vault::record::{Commit, MAX_WHY_BYTES, Summary};
use eyrie_vault::{Runs, VaultError, strategy};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What members tell all after each step.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Step {
    Offered(Summary, Option<Vec<(u64, u64)>>),
    Prepared(Summary),
    Committed(u32),
    Failed(u32, String),
}

impl Step {
    fn event(self) -> Event {
        match self {
            Step::Offered(summary, None) => Event::Offered(summary),
            Step::Offered(summary, Some(runs)) => {
                let node = summary.node;
                let why = String::from("it offers what cannot be");
                let changed = |runs| Event::Changed(summary, runs);
                Runs::checked(runs).map_or(Event::Failed { node, why }, changed)
            }
            Step::Prepared(summary) => Event::Prepared(summary),
            Step::Committed(node) => Event::Committed { node },
            Step::Failed(node, why) => Event::Failed { node, why },
        }
    }
}

/// How a step went here: what is to be told of it.
type Stepped = Result<Option<Step>, RegionsError>;

/// Whether the vault has this checkpoint, or a later one of this run, at any process.
fn repeats<D: Storage>(
    vault: &Assembly<D>,
    peers: &Peers,
    label: &Label,
) -> Result<bool, RegionsError> {
    let labels = vault.labels().0;
    let mut any = [i64::from(labels.iter().any(|(_, held)| held.follows(label)))];
    peers.most(&mut any)?;
    Ok(any == [1])
}

/// Payloads that are shorter are protected by any encoder in less time than measuring takes.
const WORTH_MEASURING_BYTES: u64 = 1 << 20;

/// Tells how fast those that make parity reach each other; all call it together. `None`: that
/// cannot be told.
type Measure<'a> = &'a dyn Fn() -> Result<Option<Measured>, RegionsError>;

/// The processes that make parity, and what tells how fast they reach each other.
#[derive(Clone, Copy)]
pub struct Makers<'a> {
    pub peers: &'a Peers,
    pub apart: &'a Apart,
    pub measure: Measure<'a>,
}

/// Protects the parts of a checkpoint, which lie in the folders of those who wrote them, and lets
/// those go that are of its name and not among `keep`. All processes call it together. `held`: this
/// process's part, where it may have to do this again.
pub fn protect(
    who: Makers<'_>,
    own: (&Config, &Path),
    label: &Label,
    keep: &[(i64, Stamp)],
    held: Option<&[u8]>,
) -> Result<(), RegionsError> {
    match (who.peers.inputs(), held) {
        (Some(inputs), Some(held)) => {
            let open = |path: &Path| Some(Ok(Mirrored::new(path, Rc::clone(inputs))));
            protect_in(open, who, own, (label, keep), Parts::Held(held))
        }
        (Some(inputs), None) => {
            // Whoever did it with a part that it held would be answered otherwise from here on.
            let why = "a part that is to be protected is not held in memory";
            inputs.diverge(why);
            Err(RegionsError::Use(why.into()))
        }
        (None, _) => {
            let open = |path: &Path| Some(Fenced::create(path));
            protect_in(open, who, own, (label, keep), Parts::In(store::parts(own.1)))
        }
    }
}

/// Where parts are that are to be protected.
enum Parts<'a> {
    /// In a folder.
    In(PathBuf),
    /// With the processes whose they are; this one's is here.
    Held(&'a [u8]),
}

fn protect_in<D: Storage>(
    open: impl Fn(&Path) -> Option<io::Result<D>>,
    who: Makers<'_>,
    (config, folder): (&Config, &Path),
    (label, keep): (&Label, &[(i64, Stamp)]),
    parts: Parts<'_>,
) -> Result<(), RegionsError> {
    let Makers { peers, apart, .. } = who;
    let Some(vault) = Assembly::open((peers, apart), config, folder, open, true)? else {
        return Ok(());
    };
    // An image of all processes may have been taken in the middle of that.
    if repeats(&vault, peers, label)? {
        return Ok(());
    }
    let mut round = Round::new(who, vault)?;
    let begun = round.begin(&label.name, config.key.is_some())?;
    round.run(begun, label, &parts)?;
    collect(peers, &mut round.vault, &label.name, keep)
}

/// A generation that is being made.
struct Round<'a, D> {
    peers: &'a Peers,
    apart: &'a Apart,
    measure: Measure<'a>,
    measured: Option<Measured>,
    /// Which encoders were picked, and why.
    picked: Rc<RefCell<Vec<String>>>,
    vault: Assembly<D>,
    generation: u64,
    groups: Vec<Vec<u32>>,
    base: Option<Commit>,
}

impl<'a, D: Storage> Round<'a, D> {
    fn new(
        Makers { peers, apart, measure }: Makers<'a>,
        mut vault: Assembly<D>,
    ) -> Result<Round<'a, D>, RegionsError> {
        let there = |place: &&Place| vault.leaders.contains_key(&place.node);
        let places: Vec<Place> = vault.places.iter().filter(there).cloned().collect();
        let groups = lay_out(vault.scheme, &places).map_err(VaultError::Layout)?.groups;
        let generation = vault.last + 1;
        vault.member.iter_mut().for_each(|member| member.disk.own_from(generation));
        let (measured, picked) = (None, Rc::default());
        Ok(Round { peers, apart, measure, measured, picked, vault, generation, groups, base: None })
    }

    fn node(&self) -> Option<u32> {
        self.vault.member.as_ref().map(Member::node)
    }

    /// Begins the generation, over the newest one of this name if that can be. What goes wrong is
    /// told when it is offered.
    fn begin(
        &mut self,
        name: &str,
        sealed: bool,
    ) -> Result<Result<(), RegionsError>, RegionsError> {
        let (generation, term) = (self.generation, self.vault.term);
        if D::REPEATED || sealed {
            // Differences could not be had again when what they are from is gone, and of what is
            // encrypted all chunks differ. Whether others are asked for their parts goes by how
            // this went.
            let begun = self.vault.own(|member| member.begin(generation, term)).map(|_| ());
            return Ok(self.peers.settled_end(begun));
        }
        let labels = self.vault.labels().0;
        let own = labels.iter().filter(|(_, held)| held.name == name).map(|(g, _)| *g).max();
        let mut newest = [own.map_or(-1, u64::cast_signed)];
        self.peers.most(&mut newest)?;
        let base = u64::try_from(newest[0]).ok().and_then(|g| self.vault.commits.get(&g)).cloned();
        let mut begun = self.vault.own(|member| member.begin(generation, term)).map(|_| ());
        if let Some(base) = base {
            let built = self.vault.own(|member| member.build_on(&base)).is_ok();
            if self.peers.least(i64::from(built))? == 1 {
                self.base = Some(base);
            } else {
                // What it cannot be built on (nodes were lost, or it is damaged) is no hindrance.
                begun = self.vault.own(|member| member.begin(generation, term)).map(|_| ());
            }
        }
        Ok(begun)
    }

    /// Adds the parts of this folder's processes.
    fn offer(
        &mut self,
        begun: Result<(), RegionsError>,
        label: &Label,
        parts: &Parts<'_>,
    ) -> Stepped {
        let (peers, apart) = (self.peers, self.apart);
        let add = |member: &mut Member<D>| {
            for rank in &apart.here {
                let name = Label { rank: *rank, ..label.clone() }.to_string();
                match parts {
                    Parts::Held(own) if *rank == peers.rank => member.add(&name, &mut &own[..])?,
                    Parts::Held(_) => member.add(&name, &mut Asked::new(peers, *rank))?,
                    Parts::In(folder) => {
                        let path = folder.join(&name);
                        let mut from = File::open(&path)
                            .map_err(file("read", &path))
                            .map_err(|error| MemberError::Refused(error.to_string()))?;
                        member.add(&name, &mut from)?;
                    }
                }
            }
            let offer = member.offer()?;
            Ok(Step::Offered(offer, member.changed().map(|runs| runs.pairs().to_vec())))
        };
        let added = begun.and_then(|()| self.vault.own(add));
        match parts {
            Parts::In(_) => {}
            Parts::Held(_) if apart.leads(peers.rank) => {
                release(peers, apart.here.iter().copied().filter(|rank| *rank != peers.rank))?;
            }
            Parts::Held(own) => hand_over(peers, apart.leader(), own)?,
        }
        added
    }

    /// Tells all how a step went here; returns how it went everywhere.
    fn tell(&self, step: Stepped) -> Result<Vec<Event>, RegionsError> {
        let node = self.node();
        let step = match (step, node) {
            (Ok(step), _) => step,
            (Err(error), Some(node)) => Some(Step::Failed(node, error.to_string())),
            (Err(error), None) => return Err(error),
        };
        let all = share(self.peers, step.as_ref())?;
        Ok(all.into_iter().map(|(_, step)| step.event()).collect())
    }

    fn coordinator(&self) -> Coordinator {
        let (measured, scheme) = (self.measured.unwrap_or_default(), self.vault.scheme);
        let picked = Rc::clone(&self.picked);
        let choose = Box::new(move |payloads: &[u64]| {
            let choice = cost::choose(&measured, scheme, payloads);
            picked.borrow_mut().push(choice.to_string());
            choice.encoder
        });
        let prefer = Box::new(move |payloads: &[u64], changed: &[u64]| {
            strategy::updates(&measured, scheme, payloads, changed)
        });
        let base = self.base.clone().map(|commit| Base { commit, encoder: None, prefer });
        let ids = (self.generation, self.vault.term);
        Coordinator::new(self.vault.id, ids, scheme, self.groups.clone(), choose).over(base)
    }

    /// Offers, encodes and commits.
    fn run(
        &mut self,
        begun: Result<(), RegionsError>,
        label: &Label,
        parts: &Parts<'_>,
    ) -> Result<(), RegionsError> {
        let offered = self.offer(begun, label, parts);
        let mut events = self.tell(offered)?;
        if events.iter().any(|event| event.payload() >= WORTH_MEASURING_BYTES) {
            self.measured = (self.measure)()?;
        }
        let mut coordinator = self.coordinator();
        loop {
            let actions: Vec<Action> =
                events.into_iter().flat_map(|event| coordinator.handle(event)).collect();
            if let Some(ended) = self.ended(&actions) {
                return ended;
            }
            let step = self.carry_out(actions)?;
            events = self.tell(step)?;
        }
    }

    /// Does what the coordinator says. The outer error is one of all processes.
    fn carry_out(&mut self, actions: Vec<Action>) -> Result<Stepped, RegionsError> {
        let mut step = Ok(None);
        let mut idle = true;
        for action in actions {
            let own = |group: usize| {
                let nodes = self.groups.get(group).cloned().unwrap_or_default();
                self.node().filter(|node| nodes.contains(node)).map(|_| nodes)
            };
            match action {
                Action::Encode { group, payloads, encoder } => {
                    idle = false;
                    let Some(nodes) = own(group) else { continue };
                    step = self.encode(&nodes, |m| m.encode(&nodes, &payloads, encoder))?;
                }
                Action::Update { group, payloads, changed, encoder } => {
                    idle = false;
                    let Some(nodes) = own(group) else { continue };
                    step =
                        self.encode(&nodes, |m| m.update(&nodes, &payloads, &changed, encoder))?;
                }
                Action::Commit(mut commit) => {
                    idle = false;
                    self.explain(&mut commit);
                    let committed = self.vault.own(|member| member.commit(&commit));
                    let node = self.node();
                    step = committed.map(|_| node.map(Step::Committed));
                    self.vault.commits.insert(commit.generation, commit);
                }
                Action::Abort | Action::Ended(_) => {}
            }
        }
        if idle {
            // All processes see the same: a defect.
            return Err(RegionsError::Use("the members of the vault wait for each other".into()));
        }
        Ok(step)
    }

    /// Says how it was made, which is the same at all processes.
    fn explain(&self, commit: &mut Commit) {
        let measured = self.measured.map_or("nothing was measured".into(), |m| m.to_string());
        let mut all = self.picked.borrow().clone();
        all.dedup();
        all.splice(..0, Some(commit.why.clone()).filter(|why| !why.is_empty()));
        commit.why = format!("{} ({measured})", all.join("; "));
        commit.why.truncate(commit.why.floor_char_boundary(MAX_WHY_BYTES));
    }

    fn ended(&mut self, actions: &[Action]) -> Option<Result<(), RegionsError>> {
        let generation = self.generation;
        let outcome = actions.iter().find_map(|action| match action {
            Action::Ended(outcome) => Some(outcome.clone()),
            _ => None,
        })?;
        if actions.contains(&Action::Abort) {
            // What cannot be removed now is when the vault is opened.
            self.vault.own(|member| member.abort(generation)).ok();
        }
        Some(match outcome {
            Outcome::Committed => Ok(()),
            Outcome::Aborted { why } => Err(VaultError::Aborted { generation, why }.into()),
            Outcome::Uncertain => Err(VaultError::Uncertain(generation).into()),
        })
    }

    /// Makes parity among the members of a group. It ends when each has said to all others that
    /// it says nothing more: so no message is left for later. The outer error: the others cannot
    /// be reached.
    fn encode(
        &mut self,
        nodes: &[u32],
        start: impl FnOnce(&mut Member<D>) -> Result<Messages, MemberError>,
    ) -> Result<Stepped, RegionsError> {
        let peers = self.peers;
        let leaders = self.vault.leaders.clone();
        let ranks: Vec<u32> = nodes.iter().filter_map(|n| leaders.get(n).copied()).collect();
        let others: BTreeSet<u32> = ranks.iter().copied().filter(|r| *r != peers.rank).collect();
        let mut ended: BTreeSet<u32> = BTreeSet::new();
        let mut said = false;
        let mut state = self.go_on(&ranks, start)?;
        loop {
            if let (false, Some(state)) = (said, &state) {
                let packet = Packet::Ended { well: state.is_ok() };
                others.iter().try_for_each(|rank| say(peers, *rank, &packet, &[]))?;
                said = true;
            }
            if said && ended == others {
                break;
            }
            let (from, packet, bytes) = hear(peers)?;
            match packet {
                Packet::Sum { task, row } => {
                    // Who has failed listens, and answers no more.
                    if matches!(state, Some(Err(_))) {
                        continue;
                    }
                    let node = nodes.iter().zip(&ranks).find(|(_, rank)| **rank == from);
                    let node = node.map_or(u32::MAX, |(node, _)| *node);
                    let message = to_sum(task, row, bytes);
                    let next = self.go_on(&ranks, |member| member.message(node, message))?;
                    if state.is_none() || matches!(next, Some(Err(_))) {
                        state = next;
                    }
                }
                Packet::Ended { well } => {
                    ended.insert(from);
                    if !well && state.is_none() {
                        let why = format!("process {from} could not go on");
                        state = Some(Err(RegionsError::Use(why)));
                    }
                }
                _ => return Err(RegionsError::Use("something else is said than sums".into())),
            }
        }
        peers.flush()?;
        Ok(state.unwrap_or(Ok(None)))
    }

    /// Lets the member do something, and passes on what it says. `None`: it has not all yet.
    fn go_on(
        &mut self,
        ranks: &[u32],
        work: impl FnOnce(&mut Member<D>) -> Result<Messages, MemberError>,
    ) -> Result<Option<Stepped>, RegionsError> {
        let messages = match self.vault.own(work) {
            Ok(messages) => messages.unwrap_or_default(),
            Err(error) => return Ok(Some(Err(error))),
        };
        for (number, message) in messages {
            let (packet, bytes) = of_sum(&message);
            let Some(to) = ranks.get(number) else { continue };
            say(self.peers, *to, &packet, bytes)?;
        }
        let settled = self.vault.own(Member::settle).map(Option::flatten);
        if matches!(settled, Ok(None)) {
            return Ok(None);
        }
        // Whether it could be made durable decides what is said next.
        let settled = self.peers.settled_end(settled);
        Ok(Some(settled.map(|summary| summary.map(Step::Prepared))))
    }
}

/// Lets generations go of which no checkpoint of this name is kept.
fn collect<D: Storage>(
    peers: &Peers,
    vault: &mut Assembly<D>,
    name: &str,
    keep: &[(i64, Stamp)],
) -> Result<(), RegionsError> {
    let labels = vault.labels().0;
    let old = |(_, held): &&(u64, Label)| {
        held.name == name && !keep.contains(&(held.version, held.stamp))
    };
    let own: BTreeSet<u64> = labels.iter().filter(old).map(|(generation, _)| *generation).collect();
    let mut gone: BTreeSet<u64> =
        share(peers, Some(&own))?.into_iter().flat_map(|(_, its)| its).collect();
    let kept: BTreeMap<u64, Commit> = vault
        .commits
        .iter()
        .filter(|(g, _)| !gone.contains(g))
        .map(|(g, c)| (*g, c.clone()))
        .collect();
    for needed in kept.values().flat_map(Commit::needs) {
        gone.remove(&needed);
    }
    let gone: Vec<u64> = gone.into_iter().collect();
    if gone.is_empty() {
        return Ok(());
    }
    // All know before anything goes, so that none is left with a part that it takes for whole.
    peers.all(vault.own(|member| member.note_drop(&gone)))?;
    peers.all(vault.own(|member| member.drop_all(&gone)))?;
    vault.commits.retain(|generation, _| !gone.contains(generation));
    Ok(())
}
