//! The log of one rank in a file: what it takes to run that rank again from its checkpoints without
//! the others; and that of all ranks: what it takes to run all of them again. Bytes in
//! `docs/formats/log.md`.
//!
//! Kept true: the header comes last, so that a torn file has none; every byte is under a checksum,
//! which is checked before any of it is used.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use xxhash_rust::xxh3::xxh3_128;

use crate::segment::{ChannelCtl, DirEntry, NAME_PREFIX, RankCtl, Segment, SegmentError};
use crate::sendlog::{self, dir_index};
use crate::walk::{self, Walk};
use crate::{memory, mirror, windows};

const MAGIC: [u8; 8] = *b"EYRIELOG";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;
const HASH_AT: usize = 40;
const ENTRY_BYTES: u64 = 40;
/// Most bytes under one checksum.
const PIECE_BYTES: u64 = 256 << 10;
/// Largest segment that is believed.
const MAX_SEGMENT_BYTES: u64 = 1 << 50;
const KIND_SEGMENT: u32 = 0;
/// In place of a rank: what is saved is of all ranks.
const ALL_RANKS: u32 = u32::MAX;
/// Kinds 1 and 2: what the rank wrote to standard output and standard error.
const KINDS: u32 = 3;

/// From where on the log is needed.
#[derive(Clone, Debug)]
pub struct From {
    /// For each source, the oldest position that may be read.
    pub need: Vec<u64>,
    /// Position in the determinant log.
    pub det_pos: u64,
}

/// The newest output of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Position of the first byte.
    pub first: u64,
    pub bytes: Vec<u8>,
}

/// Why a saved log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a log of a rank")]
    NotALog,
    #[error("a log of version {0}, this release knows {VERSION}")]
    Version(u32),
    #[error("checksum of {0} does not hold")]
    Checksum(&'static str),
    #[error("content is not valid: {0}")]
    Invalid(&'static str),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error("its streams do not go with those here: {0}")]
    Streams(#[from] mirror::Refused),
}

/// A saved log, as a segment of its own.
pub struct Loaded {
    pub fd: OwnedFd,
    pub segment: Segment,
    pub rank: u32,
    /// Standard output and standard error.
    pub output: [Recorded; 2],
}

struct Entry {
    kind: u32,
    offset: u64,
    bytes: u64,
    hash: [u8; 16],
}

/// Writes the log of `rank` from `from` on. The rank must not run; of the others' channels to it
/// nothing may be released meanwhile.
pub fn save(
    segment_file: &File,
    segment: &Segment,
    rank: u32,
    from: &From,
    output: &[Recorded; 2],
    to: &File,
) -> io::Result<u64> {
    let parts = [(segment_file, ranges(segment, rank, from))];
    write(segment, rank, &parts, output, to)
}

/// Writes the streams that `rank` has sent, as far as they are published and not released: what its
/// image needs on another node. The rank may go on; of its channels nothing may be released
/// meanwhile. `lasting`: the file is to outlive this machine.
pub fn save_streams(
    segment_file: &File,
    segment: &Segment,
    rank: u32,
    to: &File,
    lasting: bool,
) -> io::Result<u64> {
    let chunk = u64::from(segment.geometry().chunk_bytes);
    // The rank itself gives up what was released, but not before it needs the room.
    let kept = |ctl: &ChannelCtl| Some(sendlog::released(segment, ctl) / chunk);
    let parts = [(segment_file, stream_ranges(segment, rank, kept))];
    write_as(segment, rank, &parts, &Default::default(), to, lasting)
}

/// What a rank has sent within its recovery unit, and what windows of the unit hold, as it was at
/// one moment.
pub struct LogCopy {
    /// At the places where it lay in the segment.
    copy: File,
    ranges: Vec<(u64, u64)>,
}

/// Keeps what `rank` has sent within its unit and is not released. Nobody of the unit may run
/// meanwhile.
pub fn hold(segment_file: &File, segment: &Segment, rank: u32) -> io::Result<LogCopy> {
    let chunk = u64::from(segment.geometry().chunk_bytes);
    let inner = |ctl: &ChannelCtl| ctl.inner.load(Relaxed) != 0;
    let kept = |ctl: &ChannelCtl| inner(ctl).then(|| sendlog::released(segment, ctl) / chunk);
    let mut ranges = stream_ranges(segment, rank, kept);
    let geo = segment.geometry();
    let unit = (0..geo.ranks).filter(|mate| inner(segment.channel(rank, *mate)));
    ranges.extend(windows::ranges(segment_file, geo, unit)?);
    let copy = memory::plain("eyrie-held")?;
    copy.set_len(ranges.last().map_or(0, |range| range.1))?;
    each_piece(segment_file, &ranges, |at, piece| copy.write_all_at(piece, at))?;
    Ok(LogCopy { copy, ranges })
}

/// Reads these parts of a file, a piece at a time.
fn each_piece(
    file: &File,
    ranges: &[(u64, u64)],
    mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES as usize];
    for &(start, end) in ranges {
        for at in (start..end).step_by(PIECE_BYTES as usize) {
            let piece = &mut buffer[..PIECE_BYTES.min(end - at) as usize];
            file.read_exact_at(piece, at)?;
            take(at, piece)?;
        }
    }
    Ok(())
}

/// Writes what `save_streams` does; but what was sent within the unit as it is in `held`.
pub fn save_held(
    segment_file: &File,
    segment: &Segment,
    rank: u32,
    held: LogCopy,
    to: &File,
) -> io::Result<u64> {
    let outer = |ctl: &ChannelCtl| (ctl.inner.load(Relaxed) == 0).then_some(0);
    let parts = [(segment_file, stream_ranges(segment, rank, outer)), (&held.copy, held.ranges)];
    write(segment, rank, &parts, &Default::default(), to)
}

/// A copy in memory of the streams that `rank` has sent, as far as they are not released, and of
/// what windows hold here. None of the ranks here may run meanwhile; what its receivers release
/// meanwhile may be in it or not.
pub fn copy_streams(segment_file: &File, segment: &Segment, rank: u32) -> io::Result<File> {
    let chunk = u64::from(segment.geometry().chunk_bytes);
    let kept = |ctl: &ChannelCtl| Some(sendlog::released(segment, ctl) / chunk);
    let copy = memory::plain("eyrie-streams")?;
    let geo = segment.geometry();
    let mut ranges = stream_ranges(segment, rank, kept);
    ranges.extend(windows::ranges(segment_file, geo, 0..geo.ranks)?);
    let parts = [(segment_file, ranges)];
    write(segment, rank, &parts, &Default::default(), &copy)?;
    Ok(copy)
}

/// A copy in memory of what `save_all` writes.
pub fn copy_all(segment_file: &File, segment: &Segment) -> io::Result<File> {
    let copy = memory::plain("eyrie-set")?;
    save_all(segment_file, segment, &copy)?;
    Ok(copy)
}

/// Writes all of the segment that its ranks, once they are restored, may still use. None of them
/// may run meanwhile. Returns the length of the file.
pub fn save_all(segment_file: &File, segment: &Segment, to: &File) -> io::Result<u64> {
    let geo = segment.geometry();
    let mut ranges = all_ranges(segment, |ctl| sendlog::released(segment, ctl));
    ranges.extend(windows::ranges(segment_file, geo, 0..geo.ranks)?);
    let parts = [(segment_file, ranges)];
    write(segment, ALL_RANKS, &parts, &Default::default(), to)
}

/// A copy in memory of what `save_all` writes, without what was received already and is retained
/// only so that a rank can be brought back alone from before this moment. None of them may run
/// meanwhile, nor be behind what is recorded of it. Who loads that calls `forget_received`.
pub fn copy_unread(segment_file: &File, segment: &Segment) -> io::Result<File> {
    let copy = memory::plain("eyrie-snapshot")?;
    let read = |ctl: &ChannelCtl| sendlog::released(segment, ctl).max(ctl.need.load(Acquire));
    let parts = [(segment_file, all_ranges(segment, read))];
    write(segment, ALL_RANKS, &parts, &Default::default(), &copy)?;
    Ok(copy)
}

/// Of a segment that `copy_unread` was written of: gives up what is not there.
pub fn forget_received(segment: &Segment) {
    let ranks = segment.geometry().ranks;
    for (src, dst) in (0..ranks).flat_map(|s| (0..ranks).map(move |d| (s, d))) {
        let ctl = segment.channel(src, dst);
        ctl.trim.fetch_max(ctl.need.load(Acquire), Relaxed);
    }
}

/// `parts`: files in which the segment, or some of it, lies, and what of each.
fn write(
    segment: &Segment,
    rank: u32,
    parts: &[(&File, Vec<(u64, u64)>)],
    output: &[Recorded; 2],
    to: &File,
) -> io::Result<u64> {
    write_as(segment, rank, parts, output, to, true)
}

/// The same; forced to the disk before it counts if it is to be `lasting`.
fn write_as(
    segment: &Segment,
    rank: u32,
    parts: &[(&File, Vec<(u64, u64)>)],
    output: &[Recorded; 2],
    to: &File,
    lasting: bool,
) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, to);
    out.write_all(&[0; HEADER_BYTES as usize])?;
    let mut table = Vec::new();
    let mut at = HEADER_BYTES;
    let mut put = |kind: u32, offset: u64, bytes: &[u8]| -> io::Result<()> {
        at += bytes.len() as u64;
        entry(&mut table, kind, offset, bytes);
        out.write_all(bytes)
    };
    for (file, ranges) in parts {
        each_piece(file, ranges, |offset, piece| {
            let used = piece.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
            if used > 0 { put(KIND_SEGMENT, offset, &piece[..used]) } else { Ok(()) }
        })?;
    }
    for (kind, recorded) in (1..).zip(output) {
        for (i, piece) in recorded.bytes.chunks(PIECE_BYTES as usize).enumerate() {
            put(kind, recorded.first + i as u64 * PIECE_BYTES, piece)?;
        }
    }
    out.write_all(&table)?;
    out.flush()?;
    drop(out);
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&rank.to_le_bytes());
    let entries = table.len() as u64 / ENTRY_BYTES;
    for word in [segment.geometry().total_bytes(), at, entries] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let hash = table_hash(&header, &table);
    header.extend_from_slice(&hash);
    header.resize(HEADER_BYTES as usize, 0);
    if lasting {
        to.sync_data()?;
    }
    to.write_all_at(&header, 0)?;
    Ok(at + table.len() as u64)
}

fn entry(table: &mut Vec<u8>, kind: u32, offset: u64, bytes: &[u8]) {
    table.extend_from_slice(&kind.to_le_bytes());
    table.extend_from_slice(&[0; 4]);
    table.extend_from_slice(&offset.to_le_bytes());
    table.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    table.extend_from_slice(&xxh3_128(bytes).to_le_bytes());
}

fn table_hash(head: &[u8], table: &[u8]) -> [u8; 16] {
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(table);
    xxh3_128(&bytes).to_le_bytes()
}

/// The parts of the segment that the rank uses, in order and merged.
fn ranges(segment: &Segment, rank: u32, from: &From) -> Vec<(u64, u64)> {
    let geo = segment.geometry();
    let mut all = vec![(0, 4096)];
    let ctl = geo.ctl_off();
    all.push((ctl, ctl + u64::from(geo.ranks) * size_of::<RankCtl>() as u64));
    let mut channel = |src: u32, dst: u32, first: u64| {
        let ctl = segment.channel(src, dst);
        let at = geo.chan_off() + segment.pair(src, dst) * size_of::<ChannelCtl>() as u64;
        all.push((at, at + size_of::<ChannelCtl>() as u64));
        let chunk = u64::from(geo.chunk_bytes);
        let next = ctl.chunks_next.load(Acquire);
        let oldest = ctl.chunks_first.load(Acquire).max(next.saturating_sub(geo.dir_cap()));
        for n in oldest..next {
            let at = geo.dir_off() + segment.dir_slot(src, dst, n) * size_of::<DirEntry>() as u64;
            all.push((at, at + size_of::<DirEntry>() as u64));
            let tag = segment.dir(src, dst, n).tag.load(Acquire);
            let Some(index) = dir_index(tag, n).filter(|i| *i < geo.pool_chunks) else { continue };
            if n >= first / chunk {
                let at = geo.chunk_off(src, index);
                all.push((at, at + chunk));
            }
        }
    };
    for other in 0..geo.ranks {
        channel(other, rank, from.need.get(other as usize).copied().unwrap_or(0));
        if other != rank {
            channel(rank, other, 0);
        }
    }
    all.extend(determinants(segment, rank, from.det_pos));
    merge(all)
}

/// Where the determinants of a rank from position `from` on lie.
fn determinants(segment: &Segment, rank: u32, from: u64) -> [(u64, u64); 2] {
    let geo = segment.geometry();
    let tail = segment.rank(rank).det_tail.load(Acquire);
    let words = geo.det_words;
    let base = geo.det_off() + u64::from(rank) * words * 8;
    let (first, count) = (from & (words - 1), tail.saturating_sub(from).min(words));
    let whole = count.min(words - first);
    [(base + first * 8, base + (first + whole) * 8), (base, base + (count - whole) * 8)]
}

/// All that is not given up, as `given_up` says of each stream, for all ranks.
fn all_ranges(segment: &Segment, given_up: impl Fn(&ChannelCtl) -> u64) -> Vec<(u64, u64)> {
    let geo = segment.geometry();
    let chunk = u64::from(geo.chunk_bytes);
    // Header, control blocks, channel blocks.
    let mut all = vec![(0, geo.dir_off())];
    for rank in 0..geo.ranks {
        let ctl = segment.rank(rank);
        all.extend(determinants(segment, rank, ctl.det_trim.load(Acquire)));
        for dst in 0..geo.ranks {
            let ctl = segment.channel(rank, dst);
            let kept = given_up(ctl) / chunk;
            let next = ctl.chunks_next.load(Acquire);
            let first = ctl.chunks_first.load(Acquire).max(next.saturating_sub(geo.dir_cap()));
            for n in first..next {
                let slot = segment.dir_slot(rank, dst, n);
                let at = geo.dir_off() + slot * size_of::<DirEntry>() as u64;
                all.push((at, at + size_of::<DirEntry>() as u64));
                let index = walk::chunk_index(segment, rank, dst, n);
                if let Some(index) = index.filter(|_| n >= kept) {
                    let at = geo.chunk_off(rank, index);
                    all.push((at, at + published(segment, (rank, dst), n)));
                }
            }
        }
    }
    merge(all)
}

/// How many bytes of a chunk are published.
fn published(segment: &Segment, (src, dst): (u32, u32), n: u64) -> u64 {
    let Some(mut walk) = Walk::from_chunk(segment, src, dst, n) else { return 0 };
    let (begin, chunk) = (walk.pos(), u64::from(segment.geometry().chunk_bytes));
    while walk.pos() < begin + chunk && matches!(walk.step(segment), Ok(Some(_))) {}
    (walk.pos() - begin).min(chunk)
}

/// The published parts of the streams that the rank has sent, each from this chunk on, or without
/// those for which there is none.
fn stream_ranges(
    segment: &Segment,
    rank: u32,
    from: impl Fn(&ChannelCtl) -> Option<u64>,
) -> Vec<(u64, u64)> {
    let geo = segment.geometry();
    let mut all = vec![(0, 4096)];
    for dst in 0..geo.ranks {
        let ctl = segment.channel(rank, dst);
        let Some(from) = from(ctl) else { continue };
        let at = geo.chan_off() + segment.pair(rank, dst) * size_of::<ChannelCtl>() as u64;
        all.push((at, at + size_of::<ChannelCtl>() as u64));
        let next = ctl.chunks_next.load(Acquire);
        let oldest = ctl.chunks_first.load(Acquire).max(next.saturating_sub(geo.dir_cap()));
        for n in oldest.max(from)..next {
            let Some(index) = walk::chunk_index(segment, rank, dst, n) else { continue };
            let at = geo.dir_off() + segment.dir_slot(rank, dst, n) * size_of::<DirEntry>() as u64;
            all.push((at, at + size_of::<DirEntry>() as u64));
            let at = geo.chunk_off(rank, index);
            all.push((at, at + published(segment, (rank, dst), n)));
        }
    }
    merge(all)
}

/// Adds the streams of a saved log to these ranks to the log of its own, which comes to this node,
/// or back, and does not run yet.
pub fn install(
    loaded: &Loaded,
    segment: &Segment,
    to: impl Fn(u32) -> bool,
) -> Result<(), SavedError> {
    let (from, rank) = (&loaded.segment, loaded.rank);
    if from.geometry() != segment.geometry() {
        return Err(SavedError::Invalid("the shape of the segment"));
    }
    let chunk = from.geometry().chunk_bytes as usize;
    for dst in (0..from.geometry().ranks).filter(|dst| to(*dst)) {
        let ctl = from.channel(rank, dst);
        let next = ctl.chunks_next.load(Acquire);
        let oldest =
            ctl.chunks_first.load(Acquire).max(next.saturating_sub(from.geometry().dir_cap()));
        for n in oldest..next {
            let Some(index) = walk::chunk_index(from, rank, dst, n) else { continue };
            let dir = from.dir(rank, dst, n);
            let known = (dir.seq.load(Acquire), dir.chain.load(Acquire));
            let at = from.chunk(rank, index).as_ptr();
            // SAFETY: a chunk of a segment that nobody else knows.
            let bytes = unsafe { std::slice::from_raw_parts(at, chunk) };
            mirror::install(segment, (rank, dst), n, known, bytes)?;
        }
    }
    Ok(())
}

fn merge(mut all: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    all.retain(|(start, end)| start < end);
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    word(&[&bytes[at..at + 4], &[0; 4]].concat(), 0) as u32
}

/// Reads the saved log of a rank into a segment for the job `name`.
pub fn load(file: &File, name: &str) -> Result<Loaded, SavedError> {
    let loaded = load_any(file, name)?;
    if loaded.rank >= loaded.segment.geometry().ranks {
        return Err(SavedError::Invalid("the rank"));
    }
    Ok(loaded)
}

/// Reads what `save_all` wrote into a segment for the job `name`. What ranks showed each other lay
/// in the memory of processes that are gone, and is forgotten.
pub fn load_all(file: &File, name: &str) -> Result<(OwnedFd, Segment), SavedError> {
    let loaded = load_any(file, name)?;
    if loaded.rank != ALL_RANKS {
        return Err(SavedError::Invalid("it is of one rank only"));
    }
    let ranks = loaded.segment.geometry().ranks;
    for channel in (0..ranks).flat_map(|s| (0..ranks).map(move |d| (s, d))) {
        let channel = loaded.segment.channel(channel.0, channel.1);
        channel.shown.store(0, Relaxed);
        channel.viewing.store(0, Relaxed);
    }
    Ok((loaded.fd, loaded.segment))
}

fn load_any(file: &File, name: &str) -> Result<Loaded, SavedError> {
    let found = file.metadata()?.len();
    let mut header = [0; HEADER_BYTES as usize];
    if found < HEADER_BYTES {
        return Err(SavedError::NotALog);
    }
    file.read_exact_at(&mut header, 0)?;
    if header[..8] != MAGIC {
        return Err(SavedError::NotALog);
    }
    if half(&header, 8) != VERSION {
        return Err(SavedError::Version(half(&header, 8)));
    }
    let (rank, segment_bytes) = (half(&header, 12), word(&header, 16));
    let table = read_table(file, &header, found)?;
    if segment_bytes > MAX_SEGMENT_BYTES {
        return Err(SavedError::Invalid("the size of the segment"));
    }
    let memory = memory::shared(&format!("{NAME_PREFIX}{name}"))?;
    memory.set_len(segment_bytes)?;
    // What windows held lies behind it.
    let mut last = segment_bytes;
    let mut output = [Recorded::default(), Recorded::default()];
    let mut at = HEADER_BYTES;
    let mut buffer = Vec::new();
    for entry in table {
        buffer.resize(entry.bytes as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        at += entry.bytes;
        if xxh3_128(&buffer).to_le_bytes() != entry.hash {
            return Err(SavedError::Checksum("its content"));
        }
        match entry.kind {
            KIND_SEGMENT => {
                let end = entry.offset.checked_add(entry.bytes);
                let Some(end) = end.filter(|end| *end <= MAX_SEGMENT_BYTES) else {
                    return Err(SavedError::Invalid("a part beyond the segment"));
                };
                last = last.max(end);
                memory.write_all_at(&buffer, entry.offset)?;
            }
            kind => {
                let recorded = &mut output[kind as usize - 1];
                if recorded.bytes.is_empty() {
                    recorded.first = entry.offset;
                }
                recorded.bytes.extend_from_slice(&buffer);
            }
        }
    }
    let segment = Segment::open(memory.as_fd())?;
    if segment.geometry().total_bytes() != segment_bytes {
        return Err(SavedError::Invalid("the shape of the segment"));
    }
    if last > segment_bytes.max(segment.geometry().file_bytes()) {
        return Err(SavedError::Invalid("a part beyond the segment"));
    }
    windows::extend(&memory, &segment);
    Ok(Loaded { fd: OwnedFd::from(memory), segment, rank, output })
}

/// The table, held against its checksum and the length of the file.
fn read_table(file: &File, header: &[u8], found: u64) -> Result<Vec<Entry>, SavedError> {
    let (table_at, entries) = (word(header, 24), word(header, 32));
    let end = entries.checked_mul(ENTRY_BYTES).and_then(|b| b.checked_add(table_at));
    if end != Some(found) || table_at < HEADER_BYTES {
        return Err(SavedError::Invalid("its length"));
    }
    let mut raw = vec![0; (found - table_at) as usize];
    file.read_exact_at(&mut raw, table_at)?;
    let padding = header[HASH_AT + 16..].iter().all(|&b| b == 0);
    if table_hash(&header[..HASH_AT], &raw) != header[HASH_AT..HASH_AT + 16] || !padding {
        return Err(SavedError::Checksum("the header"));
    }
    let mut left = table_at - HEADER_BYTES;
    let mut table = Vec::new();
    for raw in raw.chunks_exact(ENTRY_BYTES as usize) {
        let mut hash = [0; 16];
        hash.copy_from_slice(&raw[24..]);
        let entry = Entry { kind: half(raw, 0), offset: word(raw, 8), bytes: word(raw, 16), hash };
        if entry.kind >= KINDS || half(raw, 4) != 0 || entry.bytes > PIECE_BYTES.min(left) {
            return Err(SavedError::Invalid("an entry of its table"));
        }
        left -= entry.bytes;
        table.push(entry);
    }
    if left == 0 { Ok(table) } else { Err(SavedError::Invalid("its length")) }
}

#[cfg(test)]
#[path = "saved_tests.rs"]
mod tests;
