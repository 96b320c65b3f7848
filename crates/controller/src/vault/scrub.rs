//! Passes over all that the nodes have of the vault, and the files of images there: each reads its
//! part, and makes anew what is damaged; unasked now and then, or because somebody asks.
//!
//! Kept true: one pass is under way at a time; one that was asked for takes the place of one that
//! was not, and ends with the connection of who asked; who asked hears of each generation and node
//! once, but of those that were dropped meanwhile: nothing in them is needed any more, and what is
//! found of their files, which are going, does not count.

use crate::Job;
use crate::outside::ClientHandle;
use crate::recovery::model::Recovery;
use crate::vault::model::{Asker, Images, Last, Pass, Scrubs, Vaults, Wish};
use eyrie_control::node::ToNode;
use eyrie_control::status::VaultScrub;
use eyrie_control::vault::Kept;
use eyrie_control::{EventKind, NodeMsg, VaultOrder};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use eyrie_vault::vault::Mended;
use std::collections::BTreeSet;

/// Most that a node reads in a second unasked, unless `--vault-rate` says less: a day is enough
/// for 2.5 TiB.
const UNASKED_BYTES: u64 = 32 << 20;

impl Recovery {
    pub fn vault_live(&self) -> BTreeSet<Member> {
        self.planner.iter().flat_map(|p| p.members()).copied().collect()
    }
}

impl Vaults {
    /// Whether a node, if it is one of these, still has what it stored in a generation.
    pub fn has_part(&self, live: &BTreeSet<Member>, generation: u64, node: u32) -> bool {
        let generation = self.generations.get(&generation);
        let member = generation.and_then(|g| g.members.iter().find(|m| m.node == node));
        member.is_some_and(|m| live.contains(m))
    }
}

impl Job {
    /// The vault's generations, for who asks.
    pub fn tell_vault(&self, client: &ClientHandle) -> Result<(), String> {
        self.has_vault()?;
        let live = self.recovery.vault_live();
        for (number, generation) in &self.vaults.generations {
            let nodes = generation.commit.groups.iter().flatten().map(|summary| summary.node);
            let lost = nodes.filter(|node| !self.vaults.has_part(&live, *number, *node)).collect();
            let of = |(file, place): (&(u32, u32), &(u64, u32))| {
                (place.0 == *number).then_some((file.0, file.1, place.1))
            };
            let files = self.vaults.files.iter().filter_map(of).collect();
            let commit = Box::new(generation.commit.clone());
            client.send(&NodeMsg::InVault(Box::new(Kept { commit, lost, files })));
        }
        client.send(&NodeMsg::Done);
        Ok(())
    }

    /// Has all nodes read what they have. `Checked` follows for each, then `Done`.
    pub fn ask_scrub(&mut self, (write, rate): (bool, u64), asker: Asker) -> Result<(), String> {
        if self.recovery.planner.is_none() {
            return Err(String::from(
                "the job does not run over nodes: there is nothing to look into",
            ));
        }
        self.vaults.scrubs.waiting.push_back(Wish { write, rate, asker });
        self.tend_scrub();
        Ok(())
    }

    /// A client's connection is over: what it asked for keeps nobody waiting. Nodes that are at it
    /// go on until the next pass, and what they tell of it does not count.
    pub(crate) fn forget_scrub(&mut self, client: u64) {
        let scrubs = &mut self.vaults.scrubs;
        let before = scrubs.waiting.len();
        scrubs.waiting.retain(|wish| wish.asker.0 != client);
        let asked = |pass: &Pass| pass.asker.as_ref().is_some_and(|asker| asker.0 == client);
        let was_its = scrubs.pass.as_ref().is_some_and(asked);
        if was_its {
            scrubs.pass = None;
        }
        if was_its || scrubs.waiting.len() < before {
            self.tend_scrub();
        }
    }

    fn has_vault(&self) -> Result<(), String> {
        match self.spec.is_vaulted() {
            true => Ok(()),
            false => Err(format!(
                "the job has no vault with parity (--vault is {}): there is nothing to look into",
                self.spec.storage.vault
            )),
        }
    }

    /// Goes on with the pass that is under way, or begins one.
    pub(crate) fn tend_scrub(&mut self) {
        if self.recovery.planner.is_none() || self.end.exit_code.is_some() {
            return;
        }
        self.pass_without_lost();
        let unasked = self.vaults.scrubs.pass.as_ref().is_none_or(|pass| pass.asker.is_none());
        if unasked && let Some(wish) = self.vaults.scrubs.waiting.pop_front() {
            self.begin_pass(wish.write, wish.rate, Some(wish.asker));
        } else if self.vaults.scrubs.pass.is_none() && self.scrub_is_due() {
            let rate = match self.spec.storage.manner.rate {
                0 => UNASKED_BYTES,
                rate => rate.min(UNASKED_BYTES),
            };
            self.begin_pass(true, rate, None);
        }
    }

    fn scrub_is_due(&mut self) -> bool {
        let clock = self.clock.now();
        let (now, every) = (self.clock.now_ms(), self.spec.storage.manner.scrub_every_ms);
        let scrubs = &mut self.vaults.scrubs;
        // What other controllers did counts.
        let today = clock.unix_ms();
        let since = scrubs.mended_unix_ms.map_or(0, |at| today.saturating_sub(at));
        let left = every.saturating_sub(since);
        let due = *scrubs.due_ms.get_or_insert(now.saturating_add(left));
        every > 0
            && now >= due
            && self.recovery.monitor.running()
            && !self.suspension.is_suspended()
    }

    fn begin_pass(&mut self, write: bool, rate: u64, asker: Option<Asker>) {
        self.vaults.scrubs.count += 1;
        // The next controller's are later ones.
        let number = self.journal.reign() << 32 | self.vaults.scrubs.count;
        let (begun_ms, found) = (self.clock.now_ms(), Mended::default());
        let (left, images) = (BTreeSet::new(), Images::default());
        let mut pass = Pass { number, write, begun_ms, left, found, images, asker };
        let live = self.recovery.vault_live();
        // Both are read at the same time.
        let rate = if self.vaults.generations.is_empty() { rate } else { rate.div_ceil(2) };
        pass.images = self.order_inspections(&live, number, write, rate);
        for (generation, it) in &self.vaults.generations {
            for node in it.commit.groups.iter().flatten().map(|summary| summary.node) {
                if !self.vaults.has_part(&live, *generation, node) {
                    pass.tell(*generation, node, Err(String::from("the node is lost")));
                    continue;
                }
                pass.left.insert((*generation, node));
                let commit = Box::new(it.commit.clone());
                let order = VaultOrder::Scrub { pass: number, commit, write, rate };
                self.nodes.all[node as usize].send(ToNode::Vault(order));
            }
        }
        self.vaults.scrubs.pass = Some(pass);
        self.pass_without_lost();
    }

    /// What was dropped, or is lost, is not waited for. The pass may be over then.
    pub(crate) fn pass_without_lost(&mut self) {
        let Some(mut pass) = self.vaults.scrubs.pass.take() else { return };
        let live = self.recovery.vault_live();
        pass.left.retain(|(generation, _)| self.vaults.generations.contains_key(generation));
        let there =
            |(generation, node): &(u64, u32)| self.vaults.has_part(&live, *generation, *node);
        let (left, lost): (BTreeSet<_>, BTreeSet<_>) = pass.left.iter().copied().partition(there);
        for (generation, node) in lost {
            pass.tell(generation, node, Err(String::from("the node is lost")));
        }
        pass.left = left;
        self.images_without_lost(&mut pass, &live);
        match pass.left.is_empty() && pass.images.left.is_empty() {
            true => self.pass_over(pass),
            false => self.vaults.scrubs.pass = Some(pass),
        }
    }

    fn pass_over(&mut self, pass: Pass) {
        let clock = self.clock.now();
        let now = self.clock.now_ms();
        let ended_unix_ms = clock.unix_ms();
        let took_ms = now.saturating_sub(pass.begun_ms);
        if let Some((_, client)) = &pass.asker {
            client.send(&NodeMsg::Done);
        }
        let scrubs = &mut self.vaults.scrubs;
        // One that only looks is none in place of one that repairs.
        if pass.write {
            scrubs.due_ms = Some(now.saturating_add(self.spec.storage.manner.scrub_every_ms));
            scrubs.mended_unix_ms = Some(ended_unix_ms);
        }
        let (found, images) = (pass.found, pass.images.found);
        scrubs.last = Some(Last { ended_unix_ms, took_ms, found, images });
    }

    /// A node has read what it has of a generation.
    pub(crate) fn scrubbed(
        &mut self,
        node: u32,
        generation: u64,
        number: u64,
        result: Result<Mended, String>,
    ) {
        // It may be one that was dropped.
        self.pass_without_lost();
        let scrubs = &mut self.vaults.scrubs;
        let Some(pass) = scrubs.pass.as_mut().filter(|pass| pass.number == number) else { return };
        if !pass.left.remove(&(generation, node)) {
            return;
        }
        pass.tell(generation, node, result.clone());
        let write = pass.write;
        match result {
            Ok(found) => {
                pass.found.add(&found);
                scrubs.so_far.add(&found);
                if found.damaged > 0 {
                    self.tell_damage(node, generation, &found);
                }
                if found.lost > 0 && write {
                    self.unsound(generation, node);
                }
            }
            Err(why) => {
                tracing::warn!(generation, node, "vault: it is not checked: {why}");
                if write {
                    self.tell_unchecked(node, generation, why);
                    self.unsound(generation, node);
                }
            }
        }
        self.pass_without_lost();
    }

    /// What a node has of a generation cannot be mended, or could not be. What its group guards is
    /// stored anew, as far as nodes have it.
    fn unsound(&mut self, number: u64, node: u32) {
        let Some(it) = self.vaults.generations.get_mut(&number) else { return };
        let Some((group, _)) = it.commit.place(node) else { return };
        it.unsound.insert(group);
        let mut images = Vec::new();
        for (rank, r) in (0u32..).zip(&self.ranks.all) {
            let kept = r.retention.newest_first().map(|kept| kept.generation);
            let all = kept.chain(r.pending.as_ref().map(|p| p.generation));
            images.extend(all.map(|generation| (rank, generation)));
        }
        for (rank, generation) in images {
            let mut files = self.ranks.files_of(rank, generation).into_iter();
            if files.any(|file| self.vaults.is_unsound((rank, file))) {
                self.plan(Input::Unsound { rank, generation });
            }
        }
    }

    fn tell_unchecked(&mut self, node: u32, generation: u64, why: String) {
        let mut event = self.clock.event(EventKind::Scrubbed);
        event.node = Some(node);
        event.text = format!("the vault's generation {generation} cannot be mended there: {why}");
        self.journal.log_event(event);
    }

    fn tell_damage(&mut self, node: u32, generation: u64, found: &Mended) {
        let Mended { sound, damaged, repaired, lost, why } = found;
        let all = sound + damaged;
        let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let mut event = self.clock.event(EventKind::Scrubbed);
        (event.node, event.count) = (Some(node), Some(*damaged));
        event.text = format!(
            "{damaged} of {all} chunks of the vault's generation {generation} were damaged: \
             {repaired} made anew, {lost} cannot be had{why}"
        );
        self.journal.log_event(event);
    }

    /// What `eyrie status` tells of it.
    pub(crate) fn vault_scrub(&self) -> Option<VaultScrub> {
        self.recovery.planner.as_ref()?;
        let Scrubs { pass, last, so_far, .. } = &self.vaults.scrubs;
        let images = last.as_ref().map(|last| last.images.clone()).unwrap_or_default();
        let found = last.as_ref().map(|last| last.found.clone()).unwrap_or_default();
        Some(VaultScrub {
            every_ms: Some(self.spec.storage.manner.scrub_every_ms).filter(|every| *every > 0),
            underway: pass.is_some(),
            ended_unix_ms: last.as_ref().map(|last| last.ended_unix_ms),
            took_ms: last.as_ref().map_or(0, |last| last.took_ms),
            sound: found.sound,
            damaged: found.damaged,
            repaired: found.repaired,
            lost: found.lost,
            damaged_so_far: so_far.damaged,
            repaired_so_far: so_far.repaired,
            images_sound: images.sound,
            images_damaged: images.damaged,
            images_repaired: images.repaired,
        })
    }
}
