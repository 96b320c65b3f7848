//! Hostile image files: any change of a good one is refused, and what hides behind right checksums
//! is held against itself.

use super::*;
use crate::state::{
    Action, Backing, Description, Descriptor, FileId, Layout, Pending, Region, Rseq, Special,
    Thread,
};
use crate::write::ImageWriter;
use proptest::prelude::*;
use std::fs;

const PAGE: u64 = crate::PAGE_BYTES;

fn file_id() -> FileId {
    FileId { path: b"/bin/x".to_vec(), dev: 1, ino: 2, size: 3, mtime_ns: -4 }
}

fn region(start: u64, end: u64, backing: Backing) -> Region {
    Region { start, end, prot: 3, flags: 0, backing, name: vec![] }
}

fn thread(tid: i32) -> Thread {
    Thread {
        tid,
        comm: b"name".to_vec(),
        affinity: vec![3; 8],
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

fn state() -> State {
    State {
        pid: 42,
        group_leader: true,
        session_leader: false,
        exe: b"/bin/x".to_vec(),
        cwd: b"/".to_vec(),
        umask: 0o22,
        personality: 0,
        dumpable: 1,
        no_new_privs: false,
        thp_disable: false,
        limits: vec![[1, 2]; 16],
        xcomp_perm: 0,
        threads: vec![thread(42), thread(43)],
        actions: vec![Action { signal: 14, handler: 0x1000, flags: 0, restorer: 0, mask: 0 }],
        pending: vec![Pending { info: [10; 16] }],
        timers: [[0; 4]; 3],
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
        vdso_hash: [7; 16],
        files: vec![file_id()],
        regions: vec![
            region(PAGE, 5 * PAGE, Backing::Anon {}),
            region(5 * PAGE, 9 * PAGE, Backing::File { file: 0, offset: PAGE }),
        ],
        guards: vec![],
        orphans: vec![],
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
    }
}

fn runs() -> Vec<Run> {
    vec![Run { start: 2 * PAGE, pages: 2 }, Run { start: 5 * PAGE, pages: 1 }]
}

fn write(path: &Path, state: &State, runs: &[Run]) {
    let mut writer = ImageWriter::create(path).unwrap();
    let pages: u64 = runs.iter().map(|r| r.pages).sum();
    writer.append(&vec![0xab; (pages * PAGE) as usize]).unwrap();
    writer.commit(state, runs, b"meta").unwrap();
}

/// Writes a changed state with right checksums and says how it is received.
fn received(change: impl FnOnce(&mut State, &mut Vec<Run>)) -> Result<Image, ImageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (mut state, mut runs) = (state(), runs());
    change(&mut state, &mut runs);
    write(&path, &state, &runs);
    Image::open(&path)
}

#[test]
fn what_is_written_is_read() {
    let image = received(|_, _| {}).unwrap();
    assert_eq!(image.state, state());
    assert_eq!(image.runs, runs());
    assert_eq!(image.meta(), b"meta");
    assert_eq!(image.summary().pages, 3);
}

#[test]
fn contradictions_behind_right_checksums_are_refused() {
    type Change = fn(&mut State, &mut Vec<Run>);
    let changes: &[(&str, Change)] = &[
        ("overlap", |s, _| s.regions[0].end = 6 * PAGE),
        ("order", |s, _| s.regions.swap(0, 1)),
        ("unaligned", |s, _| s.regions[0].start += 1),
        ("empty", |s, _| s.regions[0].start = s.regions[0].end),
        ("beyond the address space", |s, _| s.regions[1].end = 1 << 60),
        ("over the restorer", |s, _| {
            s.regions.push(region(0x100_0000_1000, 0x100_0000_2000, Backing::Anon {}));
        }),
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
        ("run outside", |_, r| r[1].start = 20 * PAGE),
        ("run too long", |_, r| (r[0].pages, r[1].start) = (2, 8 * PAGE + PAGE)),
        ("runs out of order", |_, r| r.swap(0, 1)),
        ("no vdso", |s, _| s.specials.clear()),
        ("strange special", |s, _| s.specials[0].name = b"[heap]".to_vec()),
        ("description", |s, _| s.descriptors[0].description = 1),
        ("descriptor twice", |s, _| s.descriptors.push(s.descriptors[0].clone())),
        ("descriptor number", |s, _| s.descriptors[0].fd = u32::MAX),
        ("stream", |s, _| s.descriptions[0].target = Target::Stdio { which: 3 }),
        ("relative path", |s, _| s.files[0].path = b"x".to_vec()),
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
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// A change of any byte that is written for the same content is a change of version.
#[test]
fn the_format_does_not_change_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &runs());
    let golden = u128::from_le_bytes(format::hash(&fs::read(&path).unwrap()));
    assert_eq!(golden, 24346753569387940511070463609240001148);
}

#[test]
fn another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &runs());
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 3;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(Image::open(&path), Err(ImageError::Other(v)) if v == "version 3"));
}

/// A file that claims to be huge costs neither memory nor time.
#[test]
fn a_sparse_giant_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, &state(), &runs());
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 42).unwrap();
    assert!(matches!(Image::open(&path), Err(ImageError::Length { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        write(&path, &state(), &runs());
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        prop_assert!(Image::open(&path).is_err());
    }

    #[test]
    fn a_cut_is_found(at in any::<prop::sample::Index>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        write(&path, &state(), &runs());
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..at.index(bytes.len())]).unwrap();
        prop_assert!(Image::open(&path).is_err());
    }

    /// Any bytes as state: no panic, and what decodes encodes to the same bytes.
    #[test]
    fn any_state_bytes_are_borne(at in any::<prop::sample::Index>(), with in any::<[u8; 8]>()) {
        let mut bytes = wire::encode(&state());
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&with);
        if let Ok(state) = wire::decode::<State>(&bytes) {
            prop_assert_eq!(wire::encode(&state), bytes);
            let _ = crate::check::check(&state, &runs(), 3 * PAGE);
        }
    }
}
