//! How many messages of a pattern take each link.

use crate::network::Network;
use crate::pattern::{Message, Pattern};
use crate::shape::Link;
use crate::situation::Situation;

#[derive(Debug, Clone, PartialEq)]
pub struct Sharing {
    /// Of each link.
    pub messages: Vec<u32>,
    /// Of each link.
    pub bytes: Vec<f64>,
}

impl Sharing {
    pub fn of(network: &Network, pattern: &Pattern, situation: &Situation) -> Sharing {
        let count = network.shape.links() as usize;
        let mut sharing = Sharing { messages: vec![0; count], bytes: vec![0.0; count] };
        let mut links = Vec::new();
        for message in &pattern.messages {
            links.clear();
            situation.route(network, message, &mut links);
            for link in &links {
                sharing.messages[*link as usize] += 1;
                sharing.bytes[*link as usize] += message.bytes;
            }
        }
        sharing
    }

    /// Most messages on one link: the paper's C(max).
    pub fn most(&self) -> u32 {
        self.messages.iter().copied().max().unwrap_or(0)
    }

    /// How many links have so many messages; the first is of links without any.
    pub fn histogram(&self, network: &Network) -> Vec<u32> {
        let mut counts = vec![0; self.most() as usize + 1];
        for (link, messages) in (0u32..).zip(&self.messages) {
            if network.shape.ends(link).is_some() {
                counts[*messages as usize] += 1;
            }
        }
        counts
    }

    /// The links with most messages, most first; at least `least` on each.
    pub fn worst(&self, count: usize, least: u32) -> Vec<(Link, u32)> {
        let all = (0u32..).zip(self.messages.iter().copied());
        let mut worst: Vec<_> = all.filter(|(_, messages)| *messages >= least.max(1)).collect();
        worst.sort_unstable_by_key(|(link, messages)| (u32::MAX - messages, *link));
        worst.truncate(count);
        worst
    }

    /// The messages of a pattern that take a link, in its order: senders and receivers.
    pub fn sharers(
        network: &Network,
        pattern: &Pattern,
        situation: &Situation,
        link: Link,
    ) -> Vec<(u32, u32)> {
        let mut links = Vec::new();
        let mut takes = |message: &&Message| {
            links.clear();
            situation.route(network, message, &mut links);
            links.contains(&link)
        };
        pattern.messages.iter().filter(&mut takes).map(|m| (m.from, m.to)).collect()
    }

    /// The longest that a link is busy, in bytes at the usual speed.
    pub fn busiest(&self, network: &Network) -> f64 {
        let busy = (0u32..).zip(&self.bytes).filter(|(_, bytes)| **bytes > 0.0);
        busy.map(|(link, bytes)| bytes / network.shape.capacity(link)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read_topology;
    use crate::situation::Move;

    #[test]
    fn who_shares_a_link_is_as_many_as_were_counted() {
        let network = read_topology("mesh 6x1\n").unwrap();
        let pattern = Pattern::stencil(&[4], false, 1.0);
        let situation = Situation::new(&network, 4, &[4, 5]).unwrap();
        let after = situation.after(&[Move { from: 1, to: 5 }], 1);
        let sharing = Sharing::of(&network, &pattern, &after);
        let (link, most) = sharing.worst(1, 1)[0];
        let found = Sharing::sharers(&network, &pattern, &after, link);
        assert_eq!(found.len(), most as usize);
        assert_eq!(found, [(0, 1), (2, 3), (2, 1)]);
        for link in 0..network.shape.links() {
            let count = Sharing::sharers(&network, &pattern, &after, link).len();
            assert_eq!(count, sharing.messages[link as usize] as usize);
        }
    }
}
