//! Memory of MPI windows that several ranks map: an arena for each rank, behind the log pools in
//! the file of the segment.
//!
//! The rank that an arena belongs to gives out parts of it, and tells others where they lie; they
//! map them with the segment's own file, of which no rank has a descriptor. So images leave that
//! memory out, and a restore maps it again, as the segment; what it holds goes with what is copied
//! of the segment when ranks are checkpointed together (`saved`).
//!
//! Kept true: a part that is given out is mapped by ranks of one recovery unit only; nothing of it
//! is used before its rank has cleared it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::segment::{Geometry, Segment};

/// Most that the arenas of a segment have together, and one of them: addresses, not memory.
const ALL_BYTES: u64 = 1 << 46;
const MOST_BYTES: u64 = 1 << 40;
const PAGE: u64 = 4096;
/// `JobHeader::windows`: the file has memory for windows behind the pools.
pub const ROOM: u32 = 1;
/// `JobHeader::windows`: ranks that come back alone become one unit where they are to have memory
/// in common.
pub const GROW: u32 = 2;
/// Read and written at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl Geometry {
    /// Bytes of one rank's arena.
    pub fn arena_bytes(&self) -> u64 {
        (ALL_BYTES / u64::from(self.ranks.max(1)).next_power_of_two()).min(MOST_BYTES)
    }

    /// Where the arena of a rank begins in the segment's file.
    pub fn arena_off(&self, rank: u32) -> u64 {
        self.total_bytes().next_multiple_of(2 << 20) + u64::from(rank) * self.arena_bytes()
    }

    /// Length of the segment's file with all arenas.
    pub fn file_bytes(&self) -> u64 {
        self.arena_off(self.ranks)
    }
}

/// Makes the segment's file long enough for arenas, where files may be that long, and notes that in
/// the header. Before any rank runs.
pub(crate) fn extend(file: &File, segment: &Segment) {
    let need = segment.geometry().file_bytes();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live place for the limit. Beyond it there would be a signal that ends the process.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    let there = known && limit.rlim_cur >= need && file.set_len(need).is_ok();
    segment.header().windows.store(if there { ROOM } else { 0 }, Release);
}

impl Segment {
    /// Whether there is memory for windows.
    pub fn has_arenas(&self) -> bool {
        self.header().windows.load(Relaxed) & ROOM != 0
    }

    /// Whether ranks become one unit where they are to have memory in common.
    pub fn grows_units(&self) -> bool {
        self.header().windows.load(Relaxed) == ROOM | GROW
    }

    /// Says whether they do. Before any rank runs.
    pub fn grow_units(&self, grow: bool) {
        let windows = &self.header().windows;
        let bits = windows.load(Relaxed) & ROOM;
        windows.store(bits | if grow { GROW } else { 0 }, Release);
    }

    /// Maps so much of a rank's arena from `offset` on, until the result is dropped.
    pub fn map_arena(&self, rank: u32, offset: u64, bytes: u64) -> io::Result<MappedArena> {
        let geo = self.geometry();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= geo.arena_bytes());
        if !self.has_arenas()
            || rank >= geo.ranks
            || !inside
            || bytes == 0
            || !offset.is_multiple_of(PAGE)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = bytes.next_multiple_of(PAGE) as usize;
        // There is no descriptor of the file here: a mapping of it is doubled, which may become
        // longer than it was, and what lies before is given up again.
        let anchor = geo.total_bytes() - PAGE;
        let front = (geo.arena_off(rank) + offset - anchor) as usize;
        let from = self.page_at(anchor);
        // SAFETY: doubles a page of our own shared mapping (an old length of 0) at an address that
        // the kernel picks; the front is part of what it made, and nobody else knows of it.
        let at = unsafe {
            let all = libc::mremap(from.as_ptr().cast(), 0, front + bytes, libc::MREMAP_MAYMOVE);
            if all == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::munmap(all, front);
            all.cast::<u8>().add(front)
        };
        let at = NonNull::new(at).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // SAFETY: advice on our own mapping; a refusal changes nothing but speed.
        unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(MappedArena { at, bytes })
    }
}

/// A part of an arena, mapped.
pub struct MappedArena {
    at: NonNull<u8>,
    bytes: usize,
}

impl MappedArena {
    pub fn base(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Gives up what it holds: it is zero, for everybody.
    pub fn clear(&self) -> io::Result<()> {
        // SAFETY: our own mapping of a file in memory; whoever reads it finds zeros.
        let r = unsafe { libc::madvise(self.at.as_ptr().cast(), self.bytes, libc::MADV_REMOVE) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for MappedArena {
    fn drop(&mut self) {
        // SAFETY: what `map_arena` mapped; whoever uses it holds this.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Where the arenas of these ranks hold something.
pub(crate) fn ranges(
    file: &File,
    geo: Geometry,
    ranks: impl IntoIterator<Item = u32>,
) -> io::Result<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    for rank in ranks {
        let (mut at, end) = (geo.arena_off(rank), geo.arena_off(rank + 1));
        while let Some(start) = seek(file, at, libc::SEEK_DATA)?.filter(|start| *start < end) {
            at = seek(file, start, libc::SEEK_HOLE)?.map_or(end, |hole| hole.min(end));
            all.push((start, at));
            if at >= end {
                break;
            }
        }
    }
    Ok(all)
}

/// The next place of data, or the end of it; `None` behind all.
fn seek(file: &File, from: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: moves the offset of a description of which nobody uses the offset.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            e => Err(e),
        },
    }
}

/// Has the arenas hold what they do in the file of another segment of the same sizes, as far as
/// that has any of a rank that is not yet in `done`. Nobody who maps them runs.
pub fn bring(from: &File, to: &File, geo: Geometry, done: &mut BTreeSet<u32>) -> io::Result<()> {
    for rank in 0..geo.ranks {
        let parts = ranges(from, geo, [rank])?;
        if parts.is_empty() || done.contains(&rank) {
            continue;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (start, bytes) = (geo.arena_off(rank) as i64, geo.arena_bytes() as i64);
        // SAFETY: numbers only.
        if unsafe { libc::fallocate(to.as_raw_fd(), mode, start, bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut buffer = vec![0; PIECE_BYTES as usize];
        for (start, end) in parts {
            for at in (start..end).step_by(PIECE_BYTES as usize) {
                let piece = &mut buffer[..PIECE_BYTES.min(end - at) as usize];
                from.read_exact_at(piece, at)?;
                to.write_all_at(piece, at)?;
            }
        }
        done.insert(rank);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved;
    use crate::segment::FT_COORDINATED;
    use std::os::fd::AsFd;

    const GEO: Geometry =
        Geometry { ranks: 3, chunk_bytes: 4096, pool_chunks: 8, det_words: 1 << 10 };

    fn at(arena: &MappedArena, at: usize) -> u8 {
        assert!(at < arena.bytes);
        // SAFETY: within a mapping that only this test uses.
        unsafe { arena.base().add(at).read_volatile() }
    }

    fn put(arena: &MappedArena, at: usize, byte: u8) {
        assert!(at < arena.bytes);
        // SAFETY: as above.
        unsafe { arena.base().add(at).write_volatile(byte) }
    }

    #[test]
    fn who_maps_a_part_of_an_arena_sees_what_others_store_there() {
        let (fd, made) = Segment::create("t", GEO, 0, 2).unwrap();
        let opened = Segment::open(fd.as_fd()).unwrap();
        let one = made.map_arena(2, 8192, 5000).unwrap();
        let other = opened.map_arena(2, 8192, 5000).unwrap();
        assert_eq!(one.bytes, 8192);
        put(&one, 4999, 7);
        assert_eq!(at(&other, 4999), 7);
        assert_eq!(at(&made.map_arena(1, 8192, 5000).unwrap(), 4999), 0);
        other.clear().unwrap();
        assert_eq!(at(&one, 4999), 0);
    }

    #[test]
    fn units_grow_only_where_there_is_memory_to_share() {
        let (_, seg) = Segment::create("t", GEO, 0, 2).unwrap();
        assert!(seg.has_arenas() && !seg.grows_units());
        seg.grow_units(true);
        assert!(seg.has_arenas() && seg.grows_units());
        seg.grow_units(false);
        assert!(seg.has_arenas() && !seg.grows_units());
        seg.header().windows.store(0, Release);
        seg.grow_units(true);
        assert!(!seg.has_arenas() && !seg.grows_units());
    }

    #[test]
    fn nothing_beyond_an_arena_is_mapped() {
        let (_, seg) = Segment::create("t", GEO, 0, 2).unwrap();
        let all = GEO.arena_bytes();
        for (rank, offset, bytes) in [(3, 0, 1), (0, all, 1), (0, 0, all + 1), (0, 1, 1), (0, 0, 0)]
        {
            assert!(seg.map_arena(rank, offset, bytes).is_err(), "{rank} {offset} {bytes}");
        }
    }

    #[test]
    fn what_windows_hold_is_saved_with_the_segment_and_brought_back() {
        const LAST: usize = (3 << 20) - 1;
        let (fd, seg) = Segment::create("t", GEO, FT_COORDINATED, 2).unwrap();
        let arena = seg.map_arena(1, 0, 3 << 20).unwrap();
        put(&arena, 0, 1);
        put(&arena, LAST, 2);
        let file = File::from(fd);
        let copy = saved::copy_all(&file, &seg).unwrap();
        let (loaded, again) = saved::load_all(&copy, "t").unwrap();
        let found = again.map_arena(1, 0, 3 << 20).unwrap();
        assert_eq!([0, 1, LAST / 2, LAST].map(|i| at(&found, i)), [1, 0, 0, 2]);
        // What came later is gone, once.
        put(&arena, 1, 9);
        let (loaded, mut done) = (File::from(loaded), BTreeSet::new());
        bring(&loaded, &file, GEO, &mut done).unwrap();
        assert_eq!((at(&arena, 0), at(&arena, 1), &done), (1, 0, &BTreeSet::from([1])));
        put(&arena, 1, 9);
        bring(&loaded, &file, GEO, &mut done).unwrap();
        assert_eq!(at(&arena, 1), 9);
    }
}
