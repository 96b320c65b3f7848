//! Dragonflies: groups of routers, all routers of a group linked with each other, and each pair of
//! groups linked once.
//!
//! Group g's global links count from 0 over its routers; link j leads to group j, or j + 1 from g
//! on. A message takes the shortest way: to the router that has the link, over it, to the router of
//! the target. The other choices go through a third group (Valiant's way round).

use super::{Link, Node, Shape, SizeError, Vertex, links_of, nodes_of};

#[derive(Debug, Clone)]
pub struct Dragonfly {
    groups: u32,
    routers: u32,
    per_router: u32,
    global: u32,
    nodes: u32,
    links: u32,
}

impl Dragonfly {
    /// `routers` of a group, `per_router` nodes at each, `global` links to other groups of each.
    pub fn new(
        groups: u32,
        routers: u32,
        per_router: u32,
        global: u32,
    ) -> Result<Dragonfly, SizeError> {
        let nodes = nodes_of(&[groups, routers, per_router])?;
        let most = u64::from(routers) * u64::from(global) + 1;
        if u64::from(groups) > most {
            return Err(SizeError::Groups { groups, routers, global, most });
        }
        let all = u64::from(groups) * u64::from(routers);
        let local = all * u64::from(routers);
        let links = links_of(u64::from(nodes) * 2 + local + u64::from(groups) * u64::from(groups))?;
        Ok(Dragonfly { groups, routers, per_router, global, nodes, links })
    }

    fn router(&self, node: Node) -> u32 {
        node / self.per_router
    }

    /// The group of a vertex.
    pub fn group(&self, vertex: Vertex) -> u32 {
        let router = if vertex < self.nodes { self.router(vertex) } else { vertex - self.nodes };
        router / self.routers
    }

    /// The router of a group that has the link to another group.
    fn gate(&self, group: u32, to: u32) -> u32 {
        let port = if to < group { to } else { to - 1 };
        group * self.routers + port / self.global
    }

    fn local_link(&self, from: u32, to: u32) -> Link {
        self.nodes * 2 + from * self.routers + to % self.routers
    }

    fn global_link(&self, from: u32, to: u32) -> Link {
        self.nodes * 2 + self.groups * self.routers * self.routers + from * self.groups + to
    }

    /// From a router to a group: ends at the router where the link arrives.
    fn to_group(&self, at: &mut u32, group: u32, links: &mut Vec<Link>) {
        let here = *at / self.routers;
        if here == group {
            return;
        }
        let gate = self.gate(here, group);
        if *at != gate {
            links.push(self.local_link(*at, gate));
        }
        links.push(self.global_link(here, group));
        *at = self.gate(group, here);
    }
}

impl Shape for Dragonfly {
    fn kind(&self) -> &'static str {
        "dragonfly"
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn vertices(&self) -> u32 {
        self.nodes + self.groups * self.routers
    }

    fn links(&self) -> u32 {
        self.links
    }

    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)> {
        if link < self.nodes * 2 {
            let (node, router) = (link / 2, self.nodes + self.router(link / 2));
            return Some(if link % 2 == 1 { (node, router) } else { (router, node) });
        }
        let rest = link - self.nodes * 2;
        let local = self.groups * self.routers * self.routers;
        if rest < local {
            let (from, to) = (rest / self.routers, rest % self.routers);
            let to = from / self.routers * self.routers + to;
            return (from != to).then_some((self.nodes + from, self.nodes + to));
        }
        let (from, to) = ((rest - local) / self.groups, (rest - local) % self.groups);
        if from == to || from >= self.groups {
            return None;
        }
        Some((self.nodes + self.gate(from, to), self.nodes + self.gate(to, from)))
    }

    fn choices(&self) -> u32 {
        // The shortest, and through each group but the two that the ends are in.
        1 + self.groups.saturating_sub(2).min(63)
    }

    fn route(&self, from: Node, to: Node, choice: u32, links: &mut Vec<Link>) {
        if from == to {
            return;
        }
        let (mut at, end) = (self.router(from), self.router(to));
        let (source, target) = (at / self.routers, end / self.routers);
        links.push(from * 2 + 1);
        if choice > 0 && source != target {
            let others = (0..self.groups).filter(|group| *group != source && *group != target);
            if let Some(via) = others.cycle().nth(choice as usize - 1) {
                self.to_group(&mut at, via, links);
            }
        }
        self.to_group(&mut at, target, links);
        if at != end {
            links.push(self.local_link(at, end));
        }
        links.push(to * 2);
    }

    fn neighbourhood(&self, node: Node) -> u32 {
        self.router(node)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{hops, path, routes_are_paths};
    use super::*;

    /// 9 groups of 4 routers with 2 nodes and 2 global links each: 72 nodes, all 8 others linked.
    fn full() -> Dragonfly {
        Dragonfly::new(9, 4, 2, 2).unwrap()
    }

    #[test]
    fn messages_take_one_global_link() {
        let fly = full();
        assert_eq!((fly.nodes(), fly.vertices()), (72, 108));
        // Same router; same group; the gate's own node; a router beside the gates on both sides.
        assert_eq!([hops(&fly, 0, 1), hops(&fly, 0, 2), hops(&fly, 0, 8)], [2, 3, 3]);
        // Group 0's link to group 3 has port 2: router 1. Group 3's to group 0 has port 0: router
        // 12.
        assert_eq!(path(&fly, 0, 31, 0), [0, 72, 73, 84, 87, 31]);
        assert!((0..72).all(|to| hops(&fly, 0, to) <= 5));
    }

    #[test]
    fn a_way_round_takes_two() {
        let fly = full();
        let (short, round) = (path(&fly, 0, 31, 0), path(&fly, 0, 31, 1));
        let groups = |path: &[u32]| {
            let mut seen: Vec<_> = path.iter().map(|vertex| fly.group(*vertex)).collect();
            seen.dedup();
            seen
        };
        assert_eq!(groups(&short), [0, 3]);
        assert_eq!(groups(&round), [0, 1, 3]);
        assert_eq!(groups(&path(&fly, 0, 31, 7)), [0, 8, 3]);
    }

    #[test]
    fn routes_end_where_they_should() {
        routes_are_paths(&full());
        routes_are_paths(&Dragonfly::new(3, 2, 2, 2).unwrap());
        routes_are_paths(&Dragonfly::new(1, 4, 2, 0).unwrap());
        routes_are_paths(&Dragonfly::new(2, 1, 3, 1).unwrap());
    }

    #[test]
    fn groups_without_links_are_refused() {
        let error = Dragonfly::new(10, 4, 2, 2).err();
        assert_eq!(error, Some(SizeError::Groups { groups: 10, routers: 4, global: 2, most: 9 }));
        assert!(Dragonfly::new(0, 4, 2, 2).is_err());
        assert!(Dragonfly::new(u32::MAX, u32::MAX, u32::MAX, u32::MAX).is_err());
    }
}
