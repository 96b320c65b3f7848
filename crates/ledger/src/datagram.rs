//! Early messages: a copy of a small message, sent by one rank to another's node as a datagram
//! while the links carry the message itself.
//!
//! Nothing depends on them: one that is lost, doubled or late is as good as none. What one says is
//! what the log has at its position, and the log's rule decides over it: the receiver takes it only
//! where it stands in the stream, and the sender sends it only when its node's gate is open, as
//! whatever leaves a node does. So it tells nothing that the links would not tell.
//!
//! Datagrams come from outside: all of one is checked before any of it is used. It must bear the
//! receiver's token, which was told over the links to the members of the job, and which is another
//! one after each start of the receiver.
//!
//! Larger messages go early over a *wire*, a TCP connection from rank to rank, entry by entry, with
//! the same prefix. To carry those twice would cost as much again, so the sender says what it gave
//! to a wire (its *run*), and the links keep that back for a while: what the receiver has passed
//! meanwhile they never carry.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::entry::{self, HEADER_BYTES};
use crate::segment::{ChannelCtl, RankCtl, Segment};
use crate::walk::Spot;

/// First word of a datagram ("EYRE", little endian).
const MAGIC: u32 = 0x4552_5945;
/// First word of what goes over a wire ("EYRW").
const WIRE_MAGIC: u32 = 0x5752_5945;
/// Bit of a length on a wire: padding lies before the entry.
const PADDED: u32 = 1 << 31;
/// Bytes before the entry.
pub const PREFIX_BYTES: usize = 40;
/// Longest payload that goes through any network in one packet.
pub const PACKET_BYTES: u64 = 1024;
/// Longest payload that is sent early.
pub const MOST_BYTES: u64 = 8192;
/// Longest datagram.
pub const DATAGRAM_BYTES: usize = PREFIX_BYTES + entry::entry_bytes(MOST_BYTES) as usize;
/// Longest entry on a wire.
pub const FRAME_BYTES: usize = entry::entry_bytes(entry::FRAGMENT_BYTES) as usize;

/// What ranks send early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Never,
    /// Small messages and, over wires, large ones.
    Always,
    /// Small messages only.
    Small,
}

impl Wish {
    /// By the environment: `EYRIE_EARLY` is `off`, `small`, or anything else.
    pub fn from_env() -> Wish {
        match std::env::var("EYRIE_EARLY").as_deref() {
            Ok("off") => Wish::Never,
            Ok("small") => Wish::Small,
            _ => Wish::Always,
        }
    }

    /// Without wires.
    pub fn without_wires(self) -> Wish {
        if self == Wish::Never { Wish::Never } else { Wish::Small }
    }

    /// As it stands in the segment's header.
    pub fn store(self, seg: &Segment) {
        seg.header().early.store(self as u32, Release);
    }

    /// Whether the ranks of the segment's node take early messages.
    pub fn is_for(seg: &Segment) -> bool {
        seg.header().early.load(Acquire) != Wish::Never as u32
    }

    /// Whether they have wires.
    pub fn has_wires(seg: &Segment) -> bool {
        seg.header().early.load(Acquire) == Wish::Always as u32
    }
}

/// What stands before the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    pub src: u32,
    pub dst: u32,
    /// The receiver's.
    pub token: [u64; 2],
    /// Position of the entry in the stream.
    pub from: u64,
}

impl Prefix {
    /// Of a datagram.
    pub fn encode(&self) -> [u8; PREFIX_BYTES] {
        self.put(MAGIC, 0)
    }

    /// On a wire, before an entry of so many bytes; 0: the beginning of the wire. `padded`: padding
    /// lies before it in the stream.
    pub fn on_wire(&self, bytes: u32, padded: bool) -> [u8; PREFIX_BYTES] {
        self.put(WIRE_MAGIC, bytes | if padded { PADDED } else { 0 })
    }

    fn put(&self, magic: u32, bytes: u32) -> [u8; PREFIX_BYTES] {
        let mut out = [0; PREFIX_BYTES];
        let halves = [magic, self.src, self.dst, bytes];
        let words = [self.token[0], self.token[1], self.from];
        for (to, half) in out.chunks_exact_mut(4).zip(halves) {
            to.copy_from_slice(&half.to_le_bytes());
        }
        for (to, word) in out[16..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The prefix of a datagram, and its entry. `None`: it is not one of ours.
    pub fn decode(datagram: &[u8]) -> Option<(Prefix, &[u8])> {
        let (head, rest) = datagram.split_first_chunk::<PREFIX_BYTES>()?;
        let (magic, prefix, bytes) = Prefix::get(head);
        (magic == MAGIC && bytes == 0).then_some((prefix, rest))
    }

    /// A prefix that came over a wire, how many bytes of an entry follow, and whether padding lies
    /// before that. `None`: it is not one of ours.
    pub fn of_wire(head: &[u8; PREFIX_BYTES]) -> Option<(Prefix, usize, bool)> {
        let (magic, prefix, told) = Prefix::get(head);
        let (bytes, padded) = ((told & !PADDED) as usize, told & PADDED != 0);
        (magic == WIRE_MAGIC && bytes <= FRAME_BYTES).then_some((prefix, bytes, padded))
    }

    fn get(head: &[u8; PREFIX_BYTES]) -> (u32, Prefix, u32) {
        let half =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let prefix =
            Prefix { src: half(4), dst: half(8), token: [word(16), word(24)], from: word(32) };
        (half(0), prefix, half(12))
    }
}

/// The entry in `bytes`, which stands at `offset` of a chunk of `chunk` bytes: a whole message that
/// wants no acknowledgement.
pub fn entry(bytes: &[u8], offset: u64, chunk: u64) -> Option<Spot> {
    let spot = part(bytes, offset, chunk)?;
    let bounds = spot.flags & !entry::WORLD_MASK;
    let whole = bounds == entry::FIRST | entry::LAST && spot.frag == spot.env.len;
    (whole && spot.frag <= MOST_BYTES).then_some(spot)
}

/// The entry in `bytes`, which came over a wire: of a message that wants no acknowledgement.
pub fn part(bytes: &[u8], offset: u64, chunk: u64) -> Option<Spot> {
    let head = bytes.first_chunk::<{ HEADER_BYTES as usize }>()?;
    let spot = Spot::sent(head, offset, chunk)?;
    let plain = spot.flags & !(entry::FIRST | entry::LAST | entry::WORLD_MASK) == 0;
    (plain && spot.told == bytes.len() as u64).then_some(spot)
}

/// Notes that the rank gave what is between `from` and `end` of a stream to a wire. That forms one
/// run with what was noted before, if it follows it, else another.
pub fn give(ctl: &ChannelCtl, from: u64, end: u64) {
    if !continues(ctl, from) {
        // In this order: whoever sees the new end sees its beginning; an old end then is before it.
        ctl.run_from.store(from, Release);
    }
    ctl.run_end.store(end, Release);
}

/// Whether what begins at `from` follows the run.
pub fn continues(ctl: &ChannelCtl, from: u64) -> bool {
    from != 0 && ctl.run_end.load(Relaxed) == from
}

/// The links are to carry all of the run.
pub fn take_back(ctl: &ChannelCtl) {
    ctl.run_end.store(0, Release);
}

/// The run: what a wire may bring.
pub fn run(ctl: &ChannelCtl) -> Range<u64> {
    let end = ctl.run_end.load(Acquire);
    ctl.run_from.load(Acquire)..end
}

/// Whether all determinants that the ranks of this node have recorded are held by the replicas:
/// what the gate asks of a message (`protocol::gate`), found by the rank itself. False may be
/// wrong.
pub fn may_leave(seg: &Segment) -> bool {
    (0..seg.geometry().ranks).map(|r| (r, seg.rank(r))).all(|(rank, ctl)| {
        if ctl.home.load(Relaxed) != seg.node() {
            return true;
        }
        // In this order: a pair that is being written then does not go with `det_tail`.
        let held = ctl.det_held.load(Acquire);
        let last = ctl.det_held_last.load(Acquire);
        let tail = ctl.det_tail.load(Acquire);
        if held != tail + 1 {
            return false;
        }
        tail == ctl.det_trim.load(Acquire) || seg.det(rank, tail - 1).load(Relaxed) == last
    })
}

/// Says that the replicas hold the log of `ctl`'s rank up to `tail`, its last word being `last`.
pub fn hold(ctl: &RankCtl, tail: u64, last: u64) {
    ctl.det_held_last.store(last, Release);
    ctl.det_held.store(tail + 1, Release);
}

/// Says that it is not known what replicas hold of the rank's log.
pub fn doubt(ctl: &RankCtl) {
    ctl.det_held.store(0, Release);
}

/// Notes at which address of its node a rank takes early messages.
pub fn set_address(ctl: &RankCtl, address: IpAddr) {
    let bytes = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .octets();
    for (to, half) in ctl.early_address.iter().zip(bytes.chunks_exact(8)) {
        to.store(half.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), Relaxed);
    }
}

/// The address that was noted.
pub fn address(ctl: &RankCtl) -> IpAddr {
    let [high, low] = [0, 1].map(|i: usize| u128::from(ctl.early_address[i].load(Relaxed)));
    Ipv6Addr::from(high << 64 | low).to_canonical()
}

/// Where a rank takes early messages, and what they must bear. `None`: nowhere.
pub fn door_of(ctl: &RankCtl) -> Option<(SocketAddr, [u64; 2])> {
    let port = u16::try_from(ctl.early_port.load(Acquire)).ok().filter(|p| *p != 0)?;
    Some((SocketAddr::new(address(ctl), port), token(ctl)))
}

/// What an early message for the rank must bear.
pub fn token(ctl: &RankCtl) -> [u64; 2] {
    [ctl.early_token[0].load(Relaxed), ctl.early_token[1].load(Relaxed)]
}

/// Another process of the rank begins: what is sent to the one before is not for it. Also for what
/// another node said of a rank of its own (`port` is then where it takes early messages).
pub fn set_gateway(ctl: &RankCtl, port: u32, token: [u64; 2]) {
    ctl.early_port.store(0, Release);
    ctl.early_inode.store(0, Relaxed);
    ctl.early_token.iter().zip(token).for_each(|(to, word)| to.store(word, Relaxed));
    ctl.early_port.store(port, Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{FT_LOGGED, Geometry};
    use proptest::prelude::*;

    fn segment() -> Segment {
        let geo = Geometry { ranks: 3, chunk_bytes: 4096, pool_chunks: 8, det_words: 1024 };
        Segment::create("t", geo, FT_LOGGED, 2).unwrap().1
    }

    #[test]
    fn the_gate_is_open_when_all_is_held() {
        let seg = segment();
        seg.rank(2).home.store(9, Relaxed);
        assert!(!may_leave(&seg), "nothing is known");
        (0..2).for_each(|r| hold(seg.rank(r), 0, 0));
        assert!(may_leave(&seg));
        seg.det(1, 0).store(5, Relaxed);
        seg.rank(1).det_tail.store(1, Relaxed);
        assert!(!may_leave(&seg), "an outcome of a neighbour is not held");
        hold(seg.rank(1), 1, 5);
        assert!(may_leave(&seg));
        seg.det(1, 0).store(6, Relaxed);
        assert!(!may_leave(&seg), "the last one has grown");
        doubt(seg.rank(0));
        hold(seg.rank(1), 1, 6);
        assert!(!may_leave(&seg));
    }

    #[test]
    fn what_follows_is_one_run() {
        let seg = segment();
        let ctl = seg.channel(0, 1);
        assert!(run(ctl).is_empty());
        give(ctl, 0, 128);
        give(ctl, 128, 4032);
        assert_eq!(run(ctl), 0..4032);
        give(ctl, 4224, 4288);
        assert_eq!(run(ctl), 4224..4288);
        take_back(ctl);
        assert!(run(ctl).is_empty() && !continues(ctl, 4288) && !continues(ctl, 0));
    }

    #[test]
    fn addresses_are_kept() {
        let seg = segment();
        for text in ["127.0.0.1", "10.77.0.3", "::1", "fd00::5", "0.0.0.0"] {
            let want: IpAddr = text.parse().unwrap();
            set_address(seg.rank(0), want);
            assert_eq!(address(seg.rank(0)), want);
        }
        assert_eq!(door_of(seg.rank(0)), None);
        set_gateway(seg.rank(0), 700, [1, 2]);
        assert_eq!(door_of(seg.rank(0)), Some(("0.0.0.0:700".parse().unwrap(), [1, 2])));
    }

    proptest! {
        #[test]
        fn a_prefix_decodes(src: u32, dst: u32, token: [u64; 2], from: u64) {
            let prefix = Prefix { src, dst, token, from };
            let mut bytes = prefix.encode().to_vec();
            bytes.extend([7; 64]);
            prop_assert_eq!(Prefix::decode(&bytes), Some((prefix, &[7; 64][..])));
            prop_assert_eq!(Prefix::decode(&bytes[..PREFIX_BYTES - 1]), None);
            let padded = from % 2 == 0;
            let head = prefix.on_wire(64, padded);
            prop_assert_eq!(Prefix::of_wire(&head), Some((prefix, 64, padded)));
            prop_assert_eq!(Prefix::of_wire(&prefix.encode()), None);
            let long = prefix.on_wire(FRAME_BYTES as u32 + 1, padded);
            prop_assert_eq!(Prefix::of_wire(&long), None);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in any::<Vec<u8>>(), slot in 0u64..64) {
            let _ = Prefix::decode(&bytes);
            if let Some(spot) = entry(&bytes, slot * 64, 4096) {
                prop_assert_eq!(spot.told, bytes.len() as u64);
            }
            if let Some(spot) = part(&bytes, slot * 64, 4096) {
                prop_assert_eq!(spot.told, bytes.len() as u64);
            }
        }
    }
}
