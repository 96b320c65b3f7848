//! What the controller knows of gateways, and which clusters are blocked. Starting and ending them
//! is left to `gateways`, what goes between clusters to `blocks`.

use crate::clock::Moment;
use crate::gateways::placement::GatewaySlot;
use crate::outside::Gateway;
use eyrie_control::gateway::{Carried, Silence};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Those of a job.
#[derive(Default)]
pub(crate) struct Gateways {
    /// By cluster; none: there is but one.
    pub(crate) places: Vec<Place>,
    /// Between which nothing is to go.
    pub(crate) blocks: Blocks,
}

/// One cluster's.
#[derive(Default)]
pub(crate) struct Place {
    /// How often it was started by this controller.
    pub(super) starts: u64,
    pub(super) slot: GatewaySlot,
    pub(super) process: Option<Gateway>,
    pub(super) began: Option<Moment>,
    pub(super) ready: Option<Ready>,
    /// The node with which one listened last, and the port for nodes.
    pub(super) inside: Option<(u32, u16)>,
    pub(super) carried: Carried,
    /// Since when it is gone.
    pub(super) lost: Option<Moment>,
    /// Why one could not begin, as it was told.
    pub(super) told: Option<String>,
    /// With which clusters there is silence, as it said last.
    pub(crate) silent: BTreeSet<u32>,
}

impl Place {
    /// Not even one is left that is just ending.
    pub(crate) fn is_gone(&self) -> bool {
        self.process.is_none() && self.slot.leaves().is_none()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub(super) pid: u32,
    pub(super) inside: SocketAddr,
    pub(super) outside: SocketAddr,
    pub(super) since: Moment,
}

impl Gateways {
    /// Whether a gateway is still to be taken away from a node.
    pub fn has_gateway(&self, node: u32) -> bool {
        self.places.iter().any(|g| g.slot.leaves().or(g.slot.node()) == Some(node))
    }

    /// Processes that are no node's.
    pub fn gateway_pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.places.iter().filter_map(|g| Some(g.process.as_ref()?.pid))
    }
}

/// Which clusters those are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blocks {
    /// Pairs, the lower number first.
    pub(super) pairs: BTreeSet<(u32, u32)>,
    /// Grows with each change.
    pub(super) number: u64,
}

impl Blocks {
    /// What the gateway of a cluster is told.
    pub fn of(&self, cluster: u32) -> Silence {
        let other = |(a, b): &(u32, u32)| match cluster {
            c if c == *a => Some(*b),
            c if c == *b => Some(*a),
            _ => None,
        };
        Silence { number: self.number, clusters: self.pairs.iter().filter_map(other).collect() }
    }

    /// Nothing is to go between the two from now on (`block`), or all again. Whether that is new.
    pub(super) fn set(&mut self, one: u32, other: u32, block: bool) -> bool {
        let pair = (one.min(other), one.max(other));
        let new = if block { self.pairs.insert(pair) } else { self.pairs.remove(&pair) };
        self.number += u64::from(new);
        new
    }
}
