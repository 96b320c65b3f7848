//! What the model that picks an encoder is fed with: how fast a node reaches the next one, and how
//! fast it codes.
//!
//! All nodes measure at once, each towards the next: so each link is used both ways, as it is when
//! parity is made. Kept true: it takes a few times `ENOUGH`, whatever the link.

use crate::store::{Client, Identity, Members, StoreError};
use eyrie_control::vault::Link;
use eyrie_vault::cost;
use std::time::{Duration, Instant};

/// Sending that takes so long tells the rate well enough.
const ENOUGH: Duration = Duration::from_millis(30);
/// Bytes of the first burst; each next one has twice as many.
const FIRST_BYTES: u32 = 64 << 10;
const MOST_BYTES: u32 = 64 << 20;
/// Bursts of the size that takes long enough, of which the fastest counts.
const BURSTS: usize = 2;
/// Times that a word goes there and back.
const TURNS: usize = 6;

/// Measures.
pub(super) fn probe(own: &Identity, members: &Members, next: u32) -> Result<Link, StoreError> {
    let mut client = Client::connect(own, members, next)?;
    let mut shortest = Duration::MAX;
    for _ in 0..TURNS {
        shortest = shortest.min(timed(|| client.probe(0))?);
    }
    let mut bytes = FIRST_BYTES;
    let mut took = timed(|| client.probe(bytes))?;
    while took < ENOUGH && bytes < MOST_BYTES {
        bytes *= 2;
        took = timed(|| client.probe(bytes))?;
    }
    // What else the machine does at the moment is not the link's.
    for _ in 1..BURSTS {
        took = took.min(timed(|| client.probe(bytes))?);
    }
    let sending = took.saturating_sub(shortest).as_secs_f64().max(1e-6);
    Ok(Link {
        rate: (f64::from(bytes) / sending) as u64,
        latency_ns: (shortest.as_nanos() / 2) as u64,
        coding: cost::coding(),
    })
}

fn timed(work: impl FnOnce() -> Result<(), StoreError>) -> Result<Duration, StoreError> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}
