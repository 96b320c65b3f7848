//! What became of a process's memory while it was filled, told in the order in which it happened.
//!
//! A thread that has moved or unmapped memory reports it when others may already change the
//! mappings further. So the report that a place was left may come after the one that something else
//! was moved there. It is known by that: memory is moved only to where there is none. Such a move
//! waits until the process is quiet, that is until all changes that were begun are reported, and is
//! then told after what made room for it. Whoever uses memory learned where it is from a call that
//! had been reported; so all else comes in order.
//!
//! The move of a place is followed by a report that it was unmapped. It says nothing new, but may
//! come when the place is in use again: one such report is ignored for each move.

use crate::PAGE_BYTES;
use crate::kernel::missing_pages::Report;
use crate::restore::lazy::moves::Moves;

type Range = (u64, u64);

/// Most reports whose order is looked for.
const MAX_HELD: usize = 6;
/// Most memory that these may be about.
const MAX_HELD_BYTES: u64 = 1 << 34;

fn meet(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Report {
    fn ranges(&self) -> [Range; 2] {
        match *self {
            Report::Moved { from, to, bytes } => [(from, from + bytes), (to, to + bytes)],
            Report::Unmapped { start, end } | Report::Dropped { start, end } => [(start, end); 2],
        }
    }

    fn meets(&self, other: &Report) -> bool {
        self.ranges().iter().any(|&a| other.ranges().iter().any(|&b| meet(a, b)))
    }
}

/// The order of the reports cannot be found out.
#[derive(Debug, PartialEq, Eq)]
pub struct Disorder;

/// The account of one process.
#[derive(Debug, Clone)]
pub struct Account {
    state: State,
    /// Places that were left by a move, and are still to be reported as unmapped.
    echoes: Vec<Range>,
    /// Reports that may not have come in their order, the first of them a move to where there is
    /// something by this account.
    held: Vec<Report>,
}

#[derive(Debug, Clone)]
struct State {
    moves: Moves,
    /// Where memory is that is reported on.
    mapped: Vec<Range>,
}

impl State {
    fn occupied(&self, range: Range) -> bool {
        self.mapped.iter().any(|&m| meet(m, range))
    }

    fn vacate(&mut self, (start, end): Range) {
        let rest = |&(s, e): &Range| [(s, e.min(start)), (s.max(end), e)];
        self.mapped = self.mapped.iter().flat_map(rest).filter(|(s, e)| s < e).collect();
    }

    fn apply(&mut self, report: Report) {
        match report {
            Report::Moved { from, to, bytes } => {
                self.vacate((from, from + bytes));
                self.mapped.push((to, to + bytes));
                self.moves.moved(from, to, bytes);
            }
            Report::Unmapped { start, end } => {
                self.vacate((start, end));
                self.moves.gone(start, end);
            }
            Report::Dropped { start, end } => self.moves.gone(start, end),
        }
    }

    /// Whether the report can be the next one.
    fn fits(&self, report: Report) -> bool {
        match report {
            Report::Moved { from, to, bytes } => {
                self.occupied((from, from + bytes)) && !self.occupied((to, to + bytes))
            }
            Report::Unmapped { start, end } | Report::Dropped { start, end } => {
                self.occupied((start, end))
            }
        }
    }
}

impl Account {
    /// Nothing has changed yet, and these ranges are reported on.
    pub fn new(ranges: &[Range]) -> Account {
        let state = State { moves: Moves::default(), mapped: ranges.to_vec() };
        Account { state, echoes: Vec::new(), held: Vec::new() }
    }

    /// Notes a report.
    pub fn note(&mut self, report: Report) {
        if let Report::Unmapped { start, end } = report
            && let Some(i) = self.echoes.iter().position(|&echo| echo == (start, end))
        {
            self.echoes.swap_remove(i);
            return;
        }
        if let Report::Moved { from, bytes, .. } = report {
            self.echoes.push((from, from + bytes));
        }
        let [_, to] = report.ranges();
        let early = matches!(report, Report::Moved { .. }) && self.state.occupied(to);
        if early || self.held.iter().any(|held| held.meets(&report)) {
            self.held.push(report);
        } else {
            self.state.apply(report);
        }
    }

    /// Whether it counts only when the process is quiet.
    pub fn is_unsettled(&self) -> bool {
        !self.held.is_empty() || !self.echoes.is_empty()
    }

    /// Whether a report waits for others.
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The process was quiet after the last report.
    pub fn settle(&mut self) -> Result<(), Disorder> {
        // A move that leaves the mapping where it was has no echo.
        self.echoes.clear();
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        let bytes: u64 = held.iter().flat_map(Report::ranges).map(|(start, end)| end - start).sum();
        if held.len() > MAX_HELD || bytes > MAX_HELD_BYTES {
            return Err(Disorder);
        }
        let mut found = Vec::new();
        orders(&self.state, &held, &mut found);
        let first = found.pop().ok_or(Disorder)?;
        // Different orders are no matter as long as they lead to the same.
        let all = origins(&first, &held);
        if found.iter().any(|other| origins(other, &held) != all) {
            return Err(Disorder);
        }
        self.state = first;
        Ok(())
    }

    /// Where the bytes at `start..end` in the beginning belong now.
    pub fn now(&self, start: u64, end: u64) -> Vec<(u64, u64, u64)> {
        self.state.moves.now(start, end)
    }

    /// Where what is at `address` now was in the beginning; `None` if it is new.
    pub fn origin(&self, address: u64) -> Option<u64> {
        self.state.moves.origin(address)
    }
}

/// What the pages that the reports tell of were in the beginning.
fn origins(state: &State, reports: &[Report]) -> Vec<Option<u64>> {
    let ranges = reports.iter().flat_map(Report::ranges);
    let pages = ranges.flat_map(|(start, end)| (start..end).step_by(PAGE_BYTES as usize));
    pages.map(|page| state.moves.origin(page)).collect()
}

/// All that the reports can have led to.
fn orders(state: &State, left: &[Report], found: &mut Vec<State>) {
    if left.is_empty() {
        found.push(state.clone());
    }
    for (i, &report) in left.iter().enumerate().filter(|(_, report)| state.fits(**report)) {
        let mut next = state.clone();
        next.apply(report);
        let rest = [&left[..i], &left[i + 1..]].concat();
        orders(&next, &rest, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;

    fn chunk(slot: usize) -> Range {
        (slot as u64 * 64 * KIB, (slot as u64 + 1) * 64 * KIB)
    }

    fn moved(from: usize, to: usize) -> Report {
        Report::Moved { from: chunk(from).0, to: chunk(to).0, bytes: 64 * KIB }
    }

    fn unmapped(slot: usize) -> Report {
        Report::Unmapped { start: chunk(slot).0, end: chunk(slot).1 }
    }

    fn account(reports: &[Report]) -> (Account, Result<(), Disorder>) {
        let mut account = Account::new(&[(0, 4 * 64 * KIB)]);
        reports.iter().for_each(|&report| account.note(report));
        let settled = account.settle();
        assert!(!account.is_unsettled());
        (account, settled)
    }

    #[test]
    fn a_place_that_was_left_is_used_again_before_that_is_reported() {
        for late in [&[moved(1, 8), unmapped(1)][..], &[unmapped(1)]] {
            let (account, settled) = account(&[&[moved(0, 1), unmapped(0)], late].concat());
            assert_eq!(settled, Ok(()));
            assert_eq!(account.origin(chunk(1).0), Some(chunk(0).0));
            assert_eq!(account.origin(chunk(0).0), None);
            let now = account.now(chunk(1).0, chunk(1).1);
            let expected = vec![(chunk(1).0, 64 * KIB, chunk(8).0)];
            assert_eq!(now, if late.len() == 1 { vec![] } else { expected });
        }
    }

    #[test]
    fn the_echo_of_a_move_is_no_end_of_what_was_moved_there_since() {
        let (account, settled) = account(&[moved(0, 8), moved(1, 0), unmapped(1), unmapped(0)]);
        assert_eq!(settled, Ok(()));
        assert_eq!(account.origin(chunk(0).0), Some(chunk(1).0));
        assert_eq!(account.origin(chunk(8).0), Some(chunk(0).0));
    }

    #[test]
    fn what_could_have_been_either_way_is_not_decided() {
        let reports = [moved(0, 1), unmapped(0), moved(1, 8), unmapped(1), unmapped(1)];
        assert_eq!(account(&reports).1, Err(Disorder));
    }

    #[test]
    fn one_after_the_other_without_a_quiet_moment() {
        let mut all = Account::new(&[(0, 4 * 64 * KIB)]);
        let reports =
            [moved(0, 8), unmapped(0), moved(8, 0), unmapped(8), unmapped(0), moved(1, 0)];
        reports.into_iter().for_each(|report| all.note(report));
        assert_eq!(all.settle(), Ok(()));
        assert_eq!(all.origin(chunk(0).0), Some(chunk(1).0));
    }

    const SLOTS: usize = 8;
    const THREADS: usize = 3;

    /// What each of a few threads has still to report, and the chunk it works on.
    type Thread = (Vec<Report>, Option<u64>);

    proptest! {
        /// Threads change mappings in one order and report that in another: the account is as the
        /// memory is, or there is none.
        #[test]
        fn late_reports(steps in prop::collection::vec((0..THREADS, 0..SLOTS, 0..SLOTS), 0..60)) {
            let mut account = Account::new(&[(0, 4 * 64 * KIB)]);
            let first = |i: usize| (i < 4).then_some(i as u64);
            let mut slots: Vec<Option<u64>> = (0..SLOTS).map(first).collect();
            let mut threads: Vec<Thread> = vec![(vec![], None); THREADS];
            for (thread, slot, to) in steps {
                let busy: Vec<Option<u64>> = threads.iter().map(|t| t.1).collect();
                let (reports, chunk_in_work) = &mut threads[thread];
                if !reports.is_empty() {
                    account.note(reports.remove(0));
                } else if let Some(content) = slots[slot].filter(|c| !busy.contains(&Some(*c))) {
                    // A thread works on what no other thread works on.
                    *chunk_in_work = Some(content);
                    *reports = if slots[to].is_none() {
                        slots.swap(slot, to);
                        vec![moved(slot, to), unmapped(slot)]
                    } else {
                        slots[slot] = None;
                        vec![unmapped(slot)]
                    };
                }
                for (reports, chunk_in_work) in &mut threads {
                    if reports.is_empty() {
                        *chunk_in_work = None;
                    }
                }
                if threads.iter().all(|t| t.0.is_empty()) {
                    if account.settle().is_err() {
                        return Ok(());
                    }
                    for (slot, content) in slots.iter().enumerate() {
                        let expected = content.map(|c| chunk(c as usize).0);
                        let found = account.origin(chunk(slot).0).filter(|o| *o < chunk(4).0);
                        prop_assert_eq!(found, expected);
                    }
                }
            }
        }
    }
}
