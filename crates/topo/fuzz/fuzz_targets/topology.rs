//! Feeds arbitrary text to the reader of networks, and to that of messages.
//!
//! Kept true: it does not panic. A network that is read has routes that are paths of its links from
//! their one end to the other, and a name for each node.
#![no_main]

use eyrie_topo::{Network, Pattern, reader};
use libfuzzer_sys::fuzz_target;

/// Routes of larger networks take too long to be looked at all.
const MOST_NODES: u32 = 64;

fn check(network: &Network) {
    let nodes = network.nodes();
    let some = |count: u32| (0..count.min(MOST_NODES)).chain(count.checked_sub(1));
    let mut links = Vec::new();
    for from in some(nodes) {
        for to in some(nodes) {
            for choice in [0, network.shape.choices() - 1] {
                links.clear();
                network.shape.route(from, to, choice, &mut links);
                let mut at = from;
                for link in &links {
                    let (start, end) = network.shape.ends(*link).expect("a link of the network");
                    assert_eq!(start, at);
                    assert!(network.shape.capacity(*link) > 0.0);
                    at = end;
                }
                assert_eq!(at, to);
            }
        }
        let name = network.names.get(from);
        assert_eq!(network.find(&name), Some(from));
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(network) = reader::read_topology(text) {
        check(&network);
    }
    if let Ok(pattern) = Pattern::read(text) {
        assert!(pattern.messages.iter().all(|m| m.from.max(m.to) < pattern.ranks && m.bytes > 0.0));
    }
    for line in text.lines().take(4) {
        let _ = Pattern::parse(line, 1.0);
    }
});
