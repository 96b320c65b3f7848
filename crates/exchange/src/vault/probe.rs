//! What the model that picks an encoder is fed with: how fast a node reaches the next one, and how
//! fast it codes.
//!
//! All nodes measure at once, each towards the next: so each link is used both ways, as it is when
//! parity is made. Kept true: it takes a few times `ENOUGH`, whatever the link.

use crate::store_client::Client;
use crate::store_protocol::{Identity, Members, StoreError};
use eyrie_control::vault::Link;
use eyrie_vault::cost::{self, Probed, Probing};
use std::time::{Duration, Instant};

const ENOUGH: Duration = Duration::from_millis(30);
const PROBING: Probing = Probing { turns: 6, first: 64 << 10, most: 64 << 20, enough: ENOUGH };

/// Measures.
pub(super) fn probe(own: &Identity, members: &Members, next: u32) -> Result<Link, StoreError> {
    let mut client = Client::connect(own, members, next)?;
    let probed = PROBING.run(|bytes| timed(|| client.probe(bytes as u32)))?;
    let Probed { shortest, took, bytes } = probed;
    let sending = took.saturating_sub(shortest).as_secs_f64().max(1e-6);
    Ok(Link {
        rate: (bytes as f64 / sending) as u64,
        latency_ns: (shortest.as_nanos() / 2) as u64,
        coding: cost::coding(),
    })
}

fn timed(work: impl FnOnce() -> Result<(), StoreError>) -> Result<Duration, StoreError> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}
