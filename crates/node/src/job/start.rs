//! Having the process of a rank started.

use super::{Job, Proc, Starting};
use crate::monitor;
use eyrie_control::node::{Determinants, ToNode};
use eyrie_control::{EventKind, Meta};

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
        for (tape, position) in self.rank(rank).tapes.iter_mut().zip(from.output) {
            tape.rewind(position);
        }
        self.start += 1;
        let start = self.start;
        let home = self.placement.home(rank);
        self.rank(rank).ran = Some((home, self.nodes[home as usize].epoch));
        self.rank(rank).starting = Some(Starting { start, generation: from.generation, recovery });
        self.step(monitor::Input::Starting { rank });
        let input = from.input;
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

    /// The order that is answered with this number.
    fn ordered(&mut self, rank: u32, start: u64) -> Option<Starting> {
        self.ranks.get_mut(rank as usize)?.starting.take_if(|s| s.start == start)
    }

    pub(super) fn started(&mut self, rank: u32, start: u64, pid: u32) {
        let Some(order) = self.ordered(rank, start) else { return };
        let r = self.rank(rank);
        r.proc = Some(Proc { pid, start, mute: false });
        r.fetched = None;
        self.scheduler.set_live(rank, self.protected());
        self.renew_asks(rank);
        self.step(monitor::Input::Started { rank });
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
    }

    pub(super) fn not_started(&mut self, rank: u32, start: u64, text: String) {
        let Some(order) = self.ordered(rank, start) else { return };
        let Starting { generation, recovery, .. } = order;
        if rank == 0 {
            self.input.detach();
        }
        self.step(monitor::Input::NotStarted { rank });
        if !self.monitor.may_start(rank) {
            return;
        }
        if generation > 0 {
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
