//! `eyrie topo place`: which spare to take for a lost node, or where to put spares.

use super::args::Place;
use super::input::{Given, called, given};
use eyrie_terminal::{Failure, print, print_json, units};
use eyrie_topo::choice::{Candidate, Costs, Method, candidates, estimated};
use eyrie_topo::shape::Node;
use eyrie_topo::spares::{self, Policy};
use eyrie_topo::{Network, Situation};
use serde_json::{Value, json};
use std::time::Instant;

/// Lost nodes that places for spares are compared by, evenly over all.
const SAMPLES: usize = 64;
/// Patterns of more messages are not simulated as flows for so many lost nodes.
const MOST_FLOWS: usize = 1_000;

pub fn place(args: &Place) -> Result<i32, Failure> {
    let given = given(&args.program)?;
    let costs = Costs {
        state_bytes: args.state as f64,
        rest_s: args.rest as f64 / 1e3,
        communication: f64::from(args.communication) / 100.0,
    };
    match given.lost {
        Some(lost) => choose(args, &given, lost, &costs),
        None => compare(args, &given, &costs),
    }
}

/// What is done: for people.
fn method(network: &Network, candidate: &Candidate) -> String {
    match candidate.method {
        Method::Direct(spare) => format!("to {}", called(network, spare)),
        Method::Slide(slide) => {
            let way = if slide.forward { "forward" } else { "backward" };
            format!("slide in {}-D {way} along axis {}", slide.dimensions(), slide.axis + 1)
        }
    }
}

fn as_json(network: &Network, candidate: &Candidate) -> Value {
    let name = |node: Node| network.names.get(node);
    let moves =
        candidate.moves.iter().map(|each| json!({ "from": name(each.from), "to": name(each.to) }));
    let spare = match candidate.method {
        Method::Direct(spare) => Some(name(spare)),
        Method::Slide(_) => None,
    };
    json!({
        "dimensions": candidate.method.dimensions(),
        "spare": spare,
        "how": method(network, candidate),
        "moves": moves.collect::<Vec<_>>(),
        "sharing": candidate.sharing,
        "slowdown": candidate.slowdown,
        "simulated": candidate.is_simulated,
        "move_seconds": candidate.move_s,
        "slow_seconds": candidate.slow_s,
        "total_seconds": candidate.total_s(),
    })
}

fn choose(args: &Place, given: &Given, lost: Node, costs: &Costs) -> Result<i32, Failure> {
    let network = &given.network;
    let start = Instant::now();
    let all = candidates(network, &given.pattern, &given.situation, lost, costs)?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    let shown = all.iter().take(args.show.max(1));
    if args.program.json {
        print_json(&json!({
            "lost": network.names.get(lost),
            "tried": all.len(),
            "milliseconds": took,
            "choices": shown.map(|one| as_json(network, one)).collect::<Vec<_>>(),
            "places": [],
        }))?;
        return Ok(0);
    }
    let mut text = format!(
        "{} is lost: {} choices among {} nodes, looked at in {}\n",
        called(network, lost),
        all.len(),
        network.nodes(),
        units::millis(took)
    );
    text += "  COST         MOVE         SLOWER       SHARING  SLOW-DOWN  MOVED  HOW\n";
    for one in shown {
        let seconds = |s: f64| units::millis(s * 1e3);
        text += &format!(
            "  {:<11}  {:<11}  {:<11}  {:>7}  {:>9.2}  {:>5}  {}\n",
            seconds(one.total_s()),
            seconds(one.move_s),
            seconds(one.slow_s),
            one.sharing,
            one.slowdown,
            one.moves.len(),
            method(network, one),
        );
    }
    print(&text);
    Ok(0)
}

/// How good a place for spares is, by the cheapest choices for lost nodes.
struct Compared {
    policy: Policy,
    spares: usize,
    mean: f64,
    worst: f64,
    cost_s: f64,
}

/// None if the network has no such places, or too few nodes for them.
fn compared(args: &Place, given: &Given, costs: &Costs, policy: Policy) -> Option<Compared> {
    let (network, pattern) = (&given.network, &given.pattern);
    let spares = spares::choose(network, policy, args.count).ok()?;
    let situation = Situation::new(network, pattern.ranks, &spares).ok()?;
    let judge = if pattern.messages.len() <= MOST_FLOWS { candidates } else { estimated };
    let count = situation.node_of.len().min(SAMPLES);
    let step = situation.node_of.len() / count.max(1);
    let mut found = Compared { policy, spares: spares.len(), mean: 0.0, worst: 0.0, cost_s: 0.0 };
    for lost in situation.node_of.iter().step_by(step.max(1)).take(count) {
        let all = judge(network, pattern, &situation, *lost, costs).ok()?;
        let best = all.first()?;
        found.mean += best.slowdown / count as f64;
        found.cost_s += best.total_s() / count as f64;
        found.worst = found.worst.max(best.slowdown);
    }
    Some(found)
}

fn compare(args: &Place, given: &Given, costs: &Costs) -> Result<i32, Failure> {
    let start = Instant::now();
    let found = Policy::ALL.into_iter().filter_map(|policy| compared(args, given, costs, policy));
    let mut found: Vec<Compared> = found.collect();
    let took = start.elapsed().as_secs_f64() * 1e3;
    found.sort_by(|a, b| a.cost_s.total_cmp(&b.cost_s).then(a.spares.cmp(&b.spares)));
    if found.is_empty() {
        let (ranks, nodes) = (given.pattern.ranks, given.network.nodes());
        let error = anyhow::anyhow!("no room for spares: {ranks} ranks on {nodes} nodes");
        return Err(error.into());
    }
    if args.program.json {
        let places = found.iter().map(|one| {
            json!({
                "policy": one.policy.name(),
                "spares": one.spares,
                "mean_slowdown": one.mean,
                "worst_slowdown": one.worst,
                "mean_seconds": one.cost_s,
            })
        });
        print_json(&json!({
            "lost": null,
            "tried": found.len(),
            "milliseconds": took,
            "choices": [],
            "places": places.collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let mut text = String::from("  PLACE       SPARES  MEAN SLOW-DOWN  WORST  MEAN COST\n");
    for one in &found {
        text += &format!(
            "  {:<10}  {:>6}  {:>14.2}  {:>5.2}  {}\n",
            one.policy.name(),
            one.spares,
            one.mean,
            one.worst,
            units::millis(one.cost_s * 1e3),
        );
    }
    print(&text);
    Ok(0)
}
