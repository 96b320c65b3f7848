//! Flows: a sum over the members of a stripe, worked out on the way to where it is wanted.
//!
//! Parity is a sum of the data members' chunks times their factors; a lost chunk is a sum of those
//! that are left. The terms travel along a tree whose root is the member that wants the sum: each
//! member adds its own term to what comes from its children and passes the sum on. A chain of
//! members is the pipeline, a tree of two children each the fan-in, a star the broadcast: one state
//! machine, without I/O, for all of them.
//!
//! Kept true: a member has at most `depth` rows of its own and `depth` from each child in memory;
//! rows leave in order; a child sends only what its parent has given credit for. What is not there
//! because a payload is shorter is not sent.

use crate::change::Runs;
use crate::code::{Linear, kernel};
use crate::geometry::{CHUNK_BYTES, Cell, Geometry};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;

/// Lengths of terms that are told apart when a tree is laid out: within a 32nd they are alike.
const LENGTHS: u64 = 32;

/// The shape of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Encoder {
    Pipeline,
    FanIn,
    Broadcast,
}

impl Encoder {
    pub const ALL: [Encoder; 3] = [Encoder::Pipeline, Encoder::FanIn, Encoder::Broadcast];

    /// The parent of number `n` of the members that have terms, the longest of which is number 0;
    /// `None`: the root.
    fn parent(self, n: usize) -> Option<usize> {
        match self {
            Encoder::Pipeline => n.checked_sub(1),
            // Number `n` has number `n + 1` in a heap whose top is the root.
            Encoder::FanIn => (n / 2).checked_sub(1),
            Encoder::Broadcast => None,
        }
    }

    /// Hops from the farthest of `terms` members to the root.
    pub fn hops(self, terms: usize) -> usize {
        let up = |mut n: usize| {
            let mut hops = 1;
            while let Some(parent) = self.parent(n) {
                (n, hops) = (parent, hops + 1);
            }
            hops
        };
        terms.checked_sub(1).map_or(0, up)
    }

    /// Most children of one member.
    pub fn children(self, terms: usize) -> usize {
        match self {
            Encoder::Pipeline => terms.min(1),
            Encoder::FanIn => terms.min(2),
            Encoder::Broadcast => terms,
        }
    }
}

impl fmt::Display for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoder::Pipeline => "pipeline",
            Encoder::FanIn => "fanin",
            Encoder::Broadcast => "broadcast",
        })
    }
}

impl FromStr for Encoder {
    type Err = String;

    fn from_str(text: &str) -> Result<Encoder, String> {
        let named = Encoder::ALL.into_iter().find(|encoder| encoder.to_string() == text);
        named.ok_or_else(|| {
            format!("'{text}' is no encoder; there are auto, pipeline, fanin, broadcast")
        })
    }
}

/// A member's term of a sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub member: usize,
    pub position: usize,
    pub factor: u8,
    /// Its rows, with their lengths.
    pub rows: BTreeMap<u64, u64>,
    /// To whom its sum goes.
    pub parent: usize,
}

/// A sum: the cells of one position of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub stripe: usize,
    pub position: usize,
    /// Who wants it.
    pub root: usize,
    pub terms: Vec<Term>,
}

impl Task {
    /// The sum of `terms` (member, position, factor, rows) at `root`.
    pub fn new(
        (stripe, position): (usize, usize),
        root: usize,
        mut terms: Vec<Term>,
        encoder: Encoder,
    ) -> Task {
        // Who has nothing has no part. The longest stands next to the root: so no member passes on
        // much more than it has itself. Those that are about as long stay in the order of their
        // positions, which differs by stripe: so all have the inner places of trees in turn, and
        // no link gets more than its share.
        terms.retain(|term| !term.rows.is_empty());
        let bytes = |term: &Term| term.rows.values().sum::<u64>();
        let longest = terms.iter().map(bytes).max().unwrap_or(0);
        terms.sort_by_cached_key(|term| (longest - bytes(term)) * LENGTHS / longest.max(1));
        let members: Vec<usize> = terms.iter().map(|term| term.member).collect();
        for (n, term) in terms.iter_mut().enumerate() {
            term.parent = encoder.parent(n).map_or(root, |parent| members[parent]);
        }
        Task { stripe, position, root, terms }
    }

    /// The rows of which there is a sum.
    pub fn changed(&self) -> BTreeSet<u64> {
        self.terms.iter().flat_map(|term| term.rows.keys().copied()).collect()
    }

    fn children(&self, member: usize) -> impl Iterator<Item = &Term> {
        self.terms.iter().filter(move |term| term.parent == member && term.member != member)
    }

    /// The rows that a member has or is sent, each with its length and how many terms it has there.
    fn rows(&self, member: usize) -> BTreeMap<u64, (u64, usize)> {
        let mut rows: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut add = |row: u64, bytes: u64| {
            let entry = rows.entry(row).or_default();
            *entry = (entry.0.max(bytes), entry.1 + 1);
        };
        let own = self.terms.iter().find(|term| term.member == member);
        own.iter().for_each(|t| t.rows.iter().for_each(|(row, bytes)| add(*row, *bytes)));
        for child in self.children(member) {
            self.rows(child.member).iter().for_each(|(row, (bytes, _))| add(*row, *bytes));
        }
        rows
    }
}

/// Rows of a position of a stripe, with their lengths.
pub fn all_rows(geometry: &Geometry, stripe: usize, position: usize) -> BTreeMap<u64, u64> {
    let bytes = geometry.bytes(stripe, position);
    let length = |row: u64| (row, (bytes - row * CHUNK_BYTES).min(CHUNK_BYTES));
    (0..bytes.div_ceil(CHUNK_BYTES)).map(length).collect()
}

/// All sums that make the parity of a generation.
pub fn encoding(geometry: &Geometry, encoder: Encoder) -> Vec<Task> {
    let Some(code) = geometry.code() else { return Vec::new() };
    let mut tasks = Vec::new();
    for (number, stripe) in geometry.stripes.iter().enumerate() {
        for (parity, root) in stripe.coding.iter().enumerate() {
            let term = |(position, member): (usize, &usize)| Term {
                member: *member,
                position,
                factor: code.factor(parity, position),
                rows: all_rows(geometry, number, position),
                parent: *root,
            };
            let terms = stripe.data.iter().enumerate().map(term).collect();
            let place = (number, stripe.data.len() + parity);
            tasks.push(Task::new(place, *root, terms, encoder));
        }
    }
    tasks
}

/// All sums that make of the parity of a generation that of a later one with the same stripes: of
/// differences, of those chunks of each member that changed.
pub fn differences(
    new: &Geometry,
    old: &Geometry,
    changed: &[Runs],
    encoder: Encoder,
) -> Vec<Task> {
    let Some(code) = new.code() else { return Vec::new() };
    // The changed rows of each position of each stripe, with the lengths of their differences.
    let mut rows: BTreeMap<(usize, usize), BTreeMap<u64, u64>> = BTreeMap::new();
    for (member, runs) in changed.iter().enumerate() {
        for cell in runs.chunks().filter_map(|chunk| new.cell(member, chunk)) {
            let bytes = new.spot(cell).bytes.max(old.spot(cell).bytes);
            // What is beyond the end of the new parity is not worked out: it is zero.
            let parity = Cell { position: code.k(), ..cell };
            let bytes = bytes.min(new.spot(parity).bytes);
            if bytes > 0 {
                rows.entry((cell.stripe, cell.position)).or_default().insert(cell.row, bytes);
            }
        }
    }
    let mut tasks = Vec::new();
    for (number, stripe) in new.stripes.iter().enumerate() {
        for (parity, root) in stripe.coding.iter().enumerate() {
            let term = |(position, member): (usize, &usize)| Term {
                member: *member,
                position,
                factor: code.factor(parity, position),
                rows: rows.get(&(number, position)).cloned().unwrap_or_default(),
                parent: *root,
            };
            let terms = stripe.data.iter().enumerate().map(term).collect();
            tasks.push(Task::new((number, stripe.data.len() + parity), *root, terms, encoder));
        }
    }
    tasks
}

/// Bytes that the member sends which sends most.
pub fn busiest(tasks: &[Task]) -> u64 {
    let mut sent: BTreeMap<usize, u64> = BTreeMap::new();
    for task in tasks {
        for term in &task.terms {
            let bytes: u64 = task.rows(term.member).values().map(|(bytes, _)| bytes).sum();
            *sent.entry(term.member).or_default() += bytes;
        }
    }
    sent.into_values().max().unwrap_or(0)
}

/// All sums that make what `lost` members had, at these members again (or at those that take their
/// places): from members that are left, other ones for each stripe, so that none has to send all.
/// `None`: more are lost than can be borne.
pub fn rebuilding(geometry: &Geometry, lost: &[usize], encoder: Encoder) -> Option<Vec<Task>> {
    let code = geometry.code()?;
    let mut tasks = Vec::new();
    for number in 0..geometry.stripes.len() {
        let mut have: Vec<usize> = (0..code.k() + code.m())
            .filter(|position| !lost.contains(&geometry.holder(number, *position)))
            .collect();
        let turn = if have.is_empty() { 0 } else { number % have.len() };
        have.rotate_left(turn);
        have.truncate(code.k());
        for root in lost {
            let Some(position) = geometry.position(number, *root) else { continue };
            let factors = code.express(&have, &[position])?.cells;
            // What is beyond the end of the lost cells need not be worked out.
            let wanted = all_rows(geometry, number, position);
            let term = |(from, factor): (&usize, u8)| {
                let mut rows = all_rows(geometry, number, *from);
                rows.retain(|row, bytes| {
                    *bytes = (*bytes).min(wanted.get(row).copied().unwrap_or(0));
                    *bytes > 0
                });
                let (member, position) = (geometry.holder(number, *from), *from);
                Term { member, position, factor, rows, parent: *root }
            };
            let terms = have.iter().zip(factors).filter(|(_, factor)| *factor != 0);
            tasks.push(Task::new((number, position), *root, terms.map(term).collect(), encoder));
        }
    }
    Some(tasks)
}

/// What a member is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read this cell of its own, and say `loaded`.
    Load(Cell),
    /// Send this to a member, which is to say `arrived`.
    Send { to: usize, row: u64, bytes: Vec<u8> },
    /// Tell a child, which is to say `credited`.
    Credit { to: usize },
    /// Keep this: it is the sum; and say `stored`.
    Store { cell: Cell, bytes: Vec<u8> },
}

/// Something came that a flow does not wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a block or a credit came that nobody waits for")]
pub struct Unexpected;

struct Sum {
    bytes: Vec<u8>,
    missing: usize,
}

/// One member's part in one sum.
pub struct Flow {
    stripe: usize,
    position: usize,
    /// `None`: this is the root.
    parent: Option<usize>,
    /// Position of the own cells, their rows, and what multiplies them.
    own: Option<(usize, BTreeMap<u64, u64>, Linear)>,
    /// Adds what comes as it is.
    plus: Linear,
    /// Children, each with the rows that it has not sent yet, and their lengths.
    children: BTreeMap<usize, VecDeque<(u64, u64)>>,
    /// For each row that was passed on, who gets a credit: those that sent it.
    senders: BTreeMap<u64, BTreeSet<usize>>,
    /// Rows that have not left, in order, each with its length and number of terms.
    rows: VecDeque<(u64, u64, usize)>,
    /// How many of these were asked to be loaded.
    begun: usize,
    /// Rows of which something is there.
    sums: BTreeMap<u64, Sum>,
    /// Rows that the parent will take, or that may be stored, beyond those under way.
    credit: usize,
    depth: usize,
    /// Rows that were to be stored and are not yet.
    storing: usize,
}

impl Flow {
    /// `None`: the member has no part in it.
    pub fn new(task: &Task, member: usize, depth: usize) -> Option<Flow> {
        let root = task.root == member;
        let term = task.terms.iter().find(|term| term.member == member);
        if !root && term.is_none() {
            return None;
        }
        let own = term.map(|t| (t.position, t.rows.clone(), Linear::one(kernel::best(), t.factor)));
        let rows_of = |t: &Term| {
            task.rows(t.member).into_iter().map(|(row, (bytes, _))| (row, bytes)).collect()
        };
        let rows = task.rows(member).into_iter().map(|(row, (bytes, terms))| (row, bytes, terms));
        Some(Flow {
            stripe: task.stripe,
            position: task.position,
            parent: term.filter(|_| !root).map(|t| t.parent),
            own,
            plus: Linear::one(kernel::best(), 1),
            children: task.children(member).map(|t| (t.member, rows_of(t))).collect(),
            senders: BTreeMap::new(),
            rows: rows.collect(),
            begun: 0,
            sums: BTreeMap::new(),
            credit: depth,
            depth,
            storing: 0,
        })
    }

    pub fn done(&self) -> bool {
        self.rows.is_empty() && self.storing == 0
    }

    /// Bytes in memory.
    pub fn held(&self) -> usize {
        self.sums.values().map(|sum| sum.bytes.len()).sum()
    }

    /// What is to be done to begin.
    pub fn start(&mut self) -> Vec<Action> {
        self.go_on()
    }

    /// The own cell of this row was read.
    pub fn loaded(&mut self, row: u64, bytes: &[u8]) -> Result<Vec<Action>, Unexpected> {
        let Some((_, rows, product)) = &self.own else { return Err(Unexpected) };
        let wanted = rows.get(&row).ok_or(Unexpected)?;
        let bytes = bytes.get(..*wanted as usize).ok_or(Unexpected)?;
        let sum = open(&mut self.sums, &self.rows, row).ok_or(Unexpected)?;
        product.add(0, bytes, &mut [&mut sum.bytes]);
        sum.missing -= 1;
        Ok(self.go_on())
    }

    /// A child's sum came.
    pub fn arrived(
        &mut self,
        from: usize,
        row: u64,
        bytes: &[u8],
    ) -> Result<Vec<Action>, Unexpected> {
        let waited = self.children.get_mut(&from).ok_or(Unexpected)?;
        if waited.front() != Some(&(row, bytes.len() as u64)) {
            return Err(Unexpected);
        }
        let sum = open(&mut self.sums, &self.rows, row).ok_or(Unexpected)?;
        if bytes.len() > sum.bytes.len() {
            return Err(Unexpected);
        }
        self.plus.add(0, bytes, &mut [&mut sum.bytes]);
        sum.missing -= 1;
        waited.pop_front();
        self.senders.entry(row).or_default().insert(from);
        Ok(self.go_on())
    }

    /// The parent takes one more.
    pub fn credited(&mut self) -> Result<Vec<Action>, Unexpected> {
        if self.parent.is_none() || self.credit >= self.depth {
            return Err(Unexpected);
        }
        self.credit += 1;
        Ok(self.go_on())
    }

    /// A row was stored.
    pub fn stored(&mut self) -> Result<Vec<Action>, Unexpected> {
        self.storing = self.storing.checked_sub(1).ok_or(Unexpected)?;
        self.credit += 1;
        Ok(self.go_on())
    }

    fn go_on(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((row, ..)) = self.rows.front().copied() {
            let whole = self.sums.get(&row).is_some_and(|sum| sum.missing == 0);
            if !whole || self.credit == 0 {
                break;
            }
            let Some(Sum { bytes, .. }) = self.sums.remove(&row) else { break };
            self.credit -= 1;
            self.rows.pop_front();
            self.begun = self.begun.saturating_sub(1);
            let cell = Cell { stripe: self.stripe, position: self.position, row };
            match self.parent {
                Some(to) => actions.push(Action::Send { to, row, bytes }),
                None => {
                    self.storing += 1;
                    actions.push(Action::Store { cell, bytes });
                }
            }
            let senders = self.senders.remove(&row).unwrap_or_default();
            actions.extend(senders.into_iter().map(|to| Action::Credit { to }));
        }
        while self.begun < self.depth.min(self.rows.len()) {
            let row = self.rows[self.begun].0;
            self.begun += 1;
            if let Some((position, rows, _)) = &self.own
                && rows.contains_key(&row)
            {
                let cell = Cell { stripe: self.stripe, position: *position, row };
                actions.push(Action::Load(cell));
            }
        }
        actions
    }
}

/// The sum of a row that has not left yet, and that lacks something.
fn open<'a>(
    sums: &'a mut BTreeMap<u64, Sum>,
    rows: &VecDeque<(u64, u64, usize)>,
    row: u64,
) -> Option<&'a mut Sum> {
    let at = rows.binary_search_by_key(&row, |(row, ..)| *row).ok()?;
    let (_, bytes, missing) = rows[at];
    let sum = sums.entry(row).or_insert_with(|| Sum { bytes: vec![0; bytes as usize], missing });
    Some(sum).filter(|sum| sum.missing > 0)
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
