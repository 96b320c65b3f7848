//! A small process that never was, and images of it: for tests.

#![allow(clippy::unwrap_used)] // it fails the test that uses it

use crate::bytes::layout::{Ancestor, Extent, codec};
use crate::read::blocks::Blocks;
use crate::read::image::Image;
use crate::state::process_tree::TreeNode;
use crate::state::resources::Stdio;
use crate::state::{
    Action, Attributes, Backing, Clocks, Component, Description, Descriptor, FileId, Fingerprint,
    Layout, Pending, Placement, Policy, Processor, RangePolicy, Region, Rseq, Schedule, Special,
    State, Switch, Switches, Target, Thread, switch,
};
use crate::write::pack::{Packer, Tuner};
use crate::write::writer::{Contents, ImageWriter, Written};
use std::path::Path;

pub const PAGE: u64 = crate::PAGE_BYTES;

pub fn file_id() -> FileId {
    FileId { path: b"/bin/x".to_vec(), dev: 1, ino: 2, size: 3, mtime_ns: -4 }
}

pub fn region(start: u64, end: u64, backing: Backing) -> Region {
    Region { start, end, prot: 3, flags: 0, backing, name: vec![], key: 0 }
}

pub fn thread(tid: i32) -> Thread {
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

pub fn attributes() -> Attributes {
    Attributes { oom_score_adj: 1, secure_bits: 0, allowed: vec![15; 8], lock_future: 0, keys: 1 }
}

pub fn placement() -> Placement {
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

pub fn switches() -> Switches {
    Switches { core_filter: Some(0x33), set: vec![Switch { which: switch::MERGE, value: 1 }] }
}

pub fn state() -> State {
    State {
        pid: 42,
        tree_node: TreeNode {
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
        anonymous: vec![],
        regions: vec![
            region(PAGE, 5 * PAGE, Backing::Anon {}),
            region(5 * PAGE, 9 * PAGE, Backing::File { file: 0, offset: PAGE }),
        ],
        guards: vec![],
        descriptions: vec![Description {
            id: 1,
            target: Target::Stdio(Stdio { which: 1 }),
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

pub fn extent(page: u64, pages: u64, home: u32, first: u64) -> Extent {
    Extent { start: page * PAGE, pages, home, reserved: 0, first }
}

pub fn extents() -> Vec<Extent> {
    vec![extent(2, 2, 0, 0), extent(5, 1, 0, 2)]
}

/// Pages that compress, each unlike the others.
pub fn content(pages: u64) -> Vec<u8> {
    (0..pages * PAGE).map(|i| (i / PAGE * 7 + i % 64) as u8).collect()
}

/// Writes an image of which each file has three pages of its own, in blocks of one page.
pub fn write_with(
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

pub fn write(path: &Path, state: &State, extents: &[Extent]) {
    write_with(path, state, extents, &[], codec::NONE);
}

/// All memory of an image, by address.
pub fn memory(image: &Image) -> Vec<(u64, Vec<u8>)> {
    let mut blocks = Blocks::default();
    let mut all = Vec::new();
    for wanted in &image.wants.blocks {
        let pages = blocks.pages(&image.parts[wanted.part], wanted.block).unwrap();
        let pieces = image.wants.pieces_of(wanted);
        all.extend(pieces.iter().map(|p| (p.address, pages[p.offset..][..p.bytes].to_vec())));
    }
    all.sort();
    all
}
