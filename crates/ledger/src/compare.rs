//! Two runs' logs of one channel, message by message: where they first differ (`eyrie verify`).

use std::slice;

use crate::difference::{self, MessagePlace};
use crate::entry::{self, Envelope};
use crate::segment::Segment;
use crate::walk::{self, Spot, Walk};

/// One log of a channel, from its beginning.
struct Course<'a> {
    seg: &'a Segment,
    pair: (u32, u32),
    walk: Option<Walk>,
}

impl<'a> Course<'a> {
    fn new(seg: &'a Segment, pair: (u32, u32)) -> Course<'a> {
        Course { seg, pair, walk: Walk::from_chunk(seg, pair.0, pair.1, 0) }
    }

    /// The next entry that is none of padding, and its payload.
    fn next(&mut self) -> Option<(Spot, &'a [u8])> {
        let walk = self.walk.as_mut()?;
        loop {
            let from = walk.pos();
            let spot = walk.step(self.seg).ok()??;
            if spot.flags & entry::PAD != 0 {
                continue;
            }
            let at = walk::stretch(self.seg, self.pair.0, self.pair.1, from, spot.size)?;
            // SAFETY: `stretch` vouches for the bytes of the entry, and `step` for its lengths. No
            // rank of the run is left that writes there.
            let payload = unsafe {
                let first = at.add(entry::payload_offset(spot.frag) as usize);
                slice::from_raw_parts(first, spot.frag as usize)
            };
            return Some((spot, payload));
        }
    }
}

/// The first message of the channel that differs in the two runs: its number, and in words. `None`:
/// there is none. Both logs must hold the channel from its beginning.
pub fn first_difference(
    recorded: &Segment,
    forced: &Segment,
    pair: (u32, u32),
) -> Option<(u64, String)> {
    let (mut before, mut now) = (Course::new(recorded, pair), Course::new(forced, pair));
    let (mut number, mut offset) = (0, 0);
    loop {
        let (a, b) = (before.next(), now.next());
        let (spot, _) = a.or(b)?;
        if spot.flags & entry::FIRST != 0 {
            (number, offset) = (number + 1, 0);
        }
        let call = difference::call_name(spot.flags);
        let (src, dst) = pair;
        let place = MessagePlace { src, dst, number, call, env: spot.env };
        match (a, b) {
            (Some(_), None) => {
                return Some((number, format!("{place} was sent when recorded only")));
            }
            (None, Some(_)) => return Some((number, format!("{place} was sent when forced only"))),
            (Some((a, old)), Some((b, new))) => {
                let whole = |spot: &Spot| Envelope { flags: spot.flags, ..spot.env };
                if whole(&a) != whole(&b) || a.frag != b.frag {
                    return Some((number, difference::header(&place, &whole(&a), &whole(&b))));
                }
                if let Some(text) = difference::payload(&place, offset, old, new) {
                    return Some((number, text));
                }
                offset += a.frag;
            }
            (None, None) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{FT_HASH, Geometry};
    use crate::sendlog::{Outgoing, SendLog};

    fn run(messages: &[(i32, &[u8])]) -> Segment {
        let (fd, seg) = Segment::create("c", Geometry::new(2, 1 << 20), FT_HASH, 1).unwrap();
        let kept: &'static Segment = Box::leak(Box::new(seg));
        let mut log = SendLog::new(kept, 0);
        log.called("PMPI_Isend");
        for (tag, bytes) in messages {
            let (len, flags) = (bytes.len() as u64, log.call_bits());
            let mut msg = Outgoing::new(Envelope { len, ctx: 0, tag: *tag, crank: 0, flags });
            while msg.done < len || !msg.started {
                log.append(1, &mut msg, |at, out| {
                    out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
                })
                .unwrap();
            }
        }
        Segment::open(std::os::fd::AsFd::as_fd(&fd)).unwrap()
    }

    #[test]
    fn the_first_message_that_differs_is_named() {
        let mut large = vec![3u8; 100_000];
        let before = run(&[(1, b"same"), (2, &large), (3, b"last")]);
        let first = |now: &Segment| first_difference(&before, now, (0, 1)).map(|(_, text)| text);
        assert_eq!(first(&run(&[(1, b"same"), (2, &large), (3, b"last")])), None);
        large[70_001] = 4;
        let text = first(&run(&[(1, b"same"), (2, &large), (3, b"lost")])).unwrap();
        assert!(text.contains("message 2 (MPI_Isend, 100000 bytes, tag 2"), "{text}");
        assert!(text.contains("first in byte 70001: recorded 03, repeated 04"), "{text}");
        let text = first(&run(&[(1, b"same")])).unwrap();
        assert!(text.contains("message 2 ") && text.ends_with("when recorded only"), "{text}");
        let text = first(&run(&[(9, b"same!")])).unwrap();
        assert!(text.contains("length: recorded 4, repeated 5; tag: recorded 1"), "{text}");
    }
}
