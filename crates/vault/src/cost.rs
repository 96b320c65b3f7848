//! Which encoder: a model of what each would take, fed by what was measured.
//!
//! All encoders move the same bytes over each node's link, `m` times its payload each way, as every
//! stripe has other coding members. They differ in how far a block travels, in how many arrive at
//! one member at once, and so in the memory that they need.

use crate::code::{Linear, kernel};
use crate::flow::Encoder;
use crate::geometry::CHUNK_BYTES;
use crate::member::DEPTH;
use crate::record::hash;
use crate::scheme::Scheme;
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Chunks that are coded to find out how fast that is; more than a cache of a core holds.
const CODED_CHUNKS: usize = 64;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Of a node's link, bytes a second.
    pub link: f64,
    /// One way between two nodes, seconds.
    pub latency: f64,
    /// Bytes a second that one node multiplies and adds.
    pub coding: f64,
    /// Share of the link's rate that is left when several members send to one at once.
    pub incast: f64,
    /// Memory that encoding may take on a node.
    pub memory: u64,
    /// Bytes a second that a node writes, or copies on its disk.
    pub disk: f64,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured {
            link: 1.25e9,
            latency: 50e-6,
            coding: 5e9,
            incast: 0.9,
            memory: 64 << 20,
            disk: 1e9,
        }
    }
}

/// What was measured of ways and nodes, for people to read.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (link, latency, coding) = (self.link / 1e6, self.latency * 1e3, self.coding / 1e6);
        write!(f, "measured: {link:.1} MB/s, {latency:.3} ms, coding {coding:.1} MB/s")
    }
}

/// How a way is measured: by words that go there and back, and bursts of which each has twice as
/// many bytes as the one before.
pub struct Probing {
    /// Times that a word goes there and back.
    pub turns: usize,
    /// Bytes of the first burst, and the most of one.
    pub first: usize,
    pub most: usize,
    /// Sending that takes so long tells the rate well enough.
    pub enough: Duration,
}

/// What was found.
pub struct Probed {
    /// Of a word there and back.
    pub shortest: Duration,
    /// Of the last burst, and how many bytes that had.
    pub took: Duration,
    pub bytes: usize,
}

impl Probing {
    /// Measures by `burst`, which sends so many bytes, none for a word, and tells how long it took
    /// until they were answered.
    ///
    /// # Errors
    /// Those of `burst`.
    pub fn run<E>(&self, mut burst: impl FnMut(usize) -> Result<Duration, E>) -> Result<Probed, E> {
        let mut shortest = Duration::MAX;
        for _ in 0..self.turns {
            shortest = shortest.min(burst(0)?);
        }
        let mut bytes = self.first;
        let mut took = burst(bytes)?;
        while took < self.enough && bytes < self.most {
            bytes *= 2;
            took = burst(bytes)?;
        }
        // What else the machines do at the moment is not the way's.
        took = took.min(burst(bytes)?);
        Ok(Probed { shortest, took, bytes })
    }
}

/// Bytes a second that are checked, multiplied and added here.
pub fn coding() -> u64 {
    let from: Vec<Vec<u8>> = vec![vec![7; CHUNK_BYTES as usize]; CODED_CHUNKS];
    let mut sum = vec![0; CHUNK_BYTES as usize];
    let product = Linear::one(kernel::best(), 3);
    let begun = Instant::now();
    for chunk in &from {
        black_box(hash(chunk));
        product.add(0, chunk, &mut [&mut sum]);
    }
    black_box(&sum);
    let bytes = CODED_CHUNKS as f64 * CHUNK_BYTES as f64;
    (bytes / begun.elapsed().as_secs_f64().max(1e-6)) as u64
}

/// What an encoder would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub encoder: Encoder,
    pub seconds: f64,
    /// Until the first block is where it belongs.
    pub fill: f64,
    /// Memory of one node.
    pub memory: u64,
}

/// The pick, and what it was picked of.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub encoder: Encoder,
    pub estimates: Vec<Estimate>,
}

/// Picks an encoder for payloads of these lengths.
pub fn choose(measured: &Measured, scheme: Scheme, payloads: &[u64]) -> Choice {
    let estimates: Vec<Estimate> =
        Encoder::ALL.into_iter().map(|e| estimate(measured, scheme, payloads, e)).collect();
    let fits = |e: &&Estimate| e.memory <= measured.memory;
    // The one that takes least memory if none fits.
    let least = |a: &&Estimate, b: &&Estimate| a.memory.cmp(&b.memory);
    let fastest = |a: &&Estimate, b: &&Estimate| a.seconds.total_cmp(&b.seconds);
    let best = estimates.iter().filter(fits).min_by(fastest);
    let best = best.or_else(|| estimates.iter().min_by(least));
    Choice { encoder: best.map_or(Encoder::Pipeline, |best| best.encoder), estimates }
}

fn estimate(measured: &Measured, scheme: Scheme, payloads: &[u64], encoder: Encoder) -> Estimate {
    let (m, members) = (scheme.tolerates(), payloads.len());
    let terms = if scheme == Scheme::Partner { 1 } else { members.saturating_sub(m) };
    let longest = payloads.iter().max().copied().unwrap_or(0);
    let (hops, children) = (encoder.hops(terms), encoder.children(terms));
    let bytes = (longest * m as u64) as f64;
    let piece = longest.div_ceil(terms.max(1) as u64);
    let block = piece.min(CHUNK_BYTES);
    // What flows into one member at once suffers from several senders.
    let crowd = if children > 1 { measured.incast } else { 1.0 };
    let rate = (measured.link * crowd).min(measured.coding);
    let fill = hops as f64 * (measured.latency + block as f64 / measured.link);
    // A member is part of all sums of the stripes that it is in.
    let sums = (members * m) as u64;
    let memory = sums * (children as u64 + 1) * DEPTH as u64 * block;
    // With few rows under way the way there and back is waited for, in each of the sums.
    let under_way = (sums * DEPTH as u64 * block) as f64;
    let round = 2.0 * measured.latency + block as f64 / measured.link;
    let rate = rate.min(under_way / round.max(1e-9)).max(1.0);
    Estimate { encoder, seconds: fill + bytes / rate, fill, memory }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.encoder)?;
        for (n, e) in self.estimates.iter().enumerate() {
            let (comma, mib) = (if n > 0 { "," } else { "" }, e.memory.div_ceil(1 << 20));
            let (all, fill) = (e.seconds * 1e3, e.fill * 1e3);
            write!(f, "{comma} {} {all:.2} ms (first block {fill:.2} ms, {mib} MiB)", e.encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(measured: Measured, payload: u64) -> Choice {
        choose(&measured, "rs:30+2".parse().unwrap(), &[payload; 32])
    }

    #[test]
    fn small_payloads_go_the_short_way() {
        assert_eq!(pick(Measured::default(), 4096).encoder, Encoder::Broadcast);
    }

    #[test]
    fn large_ones_do_not_crowd_and_memory_is_bounded() {
        let large = pick(Measured { memory: 1 << 30, ..Measured::default() }, 1 << 30);
        assert_eq!(large.encoder, Encoder::Pipeline, "{large}");
        let far = Measured { latency: 5e-3, memory: 25 << 20, ..Measured::default() };
        assert_eq!(pick(far, 16 << 20).encoder, Encoder::FanIn, "{}", pick(far, 16 << 20));
        let tight = pick(Measured { memory: 17 << 20, ..Measured::default() }, 1 << 30);
        assert_eq!(tight.encoder, Encoder::Pipeline, "{tight}");
        let none = pick(Measured { memory: 0, ..Measured::default() }, 1 << 30);
        assert_eq!(none.encoder, Encoder::Pipeline);
        assert!(tight.to_string().contains("pipeline: pipeline"), "{tight}");
    }
}
