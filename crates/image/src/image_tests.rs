//! Hostile image files: any change of a good one is refused, and what hides behind right checksums
//! is held against itself.

use super::*;
use crate::family::Kin;
use crate::format::{self, BLOCK_BYTES, Block, HEADER_BYTES, Section, codec};
use crate::pack::{Packer, Tuner};
use crate::state::{
    Action, Attributes, Backing, Clocks, Component, Description, Descriptor, FileId, Fingerprint,
    Layout, Pending, Placement, Policy, Processor, RangePolicy, Region, Rseq, Schedule, Special,
    Switch, Switches, Thread, switch,
};
use crate::wire::{self, Wire};
use crate::write::{Contents, ImageWriter, Written};
use proptest::prelude::*;
use std::fs::{self, File};

const PAGE: u64 = crate::PAGE_BYTES;

fn file_id() -> FileId {
    FileId { path: b"/bin/x".to_vec(), dev: 1, ino: 2, size: 3, mtime_ns: -4 }
}

fn region(start: u64, end: u64, backing: Backing) -> Region {
    Region { start, end, prot: 3, flags: 0, backing, name: vec![], key: 0 }
}

fn thread(tid: i32) -> Thread {
    Thread {
        tid,
        comm: b"name".to_vec(),
        affinity: vec![3; 8],
        schedule: Schedule {
            policy: 3,
            flags: 0,
            nice: 5,
            priority: 0,
            deadline: [0; 3],
            io_priority: 4,
            timer_slack_ns: 50_000,
        },
        regs: [5; 27],
        xstate: vec![6; 2696],
        sigmask: 0,
        altstack: [0, 2, 0],
        robust: [0x7000, 24],
        tid_address: 0x7100,
        rseq: Some(Rseq { addr: 0x7200, bytes: 32, signature: 0x5305_3053 }),
        pending: vec![Pending { info: [12; 16] }],
    }
}

fn attributes() -> Attributes {
    Attributes { oom_score_adj: 1, secure_bits: 0, allowed: vec![15; 8], lock_future: 0, keys: 1 }
}

fn placement() -> Placement {
    Placement {
        allowed: vec![3],
        threads: vec![Policy::default(), Policy { mode: 2, nodes: vec![1] }],
        ranges: vec![RangePolicy {
            start: PAGE,
            end: 2 * PAGE,
            policy: Policy { mode: 4, nodes: vec![] },
        }],
    }
}

fn switches() -> Switches {
    Switches { core_filter: Some(0x33), set: vec![Switch { which: switch::MERGE, value: 1 }] }
}

pub(crate) fn state() -> State {
    State {
        pid: 42,
        kin: Kin {
            group: 42,
            session: 41,
            stopped: false,
            death_signal: 9,
            adopts: false,
            children: vec![],
            ended: vec![],
        },
        exe: b"/bin/x".to_vec(),
        cwd: b"/".to_vec(),
        umask: 0o22,
        personality: 0,
        dumpable: 1,
        no_new_privs: false,
        thp_disable: false,
        limits: vec![[1, 2]; 16],
        xcomp_perm: 0,
        attributes: attributes(),
        processor: Processor {
            features: vec![b"avx".to_vec()],
            components: vec![Component { number: 2, offset: 576, bytes: 256 }],
        },
        threads: vec![thread(42), thread(43)],
        actions: vec![Action { signal: 14, handler: 0x1000, flags: 0, restorer: 0, mask: 0 }],
        pending: vec![Pending { info: [10; 16] }],
        timers: [[0; 4]; 3],
        posix_timers: vec![],
        layout: Layout {
            start_code: 0,
            end_code: 0,
            start_data: 0,
            end_data: 0,
            start_brk: 0,
            brk: 0,
            start_stack: 0,
            arg_start: 0,
            arg_end: 0,
            env_start: 0,
            env_end: 0,
            auxv: vec![0; 32],
        },
        specials: vec![Special { name: b"[vdso]".to_vec(), start: 64 * PAGE, end: 66 * PAGE }],
        vdso: vec![7; 8192],
        files: vec![file_id()],
        contents: vec![Fingerprint::Hash { hash: [3; 16] }],
        orphans: vec![],
        regions: vec![
            region(PAGE, 5 * PAGE, Backing::Anon {}),
            region(5 * PAGE, 9 * PAGE, Backing::File { file: 0, offset: PAGE }),
        ],
        guards: vec![],
        descriptions: vec![Description {
            id: 1,
            target: Target::Stdio { which: 1 },
            flags: 1,
            offset: 0,
            owner: None,
            shared: false,
            locks: vec![],
        }],
        descriptors: vec![Descriptor { fd: 1, cloexec: false, description: 0 }],
        placement: placement(),
        switches: switches(),
        clocks: Some(Clocks { boot: [9; 16], shown_ns: [1000, 2000], ahead_ns: [-1, 1] }),
    }
}

fn extent(page: u64, pages: u64, home: u32, first: u64) -> Extent {
    Extent { start: page * PAGE, pages, home, reserved: 0, first }
}

fn extents() -> Vec<Extent> {
    vec![extent(2, 2, 0, 0), extent(5, 1, 0, 2)]
}

/// Pages that compress, each unlike the others.
fn content(pages: u64) -> Vec<u8> {
    (0..pages * PAGE).map(|i| (i / PAGE * 7 + i % 64) as u8).collect()
}

/// Writes an image of which each file has three pages of its own, in blocks of one page.
fn write_with(
    path: &Path,
    state: &State,
    extents: &[Extent],
    ancestors: &[Ancestor],
    how: u32,
) -> Written {
    let writer = ImageWriter::create(path).unwrap();
    let (mut packer, tuner) = (Packer::default(), Tuner::new(Some(how)));
    for page in content(3).chunks(PAGE as usize) {
        writer.append(&packer.pack(&tuner, page).unwrap()).unwrap();
    }
    writer.commit(&Contents { state, extents, ancestors, meta: b"meta" }).unwrap()
}

fn write(path: &Path, state: &State, extents: &[Extent]) {
    write_with(path, state, extents, &[], codec::NONE);
}

/// Writes a changed state with right checksums and says how it is received.
fn received(change: impl FnOnce(&mut State, &mut Vec<Extent>)) -> Result<Image, ImageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (mut state, mut extents) = (state(), extents());
    change(&mut state, &mut extents);
    write(&path, &state, &extents);
    Image::open(&path)
}

/// All memory of an image, by address.
pub(crate) fn memory(image: &Image) -> Vec<(u64, Vec<u8>)> {
    let mut blocks = crate::blocks::Blocks::default();
    let mut all = Vec::new();
    for wanted in &image.wants.blocks {
        let pages = blocks.pages(&image.parts[wanted.part], wanted.block).unwrap();
        let pieces = image.wants.pieces_of(wanted);
        all.extend(pieces.iter().map(|p| (p.address, pages[p.offset..][..p.bytes].to_vec())));
    }
    all.sort();
    all
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
    pub(crate) folder: tempfile::TempDir,
    ancestors: Vec<Ancestor>,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old");
        let identity = write_with(&old, &state(), &extents(), &[], codec::LZ4).identity;
        let pair = Pair { folder, ancestors: vec![Ancestor { name: b"old".to_vec(), identity }] };
        // Of each file one page is needed that the other has too, and one that is its own.
        let extents = [extent(2, 1, 1, 2), extent(3, 1, 0, 0), extent(5, 2, 0, 1)];
        write_with(&pair.path("new"), &state(), &extents, &pair.ancestors, codec::NONE);
        pair
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
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
    let mut reader = crate::blocks::Blocks::default();
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
        ("stream", |s, _| s.descriptions[0].target = Target::Stdio { which: 3 }),
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

/// Whoever asks whether an image would fit has not opened it.
#[test]
fn what_nobody_has_looked_at_is_checked_before_it_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut hostile = state();
    hostile.processor.features = vec![b"none".to_vec()];
    hostile.regions[1].prot = libc::PROT_EXEC as u32;
    write(&path, &hostile, &extents());
    assert!(matches!(Image::fits_here(&path, &[]), Err(RestoreError::Machine(_))));
    hostile.regions[1].backing = Backing::File { file: 1, offset: PAGE };
    write(&path, &hostile, &extents());
    let refused = Image::fits_here(&path, &[]);
    assert!(matches!(refused, Err(RestoreError::Image(ImageError::Invalid(_)))), "{refused:?}");
}

/// A change of any byte that is written for the same content is a change of version.
#[test]
fn the_format_does_not_change_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &extents());
    let golden = u128::from_le_bytes(format::hash(&fs::read(&path).unwrap()));
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
    let mut header = format::parse_header(&image[..HEADER_BYTES as usize]).unwrap();
    let mut from = wire::Reader::new(&image[header.table_offset as usize..]);
    let mut table: Vec<Section> =
        format::SECTIONS.iter().map(|_| Section::get(&mut from).unwrap()).collect();
    let end = (table[4].offset + table[4].bytes) as usize;
    let mut old = image[..end - added].to_vec();
    table[4].bytes -= added as u64;
    table[4].hash = format::hash(&old[table[4].offset as usize..]);
    old.extend_from_slice(&image[end..header.table_offset as usize]);
    table[5].offset -= added as u64;
    let mut raw = Vec::new();
    table.iter().for_each(|section| section.put(&mut raw));
    (header.version, header.table_offset) = (version, old.len() as u64);
    header.table_hash = format::hash(&raw);
    old.extend_from_slice(&raw);
    header.file_bytes = old.len() as u64;
    old[..HEADER_BYTES as usize].copy_from_slice(&format::header_page(&header));
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
        let mut header = format::parse_header(&new[..HEADER_BYTES as usize]).unwrap();
        header.version = version;
        old = new;
        old[..HEADER_BYTES as usize].copy_from_slice(&format::header_page(&header));
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
    assert_eq!(u128::from_le_bytes(format::hash(&old)), 7721658921366119436718015914943149485);
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
    let hash = format::hash(&bytes[..56]);
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
        let mut bytes = wire::encode(&state());
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&with);
        if let Ok(state) = wire::decode::<State>(&bytes) {
            prop_assert_eq!(wire::encode(&state), bytes);
            let _ = crate::check::check(&state, &extents(), &[3]);
        }
    }
}
