//! Going along a stream's log from outside, entry by entry, without its payload.
//!
//! What the daemon needs of a stream: how far it is published, and which entries want an
//! acknowledgement. Nothing that is found is trusted: an entry that no correct sender writes ends
//! the walk. `Spot` is the check, on bytes that nobody else can change meanwhile.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::entry::{self, Envelope, HEADER_BYTES, Header, SLOT_BYTES};
use crate::reader::Damaged;
use crate::segment::Segment;
use crate::sendlog::dir_index;

/// All flags that an entry may bear.
const FLAGS: u32 =
    entry::FIRST | entry::LAST | entry::SYNC | entry::PAD | entry::CALLS | entry::WORLD_MASK;

/// An entry: its header, checked against the place it stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    pub stamp: u64,
    pub env: Envelope,
    pub frag: u64,
    pub flags: u32,
    /// Bytes of the stream that it takes.
    pub size: u64,
    /// Bytes of those that say anything: padding is a header only.
    pub told: u64,
}

impl Spot {
    /// The entry whose header is `head`, at `offset` of a chunk of `chunk` bytes.
    pub fn of(head: &[u8; HEADER_BYTES as usize], offset: u64, chunk: u64) -> Option<Spot> {
        let half =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let (len, frag, flags) = (word(8), u64::from(half(28)), half(32));
        let env = Envelope {
            len,
            ctx: half(16),
            tag: half(20) as i32,
            crank: half(24),
            flags: flags & entry::SYNC,
        };
        let pad = flags & entry::PAD != 0;
        let size = if pad { chunk - offset } else { entry::entry_bytes(frag) };
        let told = if pad { SLOT_BYTES } else { size };
        let plain = flags & !FLAGS == 0 && (!pad || (flags == entry::PAD && frag == 0));
        let fits = offset.checked_add(size)? <= chunk && frag <= len;
        let spot = Spot { stamp: word(0), env, frag, flags, size, told };
        (plain && fits).then_some(spot)
    }

    /// The same of a header that another node sent: names of functions are only in the logs of
    /// `eyrie verify`, which runs on one node.
    pub fn sent(head: &[u8; HEADER_BYTES as usize], offset: u64, chunk: u64) -> Option<Spot> {
        Spot::of(head, offset, chunk).filter(|spot| spot.flags & entry::CALLS == 0)
    }

    /// Whether its message wants an acknowledgement that stands in this entry.
    pub fn wants_ack(&self) -> bool {
        self.flags & (entry::FIRST | entry::SYNC) == entry::FIRST | entry::SYNC
    }

    /// The chain over headers, extended by this one.
    pub fn chain(&self, old: u64) -> u64 {
        entry::chain(old, &self.env, self.frag, self.flags)
    }
}

/// A position in the log of the stream from `src` to `dst`.
#[derive(Clone, Debug)]
pub struct Walk {
    src: u32,
    dst: u32,
    pos: u64,
    seq: u64,
    chain: u64,
    /// Number of the chunk that holds the position, and where it lies.
    chunk: Option<(u64, u32)>,
}

impl Walk {
    /// From the beginning of chunk number `n`, if it is in the log.
    pub fn from_chunk(seg: &Segment, src: u32, dst: u32, n: u64) -> Option<Walk> {
        let bytes = u64::from(seg.geometry().chunk_bytes);
        let mut walk = Walk { src, dst, pos: n * bytes, seq: 0, chain: 0, chunk: None };
        walk.enter(seg, n)?;
        let dir = seg.dir(src, dst, n);
        (walk.seq, walk.chain) = (dir.seq.load(Acquire), dir.chain.load(Acquire));
        Some(walk)
    }

    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Entries before the position.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The chain over their headers.
    pub fn chain(&self) -> u64 {
        self.chain
    }

    fn enter(&mut self, seg: &Segment, n: u64) -> Option<u32> {
        if let Some((number, index)) = self.chunk
            && number == n
        {
            return Some(index);
        }
        let index = chunk_index(seg, self.src, self.dst, n)?;
        self.chunk = Some((n, index));
        Some(index)
    }

    /// The entry at the position, if it is published; goes behind it.
    pub fn step(&mut self, seg: &Segment) -> Result<Option<Spot>, Damaged> {
        let chunk = u64::from(seg.geometry().chunk_bytes);
        let (n, offset) = (self.pos / chunk, self.pos % chunk);
        let Some(index) = self.enter(seg, n) else { return Ok(None) };
        let head = seg.chunk(self.src, index).as_ptr().wrapping_add(offset as usize);
        // SAFETY: `offset` is a multiple of the slot size below the chunk size: a header fits, and
        // it is aligned. The stamp is an atomic; the rest was written before it and does not change
        // (if a rank breaks that, the copy is checked all the same).
        let copy = unsafe {
            if (*head.cast::<Header>()).stamp.load(Acquire) != self.seq + 1 {
                return Ok(None);
            }
            head.cast::<[u8; HEADER_BYTES as usize]>().read_volatile()
        };
        let damaged = Damaged { src: self.src, dst: self.dst, pos: self.pos };
        let spot = Spot::of(&copy, offset, chunk).ok_or(damaged)?;
        self.pos += spot.size;
        self.seq += 1;
        self.chain = spot.chain(self.chain);
        Ok(Some(spot))
    }
}

/// Position behind the last entry of the stream from `src` to `dst` that is more than padding, if
/// the log still has that entry.
pub fn end(seg: &Segment, src: u32, dst: u32) -> Option<u64> {
    let ctl = seg.channel(src, dst);
    let chunks = ctl.chunks_first.load(Acquire)..ctl.chunks_next.load(Acquire);
    for n in chunks.rev() {
        let mut walk = Walk::from_chunk(seg, src, dst, n)?;
        let mut end = None;
        while let Ok(Some(spot)) = walk.step(seg) {
            if spot.flags & entry::PAD == 0 {
                end = Some(walk.pos());
            }
        }
        if end.is_some() {
            return end;
        }
    }
    None
}

/// Where chunk number `n` of a stream lies in its sender's pool.
pub fn chunk_index(seg: &Segment, src: u32, dst: u32, n: u64) -> Option<u32> {
    let index = dir_index(seg.dir(src, dst, n).tag.load(Acquire), n)?;
    (index < seg.geometry().pool_chunks).then_some(index)
}

/// Whether the receiver has acknowledged the entry at `pos` (which must be the start of one).
pub fn is_acknowledged(seg: &Segment, src: u32, dst: u32, pos: u64) -> bool {
    let chunk = u64::from(seg.geometry().chunk_bytes);
    let Some(index) = chunk_index(seg, src, dst, pos / chunk) else { return true };
    ack(seg, src, index, pos % chunk).is_none_or(|ack| ack.load(Acquire) == 1)
}

/// Acknowledges the entry at `pos` in the sender's log (which must be the start of one).
pub fn acknowledge(seg: &Segment, src: u32, dst: u32, pos: u64) {
    let chunk = u64::from(seg.geometry().chunk_bytes);
    let index = chunk_index(seg, src, dst, pos / chunk);
    if let Some(ack) = index.and_then(|index| ack(seg, src, index, pos % chunk)) {
        ack.store(1, Release);
    }
}

fn ack(seg: &Segment, src: u32, index: u32, offset: u64) -> Option<&std::sync::atomic::AtomicU32> {
    if !offset.is_multiple_of(SLOT_BYTES) {
        return None;
    }
    // SAFETY: a multiple of the slot size within the chunk: a header fits there and is aligned.
    // Only its atomic field is borrowed; the mapping lives as long as `seg`.
    unsafe {
        let head = seg.chunk(src, index).as_ptr().add(offset as usize).cast::<Header>();
        Some(&(*head).ack)
    }
}

/// A stretch of a stream in the log, for sending: where it lies and how long it is.
///
/// # Panics
/// When the stretch is not inside of one chunk.
pub fn stretch(seg: &Segment, src: u32, dst: u32, from: u64, bytes: u64) -> Option<*const u8> {
    let chunk = u64::from(seg.geometry().chunk_bytes);
    assert!(from % chunk + bytes <= chunk, "a stretch crosses chunks");
    let index = chunk_index(seg, src, dst, from / chunk)?;
    // SAFETY: inside of the chunk by the assertion.
    Some(unsafe { seg.chunk(src, index).as_ptr().add((from % chunk) as usize) })
}
