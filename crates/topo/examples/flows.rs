//! Says which links messages take and when each ends, for other simulators: `benches/spares
//! --simgrid`.
//!
//! usage: flows NETWORK PATTERN [LOST SPARE]     NETWORK is text, lines separated by ';'

#![allow(clippy::expect_used)] // it ends the measurement

use eyrie_topo::reader::read_topology;
use eyrie_topo::situation::Move;
use eyrie_topo::{Pattern, Situation, flow};
use std::collections::BTreeSet;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, network, pattern, rest @ ..] = words.as_slice() else { panic!("two words at least") };
    let network = read_topology(&network.replace(';', "\n")).expect("a network");
    let pattern = Pattern::parse(pattern, 1.0).expect("a pattern");
    let spares = network.in_order().split_off(pattern.ranks as usize);
    let mut situation = Situation::new(&network, pattern.ranks, &spares).expect("a situation");
    if let [lost, spare] = rest {
        let node = |text: &String| network.find(text).expect("a node");
        situation = situation.after(&[Move { from: node(lost), to: node(spare) }], node(lost));
    }
    let timing = flow::simulate(&network, &pattern, &situation);
    println!("nodes {}", network.nodes());
    let mut used = BTreeSet::new();
    let mut lines = Vec::new();
    for (message, end) in pattern.messages.iter().zip(&timing.ends) {
        let mut links = Vec::new();
        situation.route(&network, message, &mut links);
        used.extend(links.iter().copied());
        let of = |rank: u32| situation.node_of[rank as usize];
        let links: Vec<String> = links.iter().map(u32::to_string).collect();
        let (from, to) = (of(message.from), of(message.to));
        lines.push(format!("message {from} {to} {} {end} {}", message.bytes, links.join(" ")));
    }
    for link in used {
        println!("link {link} {}", network.shape.capacity(link));
    }
    println!("{}", lines.join("\n"));
}
