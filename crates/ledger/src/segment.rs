//! The job's shared segment: layout, creation (daemon) and mapping (ranks).
//!
//! One file in memory ([`crate::memory`]) holds, in this order: the job header, a control block per
//! rank, a channel block per ordered pair of ranks, the chunk directories, the determinant logs,
//! the dirty bits of the streams between nodes, the log pools, and memory for windows
//! ([`crate::windows`]). It is sparse: only pages that were written exist. All offsets follow from
//! the geometry in the header.
//!
//! Kept true: every field that more than one process touches is an atomic; who writes it is stated
//! at the field. The segment survives any rank; no field is ever valid only inside one process.

use crate::beside::Beside;
use crate::opened::{OPENED_BYTES, OpenedFiles};
use crate::{free, memory, windows};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of a segment ("EYRIESEG", little endian).
pub const MAGIC: u64 = 0x4745_5345_4952_5945;
/// Layout version; a rank whose library knows another one refuses to start.
pub const VERSION: u32 = 10;
/// What the file's name begins with; process images leave mappings of this name out.
pub const NAME_PREFIX: &str = "eyrie-job:";
/// Of a job that has ranks for programs that others start ([`JobHeader::gone`]): all ranks that it
/// began with have ended; these and its last rank, which gives the others away; all but that one.
pub const GONE_FIRST: u32 = 1;
pub const GONE_KEEPER: u32 = 2;
pub const GONE_OTHERS: u32 = 4;
/// Most ranks one segment may hold.
pub const MAX_RANKS: u32 = 1024;
/// Fewest words that a determinant log has.
const LEAST_DET_WORDS: u64 = 1024;
/// Log of a job of one rank that is not run by Eyrie.
const ALONE_LOG_BYTES: u64 = 64 << 20;
/// Bytes of the text field in a rank's control block.
pub const TEXT_BYTES: usize = 3072;
/// Most sockets that a rank has for wires (`datagram`).
pub const WIRE_SOCKETS: usize = 64;

/// Record non-deterministic outcomes.
pub const FT_DETERMINANTS: u32 = 1;
/// Keep payload until the receiver's checkpoints cover it (otherwise: until it is consumed).
pub const FT_RETAIN: u32 = 2;
/// `eyrie verify`: keep a hash chain over every channel, payload included, and the payload itself
/// as long as the logs hold it.
pub const FT_HASH: u32 = 4;
/// The job is checkpointed and may be replayed: no single-copy reads out of a rank's own memory.
pub const FT_PROTECT: u32 = 8;
/// A rank is run again without the others (`eyrie replay`): what is not in the log never comes.
pub const FT_REPLAY: u32 = 16;
/// Record what MPI_Wtime gives, in programs that call MPI in one thread.
pub const FT_CLOCK: u32 = 32;
/// With `FT_CLOCK`: also in others, of the thread that called `MPI_Init`.
pub const FT_CLOCK_THREADED: u32 = 64;
/// With `FT_CLOCK`: record what the C library says, too: clocks, random bytes, numbers and names.
pub const FT_LIBC: u32 = 4096;
/// `--ft logged`.
pub const FT_LOGGED: u32 = FT_DETERMINANTS | FT_RETAIN | FT_PROTECT;
/// `--ft coordinated`.
pub const FT_COORDINATED: u32 = FT_PROTECT;

/// `RankCtl::lib`: the rank is in its own code.
pub const LIB_OUT: u32 = 0;
/// `RankCtl::lib`: inside the library, private and shared state may disagree: no freeze.
pub const LIB_IN: u32 = 1;
/// `RankCtl::lib`: in the waiting place (spinning or asleep): may be frozen.
pub const LIB_WAIT: u32 = 2;
/// `RankCtl::lib`: parked on `freeze_req`, because the daemon asked: may be frozen.
pub const LIB_PARKED: u32 = 3;

/// `RankCtl::sleeping`: the rank is awake.
pub const AWAKE: u32 = 0;
/// `RankCtl::sleeping`: the rank sleeps, or is about to.
pub const ASLEEP: u32 = 1;
/// `RankCtl::sleeping`: the rank has its home on another node, where only links reach it.
pub const ASLEEP_REMOTE: u32 = 2;

/// `RankCtl::state`: the process has not called `MPI_Init` yet.
pub const STATE_STARTED: u32 = 0;
/// `RankCtl::state`: between init and finalize.
pub const STATE_RUNNING: u32 = 1;
/// `RankCtl::state`: `MPI_Finalize` returned.
pub const STATE_FINALIZED: u32 = 2;
/// `RankCtl::state`: `MPI_Abort` was called; `exit_code` and `text` say how.
pub const STATE_ABORTED: u32 = 3;
/// `RankCtl::state`: a replay did not reproduce what was recorded; `text` holds the report.
pub const STATE_DIVERGED: u32 = 4;
/// `RankCtl::state`: run again alone, it has come to the end of its log; `text` says by what.
pub const STATE_LOG_ENDED: u32 = 5;
/// `RankCtl::state`: the program called `exit` between init and finalize.
pub const STATE_LEFT: u32 = 6;
/// `RankCtl::state`: a process has become the rank, and is in `MPI_Init`.
pub const STATE_JOINING: u32 = 7;

/// Sizes that fix the layout. All are stored in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of ranks, 1..=MAX_RANKS.
    pub ranks: u32,
    /// Bytes of one log chunk, a power of two >= 4096.
    pub chunk_bytes: u32,
    /// Chunks in each rank's log pool.
    pub pool_chunks: u32,
    /// Words (8 bytes) in each rank's determinant log, a power of two.
    pub det_words: u64,
}

impl Geometry {
    /// A layout for `ranks` ranks with about `log_bytes` of send log for each.
    pub fn new(ranks: u32, log_bytes: u64) -> Self {
        let chunk_bytes = 256 * 1024;
        let least = u64::from(ranks).saturating_mul(2).max(8);
        let pool_chunks = (log_bytes / u64::from(chunk_bytes)).clamp(least, 1 << 20) as u32;
        Geometry { ranks, chunk_bytes, pool_chunks, det_words: 8 << 20 }
    }

    fn valid(&self) -> bool {
        (1..=MAX_RANKS).contains(&self.ranks)
            && self.chunk_bytes.is_power_of_two()
            && (4096..=1 << 30).contains(&self.chunk_bytes)
            && (1..=1 << 24).contains(&self.pool_chunks)
            && self.det_words.is_power_of_two()
            && (LEAST_DET_WORDS..=1 << 32).contains(&self.det_words)
    }

    /// Entries in a channel's chunk directory.
    pub fn dir_cap(&self) -> u64 {
        u64::from(self.pool_chunks).next_power_of_two()
    }

    fn pairs(&self) -> u64 {
        u64::from(self.ranks) * u64::from(self.ranks)
    }

    pub(crate) fn ctl_off(&self) -> u64 {
        page_up(size_of::<JobHeader>() as u64)
    }

    pub(crate) fn chan_off(&self) -> u64 {
        page_up(self.ctl_off() + u64::from(self.ranks) * size_of::<RankCtl>() as u64)
    }

    pub(crate) fn dir_off(&self) -> u64 {
        page_up(self.chan_off() + self.pairs() * size_of::<ChannelCtl>() as u64)
    }

    pub(crate) fn det_off(&self) -> u64 {
        page_up(self.dir_off() + self.pairs() * self.dir_cap() * size_of::<DirEntry>() as u64)
    }

    fn pool_off(&self) -> u64 {
        (self.summary_off() + self.summary_words() * 8).next_multiple_of(2 << 20)
    }

    pub(crate) fn dirty_off(&self) -> u64 {
        page_up(self.det_off() + u64::from(self.ranks) * self.det_words * 8)
    }

    pub(crate) fn summary_off(&self) -> u64 {
        page_up(self.dirty_off() + self.dirty_words() * 8)
    }

    /// Words of dirty bits.
    pub(crate) fn dirty_words(&self) -> u64 {
        self.pairs().div_ceil(64)
    }

    /// Words with a bit for each of those.
    pub(crate) fn summary_words(&self) -> u64 {
        self.dirty_words().div_ceil(64)
    }

    /// Where chunk `index` of the pool of `rank` lies.
    pub(crate) fn chunk_off(&self, rank: u32, index: u32) -> u64 {
        let pool = u64::from(self.pool_chunks) * u64::from(self.chunk_bytes);
        self.pool_off()
            + u64::from(rank) * pool.next_multiple_of(2 << 20)
            + u64::from(index) * u64::from(self.chunk_bytes)
    }

    /// Bytes of the whole segment (virtual; it is sparse).
    pub fn total_bytes(&self) -> u64 {
        let pool = u64::from(self.pool_chunks) * u64::from(self.chunk_bytes);
        self.pool_off() + u64::from(self.ranks) * pool.next_multiple_of(2 << 20)
    }
}

fn page_up(n: u64) -> u64 {
    n.next_multiple_of(4096)
}

/// First page of the segment. Written once by the daemon, before any rank starts.
#[repr(C, align(64))]
pub struct JobHeader {
    magic: u64,
    version: u32,
    /// Bits `FT_*`.
    pub(crate) ft: AtomicU32,
    ranks: u32,
    chunk_bytes: u32,
    pool_chunks: u32,
    /// Cores the ranks of this node share; the library spins less when there are more ranks.
    pub cores: AtomicU32,
    det_words: u64,
    /// The daemon's futex: bumped by a rank that wants the daemon to look (park, pressure, state).
    pub bell: AtomicU32,
    /// Set by the daemon when log space cannot be had by checkpoints: ranks then release payload
    /// when it is consumed, and the job is no longer protected.
    pub unprotected: AtomicU32,
    /// Number of the node that this segment belongs to.
    node: u32,
    /// 1 if there are links to other nodes. Written by the daemon before any rank starts.
    pub linked: AtomicU32,
    /// `eyrie verify`: how messages are delayed and hastened; 0: they are not. Written by the
    /// daemon before any rank starts.
    pub whim: AtomicU32,
    /// `eyrie verify`: set by a rank whose log could not hold all messages: what was received is
    /// not kept any more.
    pub forgot: AtomicU32,
    // Line 1: the links to other nodes.
    /// Futex of the thread that sends: bumped by a rank that found it asleep.
    pub link_bell: AtomicU32,
    /// 1 while it sleeps or is about to.
    pub link_asleep: AtomicU32,
    /// 1 while it never sleeps for long, so that what was sent early needs no bell.
    pub link_ticks: AtomicU32,
    /// Set to 1 by a rank that sent something early, back to 0 by that thread.
    pub link_early: AtomicU32,
    /// Set to 1 by a rank with news that must not wait for the next tick, back to 0 by that thread.
    pub link_urgent: AtomicU32,
    /// Which ranks take early messages ([`crate::datagram::Wish`]). Written by the daemon before
    /// any rank starts.
    pub early: AtomicU32,
    /// Of memory for windows: [`crate::windows::ROOM`], [`crate::windows::GROW`]. Written by the
    /// daemon before any rank starts.
    pub windows: AtomicU32,
    /// How many of the job's ranks, the last ones, are there for programs that others start.
    /// Written by the daemon before any rank starts.
    pub room: AtomicU32,
    /// Who has ended of a job with such ranks: `GONE_*`. Written by the daemon.
    pub gone: AtomicU32,
    /// 1: ranks that are lost are reported to the others ([`crate::failures`]). Written by the
    /// daemon before any rank starts.
    pub reports: AtomicU32,
    /// How many ranks are lost: grows behind the bits below. Written by the daemon.
    pub failures: AtomicU32,
    _pad1: [u32; 5],
    // Lines 2 and 3: a bit for each rank that is lost. Written by the daemon.
    pub failed: [AtomicU64; MAX_RANKS as usize / 64],
}

/// One rank's control block.
#[repr(C, align(64))]
pub struct RankCtl {
    // Line 0: read on every library call by the rank, written rarely by the daemon.
    /// Grows by one with every start of this rank, 1 for the first. Written by the daemon while
    /// no incarnation lives.
    pub incarnation: AtomicU32,
    /// Daemon asks the library to park at its next safe point: 1, else 0. A futex of the rank.
    pub freeze_req: AtomicU32,
    /// Where the rank is: `LIB_*`. Written by the rank.
    pub lib: AtomicU32,
    /// `STATE_*`. Written by the rank; reset by the daemon before a start.
    pub state: AtomicU32,
    /// Process that called `MPI_Init`. Written by the rank.
    pub pid: AtomicU32,
    /// Exit code given to `MPI_Abort`.
    pub exit_code: AtomicU32,
    /// 1 while the rank re-executes recorded events or sends, or has them before it. Written by the
    /// rank, before a start by the daemon.
    pub replaying: AtomicU32,
    /// 1 while the rank waits for log space. Written by the rank.
    pub pressure: AtomicU32,
    /// Number of the node that the rank is on. Written by the daemon.
    pub home: AtomicU32,
    /// Number of the thread that called `MPI_Init`, and `FUTEX_WAITERS`: a robust futex, which the
    /// kernel marks with `FUTEX_OWNER_DIED` when that thread ends, before it frees any memory.
    /// 0: unknown. Written by the rank, and by the daemon around a start.
    pub alive: AtomicU32,
    /// Number of the rank's program (`world`), 0 for the first. Written by the rank in `MPI_Init`,
    /// and by the daemon before a start.
    pub world: AtomicU32,
    /// 1: it was said that a program which was started by the rank is none. Written by that
    /// program, and by the daemon before a start.
    pub told_alone: AtomicU32,
    /// How many lost ranks the program has asked for, acknowledged or agreed on. Written by the
    /// rank, and by the daemon before a start.
    pub handled: AtomicU32,
    /// One more than a rank that this one is to have memory in common with, though each comes back
    /// without the other: it waits until they are one unit. 0: none. Written by the rank, and by
    /// the daemon before a start.
    pub shares: AtomicU32,
    _pad0: [u32; 2],
    // Line 1: the doorbell, written by every peer.
    /// The rank's futex: bumped by whoever made something happen for it.
    pub doorbell: AtomicU32,
    /// `AWAKE`, `ASLEEP` (written by the rank), `ASLEEP_REMOTE` (by the daemon).
    pub sleeping: AtomicU32,
    _pad1: [u32; 14],
    // Line 2: determinant log positions, in words, monotonic.
    /// End of the recorded determinants. Written by the rank.
    pub det_tail: AtomicU64,
    /// Where the rank stands: equals `det_tail` unless it is replaying. Written by the rank.
    pub det_pos: AtomicU64,
    /// Words before this are no longer needed. Written by the daemon.
    pub det_trim: AtomicU64,
    _pad2: [u64; 5],
    // Line 3: counters for `eyrie status`. Written by the rank.
    pub msgs_sent: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub msgs_received: AtomicU64,
    pub chunks_used: AtomicU64,
    /// Sends and events reproduced by replay since the start of this incarnation.
    pub replayed: AtomicU64,
    /// Messages that were taken early.
    pub early_taken: AtomicU64,
    /// Number of its newest checkpoint, 0: none. Written by the daemon.
    pub checkpoint: AtomicU64,
    /// When this incarnation's start began, before its files were put back: ns since 1970 by the
    /// clock that files are stamped with (`CLOCK_REALTIME_COARSE`). Written by the daemon.
    pub begun: AtomicU64,
    // Line 4: where the rank takes early messages (`datagram`), and what of its outcomes is held.
    /// UDP port, 0: none. Of a rank of this node written by it, else by the daemon, like the rest.
    pub early_port: AtomicU32,
    /// Number of the socket's inode. Written by the rank.
    pub early_inode: AtomicU32,
    /// What an early message for this rank must bear; another one for each start.
    pub early_token: [AtomicU64; 2],
    /// Address of the rank's node (IPv4 as mapped into IPv6).
    pub early_address: [AtomicU64; 2],
    /// One more than the position before which determinants are held by all replicas; 0: not
    /// known. Written by the daemon.
    pub det_held: AtomicU64,
    /// The last of those, which may grow in place.
    pub det_held_last: AtomicU64,
    _pad4: u64,
    // Line 5: text for STATE_ABORTED and STATE_DIVERGED. Written by the rank before `state`.
    pub text_len: AtomicU32,
    /// A program of the rank that is none, as another one was there. Written by it; which note was
    /// read, by the daemon.
    pub beside: Beside,
    _pad5: [u32; 5],
    /// Inodes of its sockets for wires, 0: none. Written by the rank.
    pub wire_inodes: [AtomicU32; WIRE_SOCKETS],
    text: [AtomicU64; TEXT_BYTES / 8],
    /// What it has opened to write to. Written by the rank.
    pub opened: OpenedFiles,
}

/// Shared state of the channel from one rank to another.
#[repr(C, align(64))]
pub struct ChannelCtl {
    // Line 0: written by the sender.
    pub msgs: AtomicU64,
    pub bytes: AtomicU64,
    /// Hash chain over headers and payloads (`FT_HASH` only).
    pub hash: AtomicU64,
    /// Number of the oldest chunk that may still be in the directory.
    pub chunks_first: AtomicU64,
    /// One more than the number of the newest chunk that may be in the directory.
    pub chunks_next: AtomicU64,
    /// Position plus one of the message that also lies in the sender's own memory as long as this
    /// stands; 0: none.
    pub shown: AtomicU64,
    /// Its address there.
    pub shown_at: AtomicU64,
    /// Process and incarnation that it belongs to: `pid << 32 | incarnation`.
    pub shown_by: AtomicU64,
    // Line 1: written by the receiver.
    /// Position of the oldest byte that the receiver may still read.
    pub need: AtomicU64,
    /// The value of `shown` by which the receiver is reading just now, or 0.
    pub viewing: AtomicU64,
    /// Position up to which the receiver has looked at the stream; what it has not taken yet may
    /// begin at `need`, before that.
    pub front: AtomicU64,
    /// Position up to which the receiver wants nothing of the log any more, however little of that
    /// is here: what `need` would be if nothing had come early.
    pub passed: AtomicU64,
    /// One more than the position of an entry that came by a wire and that only the log can keep:
    /// the links are to bring it.
    pub bring: AtomicU64,
    /// Where the receiver's next program begins to read, and how many entries are before that
    /// (`world`).
    pub rx_pos: AtomicU64,
    pub rx_seq: AtomicU64,
    _pad1: [u64; 1],
    // Line 2: written by the daemon.
    /// Position before which no live rank and no kept checkpoint needs the log.
    pub trim: AtomicU64,
    /// Position before which the receiver's node has the stream and owes no acknowledgement. What
    /// is not retained may be released up to there.
    pub had: AtomicU64,
    /// Position up to which the mirror of the stream is filled, if the sender is on another node.
    pub here: AtomicU64,
    /// 1: both ranks are one recovery unit, so what is sent is not retained (`unit`).
    pub inner: AtomicU64,
    /// How often the receiver's node has asked for what a wire brought.
    pub brought: AtomicU64,
    _pad2: [u64; 3],
    // Line 3: written by the sender: what it sends early itself, so that the links need not
    // (`datagram::run`).
    pub run_from: AtomicU64,
    pub run_end: AtomicU64,
    /// Where the sender's next program goes on: position, and how many entries, which chain and how
    /// many messages are before that (`world`).
    pub tx_pos: AtomicU64,
    pub tx_seq: AtomicU64,
    pub tx_chain: AtomicU64,
    pub tx_msgs: AtomicU64,
    _pad3: [u64; 2],
}

/// Directory entry: which pool chunk holds chunk number `n` of a channel. Written by the sender.
#[repr(C, align(32))]
pub struct DirEntry {
    /// `(n + 1) << 24 | pool index`, 0 when absent.
    pub tag: AtomicU64,
    /// Entries in the channel before this chunk.
    pub seq: AtomicU64,
    /// Hash chain over the headers of those entries.
    pub chain: AtomicU64,
    _pad: u64,
}

const _: () = assert!(size_of::<JobHeader>() == 256);
const _: () =
    assert!(size_of::<RankCtl>() == 64 * 6 + 4 * WIRE_SOCKETS + TEXT_BYTES + OPENED_BYTES);
const _: () = assert!(size_of::<ChannelCtl>() == 256);
const _: () = assert!(size_of::<DirEntry>() == 32);

impl RankCtl {
    /// Stores a report (cut at `TEXT_BYTES`) for the daemon to read once `state` says so.
    pub fn set_text(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES)];
        for (i, word) in bytes.chunks(8).enumerate() {
            let mut w = [0u8; 8];
            w[..word.len()].copy_from_slice(word);
            self.text[i].store(u64::from_le_bytes(w), Ordering::Relaxed);
        }
        self.text_len.store(bytes.len() as u32, Ordering::Release);
    }

    /// Wakes the rank if it sleeps on this node. Call after publishing something for it and a full
    /// fence.
    pub fn wake(&self) {
        if self.sleeping.load(Ordering::Relaxed) == ASLEEP {
            self.doorbell.fetch_add(1, Ordering::SeqCst);
            crate::futex::wake(&self.doorbell);
        }
    }

    /// The report a rank left.
    pub fn text(&self) -> String {
        let len = (self.text_len.load(Ordering::Acquire) as usize).min(TEXT_BYTES);
        let mut out = Vec::with_capacity(len + 8);
        for word in &self.text[..len.div_ceil(8)] {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        out.truncate(len);
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Why a segment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("job segment: {0}")]
    Os(#[from] io::Error),
    #[error("job segment is not one of Eyrie's")]
    Magic,
    #[error("job segment has layout version {0}, this library knows {VERSION}: use one release")]
    Version(u32),
    #[error("job segment states impossible sizes: {0:?}")]
    Geometry(Geometry),
    #[error("job segment is {have} bytes long, its header needs {need}")]
    Short { have: u64, need: u64 },
}

/// A mapped job segment.
pub struct Segment {
    base: NonNull<u8>,
    geo: Geometry,
    /// As the geometry has it: looked up at each call that is recorded.
    det_off: u64,
    total: usize,
}

// SAFETY: all shared fields are atomics; pool and determinant memory is handed out as raw pointers
// whose users state their own rules.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment that only this process maps, or whose speed does not matter.
    pub fn create(
        name: &str,
        geo: Geometry,
        ft: u32,
        cores: u32,
    ) -> Result<(OwnedFd, Self), SegmentError> {
        let file = memory::plain(&format!("{NAME_PREFIX}{name}"))?;
        Self::create_in(file, geo, ft, cores, 0)
    }

    /// Makes the segment of a new job's node number `node` and maps it (daemon). `name` is the
    /// job's. All ranks have their home there until they are told otherwise.
    pub fn create_on(
        name: &str,
        geo: Geometry,
        ft: u32,
        cores: u32,
        node: u32,
    ) -> Result<(OwnedFd, Self), SegmentError> {
        let file = memory::shared(&format!("{NAME_PREFIX}{name}"))?;
        Self::create_in(file, geo, ft, cores, node)
    }

    fn create_in(
        file: File,
        geo: Geometry,
        ft: u32,
        cores: u32,
        node: u32,
    ) -> Result<(OwnedFd, Self), SegmentError> {
        if !geo.valid() {
            return Err(SegmentError::Geometry(geo));
        }
        file.set_len(geo.total_bytes())?;
        let seg = Self::map_sized(file.as_fd(), geo)?;
        seg.describe(node, ft, cores);
        windows::extend(&file, &seg);
        Ok((OwnedFd::from(file), seg))
    }

    /// Makes the segment of a job of one rank, without protection, in memory of this process alone.
    pub fn create_alone() -> Result<Self, SegmentError> {
        let geo = Geometry { det_words: LEAST_DET_WORDS, ..Geometry::new(1, ALONE_LOG_BYTES) };
        let total = geo.total_bytes() as usize;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping of no file at an address the kernel picks.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), total, prot, flags, -1, 0) };
        let seg = Self::mapped(at, geo, total)?;
        seg.describe(0, 0, 1);
        Ok(seg)
    }

    /// Fills the header of a new segment.
    fn describe(&self, node: u32, ft: u32, cores: u32) {
        let (header, geo) = (self.base.as_ptr().cast::<JobHeader>(), self.geo);
        // SAFETY: the mapping is at least a page long, fresh and not shared with anybody yet.
        unsafe {
            (*header).version = VERSION;
            (*header).ranks = geo.ranks;
            (*header).chunk_bytes = geo.chunk_bytes;
            (*header).pool_chunks = geo.pool_chunks;
            (*header).det_words = geo.det_words;
            (*header).node = node;
            (*header).magic = MAGIC;
        }
        if node != 0 {
            (0..geo.ranks).for_each(|r| self.rank(r).home.store(node, Ordering::Relaxed));
        }
        self.header().ft.store(ft, Ordering::Relaxed);
        self.header().cores.store(cores, Ordering::Release);
    }

    fn mapped(at: *mut libc::c_void, geo: Geometry, total: usize) -> Result<Self, SegmentError> {
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let base = NonNull::new(at.cast())
            .ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(Segment { base, geo, det_off: geo.det_off(), total })
    }

    /// Maps an existing segment (rank). Nothing in it is trusted beyond the checked geometry.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, SegmentError> {
        let file = File::from(fd.try_clone_to_owned()?);
        let have = file.metadata()?.len();
        if have < 4096 {
            return Err(SegmentError::Short { have, need: 4096 });
        }
        let mut head = [0u8; size_of::<JobHeader>()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0)?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if long(0) != MAGIC {
            return Err(SegmentError::Magic);
        }
        if word(8) != VERSION {
            return Err(SegmentError::Version(word(8)));
        }
        let geo = Geometry {
            ranks: word(16),
            chunk_bytes: word(20),
            pool_chunks: word(24),
            det_words: long(32),
        };
        if !geo.valid() {
            return Err(SegmentError::Geometry(geo));
        }
        if have < geo.total_bytes() {
            return Err(SegmentError::Short { have, need: geo.total_bytes() });
        }
        Self::map_sized(fd, geo)
    }

    /// Has what `rank` fills of its log lie in huge pages, where it touches that first. A daemon
    /// does not ask for that: what it lays down, mirrors above all, is often little for many ranks.
    pub(crate) fn wish_huge_pages(&self, rank: u32) {
        let bytes = u64::from(free::in_huge_pages(&self.geo)) * u64::from(self.geo.chunk_bytes);
        let pool = self.chunk(rank, 0).as_ptr();
        // SAFETY: advice on our own mapping; a refusal changes nothing but speed.
        unsafe { libc::madvise(pool.cast(), bytes as usize, libc::MADV_HUGEPAGE) };
    }

    fn map_sized(fd: BorrowedFd<'_>, geo: Geometry) -> Result<Self, SegmentError> {
        let total = geo.total_bytes() as usize;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping at an address the kernel picks; length checked by the caller
        // against the file, so no page of it lies past the end.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), total, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        Self::mapped(at, geo, total)
    }

    /// A page of the mapping.
    pub(crate) fn page_at(&self, off: u64) -> NonNull<u8> {
        assert!(off + 4096 <= self.total as u64);
        // SAFETY: in range by the assertion.
        unsafe { self.base.add(off as usize) }
    }

    /// The sizes of this segment.
    pub fn geometry(&self) -> Geometry {
        self.geo
    }

    #[inline]
    fn at<T>(&self, off: u64) -> &T {
        assert!(off + size_of::<T>() as u64 <= self.total as u64, "segment offset out of range");
        // SAFETY: in range by the assertion, aligned by the layout, only atomics or fields that
        // are never written after creation; the mapping lives as long as `self`.
        unsafe { &*self.base.as_ptr().add(off as usize).cast::<T>() }
    }

    pub fn header(&self) -> &JobHeader {
        self.at(0)
    }

    /// Number of the node that this segment belongs to.
    pub fn node(&self) -> u32 {
        self.header().node
    }

    /// Control block of `rank` (world rank, below `geometry().ranks`).
    pub fn rank(&self, rank: u32) -> &RankCtl {
        assert!(rank < self.geo.ranks);
        self.at(self.geo.ctl_off() + u64::from(rank) * size_of::<RankCtl>() as u64)
    }

    pub(crate) fn pair(&self, src: u32, dst: u32) -> u64 {
        assert!(src < self.geo.ranks && dst < self.geo.ranks);
        u64::from(src) * u64::from(self.geo.ranks) + u64::from(dst)
    }

    /// Control block of the channel from `src` to `dst`.
    pub fn channel(&self, src: u32, dst: u32) -> &ChannelCtl {
        self.at(self.geo.chan_off() + self.pair(src, dst) * size_of::<ChannelCtl>() as u64)
    }

    /// Directory entry for chunk number `n` of the channel from `src` to `dst`.
    pub fn dir(&self, src: u32, dst: u32, n: u64) -> &DirEntry {
        let slot = self.dir_slot(src, dst, n);
        self.at(self.geo.dir_off() + slot * size_of::<DirEntry>() as u64)
    }

    /// Its index among all directory entries.
    pub(crate) fn dir_slot(&self, src: u32, dst: u32, n: u64) -> u64 {
        self.pair(src, dst) * self.geo.dir_cap() + (n & (self.geo.dir_cap() - 1))
    }

    /// Word `n` (taken modulo the capacity) of the determinant log of `rank`.
    #[inline]
    pub fn det(&self, rank: u32, n: u64) -> &AtomicU64 {
        assert!(rank < self.geo.ranks);
        let word = u64::from(rank) * self.geo.det_words + (n & (self.geo.det_words - 1));
        self.at(self.det_off + word * 8)
    }

    /// Word `n` of the dirty bits.
    pub(crate) fn dirty(&self, n: u64) -> &AtomicU64 {
        self.at(self.geo.dirty_off() + n * 8)
    }

    /// Word `n` of the bits that say which of those words to look at.
    pub(crate) fn summary(&self, n: u64) -> &AtomicU64 {
        self.at(self.geo.summary_off() + n * 8)
    }

    /// Has `bytes` bytes of a chunk, from `from` on, made ready for being written, where the kernel
    /// can (Linux 5.14).
    pub fn populate(&self, rank: u32, index: u32, (from, bytes): (u64, u64)) {
        let chunk = u64::from(self.geo.chunk_bytes);
        assert!(from.checked_add(bytes).is_some_and(|end| end <= chunk));
        let at = self.chunk(rank, index).as_ptr().wrapping_add(from as usize);
        // SAFETY: within a chunk of this mapping; what it holds stays as it is.
        unsafe { libc::madvise(at.cast(), bytes as usize, libc::MADV_POPULATE_WRITE) };
    }

    /// First byte of chunk `index` in the log pool of `rank`.
    pub fn chunk(&self, rank: u32, index: u32) -> NonNull<u8> {
        assert!(rank < self.geo.ranks && index < self.geo.pool_chunks);
        let off = self.geo.chunk_off(rank, index);
        // SAFETY: in range by the two assertions and the layout.
        unsafe { self.base.add(off as usize) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: unmapping what `map_sized` mapped; borrows of it end with `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.total) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_segment_opens_with_the_same_geometry() {
        let geo = Geometry::new(3, 16 << 20);
        let (fd, made) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
        let opened = Segment::open(fd.as_fd()).unwrap();
        assert_eq!(opened.geometry(), geo);
        made.rank(2).set_text("why it stopped");
        assert_eq!(opened.rank(2).text(), "why it stopped");
        made.channel(2, 1).need.store(77, Ordering::Relaxed);
        assert_eq!(opened.channel(2, 1).need.load(Ordering::Relaxed), 77);
        assert_eq!(opened.channel(1, 2).need.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_foreign_or_short_file_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(Segment::open(file.as_fd()), Err(SegmentError::Short { .. })));
        file.set_len(8192).unwrap();
        assert!(matches!(Segment::open(file.as_fd()), Err(SegmentError::Magic)));
    }
}
