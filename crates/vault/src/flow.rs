//! Flows: sums over the members of a stripe, worked out on the way to where they are wanted.
//!
//! Parity is a sum of the data members' chunks times their factors; a lost chunk is a sum of those
//! that are left. The terms travel along a tree whose root is the member that wants the sum: each
//! member adds its own term to what comes from its children and passes the sum on. All sums of a
//! stripe take the same way, row by row together, and part only before their roots: so a member
//! reads each of its cells once, and multiplies it with all factors in one pass. A chain of
//! members is the pipeline, a tree of two children each the fan-in, a star the broadcast: one state
//! machine, without I/O, for all of them.
//!
//! Kept true: a member has in memory at most `depth` rows of its own, and `depth` of each sum from
//! each child; rows leave in order; a child sends only what its parent has given credit for. What
//! is not there because a payload is shorter is not sent.

use crate::block::Block;
use crate::change::Runs;
use crate::code::field::Matrix;
use crate::code::{Code, Linear, kernel};
use crate::geometry::{Cell, Geometry};
use crate::rows::Rows;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

/// A member's term of sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub member: usize,
    pub position: usize,
    /// One for each sum.
    pub factors: Vec<u8>,
    pub rows: Rows,
    /// To whom its sums go; `None`: each to who wants it.
    pub parent: Option<usize>,
}

/// Sums of the same members' cells: of positions of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub stripe: usize,
    /// The positions, and who wants each.
    pub wanted: Vec<(usize, usize)>,
    pub terms: Vec<Term>,
}

impl Task {
    /// The sums of `terms`, whose parents are not known yet.
    pub fn new(
        stripe: usize,
        wanted: Vec<(usize, usize)>,
        mut terms: Vec<Term>,
        encoder: Encoder,
    ) -> Task {
        // Who has nothing has no part. The longest stands next to the root: so no member passes on
        // much more than it has itself. Those that are about as long stay in the order of their
        // positions, which differs by stripe: so all have the inner places of trees in turn, and
        // no link gets more than its share.
        terms.retain(|term| !term.rows.is_empty());
        let bytes = |term: &Term| term.rows.total();
        let longest = terms.iter().map(bytes).max().unwrap_or(0);
        terms.sort_by_cached_key(|term| (longest - bytes(term)) * LENGTHS / longest.max(1));
        let members: Vec<usize> = terms.iter().map(|term| term.member).collect();
        for (n, term) in terms.iter_mut().enumerate() {
            term.parent = encoder.parent(n).map(|parent| members[parent]);
        }
        Task { stripe, wanted, terms }
    }

    /// The rows of which there are sums.
    pub fn changed(&self) -> BTreeSet<u64> {
        self.terms.iter().flat_map(|term| term.rows.iter().map(|(row, _)| row)).collect()
    }

    fn term(&self, member: usize) -> Option<&Term> {
        self.terms.iter().find(|term| term.member == member)
    }

    /// Those whose sums come to a member, which wants one if it has no term.
    fn children(&self, member: usize) -> impl Iterator<Item = &Term> {
        let parent = self.term(member).map(|term| term.member);
        self.terms.iter().filter(move |term| term.parent == parent)
    }

    /// The rows that a member has or is sent.
    fn rows(&self, member: usize) -> Rows {
        let own = self.term(member).map_or(Rows::First(0), |term| term.rows.clone());
        self.children(member).fold(own, |all, child| all.or(&self.rows(child.member)))
    }
}

/// The sums that make the parity of a stripe, of those rows of each position of data.
fn parity(
    geometry: &Geometry,
    code: &Code,
    number: usize,
    rows: impl Fn(usize) -> Rows,
    encoder: Encoder,
) -> Task {
    let stripe = &geometry.stripes[number];
    let wanted = stripe.coding.iter().enumerate();
    let wanted = wanted.map(|(parity, root)| (stripe.data.len() + parity, *root)).collect();
    let term = |(position, member): (usize, &usize)| Term {
        member: *member,
        position,
        factors: (0..code.m()).map(|parity| code.factor(parity, position)).collect(),
        rows: rows(position),
        parent: None,
    };
    let terms = stripe.data.iter().enumerate().map(term).collect();
    Task::new(number, wanted, terms, encoder)
}

/// All sums that make the parity of a generation.
pub fn encoding(geometry: &Geometry, encoder: Encoder) -> Vec<Task> {
    let Some(code) = geometry.code() else { return Vec::new() };
    let task = |number: usize| {
        let rows = |position: usize| Rows::First(geometry.bytes(number, position));
        parity(geometry, code, number, rows, encoder)
    };
    (0..geometry.stripes.len()).map(task).collect()
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
    let task = |number: usize| {
        let rows = |position: usize| {
            Rows::Some(rows.get(&(number, position)).cloned().unwrap_or_default())
        };
        parity(new, code, number, rows, encoder)
    };
    (0..new.stripes.len()).map(task).collect()
}

/// Bytes that the member sends which sends most.
pub fn busiest(tasks: &[Task]) -> u64 {
    let mut sent: BTreeMap<usize, u64> = BTreeMap::new();
    for task in tasks {
        for term in &task.terms {
            let bytes = task.rows(term.member).total() * task.wanted.len() as u64;
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
            let wanted = geometry.bytes(number, position);
            let term = |(from, factor): (&usize, u8)| {
                let rows = Rows::First(geometry.bytes(number, *from).min(wanted));
                let (member, position) = (geometry.holder(number, *from), *from);
                Term { member, position, factors: vec![factor], rows, parent: None }
            };
            let terms = have.iter().zip(factors).filter(|(_, factor)| *factor != 0);
            let terms = terms.map(term).collect();
            tasks.push(Task::new(number, vec![(position, *root)], terms, encoder));
        }
    }
    Some(tasks)
}

/// What a member is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read this cell of its own, and say `loaded`.
    Load(Cell),
    /// Send this of the sum of a position to a member, which is to say `arrived`.
    Send { to: usize, position: usize, row: u64, bytes: Block },
    /// Tell a child, which is to say `credited`.
    Credit { to: usize, position: usize },
    /// Keep this: it is the sum; and say `stored`.
    Store { cell: Cell, bytes: Block },
}

/// Something came that a flow does not wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a block or a credit came that nobody waits for")]
pub struct Unexpected;

/// What is there of a row.
struct Row {
    /// Of each sum what came; the first that comes is what others are added to.
    sums: Vec<Option<Block>>,
    own: Option<Block>,
    /// How much is to come yet.
    missing: usize,
}

/// One of the sums.
struct Sum {
    position: usize,
    /// `None`: it is wanted here.
    to: Option<usize>,
    /// Rows that will be taken there, or that may be stored, beyond those under way.
    credit: usize,
}

struct Child {
    rows: Rows,
    /// Of each sum the first row that it has not sent yet.
    next: Vec<Option<u64>>,
}

/// One member's part in the sums of a task.
pub struct Flow {
    stripe: usize,
    sums: Vec<Sum>,
    /// Position of the own cells, their rows, and what multiplies them.
    own: Option<(usize, Rows, Linear)>,
    /// Adds what comes as it is.
    plus: Linear,
    children: BTreeMap<usize, Child>,
    rows: Rows,
    /// The first row that has not left.
    next: Option<u64>,
    /// The first row that was not asked to be loaded, and how many were that have not left.
    ahead: Option<u64>,
    begun: usize,
    /// Rows of which something is there.
    open: BTreeMap<u64, Row>,
    depth: usize,
    /// Rows that were to be stored and are not yet.
    storing: usize,
}

impl Flow {
    /// `None`: the member has no part in it.
    pub fn new(task: &Task, member: usize, depth: usize) -> Option<Flow> {
        let term = task.term(member);
        let sum = |(position, root): &(usize, usize)| {
            let to = term.map(|term| term.parent.unwrap_or(*root));
            Sum { position: *position, to, credit: depth }
        };
        let here = |wanted: &&(usize, usize)| term.is_some() || wanted.1 == member;
        let sums: Vec<Sum> = task.wanted.iter().filter(here).map(sum).collect();
        if sums.is_empty() {
            return None;
        }
        let own = term.map(|t| {
            let factors = Matrix::new(t.factors.len(), 1, |sum, _| t.factors[sum]);
            (t.position, t.rows.clone(), Linear::new(kernel::best(), factors))
        });
        let child = |t: &Term| {
            let rows = task.rows(t.member);
            (t.member, Child { next: vec![rows.next(0); sums.len()], rows })
        };
        let rows = task.rows(member);
        Some(Flow {
            stripe: task.stripe,
            own,
            plus: Linear::one(kernel::best(), 1),
            children: task.children(member).map(child).collect(),
            sums,
            next: rows.next(0),
            ahead: rows.next(0),
            rows,
            begun: 0,
            open: BTreeMap::new(),
            depth,
            storing: 0,
        })
    }

    pub fn done(&self) -> bool {
        self.next.is_none() && self.storing == 0
    }

    /// Bytes in memory.
    pub fn held(&self) -> usize {
        let blocks = self.open.values().flat_map(|row| row.sums.iter().chain([&row.own]));
        blocks.flatten().map(|block| block.len()).sum()
    }

    /// What is to be done to begin.
    pub fn start(&mut self) -> Vec<Action> {
        self.go_on()
    }

    /// The own cell of this row was read.
    pub fn loaded(&mut self, row: u64, cell: Block) -> Result<Vec<Action>, Unexpected> {
        let wanted = self.own.as_ref().map_or(0, |(_, rows, _)| rows.bytes(row));
        if wanted == 0 || (cell.len() as u64) < wanted {
            return Err(Unexpected);
        }
        let there = self.opened(row)?;
        if there.own.is_some() {
            return Err(Unexpected);
        }
        there.own = Some(cell);
        there.missing -= 1;
        Ok(self.go_on())
    }

    /// A child's sum of a position came.
    pub fn arrived(
        &mut self,
        (from, position): (usize, usize),
        row: u64,
        mut bytes: Block,
    ) -> Result<Vec<Action>, Unexpected> {
        let sum = self.sum(position)?;
        let child = self.children.get(&from).ok_or(Unexpected)?;
        if child.next[sum] != Some(row) || child.rows.bytes(row) != bytes.len() as u64 {
            return Err(Unexpected);
        }
        let length = self.rows.bytes(row) as usize;
        self.opened(row)?;
        let (Some(child), Some(there)) = (self.children.get_mut(&from), self.open.get_mut(&row))
        else {
            return Err(Unexpected);
        };
        child.next[sum] = child.rows.next(row + 1);
        match &mut there.sums[sum] {
            Some(all) => self.plus.add(0, &bytes, &mut [all]),
            none => {
                bytes.extend(length);
                *none = Some(bytes);
            }
        }
        there.missing -= 1;
        Ok(self.go_on())
    }

    /// Whoever takes this sum takes one more row.
    pub fn credited(&mut self, position: usize) -> Result<Vec<Action>, Unexpected> {
        let (sum, depth) = (self.sum(position)?, self.depth);
        let sum = &mut self.sums[sum];
        if sum.to.is_none() || sum.credit >= depth {
            return Err(Unexpected);
        }
        sum.credit += 1;
        Ok(self.go_on())
    }

    /// A row of a sum was stored.
    pub fn stored(&mut self, position: usize) -> Result<Vec<Action>, Unexpected> {
        let sum = self.sum(position)?;
        self.storing = self.storing.checked_sub(1).ok_or(Unexpected)?;
        self.sums[sum].credit += 1;
        Ok(self.go_on())
    }

    fn sum(&self, position: usize) -> Result<usize, Unexpected> {
        self.sums.iter().position(|sum| sum.position == position).ok_or(Unexpected)
    }

    /// A row that has not left yet, and of which something is to come.
    fn opened(&mut self, row: u64) -> Result<&mut Row, Unexpected> {
        let has = |rows: &Rows| rows.bytes(row) > 0;
        if !has(&self.rows) || self.next.is_none_or(|next| row < next) {
            return Err(Unexpected);
        }
        let own = self.own.as_ref().is_some_and(|(_, rows, _)| has(rows));
        let children = self.children.values().filter(|child| has(&child.rows)).count();
        let sums = self.sums.len();
        let there = self.open.entry(row).or_insert_with(|| Row {
            sums: (0..sums).map(|_| None).collect(),
            own: None,
            missing: usize::from(own) + children * sums,
        });
        if there.missing > 0 { Ok(there) } else { Err(Unexpected) }
    }

    /// The sums of a row, of which all is there.
    fn finish(&self, row: u64, there: Row) -> Vec<Block> {
        let Some((cell, (_, rows, product))) = there.own.as_ref().zip(self.own.as_ref()) else {
            return there.sums.into_iter().flatten().collect();
        };
        let (length, own) = (self.rows.bytes(row) as usize, &cell[..rows.bytes(row) as usize]);
        let came = there.sums.iter().all(Option::is_some);
        let block = |sum: Option<Block>| sum.unwrap_or_else(|| Block::new(length));
        let mut sums: Vec<Block> = there.sums.into_iter().map(block).collect();
        let mut to: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut **sum).collect();
        if came {
            product.add(0, own, &mut to)
        } else {
            product.set(&[own], &mut to)
        }
        sums
    }

    fn go_on(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(row) = self.next {
            let whole = self.open.get(&row).is_some_and(|there| there.missing == 0);
            if !whole || self.sums.iter().any(|sum| sum.credit == 0) {
                break;
            }
            let Some(there) = self.open.remove(&row) else { break };
            let blocks = self.finish(row, there);
            self.next = self.rows.next(row + 1);
            match self.begun.checked_sub(1) {
                Some(begun) => self.begun = begun,
                None => self.ahead = self.next,
            }
            for (sum, bytes) in self.sums.iter_mut().zip(blocks) {
                sum.credit -= 1;
                let position = sum.position;
                if let Some(to) = sum.to {
                    actions.push(Action::Send { to, position, row, bytes });
                } else {
                    self.storing += 1;
                    let cell = Cell { stripe: self.stripe, position, row };
                    actions.push(Action::Store { cell, bytes });
                }
            }
            let senders = self.children.iter().filter(|(_, child)| child.rows.bytes(row) > 0);
            let credit = |(to, position): (usize, usize)| Action::Credit { to, position };
            let positions = || self.sums.iter().map(|sum| sum.position);
            let all = senders.flat_map(|(to, _)| positions().map(move |position| (*to, position)));
            actions.extend(all.map(credit));
        }
        while let Some(row) = self.ahead.filter(|_| self.begun < self.depth) {
            self.begun += 1;
            self.ahead = self.rows.next(row + 1);
            if let Some((position, rows, _)) = &self.own
                && rows.bytes(row) > 0
            {
                let cell = Cell { stripe: self.stripe, position: *position, row };
                actions.push(Action::Load(cell));
            }
        }
        actions
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
