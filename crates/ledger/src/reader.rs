//! Reading a channel's stream from the sender's log.
//!
//! A `Reader` is a position; it is copied freely (a message that nobody has asked for yet is
//! remembered by the reader that stands before it). It never writes anything but the
//! acknowledgement flag. Lengths found in the log are checked before use: the log is memory that
//! other processes write.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::datagram;
use crate::entry::{self, Envelope, Header};
use crate::segment::Segment;
use crate::sendlog::dir_index;
use crate::walk::Spot;

/// One entry, as read.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub env: Envelope,
    pub flags: u32,
    /// Payload bytes here.
    pub frag: u64,
    /// First payload byte, in the log. Valid until the receiver no longer needs the entry.
    pub payload: *const u8,
    ack: *const Header,
    /// It came before the log had it (`datagram`), and lies elsewhere.
    early: bool,
}

impl Entry {
    pub fn is_early(&self) -> bool {
        self.early
    }

    pub fn is_first(&self) -> bool {
        self.flags & entry::FIRST != 0
    }

    pub fn is_last(&self) -> bool {
        self.flags & entry::LAST != 0
    }

    /// Number of the receiver's program that it is for.
    #[inline]
    pub fn world(&self) -> u32 {
        self.flags >> entry::WORLD_SHIFT
    }

    /// The entry that was found in `bytes`, where it begins.
    fn in_bytes(spot: &Spot, bytes: &[u8]) -> Entry {
        let payload = bytes[entry::payload_offset(spot.frag) as usize..].as_ptr();
        let (env, flags, frag) = (spot.env, spot.flags, spot.frag);
        Entry { env, flags, frag, payload, ack: ptr::null(), early: true }
    }

    /// Tells the sender that the message was matched (or, if remote, read).
    pub fn acknowledge(&self) {
        if self.early {
            return;
        }
        // SAFETY: points to the header this entry was read from; see `payload` for its lifetime.
        unsafe { (*self.ack).ack.store(1, Release) };
    }
}

/// A log that no correct sender can have written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("log of rank {src} for rank {dst} is damaged at position {pos}")]
pub struct Damaged {
    pub src: u32,
    pub dst: u32,
    pub pos: u64,
}

/// A position in the stream from `src` to `dst`.
#[derive(Clone, Copy)]
pub struct Reader {
    seg: &'static Segment,
    src: u32,
    dst: u32,
    chunk: u64,
    /// Stream position of the next entry.
    pub pos: u64,
    /// Entries before it.
    seq: u64,
    base: *const u8,
}

impl Reader {
    pub fn new(seg: &'static Segment, src: u32, dst: u32) -> Self {
        let chunk = u64::from(seg.geometry().chunk_bytes);
        Reader { seg, src, dst, chunk, pos: 0, seq: 0, base: ptr::null() }
    }

    /// Where the rank's program before this one stopped reading (`world`).
    pub fn follow(&mut self) {
        let ctl = self.seg.channel(self.src, self.dst);
        (self.pos, self.seq) = (ctl.rx_pos.load(Relaxed), ctl.rx_seq.load(Relaxed));
        self.base = ptr::null();
    }

    /// Lets the rank's next program begin here.
    #[inline]
    pub fn hand_on(&self) {
        let ctl = self.seg.channel(self.src, self.dst);
        ctl.rx_pos.store(self.pos, Relaxed);
        ctl.rx_seq.store(self.seq, Relaxed);
    }

    /// Goes to position `pos`, the start of an entry, from the beginning of its chunk. For readers
    /// that have no history; an entry that is not there yet leaves the reader before it.
    pub fn seek(&mut self, pos: u64) -> Result<bool, Damaged> {
        self.pos = pos - pos % self.chunk;
        self.seq = self.seg.dir(self.src, self.dst, pos / self.chunk).seq.load(Acquire);
        while self.pos < pos {
            let Some(entry) = self.peek()? else { return Ok(false) };
            self.pass(&entry);
        }
        Ok(true)
    }

    /// The sending rank.
    pub fn src(&self) -> u32 {
        self.src
    }

    /// After a restore: look the chunk up again.
    pub fn rebuild(&mut self) {
        self.base = ptr::null();
    }

    /// The entry at the position, if it is published. Padding is passed over.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Entry>, Damaged> {
        loop {
            let offset = self.pos & (self.chunk - 1);
            if (offset == 0 || self.base.is_null()) && !self.enter_chunk() {
                return Ok(None);
            }
            // SAFETY: `offset` is a multiple of the slot size below the chunk size, so a header
            // fits; the chunk is this channel's until the receiver's `need` has passed it.
            let head = unsafe { &*self.base.add(offset as usize).cast::<Header>() };
            let stamp = head.stamp.load(Acquire);
            if stamp != self.seq + 1 {
                return if stamp == 0 { Ok(None) } else { Err(self.damaged()) };
            }
            if head.flags & entry::PAD != 0 {
                self.pos += self.chunk - offset;
                self.seq += 1;
                continue;
            }
            let frag = u64::from(head.frag);
            if offset + entry::entry_bytes(frag) > self.chunk || frag > head.len {
                return Err(self.damaged());
            }
            let env = Envelope {
                len: head.len,
                ctx: head.ctx,
                tag: head.tag,
                crank: head.crank,
                flags: head.flags & (entry::SYNC | entry::REMOTE),
            };
            // SAFETY: in the chunk by the check above.
            let payload = unsafe { self.base.add((offset + entry::payload_offset(frag)) as usize) };
            let flags = head.flags;
            return Ok(Some(Entry { env, flags, frag, payload, ack: head, early: false }));
        }
    }

    /// The entry in `bytes`, an early message that says it stands at the position. It lies there.
    pub fn early(&self, bytes: &[u8]) -> Option<Entry> {
        let spot = datagram::entry(bytes, self.pos & (self.chunk - 1), self.chunk)?;
        if spot.stamp != self.seq + 1 {
            return None;
        }
        Some(Entry::in_bytes(&spot, bytes))
    }

    /// The entry in `bytes`, which came over a wire and says that it stands at `from`, if that is
    /// the position, or if only the padding lies between that is said to lie before it: that is
    /// passed over. The entry lies in `bytes`.
    pub fn part(&mut self, (from, padded): (u64, bool), bytes: &[u8]) -> Option<Entry> {
        let passes = from != self.pos;
        if passes && !(padded && entry::is_padding(self.pos, from, self.chunk)) {
            return None;
        }
        let spot = datagram::part(bytes, from & (self.chunk - 1), self.chunk)?;
        // Of what is between nothing but the padding has a number.
        if spot.stamp != self.seq + 1 + u64::from(passes) {
            return None;
        }
        if passes {
            (self.pos, self.seq, self.base) = (from, self.seq + 1, ptr::null());
        }
        Some(Entry::in_bytes(&spot, bytes))
    }

    /// Goes behind `entry`, which `peek`, `early` or `part` just returned.
    #[inline]
    pub fn pass(&mut self, entry: &Entry) {
        self.pos += entry::entry_bytes(entry.frag);
        self.seq += 1;
        if entry.early {
            // The log may not have this chunk yet.
            self.base = ptr::null();
        }
    }

    #[cold]
    fn enter_chunk(&mut self) -> bool {
        let n = self.pos / self.chunk;
        let tag = self.seg.dir(self.src, self.dst, n).tag.load(Acquire);
        match dir_index(tag, n) {
            Some(index) if index < self.seg.geometry().pool_chunks => {
                self.base = self.seg.chunk(self.src, index).as_ptr();
                true
            }
            _ => false,
        }
    }

    fn damaged(&self) -> Damaged {
        Damaged { src: self.src, dst: self.dst, pos: self.pos }
    }
}
