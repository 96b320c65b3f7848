//! Clusters between which nothing is to go for a while (`eyrie clusters block`): each of the two
//! gateways asks the other one to send what it has taken, to take nothing new, and to say so.
//!
//! Kept true: it holds until it is taken back, also for gateways that are started meanwhile, from
//! their beginning on, and with the next controller; what a gateway says counts for what it was
//! told last only. Nothing is lost by it: nodes keep what they cannot send.

use crate::Job;
use crate::gateways::model::{Gateways, Place};
use eyrie_control::gateway::{Blocked, HOME, Silence, ToGateway};

impl Gateways {
    /// A gateway says with whom there is silence.
    pub fn gateway_silent(&mut self, cluster: u32, silence: Silence) {
        if silence.number == self.blocks.of(cluster).number {
            self.places[cluster as usize].silent = silence.clusters;
        }
    }
}

impl Job {
    /// Has nothing go between two clusters, or all again; both are named.
    pub fn block_clusters(&mut self, names: &[String; 2], block: bool) -> Result<(), String> {
        if self.gateways.places.is_empty() {
            return Err("the job has one cluster and no gateway: start it with --clusters".into());
        }
        let [one, other] =
            [self.select_cluster_by_name(&names[0])?, self.select_cluster_by_name(&names[1])?];
        let [a, b] = [one, other].map(|cluster| self.cluster_name(cluster));
        if one == other {
            return Err(format!("{a} is named twice: nothing within it goes through gateways"));
        }
        let home = one.min(other) == HOME;
        if block && self.spec.placement.clusters.wan_only && home {
            return Err(format!(
                "what nodes and the controller say to each other goes between {a} and {b}, too \
                 (--wan-only): it cannot be blocked"
            ));
        }
        if !self.gateways.blocks.set(one, other, block) {
            let not = format!("{a} and {b} are not blocked");
            return if block { Ok(()) } else { Err(not) };
        }
        self.journal.say(match block {
            true => format!("nothing goes between {a} and {b} until eyrie clusters unblock"),
            false => format!("{a} and {b} reach each other again"),
        });
        self.gateways.places.iter_mut().for_each(|place| place.silent.clear());
        for cluster in 0..self.gateways.places.len() as u32 {
            self.tell_gateway(cluster, ToGateway::Silence(self.gateways.blocks.of(cluster)));
        }
        Ok(())
    }

    fn select_cluster_by_name(&self, name: &str) -> Result<u32, String> {
        let names = &self.spec.placement.clusters.names;
        let at = names.iter().position(|known| known == name);
        at.map(|at| at as u32)
            .ok_or_else(|| format!("there is no cluster '{name}': they are {}", names.join(", ")))
    }

    /// With whom a cluster is blocked, for `eyrie status`.
    pub(crate) fn blocked_status(&self, cluster: u32, place: &Place) -> Vec<Blocked> {
        let blocked = |other: u32| Blocked {
            cluster: self.spec.placement.clusters.names[other as usize].clone(),
            // Through a gateway that is not there nothing goes.
            silent: place.is_gone() || place.silent.contains(&other),
        };
        self.gateways.blocks.of(cluster).clusters.into_iter().map(blocked).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::gateways::model::Blocks;

    #[test]
    fn both_gateways_of_a_pair_are_told_and_changes_have_numbers() {
        let mut blocks = Blocks::default();
        assert!(blocks.set(2, 0, true) && blocks.set(1, 2, true) && !blocks.set(0, 2, true));
        let told = |cluster, blocks: &Blocks| blocks.of(cluster).clusters.into_iter().collect();
        let all: [Vec<u32>; 3] = [0, 1, 2].map(|cluster| told(cluster, &blocks));
        assert_eq!(all, [vec![2], vec![2], vec![0, 1]]);
        assert_eq!(blocks.of(0).number, 2);
        assert!(blocks.set(0, 2, false) && !blocks.set(0, 1, false));
        assert_eq!((told(2, &blocks), blocks.of(1).number), (vec![1], 3));
    }
}
