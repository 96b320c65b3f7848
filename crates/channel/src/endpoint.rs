//! One rank's end of all its channels.
//!
//! Holds the send log, a reader for every incoming channel, and the door; enters and leaves the
//! library; notices that the process was restored and has everything below rebuilt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use eyrie_ledger::dirty::Bell;
use eyrie_ledger::divergence::Divergence;
use eyrie_ledger::door::{Call, Door, Outcome, Verdict};
use eyrie_ledger::entry::{Envelope, REMOTE};
use eyrie_ledger::reader::{Entry, Reader};
use eyrie_ledger::segment::{
    ASLEEP_REMOTE, ChannelCtl, RankCtl, STATE_ABORTED, STATE_DIVERGED, STATE_FINALIZED, STATE_LEFT,
    STATE_RUNNING, Segment,
};
use eyrie_ledger::sendlog::{Append, Outgoing, SendLog};

use crate::alive;
use crate::counters::Counters;
use crate::datagram::DatagramPath;
use crate::direct_connection::Given;
use crate::dormant::room_of;
use crate::perturbation::Perturbation;
use crate::presence::{Presence, ring_daemon};
use crate::remote;
use crate::single_copy::{self, SingleCopy};
use crate::waiting::{self, Nap, Round, SpinPolicy};

mod among;
mod course;
mod failures;
mod repeating;
mod windows;

pub use windows::Apart;

/// Exit code of a rank whose replay diverged (the daemon reads the report in the segment).
pub const EXIT_DIVERGED: i32 = 86;
/// Exit code of a rank that met a damaged segment.
const EXIT_DAMAGED: i32 = 87;
/// Payload of a remote message's entry: address, length, process.
const NOTE_BYTES: usize = 24;
/// Most bytes that a rank sends to other nodes ahead of what it waits for.
const AHEAD_FAR_BYTES: u64 = 4 << 20;
/// Fruitless rounds of waiting after which log memory is made ready.
const PREPARE_AFTER: u32 = 50;

/// One incoming channel: the reader at its front, and what of it is still needed.
struct Rx {
    reader: Reader,
    ctl: &'static ChannelCtl,
    /// Messages read past but not matched yet: start position and whether still unmatched.
    held: VecDeque<(u64, bool)>,
    /// How far the reader was when the links were woken last.
    told: u64,
    /// The links have heard that datagrams are taken.
    open: bool,
    /// Messages were taken ahead of the log that the log may not have yet.
    ahead: bool,
}

impl Rx {
    fn publish_need(&mut self) {
        while let Some((_, false)) = self.held.front() {
            self.held.pop_front();
        }
        let mut need = self.held.front().map_or(self.reader.pos, |(pos, _)| *pos);
        self.ctl.passed.store(need, Release);
        if self.ahead {
            // Nobody is told to do without what has not come; but a rank that is restored elsewhere
            // needs no more than before, however little its new node has of the stream.
            need = need.min(self.ctl.here.load(Acquire).max(self.ctl.need.load(Acquire)));
        }
        self.ctl.need.store(need, Release);
    }
}

/// Whether large messages are read straight out of their sender's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    No,
    /// They are, and not logged.
    InPlaceOfLog,
    /// They may be, while they are logged.
    WhileLogged,
}

/// A rank's end of all its channels.
pub struct Endpoint {
    seg: &'static Segment,
    ctl: &'static RankCtl,
    rank: u32,
    size: u32,
    log: SendLog,
    rx: Vec<Rx>,
    peers: Vec<&'static RankCtl>,
    pub door: Door,
    presence: Presence,
    incarnation: u32,
    spin: SpinPolicy,
    replaying: bool,
    counters: Arc<Counters>,
    readable: Readable,
    /// Outcomes are recorded, so that the rank can be repeated.
    repeatable: bool,
    /// There are other nodes.
    linked: bool,
    /// Messages may come before the links bring them.
    datagrams: Option<DatagramPath>,
    /// Sleeps in a row.
    naps: u32,
    /// Messages are delayed and hastened on purpose.
    perturbation: Option<Perturbation>,
    /// Number of the rank's program (`join`).
    world: u32,
}

impl Endpoint {
    /// Takes the place of `rank` in the job of `seg`.
    pub fn join(seg: &'static Segment, rank: u32) -> Self {
        let size = seg.geometry().ranks;
        let ctl = seg.rank(rank);
        // Before anything is read that a restore changes: an image may be taken in the middle of
        // this, and who comes back from it has to notice.
        let incarnation = ctl.incarnation.load(Acquire);
        let world = ctl.world.load(Acquire);
        let header = seg.header();
        let protect = header.recording().protects();
        let readable = match size > 1 && remote::works() {
            false => Readable::No,
            // Nor may a message go with the memory of who is lost, or gives an operation up.
            true if protect || seg.reports_failures() => Readable::WhileLogged,
            true => Readable::InPlaceOfLog,
        };
        if readable != Readable::No {
            remote::permit();
        }
        let rx = (0..size).map(|s| Rx {
            reader: Reader::new(seg, s, rank),
            ctl: seg.channel(s, rank),
            held: VecDeque::new(),
            told: 0,
            open: false,
            ahead: false,
        });
        let mut ep = Endpoint {
            seg,
            ctl,
            rank,
            size,
            log: SendLog::new(seg, rank),
            rx: rx.collect(),
            peers: (0..size).map(|r| seg.rank(r)).collect(),
            door: Door::new(seg, rank),
            presence: Presence::new(ctl, header),
            incarnation,
            spin: Self::spin(seg),
            replaying: false,
            counters: Arc::default(),
            readable,
            repeatable: header.recording().outcomes(),
            linked: header.linked.load(Relaxed) != 0,
            datagrams: None,
            naps: 0,
            perturbation: Perturbation::new(header.whim.load(Relaxed), rank, size),
            world,
        };
        if world > 0 {
            ep.follow();
        }
        ep.hand_on();
        ctl.pid.store(std::process::id(), Relaxed);
        alive::arm(ctl);
        ep.hide_all();
        ep.open_datagrams();
        ctl.state.store(STATE_RUNNING, Release);
        ep.rx.iter_mut().for_each(Rx::publish_need);
        ep.begin_replay();
        if world > 0 {
            ep.begin_world();
        }
        ep
    }

    /// Goes on in all streams where the rank's program before this one ended.
    fn follow(&mut self) {
        self.log.follow(self.world);
        self.door.follow(self.world);
        for src in 0..self.size {
            let far = self.seg.rank(src).sleeping.load(Relaxed) == ASLEEP_REMOTE;
            let rx = &mut self.rx[src as usize];
            rx.reader.follow();
            rx.told = rx.reader.pos;
            rx.ahead = far && rx.ctl.here.load(Acquire) <= rx.reader.pos;
        }
    }

    /// Records that this program begins, or sees that it began when it was run first.
    fn begin_world(&mut self) {
        let own = Outcome::One(self.world);
        match self.door.ask(Call::World) {
            Ok(Verdict::Live) => self.door.record(Call::World, &own),
            Ok(Verdict::Forced(was)) if was == own => {}
            Ok(_) => {
                let (rank, world) = (self.rank, self.world);
                let text = format!("rank {rank}: program number {world} was not begun before here");
                self.diverged(&Divergence(text));
            }
            Err(d) => self.diverged(&d),
        }
        self.end_replay();
    }

    /// Lets the rank's next program go on from where this one is.
    fn hand_on(&self) {
        self.log.hand_on();
        self.rx.iter().for_each(|rx| rx.reader.hand_on());
    }

    /// Number of the rank's program, 0 for the first.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// By the ranks of this node, and by the threads of the links if there are other nodes.
    fn spin(seg: &Segment) -> SpinPolicy {
        // Those that wait for programs take no time.
        let size = seg.geometry().ranks - room_of(seg);
        let own =
            (0..size).filter(|r| seg.rank(*r).home.load(Relaxed) == seg.node()).count() as u32;
        SpinPolicy::new(own, seg.header().cores.load(Relaxed), own < size)
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of the node that a rank has its home on now, as far as this one knows.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.peers[rank as usize].home.load(Relaxed)
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether large messages to `dst` are read out of this process's memory.
    pub fn single_copy(&self, dst: u32) -> bool {
        self.readable == Readable::InPlaceOfLog && self.is_neighbour(dst)
    }

    /// Whether large messages to `dst` can be read out of this process's memory while they are
    /// logged.
    pub fn offers_to(&self, dst: u32) -> bool {
        self.shows() && self.is_neighbour(dst)
    }

    /// Whether it is another rank of this node.
    fn is_neighbour(&self, peer: u32) -> bool {
        peer != self.rank && !self.is_far(peer)
    }

    /// Whether `peer` has its home on another node.
    #[inline]
    pub fn is_far(&self, peer: u32) -> bool {
        self.peers[peer as usize].sleeping.load(Relaxed) == ASLEEP_REMOTE
    }

    // ---- presence and restore

    /// Into the library. True: the process was restored since the last call; the caller rebuilds
    /// what hangs on the door, then says `rebuilt`.
    #[inline]
    #[must_use]
    pub fn enter(&mut self) -> bool {
        self.presence.enter();
        self.ctl.incarnation.load(Relaxed) != self.incarnation && self.restored()
    }

    /// The end of init, which was inside: images may be taken again.
    pub(crate) fn arrive(&mut self) {
        self.presence.enter();
        self.presence.leave();
    }

    #[inline]
    pub fn leave(&mut self) {
        if self.datagrams.as_ref().is_some_and(DatagramPath::is_unsent) {
            self.settle();
        }
        if self.replaying {
            self.tell_end();
        }
        self.presence.leave();
    }

    #[cold]
    fn settle(&mut self) {
        self.datagrams.iter_mut().for_each(|path| path.settle(self.seg));
    }

    #[cold]
    fn restored(&mut self) -> bool {
        self.incarnation = self.ctl.incarnation.load(Acquire);
        self.ctl.pid.store(std::process::id(), Relaxed);
        self.presence.mark.renew();
        self.hide_all();
        self.open_datagrams();
        self.log.rebuild();
        for rx in &mut self.rx {
            rx.reader.rebuild();
            rx.publish_need();
        }
        self.door.rebuild();
        // What the process before this one handed on was further.
        self.hand_on();
        true
    }

    /// Where the rank is (`LIB_*`), for whoever may not touch anything else.
    pub fn place(&self) -> &'static std::sync::atomic::AtomicU32 {
        &self.ctl.lib
    }

    /// The number of the rank's process, likewise.
    pub fn process(&self) -> &'static std::sync::atomic::AtomicU32 {
        &self.ctl.pid
    }

    /// Opens the socket for datagrams; that of an earlier process is not here.
    fn open_datagrams(&mut self) {
        self.datagrams = None;
        self.rx.iter_mut().for_each(|rx| rx.open = false);
        if self.linked {
            self.datagrams = DatagramPath::open(self.seg, self.rank, self.spin.is_scarce());
        }
    }

    /// How often a look for an answer from another core is worth it.
    #[inline]
    pub fn looks(&self) -> u32 {
        self.spin.looks()
    }

    // ---- sending

    /// Appends entries of `msg` until it is whole (true) or the log is full (false).
    #[inline]
    pub fn append(
        &mut self,
        dst: u32,
        msg: &mut Outgoing,
        mut fill: impl FnMut(u64, &mut [u8]),
    ) -> bool {
        loop {
            let before = self.log.position(dst);
            match self.log.append(dst, msg, &mut fill) {
                Ok(Append::Whole) => {
                    self.counters.sent(msg.env.len);
                    self.ring(dst, msg, before);
                    return true;
                }
                Ok(Append::Part) => self.ring(dst, msg, before),
                Ok(Append::Full) => {
                    // What waits for more of the message is what there is room after.
                    self.datagrams.iter_mut().for_each(|path| path.push(self.seg));
                    return false;
                }
                Err(d) => self.diverged(&d),
            }
        }
    }

    /// There is an entry of `msg` more in the stream to `dst`, which ended at `before`.
    #[inline]
    fn ring(&mut self, dst: u32, msg: &Outgoing, before: u64) {
        if !waiting::ring(self.peers[dst as usize]) {
            self.ring_links(dst, msg, before);
        }
    }

    #[cold]
    fn ring_links(&mut self, dst: u32, msg: &Outgoing, before: u64) {
        let mut went = false;
        if let Some(path) = self.datagrams.as_mut().filter(|_| !self.replaying) {
            let (end, chunk) = (self.log.position(dst), u64::from(self.seg.geometry().chunk_bytes));
            // An entry lies in one chunk: before it there is nothing, or the padding of another.
            let from = before.max((end - 1) / chunk * chunk);
            let (first, last) = (from == msg.start, msg.done == msg.env.len);
            let new = Given { before, from, end, first, last };
            went = path.send(self.seg, dst, msg, new);
        }
        let bell = if went { Bell::Tick } else { Bell::Ring };
        self.seg.mark_dirty(self.rank, dst, bell);
    }

    /// Appends like `append` a message that lies at `at` in one piece, and lets the receiver read
    /// it there until it is whole in the log.
    pub fn append_offered(
        &mut self,
        dst: u32,
        msg: &mut Outgoing,
        at: *const u8,
        fill: impl FnMut(u64, &mut [u8]),
    ) -> bool {
        if !self.offers_to(dst) {
            return self.append(dst, msg, fill);
        }
        let ctl = self.seg.channel(self.rank, dst);
        if !msg.started {
            let start = self.log.next_start(dst, msg.env.len);
            single_copy::offer(ctl, start, at as u64, std::process::id(), self.incarnation);
        }
        let whole = self.append(dst, msg, fill);
        if whole {
            single_copy::withdraw(ctl, self.spin.looks());
        }
        whole
    }

    /// What an earlier incarnation showed is not ours to stand by.
    fn hide_all(&self) {
        (0..self.size).for_each(|d| single_copy::withdraw(self.seg.channel(self.rank, d), 0));
    }

    /// Appends a notice that `len` bytes lie at `addr` in this process. See `append`.
    pub fn append_remote(
        &mut self,
        dst: u32,
        msg: &mut Outgoing,
        addr: *const u8,
        len: u64,
    ) -> bool {
        let mut note = [0u8; NOTE_BYTES];
        note[..8].copy_from_slice(&(addr as u64).to_le_bytes());
        note[8..16].copy_from_slice(&len.to_le_bytes());
        note[16..20].copy_from_slice(&std::process::id().to_le_bytes());
        let whole = self.append(dst, msg, |_, out| out.copy_from_slice(&note[..out.len()]));
        if whole {
            self.counters.sent_beside(len.wrapping_sub(NOTE_BYTES as u64));
        }
        whole
    }

    /// Envelope of a remote message: its entry carries a note instead of the payload.
    pub fn remote_envelope(env: Envelope) -> Envelope {
        Envelope { len: NOTE_BYTES as u64, flags: env.flags | REMOTE, ..env }
    }

    /// Bytes of the message that starts with `entry`, wherever its payload is.
    #[inline]
    pub fn message_bytes(&self, entry: &Entry) -> u64 {
        if entry.flags & REMOTE == 0 { entry.env.len } else { Self::note(entry).1 }
    }

    /// Address, length and process of a remote message's payload.
    fn note(entry: &Entry) -> (u64, u64, u32) {
        let mut note = [0u8; NOTE_BYTES];
        if entry.frag == NOTE_BYTES as u64 {
            // SAFETY: `peek` checked that the entry holds `frag` bytes.
            note.copy_from_slice(unsafe { std::slice::from_raw_parts(entry.payload, NOTE_BYTES) });
        }
        let half =
            |at: usize| u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        (word(0), word(8), half(16))
    }

    /// Bytes that a rank may send ahead of what it waits for. A channel may have begun a chunk and
    /// need another one for any of them: there is room for that besides.
    pub fn ahead_bytes(&self) -> u64 {
        let geo = self.seg.geometry();
        let spare = geo.pool_chunks.saturating_sub(2 * geo.ranks) / 4;
        let least = u64::from(geo.chunk_bytes);
        match self.linked {
            true => (u64::from(spare) * least).clamp(least, AHEAD_FAR_BYTES.max(least)),
            // In a node there is no delay, but there are caches.
            false => least,
        }
    }

    pub fn acknowledged(&self, dst: u32, start: u64) -> bool {
        self.log.acknowledged(dst, start)
    }

    // ---- receiving

    /// The next entry from `src`, if one is there.
    #[inline]
    pub fn peek(&mut self, src: u32) -> Option<Entry> {
        let entry = self.peek_any(src)?;
        if entry.world() == self.world { Some(entry) } else { self.peek_on(src, entry) }
    }

    /// The same behind messages to earlier programs of this rank, which nobody has asked for.
    #[cold]
    fn peek_on(&mut self, src: u32, mut entry: Entry) -> Option<Entry> {
        while entry.world() < self.world {
            self.consume(src, &entry);
            entry = self.peek_any(src)?;
        }
        // What is for a later one stays.
        (entry.world() == self.world).then_some(entry)
    }

    #[inline]
    fn peek_any(&mut self, src: u32) -> Option<Entry> {
        let rx = &mut self.rx[src as usize];
        if rx.ahead && !self.has_caught_up(src) {
            return self.peek_ahead(src);
        }
        match self.rx[src as usize].reader.peek() {
            Ok(None) if self.datagrams.is_some() => self.peek_ahead(src),
            Ok(entry) => entry,
            Err(damaged) => self.stop(STATE_ABORTED, EXIT_DAMAGED, &damaged.to_string()),
        }
    }

    /// Whether the log has what comes next from `src`, after messages that were taken ahead of it.
    /// Where it ends, old bytes begin.
    #[cold]
    fn has_caught_up(&mut self, src: u32) -> bool {
        let far = self.is_far(src);
        // Of a sender that has come here the log was levelled before.
        fence(Acquire);
        let rx = &mut self.rx[src as usize];
        rx.ahead = far && rx.ctl.here.load(Acquire) <= rx.reader.pos;
        !rx.ahead
    }

    /// The next message from `src`, if it came ahead of the log.
    #[cold]
    fn peek_ahead(&mut self, src: u32) -> Option<Entry> {
        if self.replaying || !self.is_far(src) {
            return None;
        }
        if !self.datagrams.as_mut()?.look(self.seg) {
            // The program closed it.
            self.ctl.early_port.store(0, Release);
            self.datagrams = None;
        }
        self.datagrams.as_mut()?.entry(self.seg, &mut self.rx[src as usize].reader)
    }

    /// The entry that `peek` returned came ahead of the log and cannot be taken yet: the log has to
    /// bring it.
    #[cold]
    pub fn decline(&mut self, src: u32) {
        if let Some(path) = &self.datagrams {
            path.decline(self.seg, &self.rx[src as usize].reader);
        }
    }

    /// Goes behind the entry that `peek` returned; it will not be needed again.
    #[inline]
    pub fn consume(&mut self, src: u32, entry: &Entry) {
        let rx = &mut self.rx[src as usize];
        rx.reader.pass(entry);
        rx.reader.hand_on();
        if entry.is_early() {
            rx.ahead = true;
            let taken = &self.ctl.early_taken;
            taken.store(taken.load(Relaxed) + u64::from(entry.is_last()), Relaxed);
        }
        rx.publish_need();
        self.moved(src);
    }

    /// The position in the stream from `src` has moved.
    #[inline]
    fn moved(&mut self, src: u32) {
        if self.linked && self.is_far(src) {
            self.tell_links(src);
        }
    }

    /// Lets the links know how far the stream from `src` was read. They are woken for it in good
    /// time before the sender must wait, not for every message.
    #[cold]
    fn tell_links(&mut self, src: u32) {
        let step = u64::from(self.seg.geometry().chunk_bytes / 2);
        let mut bell = Bell::Silent;
        let rx = &mut self.rx[src as usize];
        if let Some(path) = &mut self.datagrams {
            path.heard(src);
            if rx.ahead && path.hears_from(src) {
                // The links need not carry what came by a direct connection, if they hear of it
                // soon; nobody waits for room.
                bell = Bell::Tick;
                self.seg.header().link_early.store(1, Relaxed);
                rx.told = rx.reader.pos;
            }
        }
        rx.ctl.front.store(rx.reader.pos, Release);
        fence(SeqCst);
        if rx.reader.pos.abs_diff(rx.told) >= step || rx.open != self.datagrams.is_some() {
            (rx.told, rx.open) = (rx.reader.pos, self.datagrams.is_some());
            bell = Bell::Ring;
        }
        self.seg.mark_dirty(src, self.rank, bell);
    }

    /// Goes behind the entry, the first of a message that must be kept in the log; returns the
    /// reader that stands before it.
    pub fn keep(&mut self, src: u32, entry: &Entry) -> Reader {
        let rx = &mut self.rx[src as usize];
        let before = rx.reader;
        rx.held.push_back((before.pos, true));
        rx.reader.pass(entry);
        rx.reader.hand_on();
        rx.publish_need();
        self.moved(src);
        before
    }

    /// A kept message, which started at `start`, has been read.
    pub fn release(&mut self, src: u32, start: u64) {
        let rx = &mut self.rx[src as usize];
        // They stand in the order of their positions; mostly it is the first.
        if let Ok(at) = rx.held.binary_search_by_key(&start, |(pos, _)| *pos) {
            rx.held[at].1 = false;
        }
        rx.publish_need();
        self.moved(src);
    }

    /// Where the first message begins that is kept in the log of `src`.
    pub fn first_kept(&self, src: u32) -> Option<u64> {
        self.rx[src as usize].held.front().map(|(start, _)| *start)
    }

    /// Where messages from `src` begin that are kept in the log, in the order of the channel.
    pub fn kept(&self, src: u32) -> Vec<u64> {
        let held = self.rx[src as usize].held.iter();
        held.filter(|(_, kept)| *kept).map(|(start, _)| *start).collect()
    }

    /// Stream position up to which entries from `src` were taken.
    pub fn front(&self, src: u32) -> u64 {
        self.rx[src as usize].reader.pos
    }

    /// Counts a received message.
    #[inline]
    pub fn count_received(&mut self, bytes: u64) {
        self.ctl.msgs_received.store(self.counters.received(bytes), Relaxed);
    }

    /// Acknowledges a matched message and wakes its sender.
    pub fn acknowledge(&mut self, src: u32, entry: &Entry) {
        entry.acknowledge();
        if !waiting::ring(self.peers[src as usize]) {
            self.seg.mark_dirty(src, self.rank, Bell::Ring);
        }
    }

    /// Whether large messages may be read where their sender has them while it logs them.
    pub fn shows(&self) -> bool {
        self.readable == Readable::WhileLogged
    }

    /// Reads bytes `from..to` of the message that starts at position `start` out of its sender's
    /// memory to `out + from`, as far as its sender still shows it. Returns up to where they are
    /// right; bytes of `out` from there to `to` may have been overwritten.
    ///
    /// # Safety
    /// `out` must be valid for writing `to` bytes.
    pub unsafe fn read_offered(
        &mut self,
        src: u32,
        start: u64,
        out: *mut u8,
        from: u64,
        to: u64,
    ) -> u64 {
        let ctl = self.rx[src as usize].ctl;
        let Some(offer) = SingleCopy::find(ctl, self.peers[src as usize], start) else {
            return from;
        };
        // SAFETY: the caller's promise.
        match unsafe { offer.read(out, from, to) } {
            Ok(right) => right,
            Err(right) => {
                self.readable = Readable::No;
                right
            }
        }
    }

    /// Reads the first `len` bytes of a remote message's payload.
    ///
    /// # Safety
    /// `out` must be valid for `len` bytes; `entry` must be one with the `REMOTE` flag.
    pub unsafe fn read_remote(&self, entry: &Entry, out: *mut u8, len: u64) {
        let (addr, _, pid) = Self::note(entry);
        // SAFETY: the caller's promise for `out`.
        if let Err(e) = unsafe { remote::read(pid, addr, out, len) } {
            let text = format!("cannot read {len} bytes of a message from process {pid}: {e}");
            self.stop(STATE_ABORTED, EXIT_DAMAGED, &text);
        }
    }

    // ---- waiting

    /// One round of waiting after `idle` fruitless ones. `True`: about to sleep; the caller looks
    /// once more, then calls `sleep` or `disarm` with the value.
    #[inline]
    pub fn wait_round(&mut self, idle: u32) -> Option<u32> {
        if idle >= PREPARE_AFTER && self.log.prepare() {
            return None;
        }
        match self.spin.round(idle) {
            Round::Look => self.presence.waiting(|| ()),
            Round::Spin => self.presence.waiting(std::hint::spin_loop),
            Round::Yield => self.yield_core(),
            Round::Sleep => {
                self.naps = self.naps(idle);
                if let Some(path) = &mut self.datagrams {
                    path.flush(self.seg);
                }
                return Some(waiting::arm(self.ctl));
            }
        }
        None
    }

    /// Sleeps on the value that `wait_round` gave.
    /// `short`: something is awaited that rings no bell (log space).
    pub fn sleep(&mut self, seen: u32, short: bool) {
        let (ctl, hears) = (self.ctl, self.datagrams.as_ref().is_some_and(DatagramPath::hears));
        let nap = match (short, hears) {
            (_, true) => Nap::Brief(self.naps),
            (true, false) => Nap::Short,
            (false, false) => Nap::Long,
        };
        self.presence.waiting(|| waiting::sleep(ctl, seen, nap));
        waiting::disarm(ctl);
    }

    pub fn disarm(&mut self) {
        waiting::disarm(self.ctl);
    }

    /// Whether the process was restored while it waited; see `enter`.
    #[inline]
    pub fn woke_restored(&mut self) -> bool {
        self.ctl.incarnation.load(Relaxed) != self.incarnation && self.restored()
    }

    /// Asks the daemon for log space (true) or takes the wish back.
    pub fn press(&mut self, wanted: bool) {
        if self.ctl.pressure.swap(u32::from(wanted), Relaxed) != u32::from(wanted) && wanted {
            ring_daemon(self.seg.header());
        }
    }

    // ---- the end

    pub fn finalized(&mut self) {
        self.hand_on();
        self.ctl.state.store(STATE_FINALIZED, Release);
    }

    /// The program ends without `MPI_Finalize`: it has called `exit`.
    pub fn left(&mut self) {
        if self.ctl.pid.load(Relaxed) == std::process::id() {
            self.hand_on();
            let _ = self.ctl.state.compare_exchange(STATE_RUNNING, STATE_LEFT, Release, Relaxed);
        }
    }

    /// Ends the job as `MPI_Abort` does.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        self.stop(STATE_ABORTED, code, why)
    }

    /// Stops this rank because its replay differs from the recording.
    pub fn diverged(&self, what: &Divergence) -> ! {
        self.stop(STATE_DIVERGED, EXIT_DIVERGED, &what.0)
    }

    fn stop(&self, state: u32, code: i32, text: &str) -> ! {
        self.ctl.set_text(text);
        self.ctl.exit_code.store(code as u32, Relaxed);
        self.ctl.state.store(state, Release);
        ring_daemon(self.seg.header());
        // SAFETY: ends the process without running the program's exit handlers, which may call MPI.
        unsafe { libc::_exit(code) }
    }
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
