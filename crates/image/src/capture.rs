//! The kernel's side of a stopped process: signals, timers, limits, descriptors; of its threads see
//! [`crate::threads`].
//!
//! Read in two steps to keep the freeze short: from the frozen process what a twin does not
//! inherit, from the twin the rest. Some of it the kernel tells only to the process itself; it is
//! then asked in the process's name ([`crate::agent`]).

use crate::PAGE_BYTES;
use crate::agent::Agent;
use crate::attributes;
use crate::clocks;
use crate::descriptors::{Survey, Table};
use crate::error::CaptureError;
use crate::family::Kin;
use crate::fault;
use crate::freeze::Frozen;
use crate::kept;
use crate::memory;
use crate::orphans::Orphans;
use crate::placement;
use crate::posix_timers;
use crate::processor;
use crate::procfs::{self, Mapping, Stat, Status};
use crate::state::{
    Action, Attributes, Clocks, Layout, Pending, Placement, Policy, PosixTimer, RangePolicy,
    Special, State, Thread,
};
use crate::switches;
use crate::threads;
use crate::trace::{ALL_SIGNALS, Regs, TraceError, Tracee};
use crate::tree;
use crate::unusual;

const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
const PR_GET_THP_DISABLE: u64 = 42;
const RLIM_NLIMITS: u32 = 16;

impl From<TraceError> for CaptureError {
    fn from(e: TraceError) -> CaptureError {
        match e {
            TraceError::Gone => CaptureError::Gone,
            TraceError::Late { tid, limit } => CaptureError::Late { tid, limit },
            TraceError::Os { what, source } => CaptureError::Os { what, source },
        }
    }
}

/// What was read while the process stood still.
pub(crate) struct Snapshot {
    pub threads: Vec<Thread>,
    pub attributes: Attributes,
    pub kin: Kin,
    /// Memory policies of its threads.
    pub policies: Vec<Policy>,
    /// What it tells itself of its switches.
    pub switches: switches::Own,
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
    pub orphans: Orphans,
    pub files: Table,
}

/// Reads the frozen process and prepares it for calls in its name.
pub(crate) fn freeze_state(
    frozen: &mut Frozen,
    survey: &mut Survey,
) -> Result<(Snapshot, Agent), CaptureError> {
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
        unusual::refuse_dispatch(thread)?;
        threads.push(threads::read(frozen, thread, &maps, traps_ignored)?);
    }
    let mut pending = threads::pending(tracee, true)?;
    fault::point(fault::THREADS_READ)?;
    for thread in frozen.threads() {
        thread.set_sigmask(ALL_SIGNALS)?;
    }
    let mut orphans = Orphans::of_mappings(pid, &maps, &survey.known.named)?;
    let files = survey.table(pid, &mut orphans)?;
    let touched = std::mem::take(&mut survey.touched);
    orphans.keep(kept::find(&files, &maps, &touched, &mut survey.files));
    fault::point(fault::DESCRIPTORS_READ)?;
    let regs = frozen.borrowed.first().map(|b| b.regs).ok_or(CaptureError::Gone)?;
    let agent = Agent::new(tracee, regs, &maps)?;
    frozen.scratch = Some(agent.borrowed());
    let answers = unusual::refuse_unusual(&agent, &status)
        .and_then(|()| ask(&agent, frozen, &mut threads, &mut pending, &stat));
    let (timers, posix_timers, kin, policies, switches, attributes) =
        answers.inspect_err(|_| {
            // The error is what counts; a process that is gone has nothing to be given back.
            let _ = agent.finish();
        })?;
    let snapshot = Snapshot {
        threads,
        attributes,
        kin,
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
        limits: limits(pid),
        status,
        orphans,
        files,
    };
    Ok((snapshot, agent))
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
type Answers = ([[i64; 4]; 3], Vec<PosixTimer>, Kin, Vec<Policy>, switches::Own, Attributes);

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
    let kin = tree::kin(frozen, agent, stat)?;
    let policies = threads::ask(threads, &frozen.borrowed, agent)?;
    let switches = switches::own(agent, &frozen.borrowed)?;
    let attributes = attributes::ask(frozen.tracee.0, agent, frozen.bound.as_deref())?;
    fault::point(fault::ANSWERS_READ)?;
    Ok((timers, posix_timers, kin, policies, switches, attributes))
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
    tree::refuse_stranger(pid, status)?;
    attributes::refuse_apart(pid, status)?;
    if !maps.iter().any(|m| m.path == b"[vdso]") {
        return refuse("has no vdso");
    }
    Ok(())
}

fn limits(pid: libc::pid_t) -> Vec<[u64; 2]> {
    let one = |number: u32| {
        let mut limit = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
        // SAFETY: reads into a live structure.
        let r = unsafe { libc::prlimit64(pid, number, std::ptr::null(), &raw mut limit) };
        if r == 0 { [limit.rlim_cur, limit.rlim_max] } else { [u64::MAX; 2] }
    };
    (0..RLIM_NLIMITS).map(one).collect()
}

/// `user_regs_struct` as the image stores it.
pub(crate) fn regs_to_words(regs: &Regs) -> [u64; 27] {
    const _: () = assert!(size_of::<Regs>() == 27 * 8);
    // SAFETY: 27 words without padding; every bit pattern is valid.
    unsafe { std::mem::transmute_copy(regs) }
}

/// The inverse of [`regs_to_words`].
pub(crate) fn words_to_regs(words: &[u64; 27]) -> Regs {
    // SAFETY: as above.
    unsafe { std::mem::transmute_copy(words) }
}

/// Completes the state from the twin. Regions, files and guards are filled in later.
pub(crate) fn twin_state(
    pid: libc::pid_t,
    snapshot: Snapshot,
    agent: &Agent,
    twin: libc::pid_t,
) -> Result<State, CaptureError> {
    let perm = agent.ask::<1>(libc::SYS_arch_prctl, &[ARCH_GET_XCOMP_PERM, 0], 1)?;
    let prctl = |option: u64| agent.call(libc::SYS_prctl, &[option]);
    let dumpable = prctl(libc::PR_GET_DUMPABLE as u64)?;
    let switches = switches::ask(twin, agent, &snapshot.switches)?;
    let thp_disable = prctl(PR_GET_THP_DISABLE)?;
    let mut ranges = placement::of_mappings(agent, &snapshot.maps, twin != pid)?;
    ranges.extend(snapshot.kept);
    ranges.sort_by_key(|r| r.start);
    ranges.dedup();
    let actions = actions(&snapshot.status, agent)?;
    let brk = agent.call(libc::SYS_brk, &[0])? as u64;
    let first = snapshot.threads.first().map_or(&[][..], |thread| &thread.xstate);
    let back = (twin == pid).then_some((Tracee(pid), first));
    let keys = attributes::keys(agent, back)?;
    agent.finish()?;
    let (status, stat) = (&snapshot.status, &snapshot.stat);
    let specials: Vec<Special> = snapshot
        .maps
        .iter()
        .filter(|m| m.is_special())
        .map(|m| Special { name: m.path.clone(), start: m.start, end: m.end })
        .collect();
    let personality = procfs::read(twin, "personality").unwrap_or_default();
    let personality = String::from_utf8_lossy(&personality);
    Ok(State {
        pid,
        kin: snapshot.kin,
        exe: procfs::link(twin, "exe")?,
        cwd: snapshot.cwd,
        umask: u32::from_str_radix(status.field("Umask"), 8).unwrap_or(0o22),
        personality: u32::from_str_radix(personality.trim(), 16).unwrap_or(0),
        dumpable: dumpable.max(0) as u32,
        no_new_privs: status.field("NoNewPrivs") == "1",
        thp_disable: thp_disable > 0,
        limits: snapshot.limits,
        xcomp_perm: perm.map_or(0, |[mask]| mask),
        attributes: Attributes { keys, ..snapshot.attributes },
        processor: processor::here(),
        threads: snapshot.threads,
        actions,
        pending: snapshot.pending,
        timers: snapshot.timers,
        posix_timers: snapshot.posix_timers,
        layout: layout(stat, brk, procfs::read(twin, "auxv")?),
        vdso: vdso(twin, &snapshot.maps)?,
        specials,
        files: Vec::new(),
        contents: Vec::new(),
        orphans: Vec::new(),
        regions: Vec::new(),
        guards: Vec::new(),
        descriptions: snapshot.files.descriptions,
        descriptors: snapshot.files.descriptors,
        placement: Placement { allowed: placement::allowed(), threads: snapshot.policies, ranges },
        switches,
        clocks: snapshot.clocks,
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

/// The bytes of the vdso of `pid`.
pub(crate) fn vdso(pid: libc::pid_t, maps: &[Mapping]) -> Result<Vec<u8>, CaptureError> {
    let mut bytes = Vec::new();
    for m in maps.iter().filter(|m| m.path == b"[vdso]") {
        let mut part = vec![0; (m.end - m.start).next_multiple_of(PAGE_BYTES) as usize];
        memory::read_exact(pid, m.start, &mut part)?;
        bytes.append(&mut part);
    }
    Ok(bytes)
}
