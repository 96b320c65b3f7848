//! What simulated worlds have in common: clock, events to come, the trace, and what went wrong.

use crate::agenda::Agenda;

pub struct Stage<E> {
    pub now: u64,
    agenda: Agenda<E>,
    traced: bool,
    wrong: Option<String>,
}

impl<E> Stage<E> {
    pub fn new(traced: bool) -> Stage<E> {
        Stage { now: 0, agenda: Agenda::default(), traced, wrong: None }
    }

    /// Has an event happen so much later.
    pub fn at(&mut self, after: u64, event: E) {
        self.agenda.put(self.now + after, event);
    }

    /// The next event; its time is now.
    pub fn next(&mut self) -> Option<E> {
        let (time, event) = self.agenda.next()?;
        self.now = time;
        Some(event)
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>7} {}", self.now, line());
        }
    }

    /// The first thing counts.
    pub fn fail(&mut self, why: String) {
        self.trace(|| format!("WRONG: {why}"));
        self.wrong.get_or_insert(why);
    }

    pub fn wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }
}
