//! The thread that writes a node's part of the vault: payload, parity and commits.
//!
//! Kept true: what comes of another generation than the one under way is not heeded; a step that
//! fails is told once, and nothing of that generation follows.

use super::intake::{self, Flaw};
use super::parity_links::ParityLinks;
use super::probe::probe;
use super::rate_limit::Pace;
use super::scrub::{self, Scrubber};
use super::work::{Change, Setup, Work};
use crate::image_files;
use crate::store_protocol::Identity;
use eyrie_control::node::FromNode;
use eyrie_control::vault::Spent;
use eyrie_control::{VaultOrder, VaultStep};
use eyrie_process::stop_points;
use eyrie_vault::LockError;
use eyrie_vault::disk::Folder;
use eyrie_vault::encoding::Messages;
use eyrie_vault::member::{Member, MemberError};
use eyrie_vault::record::{self, Dropped};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// Most messages that are heeded before what follows of them leaves.
const MAX_AT_ONCE: usize = 16;

/// How often it is told how much was sent.
const TELL: Duration = Duration::from_millis(500);

/// The generation under way.
struct Current {
    generation: u64,
    group: Vec<u32>,
    /// To the others of the group.
    lines: Option<ParityLinks>,
    prepared: bool,
    pace: Pace,
    /// Since the order to encode, and what was sent since.
    begun: Instant,
    sent: u64,
    /// When that was told the last time.
    told: Instant,
}

pub(super) struct Worker {
    setup: Setup,
    /// To itself.
    tell: Sender<Work>,
    member: Option<Member<Folder>>,
    own: Option<Identity>,
    current: Option<Current>,
    scrubber: Option<Scrubber>,
}

/// Does what is told, as long as the process is there.
pub(super) fn run(setup: Setup, tell: Sender<Work>, told: &Receiver<Work>) {
    Worker { setup, tell, member: None, own: None, current: None, scrubber: None }.work(told);
}

impl Worker {
    /// One that has this part already, and speaks to nobody.
    #[cfg(test)]
    pub(super) fn of(member: Member<Folder>) -> Worker {
        let setup = Setup {
            folder: std::path::PathBuf::new(),
            images: std::path::PathBuf::new(),
            job: String::new(),
            ranks: 0,
            members: Arc::default(),
            say: Arc::new(|_| ()),
        };
        let (tell, _) = std::sync::mpsc::channel();
        Worker { setup, tell, member: Some(member), own: None, current: None, scrubber: None }
    }

    fn work(&mut self, told: &Receiver<Work>) {
        while let Ok(first) = told.recv() {
            self.heed(first);
            // Each that has to be woken costs: what is here already is heeded before parts leave.
            told.try_iter().take(MAX_AT_ONCE - 1).for_each(|more| self.heed(more));
            self.leave();
        }
    }

    fn heed(&mut self, work: Work) {
        match work {
            Work::Order(order, own) => {
                self.own = Some(own);
                self.obey(*order);
            }
            Work::Said { from, generation, message } if self.is_current(generation) => {
                let said = self.with(|member| member.message(from, message));
                self.pass_on(generation, said);
            }
            Work::Broken { from, generation } if self.is_current(generation) => {
                if self.current.as_ref().is_some_and(|c| !c.prepared) {
                    self.fail(generation, format!("what node {from} was sending broke off"));
                }
            }
            Work::Stuck { generation, why } if self.is_current(generation) => {
                self.fail(generation, why);
            }
            Work::Change { generation, change, done } => {
                // Who does not wait any more does not hear it.
                let _ = done.send(self.change(generation, &change));
            }
            // Late.
            Work::Said { .. } | Work::Broken { .. } | Work::Stuck { .. } => {}
        }
    }

    fn is_current(&self, generation: u64) -> bool {
        self.current.as_ref().is_some_and(|c| c.generation == generation)
    }

    fn say(&self, generation: u64, step: VaultStep) {
        (self.setup.say)(FromNode::Vault { generation, step });
    }

    fn fail(&mut self, generation: u64, why: String) {
        self.current = None;
        self.say(generation, VaultStep::Failed(why));
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Member<Folder>) -> Result<T, MemberError>,
    ) -> Result<T, String> {
        let member = self.member.as_mut().ok_or("it has no part of the vault yet")?;
        work(member).map_err(|e| e.to_string())
    }

    fn obey(&mut self, order: VaultOrder) {
        match order {
            VaultOrder::Begin { generation, .. } => match self.begin(order) {
                Ok(None) => {}
                Ok(Some(offered)) => {
                    self.say(generation, offered);
                    stop_points::reach("vault-1");
                }
                Err(why) => self.fail(generation, why),
            },
            VaultOrder::Encode { generation, group, payloads, encoder } => {
                let Some(current) = self.current.as_mut().filter(|c| c.generation == generation)
                else {
                    return;
                };
                stop_points::reach("vault-2");
                current.group.clone_from(&group);
                current.begun = Instant::now();
                let said = self.with(|member| member.encode(&group, &payloads, encoder));
                self.pass_on(generation, said);
            }
            VaultOrder::Commit(commit) => {
                let generation = commit.generation;
                let done = self.with(|member| member.commit(&commit));
                stop_points::reach("vault-5");
                match done {
                    Ok(()) => {
                        self.current = None;
                        self.say(generation, VaultStep::Committed);
                    }
                    Err(why) => self.fail(generation, why),
                }
            }
            VaultOrder::Abort { generation } => {
                self.current.take_if(|c| c.generation == generation);
                self.tidy(|member| member.abort(generation));
            }
            VaultOrder::Drop { generations, term } => {
                // Of a new controller there may be none.
                if !generations.is_empty() {
                    stop_points::reach("vault-6");
                }
                self.drop_all(&generations, term);
            }
            VaultOrder::Scrub { pass, commit, write, rate } => {
                let Some(own) = self.own.clone() else { return };
                let (generation, commit) = (commit.generation, *commit);
                let order = scrub::Order { pass, commit, write, rate, own };
                if let Err(error) = self.scrub(order) {
                    let result = Err(error.to_string());
                    self.say(generation, VaultStep::Scrubbed { pass, result });
                }
            }
        }
    }

    fn scrub(&mut self, order: scrub::Order) -> io::Result<()> {
        let scrubber = match self.scrubber.take() {
            Some(scrubber) => scrubber,
            None => Scrubber::start(&self.setup, self.tell.clone())?,
        };
        self.scrubber.insert(scrubber).order(order);
        Ok(())
    }

    /// A generation that was dropped does not come back.
    pub(super) fn change(&mut self, generation: u64, change: &Change) -> io::Result<()> {
        let there = self.member.as_mut().filter(|m| !m.dropped.contains(generation));
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the generation was dropped");
        change.carry_out(&mut there.ok_or_else(gone)?.disk)
    }

    /// What cannot be removed is no harm but the room that it takes.
    fn tidy(&mut self, work: impl FnOnce(&mut Member<Folder>) -> Result<(), MemberError>) {
        if self.member.is_some()
            && let Err(error) = self.with(work)
        {
            tracing::warn!("vault: {error}");
        }
    }

    fn drop_all(&mut self, generations: &[u64], term: u64) {
        self.current.take_if(|c| generations.contains(&c.generation));
        self.tidy(|member| {
            let vault = member.identity.vault;
            member.learn(&Dropped { vault, term, ..Dropped::default() })?;
            member.drop_all(generations)
        });
    }

    /// Writes the payload. `None`: an image is damaged, which is told.
    fn begin(&mut self, order: VaultOrder) -> Result<Option<VaultStep>, String> {
        let begun = Instant::now();
        let VaultOrder::Begin {
            vault,
            scheme,
            places,
            generation,
            term,
            rate,
            measure,
            images,
            files,
        } = order
        else {
            return Ok(None);
        };
        self.current = None;
        let node = self.own.as_ref().map_or(u32::MAX, |own| own.node);
        let nodes: Vec<u32> = places.iter().map(|p| p.node).collect();
        if measure {
            self.start_probe(generation, &nodes);
        }
        if self.member.is_none() {
            let identity = record::Identity { vault, node, scheme, places };
            let mut folder = Folder::create(&self.setup.folder).map_err(|e| e.to_string())?;
            // As long as this process lives others change nothing that it knows of the folder.
            match folder.hold(&format!("job {}, which runs: its node {node}", self.setup.job)) {
                Ok(()) => {}
                Err(error @ LockError::Held { .. }) => return Err(error.to_string()),
                // Not all file systems have locks.
                Err(error) => tracing::warn!("vault: {error}"),
            }
            self.member = Some(Member::create(folder, identity).map_err(|e| e.to_string())?);
        }
        self.with(|member| member.begin(generation, term))?;
        let Setup { images: folder, job, ranks, .. } = &self.setup;
        let names = match intake::look_into(folder, (job, *ranks), &images, &files) {
            Ok(names) => names,
            Err(Flaw::Damage { rank, image, why }) => {
                // It must not be taken for good where it lies, either.
                image_files::remove(folder, rank, &[image]);
                self.say(generation, VaultStep::Damaged { rank, generation: image, why });
                return Ok(None);
            }
            Err(Flaw::Unread(why)) => return Err(why),
        };
        for name in names {
            let path = self.setup.images.join(&name);
            let mut file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            self.with(|member| member.add(&name, &mut file))?;
        }
        let summary = self.with(Member::offer)?;
        let us = begun.elapsed().as_micros() as u64;
        let (group, lines) = (Vec::new(), None);
        let (pace, begun) = (Pace::new(rate), Instant::now());
        let (prepared, told) = (false, begun);
        self.current =
            Some(Current { generation, group, lines, prepared, pace, begun, sent: 0, told });
        Ok(Some(VaultStep::Offered { summary, us }))
    }

    /// Measures the way to the next of these nodes, for rounds to come: this one does not wait.
    fn start_probe(&self, generation: u64, nodes: &[u32]) {
        let Some(own) = self.own.clone() else { return };
        let Some(at) = nodes.iter().position(|node| *node == own.node) else { return };
        let next = nodes[(at + 1) % nodes.len()];
        let (members, say) = (Arc::clone(&self.setup.members), Arc::clone(&self.setup.say));
        let work = move || match probe(&own, &members, next) {
            Ok(link) => say(FromNode::Vault { generation, step: VaultStep::Measured(link) }),
            Err(error) => tracing::warn!("vault: the way to node {next}: {error}"),
        };
        if let Err(error) = std::thread::Builder::new().name("eyrie-probe".into()).spawn(work) {
            tracing::warn!("vault: the way to node {next}: {error}");
        }
    }

    /// What is for the others is to leave.
    fn pass_on(&mut self, generation: u64, said: Result<Messages, String>) {
        if let Err(why) = said.and_then(|messages| self.add(messages)) {
            self.fail(generation, why);
        }
    }

    fn add(&mut self, messages: Messages) -> Result<(), String> {
        let (Some(own), Some(current)) = (&self.own, &mut self.current) else { return Ok(()) };
        let lines = current.lines.get_or_insert_with(|| {
            let members = Arc::clone(&self.setup.members);
            ParityLinks::new(current.generation, own.clone(), members, self.tell.clone())
        });
        for (number, message) in messages {
            let to = *current.group.get(number).ok_or("it speaks to nobody")?;
            let bytes = message.block.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
            let wait = current.pace.wait(bytes, Instant::now());
            if !wait.is_zero() {
                lines.leave().map_err(|e| e.to_string())?;
                std::thread::sleep(wait);
            }
            current.sent += bytes;
            lines.add(to, message);
        }
        Ok(())
    }

    /// Brings to the others what is for them, and tells when all of its parity is here.
    fn leave(&mut self) {
        let Some(current) = &mut self.current else { return };
        let generation = current.generation;
        let left = current.lines.as_mut().map_or(Ok(()), ParityLinks::leave);
        if current.lines.is_some() && current.told.elapsed() >= TELL {
            current.told = Instant::now();
            let sent = current.sent;
            self.say(generation, VaultStep::Underway { sent });
        }
        let encoded = Instant::now();
        match left.map_err(|e| e.to_string()).and_then(|()| self.with(Member::settle)) {
            Ok(None) => {}
            Ok(Some(summary)) => {
                let mut spent = Spent::default();
                if let Some(current) = &mut self.current {
                    current.prepared = true;
                    spent.encode_us = (encoded - current.begun).as_micros() as u64;
                    spent.durable_us = encoded.elapsed().as_micros() as u64;
                    spent.bytes = current.sent;
                }
                stop_points::reach("vault-3");
                self.say(generation, VaultStep::Prepared { summary, spent });
            }
            Err(why) => self.fail(generation, why),
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
