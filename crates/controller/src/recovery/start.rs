//! Having the process of a rank started.

use crate::journal::Played;
use crate::recovery::model::Retries;
use crate::{Job, Proc, Starting, monitor};
use eyrie_control::node::{Determinants, Fault, ToNode};
use eyrie_control::{EventKind, Meta, Stream};
use eyrie_protocol::recovery::Input;
use std::time::Duration;

impl Job {
    /// Orders a process for `rank`, as `from` says; in `recovery` of one that died, with its
    /// outcomes if it comes to another node.
    pub(crate) fn launch(
        &mut self,
        rank: u32,
        from: Meta,
        recovery: bool,
        moved: Option<Determinants>,
    ) {
        // Positions before the process can write or read anything.
        for (stream, position) in [Stream::Stdout, Stream::Stderr].into_iter().zip(from.output) {
            self.journal.note_tape(rank, stream, || Played::Rewind(position));
            self.ranks.rank(rank).tapes[stream as usize].rewind(position);
        }
        self.recovery.starts += 1;
        let start = self.recovery.starts;
        let r = self.ranks.rank(rank);
        (r.falls, r.swap) = (false, None);
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.out = None);
        let generation = from.generation;
        let starting = Starting { start, generation, recovery, moved: moved.is_some() };
        self.ranks.rank(rank).moves.begins();
        self.ranks.rank(rank).starting = Some(starting);
        self.step(monitor::Input::Starting { rank });
        let input = from.input;
        self.ranks.rank(rank).coming_back.retries.tried();
        (self.ranks.rank(rank).coming_back.later, self.ranks.rank(rank).coming_back.elsewhere) =
            (None, false);
        let (from, moved) = (Box::new(from), moved.map(Box::new));
        self.nodes.to_home(rank, ToNode::Start { rank, start, from, moved });
        if rank == 0 {
            self.console.input.attach(start, input);
            self.pump_input();
        }
    }

    /// Starts every rank from the program's beginning.
    pub fn start_all(&mut self) {
        for rank in 0..self.size() {
            if !self.recovery.monitor.may_start(rank) {
                return;
            }
            self.launch(
                rank,
                Meta::start(&self.place.id, rank, self.spec.program.size),
                false,
                None,
            );
        }
    }

    /// What every rank may still need, for a node that has got another rank's log.
    fn tell_floors(&self, node: u32) {
        for (rank, r) in (0u32..).zip(&self.ranks.all) {
            let floor = r.retention.floor();
            let (need, det_pos) = (floor.need.clone(), floor.det_pos);
            self.nodes.all[node as usize].send(ToNode::Trim { rank, need, det_pos });
        }
    }

    pub(crate) fn started(&mut self, rank: u32, start: u64, pid: u32, files: Vec<String>) {
        let Some(order) = self.ranks.ordered(rank, start) else { return };
        self.ranks.rank(rank).proc = Some(Proc { pid, start, mute: false });
        self.tell_scheduler(rank);
        self.checkpoints.renew_asks(rank);
        self.ranks.rank(rank).coming_back.retries = Retries::default();
        self.ranks.rank(rank).coming_back.beside.clear();
        let incarnation = self.ranks.rank(rank).incarnation;
        self.plan(Input::Restored { rank, incarnation });
        if order.moved {
            self.tell_floors(self.nodes.placement.home(rank));
        }
        self.step(monitor::Input::Started { rank });
        self.restarted();
        if order.generation == 0 {
            let mut event = self.clock.event(EventKind::Started);
            event.rank = Some(rank);
            event.node = self.home_told(rank);
            event.text = format!("pid {pid}");
            self.journal.log_event(event);
        }
        if order.recovery {
            self.recovered(rank, &order, pid);
        }
        self.tell_of_files(rank, files);
        self.tell_of_gone();
    }

    /// Files that a rank did not find again as they were; each is named once.
    fn tell_of_files(&mut self, rank: u32, files: Vec<String>) {
        for text in files {
            if self.ranks.rank(rank).coming_back.said_of_files.insert(text.clone()) {
                self.journal.say(format!("rank {rank} came back, but {text}"));
                let mut event = self.clock.event(EventKind::FileLeft);
                (event.rank, event.node, event.text) = (Some(rank), self.home_told(rank), text);
                self.journal.log_event(event);
            }
        }
    }

    pub(crate) fn not_started(&mut self, rank: u32, start: u64, why: (Fault, String)) {
        let (fault, text) = why;
        let Some(order) = self.ranks.ordered(rank, start) else { return };
        let Starting { generation, recovery, .. } = order;
        if rank == 0 {
            self.console.input.detach();
        }
        // With this one the last process may be gone, and all begin anew.
        let running = self.recovery.monitor.running();
        self.step(monitor::Input::NotStarted { rank });
        if !running || !self.recovery.monitor.may_start(rank) {
            return;
        }
        // Where it was brought for want of the program it never ran either.
        let ran = recovery && self.ranks.rank(rank).deaths.died_at.is_some();
        let again = generation > 0 || ran;
        // Processors that were named for it are not there: that is a mistake of whoever did.
        let named =
            self.spec.placement.slots.get(rank as usize).is_some_and(|slots| !slots.is_empty());
        if !again && !named && self.may_be_elsewhere(rank, &text) {
            return self.recover_later(rank, Duration::ZERO, true);
        }
        if again && self.is_tried_again(rank, fault, generation) {
            return self.cannot_start_here(rank, &text);
        }
        if generation > 0 {
            self.image_failed(rank, generation, &text);
        } else if ran {
            self.fatal(format!("cannot start rank {rank} again: {text}"));
        } else {
            let program = String::from_utf8_lossy(&self.spec.program.path).into_owned();
            let text = format!("cannot start '{program}' as rank {rank}: {text}");
            self.step(monitor::Input::Fatal { text, code: 126 });
        }
    }
}
