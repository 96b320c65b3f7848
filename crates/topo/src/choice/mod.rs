//! Which spare takes the place of a lost node, and who moves for it: what costs least until the end
//! of the job.
//!
//! The cost is the time to move ranks over links, and what the pattern is slower afterwards, over
//! the rest of the run. All spares are tried, and all ways to slide; what the job lost before is in
//! the situation, so that a way to slide may be open after one loss and closed after the next.

mod loads;
pub mod running;

use self::loads::Loads;
use crate::flow;
use crate::network::Network;
use crate::pattern::Pattern;
use crate::shape::Node;
use crate::situation::{Move, NOBODY, Situation};
use crate::sliding::Slide;

/// Patterns with more messages are not simulated as flows.
pub const MOST_FLOWS: usize = 20_000;
/// So many of the cheapest candidates are simulated as flows.
const SIMULATED: usize = 8;

/// What the time until the end of the job depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Bytes of a node's ranks, which move.
    pub state_bytes: f64,
    /// Until the job would end, had nothing been lost.
    pub rest_s: f64,
    /// The part of that which goes into the pattern.
    pub communication: f64,
}

impl Default for Costs {
    /// A GiB on each node, an hour, a tenth of it communication.
    fn default() -> Self {
        Costs { state_bytes: f64::from(1 << 30), rest_s: 3600.0, communication: 0.1 }
    }
}

/// How the lost node's ranks come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// They go to a spare, and nobody else moves: in zero dimensions.
    Direct(Node),
    Slide(Slide),
}

impl Method {
    pub fn dimensions(&self) -> u32 {
        match self {
            Method::Direct(_) => 0,
            Method::Slide(slide) => slide.dimensions(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub method: Method,
    pub moves: Vec<Move>,
    /// Most messages on a link, afterwards.
    pub sharing: u32,
    /// How many times as long the pattern takes as before the loss.
    pub slowdown: f64,
    /// Whether that was simulated as flows; otherwise it is by the busiest link, memory and engine.
    pub is_simulated: bool,
    pub move_s: f64,
    /// Until the end of the job, of the slow-down.
    pub slow_s: f64,
}

impl Candidate {
    pub fn total_s(&self) -> f64 {
        self.move_s + self.slow_s
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error("node {0} has no ranks: nothing moves when it is lost")]
    NoRanks(Node),
    #[error("no spare is left")]
    NoSpares,
}

/// All ways to replace a lost node, the cheapest first. The first ones are simulated as flows.
pub fn candidates(
    network: &Network,
    pattern: &Pattern,
    situation: &Situation,
    lost: Node,
    costs: &Costs,
) -> Result<Vec<Candidate>, ChoiceError> {
    let mut all = estimated(network, pattern, situation, lost, costs)?;
    if pattern.messages.len() <= MOST_FLOWS {
        let before = flow::simulate(network, pattern, situation).total;
        for candidate in all.iter_mut().take(SIMULATED) {
            let after = flow::simulate(network, pattern, &situation.after(&candidate.moves, lost));
            candidate.judge(after.total / before, costs);
            candidate.is_simulated = true;
        }
        let simulated = all.len().min(SIMULATED);
        sort(&mut all[..simulated]);
    }
    Ok(all)
}

/// The same, each by its busiest link, memory or engine alone.
pub fn estimated(
    network: &Network,
    pattern: &Pattern,
    situation: &Situation,
    lost: Node,
    costs: &Costs,
) -> Result<Vec<Candidate>, ChoiceError> {
    let first_rank = situation.first_rank(network.nodes());
    if first_rank.get(lost as usize).is_none_or(|rank| *rank == NOBODY) {
        return Err(ChoiceError::NoRanks(lost));
    }
    let mut is_spare = vec![false; network.nodes() as usize];
    situation.spares.iter().for_each(|node| is_spare[*node as usize] = *node != lost);
    let mut loads = Loads::new(network, pattern, situation);
    let direct = situation.spares.iter().filter(|spare| **spare != lost);
    let mut all: Vec<Candidate> = direct
        .map(|spare| {
            let moves = vec![Move { from: lost, to: *spare }];
            loads.candidate(Method::Direct(*spare), moves, lost, costs)
        })
        .collect();
    if all.is_empty() {
        return Err(ChoiceError::NoSpares);
    }
    let mut best = all.iter().map(Candidate::total_s).fold(f64::INFINITY, f64::min);
    if let Some(lattice) = &network.lattice {
        for slide in Slide::all(lattice) {
            let Some(moves) = slide.moves(lattice, lost, &is_spare, &first_rank) else { continue };
            // One that moves more than others cost at all is none to look at.
            if loads.move_s(&moves, lost, costs) > best {
                continue;
            }
            let candidate = loads.candidate(Method::Slide(slide), moves, lost, costs);
            best = best.min(candidate.total_s());
            all.push(candidate);
        }
    }
    sort(&mut all);
    Ok(all)
}

/// The cheapest first; of equals the one that moves fewer ranks, then the one that shares least.
fn sort(all: &mut [Candidate]) {
    let key = |candidate: &Candidate| (candidate.moves.len(), candidate.sharing);
    all.sort_by(|a, b| a.total_s().total_cmp(&b.total_s()).then(key(a).cmp(&key(b))));
}

impl Candidate {
    fn judge(&mut self, slowdown: f64, costs: &Costs) {
        // What was no time before is no reason to move.
        self.slowdown = if slowdown.is_finite() { slowdown } else { 1.0 };
        self.slow_s = costs.rest_s * costs.communication * (self.slowdown - 1.0).max(0.0);
    }
}

#[cfg(test)]
#[path = "../choice_tests.rs"]
mod tests;
