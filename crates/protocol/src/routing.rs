//! Routers: nodes without ranks by which messages between nodes go, and which keep them.
//!
//! Pure. A message goes from its sender's node to the router of its receiver, which logs it, and
//! from there to the receiver's node; ranks of one node hand messages to each other. Who is the
//! router of a rank follows from who is a member, so all nodes that have heard of the same members
//! agree; where they do not yet, one end of a stream waits for the other.
//!
//! Kept true: a stream comes from one node and goes to one node, as each node sees it; a router
//! never sends to itself. A rank has a router as long as any is left; without one messages go
//! straight to its home.

use crate::link::wire::Stream;
use crate::membership::Member;

/// Home or router of a rank that has none.
pub const NOWHERE: u32 = u32::MAX;

/// Which nodes are routers, and for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routing {
    nodes: Vec<u32>,
    /// Ranks of one router, as long as all of them live.
    share: u32,
    /// Of several clusters: that of each of these nodes, and the one that each rank begins in.
    clusters: Vec<u32>,
    ranks: Vec<u32>,
}

impl Routing {
    /// `nodes` are routers of `share` ranks each, at most.
    pub fn new(nodes: Vec<u32>, share: u32) -> Routing {
        Routing { nodes, share: share.max(1), ..Routing::default() }
    }

    /// The same where nodes are in several clusters, and ranks begin in these: a rank has a router
    /// of its cluster as long as any lives there.
    pub fn divided(mut self, cluster: impl Fn(u32) -> u32, ranks: Vec<u32>) -> Routing {
        self.clusters = self.nodes.iter().map(|node| cluster(*node)).collect();
        self.ranks = ranks;
        self
    }

    /// Routers that so many ranks need.
    pub fn count(ranks: u32, share: u32) -> u32 {
        ranks.div_ceil(share.max(1))
    }

    pub fn is_router(&self, node: u32) -> bool {
        self.nodes.contains(&node)
    }

    /// The router of a rank: its own, or the next that lives.
    pub fn router(&self, rank: u32, lives: impl Fn(u32) -> bool) -> Option<u32> {
        let own = self.ranks.get(rank as usize).and_then(|cluster| {
            let before = self.ranks[..rank as usize].iter().filter(|c| *c == cluster).count();
            let there = self.nodes.iter().zip(&self.clusters).filter(|(_, c)| *c == cluster);
            let there: Vec<u32> = there.map(|(node, _)| *node).collect();
            next_live(&there, before / self.share.max(1) as usize, &lives)
        });
        own.or_else(|| next_live(&self.nodes, (rank / self.share.max(1)) as usize, &lives))
    }

    /// The routers of so many ranks; `NOWHERE`: there is none.
    pub fn all(&self, ranks: u32, members: &[Member]) -> Vec<u32> {
        let lives = |node: u32| members.iter().any(|m| m.node == node);
        (0..ranks).map(|rank| self.router(rank, lives).unwrap_or(NOWHERE)).collect()
    }
}

/// The first that lives of these in the order of their ring, from this place on.
fn next_live(nodes: &[u32], first: usize, lives: impl Fn(u32) -> bool) -> Option<u32> {
    let count = nodes.len();
    let mut ring = (0..count).map(|step| nodes[(first + step) % count]);
    ring.find(|node| lives(*node))
}

/// Where streams come from and go to, as one node sees it.
#[derive(Debug, Clone)]
pub struct Paths {
    own: u32,
    homes: Vec<u32>,
    routers: Vec<u32>,
}

impl Paths {
    /// No rank has a home or a router yet.
    pub fn new(own: u32, ranks: u32) -> Paths {
        let none = vec![NOWHERE; ranks as usize];
        Paths { own, homes: none.clone(), routers: none }
    }

    pub fn ranks(&self) -> u32 {
        self.homes.len() as u32
    }

    pub fn home(&self, rank: u32) -> u32 {
        self.homes[rank as usize]
    }

    /// Returns where it was.
    pub fn set_home(&mut self, rank: u32, node: u32) -> u32 {
        std::mem::replace(&mut self.homes[rank as usize], node)
    }

    /// Exchanges the routers. Returns the ranks that have another one now, and which they had.
    pub fn set_routers(&mut self, routers: &[u32]) -> Vec<(u32, u32)> {
        let all = (0u32..).zip(self.routers.iter_mut().zip(routers));
        all.filter(|(_, (was, now))| was != now)
            .map(|(rank, (was, now))| (rank, std::mem::replace(was, *now)))
            .collect()
    }

    pub fn is_here(&self, rank: u32) -> bool {
        self.homes[rank as usize] == self.own
    }

    pub fn router(&self, rank: u32) -> u32 {
        self.routers[rank as usize]
    }

    /// Whether this node is the router of a rank.
    pub fn routes(&self, rank: u32) -> bool {
        self.routers[rank as usize] == self.own
    }

    /// The node that a stream is sent to from here, if it is.
    pub fn next(&self, (src, dst): Stream) -> Option<u32> {
        let (home, router) = (self.homes[dst as usize], self.routers[dst as usize]);
        let next = if router == self.own {
            home
        } else if !self.is_here(src) || home == self.own {
            return None;
        } else if router == NOWHERE {
            home
        } else {
            router
        };
        (next != NOWHERE && next != self.own).then_some(next)
    }

    /// The node that a stream comes from, for a receiver here or routed here.
    pub fn origin(&self, (src, dst): Stream) -> u32 {
        match self.routers[dst as usize] {
            NOWHERE => self.homes[src as usize],
            router if router == self.own => self.homes[src as usize],
            router => router,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: &[u32]) -> Vec<Member> {
        nodes.iter().map(|&node| Member { node, epoch: 1 }).collect()
    }

    #[test]
    fn each_router_has_its_share_and_that_of_the_dead_before_it() {
        let routing = Routing::new(vec![3, 4, 5], 2);
        assert_eq!(routing.all(6, &members(&[0, 3, 4, 5])), [3, 3, 4, 4, 5, 5]);
        assert_eq!(routing.all(6, &members(&[0, 3, 5])), [3, 3, 5, 5, 5, 5]);
        assert_eq!(routing.all(6, &members(&[0, 3])), [3; 6]);
        assert_eq!(routing.all(2, &members(&[0, 1])), [NOWHERE; 2]);
        assert_eq!(Routing::default().all(2, &members(&[0])), [NOWHERE; 2]);
        assert_eq!((Routing::count(5, 2), Routing::count(4, 4), Routing::count(1, 9)), (3, 1, 1));
    }

    #[test]
    fn a_rank_has_a_router_of_its_cluster_while_one_lives_there() {
        // Routers 4 to 7 are in clusters 0 and 1 in turn.
        let routing = Routing::new(vec![4, 5, 6, 7], 1).divided(|n| n % 2, vec![0, 0, 1, 1]);
        assert_eq!(routing.all(4, &members(&[4, 5, 6, 7])), [4, 6, 5, 7]);
        assert_eq!(routing.all(4, &members(&[4, 6, 7])), [4, 6, 7, 7]);
        assert_eq!(routing.all(4, &members(&[4, 6])), [4, 6, 6, 4]);
        assert_eq!(routing.all(4, &members(&[0])), [NOWHERE; 4]);
    }

    /// Each stream leads over its router to its receiver, whichever ranks are where.
    #[test]
    fn streams_lead_to_their_receivers() {
        let homes = [0, 0, 1];
        for routers in [[2, 2, 3], [2, 2, 2], [NOWHERE; 3]] {
            let paths: Vec<Paths> = (0..4)
                .map(|own| {
                    let mut paths = Paths::new(own, 3);
                    for (rank, node) in (0u32..).zip(homes) {
                        paths.set_home(rank, node);
                    }
                    assert_eq!(paths.set_routers(&routers).is_empty(), routers == [NOWHERE; 3]);
                    paths
                })
                .collect();
            for stream in [(0, 2), (2, 0), (2, 1), (1, 2)] {
                let (src, dst) = (homes[stream.0 as usize], homes[stream.1 as usize]);
                let mut way = vec![src];
                while let Some(next) = paths[way[way.len() - 1] as usize].next(stream) {
                    assert_eq!(paths[next as usize].origin(stream), way[way.len() - 1]);
                    way.push(next);
                }
                let straight = routers[stream.1 as usize] == NOWHERE;
                let router = routers[stream.1 as usize];
                assert_eq!(way, if straight { vec![src, dst] } else { vec![src, router, dst] });
            }
            assert!(paths.iter().all(|p| p.next((0, 1)).is_none_or(|n| p.own == 2 && n == 0)));
        }
    }

    #[test]
    fn a_change_of_routers_is_told() {
        let mut paths = Paths::new(2, 3);
        assert_eq!(paths.set_routers(&[2, 2, 3]), [(0, NOWHERE), (1, NOWHERE), (2, NOWHERE)]);
        assert_eq!(paths.set_routers(&[2, 3, 3]), [(1, 2)]);
        assert!(paths.routes(0) && !paths.routes(1) && !paths.is_here(0));
    }
}
