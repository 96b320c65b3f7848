//! How fast the ways are over which members make parity: what the model is told that picks how.
//!
//! All members measure at once, each towards the next, as ways are used when parity is made.
//! Kept true: all processes come to the same numbers, those of the slowest; a process that does
//! this again is told what was found first, and sends as much as then; it takes a few times
//! `ENOUGH`, whatever the way.

use super::Apart;
use super::packet::{MAX_READ_BYTES, Packet, hear, say};
use crate::error::RegionsError;
use crate::peers::Peers;
use eyrie_vault::cost::{self, Measured, Probed, Probing};
use std::time::{Duration, Instant};

const ENOUGH: Duration = Duration::from_millis(20);
/// Not more: where ranks may be restored alone all of it lies in their logs.
const MOST_BYTES: usize = 4 << 20;
const PROBING: Probing =
    Probing { turns: 5, first: MAX_READ_BYTES, most: MOST_BYTES, enough: ENOUGH };

/// Measures. All processes call it together. `None`: there is no way to measure.
pub fn measure(peers: &Peers, apart: &Apart) -> Result<Option<Measured>, RegionsError> {
    if apart.leaders.len() < 2 {
        return Ok(None);
    }
    let Probed { shortest, took, bytes } = PROBING.run(|bytes| burst(peers, apart, bytes))?;
    let coding = if apart.leads(peers.rank) { cost::coding() } else { u64::MAX };
    let coding = peers.least(i64::try_from(coding).unwrap_or(i64::MAX))?;
    let sending = took.saturating_sub(shortest).as_nanos().max(1) as f64 / 1e9;
    let (link, latency) = (bytes as f64 / sending, shortest.as_nanos() as f64 / 2e9);
    Ok(Some(Measured { link, latency, coding: coding as f64, ..Measured::default() }))
}

/// Each member sends so many bytes to the next, and is answered. How long that takes the slowest.
fn burst(peers: &Peers, apart: &Apart, bytes: usize) -> Result<Duration, RegionsError> {
    let begun = Instant::now();
    if let Some(next) = next(&apart.leaders, peers.rank) {
        let full = [0; MAX_READ_BYTES];
        let mut left = bytes;
        loop {
            let now = left.min(full.len());
            left -= now;
            say(peers, next, &Packet::Probe { last: left == 0 }, &full[..now])?;
            if left == 0 {
                break;
            }
        }
        let (mut taken, mut answered) = (false, false);
        while !(taken && answered) {
            match hear(peers)? {
                (_, Packet::Probe { last: false }, _) => {}
                (from, Packet::Probe { last: true }, _) => {
                    say(peers, from, &Packet::Probed, &[])?;
                    taken = true;
                }
                (_, Packet::Probed, _) => answered = true,
                _ => return Err(RegionsError::Use("something else is said than probes".into())),
            }
        }
        peers.flush()?;
    }
    let took = begun.elapsed().as_nanos().max(1);
    let mut all = [i64::try_from(took).unwrap_or(i64::MAX)];
    peers.most(&mut all)?;
    Ok(Duration::from_nanos(all[0].unsigned_abs()))
}

/// The member after this one; `None`: it is none.
fn next(leaders: &[u32], rank: u32) -> Option<u32> {
    let own = leaders.iter().position(|leader| *leader == rank)?;
    leaders.iter().cycle().nth(own + 1).copied()
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn members_stand_in_a_ring() {
        let leaders = [0, 3, 7];
        assert_eq!([0, 3, 7].map(|rank| next(&leaders, rank)), [Some(3), Some(7), Some(0)]);
        assert_eq!(next(&leaders, 1), None, "no member");
    }
}
