//! What a node needs to speak with others. Who they are is kept up to date by the outer `network`.

use eyrie_exchange::expected_images::ExpectedImages;
use eyrie_exchange::image_store::TurnedAway;
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_exchange::vault::VaultHandle;
use eyrie_ha::Watch;
use eyrie_link::Links;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What a node needs to speak with others.
pub struct Network {
    pub own: Identity,
    pub members: Members,
    /// Where this node is reached, and its store.
    pub here: IpAddr,
    pub store: SocketAddr,
    /// By its store.
    pub turned_away: Arc<TurnedAway>,
    /// Images that may come to its store while they are written.
    pub invited: Arc<ExpectedImages>,
    /// As they were told last.
    pub homes: Vec<u32>,
    pub links: Option<Links>,
    /// The archive among the members: where the controller takes and gives images.
    pub archive: Option<(u32, u64, SocketAddr)>,
    /// Its part of the vault, if there is one.
    pub vault: Option<VaultHandle>,
    /// With `--ha`: whether its ranks may run.
    pub watch: Option<Arc<Watch>>,
}
