//! Mirrors: streams of ranks of other nodes, with the positions and the layout of their logs.
//!
//! A mirror lies in the pool of the (absent) sender in the segment of the receiver's node, so the
//! receiver reads it as if the sender were here, and if the sender is restored here it is part of
//! its log. It holds whole chunks, from the one that the receiver still needs.
//!
//! Kept true: bytes come from outside, and nothing of them is written before all that says anything
//! to a reader was checked, on memory of our own (the payload of a large entry may come right into
//! its place, `placing`); stamps are sequential and stored last, the first of a piece at the very
//! end; chunks are taken from the pool by the daemon only as long as the sender is not here.

use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::entry::{HEADER_BYTES, Header, SLOT_BYTES};
use crate::segment::Segment;
use crate::sendlog::{dir_index, dir_tag};
use crate::walk::{self, Spot, Walk};

mod placing;

pub use placing::Head;

/// Why a piece of a stream is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("a piece of {0} bytes does not fit its chunk")]
    Size(u64),
    #[error("the entry at position {0} is not one")]
    Entry(u64),
    #[error("the entry at position {pos} bears number {found}, {want} was due")]
    Stamp { pos: u64, want: u64, found: u64 },
    #[error("the headers before position {0} are not those that came")]
    Chain(u64),
    #[error("no room is left in the pool")]
    Full,
}

/// The chunks of one absent rank's pool.
#[derive(Debug)]
pub struct Pool {
    src: u32,
    free: Vec<u32>,
}

impl Pool {
    /// What the directories of `src` leave free.
    pub fn new(seg: &Segment, src: u32) -> Pool {
        let mut used = vec![false; seg.geometry().pool_chunks as usize];
        for dst in 0..seg.geometry().ranks {
            for n in numbers(seg, src, dst) {
                let index = walk::chunk_index(seg, src, dst, n);
                if let Some(slot) = index.and_then(|i| used.get_mut(i as usize)) {
                    *slot = true;
                }
            }
        }
        let free = used.iter().enumerate().filter(|(_, u)| !**u).map(|(i, _)| i as u32);
        Pool { src, free: free.rev().collect() }
    }

    /// Chunks that nobody uses.
    pub fn free(&self) -> u64 {
        self.free.len() as u64
    }

    /// Gives chunk number `n` of the stream to `dst` back, if it is there.
    fn give_back(&mut self, seg: &Segment, dst: u32, n: u64) {
        let dir = seg.dir(self.src, dst, n);
        if let Some(index) = dir_index(dir.tag.load(Relaxed), n) {
            dir.tag.store(0, Release);
            self.free.push(index);
        }
    }
}

/// Numbers of the chunks that may be in the directory of a stream.
fn numbers(seg: &Segment, src: u32, dst: u32) -> std::ops::Range<u64> {
    let ctl = seg.channel(src, dst);
    let next = ctl.chunks_next.load(Acquire);
    let first = ctl.chunks_first.load(Acquire);
    first.max(next.saturating_sub(seg.geometry().dir_cap()))..next
}

/// What of a stream has come.
#[derive(Debug)]
pub struct Mirror {
    src: u32,
    dst: u32,
    chunk: u64,
    /// Position up to which it is here.
    have: u64,
    /// Entries before that, and the chain over their headers; not known until the first comes.
    known: Option<(u64, u64)>,
}

impl Mirror {
    /// The mirror of the stream from `pool`'s rank to `dst`, for a receiver that reads from `need`
    /// on and does not run. What is here of it is kept from that chunk on.
    pub fn open(seg: &Segment, pool: &mut Pool, dst: u32, need: u64) -> Mirror {
        let (src, chunk) = (pool.src, u64::from(seg.geometry().chunk_bytes));
        let first = need / chunk;
        let mut mirror = Mirror { src, dst, chunk, have: first * chunk, known: None };
        if let Some(mut walk) = Walk::from_chunk(seg, src, dst, first) {
            while let Ok(Some(_)) = walk.step(seg) {}
            mirror.have = walk.pos();
            mirror.known = Some((walk.seq(), walk.chain()));
        }
        // Chunks behind a gap, or behind what is damaged, come again.
        let kept = first..mirror.have.div_ceil(chunk);
        for n in numbers(seg, src, dst).filter(|n| !kept.contains(n)) {
            pool.give_back(seg, dst, n);
        }
        let ctl = seg.channel(src, dst);
        ctl.chunks_first.store(first, Release);
        ctl.chunks_next.store(kept.end.max(first), Release);
        if mirror.have == first * chunk {
            mirror.known = None;
            pool.give_back(seg, dst, first);
        }
        mirror
    }

    /// Position up to which the stream is here.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// Takes the piece of the stream that begins at `have`. `chain` counts at the beginning of a
    /// chunk: that of the headers before. `sync` is called with the position of each entry that
    /// wants an acknowledgement.
    pub fn take(
        &mut self,
        seg: &Segment,
        pool: &mut Pool,
        chain: u64,
        bytes: &[u8],
        sync: impl FnMut(u64),
    ) -> Result<(), Refused> {
        let offset = self.have % self.chunk;
        let (seq, chain) = match self.known {
            Some((seq, own)) if offset > 0 || own == chain => (seq, own),
            Some(_) => return Err(Refused::Chain(self.have)),
            None => (stamp_of(bytes).wrapping_sub(1), chain),
        };
        let checked = self.check(bytes, seq, chain)?;
        if offset == 0 {
            self.enter(seg, pool, seq, chain)?;
        }
        let at = self.tip(seg).ok_or(Refused::Full)?;
        // SAFETY: `at` is where the mirror ends, and `bytes` fit its chunk, as `check` found.
        unsafe { self.publish(at, bytes, seq, checked, sync) };
        Ok(())
    }

    /// Writes entries and publishes them: what `checked` says, of which `bytes` are the beginning;
    /// `seq` lie before. What is behind those bytes is there already.
    ///
    /// # Safety
    /// `at` must be where the mirror ends (`tip`), and all of it, and `bytes`, within the chunk.
    unsafe fn publish(
        &mut self,
        at: *mut u8,
        bytes: &[u8],
        seq: u64,
        checked: Checked,
        mut sync: impl FnMut(u64),
    ) {
        let offset = self.have % self.chunk;
        // SAFETY: within the chunk by the caller's promise, and so is the slot behind if it is
        // written. The reader stops at the stamp at `at`, which is 0 until the last store: nobody
        // reads what is written here.
        unsafe {
            let rest = &bytes[size_of::<AtomicU64>()..];
            let to = at.add(size_of::<AtomicU64>());
            ptr::copy_nonoverlapping(rest.as_ptr(), to, rest.len());
            if offset + checked.size < self.chunk {
                let next = at.add(checked.size as usize).cast::<Header>();
                (*next).stamp.store(0, Relaxed);
            }
            for start in &checked.sync {
                (*at.add(*start as usize).cast::<Header>()).ack.store(0, Relaxed);
            }
            (*at.cast::<Header>()).stamp.store(seq + 1, Release);
        }
        checked.sync.iter().for_each(|start| sync(self.have + start));
        self.have += checked.size;
        self.known = Some((checked.seq, checked.chain));
    }

    /// Whether `bytes` are entries that follow here.
    fn check(&self, bytes: &[u8], mut seq: u64, mut chain: u64) -> Result<Checked, Refused> {
        let offset = self.have % self.chunk;
        let (mut told, mut size, mut sync) = (0, 0, Vec::new());
        let refused = Refused::Size(bytes.len() as u64);
        if bytes.is_empty() {
            return Err(refused);
        }
        while told < bytes.len() {
            let pos = self.have + size;
            let Some(head) = bytes[told..].first_chunk::<{ HEADER_BYTES as usize }>() else {
                return Err(refused);
            };
            if offset + size >= self.chunk {
                return Err(refused);
            }
            let spot = Spot::sent(head, offset + size, self.chunk).ok_or(Refused::Entry(pos))?;
            let want = seq.wrapping_add(1);
            if spot.stamp != want || want == 0 {
                return Err(Refused::Stamp { pos, want, found: spot.stamp });
            }
            if spot.wants_ack() {
                sync.push(size);
            }
            told += spot.told as usize;
            size += spot.size;
            seq = want;
            chain = spot.chain(chain);
        }
        if told != bytes.len() {
            return Err(refused);
        }
        Ok(Checked { seq, chain, size, sync })
    }

    /// Makes a chunk for the position, which is at its beginning.
    fn enter(&self, seg: &Segment, pool: &mut Pool, seq: u64, chain: u64) -> Result<(), Refused> {
        let n = self.have / self.chunk;
        let dir = seg.dir(self.src, self.dst, n);
        if dir_index(dir.tag.load(Relaxed), n).is_some() {
            return Ok(());
        }
        if dir.tag.load(Relaxed) != 0 {
            return Err(Refused::Full);
        }
        let index = pool.free.pop().ok_or(Refused::Full)?;
        wipe(seg, (self.src, self.dst), n, index);
        dir.seq.store(seq, Relaxed);
        dir.chain.store(chain, Relaxed);
        let ctl = seg.channel(self.src, self.dst);
        ctl.chunks_first.fetch_min(n, Release);
        ctl.chunks_next.fetch_max(n + 1, Release);
        dir.tag.store(dir_tag(n, index), Release);
        Ok(())
    }

    /// Gives back the chunks that the receiver, which needs the stream from `need` on, has passed.
    /// The chunk that is being filled stays.
    pub fn release(&mut self, seg: &Segment, pool: &mut Pool, need: u64) {
        let ctl = seg.channel(self.src, self.dst);
        let first = ctl.chunks_first.load(Relaxed);
        let upto = (need.min(self.have) / self.chunk).min(ctl.chunks_next.load(Relaxed));
        if first < upto {
            (first..upto).for_each(|n| pool.give_back(seg, self.dst, n));
            ctl.chunks_first.store(upto, Release);
        }
    }

    /// The receiver has passed all before `to`, the beginning of a chunk beyond what is here, and
    /// wants nothing of that any more: it never comes. What is here is given back.
    pub fn skip(&mut self, seg: &Segment, pool: &mut Pool, to: u64) {
        let ctl = seg.channel(self.src, self.dst);
        let first = ctl.chunks_first.load(Relaxed);
        for n in numbers(seg, self.src, self.dst) {
            pool.give_back(seg, self.dst, n);
        }
        ctl.chunks_first.store(first.max(to / self.chunk), Release);
        ctl.chunks_next.fetch_max(to / self.chunk, Release);
        (self.have, self.known) = (to, None);
    }

    /// Empties the rest of the chunk that is being filled, or is going to be.
    pub fn level(&self, seg: &Segment) {
        let Some(at) = self.tip(seg) else { return };
        let rest = self.chunk - self.have % self.chunk;
        // SAFETY: the rest of a chunk of this mirror, from `have` on: a reader that has come up to
        // there stops at its first stamp, which is 0, and who is ahead waits for `here`.
        unsafe { ptr::write_bytes(at, 0, rest as usize) };
    }

    /// Gives back everything: nobody here reads the stream any more.
    pub fn close(self, seg: &Segment, pool: &mut Pool) {
        clear(seg, pool, self.dst);
    }
}

/// Gives back what a stream has in the pool. Its receiver does not run here.
pub fn clear(seg: &Segment, pool: &mut Pool, dst: u32) {
    numbers(seg, pool.src, dst).for_each(|n| pool.give_back(seg, dst, n));
    let ctl = seg.channel(pool.src, dst);
    ctl.chunks_first.store(ctl.chunks_next.load(Relaxed), Release);
}

/// Makes a free chunk fit to be chunk number `n` of a stream. Its first stamp must be 0; a receiver
/// that was restored ahead of what is here looks at stamps behind that, too.
pub(crate) fn wipe(seg: &Segment, (src, dst): (u32, u32), n: u64, index: u32) {
    let (at, ctl) = (seg.chunk(src, index).as_ptr(), seg.channel(src, dst));
    let chunk = seg.geometry().chunk_bytes as usize;
    let ahead = ctl.front.load(Acquire).max(ctl.need.load(Acquire)) > n * chunk as u64;
    let bytes = if ahead { chunk } else { size_of::<AtomicU64>() };
    // SAFETY: within the chunk, which is free: it is in no directory, so nobody looks at it.
    unsafe { ptr::write_bytes(at, 0, bytes) };
}

/// Empties the free chunks of the pool of `src`, which comes to this node and does not run yet:
/// receivers that are restored later may be ahead of what it writes into them.
pub fn empty_pool(seg: &Segment, src: u32) {
    let chunk = seg.geometry().chunk_bytes as usize;
    for index in Pool::new(seg, src).free {
        let at = seg.chunk(src, index).as_ptr();
        // SAFETY: the chunk is free; what is punched out of the segment reads as zeros.
        let punched = unsafe { libc::madvise(at.cast(), chunk, libc::MADV_REMOVE) } == 0;
        if !punched {
            // SAFETY: as above.
            unsafe { ptr::write_bytes(at, 0, chunk) };
        }
    }
}

/// What a check found.
struct Checked {
    seq: u64,
    chain: u64,
    /// Bytes of the stream.
    size: u64,
    /// Offsets of the entries that want an acknowledgement.
    sync: Vec<u64>,
}

fn stamp_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

/// Adds chunk number `n` of a saved log to the log of `src`, which comes to this node and does not
/// run yet: the entries at the beginning of `bytes`, of which `seq` lie before the chunk, with
/// `chain` over their headers. What a mirror has of the chunk already stays. Returns whether there
/// was room.
///
/// # Errors
/// When the chunk does not go with what is here.
pub fn install(
    seg: &Segment,
    (src, dst): (u32, u32),
    n: u64,
    (seq, chain): (u64, u64),
    bytes: &[u8],
) -> Result<(), Refused> {
    let chunk = u64::from(seg.geometry().chunk_bytes);
    let mut pool = Pool::new(seg, src);
    let mut mirror = Mirror { src, dst, chunk, have: n * chunk, known: Some((seq, chain)) };
    if let Some(mut walk) = Walk::from_chunk(seg, src, dst, n) {
        if (walk.seq(), walk.chain()) != (seq, chain) {
            return Err(Refused::Chain(n * chunk));
        }
        while walk.pos() < (n + 1) * chunk && matches!(walk.step(seg), Ok(Some(_))) {}
        mirror.have = walk.pos();
        mirror.known = Some((walk.seq(), walk.chain()));
    }
    while mirror.have < (n + 1) * chunk {
        let offset = mirror.have % chunk;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let Some(head) = rest.first_chunk::<{ HEADER_BYTES as usize }>() else { break };
        let (seq, chain) = mirror.known.unwrap_or_default();
        let Some(spot) = Spot::sent(head, offset, chunk).filter(|s| s.stamp == seq + 1) else {
            break;
        };
        let mut entry = rest.get(..spot.told as usize).ok_or(Refused::Size(spot.told))?.to_vec();
        entry.resize(entry.len().max(SLOT_BYTES as usize), 0);
        mirror.take(seg, &mut pool, chain, &entry, |_| ())?;
    }
    Ok(())
}
