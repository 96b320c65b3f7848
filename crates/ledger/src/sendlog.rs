//! The send log of one rank: appends messages to its channels, compares where it repeats itself.
//!
//! Kept true: a stamp is stored last (release), and the next slot's stamp is zeroed before, so a
//! reader never takes old bytes for an entry, whenever the sender is killed. An entry that exists
//! is never changed; writing over it means comparing with it. All that must outlive the process is
//! in the segment; the private part (`Tx`) is in the process image and is thereby rolled back with
//! the program.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use crate::difference::{self, MessagePlace};
use crate::divergence::Divergence;
use crate::entry::{self, Envelope, Header, Step};
use crate::free::Free;
use crate::mirror::wipe;
use crate::segment::{ChannelCtl, RankCtl, Segment};
use crate::walk;

/// A message on its way into the log; keeps its place when the log is full in between.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pub env: Envelope,
    /// Payload bytes appended so far.
    pub done: u64,
    /// Position of its first entry (valid once `started`).
    pub start: u64,
    pub started: bool,
}

impl Outgoing {
    pub fn new(env: Envelope) -> Self {
        Outgoing { env, done: 0, start: 0, started: false }
    }
}

/// What an append came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Append {
    /// One entry is published; the message has more.
    Part,
    /// The last entry of the message is published.
    Whole,
    /// No chunk is free: try again when the log was trimmed.
    Full,
}

/// Private state of one outgoing channel.
struct Tx {
    ctl: &'static ChannelCtl,
    /// Stream position of the next entry.
    pos: u64,
    /// Entries before `pos`.
    seq: u64,
    chain: u64,
    /// Messages before `pos`.
    msgs: u64,
    /// Chunk that holds `pos`; null: not entered yet; `RELEASED`: trimmed, nothing to compare.
    base: *mut u8,
    /// Where the entries of earlier incarnations end, as long as `pos` is before that; else 0.
    until: u64,
    /// Number of the receiver's program that messages are for, where entries have it (`world`).
    to: u32,
}

impl Tx {
    /// Lets the rank's next program go on from here.
    #[inline]
    fn hand_on(&self) {
        self.ctl.tx_pos.store(self.pos, Relaxed);
        self.ctl.tx_seq.store(self.seq, Relaxed);
        self.ctl.tx_chain.store(self.chain, Relaxed);
        self.ctl.tx_msgs.store(self.msgs, Relaxed);
    }
}

/// Chunks that are made ready ahead of their use.
const READY_CHUNKS: usize = 4;
/// Bytes that are made ready at once: some 10 us.
const READY_STEP_BYTES: u64 = 16 * 1024;
const RELEASED: *mut u8 = ptr::without_provenance_mut(1);
const INDEX_BITS: u32 = 24;
/// Directory tag of chunk number `n` in pool chunk `index`.
pub(crate) const fn dir_tag(n: u64, index: u32) -> u64 {
    (n + 1) << INDEX_BITS | index as u64
}
/// Pool chunk in a directory tag, if it is the one of chunk number `n`.
pub(crate) const fn dir_index(tag: u64, n: u64) -> Option<u32> {
    if tag >> INDEX_BITS == n + 1 { Some((tag & ((1 << INDEX_BITS) - 1)) as u32) } else { None }
}

/// Stream position before which a channel need not be kept.
pub(crate) fn released(segment: &Segment, ctl: &ChannelCtl) -> u64 {
    let header = segment.header();
    let recording = header.recording();
    let retain = recording.retains() && ctl.inner.load(Relaxed) == 0;
    let trim = ctl.trim.load(Acquire);
    if recording.chains() && header.forgot.load(Relaxed) == 0 {
        return trim;
    }
    if retain && header.unprotected.load(Relaxed) == 0 {
        return trim;
    }
    trim.max(ctl.need.load(Acquire)).max(ctl.had.load(Acquire))
}

/// All outgoing channels of a rank and its log pool.
pub struct SendLog {
    seg: &'static Segment,
    ctl: &'static RankCtl,
    rank: u32,
    chunk: u64,
    /// Keep a hash chain over payloads too.
    hash: bool,
    tx: Vec<Tx>,
    free: Free,
    /// Chunks that this process has used, or made ready.
    met: Vec<bool>,
    /// Channels fill chunk after chunk: the next ones are worth being made ready.
    filling: bool,
    /// Chunk that is being made ready, and how far it is.
    ready: (u32, u64),
    /// Messages that existing entries still hold beyond what this incarnation has sent.
    behind: u64,
    /// Channels in which there are such entries, also of a message that is not whole.
    short: u32,
    /// The function that the program calls, for reports.
    call: &'static str,
    scratch: Vec<u8>,
}

impl SendLog {
    pub fn new(seg: &'static Segment, rank: u32) -> Self {
        let geo = seg.geometry();
        let tx = (0..geo.ranks).map(|d| Tx {
            ctl: seg.channel(rank, d),
            pos: 0,
            seq: 0,
            chain: 0,
            msgs: 0,
            base: ptr::null_mut(),
            until: 0,
            to: 0,
        });
        let (chunk, tx) = (u64::from(geo.chunk_bytes), tx.collect());
        let mut log = SendLog {
            seg,
            ctl: seg.rank(rank),
            rank,
            chunk,
            hash: seg.header().recording().chains(),
            tx,
            free: Free::default(),
            met: Vec::new(),
            filling: false,
            ready: (0, 0),
            behind: 0,
            short: 0,
            call: "",
            scratch: Vec::new(),
        };
        log.rebuild();
        log
    }

    /// The rank's program number `world` goes on where the one before it ended, and speaks to those
    /// of the same number.
    pub fn follow(&mut self, world: u32) {
        for tx in &mut self.tx {
            tx.to = world << entry::WORLD_SHIFT;
            (tx.pos, tx.seq) = (tx.ctl.tx_pos.load(Relaxed), tx.ctl.tx_seq.load(Relaxed));
            (tx.chain, tx.msgs) = (tx.ctl.tx_chain.load(Relaxed), tx.ctl.tx_msgs.load(Relaxed));
        }
        self.rebuild();
    }

    /// What is sent to `dst` from now on is for its program number `world`.
    pub fn address(&mut self, dst: u32, world: u32) {
        self.tx[dst as usize].to = world << entry::WORLD_SHIFT;
    }

    /// Number of the program of `dst` that messages are for.
    pub fn addressed(&self, dst: u32) -> u32 {
        self.tx[dst as usize].to >> entry::WORLD_SHIFT
    }

    /// Lets the rank's next program go on from here, on all channels.
    pub fn hand_on(&self) {
        self.tx.iter().for_each(Tx::hand_on);
    }

    /// Derives what hangs on the segment's state, after a start or restore.
    pub fn rebuild(&mut self) {
        let mut used = vec![false; self.seg.geometry().pool_chunks as usize];
        self.met = vec![false; used.len()];
        (self.filling, self.ready) = (false, (0, 0));
        (self.behind, self.short) = (0, 0);
        for d in 0..self.tx.len() as u32 {
            let ctl = self.tx[d as usize].ctl;
            for n in ctl.chunks_first.load(Acquire)..ctl.chunks_next.load(Acquire) {
                let tag = self.seg.dir(self.rank, d, n).tag.load(Acquire);
                if let Some(slot) = dir_index(tag, n).and_then(|i| used.get_mut(i as usize)) {
                    *slot = true;
                }
            }
            let tx = &mut self.tx[d as usize];
            self.behind += ctl.msgs.load(Relaxed).saturating_sub(tx.msgs);
            tx.until = walk::end(self.seg, self.rank, d).filter(|end| *end > tx.pos).unwrap_or(0);
            self.short += u32::from(tx.until > 0);
            // A chunk released meanwhile may belong to another channel now.
            if !tx.pos.is_multiple_of(self.chunk) && tx.base != RELEASED {
                let tag = self.seg.dir(self.rank, d, tx.pos / self.chunk).tag.load(Acquire);
                tx.base = match dir_index(tag, tx.pos / self.chunk) {
                    Some(i) => self.seg.chunk(self.rank, i).as_ptr(),
                    None => RELEASED,
                };
            }
        }
        self.free = Free::new(&self.seg.geometry(), &used);
        self.seg.wish_huge_pages(self.rank);
        self.count_used();
    }

    fn count_used(&self) {
        let total = self.seg.geometry().pool_chunks as usize;
        let used = (total - self.free.count()) as u64;
        self.ctl.chunks_used.store(used, Relaxed);
    }

    /// The program calls this function.
    #[inline]
    pub fn called(&mut self, name: &'static str) {
        self.call = name;
    }

    /// Flags of a message that it sends.
    #[inline]
    pub fn call_bits(&self) -> u32 {
        if self.hash { difference::call_bits(self.call) } else { 0 }
    }

    /// Messages this incarnation has yet to repeat before it sends anything new.
    pub fn behind(&self) -> u64 {
        self.behind
    }

    /// Whether it has yet to repeat anything: one of those, or the beginning of the next.
    pub fn is_behind(&self) -> bool {
        self.behind > 0 || self.short > 0
    }

    /// What is said of a channel when more of it was repeated.
    #[cold]
    fn comes_up(&mut self, dst: u32) {
        let tx = &mut self.tx[dst as usize];
        if tx.until > 0 && tx.pos >= tx.until {
            tx.until = 0;
            self.short -= 1;
        }
    }

    /// Whether the receiver has acknowledged the message that starts at `start`.
    pub fn acknowledged(&self, dst: u32, start: u64) -> bool {
        let ctl = self.tx[dst as usize].ctl;
        if ctl.trim.load(Acquire) > start || ctl.need.load(Acquire) > start {
            return true;
        }
        let n = start / self.chunk;
        match dir_index(self.seg.dir(self.rank, dst, n).tag.load(Acquire), n) {
            // SAFETY: `start` is the position of an entry this rank published in that chunk.
            Some(i) => unsafe {
                let at = self.seg.chunk(self.rank, i).as_ptr().add((start % self.chunk) as usize);
                (*at.cast::<Header>()).ack.load(Acquire) == 1
            },
            None => true,
        }
    }

    /// Position where the channel to `dst` ends.
    pub fn position(&self, dst: u32) -> u64 {
        self.tx[dst as usize].pos
    }

    /// Position that the first entry of the next message to `dst`, `len` bytes long, will have.
    pub fn next_start(&self, dst: u32, len: u64) -> u64 {
        let pos = self.tx[dst as usize].pos;
        match entry::step(pos & (self.chunk - 1), self.chunk, len) {
            Step::Pad => (pos | (self.chunk - 1)) + 1,
            Step::Entry(_) => pos,
        }
    }

    /// Appends the next entry of `msg` to the channel to `dst`. `fill(offset, out)` writes the
    /// message's payload bytes from `offset` on.
    #[inline]
    pub fn append(
        &mut self,
        dst: u32,
        msg: &mut Outgoing,
        mut fill: impl FnMut(u64, &mut [u8]),
    ) -> Result<Append, Divergence> {
        let chunk = self.chunk;
        loop {
            let tx = &self.tx[dst as usize];
            let (offset, to) = (tx.pos & (chunk - 1), tx.to);
            if (offset == 0 || tx.base.is_null()) && !self.enter_chunk(dst)? {
                return Ok(Append::Full);
            }
            let (frag, flags, size, env) = match entry::step(offset, chunk, msg.env.len - msg.done)
            {
                Step::Pad => {
                    let env = Envelope { len: 0, ctx: 0, tag: 0, crank: 0, flags: 0 };
                    (0, entry::PAD, chunk - offset, env)
                }
                Step::Entry(frag) => {
                    let first = if msg.started { 0 } else { entry::FIRST };
                    let last = if msg.done + frag == msg.env.len { entry::LAST } else { 0 };
                    let flags = to | msg.env.flags | first | last;
                    (frag, flags, entry::entry_bytes(frag), msg.env)
                }
            };
            let pad = flags & entry::PAD != 0;
            let at = msg.done;
            self.put(dst, offset, (&env, at), frag, flags, size, |out| fill(at, out))?;
            if pad {
                continue;
            }
            if !msg.started {
                msg.started = true;
                msg.start = self.tx[dst as usize].pos - size;
                if flags & entry::SYNC != 0 {
                    self.look_ahead(dst, msg.start);
                }
            }
            msg.done += frag;
            if self.short > 0 {
                self.comes_up(dst);
            }
            if msg.done == msg.env.len {
                self.count_message(dst, msg.env.len);
            }
            self.tx[dst as usize].hand_on();
            return Ok(if msg.done < msg.env.len { Append::Part } else { Append::Whole });
        }
    }

    /// A receiver that was restored ahead of this rank has matched the message already.
    #[cold]
    fn look_ahead(&self, dst: u32, at: u64) {
        // Whoever restores it stores its need first and then looks for what is published.
        fence(SeqCst);
        if self.tx[dst as usize].ctl.need.load(Acquire) > at {
            walk::acknowledge(self.seg, self.rank, dst, at);
        }
    }

    #[inline]
    fn count_message(&mut self, dst: u32, len: u64) {
        let tx = &mut self.tx[dst as usize];
        tx.msgs += 1;
        let stats = self.ctl;
        if self.behind > 0 && tx.msgs <= tx.ctl.msgs.load(Relaxed) {
            self.behind -= 1;
            stats.replayed.store(stats.replayed.load(Relaxed) + 1, Relaxed);
            return;
        }
        tx.ctl.msgs.store(tx.msgs, Relaxed);
        tx.ctl.bytes.store(tx.ctl.bytes.load(Relaxed) + len, Relaxed);
        stats.msgs_sent.store(stats.msgs_sent.load(Relaxed) + 1, Relaxed);
        stats.bytes_sent.store(stats.bytes_sent.load(Relaxed) + len, Relaxed);
    }

    /// Writes one entry at the channel's position, or compares it with the one that is there.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn put(
        &mut self,
        dst: u32,
        offset: u64,
        (env, at): (&Envelope, u64),
        frag: u64,
        flags: u32,
        size: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Divergence> {
        let hash = self.hash;
        let tx = &mut self.tx[dst as usize];
        let stamp = tx.seq + 1;
        let base = tx.base;
        if base != RELEASED {
            // SAFETY: `offset + size <= chunk` by the layout rule; the chunk belongs to this
            // channel (directory) and only this process writes entries of it.
            unsafe {
                let head = base.add(offset as usize).cast::<Header>();
                let payload = base.add((offset + entry::payload_offset(frag)) as usize);
                match (*head).stamp.load(Acquire) {
                    0 => {
                        (*head).len = env.len;
                        (*head).ctx = env.ctx;
                        (*head).tag = env.tag;
                        (*head).crank = env.crank;
                        (*head).frag = frag as u32;
                        (*head).flags = flags;
                        (*head).ack.store(0, Relaxed);
                        if frag > 0 {
                            fill(std::slice::from_raw_parts_mut(payload, frag as usize));
                        }
                        if offset + size < self.chunk {
                            let next = base.add((offset + size) as usize).cast::<Header>();
                            (*next).stamp.store(0, Relaxed);
                        }
                        if hash && flags & entry::PAD == 0 {
                            let bytes = std::slice::from_raw_parts(payload, frag as usize);
                            let seen = xxhash_rust::xxh3::xxh3_64_with_seed(bytes, tx.chain);
                            let old = tx.ctl.hash.load(Relaxed);
                            let mixed = entry::chain(old ^ seen, env, frag, flags);
                            tx.ctl.hash.store(mixed, Relaxed);
                        }
                        (*head).stamp.store(stamp, Release);
                    }
                    found if found == stamp => {
                        let kept = Kept { head: &*head, payload };
                        self.scratch.resize(frag as usize, 0);
                        if frag > 0 {
                            fill(&mut self.scratch);
                        }
                        let number = tx.msgs + 1;
                        let (src, call, env) = (self.rank, self.call, Envelope { flags, ..*env });
                        let place = MessagePlace { src, dst, number, call, env };
                        kept.compare(&place, at, frag, &self.scratch)?;
                    }
                    found => return Err(Divergence::stamp(self.rank, dst, stamp, found)),
                }
            }
        }
        tx.chain = entry::chain(tx.chain, env, frag, flags);
        tx.seq = stamp;
        tx.pos += size;
        Ok(())
    }

    /// Makes `base` point to the chunk of the channel's position. False when the log is full.
    #[cold]
    fn enter_chunk(&mut self, dst: u32) -> Result<bool, Divergence> {
        let tx = &self.tx[dst as usize];
        let n = tx.pos / self.chunk;
        let dir = self.seg.dir(self.rank, dst, n);
        if let Some(index) = dir_index(dir.tag.load(Acquire), n) {
            let kept = (dir.seq.load(Relaxed), dir.chain.load(Relaxed));
            if kept != (tx.seq, tx.chain) {
                return Err(Divergence::chain(self.rank, dst, n, kept, (tx.seq, tx.chain)));
            }
            self.tx[dst as usize].base = self.seg.chunk(self.rank, index).as_ptr();
            return Ok(true);
        }
        if tx.ctl.chunks_next.load(Relaxed) > n && self.released(dst) >= (n + 1) * self.chunk {
            self.tx[dst as usize].base = RELEASED;
            return Ok(true);
        }
        self.reclaim(dst);
        if self.free.is_empty() {
            (0..self.tx.len() as u32).for_each(|d| self.reclaim(d));
        }
        if self.free.is_empty() && self.hash {
            self.seg.header().forgot.store(1, Relaxed);
            (0..self.tx.len() as u32).for_each(|d| self.reclaim(d));
        }
        let Some(index) = self.free.take(n) else { return Ok(false) };
        let met = std::mem::replace(&mut self.met[index as usize], true);
        // A channel that fills more than one is going to fill this, too: a page at a time, by
        // faults, its memory would take half as long again.
        if n > 0 && !met {
            self.seg.populate(self.rank, index, (0, self.chunk));
        }
        self.filling |= n > 0;
        let tx = &mut self.tx[dst as usize];
        tx.base = self.seg.chunk(self.rank, index).as_ptr();
        wipe(self.seg, (self.rank, dst), n, index);
        dir.seq.store(tx.seq, Relaxed);
        dir.chain.store(tx.chain, Relaxed);
        // Chunks that came over a link while the rank was elsewhere may lie ahead of a gap, and
        // this one may come again that was given back then: it must not be forgotten.
        tx.ctl.chunks_first.fetch_min(n, Release);
        tx.ctl.chunks_next.fetch_max(n + 1, Release);
        dir.tag.store(dir_tag(n, index), Release);
        self.count_used();
        Ok(true)
    }

    /// Makes a little of the memory that is filled next ready for being written, which would cost
    /// the sender more: for a rank that has to wait. False: all is ready.
    #[inline]
    pub fn prepare(&mut self) -> bool {
        self.filling && self.prepare_more()
    }

    #[cold]
    fn prepare_more(&mut self) -> bool {
        let next = self.free.next().take(READY_CHUNKS).find(|i| !self.met[*i as usize]);
        let Some(index) = next else {
            self.filling = false;
            return false;
        };
        if self.ready.0 != index {
            self.ready = (index, 0);
        }
        let from = self.ready.1;
        let bytes = READY_STEP_BYTES.min(self.chunk - from);
        self.seg.populate(self.rank, index, (from, bytes));
        self.ready.1 += bytes;
        if self.ready.1 == self.chunk {
            self.met[index as usize] = true;
            self.ready = (0, 0);
        }
        true
    }

    fn released(&self, dst: u32) -> u64 {
        released(self.seg, self.tx[dst as usize].ctl)
    }

    /// Takes back the chunks of the channel to `dst` that nobody needs.
    fn reclaim(&mut self, dst: u32) {
        let upto = self.released(dst) / self.chunk;
        let tx = &self.tx[dst as usize];
        // The chunk that the position is in stays, also while a replay is behind it.
        let upto = upto.min(tx.ctl.chunks_next.load(Relaxed).saturating_sub(1));
        let first = tx.ctl.chunks_first.load(Relaxed);
        for n in first..upto {
            let dir = self.seg.dir(self.rank, dst, n);
            if let Some(index) = dir_index(dir.tag.load(Relaxed), n) {
                dir.tag.store(0, Release);
                self.free.give_back(index);
            }
            tx.ctl.chunks_first.store(n + 1, Release);
        }
    }
}

/// An entry found where one is to be written.
struct Kept<'a> {
    head: &'a Header,
    payload: *const u8,
}

impl Kept<'_> {
    /// # Safety
    /// `payload` must hold `frag` bytes, which are those from `offset` of the message on.
    unsafe fn compare(
        &self,
        place: &MessagePlace,
        offset: u64,
        frag: u64,
        payload: &[u8],
    ) -> Result<(), Divergence> {
        let head = self.head;
        let kept = Envelope {
            len: head.len,
            ctx: head.ctx,
            tag: head.tag,
            crank: head.crank,
            flags: head.flags,
        };
        if kept != place.env || u64::from(head.frag) != frag {
            return Err(Divergence::header(place, &kept, &place.env));
        }
        // SAFETY: the entry's length was just found to be `frag`.
        let old = unsafe { std::slice::from_raw_parts(self.payload, frag as usize) };
        // A remote entry's payload is an address of the old process; it says nothing.
        if kept.flags & entry::REMOTE == 0 && old != payload {
            return Err(Divergence::payload(place, offset, old, payload));
        }
        Ok(())
    }
}
