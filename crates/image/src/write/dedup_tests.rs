//! Pages of this very process held against files written from others of its pages.

use super::*;
use crate::write::page_sort::Share;
use crate::write::pool::{Lent, Pool, Sharing};
use eyrie_image_format::bytes::layout::{Ancestor, codec};
use eyrie_image_format::read::chain::Known;
use eyrie_image_format::write::pack::{Packer, Tuner};
use eyrie_image_format::write::writer::{Contents, ImageWriter};
use std::sync::Arc;

/// Memory of our own that begins at a page.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    /// Pages that each hold a number of their own; 0 stands for a page of zeros.
    fn new(pages: &[u64]) -> Memory {
        let bytes = vec![0; (pages.len() + 1) * PAGE];
        let at = bytes.as_ptr() as usize;
        let mut memory = Memory { bytes, start: at.next_multiple_of(PAGE) - at };
        for (i, &number) in pages.iter().enumerate() {
            let page = &mut memory.bytes[memory.start + i * PAGE..][..PAGE];
            page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
        }
        memory
    }

    fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64 + self.start as u64
    }

    fn pages(&self) -> &[u8] {
        &self.bytes[self.start..][..self.bytes.len() - PAGE]
    }

    fn sorted(&self) -> Sorted {
        let end = self.address() + self.pages().len() as u64;
        let spans = Spans::of(vec![Span { start: self.address(), end }]);
        Sorted { take: vec![Share { region: 0, spans }], ..Sorted::default() }
    }
}

/// A folder of images, and who lends them.
struct Folder {
    dir: tempfile::TempDir,
    pool: Arc<Pool>,
}

impl Folder {
    fn new(sharing: Sharing) -> Folder {
        Folder { dir: tempfile::tempdir().unwrap(), pool: Pool::new(sharing) }
    }

    /// Writes a file with these pages that `member` lends.
    fn lend(&self, member: u32, name: &str, memory: &Memory, how: u32) {
        let path = self.dir.path().join(name);
        let writer = ImageWriter::create(&path).unwrap();
        let tuner = Tuner::new(Some(how));
        for block in memory.pages().chunks(40 * PAGE) {
            writer.append(&Packer::default().pack(&tuner, block).unwrap()).unwrap();
        }
        let pages = writer.pages();
        let state = eyrie_image_format::testing::state();
        let contents = Contents { state: &state, extents: &[], ancestors: &[], meta: b"" };
        let identity = writer.commit(&contents).unwrap().identity;
        let hashes: Vec<u64> = memory.pages().chunks_exact(PAGE).map(hash).collect();
        let file = Ancestor { name: name.into(), identity };
        let known = Known { file, pages, lent: false };
        self.pool.lend(Lent::new(member, self.dir.path(), known, &hashes));
    }

    fn borrow(&self, member: u32, memory: &Memory) -> (u64, Sorted) {
        let mut sorted = memory.sorted();
        let source = Source::open(std::process::id() as i32).unwrap();
        let member = Member { pool: Arc::clone(&self.pool), number: member };
        let pages = borrow(&member, self.dir.path(), &source, &mut sorted).unwrap();
        (pages, sorted)
    }
}

/// What is referred to: first page of the memory, pages, file, first page in it.
fn runs(memory: &Memory, sorted: &Sorted) -> Vec<(u64, u64, u32, u64)> {
    let first = |e: &Extent| (e.start - memory.address()) / PAGE_BYTES;
    sorted.extents.iter().map(|e| (first(e), e.pages, e.home, e.first)).collect()
}

#[test]
fn runs_that_another_has_are_referred_to() {
    for how in [codec::NONE, codec::LZ4, codec::ZSTD] {
        let folder = Folder::new(Sharing::Auto);
        let theirs = Memory::new(&(1..=200).collect::<Vec<u64>>());
        folder.lend(0, "a", &theirs, how);
        // A long run at another place, one of 16 pages, one of 15, and pages of its own.
        let mut pages: Vec<u64> = (1000..1037).collect();
        pages.extend(51..=150);
        pages.extend([0, 0, 2000]);
        pages.extend(1..=16);
        pages.extend([3000]);
        pages.extend(20..=34);
        let ours = Memory::new(&pages);
        let (found, sorted) = folder.borrow(1, &ours);
        assert_eq!(runs(&ours, &sorted), [(37, 100, 1, 50), (140, 16, 1, 0)]);
        assert_eq!((found, sorted.ancestors.len()), (116, 1));
        let left: u64 = sorted.take[0].spans.bytes() / PAGE_BYTES;
        assert_eq!(left, pages.len() as u64 - 116);
        assert_eq!(folder.borrow(0, &ours).0, 0, "nobody borrows from itself");
    }
}

#[test]
fn no_page_is_borrowed_twice() {
    let folder = Folder::new(Sharing::On);
    folder.lend(0, "a", &Memory::new(&(1..=64).collect::<Vec<u64>>()), codec::NONE);
    let twice: Vec<u64> = (1..=64).chain(1..=64).collect();
    let ours = Memory::new(&twice);
    let (found, sorted) = folder.borrow(1, &ours);
    assert_eq!((found, runs(&ours, &sorted)), (64, vec![(0, 64, 1, 0)]));
}

#[test]
fn a_hash_alone_proves_nothing() {
    let folder = Folder::new(Sharing::On);
    let theirs = Memory::new(&(1..=64).collect::<Vec<u64>>());
    folder.lend(0, "a", &theirs, codec::NONE);
    // The file is another than the table says: as if all hashes collided.
    let other = Memory::new(&(101..=164).collect::<Vec<u64>>());
    let known = folder.pool.lenders(9, folder.dir.path())[0].known.clone();
    let hashes: Vec<u64> = other.pages().chunks_exact(PAGE).map(hash).collect();
    folder.pool.lend(Lent::new(0, folder.dir.path(), known, &hashes));
    assert_eq!(folder.borrow(1, &other).0, 0);
}

#[test]
fn a_file_that_was_changed_is_left_alone() {
    let folder = Folder::new(Sharing::On);
    let pages = Memory::new(&(1..=64).collect::<Vec<u64>>());
    folder.lend(0, "a", &pages, codec::NONE);
    let path = folder.dir.path().join("a");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    // The second block is sound.
    let (_, sorted) = folder.borrow(1, &pages);
    assert_eq!(runs(&pages, &sorted), [(40, 24, 1, 40)]);
    std::fs::remove_file(&path).unwrap();
    folder.pool.clear();
    assert_eq!(folder.borrow(1, &pages).0, 0);
}

#[test]
fn too_little_is_not_worth_it() {
    let folder = Folder::new(Sharing::Auto);
    folder.lend(0, "a", &Memory::new(&(1..=400).collect::<Vec<u64>>()), codec::NONE);
    let mut pages: Vec<u64> = (1000..1368).collect();
    pages.extend(1..=32);
    let ours = Memory::new(&pages);
    assert_eq!(folder.borrow(1, &ours).0, 0, "less than a tenth of the image");
    let wanted = Folder::new(Sharing::On);
    wanted.lend(0, "a", &Memory::new(&(1..=400).collect::<Vec<u64>>()), codec::NONE);
    assert_eq!(wanted.borrow(1, &ours).0, 32);
    let large = Folder::new(Sharing::On);
    large.lend(0, "a", &Memory::new(&(1..=600).collect::<Vec<u64>>()), codec::NONE);
    assert_eq!(large.borrow(1, &ours).0, 0, "less than a sixteenth of the other's file");
}
