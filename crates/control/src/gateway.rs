//! What is said about clusters, and between a controller and its gateways.
//!
//! A gateway reads frames from its standard input, first the number of the protocol and `Begin`,
//! and ends when that does. What it says are lines of its standard output that begin with `MARK`,
//! so that what a remote shell says besides is told from it.

use eyrie_protocol::timing::Intervals;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Begins a line that a gateway says; JSON follows.
pub const MARK: &str = "@eyrie-gateway ";
/// Most clusters of a job.
pub const MAX_CLUSTERS: u32 = 64;
/// The cluster that the controller is in, where nodes of others reach it through gateways.
pub const HOME: u32 = 0;
/// Most connections between two gateways.
pub const MAX_CONNECTIONS: u32 = 16;

/// How the nodes of a job are divided, and how the parts reach each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clusters {
    /// Name of each; empty: there is but one, without a gateway.
    pub names: Vec<String>,
    /// The cluster of each node.
    pub of: Vec<u32>,
    /// What gateways say to each other is not encrypted.
    pub plain: bool,
    /// Connections between two gateways.
    pub connections: u32,
    /// Most bytes a second from one gateway to another.
    pub rate: Option<u64>,
    /// Of ranks that come back alone: whether copies of images and outcomes are in another cluster,
    /// or in the same one. None: on the next node, wherever that is.
    pub outside: Option<bool>,
    /// Where gateways listen for each other: at the first of these that is free. None: anywhere.
    pub ports: Option<Ports>,
    /// Nodes reach the controller through gateways, too, but for those of its own cluster.
    pub wan_only: bool,
}

/// Ports, the last one with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

impl Ports {
    pub fn count(self) -> u32 {
        u32::from(self.last) + 1 - u32::from(self.first)
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ports { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

/// Where other gateways reach one on a host, which need not be an address of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outer {
    pub at: IpAddr,
    /// It listens there; none: as elsewhere.
    pub port: Option<u16>,
}

impl Clusters {
    /// How many, if there are several.
    pub fn count(&self) -> u32 {
        self.names.len() as u32
    }

    /// The cluster of a node; of those that joined late in turn.
    pub fn of(&self, node: u32) -> u32 {
        let late = || node.checked_rem(self.count()).unwrap_or(0);
        self.of.get(node as usize).copied().unwrap_or_else(late)
    }

    /// A node that joins late is in that cluster.
    pub fn put(&mut self, node: u32, cluster: u32) {
        for earlier in self.of.len() as u32..=node {
            self.of.push(self.of(earlier));
        }
        self.of[node as usize] = cluster;
    }

    /// Whether a node reaches the controller through gateways only.
    pub fn is_behind(&self, node: u32) -> bool {
        self.wan_only && self.count() > 1 && self.of(node) != HOME
    }
}

/// What a gateway is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub job: String,
    pub key: [u8; 32],
    pub cluster: u32,
    /// Grows with every start of this cluster's gateway.
    pub number: u64,
    pub clusters: u32,
    /// The address towards this one is where it listens for nodes.
    pub controller: SocketAddr,
    /// Other hosts of its cluster: the address towards one of them, if it knows any, goes before
    /// that.
    pub beside: Vec<String>,
    /// The port at which the one before it listened for nodes on that machine: those that are just
    /// starting know no other.
    pub inside: Option<u16>,
    /// Where other gateways reach it, if that is another: it listens there, or, if its machine has
    /// no such address, at all of them.
    pub outside: Option<IpAddr>,
    /// The ports that it may listen at for them.
    pub ports: Option<Ports>,
    pub plain: bool,
    /// What is said to nodes is encrypted.
    pub tls: bool,
    pub connections: u32,
    pub rate: Option<u64>,
    /// Where nothing goes through from the beginning on.
    pub silence: Silence,
    /// Those of the job.
    pub intervals: Intervals,
}

/// Clusters with which a gateway is to be silent, and the other way round; or is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Of what the controller said.
    pub number: u64,
    pub clusters: BTreeSet<u32>,
}

/// A gateway, as the others reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    pub cluster: u32,
    pub number: u64,
    pub at: SocketAddr,
}

/// A node that reaches the controller through its gateway, and where its store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoreAddress {
    pub node: u32,
    pub epoch: u64,
    pub at: SocketAddr,
}

/// From the controller to a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGateway {
    /// All gateways that are there.
    Gates(Vec<Gate>),
    /// The controller is there.
    Beat,
    /// Nothing is to go between its cluster and these, for now.
    Silence(Silence),
    /// The nodes of its cluster, which are to hear where it is: they may have no other way to.
    Nodes(Vec<StoreAddress>),
}

/// What comes of a gateway.
#[derive(Debug, PartialEq, Eq)]
pub enum GatewayEvent {
    Said(FromGateway),
    /// Nothing for so long, since it has listened. There is no more after this.
    Silence {
        ms: u64,
    },
}

/// From a gateway to the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromGateway {
    /// It listens.
    Ready {
        pid: u32,
        inside: SocketAddr,
        outside: SocketAddr,
    },
    Carried(Carried),
    /// It carries, or could.
    Beat,
    /// Nodes of its cluster whose machines give no sign; again and again, as long as that is so.
    Missed(Vec<Missed>),
    /// With which of those that it was told nothing is under way: they have sent what they had
    /// taken, and all of that is delivered.
    Silent(Silence),
    /// It ends, for this reason.
    Failed(String),
}

/// A node whose machine gives its gateway no sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    pub node: u32,
    /// For so long, by the gateway's time.
    pub silent_ms: u64,
}

/// What a gateway has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Connections to other gateways, and streams over them, that stand.
    pub connections: u64,
    pub streams: u64,
    /// Of all streams.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Callers without the job's key, and what no node or gateway sends.
    pub strangers: u64,
    pub malformed: u64,
}

/// A cluster, for `eyrie status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    pub name: String,
    pub nodes: Vec<u32>,
    pub gateway: GatewayStatus,
    /// Clusters that it is blocked with (`eyrie clusters block`).
    pub blocked: Vec<Blocked>,
}

/// Another cluster, for `eyrie status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub cluster: String,
    /// Nothing of it is under way any more.
    pub silent: bool,
}

/// A gateway, for `eyrie status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// `starting`, `live`, `lost` or `ended`.
    pub state: String,
    /// The node that it is with: when that is lost or leaves, it moves.
    pub node: Option<u32>,
    /// The machine it is on; null: the controller's.
    pub host: Option<String>,
    /// On its machine.
    pub pid: Option<u32>,
    /// How often it was started.
    pub starts: u64,
    /// Where nodes reach it, and other gateways.
    pub inside: Option<String>,
    pub outside: Option<String>,
    /// Since its last start, as of a moment ago.
    pub carried: Carried,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_join_late_go_to_the_clusters_in_turn() {
        let names = vec!["a".into(), "b".into()];
        let clusters = Clusters { names, of: vec![0, 0, 1], ..Clusters::default() };
        assert_eq!([0, 1, 2, 3, 4].map(|node| clusters.of(node)), [0, 0, 1, 1, 0]);
        assert_eq!(Clusters::default().of(3), 0);
    }

    #[test]
    fn a_node_that_is_put_into_a_cluster_changes_no_others() {
        let names = vec!["a".into(), "b".into()];
        let mut clusters = Clusters { names, of: vec![0, 0, 1], ..Clusters::default() };
        clusters.put(5, 0);
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|node| clusters.of(node)), [0, 0, 1, 1, 0, 0, 0]);
        clusters.put(5, 1);
        assert_eq!((clusters.of(4), clusters.of(5), clusters.of.len()), (0, 1, 6));
    }

    #[test]
    fn only_other_clusters_than_the_controllers_are_behind_gateways() {
        let names = vec!["a".into(), "b".into()];
        let mut clusters = Clusters { names, of: vec![0, 1], ..Clusters::default() };
        assert!(!clusters.is_behind(1));
        clusters.wan_only = true;
        assert_eq!([0, 1, 2, 3].map(|node| clusters.is_behind(node)), [false, true, false, true]);
        assert!(!Clusters { wan_only: true, ..Clusters::default() }.is_behind(1));
    }
}
