//! Hostile image files: any change of a good one is refused, and what hides behind right checksums
//! is held against itself.

use super::*;
use crate::bytes::encoding::{self, Wire};
use crate::bytes::layout::{self, BLOCK_BYTES, Block, HEADER_BYTES, Section, codec};
use crate::state::resources::Stdio;
use crate::state::{Backing, Fingerprint, Placement, Policy, RangePolicy, Switches, Target};
use crate::testing::*;
use crate::write::pack::{Packer, Tuner};
use crate::write::writer::{Contents, ImageWriter};
use proptest::prelude::*;
use std::fs::{self, File};

/// Writes a changed state with right checksums and says how it is received.
fn received(change: impl FnOnce(&mut State, &mut Vec<Extent>)) -> Result<Image, ImageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (mut state, mut extents) = (state(), extents());
    change(&mut state, &mut extents);
    write(&path, &state, &extents);
    Image::open(&path)
}

#[test]
fn what_is_written_is_read() {
    for how in [codec::NONE, codec::LZ4, codec::ZSTD] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let written = write_with(&path, &state(), &extents(), &[], how);
        let image = Image::open(&path).unwrap();
        assert_eq!(image.state, state());
        assert_eq!(image.extents, extents());
        assert_eq!(image.meta(), b"meta");
        assert_eq!(image.identity(), written.identity);
        assert_eq!(image.summary().pages, 3);
        assert!(image.parts[0].blocks().iter().all(|b| b.codec == how));
        let pages = content(3);
        let expected: Vec<(u64, Vec<u8>)> = [2, 3, 5]
            .iter()
            .map(|p| p * PAGE)
            .zip(pages.chunks(PAGE as usize).map(Vec::from))
            .collect();
        assert_eq!(memory(&image), expected);
    }
}

/// A file and the one that it builds on.
pub(crate) struct Pair {
    pub folder: tempfile::TempDir,
    ancestors: Vec<Ancestor>,
}

impl Pair {
    pub fn new() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old");
        let identity = write_with(&old, &state(), &extents(), &[], codec::LZ4).identity;
        let pair = Pair { folder, ancestors: vec![Ancestor { name: b"old".to_vec(), identity }] };
        // Of each file one page is needed that the other has too, and one that is its own.
        let extents = [extent(2, 1, 1, 2), extent(3, 1, 0, 0), extent(5, 2, 0, 1)];
        write_with(&pair.path("new"), &state(), &extents, &pair.ancestors, codec::NONE);
        pair
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self) -> Result<Image, ImageError> {
        Image::open(&self.path("new"))
    }
}

#[test]
fn content_is_found_in_earlier_files() {
    let pair = Pair::new();
    let image = pair.open().unwrap();
    let (pages, page) = (content(3), PAGE as usize);
    let expected = [(2, 2), (3, 0), (5, 1), (6, 2)]
        .map(|(to, from)| (to * PAGE, pages[from * page..(from + 1) * page].to_vec()));
    assert_eq!(memory(&image), expected);
    assert_eq!(image.ancestors().collect::<Vec<_>>(), ["old"]);
    let summary = image.summary();
    assert_eq!((summary.pages, summary.own_pages, summary.ancestors), (4, 3, 1));
}

#[test]
fn an_earlier_file_must_be_there_and_be_the_same() {
    let named = |pair: &Pair, expected: &str| {
        let error = pair.open().unwrap_err();
        assert!(matches!(&error, ImageError::Ancestor { name, .. } if name == "old"), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    let pair = Pair::new();
    fs::remove_file(pair.path("old")).unwrap();
    named(&pair, "cannot read");
    // Whole, with the same pages, but not the one.
    let other = State { umask: 0, ..state() };
    write_with(&pair.path("old"), &other, &extents(), &[], codec::LZ4);
    named(&pair, "replaced");
    fs::write(pair.path("old"), b"EYRIE").unwrap();
    named(&pair, "not an image");
}

/// In an earlier file only what is needed counts.
#[test]
fn of_an_earlier_file_the_needed_blocks_are_verified() {
    let pair = Pair::new();
    let image = pair.open().unwrap();
    let good = fs::read(pair.path("old")).unwrap();
    assert_eq!(image.parts[1].blocks().len(), 3);
    for (at, holds) in [(0, true), (2 * PAGE as usize, false)] {
        let mut bytes = good.clone();
        bytes[HEADER_BYTES as usize + at] ^= 1;
        fs::write(pair.path("old"), bytes).unwrap();
        assert_eq!(pair.open().is_ok(), holds, "byte {at}");
    }
}

/// Of files that are known nothing but the frame is read: an image that builds on many, of which
/// little is new, costs no more than what is new.
#[test]
fn pages_of_files_that_are_known_are_not_read() {
    let pair = Pair::new();
    let old = Image::identity_of(&pair.path("old")).unwrap();
    assert_eq!(old, pair.open().unwrap().parts[1].identity);
    let mut bytes = fs::read(pair.path("old")).unwrap();
    bytes[HEADER_BYTES as usize + 2 * PAGE as usize] ^= 1;
    fs::write(pair.path("old"), bytes).unwrap();
    let new = pair.path("new");
    Image::open_knowing(&new, |identity| *identity == old).unwrap();
    assert!(Image::open_knowing(&new, |_| false).is_err());
}

#[test]
fn a_file_is_verified_by_itself_at_the_pace_that_it_is_given() {
    let pair = Pair::new();
    let asked = std::sync::atomic::AtomicU64::new(0);
    let pace = |bytes: u64| {
        asked.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    Image::verify_own(&pair.path("old"), &pace).unwrap();
    let part = Part::open(&pair.path("old")).unwrap();
    let stored: u64 = part.blocks().iter().map(|block| u64::from(block.stored)).sum();
    assert_eq!(asked.into_inner(), stored);
    let over = |_: u64| Err(std::io::Error::from_raw_os_error(libc::EINTR));
    let ended = Image::verify_own(&pair.path("old"), &over);
    assert!(matches!(ended, Err(ImageError::Read { .. })), "{ended:?}");
}

#[test]
fn strange_lists_of_earlier_files_are_refused() {
    let pair = Pair::new();
    let identity = pair.ancestors[0].identity;
    let named = |name: &[u8]| Ancestor { name: name.to_vec(), identity };
    let cases: [(&str, Vec<Ancestor>); 6] = [
        ("path", vec![named(b"../old")]),
        ("folder", vec![named(b"..")]),
        ("empty", vec![named(b"")]),
        ("zero", vec![named(b"old\0")]),
        ("twice", vec![named(b"old"), named(b"old")]),
        ("long", vec![named(&[b'x'; 256])]),
    ];
    for (what, list) in cases {
        write_with(&pair.path("new"), &state(), &extents(), &list, codec::NONE);
        assert!(matches!(pair.open(), Err(ImageError::Invalid(_))), "{what}");
    }
}

/// What stands in the tables of a file besides what the writer would put there.
fn received_blocks(
    change: impl FnOnce(&mut Vec<Block>, &mut Vec<u8>),
) -> Result<Image, ImageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let writer = ImageWriter::create(&path).unwrap();
    let (mut packer, tuner) = (Packer::default(), Tuner::new(Some(codec::ZSTD)));
    let (mut blocks, mut stored) = (Vec::new(), Vec::new());
    for page in content(9).chunks(3 * PAGE as usize) {
        let packed = packer.pack(&tuner, page).unwrap();
        assert_eq!(packed.block.codec, codec::ZSTD);
        blocks.push(packed.block);
        stored.extend_from_slice(packed.padded);
    }
    change(&mut blocks, &mut stored);
    writer.append_raw(&blocks, &stored).unwrap();
    let (state, extents) = (state(), extents());
    let contents = Contents { state: &state, extents: &extents, ancestors: &[], meta: b"" };
    writer.commit(&contents).unwrap();
    let image = Image::open(&path)?;
    // What is right on the disk may still not be what it says.
    let mut reader = crate::read::blocks::Blocks::default();
    for i in 0..image.parts[0].blocks().len() {
        reader.pages(&image.parts[0], i)?;
    }
    Ok(image)
}

#[test]
fn hostile_blocks_are_refused() {
    type Change = fn(&mut Vec<Block>, &mut Vec<u8>);
    let changes: &[(&str, Change)] = &[
        ("bomb", |b, _| b[0].raw = 1 << 31),
        ("bomb of one block", |b, _| b[0].raw = BLOCK_BYTES as u32),
        ("nothing", |b, _| b[0].raw = 0),
        ("half a page", |b, _| b[0].raw = 2048),
        ("stored nowhere", |b, _| b[0].stored = 0),
        ("stored beyond the end", |b, _| b[2].stored += PAGE as u32),
        ("stored without an end", |b, _| b[0].stored = u32::MAX),
        ("bytes of no block", |_, s| s.resize(s.len() + PAGE as usize, 0)),
        ("something behind a block", |b, s| s[b[0].stored as usize] = 1),
        ("codec", |b, _| b[0].codec = 3),
        ("other codec", |b, _| b[0].codec = codec::LZ4),
        ("not compressed", |b, _| b[0].codec = codec::NONE),
        ("reserved", |b, _| b[0].reserved = 1),
        ("checksum of what is stored", |b, _| b[0].stored_hash[0] ^= 1),
        ("checksum of the pages", |b, _| b[0].hash[0] ^= 1),
        ("pages of another block", |b, _| b.swap(0, 1)),
        ("too few pages", |b, s| {
            b.truncate(1);
            s.truncate(PAGE as usize);
            b[0].raw = PAGE as u32;
        }),
    ];
    assert!(received_blocks(|_, _| {}).is_ok());
    for (what, change) in changes {
        match received_blocks(change) {
            Err(ImageError::Invalid(_) | ImageError::Checksum(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn contradictions_behind_right_checksums_are_refused() {
    type Change = fn(&mut State, &mut Vec<Extent>);
    let changes: &[(&str, Change)] = &[
        ("overlap", |s, _| s.regions[0].end = 6 * PAGE),
        ("order", |s, _| s.regions.swap(0, 1)),
        ("unaligned", |s, _| s.regions[0].start += 1),
        ("empty", |s, _| s.regions[0].start = s.regions[0].end),
        ("beyond the address space", |s, _| s.regions[1].end = 1 << 60),
        ("over the vdso", |s, _| {
            s.regions.push(region(65 * PAGE, 67 * PAGE, Backing::Anon {}));
        }),
        ("unknown protection", |s, _| s.regions[0].prot = 8),
        ("unknown flag", |s, _| s.regions[0].flags = 1 << 31),
        ("unknown file", |s, _| s.regions[1].backing = Backing::File { file: 1, offset: 0 }),
        ("offset wraps", |s, _| {
            s.regions[1].backing = Backing::File { file: 0, offset: !(PAGE - 1) };
        }),
        ("shared without a file", |s, _| s.regions[0].flags = crate::state::region::SHARED),
        ("pages outside", |_, e| e[1].start = 20 * PAGE),
        ("pages beyond their region", |_, e| e[1].start = 8 * PAGE + PAGE),
        ("pages out of order", |_, e| e.swap(0, 1)),
        ("no pages", |_, e| e[1].pages = 0),
        ("pages without an end", |_, e| e[1].pages = u64::MAX / PAGE),
        ("pages that the file does not have", |_, e| e[1].first = 3),
        ("pages after the last", |_, e| e[1].first = u64::MAX),
        ("pages in no file", |_, e| e[1].home = 1),
        ("pages used twice", |_, e| e[1].first = 1),
        ("reserved", |_, e| e[1].reserved = 1),
        ("no vdso", |s, _| s.specials.clear()),
        ("strange special", |s, _| s.specials[0].name = b"[heap]".to_vec()),
        ("description", |s, _| s.descriptors[0].description = 1),
        ("descriptor twice", |s, _| s.descriptors.push(s.descriptors[0].clone())),
        ("descriptor number", |s, _| s.descriptors[0].fd = u32::MAX),
        ("stream", |s, _| s.descriptions[0].target = Target::Stdio(Stdio { which: 3 })),
        ("relative path", |s, _| s.files[0].path = b"x".to_vec()),
        ("a file without what tells its content", |s, _| s.contents.clear()),
        ("no build-id", |s, _| s.contents[0] = Fingerprint::Build { id: vec![] }),
        ("long build-id", |s, _| s.contents[0] = Fingerprint::Build { id: vec![1; 65] }),
        ("path with a zero", |s, _| s.cwd = b"/a\0b".to_vec()),
        ("signal number", |s, _| s.actions[0].signal = 65),
        ("signal that cannot be caught", |s, _| s.actions[0].signal = 9),
        ("pending signal", |s, _| s.pending[0].info[0] = 0),
        ("vector registers", |s, _| s.threads[0].xstate.truncate(8)),
        ("vector registers of another size", |s, _| s.threads[1].xstate.truncate(2632)),
        ("no thread", |s, _| s.threads.clear()),
        ("first thread", |s, _| s.threads.swap(0, 1)),
        ("thread twice", |s, _| s.threads[1].tid = 42),
        ("thread number", |s, _| s.threads[1].tid = -1),
        ("pending signal of a thread", |s, _| s.threads[1].pending[0].info[0] = 99),
        ("name", |s, _| s.threads[1].comm = vec![b'x'; 16]),
        ("guard", |s, _| s.guards.push(crate::state::Guard { start: 30 * PAGE, end: 31 * PAGE })),
        ("rseq", |s, _| s.threads[1].rseq.as_mut().unwrap().addr = u64::MAX),
    ];
    for (what, change) in changes {
        match received(change) {
            Err(ImageError::Invalid(_)) => {}
            other => panic!("{what}: {:?}", other.map(|_| ())),
        }
    }
}

/// A change of any byte that is written for the same content is a change of version.
#[test]
fn the_format_does_not_change_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &extents());
    let golden = u128::from_le_bytes(layout::hash(&fs::read(&path).unwrap()));
    assert_eq!(golden, 161821679931336666601121454237661246597);
}

#[test]
fn another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &extents());
    let mut bytes = fs::read(&path).unwrap();
    for version in [3, 8] {
        bytes[8] = version;
        fs::write(&path, &bytes).unwrap();
        let named = format!("version {version}");
        assert!(matches!(Image::open(&path), Err(ImageError::Other(v)) if v == named));
    }
}

/// An image of an earlier version made of one of this that has nothing new in it.
fn older(image: &[u8], version: u32) -> Vec<u8> {
    let added = State::what_was_added_since(version).len();
    let mut header = layout::parse_header(&image[..HEADER_BYTES as usize]).unwrap();
    let mut from = encoding::Reader::new(&image[header.table_offset as usize..]);
    let mut table: Vec<Section> =
        layout::SECTIONS.iter().map(|_| Section::get(&mut from).unwrap()).collect();
    let end = (table[4].offset + table[4].bytes) as usize;
    let mut old = image[..end - added].to_vec();
    table[4].bytes -= added as u64;
    table[4].hash = layout::hash(&old[table[4].offset as usize..]);
    old.extend_from_slice(&image[end..header.table_offset as usize]);
    table[5].offset -= added as u64;
    let mut raw = Vec::new();
    table.iter().for_each(|section| section.put(&mut raw));
    (header.version, header.table_offset) = (version, old.len() as u64);
    header.table_hash = layout::hash(&raw);
    old.extend_from_slice(&raw);
    header.file_bytes = old.len() as u64;
    old[..HEADER_BYTES as usize].copy_from_slice(&layout::header_page(&header));
    old
}

#[test]
fn the_versions_before_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    for version in [4, 5] {
        let mut nothing_new = State { clocks: None, ..state() };
        if version == 4 {
            nothing_new.placement = Placement::default();
            nothing_new.switches = Switches::default();
        }
        write(&path, &nothing_new, &extents());
        let new = fs::read(&path).unwrap();
        let mut old = older(&new, version);
        fs::write(&path, &old).unwrap();
        assert_eq!(Image::open(&path).unwrap().state, nothing_new);
        Image::verify_own(&path, &|_| Ok(())).unwrap();
        // What is new has no place in it.
        let mut header = layout::parse_header(&new[..HEADER_BYTES as usize]).unwrap();
        header.version = version;
        old = new;
        old[..HEADER_BYTES as usize].copy_from_slice(&layout::header_page(&header));
        fs::write(&path, &old).unwrap();
        assert!(matches!(Image::open(&path), Err(ImageError::Invalid(_))));
    }
}

/// What was written as version 5 reads as it did.
#[test]
fn version_5_is_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &State { clocks: None, ..state() }, &extents());
    let old = older(&fs::read(&path).unwrap(), 5);
    assert_eq!(u128::from_le_bytes(layout::hash(&old)), 7721658921366119436718015914943149485);
}

#[test]
fn hostile_policies_and_switches_are_refused() {
    let range = |start, end| RangePolicy { start, end, policy: Policy::default() };
    let changes: [fn(&mut State); 7] = [
        |s| s.placement.threads.truncate(1),
        |s| s.placement.threads[0].mode = 1 << 20,
        |s| s.placement.threads[0].nodes = vec![0; 4096],
        |s| s.placement.allowed = vec![0; 4096],
        |s| s.switches.set[0].which = 99,
        |s| s.switches.set.push(s.switches.set[0].clone()),
        |s| s.clocks.as_mut().unwrap().shown_ns[1] = 1 << 63,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut state = state();
        change(&mut state);
        assert!(crate::check::check(&state, &extents(), &[3]).is_err(), "{i}");
    }
    for ranges in [vec![range(1, PAGE)], vec![range(PAGE, PAGE)], vec![range(PAGE, 3 * PAGE); 2]] {
        let mut state = state();
        state.placement.ranges = ranges;
        assert!(crate::check::check(&state, &extents(), &[3]).is_err());
    }
}

#[test]
fn another_machine_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &extents());
    let mut bytes = fs::read(&path).unwrap();
    bytes[12] = 2;
    let hash = layout::hash(&bytes[..56]);
    bytes[56..72].copy_from_slice(&hash);
    fs::write(&path, &bytes).unwrap();
    let refused = Image::open(&path);
    assert!(matches!(refused, Err(ImageError::Other(v)) if v.contains("another machine")));
}

/// A file that claims to be huge costs neither memory nor time.
#[test]
fn a_sparse_giant_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &extents());
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 42).unwrap();
    assert!(matches!(Image::open(&path), Err(ImageError::Length { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0u8..8, how in 0u32..3) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        write_with(&path, &state(), &extents(), &[], how);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        prop_assert!(Image::open(&path).is_err());
    }

    #[test]
    fn a_cut_is_found(at in any::<prop::sample::Index>(), old in any::<bool>()) {
        let pair = Pair::new();
        let name = if old { "old" } else { "new" };
        let bytes = fs::read(pair.path(name)).unwrap();
        fs::write(pair.path(name), &bytes[..at.index(bytes.len())]).unwrap();
        prop_assert!(pair.open().is_err());
    }

    /// Any extents and blocks behind right checksums: no panic, and no memory beyond measure.
    #[test]
    fn any_tables_are_borne(
        list in prop::collection::vec(any::<(u8, u8, u8, u8)>(), 0..8),
        sizes in prop::collection::vec(0u32..0x30_0000, 3),
    ) {
        let extents = |e: &mut Vec<Extent>| {
            let make = |&(s, p, h, f): &(u8, u8, u8, u8)| {
                extent(u64::from(s % 12), u64::from(p % 8), u32::from(h % 3), u64::from(f % 4))
            };
            *e = list.iter().map(make).collect();
        };
        let _ = received(|_, e| extents(e));
        let _ = received_blocks(|b, _| {
            b.iter_mut().zip(&sizes).for_each(|(b, s)| b.raw = *s);
        });
    }

    /// Any bytes as state: no panic, and what decodes encodes to the same bytes.
    #[test]
    fn any_state_bytes_are_borne(at in any::<prop::sample::Index>(), with in any::<[u8; 8]>()) {
        let mut bytes = encoding::encode(&state());
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&with);
        if let Ok(state) = encoding::decode::<State>(&bytes) {
            prop_assert_eq!(encoding::encode(&state), bytes);
            let _ = crate::check::check(&state, &extents(), &[3]);
        }
    }
}
