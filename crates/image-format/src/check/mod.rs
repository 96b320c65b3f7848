//! Holds the content of an image against itself. Checksums tell that the bytes are those that were
//! written; this tells that they make sense, so that the planner may rely on it.

pub mod files;
pub mod settings;

use crate::PAGE_BYTES;
use crate::bytes::layout::Extent;
use crate::check::settings::{clocks_hold, layout_holds, placement_holds, switches_hold};
use crate::state::attributes::KEYS;
use crate::state::files::{MAX_BUILD_BYTES, MAX_PATH_BYTES, path_holds};
use crate::state::objects::parts;
use crate::state::process_tree::{MAX_PROCESSES, TreeNode};
use crate::state::{
    Backing, FileId, Fingerprint, MAX_OBJECT_BYTES, MAX_OBJECTS, MAX_VDSO_BYTES, ObjectKind,
    PROT_MASK, Region, State, Thread, kept, locking, object_at, object_of, region,
};

/// End of what a process can map (with five-level page tables).
const ADDRESS_LIMIT: u64 = 1 << 56;
const MAX_XSTATE_BYTES: usize = 64 * 1024;
const MIN_XSTATE_BYTES: usize = 576;
const MAX_AUXV_BYTES: usize = 64 * 16;
const MAX_COMM_BYTES: usize = 15;
const MAX_LIMITS: usize = 32;
const MAX_FEATURE_BYTES: usize = 64;
const MAX_MASK_BYTES: usize = 8192;
const MAX_SPECIALS: usize = 16;
/// 4 KiB, 2 MiB, 1 GiB.
const PAGE_SHIFTS: [u32; 3] = [12, 21, 30];

pub type Finding = Result<(), String>;

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks everything; the error says what does not hold. `homes` are the numbers of pages of the
/// file itself and of those before it that it needs.
pub fn check(state: &State, extents: &[Extent], homes: &[u64]) -> Finding {
    scalars(state)?;
    tree_node(&state.tree_node)?;
    threads(state)?;
    signals(state)?;
    anonymous(state)?;
    let mut ranges = Vec::new();
    for r in &state.regions {
        check_region(r, state)?;
        ranges.push((r.start, r.end));
    }
    ensure(ranges.is_sorted(), || "regions are not in order".into())?;
    let mut vdso = 0;
    for s in &state.specials {
        if s.name == b"[vdso]" {
            vdso += 1;
            let whole = s.end.checked_sub(s.start) == Some(state.vdso.len() as u64);
            ensure(whole, || "the vdso has another size".into())?;
        }
        let known = s.name == b"[vdso]" || s.name.starts_with(b"[vvar");
        ensure(known, || "an unknown special mapping".into())?;
        ranges.push((s.start, s.end));
    }
    let vdso = vdso == 1 && state.vdso.len() <= MAX_VDSO_BYTES;
    ensure(vdso && state.specials.len() <= MAX_SPECIALS, || "no single vdso".into())?;
    ranges.extend(state.descriptions.iter().flat_map(|d| d.target.ranges()));
    disjoint(ranges)?;
    check_extents(state, extents, homes)?;
    let inside = |start: u64, end: u64| {
        start < end && find(&state.regions, start).is_some_and(|r| end <= r.end)
    };
    for g in &state.guards {
        let aligned = g.start.is_multiple_of(PAGE_BYTES) && g.end.is_multiple_of(PAGE_BYTES);
        ensure(aligned && inside(g.start, g.end), || "guard pages outside a region".into())?;
    }
    files(state)
}

fn disjoint(mut ranges: Vec<(u64, u64)>) -> Finding {
    for &(start, end) in &ranges {
        let aligned = start.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES);
        ensure(aligned && start < end && end <= ADDRESS_LIMIT, || {
            format!("a mapping from {start:#x} to {end:#x}")
        })?;
    }
    ranges.sort_unstable();
    let apart = ranges.windows(2).all(|w| w[0].1 <= w[1].0);
    ensure(apart, || "mappings overlap each other".into())
}

/// The region that holds `address`; regions are in order.
pub fn find(regions: &[Region], address: u64) -> Option<&Region> {
    let after = regions.partition_point(|r| r.start <= address);
    regions.get(after.checked_sub(1)?).filter(|r| address < r.end)
}

fn check_region(r: &Region, state: &State) -> Finding {
    let bad = |what: &str| format!("region at {:#x}: {what}", r.start);
    ensure(r.prot & !PROT_MASK == 0 && r.flags & !region::ALL == 0, || bad("unknown flags"))?;
    let huge = r.flags & (region::HUGE_2M | region::HUGE_1G);
    let size: u64 = if huge == 0 {
        PAGE_BYTES
    } else if huge == region::HUGE_2M {
        2 << 20
    } else {
        1 << 30
    };
    let whole = r.start.is_multiple_of(size) && r.end.is_multiple_of(size);
    ensure(whole && r.key < KEYS, || bad("its pages"))?;
    ensure(r.name.len() < 80 && !r.name.contains(&0), || bad("its name"))?;
    let shared = r.flags & region::SHARED != 0;
    let offset = match &r.backing {
        Backing::Anon {} => {
            ensure(!shared, || bad("shared memory without a file"))?;
            0
        }
        Backing::File { file, offset } => {
            ensure((*file as usize) < state.files.len(), || bad("unknown file"))?;
            *offset
        }
        Backing::Object { object, offset } => {
            let object = state.anonymous.get(*object as usize);
            let kind = &object.ok_or_else(|| bad("unknown object"))?.kind;
            let attached = matches!(kind, ObjectKind::SystemV { .. });
            ensure(shared || !attached, || bad("a private System V segment"))?;
            *offset
        }
        Backing::Segment { name, offset } => {
            ensure(shared, || bad("a private segment"))?;
            ensure(!name.is_empty() && !name.contains(&0), || bad("segment name"))?;
            *offset
        }
    };
    let fits = offset.checked_add(r.end.wrapping_sub(r.start)).is_some_and(|e| e >> 63 == 0);
    ensure(offset.is_multiple_of(PAGE_BYTES) && fits, || bad("offset"))
}

fn check_extents(state: &State, extents: &[Extent], homes: &[u64]) -> Finding {
    let mut last = 0u64;
    for extent in extents {
        let bad = || format!("pages at {:#x} belong nowhere", extent.start);
        let end = extent.pages.checked_mul(PAGE_BYTES).and_then(|b| b.checked_add(extent.start));
        let end = end.ok_or_else(bad)?;
        let limit = home_of(state, extent.start).ok_or_else(bad)?;
        let aligned = extent.start.is_multiple_of(PAGE_BYTES);
        ensure(aligned && extent.pages > 0 && end <= limit, bad)?;
        ensure(extent.start >= last, || "pages are not in order".into())?;
        last = end;
        let missing = || format!("pages at {:#x} are in no file", extent.start);
        let stored = *homes.get(extent.home as usize).ok_or_else(missing)?;
        let after = extent.first.checked_add(extent.pages).ok_or_else(missing)?;
        ensure(after <= stored && extent.reserved == 0, missing)?;
    }
    // No stored page belongs in two places.
    let mut order: Vec<(u32, u64, u64)> =
        extents.iter().map(|e| (e.home, e.first, e.first + e.pages)).collect();
    order.sort_unstable();
    let apart = order.windows(2).all(|w| w[0].0 != w[1].0 || w[0].2 <= w[1].1);
    ensure(apart, || "a stored page belongs in two places".into())
}

/// End of the private region or the object that pages at `address` belong to.
fn home_of(state: &State, address: u64) -> Option<u64> {
    if let Some((i, _)) = object_of(address) {
        let object = state.anonymous.get(i).filter(|o| o.held)?;
        return Some(object_at(i) + object.bytes.next_multiple_of(PAGE_BYTES));
    }
    find(&state.regions, address).filter(|r| r.flags & region::SHARED == 0).map(|r| r.end)
}

fn anonymous(state: &State) -> Finding {
    ensure(state.anonymous.len() <= MAX_OBJECTS, || "number of shared objects".into())?;
    for o in &state.anonymous {
        let holds = match &o.kind {
            ObjectKind::Memory { name, .. } => name.len() < MAX_PATH_BYTES && !name.contains(&0),
            ObjectKind::Deleted { path } | ObjectKind::Named { path } => path_holds(path),
            ObjectKind::Kept { file, flags, .. } | ObjectKind::KeptBefore { file, flags, .. } => {
                let special = flags & kept::SPECIAL != 0;
                let (path, to) = if special { parts(&file.path) } else { (&*file.path, &[][..]) };
                let leads = to.len() < MAX_PATH_BYTES && !to.contains(&0);
                path_holds(path) && leads && flags & !kept::ALL == 0
            }
            ObjectKind::Anonymous {} | ObjectKind::SystemV { .. } => true,
        };
        let fits = o.bytes <= MAX_OBJECT_BYTES && o.mode <= 0o7777;
        ensure(holds && fits && PAGE_SHIFTS.contains(&o.page_shift), || "a shared object".into())?;
    }
    Ok(())
}

fn scalars(state: &State) -> Finding {
    ensure(state.pid > 0, || "process number".into())?;
    ensure(path_holds(&state.exe) && path_holds(&state.cwd), || "program or folder".into())?;
    ensure(state.umask <= 0o7777, || "umask".into())?;
    let auxv = &state.layout.auxv;
    let auxv_holds = auxv.len() <= MAX_AUXV_BYTES && auxv.len().is_multiple_of(16);
    ensure(auxv_holds, || "auxiliary vector".into())?;
    ensure(state.limits.len() <= MAX_LIMITS, || "resource limits".into())
}

fn tree_node(tree_node: &TreeNode) -> Finding {
    let holds = tree_node.group >= 0 && tree_node.session >= 0 && tree_node.death_signal <= 64;
    ensure(holds, || "group, session or death signal".into())?;
    let mut numbers: Vec<i32> = tree_node.children.iter().map(|c| c.pid).collect();
    numbers.extend(tree_node.ended.iter().map(|e| e.pid));
    let few = numbers.len() < MAX_PROCESSES;
    numbers.sort_unstable();
    let distinct =
        numbers.windows(2).all(|w| w[0] < w[1]) && numbers.first().is_none_or(|&n| n > 0);
    ensure(few && distinct, || "numbers of child processes".into())?;
    let ended = tree_node.ended.iter().all(|e| match e.exited {
        true => (0..256).contains(&e.status),
        false => (1..=64).contains(&e.status),
    });
    ensure(ended, || "how a child process ended".into())
}

fn threads(state: &State) -> Finding {
    let first = state.threads.first().map(|t| t.tid);
    ensure(first == Some(state.pid), || "first thread".into())?;
    let mut numbers: Vec<i32> = state.threads.iter().map(|t| t.tid).collect();
    numbers.sort_unstable();
    let distinct = numbers[0] > 0 && numbers.windows(2).all(|w| w[0] < w[1]);
    ensure(distinct, || "thread numbers".into())?;
    let a = &state.attributes;
    let holds = a.lock_future <= locking::ON_FAULT && a.keys >> KEYS == 0;
    ensure(holds && a.allowed.len() <= MAX_MASK_BYTES, || "attributes".into())?;
    // One size: that of the processor.
    let xstate = state.threads[0].xstate.len();
    let processor = &state.processor;
    let named = processor.features.iter().all(|f| f.len() <= MAX_FEATURE_BYTES);
    let holds = named && layout_holds(&processor.components, xstate);
    ensure(holds, || "description of the processor".into())?;
    let placed = placement_holds(&state.placement, &state.threads);
    ensure(placed && switches_hold(&state.switches), || "memory policies or switches".into())?;
    ensure(clocks_hold(state.clocks.as_ref()), || "clocks".into())?;
    state.threads.iter().try_for_each(|t| thread(t, xstate))
}

fn thread(thread: &Thread, xstate: usize) -> Finding {
    ensure(thread.affinity.len() <= MAX_MASK_BYTES, || "processors of a thread".into())?;
    let comm = thread.comm.len() <= MAX_COMM_BYTES && !thread.comm.contains(&0);
    ensure(comm, || "name of a thread".into())?;
    let fits = (MIN_XSTATE_BYTES..=MAX_XSTATE_BYTES).contains(&xstate);
    ensure(fits && thread.xstate.len() == xstate, || "size of the vector registers".into())?;
    let addresses = [thread.robust[0], thread.tid_address, thread.altstack[0]];
    let rseq = thread.rseq.as_ref().map_or(0, |r| r.addr);
    let holds = addresses.iter().chain([&rseq]).all(|&a| a < ADDRESS_LIMIT);
    ensure(holds, || "an address outside the address space".into())
}

fn signals(state: &State) -> Finding {
    let mut last = 0;
    for action in &state.actions {
        let settable = ![libc::SIGKILL as u32, libc::SIGSTOP as u32].contains(&action.signal);
        ensure(action.signal > last && action.signal <= 64 && settable, || {
            "signal dispositions".into()
        })?;
        last = action.signal;
    }
    let pending = state.pending.iter().chain(state.threads.iter().flat_map(|t| &t.pending));
    let holds = pending.clone().all(|p| (1..=64).contains(&p.signal()));
    ensure(holds, || "pending signals".into())
}

fn files(state: &State) -> Finding {
    let id_holds = |id: &FileId| path_holds(&id.path);
    ensure(state.files.iter().all(id_holds), || "path of a mapped file".into())?;
    let content_holds = |content: &Fingerprint| match content {
        Fingerprint::Build { id } => !id.is_empty() && id.len() <= MAX_BUILD_BYTES,
        Fingerprint::Unknown {} | Fingerprint::Hash { .. } => true,
    };
    let one_each = state.contents.len() == state.files.len();
    let hold = one_each && state.contents.iter().all(content_holds);
    ensure(hold, || "what tells the content of mapped files".into())?;
    files::check(state)
}
