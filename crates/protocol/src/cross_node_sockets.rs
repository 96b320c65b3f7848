//! Connections between nodes, at a checkpoint: which end belongs to which.
//!
//! Pure, run by the controller, as no node sees both ends. Kept true: two ends are a connection
//! only if each has the other's addresses, and none else could be meant; loopback addresses mean
//! something within one network only.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// An end of a connection that leads out of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketEnd {
    /// Number of the socket on its machine.
    pub socket: u64,
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// What tells the network that it is in from others.
    pub network: Vec<u8>,
    /// Not all that it has sent has arrived.
    pub behind: bool,
}

/// An end whose other end was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedEnd {
    pub socket: u64,
    /// Number of the connection.
    pub link: u64,
    /// Not all that the other end has sent has arrived.
    pub behind: bool,
}

impl SocketEnd {
    /// Whether this one may be the other end.
    fn fits(&self, other: &SocketEnd) -> bool {
        let near = self.own.ip().is_loopback() || self.peer.ip().is_loopback();
        (self.own, self.peer) == (other.peer, other.own) && (!near || self.network == other.network)
    }
}

/// Pairs the ends of all nodes. An end without a matched_end has no partner, or more than one.
pub fn pair(ends: &BTreeMap<u32, Vec<SocketEnd>>) -> BTreeMap<u32, Vec<MatchedEnd>> {
    let mut by_own: BTreeMap<SocketAddr, Vec<(u32, &SocketEnd)>> = BTreeMap::new();
    for (node, end) in ends.iter().flat_map(|(node, ends)| ends.iter().map(|e| (*node, e))) {
        by_own.entry(end.own).or_default().push((node, end));
    }
    // In one network first: addresses may be used again in others.
    let partner = |node: u32, end: &SocketEnd| {
        let at = by_own.get(&end.peer).map_or(&[][..], Vec::as_slice);
        let fits =
            |o: &&(u32, &SocketEnd)| end.fits(o.1) && (o.0, o.1.socket) != (node, end.socket);
        let all: Vec<&(u32, &SocketEnd)> = at.iter().filter(fits).collect();
        let near: Vec<&(u32, &SocketEnd)> =
            all.iter().copied().filter(|o| o.1.network == end.network).collect();
        match (&near[..], &all[..]) {
            ([one], _) | ([], [one]) => Some((one.0, one.1.socket)),
            _ => None,
        }
    };
    let mut found = BTreeMap::new();
    for (node, end) in ends.iter().flat_map(|(node, ends)| ends.iter().map(|e| (*node, e))) {
        found.extend(partner(node, end).map(|other| ((node, end.socket), other)));
    }
    let mutual = |(own, other): (&(u32, u64), &(u32, u64))| {
        (own < other && found.get(other) == Some(own)).then_some((*own, *other))
    };
    let behind = |at: (u32, u64)| {
        let of = ends.get(&at.0).into_iter().flatten();
        of.filter(|e| e.socket == at.1).any(|e| e.behind)
    };
    let mut matched_ends: BTreeMap<u32, Vec<MatchedEnd>> = BTreeMap::new();
    for (link, (a, b)) in (1..).zip(found.iter().filter_map(mutual)) {
        for (own, other) in [(a, b), (b, a)] {
            let matched_end = MatchedEnd { socket: own.1, link, behind: behind(other) };
            matched_ends.entry(own.0).or_default().push(matched_end);
        }
    }
    matched_ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(socket: u64, own: &str, peer: &str, network: u8) -> SocketEnd {
        let (own, peer) = (own.parse().unwrap(), peer.parse().unwrap());
        SocketEnd { socket, own, peer, network: vec![network], behind: socket == 1 }
    }

    #[test]
    fn ends_are_paired_by_both_addresses() {
        let ends = BTreeMap::from([
            (0, vec![end(1, "10.0.0.1:5", "10.0.0.2:7", 1), end(2, "10.0.0.1:5", "10.0.0.2:8", 1)]),
            (1, vec![end(1, "10.0.0.2:8", "10.0.0.1:5", 2), end(3, "10.0.0.2:9", "10.0.0.9:9", 2)]),
        ]);
        let matched_ends = pair(&ends);
        assert_eq!(matched_ends[&0], [MatchedEnd { socket: 2, link: 1, behind: true }]);
        assert_eq!(matched_ends[&1], [MatchedEnd { socket: 1, link: 1, behind: false }]);
    }

    #[test]
    fn loopback_means_one_network() {
        let far = |other| {
            pair(&BTreeMap::from([
                (0, vec![end(1, "127.0.0.1:5", "127.0.0.1:7", 1)]),
                (1, vec![end(2, "127.0.0.1:7", "127.0.0.1:5", other)]),
            ]))
        };
        assert!(far(2).is_empty());
        assert_eq!(far(1).len(), 2);
    }

    #[test]
    fn who_is_meant_must_be_certain() {
        let mut ends = BTreeMap::from([
            (0, vec![end(1, "10.0.0.1:5", "10.0.0.2:7", 1)]),
            (1, vec![end(2, "10.0.0.2:7", "10.0.0.1:5", 2)]),
            (2, vec![end(3, "10.0.0.2:7", "10.0.0.1:5", 3)]),
        ]);
        assert!(pair(&ends).is_empty());
        // In its own network there is one.
        ends.insert(2, vec![end(3, "10.0.0.2:7", "10.0.0.1:5", 1)]);
        assert_eq!(pair(&ends).keys().copied().collect::<Vec<_>>(), [0, 2]);
    }
}
