//! How many messages of a pattern take each link.

use crate::network::Network;
use crate::pattern::Pattern;
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

    /// The longest that a link is busy, in bytes at the usual speed.
    pub fn busiest(&self, network: &Network) -> f64 {
        let busy = (0u32..).zip(&self.bytes).filter(|(_, bytes)| **bytes > 0.0);
        busy.map(|(link, bytes)| bytes / network.shape.capacity(link)).fold(0.0, f64::max)
    }
}
