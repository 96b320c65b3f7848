//! How the next generation is made: a model of what each way takes.
//!
//! Whole: everything is stored, and parity made of it. Increments: what changed is stored, with
//! parity over that; a restore then reads several generations, and after so many of them everything
//! is stored whole once more, which each bears a share of. Update: everything is stored on each
//! node, what did not change by a copy that its disk makes, and parity is that of the generation
//! before with the differences added: only changed chunks cross the network, and a restore reads
//! one generation.

use crate::cost::Measured;
use crate::geometry::CHUNK_BYTES;
use crate::scheme::Scheme;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A way to make a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strategy {
    Whole,
    Increments,
    Update,
}

impl Strategy {
    pub const ALL: [Strategy; 3] = [Strategy::Whole, Strategy::Increments, Strategy::Update];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Whole => "whole",
            Strategy::Increments => "increments",
            Strategy::Update => "update",
        })
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Strategy, String> {
        let named = Strategy::ALL.into_iter().find(|way| way.to_string() == text);
        named.ok_or_else(|| format!("'{text}' is no way; there are whole, increments, update"))
    }
}

/// What a member would store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Everything.
    pub full: u64,
    /// What changed.
    pub increment: u64,
    /// The chunks in which that is, when everything is in its place.
    pub chunks: u64,
}

/// What there is to build on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Generations that the newest one refers to; `None`: there is no generation.
    pub chain: Option<usize>,
    /// Most that one may refer to.
    pub most: usize,
    /// Whether parity can be updated: all members have it, and nothing is encrypted.
    pub updatable: bool,
}

/// What a way would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub way: Strategy,
    pub seconds: f64,
    /// Of that its share of storing everything whole at times.
    pub share: f64,
    /// Bytes that all members send.
    pub sent: u64,
    /// Bytes on all disks when those go that are not needed any more.
    pub stored: u64,
    /// Generations that a restore reads.
    pub reads: usize,
}

/// The pick, and what it was picked of.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub way: Strategy,
    pub estimates: Vec<Estimate>,
}

/// Bytes of parity for each byte of data.
fn parity(scheme: Scheme, members: usize) -> f64 {
    let m = scheme.tolerates();
    let k = if scheme == Scheme::Partner { 1 } else { members.saturating_sub(m).max(1) };
    m as f64 / k as f64
}

/// Picks a way for what the members of a group have.
pub fn choose(measured: &Measured, scheme: Scheme, loads: &[Load], history: &History) -> Choice {
    let (m, over) = (scheme.tolerates() as u64, parity(scheme, loads.len()));
    let most = |of: fn(&Load) -> u64| loads.iter().map(of).max().unwrap_or(0) as f64;
    let sum = |of: fn(&Load) -> u64| loads.iter().map(of).sum::<u64>();
    let (full, increment, chunks) = (most(|l| l.full), most(|l| l.increment), most(|l| l.chunks));
    let wire = |bytes: f64| bytes * m as f64 / measured.link.min(measured.coding).max(1.0);
    let disk = |bytes: f64| bytes * (1.0 + over) / measured.disk.max(1.0);
    let with_parity = |bytes: u64| (bytes as f64 * (1.0 + over)) as u64;
    let (all, changes) = (sum(|l| l.full), sum(|l| l.increment));
    let whole = Estimate {
        way: Strategy::Whole,
        seconds: wire(full) + disk(full),
        share: 0.0,
        sent: m * all,
        stored: with_parity(all),
        reads: 1,
    };
    let mut estimates = vec![whole];
    if let Some(chain) = history.chain.filter(|chain| *chain < history.most) {
        let share = whole.seconds / history.most as f64;
        estimates.push(Estimate {
            way: Strategy::Increments,
            seconds: wire(increment) + disk(increment) + share,
            share,
            sent: m * changes,
            stored: with_parity(all + changes * (chain as u64 + 1)),
            reads: chain + 2,
        });
    }
    if history.updatable && history.chain == Some(0) {
        estimates.push(Estimate {
            way: Strategy::Update,
            // Of what changed the old bytes are read as well.
            seconds: wire(chunks) + disk(full + chunks),
            share: 0.0,
            sent: m * sum(|l| l.chunks),
            stored: with_parity(all),
            reads: 1,
        });
    }
    let fastest = |a: &&Estimate, b: &&Estimate| a.seconds.total_cmp(&b.seconds);
    let way = estimates.iter().min_by(fastest).map_or(Strategy::Whole, |best| best.way);
    Choice { way, estimates }
}

/// Whether parity is to be updated, of payloads of which so many bytes changed, and why.
pub fn updates(
    measured: &Measured,
    scheme: Scheme,
    payloads: &[u64],
    changed: &[u64],
) -> (bool, String) {
    let load =
        |(full, chunks): (&u64, &u64)| Load { full: *full, increment: *full, chunks: *chunks };
    let loads: Vec<Load> = payloads.iter().zip(changed).map(load).collect();
    let history = History { chain: Some(0), most: 0, updatable: true };
    let choice = choose(measured, scheme, &loads, &history);
    let chunks = |bytes: &[u64]| bytes.iter().map(|b| b.div_ceil(CHUNK_BYTES)).sum::<u64>();
    let text = format!("{} of {} chunks changed", chunks(changed), chunks(payloads));
    (choice.way == Strategy::Update, text)
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.way)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for (n, e) in self.estimates.iter().enumerate() {
            let comma = if n > 0 { ";" } else { "" };
            let (ms, sent, stored) = (e.seconds * 1e3, mib(e.sent), mib(e.stored));
            write!(f, "{comma} {} {ms:.1} ms", e.way)?;
            if e.share > 0.0 {
                write!(f, " ({:.1} of it for whole ones at times)", e.share * 1e3)?;
            }
            let plural = if e.reads == 1 { "" } else { "s" };
            write!(f, ", {sent:.1} MiB sent, {stored:.1} MiB kept")?;
            write!(f, ", restored from {} generation{plural}", e.reads)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pick(link: f64, load: Load, history: History) -> Choice {
        let measured = Measured { link, disk: 1e9, ..Measured::default() };
        choose(&measured, "rs:4+2".parse().unwrap(), &[load; 6], &history)
    }

    fn some(changed: u64) -> Load {
        Load { full: 64 * MIB, increment: changed, chunks: changed }
    }

    fn after(chain: usize) -> History {
        History { chain: Some(chain), most: 8, updatable: true }
    }

    #[test]
    fn the_first_is_whole_and_so_is_what_follows_a_long_chain() {
        let first = pick(25e6, some(MIB), History { chain: None, most: 8, updatable: false });
        assert_eq!((first.way, first.estimates.len()), (Strategy::Whole, 1));
        assert_eq!(pick(25e6, some(MIB), after(8)).way, Strategy::Whole);
        assert_eq!(pick(25e6, some(MIB), after(7)).way, Strategy::Increments);
    }

    #[test]
    fn a_slow_link_is_worth_a_copy_on_the_disk_and_a_fast_one_is_not() {
        let slow = pick(25e6, some(MIB), after(0));
        assert_eq!(slow.way, Strategy::Update, "{slow}");
        assert!(slow.to_string().contains("restored from 1 generation"), "{slow}");
        let fast = pick(1.25e9, some(MIB), after(0));
        assert_eq!(fast.way, Strategy::Increments, "{fast}");
    }

    #[test]
    fn changes_that_are_spread_over_all_chunks_are_better_packed() {
        let spread = Load { full: 64 * MIB, increment: 4 * MIB, chunks: 64 * MIB };
        assert_eq!(pick(25e6, spread, after(0)).way, Strategy::Increments);
        let all = pick(25e6, some(64 * MIB), after(0));
        assert_eq!(all.way, Strategy::Whole, "{all}");
        let measured = Measured { link: 25e6, ..Measured::default() };
        let scheme = "rs:4+2".parse().unwrap();
        let text = "6 of 6144 chunks changed";
        let (yes, why) = updates(&measured, scheme, &[64 * MIB; 6], &[CHUNK_BYTES; 6]);
        assert_eq!((yes, why.as_str()), (true, text));
        assert!(!updates(&measured, scheme, &[64 * MIB; 6], &[64 * MIB; 6]).0);
    }
}
