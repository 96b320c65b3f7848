//! Turning an image back into a process.
//!
//! The child starts as the restorer under our trace, carries out its plan and stops. What is left
//! is done from here, in its name, with the `syscall` instruction of its own vdso: the restorer is
//! unmapped, the registers are set, and it is let go. Until then a failure at any step kills the
//! child and changes nothing else; files are cut back last.

use crate::error::RestoreError;
use crate::kernel::free_pids;
use crate::kernel::interrupted_calls;
use crate::kernel::memory;
use crate::kernel::procfs::DELETED;
use crate::kernel::ptrace::{ALL_SIGNALS, TraceError, Tracee};
use crate::kernel::remote_calls::syscall_site;
use crate::kernel::restorer_area::Area;
use crate::kernel::script::Plan;
use crate::kernel::starting::{self, Starting};
use crate::kernel::stops::reap;
use crate::resources::attributes;
use crate::resources::clocks;
use crate::resources::files::undo::FileNote;
use crate::resources::limits;
use crate::resources::numa::Here;
use crate::resources::posix_timers::{self, Caller};
use crate::resources::proc_files;
use crate::resources::processor;
use crate::resources::segments::segment;
use crate::restore::child::Child;
use crate::restore::descriptors::{Reopened, Reopener};
use crate::restore::go_threads;
use crate::restore::lazy::{Filling, Lazy, within};
use crate::restore::linker_locks;
use crate::restore::load;
use crate::restore::options::{RestoreOptions, RestoreSpec};
use crate::restore::plan::{self, Placed};
use crate::restore::process_tree;
use crate::restore::spawn::{self, Start, Started};
use crate::restore::steps::{explain_failure, own_maps, site, wait_for};
use crate::restore::threads;
use crate::restore::vdso::{self, Vdso};
use eyrie_image_format::bytes::registers::words_to_regs;
use eyrie_image_format::read::image::{Check, Image};
use eyrie_image_format::read::tree_images::{self, Account};
use eyrie_image_format::state::process_tree::Member;
use eyrie_image_format::state::{Backing, ObjectKind, Pending, State, Thread, region};
use eyrie_image_format::support::fault;
use eyrie_restorer::plan::{DATA_OFFSET, Header};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Offset of the thread number in glibc's thread block (2.11 and later).
const GLIBC_TID_OFFSET: u64 = 720;
/// How far into a libc's thread block its number is looked for.
const TID_SEARCH_BYTES: usize = 1024;

/// A restored process.
#[derive(Debug)]
#[non_exhaustive]
pub struct Restored {
    /// Its number.
    pub pid: libc::pid_t,
    /// Set if not all of its memory is in yet.
    pub filling: Option<Filling>,
    /// Why all of its memory came first although it was to be restored lazily.
    pub why_not_lazy: Option<String>,
    /// What of it could not be had on this machine, in words; the program runs without.
    pub left_out: Vec<String>,
    /// Files that were not as they were at the checkpoint.
    pub files: Vec<FileNote>,
    /// Files that it had been seen writing to without keeping them open ([`crate::Watch`]).
    pub touched: Vec<PathBuf>,
    /// Files that are as they were when programs began, and that it had changed since the
    /// checkpoint.
    pub undone: Vec<PathBuf>,
}

fn last(what: &'static str) -> RestoreError {
    RestoreError::Os { what, source: io::Error::last_os_error() }
}

/// One process to be restored, and with what.
struct Part<'a> {
    image: &'a Image,
    reopened: Reopened,
    plan: File,
    placed: Placed,
    options: &'a RestoreOptions,
}

/// Restores the process of an image as a child of the caller, with the child processes that were
/// checkpointed with it, and returns its number. To be called from the thread on whose death it
/// shall die (`PDEATHSIG`), in a daemon the main thread.
pub fn restore(spec: RestoreSpec<'_>) -> Result<libc::pid_t, RestoreError> {
    restore_lazily(spec).map(|restored| restored.pid)
}

/// The same, telling how [`RestoreOptions::lazy`] was followed.
pub fn restore_lazily(spec: RestoreSpec<'_>) -> Result<Restored, RestoreError> {
    // What is loaded before the process runs is verified then.
    let late = Lazy::wish(&spec.options).is_some() && !spec.options.verified;
    let check = if late { Check::All } else { Check::Tables };
    let image = Arc::new(Image::open_tree(spec.image, check)?);
    fault::point(fault::IMAGE_CHECKED)?;
    File::open(spec.restorer)
        .map_err(|source| RestoreError::Os { what: "open the restorer", source })?;
    let accounts = tree_images::accounts(&image);
    let alive = accounts.iter().filter_map(|(_, account)| match account {
        Account::Alive(image) => Some(*image),
        _ => None,
    });
    let alive: Vec<&Image> = alive.collect();
    let _room = limits::Room::for_restore(alive.iter().map(|image| &image.state))?;
    let held = starting::hold();
    let mut reopener = Reopener::new(&spec.stdio, &spec.segments, &spec.options, &alive);
    let (given, parts) = place(&accounts, &spec, &mut reopener)?;
    fault::point(fault::PLANNED)?;
    let states: Vec<&State> = alive.iter().map(|image| &image.state).collect();
    let start = Start {
        program: spec.restorer,
        descriptors: &given,
        limit: limits::needed_of_process(&states, &given),
        pid: image.state.pid,
        only_this: accounts.len() > 1,
        clocks: clocks::wanted(&image.state),
    };
    // Goes after the child, which ends it, if something fails.
    let mut lazy = Lazy::new(&image, &spec.options, parts.len() > 1);
    free_pids::wait(numbers(&accounts), accounts.len() > 1);
    let starting = Starting::begin();
    let Started { pid, clocks } = spawn::start(&start)?;
    let tracee = Tracee(pid);
    let mut made: Vec<Option<Child>> = accounts.iter().map(|_| None).collect();
    made[0] = Some(Child::new(pid));
    fault::point(fault::CHILD_STARTED)?;
    wait_for(tracee, libc::SIGTRAP)?;
    drop(starting);
    tracee.set_options(threads::OPTIONS)?;
    tracee.set_sigmask(ALL_SIGNALS)?;
    process_tree::make((tracee, site(pid)?), &accounts, reopener.pidfds(), &mut made)?;
    fault::point(fault::FAMILY_MADE)?;
    let mut alive: Vec<&mut Child> = made.iter_mut().flatten().filter(|c| !c.ended).collect();
    for (child, part) in alive.iter_mut().zip(&parts) {
        rebuild(child, part, &mut lazy)?;
    }
    fault::point(fault::LIMITS_SET)?;
    reopener.finish()?;
    fault::point(fault::FILES_CUT)?;
    if spec.start_stopped {
        permit_debugger(tracee, &image.state)?;
    }
    for (child, part) in alive.iter().zip(&parts) {
        make_ready(&child.threads(), &part.image.state)?;
    }
    let left_out = left_out(&parts, clocks);
    let (files, touched, undone) = reopener.file_notes();
    // What it has open it has alone when it runs.
    drop((parts, reopener));
    drop((spec.stdio, spec.segments, held));
    starting::settle();
    spec.options.ready.iter().for_each(|tell| tell());
    let_all_go(&mut alive, &states, spec.start_stopped)?;
    let (filling, why_not_lazy) = (lazy.filling.take(), lazy.why_not.take());
    Ok(Restored { pid, filling, why_not_lazy, left_out, files, touched, undone })
}

/// What could not be had here; `clocks`: they are as they are to be.
fn left_out(parts: &[Part<'_>], clocks: bool) -> Vec<String> {
    let of = |part: &Part<'_>| part.placed.policies.left_out.clone();
    let mut all: Vec<String> = parts.iter().filter_map(of).collect();
    all.dedup();
    all.extend((!clocks).then(clocks::left_out));
    all
}

/// The numbers of all processes and threads.
fn numbers(accounts: &[(Member, Account<'_>)]) -> impl Iterator<Item = libc::pid_t> {
    accounts.iter().flat_map(|(member, account)| {
        let threads = match account {
            Account::Alive(image) => image.state.threads.as_slice(),
            _ => &[],
        };
        std::iter::once(member.pid).chain(threads.iter().map(|t| t.tid))
    })
}

/// Lets the processes go; `stopped`: the first one is to stand by `SIGSTOP`.
fn let_all_go(
    all: &mut [&mut Child],
    states: &[&State],
    stopped: bool,
) -> Result<(), RestoreError> {
    let mut runs = false;
    for (i, (child, state)) in all.iter().zip(states).enumerate() {
        // A child's parent knows that it stopped it; who stopped the first process from outside may
        // have let it go on long ago, and nobody else would.
        let stopped = if i == 0 { stopped } else { state.tree_node.stopped };
        let_go(child, if stopped { libc::SIGSTOP } else { 0 }, i == 0, &mut runs)?;
    }
    all.iter_mut().for_each(|child| child.finished = true);
    Ok(())
}

/// Lets the threads of a process go. As soon as one thread `runs`, others may be ended by what it
/// does: that is no failure. What is left of such a thread is collected, as nobody is told of its
/// process's end before. A first thread that is a child of `ours` is left to the caller.
fn let_go(child: &Child, signal: i32, ours: bool, runs: &mut bool) -> Result<(), RestoreError> {
    let mut ended = Vec::new();
    for (i, thread) in child.threads().into_iter().enumerate() {
        match thread.detach(signal) {
            Err(TraceError::Gone) if *runs && ours && i == 0 => {}
            Err(TraceError::Gone) if *runs => ended.push(thread.0),
            result => result?,
        }
        *runs = true;
    }
    // The end of a first thread is told when all others are collected.
    ended.into_iter().rev().for_each(reap);
    Ok(())
}

/// Where the kernel lets only ancestors attach (Yama), the process can say that all others may too.
/// Elsewhere it does not know the call.
fn permit_debugger(tracee: Tracee, state: &State) -> Result<(), RestoreError> {
    let base = words_to_regs(&state.leader().regs);
    let args = [libc::PR_SET_PTRACER as u64, libc::PR_SET_PTRACER_ANY];
    tracee.syscall(site(tracee.0)?, &base, libc::SYS_prctl, &args, &mut None)?;
    Ok(())
}

/// Turns the restorer into the process of an image, all but the registers of its threads.
fn rebuild(child: &mut Child, part: &Part<'_>, lazy: &mut Lazy) -> Result<(), RestoreError> {
    let (state, tracee) = (&part.image.state, child.tracee);
    let pid = tracee.0;
    let own = own_maps(pid)?;
    let template = tracee.xstate()?;
    let here = processor::here();
    processor::check(state, &here, &part.options.ignore_features)?;
    let there = (&state.processor, state.attributes.keys);
    for thread in &state.threads {
        processor::convert(thread, there, &here, &template)?;
    }
    let vdso = memory::vdso(pid, &own).map_err(|e| RestoreError::Died(e.to_string()))?;
    lift_lock_limit(pid);
    let area = Area::choose(state, &own)?;
    let vdso = Vdso::choose(state, &own, &vdso, area)?;
    area.enter(tracee, &own)?;
    let own = own_maps(pid)?;
    let plan = plan::plan(state, &part.image.extents, &part.placed, &own, &vdso, area, pid)?;
    fault::point(fault::PLAN_MADE)?;
    carry_out(tracee, &plan, &part.plan, || {
        vdso::fill(&vdso, pid)?;
        let late = lazy.begin(tracee);
        let now = |address| !within(&late, address);
        load::fill(part.image, pid, &part.reopened.anonymous, now)
    })?;
    fault::point(fault::PLAN_DONE)?;
    forget_restorer(child, &plan, part, area)?;
    fault::point(fault::RESTORER_GONE)?;
    let threads = child.threads();
    for (thread, made) in state.threads.iter().zip(&threads) {
        renumber(pid, thread, made.0)?;
        go_threads::renumber(pid, thread, made.0)?;
    }
    let numbers = state.threads.iter().zip(&threads).map(|(thread, made)| (thread.tid, made.0));
    linker_locks::renumber(pid, state, &numbers.collect::<Vec<_>>())?;
    limits(pid, state);
    let threads: Vec<libc::pid_t> = threads.iter().map(|t| t.0).collect();
    attributes::apply(pid, &threads, state, part.options.processors.as_deref());
    Ok(())
}

fn memfd() -> Result<File, RestoreError> {
    // SAFETY: the name is a constant; the result is checked.
    let fd = unsafe { libc::memfd_create(c"eyrie-plan".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(last("make the restorer's plan"));
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Opens what the processes had open. Returns the descriptors that all of them need.
fn place<'a>(
    accounts: &[(Member, Account<'a>)],
    spec: &'a RestoreSpec<'_>,
    reopener: &mut Reopener<'_>,
) -> Result<(Vec<RawFd>, Vec<Part<'a>>), RestoreError> {
    let mut given: BTreeSet<RawFd> = BTreeSet::new();
    let mut parts: Vec<Part<'a>> = Vec::new();
    for (_, account) in accounts {
        let Account::Alive(image) = account else { continue };
        let reopened = reopener.open(image)?;
        fault::point(fault::FILES_REOPENED)?;
        let plan = memfd()?;
        let placed = place_one(image, &reopened, spec, !parts.is_empty(), &mut given)?;
        given.insert(plan.as_raw_fd());
        parts.push(Part { image, reopened, plan, placed, options: &spec.options });
    }
    reopener.settle()?;
    Ok((given.into_iter().collect(), parts))
}

/// The descriptors of one process.
fn place_one(
    image: &Image,
    reopened: &Reopened,
    spec: &RestoreSpec<'_>,
    child: bool,
    given: &mut BTreeSet<RawFd>,
) -> Result<Placed, RestoreError> {
    let mut give = |fd: RawFd| {
        given.insert(fd);
        fd as u64
    };
    let descriptions = reopened.descriptions.iter().map(|&fd| give(fd)).collect();
    let files = reopened.files.iter().map(|&fd| give(fd)).collect();
    let mut segments = Vec::new();
    for r in &image.state.regions {
        segments.push(match &r.backing {
            Backing::Segment { name, .. } => Some(give(segment(&spec.segments, name)?.as_raw_fd())),
            Backing::Object { object, .. } => {
                let writable = r.flags & region::MAY_WRITE != 0;
                reopened.anonymous[*object as usize].fd(writable).map(&mut give)
            }
            _ => None,
        });
    }
    let attached = reopened.anonymous.iter().map(|object| object.number()).collect();
    let policies = Here::of(&image.state.placement);
    Ok(Placed { descriptions, files, segments, attached, child, policies })
}

/// Hands the plan over, fills the memory where the plan waits for it, and waits until all is done.
fn carry_out(
    tracee: Tracee,
    plan: &Plan,
    file: &File,
    fill: impl FnOnce() -> Result<(), RestoreError>,
) -> Result<(), RestoreError> {
    let (steps, data) = plan.encode()?;
    let bytes = DATA_OFFSET + data.len() as u64;
    let write = || {
        file.set_len(bytes)?;
        file.write_all_at(&steps, 0)?;
        file.write_all_at(data, DATA_OFFSET)
    };
    write().map_err(|source| RestoreError::Os { what: "write the restorer's plan", source })?;
    let mut regs = tracee.regs()?;
    (regs.rdi, regs.rsi, regs.rdx) = (file.as_raw_fd() as u64, bytes, plan.area.plan());
    tracee.set_regs(&regs)?;
    let next_stop = || {
        tracee.resume(0)?;
        wait_for(tracee, libc::SIGSTOP).map_err(|died| explain(plan, file, died))
    };
    next_stop()?;
    fill()?;
    next_stop()
}

/// Which step failed, by what the restorer has noted in the plan.
fn explain(plan: &Plan, file: &File, died: RestoreError) -> RestoreError {
    let mut head = [0u8; size_of::<Header>()];
    if file.read_exact_at(&mut head, 0).is_err() {
        return died;
    }
    let word =
        |i: usize| head[i * 8..i * 8 + 8].iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
    let (done, result) = (word(2), word(3) as i64);
    if result == 0 {
        return match died {
            RestoreError::Died(how) => {
                RestoreError::Died(format!("{how} (while to {})", plan.name(done)))
            }
            other => other,
        };
    }
    explain_failure(plan.name(done), result)
}

/// Unmaps the restorer and its plan from within the process that it has become. In between, what
/// is left to do needs room for arguments: the other threads, and the name of the program.
fn forget_restorer(
    child: &mut Child,
    plan: &Plan,
    part: &Part<'_>,
    area: Area,
) -> Result<(), RestoreError> {
    let state = &part.image.state;
    let tracee = child.tracee;
    let base = words_to_regs(&state.leader().regs);
    let maps = own_maps(tracee.0)?;
    let site = syscall_site(tracee.0, &maps).map_err(|e| RestoreError::Machine(e.to_string()))?;
    let call = |nr: libc::c_long, args: &[u64]| tracee.syscall(site, &base, nr, args, &mut None);
    let leave = |start: u64, end: u64| match call(libc::SYS_munmap, &[start, end - start])? {
        0 => Ok(()),
        error => Err(explain_failure("leave the address space", error)),
    };
    let room = area.plan();
    leave(area.base, room)?;
    threads::make(tracee, state, site, room, &part.placed.policies, &mut child.others)?;
    fault::point(fault::THREADS_MADE)?;
    let threads = child.threads();
    let caller = Caller { threads: &threads, site, room };
    posix_timers::restore(&caller, state)?;
    proc_files::restore(&caller, state)?;
    // `/proc/PID/exe` can only be changed now that the restorer is not mapped any more, and only
    // with privileges; without them it goes on naming the restorer.
    let gone = program_that_is_gone(state).and_then(|i| part.reopened.anonymous[i].as_program());
    let mut path = gone.map_or_else(|| state.exe.clone(), String::into_bytes);
    path.push(0);
    if memory::write_exact(tracee.0, room, &path).is_ok() {
        let open = [libc::AT_FDCWD as u64, room, libc::O_RDONLY as u64];
        let fd = call(libc::SYS_openat, &open)?;
        if fd >= 0 {
            let mut layout = plan.layout;
            layout[12] = plan::with_exe(layout[12], fd as i32);
            let bytes: Vec<u8> = layout.iter().flat_map(|w| w.to_le_bytes()).collect();
            if memory::write_exact(tracee.0, room, &bytes).is_ok() {
                call(libc::SYS_prctl, &plan::set_layout(room))?;
            }
            call(libc::SYS_close, &[fd as u64])?;
        }
    }
    leave(room, area.end())
}

/// The program's file among the shared objects, if it has no path: the first one of that name.
fn program_that_is_gone(state: &State) -> Option<usize> {
    let name = state.exe.strip_suffix(DELETED).unwrap_or(&state.exe);
    let is_it = |kind: &ObjectKind| matches!(kind, ObjectKind::Deleted { path } if path == name);
    state.anonymous.iter().position(|object| is_it(&object.kind))
}

/// The number of a thread is in its libc's memory too.
fn renumber(pid: libc::pid_t, thread: &Thread, new: libc::pid_t) -> Result<(), RestoreError> {
    if thread.tid == new {
        return Ok(());
    }
    let fs_base = words_to_regs(&thread.regs).fs_base;
    let old = (thread.tid as u32).to_le_bytes();
    let holds_old = |at: u64| {
        let mut word = [0; 4];
        at != 0 && memory::read_exact(pid, at, &mut word).is_ok() && word == old
    };
    let usual = [thread.tid_address, fs_base.wrapping_add(GLIBC_TID_OFFSET)];
    let mut place = usual.into_iter().find(|&at| holds_old(at));
    if place.is_none() && fs_base != 0 {
        // Another libc: its thread block begins where FS points.
        let words = (0..TID_SEARCH_BYTES as u64).step_by(4);
        place = words.map(|i| fs_base.wrapping_add(i)).find(|&at| holds_old(at));
    }
    let Some(at) = place else { return Ok(()) };
    memory::write_exact(pid, at, &(new as u32).to_le_bytes())
        .map_err(|e| RestoreError::Died(e.to_string()))
}

/// Memory may be locked up to the hard limit while the process is made; its own limits come last.
fn lift_lock_limit(pid: libc::pid_t) {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads into and from a live structure; a refusal leaves the limit as it is.
    unsafe {
        libc::prlimit64(pid, libc::RLIMIT_MEMLOCK, std::ptr::null(), &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::prlimit64(pid, libc::RLIMIT_MEMLOCK, &raw const limit, std::ptr::null_mut());
    }
}

/// Resource limits as far as they can be had again.
fn limits(pid: libc::pid_t, state: &State) {
    for (number, &[soft, hard]) in state.limits.iter().enumerate() {
        let number = number as u32;
        let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads into a live structure.
        if unsafe { libc::prlimit64(pid, number, std::ptr::null(), &raw mut now) } != 0 {
            continue;
        }
        let hard = hard.min(now.rlim_max);
        let new = libc::rlimit64 { rlim_cur: soft.min(hard), rlim_max: hard };
        // SAFETY: reads a live structure; a refusal leaves the limit as it is.
        unsafe { libc::prlimit64(pid, number, &raw const new, std::ptr::null_mut()) };
    }
}

/// Sets the registers of all threads, so that nothing is left to do but to let them go.
///
/// This is done in stops before signal delivery, so that the kernel treats an interrupted system
/// call as it would have done in the old process, in the light of the signals that are pending.
fn make_ready(threads: &[Tracee], state: &State) -> Result<(), RestoreError> {
    let pid = threads[0].0;
    let here = processor::here();
    let there = (&state.processor, state.attributes.keys);
    for (i, (&tracee, thread)) in threads.iter().zip(&state.threads).enumerate() {
        let mut regs = words_to_regs(&thread.regs);
        let sleeps = interrupted_calls::fall_asleep(tracee, &regs)?;
        // SAFETY: signals a thread of our own child.
        if unsafe { libc::syscall(libc::SYS_tgkill, pid, tracee.0, libc::SIGSTOP) } != 0 {
            return Err(last("stop the restored process"));
        }
        run_into(tracee, libc::SIGSTOP)?;
        if sleeps {
            regs = interrupted_calls::asleep(tracee, &regs)?;
        } else if interrupted_calls::needs_note(&regs) && !signal_waits(state, i) {
            // What was left of its time nobody knows.
            interrupted_calls::begin_anew(&mut regs);
        }
        let template = tracee.xstate()?;
        tracee.set_xstate(&processor::convert(thread, there, &here, &template)?)?;
        tracee.set_regs(&regs)?;
    }
    queue_continues(threads, state)?;
    // Only now: a signal for the process must not be taken by a thread that is not ready.
    for (tracee, thread) in threads.iter().zip(&state.threads) {
        tracee.set_sigmask(thread.sigmask)?;
    }
    Ok(())
}

/// Queues again every SIGCONT that was pending: the stops that make threads ready have taken them
/// away, as the kernel does.
fn queue_continues(threads: &[Tracee], state: &State) -> Result<(), RestoreError> {
    let pid = threads[0].0;
    let continues = |p: &&Pending| p.signal() == libc::SIGCONT as u32;
    for pending in state.pending.iter().filter(continues) {
        queue_again(pid, None, pending)?;
    }
    for (tracee, thread) in threads.iter().zip(&state.threads) {
        for pending in thread.pending.iter().filter(continues) {
            queue_again(pid, Some(tracee.0), pending)?;
        }
    }
    Ok(())
}

/// Queues a signal for a process, or for a thread of it; without what it says of its sender where
/// only the sender itself may say that.
fn queue_again(
    pid: libc::pid_t,
    thread: Option<libc::pid_t>,
    pending: &Pending,
) -> Result<(), RestoreError> {
    let (signal, info) = (pending.signal(), pending.info.as_ptr());
    // SAFETY: signals our own child, or a thread of it; `info` is a siginfo_t.
    let rc = unsafe {
        match thread {
            None => match libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, info) {
                0 => 0,
                _ => libc::syscall(libc::SYS_kill, pid, signal),
            },
            Some(tid) => match libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, info) {
                0 => 0,
                _ => libc::syscall(libc::SYS_tgkill, pid, tid, signal),
            },
        }
    };
    if rc == 0 { Ok(()) } else { Err(last("queue a signal")) }
}

/// Whether a signal with a handler will be delivered to thread `i` at once: one of its own, or one
/// of the process if no thread before it takes that.
fn signal_waits(state: &State, i: usize) -> bool {
    let blocks = |t: &Thread, p: &Pending| t.sigmask >> (p.signal().max(1) - 1) & 1 != 0;
    let handled =
        |p: &&Pending| state.actions.iter().any(|a| a.signal == p.signal() && a.handler > 1);
    let thread = &state.threads[i];
    let before = &state.threads[..i];
    let own = thread.pending.iter();
    let shared = state.pending.iter().filter(|p| before.iter().all(|t| blocks(t, p)));
    own.chain(shared).filter(handled).any(|p| !blocks(thread, p))
}

/// Lets the thread run into the signal `signal`, which is pending.
fn run_into(tracee: Tracee, signal: i32) -> Result<(), RestoreError> {
    tracee.resume(0)?;
    wait_for(tracee, signal)
}
