//! From an image to the list of system calls that the restorer makes ([`eyrie_restorer::plan`]).
//!
//! Order matters: descriptors first (they are needed for mapping), then the address space is
//! cleared and filled, then what the kernel knows about the process, last what the kernel would
//! already act on (timers, pending signals, rseq). All signals are blocked meanwhile.

use crate::error::RestoreError;
use crate::kernel::procfs::Mapping;
use crate::kernel::restorer_area::Area;
use crate::kernel::script::{OLD_VDSO_NAME, Plan};
use crate::resources::attributes;
use crate::resources::numa::Here;
use crate::resources::prctl;
use crate::resources::system_v;
use crate::restore::plan_descriptors;
use crate::restore::vdso::Vdso;
use eyrie_image_format::bytes::layout::Extent;
use eyrie_image_format::check;
use eyrie_image_format::state::attributes::KEYS;
use eyrie_image_format::state::{Backing, Region, State, locking, region};
use eyrie_restorer::plan::special;

const MAP_DROPPABLE: i32 = 0x08;
const MADV_GUARD_INSTALL: u64 = 102;
/// Not on every kernel (6.10).
const SYS_MSEAL: libc::c_long = 462;
const PR_SET_SECUREBITS: u64 = 28;
const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_SET_THP_DISABLE: u64 = 41;
const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
const XFEATURE_TILE_DATA: u64 = 18;
pub(crate) const SIGNAL_SET_BYTES: u64 = 8;
/// `MADV_*` for each flag of a region that has one.
const ADVICE: [(u32, i32); 8] = [
    (region::HUGE, libc::MADV_HUGEPAGE),
    (region::NO_HUGE, libc::MADV_NOHUGEPAGE),
    (region::DONT_DUMP, libc::MADV_DONTDUMP),
    (region::DONT_FORK, libc::MADV_DONTFORK),
    (region::WIPE_ON_FORK, libc::MADV_WIPEONFORK),
    (region::MERGEABLE, libc::MADV_MERGEABLE),
    (region::RANDOM, libc::MADV_RANDOM),
    (region::SEQUENTIAL, libc::MADV_SEQUENTIAL),
];

/// Numbers of the descriptors that the child was born with: those of the one who restores it.
pub struct Placed {
    /// For each description.
    pub descriptions: Vec<u64>,
    /// For each mapped file.
    pub files: Vec<u64>,
    /// For each region, the segment behind it.
    pub segments: Vec<Option<u64>>,
    /// For each anonymous object, the System V segment that it is.
    pub attached: Vec<Option<i32>>,
    /// Whether its parent was restored with it.
    pub child: bool,
    /// Where its memory comes from.
    pub policies: Here,
}

/// Makes the plan for the child `pid`, whose mappings are `own`.
pub fn plan(
    state: &State,
    extents: &[Extent],
    placed: &Placed,
    own: &[Mapping],
    vdso: &Vdso,
    area: Area,
    pid: libc::pid_t,
) -> Result<Plan, RestoreError> {
    let mut plan = Plan::new(area);
    let mapped = plan_descriptors::descriptors(&mut plan, state, placed, pid);
    clear(&mut plan, own);
    plan_descriptors::map(&mut plan, state);
    take_keys(&mut plan, state);
    map(&mut plan, state, extents, (placed, &mapped));
    placed.policies.before_filling(&mut plan, state);
    map_old_vdso(&mut plan, vdso);
    // Here its memory is filled from outside.
    plan.step("wait for its memory", libc::SYS_kill, &[pid as u64, libc::SIGSTOP as u64]);
    placed.policies.after_filling(&mut plan, state);
    protect(&mut plan, state, extents);
    keep_keys(&mut plan, state);
    lock_memory(&mut plan, state);
    protect_old_vdso(&mut plan, vdso);
    place_specials(&mut plan, state, own, vdso);
    layout(&mut plan, state);
    process(&mut plan, state);
    if placed.child && state.tree_node.death_signal != 0 {
        let args = [libc::PR_SET_PDEATHSIG as u64, u64::from(state.tree_node.death_signal)];
        plan.step("set its parent's death signal", libc::SYS_prctl, &args);
    }
    prctl::set(&mut plan, state);
    thread(&mut plan, state, pid);
    plan_descriptors::close_spare(&mut plan, state);
    plan_descriptors::finish(&mut plan, state, pid);
    Ok(plan)
}

/// Unmaps what the restorer was born with and parks vvar and vdso.
fn clear(plan: &mut Plan, own: &[Mapping]) {
    let area = plan.area;
    let movable = |m: &&Mapping| !m.is_vsyscall() && !area.contains(m.start);
    let first = own.iter().find(|m| m.is_special()).map_or(0, |m| m.start);
    for m in own.iter().filter(movable) {
        if m.is_special() {
            let to = area.park() + (m.start - first);
            relocate(plan, m.start, m.end - m.start, to);
        } else {
            plan.step("clear the address space", libc::SYS_munmap, &[m.start, m.end - m.start]);
        }
    }
}

fn relocate(plan: &mut Plan, from: u64, bytes: u64, to: u64) {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let args = [from, bytes, bytes, flags, to];
    plan.exact("move the vdso", libc::SYS_mremap, &args, to);
}

fn has_content(r: &Region, extents: &[Extent]) -> bool {
    let i = extents.partition_point(|extent| extent.start < r.start);
    extents.get(i).is_some_and(|extent| extent.start < r.end)
}

/// Protection under which a region is filled.
fn filling_prot(r: &Region, extents: &[Extent]) -> u32 {
    let write = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    if has_content(r, extents) { r.prot | write } else { r.prot }
}

fn map(
    plan: &mut Plan,
    state: &State,
    extents: &[Extent],
    (placed, mapped): (&Placed, &plan_descriptors::Mapped),
) {
    for (i, r) in state.regions.iter().enumerate() {
        if let Backing::Object { object, .. } = &r.backing
            && let Some(number) = placed.attached[*object as usize]
        {
            attach(plan, r, number);
            continue;
        }
        let shared = r.flags & region::SHARED != 0;
        let mut flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        if r.flags & region::DROPPABLE != 0 {
            flags = MAP_DROPPABLE;
        }
        flags |= libc::MAP_FIXED_NOREPLACE;
        if r.flags & region::GROWSDOWN != 0 {
            flags |= libc::MAP_GROWSDOWN;
        }
        if r.flags & region::NORESERVE != 0 {
            flags |= libc::MAP_NORESERVE;
        }
        let (fd, offset) = match &r.backing {
            Backing::Anon {} => {
                flags |= libc::MAP_ANONYMOUS | huge(r);
                (u64::MAX, 0)
            }
            Backing::File { file, offset } => (mapped.files[*file as usize], *offset),
            Backing::Segment { offset, .. } | Backing::Object { offset, .. } => {
                (mapped.segments[i].unwrap_or(u64::MAX), *offset)
            }
        };
        let prot = u64::from(filling_prot(r, extents));
        let args = [r.start, r.end - r.start, prot, flags as u64, fd, offset];
        let of = if huge(r) == 0 { "" } else { " of huge pages (vm.nr_hugepages)" };
        plan.exact(format!("map {:#x}{of}", r.start), libc::SYS_mmap, &args, r.start);
        // Before there is content: huge pages are decided when pages are first touched.
        for (_, advice) in ADVICE.iter().filter(|(flag, _)| r.flags & flag != 0) {
            let args = [r.start, r.end - r.start, *advice as u64];
            plan.step(format!("advise on {:#x}", r.start), libc::SYS_madvise, &args);
        }
        if !r.name.is_empty() {
            let name = plan.text(&r.name);
            let args = [PR_SET_VMA, 0, r.start, r.end - r.start, name];
            plan.tolerant("name a mapping", libc::SYS_prctl, &args);
        }
    }
}

/// Attaches a System V segment, which is mapped as a whole.
fn attach(plan: &mut Plan, r: &Region, number: i32) {
    let flags = system_v::attach_flags(r.prot, r.flags & region::MAY_WRITE != 0);
    let name = format!("attach a System V segment at {:#x}", r.start);
    plan.exact(name, libc::SYS_shmat, &[number as u64, r.start, flags], r.start);
    let args = [r.start, r.end - r.start, u64::from(r.prot)];
    plan.step(format!("protect {:#x}", r.start), libc::SYS_mprotect, &args);
}

/// Flags of `mmap` for huge pages that are set aside for it.
fn huge(r: &Region) -> i32 {
    match r.flags & (region::HUGE_2M | region::HUGE_1G) {
        region::HUGE_2M => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
        region::HUGE_1G => libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
        _ => 0,
    }
}

/// The key under which memory that can only be executed lies. The kernel takes it for this by
/// itself.
fn execute_only(state: &State) -> Option<u32> {
    let found = state.regions.iter().find(|r| r.prot == libc::PROT_EXEC as u32 && r.key != 0);
    found.map(|r| r.key)
}

/// Allocates all protection keys, so that those of the image are among them; what the kernel takes
/// by itself stays free for it.
fn take_keys(plan: &mut Plan, state: &State) {
    if state.attributes.keys & !1 == 0 {
        return;
    }
    for key in 1..u64::from(KEYS) {
        plan.exact("allocate a protection key", libc::SYS_pkey_alloc, &[0, 0], key);
    }
    if let Some(key) = execute_only(state) {
        plan.step("free a protection key", libc::SYS_pkey_free, &[u64::from(key)]);
    }
}

/// Frees the keys that the process has not allocated.
fn keep_keys(plan: &mut Plan, state: &State) {
    if state.attributes.keys & !1 == 0 {
        return;
    }
    for key in (1..KEYS).filter(|key| state.attributes.keys >> key & 1 == 0) {
        plan.step("free a protection key", libc::SYS_pkey_free, &[u64::from(key)]);
    }
}

/// Locks what was locked, and then memory to come; last, seals.
fn lock_memory(plan: &mut Plan, state: &State) {
    let with = |flag: u32| state.regions.iter().filter(move |r| r.flags & flag != 0);
    for r in with(region::LOCKED) {
        let on_fault = r.flags & region::LOCKED_ON_FAULT != 0;
        let how = if on_fault { libc::MLOCK_ONFAULT as u64 } else { 0 };
        let args = [r.start, r.end - r.start, how];
        let name = format!("lock memory at {:#x} (limit on locked memory?)", r.start);
        let first = state.guards.partition_point(|g| g.start < r.start);
        let guarded = state.guards.get(first).is_some_and(|g| g.start < r.end);
        if r.prot & libc::PROT_READ as u32 == 0 || guarded {
            // The kernel complains of pages that it cannot load, and locks the rest.
            plan.tolerant(&name, libc::SYS_mlock2, &args);
        } else {
            plan.step(name, libc::SYS_mlock2, &args);
        }
    }
    let future = match state.attributes.lock_future {
        locking::ALL => libc::MCL_FUTURE,
        locking::ON_FAULT => libc::MCL_FUTURE | libc::MCL_ONFAULT,
        _ => 0,
    };
    if future != 0 {
        plan.step("lock memory to come", libc::SYS_mlockall, &[future as u64]);
    }
    for r in with(region::SEALED) {
        let name = format!("seal memory at {:#x}", r.start);
        plan.step(name, SYS_MSEAL, &[r.start, r.end - r.start, 0]);
    }
}

fn protect(plan: &mut Plan, state: &State, extents: &[Extent]) {
    for r in &state.regions {
        let args = [r.start, r.end - r.start, u64::from(r.prot), u64::from(r.key)];
        if r.key != 0 && execute_only(state) != Some(r.key) {
            let name = format!("protect {:#x} with a key", r.start);
            plan.step(name, libc::SYS_pkey_mprotect, &args);
        } else if filling_prot(r, extents) != r.prot {
            plan.step(format!("protect {:#x}", r.start), libc::SYS_mprotect, &args[..3]);
        }
    }
    for g in &state.guards {
        if check::find(&state.regions, g.start).is_some() {
            let args = [g.start, g.end - g.start, MADV_GUARD_INSTALL];
            plan.step(format!("install guard pages at {:#x}", g.start), libc::SYS_madvise, &args);
        }
    }
}

/// Moves the kernel's own mappings to where those of the image were, or to their new place.
fn place_specials(plan: &mut Plan, state: &State, own: &[Mapping], vdso: &Vdso) {
    let own: Vec<&Mapping> = own.iter().filter(|m| m.is_special()).collect();
    let first = own.first().map_or(0, |m| m.start);
    for (i, here) in own.iter().enumerate() {
        let from = plan.area.park() + (here.start - first);
        let to = match vdso {
            Vdso::Same => state.specials[i].start,
            Vdso::Foreign { place, .. } => place + (here.start - first),
        };
        relocate(plan, from, here.end - here.start, to);
    }
}

/// Makes room for the vdso of another kernel.
fn map_old_vdso(plan: &mut Plan, vdso: &Vdso) {
    let Vdso::Foreign { start, bytes, .. } = vdso else { return };
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let args = [*start, bytes.len() as u64, prot, flags, u64::MAX, 0];
    plan.exact("map its old vdso", libc::SYS_mmap, &args, *start);
    let name = plan.text(OLD_VDSO_NAME);
    let args = [PR_SET_VMA, 0, *start, bytes.len() as u64, name];
    plan.tolerant("name a mapping", libc::SYS_prctl, &args);
}

fn protect_old_vdso(plan: &mut Plan, vdso: &Vdso) {
    let Vdso::Foreign { start, bytes, .. } = vdso else { return };
    let prot = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    plan.step("protect its old vdso", libc::SYS_mprotect, &[*start, bytes.len() as u64, prot]);
}

fn layout(plan: &mut Plan, state: &State) {
    let l = &state.layout;
    let auxv = plan.put(&l.auxv);
    let words = [
        l.start_code,
        l.end_code,
        l.start_data,
        l.end_data,
        l.start_brk,
        l.brk,
        l.start_stack,
        l.arg_start,
        l.arg_end,
        l.env_start,
        l.env_end,
        auxv,
        with_exe(l.auxv.len() as u64, -1),
    ];
    plan.layout = words;
    let at = plan.words(&words);
    // Without it (a kernel built without checkpoint support) malloc uses mmap instead of brk.
    plan.tolerant("set the memory layout", libc::SYS_prctl, &set_layout(at));
}

/// The last word of `struct prctl_mm_map`: length of the auxiliary vector and a descriptor.
pub fn with_exe(last: u64, exe: i32) -> u64 {
    last & 0xffff_ffff | u64::from(exe as u32) << 32
}

/// Arguments of the `prctl` that takes a `struct prctl_mm_map` at `at`.
pub fn set_layout(at: u64) -> [u64; 5] {
    [libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64, at, 13 * 8, 0]
}

fn process(plan: &mut Plan, state: &State) {
    if state.tree_node.adopts {
        plan.step("adopt orphans", libc::SYS_prctl, &[libc::PR_SET_CHILD_SUBREAPER as u64, 1]);
    }
    let cwd = plan.text(&state.cwd);
    let name = format!("enter its working folder {}", String::from_utf8_lossy(&state.cwd));
    plan.step(name, libc::SYS_chdir, &[cwd]);
    plan.step("set umask", libc::SYS_umask, &[u64::from(state.umask)]);
    let personality = [u64::from(state.personality)];
    match state.personality & !(libc::ADDR_NO_RANDOMIZE as u32) {
        // Its addresses are those that it had in any case; some containers forbid that.
        0 => plan.tolerant("set personality", libc::SYS_personality, &personality),
        _ => {
            plan.step("set personality", libc::SYS_personality, &personality);
        }
    }
    let comm = plan.text(&state.leader().comm);
    plan.step("set its name", libc::SYS_prctl, &[libc::PR_SET_NAME as u64, comm]);
    let slack = state.leader().schedule.timer_slack_ns;
    if slack != 0 {
        let args = [libc::PR_SET_TIMERSLACK as u64, slack];
        plan.step("set its timer slack", libc::SYS_prctl, &args);
    }
    if state.attributes.secure_bits != attributes::own_secure_bits() {
        let args = [PR_SET_SECUREBITS, u64::from(state.attributes.secure_bits)];
        plan.step("set its secure bits", libc::SYS_prctl, &args);
    }
    if state.no_new_privs {
        let args = [libc::PR_SET_NO_NEW_PRIVS as u64, 1];
        plan.step("renounce privileges", libc::SYS_prctl, &args);
    }
    if state.thp_disable {
        plan.step("renounce huge pages", libc::SYS_prctl, &[PR_SET_THP_DISABLE, 1]);
    }
    if state.dumpable < 2 {
        let args = [libc::PR_SET_DUMPABLE as u64, u64::from(state.dumpable)];
        plan.step("set dumpable", libc::SYS_prctl, &args);
    }
}

/// The first thread; the others are made when all else is done ([`crate::restore::threads`]).
fn thread(plan: &mut Plan, state: &State, pid: libc::pid_t) {
    let t = state.leader();
    if state.xcomp_perm >> XFEATURE_TILE_DATA & 1 != 0 {
        let args = [ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA];
        plan.step("ask for AMX", libc::SYS_arch_prctl, &args);
        plan.step("use AMX", libc::c_long::from(special::TOUCH_AMX), &[]);
    }
    for action in &state.actions {
        let at = plan.words(&[action.handler, action.flags, action.restorer, action.mask]);
        let args = [u64::from(action.signal), at, 0, SIGNAL_SET_BYTES];
        let name = format!("set the handler of signal {}", action.signal);
        plan.step(name, libc::SYS_rt_sigaction, &args);
    }
    let altstack = plan.words(&t.altstack);
    plan.step("set the alternate signal stack", libc::SYS_sigaltstack, &[altstack, 0]);
    plan.step("set its cleared address", libc::SYS_set_tid_address, &[t.tid_address]);
    if t.robust[0] != 0 {
        plan.step("set the robust futex list", libc::SYS_set_robust_list, &t.robust);
    }
    for (which, &[every_s, every_us, mut in_s, mut in_us]) in state.timers.iter().enumerate() {
        if [in_s, in_us] == [0, 0] {
            // Its signal is pending: the kernel starts it again when that is delivered.
            [in_s, in_us] = [every_s, every_us];
        }
        if [in_s, in_us] != [0, 0] {
            let at = plan.words(&[every_s, every_us, in_s, in_us].map(|v| v as u64));
            plan.step("set a timer", libc::SYS_setitimer, &[which as u64, at, 0]);
        }
    }
    let pid = pid as u64;
    for pending in &t.pending {
        let args = [pid, pid, u64::from(pending.signal()), plan.words(&pending.info)];
        plan.step("queue a signal", libc::SYS_rt_tgsigqueueinfo, &args);
    }
    for pending in &state.pending {
        let args = [pid, u64::from(pending.signal()), plan.words(&pending.info)];
        plan.step("queue a signal", libc::SYS_rt_sigqueueinfo, &args);
    }
    if let Some(rseq) = &t.rseq {
        let args = [rseq.addr, u64::from(rseq.bytes), 0, u64::from(rseq.signature)];
        plan.step("register restartable sequences", libc::SYS_rseq, &args);
    }
}
