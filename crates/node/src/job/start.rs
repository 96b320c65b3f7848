//! Having the process of a rank started.

use super::journal::Played;
use super::unfit::Trouble;
use super::{Job, Proc, Starting};
use crate::monitor;
use crate::recovery::Input;
use eyrie_control::node::{Determinants, Fault, ToNode};
use eyrie_control::{EventKind, Meta, Stream};

impl Job {
    /// Orders a process for `rank`, as `from` says; in `recovery` of one that died, with its
    /// outcomes if it comes to another node.
    pub(super) fn launch(
        &mut self,
        rank: u32,
        from: Meta,
        recovery: bool,
        moved: Option<Determinants>,
    ) {
        // Positions before the process can write or read anything.
        for (stream, position) in [Stream::Stdout, Stream::Stderr].into_iter().zip(from.output) {
            self.note_tape(rank, stream, || Played::Rewind(position));
            self.rank(rank).tapes[stream as usize].rewind(position);
        }
        self.start += 1;
        let start = self.start;
        let r = self.rank(rank);
        (r.falls, r.swap) = (false, None);
        self.together.iter_mut().for_each(|t| t.out = None);
        let generation = from.generation;
        let starting = Starting { start, generation, recovery, moved: moved.is_some() };
        self.rank(rank).moves.begins();
        self.rank(rank).starting = Some(starting);
        self.step(monitor::Input::Starting { rank });
        let input = from.input;
        self.rank(rank).trouble.tried();
        (self.rank(rank).later, self.rank(rank).elsewhere) = (None, false);
        let (from, moved) = (Box::new(from), moved.map(Box::new));
        self.to_home(rank, ToNode::Start { rank, start, from, moved });
        if rank == 0 {
            self.input.attach(start, input);
            self.pump_input();
        }
    }

    /// Starts every rank from the program's beginning.
    pub fn start_all(&mut self) {
        for rank in 0..self.size() {
            if !self.monitor.may_start(rank) {
                return;
            }
            self.launch(rank, Meta::start(&self.place.id, rank, self.spec.size), false, None);
        }
    }

    /// What every rank may still need, for a node that has got another rank's log.
    fn tell_floors(&self, node: u32) {
        for (rank, r) in (0u32..).zip(&self.ranks) {
            let floor = r.retention.floor();
            let (need, det_pos) = (floor.need.clone(), floor.det_pos);
            self.nodes[node as usize].send(ToNode::Trim { rank, need, det_pos });
        }
    }

    /// The order that is answered with this number.
    fn ordered(&mut self, rank: u32, start: u64) -> Option<Starting> {
        self.touched.insert(rank);
        self.ranks.get_mut(rank as usize)?.starting.take_if(|s| s.start == start)
    }

    pub(super) fn started(&mut self, rank: u32, start: u64, pid: u32, files: Vec<String>) {
        let Some(order) = self.ordered(rank, start) else { return };
        self.rank(rank).proc = Some(Proc { pid, start, mute: false });
        self.tell_scheduler(rank);
        self.renew_asks(rank);
        self.rank(rank).trouble = Trouble::default();
        let incarnation = self.rank(rank).incarnation;
        self.plan(Input::Restored { rank, incarnation });
        if order.moved {
            self.tell_floors(self.placement.home(rank));
        }
        self.step(monitor::Input::Started { rank });
        self.restarted();
        if order.generation == 0 {
            let mut event = self.event(EventKind::Started);
            event.rank = Some(rank);
            event.node = self.home_told(rank);
            event.text = format!("pid {pid}");
            self.log_event(event);
        }
        if order.recovery {
            self.recovered(rank, &order, pid);
        }
        self.tell_of_files(rank, files);
    }

    /// Files that a rank did not find again as they were; each is named once.
    fn tell_of_files(&mut self, rank: u32, files: Vec<String>) {
        for text in files {
            let text = format!("rank {rank} came back, but {text}");
            if self.rank(rank).said_of_files.insert(text.clone()) {
                self.say(text);
            }
        }
    }

    pub(super) fn not_started(&mut self, rank: u32, start: u64, why: (Fault, String)) {
        let (fault, text) = why;
        let Some(order) = self.ordered(rank, start) else { return };
        let Starting { generation, recovery, .. } = order;
        if rank == 0 {
            self.input.detach();
        }
        // With this one the last process may be gone, and all begin anew.
        let running = self.monitor.running();
        self.step(monitor::Input::NotStarted { rank });
        if !running || !self.monitor.may_start(rank) {
            return;
        }
        let again = generation > 0 || recovery;
        if again && self.is_tried_again(rank, fault, generation) {
            return self.cannot_start_here(rank, &text);
        }
        if generation > 0 && self.many() {
            let incarnation = self.rank(rank).incarnation;
            self.unrestorable(rank, incarnation, generation, &text);
            self.unit_not_started(rank);
        } else if generation > 0 && self.together.is_some() {
            self.set_refused(generation, &format!("rank {rank}: {text}"));
        } else if generation > 0 {
            self.refuse_image(rank, generation, &text);
            self.recover(rank);
        } else if recovery {
            self.fatal(format!("cannot start rank {rank} again: {text}"));
        } else {
            let program = String::from_utf8_lossy(&self.spec.program).into_owned();
            let text = format!("cannot start '{program}' as rank {rank}: {text}");
            self.step(monitor::Input::Fatal { text, code: 126 });
        }
    }
}
