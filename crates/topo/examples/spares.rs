//! The figures of the spare-node paper by the model and by flows, beside what it measured on the K
//! computer. `benches/spares` runs it.

#![allow(clippy::expect_used)] // it ends the measurement

use eyrie_topo::control::controlled;
use eyrie_topo::reader::read_topology;
use eyrie_topo::shape::Tofu;
use eyrie_topo::sharing::Sharing;
use eyrie_topo::situation::Move;
use eyrie_topo::{Network, Node, Pattern, Situation, flow, model};
use std::collections::{BTreeMap, HashMap};

/// What figure 7 measured: a stencil in two dimensions against its messages in one direction.
const STENCIL_2D: f64 = 1.7;
/// The same for three dimensions, from the text beside figure 10.
const STENCIL_3D: f64 = 3.7;

/// A job on the K computer: ranks in a grid, its last row or face spare.
struct Job {
    network: Network,
    pattern: Pattern,
    situation: Situation,
    tofu: Tofu,
}

/// How a lost node's messages are sent afterwards.
#[derive(Clone, Copy, PartialEq)]
enum Ways {
    Usual,
    /// Table 1 of the paper.
    Table,
    /// What `control` picks.
    Picked,
}

/// The worst over all pairs of lost node and spare, and over those with each number of sharers.
#[derive(Default)]
struct Found {
    pairs: u32,
    sharing: u32,
    time: f64,
    by_sharing: BTreeMap<u32, (u32, f64)>,
}

impl Job {
    fn new(sizes: &[u32], fold: &str, memory_links: f64, pattern: Pattern) -> Job {
        let text: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let text = format!("tofu {}\nfold {fold}\nengines 4\nbandwidth 5G\n", text.join("x"));
        let mut network = read_topology(&text).expect("a network");
        network.hardware.memory_links = memory_links;
        let spares = network.in_order().split_off(pattern.ranks as usize);
        let situation = Situation::new(&network, pattern.ranks, &spares).expect("a situation");
        let tofu = Tofu::new(sizes, [false; 3]).expect("sizes of a Tofu");
        Job { network, pattern, situation, tofu }
    }

    fn before(&self) -> f64 {
        flow::simulate(&self.network, &self.pattern, &self.situation).total
    }

    /// Ways of the messages from a rank and to it: first to another place of the spare's group, for
    /// each direction another one.
    fn table(&self, rank: u32, spare: Node) -> HashMap<(u32, u32), u32> {
        let [a, b, c] = self.tofu.group_place(spare);
        let via = [[a, b, c], [(a + 1) % 2, b, c], [a, (b + 1) % 3, c], [a, b, (c + 1) % 2]];
        let own = self.pattern.messages.iter().filter(|message| message.from == rank);
        let both = own.flat_map(|message| {
            let choice = self.tofu.choice(via[message.lane as usize]);
            [((rank, message.to), choice), ((message.to, rank), choice)]
        });
        both.collect()
    }

    fn all_pairs(&self, ways: Ways) -> Found {
        let mut found = Found::default();
        for (rank, lost) in (0u32..).zip(&self.situation.node_of) {
            for spare in &self.situation.spares {
                let mut after = self.situation.after(&[Move { from: *lost, to: *spare }], *lost);
                match ways {
                    Ways::Usual => {}
                    Ways::Table => after.ways = self.table(rank, *spare),
                    Ways::Picked => {
                        after = controlled(&self.network, &self.pattern, &after, &[rank])
                    }
                }
                let sharing = Sharing::of(&self.network, &self.pattern, &after).most();
                let time = flow::simulate(&self.network, &self.pattern, &after).total;
                found.pairs += 1;
                found.sharing = found.sharing.max(sharing);
                found.time = found.time.max(time);
                let of = found.by_sharing.entry(sharing).or_insert((0, 0.0));
                *of = (of.0 + 1, of.1.max(time));
            }
        }
        found
    }
}

fn row(figure: &str, what: &str, measured: Option<f64>, model: Option<f64>, flows: Option<f64>) {
    let number =
        |value: Option<f64>| value.map_or_else(|| String::from("-"), |v| format!("{v:.2}"));
    let off = |value: Option<f64>| match value.zip(measured) {
        Some((value, measured)) => format!("{:+.0} %", (value / measured - 1.0) * 100.0),
        None => String::from("-"),
    };
    println!(
        "{figure:<7}  {what:<52}  {:>8}  {:>6}  {:>7}  {:>6}  {:>7}",
        number(measured),
        number(model),
        off(model),
        number(flows),
        off(flows)
    );
}

fn two_dimensions(fold: &str) {
    let sizes = [1, 1, 6, 2, 3, 2];
    let memory = 4.0 / STENCIL_2D;
    let one_way = Job::new(&sizes, fold, memory, Pattern::one_way(&[6, 11], 1.0));
    let stencil = Job::new(&sizes, fold, memory, Pattern::stencil(&[6, 11], false, 1.0));
    let (single, before) = (one_way.before(), stencil.before());
    let (one, all) = (one_way.all_pairs(Ways::Usual), stencil.all_pairs(Ways::Usual));
    println!("6x12 as 1x1x6x2x3x2, spares at y=11: {} pairs of lost node and spare", all.pairs);
    let sharers = |found: &Found| format!("at most {} on a link", found.sharing);
    let by_model = |found: &Found| Some(model::slowdown(STENCIL_2D, found.sharing));
    row(
        "4",
        &format!("one direction, {}", sharers(&one)),
        Some(2.0),
        Some(f64::from(one.sharing)),
        Some(one.time / single),
    );
    row(
        "5",
        &format!("stencil, {}", sharers(&all)),
        Some(2.9),
        by_model(&all),
        Some(all.time / before),
    );
    let time = model::time_after(1.0, all.sharing);
    row(
        "6",
        "stencil, against one direction before",
        Some(5.0),
        Some(time),
        Some(all.time / single),
    );
    row(
        "7",
        "before, against one direction (sets the memory)",
        Some(1.7),
        None,
        Some(before / single),
    );
    for (sharing, (pairs, time)) in &all.by_sharing {
        // The paper's text has no numbers for these.
        let what = format!("stencil, pairs with {sharing} on a link ({pairs})");
        let by_model = model::slowdown(STENCIL_2D, *sharing);
        row("8", &what, None, Some(by_model), Some(time / before));
    }
    println!("8        measured was about the model's with 2, 4 and 5 on a link, and not with 3");
    for (ways, name) in [(Ways::Table, "table 1"), (Ways::Picked, "picked")] {
        let found = stencil.all_pairs(ways);
        let what = format!("route control ({name}), {}", sharers(&found));
        row("9", &what, Some(1.75), by_model(&found), Some(found.time / before));
    }
}

fn three_dimensions(fold: &str, memory: f64, name: &str) {
    let sizes = [3, 2, 3, 2, 3, 2];
    let job = Job::new(&sizes, fold, memory, Pattern::stencil(&[6, 6, 5], false, 1.0));
    let (before, all) = (job.before(), job.all_pairs(Ways::Usual));
    println!("6x6x6 as 3x2x3x2x3x2, spares at z=5: {} pairs; {name}", all.pairs);
    row("10 text", "before, against one direction", Some(STENCIL_3D), None, Some(before));
    let what = format!("stencil, at most {} on a link", all.sharing);
    let model = model::slowdown(STENCIL_3D, all.sharing);
    row("10", &what, Some(2.1), Some(model), Some(all.time / before));
    for (sharing, (pairs, time)) in &all.by_sharing {
        let what = format!("  pairs with {sharing} on a link ({pairs})");
        row("", &what, None, Some(model::slowdown(STENCIL_3D, *sharing)), Some(time / before));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let fold = |at: usize, usual: &str| words.get(at).cloned().unwrap_or_else(|| usual.into());
    println!(
        "{:<7}  {:<52}  {:>8}  {:>6}  {:>7}  {:>6}  {:>7}",
        "figure", "what", "measured", "model", "off", "flows", "off"
    );
    two_dimensions(&fold(1, "b*a z*c"));
    let three = fold(2, "x*a y*b z*c");
    three_dimensions(&three, 4.0 / STENCIL_2D, "memory as figure 7 sets it");
    three_dimensions(&three, 6.0 / STENCIL_3D, "memory as the 3.7 of this figure sets it");
}
