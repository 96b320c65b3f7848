//! Entries of a channel's stream: header, layout rule, hash chain.
//!
//! Kept true: where an entry lies and how a message is cut into entries follows from the stream
//! position and the message length alone. A sender that repeats its messages therefore walks over
//! exactly the entries it wrote before; this is what makes comparing possible.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Entries start at multiples of this.
pub const SLOT_BYTES: u64 = 64;
/// Largest payload of one entry: sender's and receiver's copies overlap in steps of this size.
pub const FRAGMENT_BYTES: u64 = 32 * 1024;
/// Payloads up to this size directly follow the header; larger ones start on a cache line.
const INLINE_BYTES: u64 = 984;
/// A chunk's rest smaller than this is padded over rather than filled with a fragment.
const LEAST_FRAGMENT_BYTES: u64 = 1024;

/// First entry of its message.
pub const FIRST: u32 = 1;
/// Last entry of its message.
pub const LAST: u32 = 2;
/// The sender waits until the receiver has matched the message (`MPI_Ssend`).
pub const SYNC: u32 = 4;
/// No message: skip to the next chunk.
pub const PAD: u32 = 8;
/// The payload is an address in the sender's memory (`--ft none`, large messages).
pub const REMOTE: u32 = 16;

/// `eyrie verify` only: the function that sends the message (`difference`).
pub const CALLS: u32 = 0xFF00;
pub const CALL_SHIFT: u32 = 8;
/// From this bit on the flags hold the number of the receiver's program that it is for (`world`);
/// 0 in padding.
pub const WORLD_SHIFT: u32 = 16;
/// Those bits.
pub const WORLD_MASK: u32 = !((1 << WORLD_SHIFT) - 1);

/// Header of an entry as it lies in the log. Everything but `stamp` and `ack` is written before
/// the stamp is stored and never changed after.
#[repr(C)]
pub struct Header {
    /// Number of the entry in its channel plus one; 0 while not published. The publishing store.
    pub stamp: AtomicU64,
    /// Bytes of the whole message.
    pub len: u64,
    /// Context of the communicator.
    pub ctx: u32,
    pub tag: i32,
    /// Sender's rank in the communicator.
    pub crank: u32,
    /// Payload bytes in this entry.
    pub frag: u32,
    pub flags: u32,
    /// Set to 1 by the receiver when the message is matched (`SYNC`) or read (`REMOTE`).
    pub ack: AtomicU32,
}

/// Bytes of a header.
pub const HEADER_BYTES: u64 = size_of::<Header>() as u64;
const _: () = assert!(HEADER_BYTES == 40);

/// What a message says of itself, equal in all its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub len: u64,
    pub ctx: u32,
    pub tag: i32,
    pub crank: u32,
    /// `SYNC`, `REMOTE` or none.
    pub flags: u32,
}

/// Offset of the payload in an entry that carries `frag` bytes.
pub const fn payload_offset(frag: u64) -> u64 {
    if frag <= INLINE_BYTES { HEADER_BYTES } else { SLOT_BYTES }
}

/// Bytes that an entry with `frag` payload bytes takes.
pub const fn entry_bytes(frag: u64) -> u64 {
    (payload_offset(frag) + frag).next_multiple_of(SLOT_BYTES)
}

/// What comes next at a stream position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Skip the rest of the chunk.
    Pad,
    /// An entry with this many payload bytes.
    Entry(u64),
}

/// The layout rule: `offset` in the chunk (a multiple of `SLOT_BYTES`, below `chunk`), `rest`
/// payload bytes of the message still to be written.
pub const fn step(offset: u64, chunk: u64, rest: u64) -> Step {
    let room = chunk - offset;
    let frag = if rest < FRAGMENT_BYTES { rest } else { FRAGMENT_BYTES };
    if entry_bytes(frag) <= room {
        return Step::Entry(frag);
    }
    if room < LEAST_FRAGMENT_BYTES + SLOT_BYTES {
        return Step::Pad;
    }
    Step::Entry(room - SLOT_BYTES)
}

/// Whether an entry may begin at `from` where the one before it ended at `end`, with padding
/// between them.
pub const fn is_padding(end: u64, from: u64, chunk: u64) -> bool {
    from > end && from - end < LEAST_FRAGMENT_BYTES + SLOT_BYTES && from.is_multiple_of(chunk)
}

const PRIME_A: u64 = 0x9E37_79B9_7F4A_7C15;
const PRIME_B: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// Extends the hash chain over a channel's headers by one entry.
pub const fn chain(old: u64, env: &Envelope, frag: u64, flags: u32) -> u64 {
    let a = (old ^ env.len).wrapping_mul(PRIME_A).rotate_left(29);
    let b = (env.ctx as u64) << 32 | env.tag as u32 as u64;
    let c = (env.crank as u64) << 40 ^ (flags as u64) << 32 ^ frag;
    (a ^ b).wrapping_mul(PRIME_B).rotate_left(31) ^ c.wrapping_mul(PRIME_A)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_of_any_length_fits_its_chunks(slot in 0u64..4096, len in 0u64..2_000_000) {
            let chunk = 256 * 1024;
            let (mut offset, mut rest, mut first) = (slot * SLOT_BYTES % chunk, len, true);
            while first || rest > 0 {
                match step(offset, chunk, rest) {
                    Step::Pad => offset = 0,
                    Step::Entry(frag) => {
                        prop_assert!(frag <= rest && (frag > 0 || len == 0));
                        prop_assert!(offset + entry_bytes(frag) <= chunk);
                        offset = (offset + entry_bytes(frag)) % chunk;
                        rest -= frag;
                        first = false;
                    }
                }
            }
        }
    }

    #[test]
    fn small_messages_take_one_line() {
        assert_eq!(entry_bytes(24), 64);
        assert_eq!(entry_bytes(25), 128);
    }
}
