//! What the controller's journal has of a job's books, and what a successor makes of it.
//!
//! Kept true: nothing that a decision depends on is left out but what clients had asked for, whose
//! connections ended with the controller.

use super::Job;
use super::commit::Effects;
use super::journal::{self, Entry, Journal, Part, Played};
use crate::home;
use crate::input::Cursor;
use crate::placement::Placement;
use crate::points;
use eyrie_control::node::{FromNode, ToNode};
use eyrie_control::{EventKind, Stream};
use eyrie_protocol::session::{Foreign, Numbered};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often it is tried to begin a journal again that could not be written.
const JOURNAL_AGAIN: Duration = Duration::from_secs(5);

/// A moment that another process can make something of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    at: Instant,
    unix_ms: u64,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { at: Instant::now(), unix_ms: unix_ms(SystemTime::now()) }
    }

    #[cfg(test)]
    pub fn ago(time: Duration) -> Moment {
        let now = Instant::now();
        let unix_ms = unix_ms(SystemTime::now()) - time.as_millis() as u64;
        Moment { at: now.checked_sub(time).unwrap_or(now), unix_ms }
    }

    pub fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }
}

pub(super) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// That moment, by this process's clock.
pub(super) fn instant(unix_ms: u64) -> Instant {
    let ago = self::unix_ms(SystemTime::now()).saturating_sub(unix_ms);
    let now = Instant::now();
    now.checked_sub(Duration::from_millis(ago)).unwrap_or(now)
}

impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.unix_ms.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        let unix_ms = u64::deserialize(from)?;
        Ok(Moment { at: instant(unix_ms), unix_ms })
    }
}

/// What is neither of a rank nor of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Books {
    pub epoch: u64,
    pub placement: Placement,
    pub planned: bool,
    pub input: Cursor,
    pub unprotected: Option<String>,
    pub start: u64,
    pub recoveries: u64,
    pub rollbacks: u64,
    pub output_differences: u64,
    pub malformed: u64,
    pub exit_code: Option<i32>,
    /// How often it was saved, whether that is on disk, and not all ranks run again since.
    pub saves: u32,
    pub is_saved: bool,
    pub restarting: bool,
    pub archive: super::archive::Kept,
    pub leaves: BTreeMap<u32, super::leave::Leave>,
    pub halt: eyrie_protocol::halt::Halt,
    pub pauses: eyrie_protocol::pause::Pauses,
    pub sets: Vec<super::units::Taking>,
    /// Nodes that were told to end, and when.
    pub notices: BTreeMap<u32, Moment>,
    /// The controller was.
    pub here: Option<super::notice::Here>,
    /// The job was to be saved and to end.
    pub to_be_saved: bool,
    /// Image files that are to go when nothing is being brought any more: rank, generations.
    pub put_off: Vec<(u32, Vec<u32>)>,
    pub blocks: super::silence::Blocks,
}

impl Job {
    /// The controller's number.
    pub(super) fn reign(&self) -> u64 {
        self.head.as_ref().map_or(crate::crew::FIRST_REIGN, |h| h.reign)
    }

    /// Notes what is to stand in the next record.
    pub(super) fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if self.journal.is_some() {
            self.noted.push(entry());
        }
    }

    /// Something happens to an output stream of a rank.
    pub(super) fn note_tape(&mut self, rank: u32, stream: Stream, played: impl FnOnce() -> Played) {
        self.note(|| Entry::Played(rank, stream, played()));
    }

    /// What a node says on a connection.
    pub(super) fn framed(&mut self, node: u32, line: u64, frame: Numbered<FromNode>) {
        let Some(n) = self.nodes.get_mut(node as usize).filter(|n| n.is_on(line)) else { return };
        match n.session.hear(frame.number, frame.heard) {
            Ok(false) => {}
            Ok(true) => self.hear(node, frame.message),
            Err(foreign) => {
                self.malformed += 1;
                if self.reign() > crate::crew::FIRST_REIGN {
                    self.knows_too_little(node, foreign);
                }
                let epoch = self.nodes[node as usize].called();
                self.node_gone(node, epoch, &format!("what it sends is malformed: {foreign}"));
            }
        }
    }

    /// A node has heard what this controller does not know of: the journal by which it goes on is
    /// not all that there was.
    fn knows_too_little(&mut self, node: u32, foreign: Foreign) {
        let path = self.place.folder.join(home::JOURNAL);
        let path = path.display();
        self.fatal(format!(
            "{path}: its end is missing; the job cannot go on (node {node}: {foreign})"
        ));
    }

    /// Begins the journal, if the job is to have one: now that the nodes' daemons were started.
    pub fn begin_journal(&mut self) {
        if let Some(crew) = self.crew.as_ref().filter(|_| self.spec.is_journaled()) {
            let (key, addresses) = (crew.secret.key().0, crew.addresses.clone());
            let begun = unix_ms(self.begun_wall);
            let head = journal::Head::new(self.spec.clone(), key, addresses, begun);
            self.head = Some(head);
            self.end_turn();
            self.renew_journal();
        }
    }

    /// Makes what was decided durable, and then lets it have effects.
    pub fn end_turn(&mut self) {
        let frames = self.number_orders();
        let number = self.write_turn(&frames);
        if self.told.iter().any(|e| e.event == EventKind::NodeLeaving) {
            points::reach("leave-2");
        }
        let heard = (0u32..).zip(&self.nodes).filter(|(_, n)| n.is_to_confirm());
        let grants = (0u32..).zip(&self.nodes);
        let effects = Effects {
            heard: heard.map(|(node, n)| (node, n.session.heard())).collect(),
            grants: grants.filter_map(|(node, n)| Some((node, n.new_grant()?))).collect(),
            frames,
            events: std::mem::take(&mut self.told),
            clears: std::mem::take(&mut self.commit.clears),
            dismissed: std::mem::take(&mut self.commit.dismissed),
            console: self.commit.printed.take(),
            answers: std::mem::take(&mut self.commit.answers),
            outgrown: self.take_outgrown(),
        };
        self.release(effects, number);
    }

    fn number_orders(&mut self) -> Vec<(u32, Numbered<ToNode>)> {
        let mut frames = Vec::new();
        for (node, n) in (0u32..).zip(&mut self.nodes) {
            for frame in n.numbered() {
                match frame.message {
                    ToNode::Look { .. } => n.ask(frame),
                    _ => frames.push((node, frame)),
                }
            }
        }
        frames
    }

    /// Writes a record, if there is anything to write. Returns its number (`Journal::append`).
    fn write_turn(&mut self, frames: &[(u32, Numbered<ToNode>)]) -> u64 {
        self.announce();
        if self.journal.is_none() {
            return self.journal_again();
        }
        let mut entries = std::mem::take(&mut self.noted);
        let numbered = frames.iter().filter(|(_, f)| f.number > 0);
        entries.extend(numbered.map(|(node, f)| Entry::Order(*node, f.message.clone())));
        let event = |e: &eyrie_control::Event| Entry::Event(Box::new(e.clone()));
        entries.extend(self.told.iter().map(event));
        for (node, n) in (0u32..).zip(&mut self.nodes) {
            entries.extend(n.news().map(|(taken, known)| Entry::Heard(node, taken, known)));
        }
        let changed = self.changed_parts(false);
        entries.extend(changed);
        if entries.is_empty() {
            return 0;
        }
        let Some(journal) = &mut self.journal else { return 0 };
        let written = journal.append(&entries);
        let long = journal.is_long();
        match written {
            Err(error) => self.give_up_journal(&error),
            Ok(_) if long => return self.renew_journal(),
            Ok(number) => return number,
        }
        0
    }

    /// Parts that have changed since they were written last, or all.
    fn changed_parts(&mut self, all: bool) -> Vec<Entry> {
        let mut parts = vec![
            (Part::Books, journal::part(&self.books())),
            (Part::Monitor, journal::part(&self.monitor)),
            (Part::Scheduler, journal::part(&self.scheduler)),
            (Part::Vault, journal::part(&self.vaults)),
            (Part::Together, journal::part(&self.together)),
            (Part::Fallback, journal::part(&self.fallback)),
        ];
        for (node, n) in (0u32..).zip(&self.nodes) {
            parts.push((Part::Node(node), journal::part(&n.books(node))));
        }
        let touched = std::mem::take(&mut self.touched);
        let ranks = (0..self.size()).filter(|r| all || touched.contains(r));
        parts.extend(ranks.map(|r| (Part::Rank(r), journal::part(&self.ranks[r as usize]))));
        let mut changed = Vec::new();
        for (part, bytes) in parts {
            let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
            if self.written.insert(part, hash) != Some(hash) || all {
                changed.push(Entry::Part(part, bytes));
            }
        }
        changed
    }

    fn books(&self) -> Books {
        Books {
            epoch: self.epoch,
            placement: self.placement.clone(),
            planned: self.planned,
            input: self.input.cursor(),
            unprotected: self.unprotected.clone(),
            start: self.start,
            recoveries: self.recoveries,
            rollbacks: self.rollbacks,
            output_differences: self.talk.differences,
            malformed: self.malformed,
            exit_code: self.exit_code,
            saves: self.saves,
            is_saved: self.is_saved,
            restarting: self.restarting,
            archive: self.archive.kept(),
            leaves: self.leaves.clone(),
            halt: self.halt.rule.clone(),
            pauses: self.pauses.clone(),
            sets: self.units.taking(),
            notices: self.known_notices(),
            here: self.known_notice_here(),
            to_be_saved: self.suspend.is_some(),
            put_off: self.flush.put_off.clone(),
            blocks: self.gateways.blocks.clone(),
        }
    }

    /// Begins a new one with all that is known. What was decided in this turn is part of it.
    /// Returns its number.
    pub(super) fn renew_journal(&mut self) -> u64 {
        let Some(head) = self.head.clone() else { return 0 };
        let mut state = vec![Entry::Head(Box::new(head))];
        state.extend(self.changed_parts(true));
        state.extend(self.planner.iter().map(|p| Entry::Planner(Box::new(p.clone()))));
        for (node, n) in (0u32..).zip(&self.nodes) {
            state.push(Entry::Session(node, n.session.clone()));
        }
        let printed = printed(&self.place.folder);
        for (rank, r) in (0u32..).zip(&self.ranks) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let tape = r.tapes[stream as usize].behind(printed(rank, stream));
                state.push(Entry::Tape(rank, stream, Box::new(tape)));
            }
        }
        state.push(Entry::Events(self.events.count()));
        // Those of this turn are not in their file yet.
        let to_come = self.events_to_come().chain(&self.told);
        state.extend(to_come.map(|e| Entry::Event(Box::new(e.clone()))));
        match Journal::replace(self.journal.take(), &self.place.folder, &state) {
            Ok((journal, number)) => {
                self.journal = Some(journal);
                // Whatever comes now waits for it.
                self.release(Effects::default(), number);
                return number;
            }
            Err(error) => self.give_up_journal(&error),
        }
        0
    }

    /// The job goes on, but not if this controller dies.
    fn give_up_journal(&mut self, error: &std::io::Error) {
        if let Some(journal) = self.journal.take() {
            journal.give_up();
        }
        self.noted.clear();
        if self.commit.journal_lost.replace(Instant::now()).is_none() {
            self.say(format!(
                "WARNING: the controller's journal cannot be written ({error}): if the controller \
                 dies, the job ends"
            ));
        }
    }

    /// Begins one again, now and then, where it could not be written. Returns its number.
    fn journal_again(&mut self) -> u64 {
        let is_due = self.commit.journal_lost.is_some_and(|at| at.elapsed() >= JOURNAL_AGAIN);
        if !is_due || self.spec.ha.is_some() || self.exit_code.is_some() {
            return 0;
        }
        let number = self.renew_journal();
        if self.journal.is_some() {
            self.commit.journal_lost = None;
            self.say("the controller's journal is written again: the job outlives the controller");
        }
        number
    }
}

/// How many bytes of its streams were printed, as the console counts them.
pub(super) fn printed(folder: &Path) -> impl Fn(u32, Stream) -> u64 + use<> {
    let bytes = std::fs::read(folder.join(home::PRINTED)).unwrap_or_default();
    move |rank, stream| crate::printed::counted(&bytes, rank, stream)
}
