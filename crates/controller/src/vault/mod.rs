//! The vault that keeps the images of a job over nodes: its generations, and the round in which the
//! next one is made.
//!
//! Ranks are checkpointed each in its time. A round takes whatever images are new, or have lost
//! something of what guards them, and makes them one generation of all live nodes; a node without
//! any has an empty payload. A round waits for images that are being written, so that those of
//! ranks that are checkpointed together share their parity.
//!
//! Kept true: the planner is told that the vault has an image when all its files lie in committed
//! generations; one is dropped only when no file in it is needed; what was under way when a
//! controller died is dropped by its successor, as nobody was told of it.

pub(crate) mod encoder;
pub(crate) mod images;
pub(crate) mod model;
pub(crate) mod rebuild;
pub(crate) mod report;
pub(crate) mod retry;
pub(crate) mod scrub;

use crate::Job;
use crate::vault::encoder::Pick;
use crate::vault::model::{Costs, File, Generation, Retry, Round, Vaults};
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, VaultOrder, VaultStep};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Guard, Input};
use eyrie_vault::coordinator::{Action, Coordinator, Event, Outcome};
use eyrie_vault::layout::{Place, lay_out};
use eyrie_vault::record::{self};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many rounds in a row may come to nothing without a word: nodes may be on their way out.
const QUIET_ROUNDS: u32 = 3;

impl Job {
    /// Goes on with bringing images into the vault.
    pub(crate) fn tend_vault(&mut self) {
        let stands = self.saving.under_way.as_ref().is_some_and(|s| s.stands);
        if !self.spec.is_vaulted() || self.end.exit_code.is_some() {
            return;
        }
        if self.recovery.monitor.running() || stands {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        let Some(planner) = self.recovery.planner.as_ref().filter(|p| p.placed()) else { return };
        let writing = self.ranks.all.iter().any(|r| {
            let pending = r.pending.as_ref().map(|p| p.generation);
            r.capture.generation.is_some() && r.capture.generation != pending
        });
        if self.vaults.round.is_some()
            || writing
            || self.clock.now_ms() < self.vaults.retry.not_before_ms
        {
            return;
        }
        let images = planner.unguarded();
        if images.is_empty() {
            return self.vaults.nothing_to_guard();
        }
        let members = planner.keepers();
        let mut files = BTreeMap::new();
        for (rank, generation, from) in &images {
            let its = self.ranks.files_of(*rank, *generation).into_iter().map(|file| (*rank, file));
            let unsafe_ = its.filter(|file| !self.vaults.is_guarded(*file, &members));
            files.extend(unsafe_.map(|file| (file, from.node)));
        }
        self.order_round(members, &images, files);
    }

    fn order_round(
        &mut self,
        members: Vec<Member>,
        images: &[(u32, u32, Member)],
        files: BTreeMap<File, u32>,
    ) {
        let clock = self.clock.now();
        let scheme = self.spec.storage.vault;
        let places: Vec<Place> = members.iter().map(|m| self.vault_place(m.node)).collect();
        let Ok(layout) = lay_out(scheme, &places) else { return };
        self.collect_vault();
        self.vaults.last += 1;
        let (generation, term) = (self.vaults.last, self.journal.reign());
        let vault = record::hash(self.place.id.as_bytes());
        let progress = self.progress(images);
        let measure = !self.vaults.links.are_known(&members);
        let pick = Arc::new(Pick::default());
        let choose = pick.chooser(scheme, &self.spec.storage.manner);
        let coordinator =
            Coordinator::new(vault, (generation, term), scheme, layout.groups.clone(), choose);
        for member in &members {
            let own = images.iter().filter(|i| i.2 == *member);
            let begin = VaultOrder::Begin {
                vault,
                scheme,
                places: places.clone(),
                generation,
                term,
                rate: progress.rate,
                measure,
                images: own.map(|i| (i.0, i.1)).collect(),
                files: files.iter().filter(|f| *f.1 == member.node).map(|f| *f.0).collect(),
            };
            self.nodes.all[member.node as usize].send(ToNode::Vault(begin));
        }
        self.vaults.round = Some(Round {
            generation,
            members,
            images: images.iter().map(|i| (i.0, i.1)).collect(),
            groups: layout.groups,
            files,
            begun: clock.moment(),
            encoder: String::new(),
            coordinator: Some(coordinator),
            commit: None,
            pick,
            progress,
            spent: Costs::default(),
        });
        self.checkpoints.scheduler.load(Some(self.clock.now_ms()));
    }

    /// A node says how it stands with a generation.
    pub(crate) fn vault_step(&mut self, node: u32, generation: u64, step: VaultStep) {
        if let VaultStep::Scrubbed { pass, result } = step {
            return self.scrubbed(node, generation, pass, result);
        }
        let member = self.nodes.member(node);
        let Vaults { round, links, .. } = &mut self.vaults;
        if let VaultStep::Measured(link) = step {
            return links.note(member, link);
        }
        let Some(round) = round.as_mut().filter(|r| r.generation == generation) else { return };
        let event = match step {
            VaultStep::Offered { summary, us } if summary.node == node => {
                round.pick.learn(links, round.progress.rate);
                round.spent.payload = round.spent.payload.max(us);
                Event::Offered(summary)
            }
            VaultStep::Prepared { summary, spent } if summary.node == node => {
                round.spent.add(spent);
                round.progress.note(node, spent.bytes);
                links.at_least(member, spent.bytes, spent.encode_us);
                Event::Prepared(summary)
            }
            VaultStep::Offered { .. } | VaultStep::Prepared { .. } => {
                Event::Failed { node, why: String::from("it speaks for another node") }
            }
            VaultStep::Underway { sent } => return round.progress.note(node, sent),
            VaultStep::Scrubbed { .. } | VaultStep::Measured(_) => return,
            VaultStep::Committed => Event::Committed { node },
            VaultStep::Failed(why) => Event::Failed { node, why },
            VaultStep::Damaged { rank, generation: image, why } => {
                self.tell_refused(rank, image, Some(node), &why);
                let at = self.nodes.member(node);
                let bad = Input::ImageBad { rank, incarnation: 0, generation: image, at };
                self.vault_event(Event::Failed { node, why });
                return self.plan(bad);
            }
        };
        self.vault_event(event);
    }

    pub(crate) fn vault_loses(&mut self, node: u32) {
        // It may have been what was in the way of rounds.
        self.vaults.retry.not_before_ms = 0;
        self.vault_event(Event::Lost { node });
    }

    fn vault_event(&mut self, event: Event) {
        let lost = matches!(event, Event::Lost { .. });
        let Some(round) = &mut self.vaults.round else { return };
        let known = |m: &Member| match &event {
            Event::Lost { node } => m.node == *node,
            _ => true,
        };
        if !round.members.iter().any(known) {
            return;
        }
        let actions = round.coordinator.as_mut().map(|c| c.handle(event));
        for action in actions.into_iter().flatten() {
            self.carry_out_round(action, lost);
        }
    }

    fn carry_out_round(&mut self, action: Action, lost: bool) {
        let Some(round) = &mut self.vaults.round else { return };
        let generation = round.generation;
        let (to, order) = match action {
            Action::Encode { group, payloads, encoder } => {
                round.encoder = encoder.to_string();
                round.progress.encodes(self.spec.storage.vault, &payloads);
                let group = round.groups.get(group).cloned().unwrap_or_default();
                let to = group.clone();
                (to, VaultOrder::Encode { generation, group, payloads, encoder })
            }
            // Rounds are built on no generation.
            Action::Update { .. } => return,
            Action::Commit(commit) => {
                round.commit = Some(commit.clone());
                self.outside.reach("vault-4");
                (round.groups.concat(), VaultOrder::Commit(Box::new(commit)))
            }
            Action::Abort => (round.groups.concat(), VaultOrder::Abort { generation }),
            Action::Ended(outcome) => return self.round_over(outcome, lost),
        };
        for node in to {
            self.nodes.all[node as usize].send(ToNode::Vault(order.clone()));
        }
    }

    fn round_over(&mut self, outcome: Outcome, lost: bool) {
        let clock = self.clock.now();
        let Some(mut round) = self.vaults.round.take() else { return };
        let generation = round.generation;
        self.checkpoints.scheduler.load(None);
        self.vaults.took_ms = round.begun.elapsed_ms(clock);
        match (outcome, round.commit.take()) {
            (Outcome::Committed, Some(commit)) => {
                self.round_succeeded();
                let place = |(file, node): (File, u32)| (file, (generation, node));
                let text = round.spent.describe(&commit, &round.encoder, &round.begun, clock);
                let text = text + &round.progress.describe();
                self.vaults.encoder = Some(round.pick.why());
                self.vaults.files.extend(round.files.into_iter().map(place));
                let members = round.members;
                let unsound = BTreeSet::new();
                let made = Generation { commit, members, unsound };
                self.vaults.generations.insert(generation, made);
                for image in round.images {
                    self.image_vaulted(image, generation, &text);
                }
                self.collect_vault();
            }
            (Outcome::Aborted { why }, _) => {
                tracing::warn!(generation, "nothing comes into the vault: {why}");
                self.round_failed(&round.images, &why, lost);
            }
            // Too many were lost with it to know that it lasts, and nobody was told of it.
            _ => self.drop_generations(vec![generation]),
        }
    }

    fn image_vaulted(&mut self, (rank, image): File, vault: u64, text: &str) {
        let files = self.ranks.files_of(rank, image);
        let place = |file: u32| Some(self.vaults.place((rank, file))?.2);
        let guards = files.iter().copied().map(place).collect::<Option<Vec<Guard>>>();
        let Some(guards) = guards else { return };
        let mut event = self.clock.event(EventKind::Vaulted);
        (event.rank, event.generation) = (Some(rank), Some(image));
        event.count = Some(vault);
        event.text = format!("in the vault's generation {vault}, {text}");
        self.journal.log_event(event);
        self.plan(Input::Vaulted { rank, generation: image, guards });
        // What it is built on may have been found so while the round was under way.
        if files.iter().any(|file| self.vaults.is_unsound((rank, *file))) {
            self.plan(Input::Unsound { rank, generation: image });
        }
    }

    /// Drops generations in which no file is needed any more.
    pub(crate) fn collect_vault(&mut self) {
        let needed: BTreeSet<File> = (0u32..)
            .zip(&self.ranks.all)
            .flat_map(|(rank, r)| {
                let pending = r
                    .pending
                    .iter()
                    .flat_map(|p| p.taken.needs.iter().copied().chain([p.generation]));
                let kept = r.retention.files().into_iter();
                kept.chain(pending).map(move |file| (rank, file)).collect::<Vec<File>>()
            })
            .collect();
        let vaults = &mut self.vaults;
        vaults.files.retain(|file, _| needed.contains(file));
        let used: BTreeSet<u64> = vaults.files.values().map(|(g, _)| *g).collect();
        let gone = |g: &u64| !used.contains(g);
        let gone: Vec<u64> = vaults.generations.keys().copied().filter(gone).collect();
        if !gone.is_empty() {
            self.drop_generations(gone);
        }
    }

    fn drop_generations(&mut self, generations: Vec<u64>) {
        self.vaults.generations.retain(|g, _| !generations.contains(g));
        let term = self.journal.reign();
        self.nodes.to_all(&ToNode::Vault(VaultOrder::Drop { generations, term }));
    }

    /// All go back to the beginning: nothing in the vault is of use any more.
    pub(crate) fn forget_vault(&mut self) {
        if self.spec.is_vaulted() {
            let round = self.vaults.round.take().map(|r| r.generation);
            let all = self.vaults.generations.keys().copied().chain(round).collect();
            self.vaults.files.clear();
            self.drop_generations(all);
        }
    }

    /// All ranks go back, or this controller takes another's place, which is not obeyed from here
    /// on: what is under way, of which nobody was told, is dropped.
    pub(crate) fn abandon_round(&mut self) {
        if self.spec.is_vaulted() {
            let round = self.vaults.round.take().map(|r| r.generation);
            self.checkpoints.scheduler.load(None);
            self.drop_generations(round.into_iter().collect());
        }
    }

    /// All ranks go back to a set, on these nodes, which have new epochs and what they stored.
    pub(crate) fn renew_vault(&mut self, live: &[Member]) {
        let before = self.recovery.planner.as_ref().map(|p| p.members()).unwrap_or_default();
        for generation in self.vaults.generations.values_mut() {
            generation.renew(before, live);
        }
        self.vaults.links.renew(live);
        self.vaults.failed = 0;
        self.vaults.retry = Retry::default();
    }
}
