//! The kernel's side of a stopped process: signals, timers, limits, descriptors; of its threads see
//! [`crate::capture::threads`].
//!
//! Read in two steps to keep the freeze short: from the frozen process what a twin does not
//! inherit, from the twin the rest. Some of it the kernel tells only to the process itself; it is
//! then asked in the process's name ([`crate::kernel::remote_calls`]).

use crate::capture::freeze::Frozen;
use crate::capture::process_tree;
use crate::capture::survey::Survey;
use crate::capture::threads;
use crate::error::CaptureError;
use crate::kernel::memory::vdso;
use crate::kernel::procfs::{self, Mapping, Stat, Status};
use crate::kernel::ptrace::{ALL_SIGNALS, Tracee};
use crate::kernel::remote_calls::Agent;
use crate::resources::attributes;
use crate::resources::clocks;
use crate::resources::files::stored;
use crate::resources::numa;
use crate::resources::open::Table;
use crate::resources::posix_timers;
use crate::resources::prctl;
use crate::resources::processor;
use crate::resources::shared_memory::objects::AnonymousObjects;
use crate::resources::unsupported;
use eyrie_image_format::state::process_tree::TreeNode;
use eyrie_image_format::state::{
    Action, Attributes, Clocks, Layout, Pending, Placement, Policy, PosixTimer, RangePolicy,
    Special, State, Thread,
};
use eyrie_image_format::support::fault;

const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
const PR_GET_THP_DISABLE: u64 = 42;
const RLIM_NLIMITS: u32 = 16;
/// Fields of `/proc/PID/stat`, in ticks.
const UTIME: usize = 14;
const STIME: usize = 15;

/// What was read while the process stood still.
pub(crate) struct FrozenState {
    pub threads: Vec<Thread>,
    pub attributes: Attributes,
    pub tree_node: TreeNode,
    /// Memory policies of its threads.
    pub policies: Vec<Policy>,
    /// What it tells itself of its switches.
    pub switches: prctl::Own,
    /// The same of mappings that its twin lacks.
    pub kept: Vec<RangePolicy>,
    pub pending: Vec<Pending>,
    pub timers: [[i64; 4]; 3],
    pub posix_timers: Vec<PosixTimer>,
    pub clocks: Option<Clocks>,
    pub status: Status,
    pub stat: Stat,
    pub maps: Vec<Mapping>,
    pub cwd: Vec<u8>,
    pub limits: Vec<[u64; 2]>,
    pub anonymous: AnonymousObjects,
    pub files: Table,
}

/// Reads the frozen process and prepares it for calls in its name.
pub(crate) fn freeze_state(
    frozen: &mut Frozen,
    survey: &mut Survey,
) -> Result<(FrozenState, Agent), CaptureError> {
    let tracee = frozen.tracee;
    let pid = tracee.0;
    let status = Status::read(pid)?;
    let stat = Stat::read(pid)?;
    let maps = procfs::parse_maps(&mappings(pid, &status)?)?;
    refuse_unsupported(pid, &status, &maps)?;
    let traps_ignored = status.number("SigIgn", 16)? & threads::TRAP != 0;
    let mut threads = Vec::new();
    for thread in frozen.threads() {
        threads::refuse_unlike(thread, tracee, &status)?;
        unsupported::refuse_dispatch(thread)?;
        threads.push(threads::read(frozen, thread, &maps, traps_ignored)?);
    }
    let mut pending = threads::pending(tracee, true)?;
    fault::point(fault::THREADS_READ)?;
    for thread in frozen.threads() {
        thread.set_sigmask(ALL_SIGNALS)?;
    }
    let mut anonymous = AnonymousObjects::of_mappings(pid, &maps, survey.known.names())?;
    let files = survey.table(pid, &mut anonymous)?;
    refuse_closed(&maps, &files)?;
    let touched = std::mem::take(&mut survey.touched);
    let linked = &survey.known.linked;
    anonymous.keep(stored::find(&files, (&maps, linked), &touched, &mut survey.files));
    fault::point(fault::DESCRIPTORS_READ)?;
    let regs = frozen.borrowed.first().map(|b| b.regs).ok_or(CaptureError::Gone)?;
    let agent = Agent::new(tracee, regs, &maps)?;
    frozen.scratch = Some(agent.borrowed());
    let answers = unsupported::refuse_unusual(&agent, &status)
        .and_then(|()| ask(&agent, frozen, &mut threads, &mut pending, &stat));
    let (timers, posix_timers, tree_node, policies, switches, attributes) =
        answers.inspect_err(|_| {
            // The error is what counts; a process that is gone has nothing to be given back.
            let _ = agent.finish();
        })?;
    let limits = limits(pid, &stat);
    let frozen_state = FrozenState {
        threads,
        attributes,
        tree_node,
        policies,
        switches,
        kept: Vec::new(),
        pending,
        timers,
        posix_timers,
        clocks: clocks::of(pid)?,
        stat,
        maps,
        cwd: procfs::link(pid, "cwd")?,
        limits,
        status,
        anonymous,
        files,
    };
    Ok((frozen_state, agent))
}

/// Prepares a process for calls in its name by its first thread, and for nothing else.
pub(crate) fn agent_alone(frozen: &mut Frozen) -> Result<(Vec<Mapping>, Agent), CaptureError> {
    let tracee = frozen.tracee;
    let status = Status::read(tracee.0)?;
    let maps = procfs::maps(tracee.0)?;
    let traps_ignored = status.number("SigIgn", 16)? & threads::TRAP != 0;
    threads::read(frozen, tracee, &maps, traps_ignored)?;
    tracee.set_sigmask(ALL_SIGNALS)?;
    let regs = frozen.borrowed.first().map(|b| b.regs).ok_or(CaptureError::Gone)?;
    let agent = Agent::new(tracee, regs, &maps)?;
    frozen.scratch = Some(agent.borrowed());
    Ok((maps, agent))
}

/// Its interval timers, its other timers, its relatives, memory policies of its threads, switches.
type Answers = ([[i64; 4]; 3], Vec<PosixTimer>, TreeNode, Vec<Policy>, prctl::Own, Attributes);

/// What the process tells about itself and its threads in its own name; returns its interval
/// timers. Leaves the answers in the borrowed memory.
fn ask(
    agent: &Agent,
    frozen: &Frozen,
    threads: &mut [Thread],
    pending: &mut Vec<Pending>,
    stat: &Stat,
) -> Result<Answers, CaptureError> {
    fault::point(fault::MEMORY_BORROWED)?;
    let mut timers = [[0; 4]; 3];
    for (which, timer) in timers.iter_mut().enumerate() {
        let words = agent.ask::<4>(libc::SYS_getitimer, &[which as u64, 0], 1)?;
        *timer = words.unwrap_or([0; 4]).map(|w| w as i64);
    }
    let posix_timers = posix_timers::capture(frozen.pid(), agent, threads, pending)?;
    let tree_node = process_tree::tree_node(frozen, agent, stat)?;
    let policies = threads::ask(threads, &frozen.borrowed, agent)?;
    let switches = prctl::own(agent, &frozen.borrowed)?;
    let attributes = attributes::ask(frozen.tracee.0, agent, frozen.bound.as_deref())?;
    fault::point(fault::ANSWERS_READ)?;
    Ok((timers, posix_timers, tree_node, policies, switches, attributes))
}

/// The process's mappings. Flags take a walk through its page tables, and are needed only if a twin
/// does not have them.
fn mappings(pid: libc::pid_t, status: &Status) -> Result<Vec<u8>, CaptureError> {
    let some = |name| !matches!(status.field(name), "" | "0 kB");
    if some("VmLck") || some("HugetlbPages") {
        procfs::smaps(pid)
    } else {
        procfs::read(pid, "maps")
    }
}

fn refuse_unsupported(
    pid: libc::pid_t,
    status: &Status,
    maps: &[Mapping],
) -> Result<(), CaptureError> {
    let refuse = |what: &str| Err(CaptureError::Unsupported(what.into()));
    process_tree::refuse_stranger(pid, status)?;
    attributes::refuse_apart(pid, status)?;
    if !maps.iter().any(|m| m.path == b"[vdso]") {
        return refuse("has no vdso");
    }
    Ok(())
}

/// Refuses mappings of what only a descriptor leads to, and the process has closed that.
fn refuse_closed(maps: &[Mapping], files: &Table) -> Result<(), CaptureError> {
    let ranges = || files.descriptions.iter().flat_map(|d| d.target.ranges());
    let comes_back = |m: &Mapping| ranges().any(|(start, _)| start == m.start);
    match maps.iter().find(|m| m.is_of_descriptor() && !comes_back(m)) {
        None => Ok(()),
        Some(m) => {
            let what = "a ring of io_uring (anon_inode:[io_uring]) whose descriptor is closed; \
                        keep that open";
            Err(CaptureError::Mapping { start: m.start, what: what.into() })
        }
    }
}

/// Its limits. Its processor time begins at 0 again when it comes back, so that its limit then is
/// what is left of it now.
fn limits(pid: libc::pid_t, stat: &Stat) -> Vec<[u64; 2]> {
    let one = |number: u32| {
        let mut limit = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
        // SAFETY: reads into a live structure.
        let r = unsafe { libc::prlimit64(pid, number, std::ptr::null(), &raw mut limit) };
        if r == 0 { [limit.rlim_cur, limit.rlim_max] } else { [u64::MAX; 2] }
    };
    let mut limits = (0..RLIM_NLIMITS).map(one).collect::<Vec<_>>();
    let used = used_seconds(stat);
    limits[libc::RLIMIT_CPU as usize] =
        limits[libc::RLIMIT_CPU as usize].map(|limit| what_is_left(limit, used));
    limits
}

/// Whole seconds of processor time that all threads of a process have used.
fn used_seconds(stat: &Stat) -> u64 {
    // SAFETY: asks the C library for a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let used = stat.field(UTIME).saturating_add(stat.field(STIME));
    used / u64::try_from(ticks).unwrap_or(0).max(1)
}

/// At least a second: a process that is over its limit is told of it, or ended, within one.
fn what_is_left(limit: u64, used: u64) -> u64 {
    if limit == libc::RLIM64_INFINITY { limit } else { limit.saturating_sub(used).max(1) }
}

/// Completes the state from the twin. Regions, files and guards are filled in later.
pub(crate) fn twin_state(
    pid: libc::pid_t,
    frozen_state: FrozenState,
    agent: &Agent,
    twin: libc::pid_t,
) -> Result<State, CaptureError> {
    let perm = agent.ask::<1>(libc::SYS_arch_prctl, &[ARCH_GET_XCOMP_PERM, 0], 1)?;
    let prctl = |option: u64| agent.call(libc::SYS_prctl, &[option]);
    let dumpable = prctl(libc::PR_GET_DUMPABLE as u64)?;
    let switches = prctl::ask(twin, agent, &frozen_state.switches)?;
    let thp_disable = prctl(PR_GET_THP_DISABLE)?;
    let mut ranges = numa::of_mappings(agent, &frozen_state.maps, twin != pid)?;
    ranges.extend(frozen_state.kept);
    ranges.sort_by_key(|r| r.start);
    ranges.dedup();
    let actions = actions(&frozen_state.status, agent)?;
    let brk = agent.call(libc::SYS_brk, &[0])? as u64;
    let first = frozen_state.threads.first().map_or(&[][..], |thread| &thread.xstate);
    let back = (twin == pid).then_some((Tracee(pid), first));
    let keys = attributes::keys(agent, back)?;
    agent.finish()?;
    let (status, stat) = (&frozen_state.status, &frozen_state.stat);
    let specials: Vec<Special> = frozen_state
        .maps
        .iter()
        .filter(|m| m.is_special())
        .map(|m| Special { name: m.path.clone(), start: m.start, end: m.end })
        .collect();
    let personality = procfs::read(twin, "personality").unwrap_or_default();
    let personality = String::from_utf8_lossy(&personality);
    Ok(State {
        pid,
        tree_node: frozen_state.tree_node,
        exe: procfs::link(twin, "exe")?,
        cwd: frozen_state.cwd,
        umask: u32::from_str_radix(status.field("Umask"), 8).unwrap_or(0o22),
        personality: u32::from_str_radix(personality.trim(), 16).unwrap_or(0),
        dumpable: dumpable.max(0) as u32,
        no_new_privs: status.field("NoNewPrivs") == "1",
        thp_disable: thp_disable > 0,
        limits: frozen_state.limits,
        xcomp_perm: perm.map_or(0, |[mask]| mask),
        attributes: Attributes { keys, ..frozen_state.attributes },
        processor: processor::here(),
        threads: frozen_state.threads,
        actions,
        pending: frozen_state.pending,
        timers: frozen_state.timers,
        posix_timers: frozen_state.posix_timers,
        layout: layout(stat, brk, procfs::read(twin, "auxv")?),
        vdso: vdso(twin, &frozen_state.maps)?,
        specials,
        files: Vec::new(),
        contents: Vec::new(),
        anonymous: Vec::new(),
        regions: Vec::new(),
        guards: Vec::new(),
        descriptions: frozen_state.files.descriptions,
        descriptors: frozen_state.files.descriptors,
        placement: Placement { allowed: numa::allowed(), threads: frozen_state.policies, ranges },
        switches,
        clocks: frozen_state.clocks,
    })
}

fn layout(stat: &Stat, brk: u64, auxv: Vec<u8>) -> Layout {
    Layout {
        start_code: stat.field(26),
        end_code: stat.field(27),
        start_stack: stat.field(28),
        start_data: stat.field(45),
        end_data: stat.field(46),
        start_brk: stat.field(47),
        arg_start: stat.field(48),
        arg_end: stat.field(49),
        env_start: stat.field(50),
        env_end: stat.field(51),
        brk,
        auxv,
    }
}

/// Dispositions of the signals that are caught or ignored.
fn actions(status: &Status, agent: &Agent) -> Result<Vec<Action>, CaptureError> {
    let (caught, ignored) = (status.number("SigCgt", 16)?, status.number("SigIgn", 16)?);
    let mut all = Vec::new();
    for signal in 1..=64u32 {
        if (caught | ignored) >> (signal - 1) & 1 == 0 {
            continue;
        }
        let args = [u64::from(signal), 0, 0, 8];
        let words = agent.ask::<4>(libc::SYS_rt_sigaction, &args, 2)?;
        let [handler, flags, restorer, mask] = words.map_err(|_| {
            CaptureError::Unsupported(format!("does not tell its handler of signal {signal}"))
        })?;
        all.push(Action { signal, handler, flags, restorer, mask });
    }
    Ok(all)
}
