//! What the controller's journal has of a job's state, and what a successor makes of it.
//!
//! Kept true: nothing that a decision depends on is left out but what clients had asked for, whose
//! connections ended with the controller.

use crate::journal::effects::Effects;
use crate::journal::record::JobRecord;
use crate::journal::{Entry, Journaling, Part, Played};
use crate::outside::{Files, NodeLine};
use crate::{Job, journal};
use eyrie_control::node::FIRST_TERM;
use eyrie_control::node::{FromNode, ToNode};
use eyrie_control::{EventKind, Stream};
use eyrie_protocol::session::{Foreign, Numbered};
use eyrie_state::home;
use eyrie_state::wall_clock::unix_ms;
use std::rc::Rc;
use std::time::Duration;

impl Journaling {
    /// The controller's number.
    pub fn reign(&self) -> u64 {
        self.head.as_ref().map_or(FIRST_TERM, |h| h.reign)
    }

    /// Notes what is to stand in the next record.
    pub fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if self.open.is_some() {
            self.noted.push(entry());
        }
    }

    /// Something happens to an output stream of a rank.
    pub fn note_tape(&mut self, rank: u32, stream: Stream, played: impl FnOnce() -> Played) {
        self.note(|| Entry::Played(rank, stream, played()));
    }
}

impl Job {
    /// What a node says on a connection.
    pub(crate) fn framed(&mut self, node: u32, line: u64, frame: Numbered<FromNode>) {
        let Some(n) = self.nodes.all.get_mut(node as usize).filter(|n| n.is_on(line)) else {
            return;
        };
        let fits = n.fits_the_journal(frame.heard);
        match fits.and_then(|()| n.conversation.session.hear(frame.number, frame.heard)) {
            Ok(false) => {}
            Ok(true) => self.hear(node, frame.message),
            Err(foreign) => {
                self.status.malformed += 1;
                if self.journal.reign() > FIRST_TERM {
                    return self.knows_too_little(node, foreign);
                }
                let epoch = self.nodes.all[node as usize].called();
                self.node_gone(node, epoch, &format!("what it sends is malformed: {foreign}"));
            }
        }
    }

    /// A node has heard what this controller does not know of: the journal by which it goes on is
    /// not all that there was.
    fn knows_too_little(&mut self, node: u32, foreign: Foreign) {
        let path = self.place.folder.join(home::JOURNAL);
        let path = path.display();
        self.journal.commit.lacks_end = true;
        let next = match self.outside.files.length(home::SAVED).is_some() {
            true => format!("; what was saved of it is there: eyrie restart {}", self.place.id),
            false => String::from("; nothing else was saved of it: start it anew"),
        };
        self.fatal(format!(
            "{path}: its end is missing, so the job cannot go on and ends (node {node}: \
             {foreign}){next}"
        ));
        // Orders have numbers that nodes have heard: they are told to go beside them. Those that
        // have not called yet are when they do.
        for node in 0..self.nodes.all.len() as u32 {
            if let Some(wired) = self.nodes.all[node as usize].take_line() {
                self.goes_unheard(node, wired);
            }
        }
    }

    /// A node that knows what the journal lacks is told to go.
    pub(crate) fn goes_unheard(&mut self, node: u32, wired: Box<dyn NodeLine>) {
        self.journal.commit.dismissed.push(wired);
        let epoch = self.nodes.all[node as usize].called();
        self.node_gone(node, epoch, "the journal lacks what it knows");
    }

    /// Begins the journal, if the job is to have one: now that the nodes' daemons were started.
    pub fn begin_journal(&mut self) {
        if self.many() && self.spec.is_journaled() {
            let launcher = &self.outside.launcher;
            let (key, addresses) = (launcher.key(), launcher.addresses());
            let begun = unix_ms(self.clock.begun());
            let head = journal::Head::new(self.spec.clone(), key, addresses, begun);
            self.journal.head = Some(head);
            self.end_turn();
            self.renew_journal();
        }
    }

    /// Makes what was decided durable, and then lets it have effects.
    pub fn end_turn(&mut self) {
        let frames = self.nodes.number_orders();
        let number = self.write_turn(&frames);
        if self.journal.events.iter().any(|e| e.event == EventKind::NodeLeaving) {
            self.outside.reach("leave-2");
        }
        let heard = (0u32..).zip(&self.nodes.all).filter(|(_, n)| n.is_to_confirm());
        let grants = (0u32..).zip(&self.nodes.all);
        let effects = Effects {
            heard: heard.map(|(node, n)| (node, n.conversation.session.heard())).collect(),
            grants: grants.filter_map(|(node, n)| Some((node, n.new_grant()?))).collect(),
            frames,
            events: std::mem::take(&mut self.journal.events),
            clears: std::mem::take(&mut self.journal.commit.clears),
            dismissed: std::mem::take(&mut self.journal.commit.dismissed),
            console: self.journal.commit.printed.take(),
            answers: std::mem::take(&mut self.journal.commit.answers),
            outgrown: self.saving.take_outgrown(),
        };
        self.release(effects, number);
    }

    /// Writes a record, if there is anything to write. Returns its number (`Journal::append`).
    fn write_turn(&mut self, frames: &[(u32, Numbered<ToNode>)]) -> u64 {
        self.announce();
        if self.journal.open.is_none() {
            return self.journal_again();
        }
        let mut entries = std::mem::take(&mut self.journal.noted);
        let numbered = frames.iter().filter(|(_, f)| f.number > 0);
        entries.extend(numbered.map(|(node, f)| Entry::Order(*node, f.message.clone())));
        let event = |e: &eyrie_control::Event| Entry::Event(Box::new(e.clone()));
        entries.extend(self.journal.events.iter().map(event));
        for (node, n) in (0u32..).zip(&mut self.nodes.all) {
            entries.extend(n.news().map(|(taken, known)| Entry::Heard(node, taken, known)));
        }
        let changed = self.changed_parts(false);
        entries.extend(changed);
        if entries.is_empty() {
            return 0;
        }
        let Some(journal) = &self.journal.open else { return 0 };
        let written = journal::encode(&entries).and_then(|bytes| journal.append(bytes));
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
            (Part::JobRecord, journal::part(&self.record())),
            (Part::Monitor, journal::part(&self.recovery.monitor)),
            (Part::Scheduler, journal::part(&self.checkpoints.scheduler)),
            (Part::Vault, journal::part(&self.vaults)),
            (Part::Coordinated, journal::part(&self.checkpoints.coordinated)),
            (Part::Fallback, journal::part(&self.checkpoints.fallback)),
        ];
        for (node, n) in (0u32..).zip(&self.nodes.all) {
            parts.push((Part::Node(node), journal::part(&n.record(node))));
        }
        let touched = std::mem::take(&mut self.ranks.touched);
        let ranks = (0..self.size()).filter(|r| all || touched.contains(r));
        parts.extend(ranks.map(|r| (Part::Rank(r), journal::part(&self.ranks.all[r as usize]))));
        let mut changed = Vec::new();
        for (part, bytes) in parts {
            let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
            if self.journal.written.insert(part, hash) != Some(hash) || all {
                changed.push(Entry::Part(part, bytes));
            }
        }
        changed
    }

    fn record(&self) -> JobRecord {
        JobRecord {
            epoch: self.nodes.epoch,
            placement: self.nodes.placement.clone(),
            planned: self.recovery.planned,
            input: self.console.input.cursor(),
            unprotected: self.recovery.unprotected.clone(),
            start: self.recovery.starts,
            recoveries: self.recovery.recoveries,
            rollbacks: self.recovery.rollbacks,
            output_differences: self.console.talk.differences,
            malformed: self.status.malformed,
            exit_code: self.end.exit_code,
            saves: self.saving.count,
            is_saved: self.saving.is_saved,
            restarting: self.saving.restarting,
            archive: self.saving.archive.kept(),
            leaves: self.leaving.nodes.clone(),
            suspension: self.suspension.rule.clone(),
            pauses: self.checkpoints.router_pauses.clone(),
            unit_snapshots: self.checkpoints.units.taking(),
            notices: self.leaving.known_notices(),
            here: self.leaving.known_notice_here(),
            to_be_saved: self.saving.under_way.is_some(),
            put_off: self.saving.periodic.put_off.clone(),
            blocks: self.gateways.blocks.clone(),
            sharing: self.recovery.sharing.clone(),
        }
    }

    /// Begins a new one with all that is known. What was decided in this turn is part of it.
    /// Returns its number.
    pub(crate) fn renew_journal(&mut self) -> u64 {
        let Some(head) = self.journal.head.clone() else { return 0 };
        let mut state = vec![Entry::Head(Box::new(head))];
        state.extend(self.changed_parts(true));
        state.extend(self.recovery.planner.iter().map(|p| Entry::Planner(Box::new(p.clone()))));
        for (node, n) in (0u32..).zip(&self.nodes.all) {
            state.push(Entry::Session(node, n.conversation.session.clone()));
        }
        let printed = printed(&self.outside.files);
        for (rank, r) in (0u32..).zip(&self.ranks.all) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let tape = r.tapes[stream as usize].behind(printed(rank, stream));
                state.push(Entry::Tape(rank, stream, Box::new(tape)));
            }
        }
        state.push(Entry::Events(self.status.events.count()));
        // Those of this turn are not in their file yet.
        let to_come = self.journal.events_to_come().chain(&self.journal.events);
        state.extend(to_come.map(|e| Entry::Event(Box::new(e.clone()))));
        let store = self.journal.open.take().unwrap_or_else(|| self.outside.files.journal());
        match journal::encode(&state).and_then(|bytes| store.replace(bytes)) {
            Ok(number) => {
                self.journal.open = Some(store);
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
        let clock = self.clock.now();
        if let Some(journal) = self.journal.open.take() {
            journal.give_up();
        }
        self.journal.noted.clear();
        if self.journal.commit.journal_lost.replace(clock.moment()).is_none() {
            self.journal.say(format!(
                "WARNING: the controller's journal cannot be written ({error}): if the controller \
                 dies, the job ends"
            ));
        }
    }

    /// Begins one again, now and then, where it could not be written. Returns its number.
    fn journal_again(&mut self) -> u64 {
        let clock = self.clock.now();
        let pause = Duration::from_millis(self.spec.timing.intervals.retries.write_ms);
        let is_due = self.journal.commit.journal_lost.is_some_and(|at| at.elapsed(clock) >= pause);
        if !is_due || self.spec.storage.ha.is_some() || self.end.exit_code.is_some() {
            return 0;
        }
        let number = self.renew_journal();
        if self.journal.open.is_some() {
            self.journal.commit.journal_lost = None;
            self.journal
                .say("the controller's journal is written again: the job outlives the controller");
        }
        number
    }
}

/// How many bytes of its streams were printed, as the console counts them.
pub(crate) fn printed(files: &Rc<dyn Files>) -> impl Fn(u32, Stream) -> u64 + use<> {
    let most = eyrie_state::printed_counts::place(eyrie_ledger::segment::MAX_RANKS, Stream::Stdout);
    let bytes = files.read(home::PRINTED, most).unwrap_or_default();
    move |rank, stream| eyrie_state::printed_counts::counted(&bytes, rank, stream)
}
