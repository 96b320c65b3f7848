//! How the kernel treats a process and its threads: priorities, processors, and what sets it apart
//! from the one who takes its image.
//!
//! Priorities come back as far as the restoring user may give them. What a process must not lose
//! without notice (capabilities, groups, a root folder of its own) is refused; so are namespaces
//! ([`crate::capture::process_tree`]).

use crate::error::CaptureError;
use crate::kernel::procfs::Status;
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::Agent;
use crate::resources::processor;
use eyrie_image_format::state::attributes::KEYS;
use eyrie_image_format::state::{Attributes, Schedule, State, locking};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Capabilities and groups as `/proc/PID/status` shows them.
const RIGHTS: [&str; 7] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Groups", "Seccomp"];
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const PR_GET_SECUREBITS: u64 = 27;
/// Flags of `sched_setattr` that are a thread's own.
const OWN_FLAGS: u64 = 7;

/// `struct sched_attr` of the first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Refuses a process that lives in other surroundings than this one.
pub(crate) fn refuse_apart(pid: libc::pid_t, status: &Status) -> Result<(), CaptureError> {
    let refuse = |what: String| Err(CaptureError::Unsupported(what));
    let root = |pid: &str| fs::metadata(format!("/proc/{pid}/root")).map(|m| (m.dev(), m.ino()));
    if let (Ok(its), Ok(own)) = (root(&pid.to_string()), root("self"))
        && its != own
    {
        return refuse("has another root folder (chroot)".into());
    }
    let own = Status::read(std::process::id() as libc::pid_t)?;
    match RIGHTS.iter().find(|name| status.field(name) != own.field(name)) {
        Some(name) => refuse(format!("has other rights than the one who checkpoints it ({name})")),
        None => Ok(()),
    }
}

/// What can be seen of a thread from outside.
pub(crate) fn schedule(tid: libc::pid_t) -> Schedule {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: fills a live structure of the size that is said.
    let r = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) };
    if r < 0 {
        attr = SchedAttr::default();
    }
    // SAFETY: numbers only.
    let io = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, tid) };
    Schedule {
        policy: attr.policy,
        flags: attr.flags & OWN_FLAGS,
        nice: attr.nice,
        priority: attr.priority,
        deadline: [attr.runtime, attr.deadline, attr.period],
        io_priority: u32::try_from(io).unwrap_or(0),
        timer_slack_ns: 0,
    }
}

/// Asks the frozen process for what it tells only in its own name. Nothing of it stays changed.
/// `bound`: the processors that it was given, as a mask.
pub(crate) fn ask(
    pid: libc::pid_t,
    agent: &Agent,
    bound: Option<&[u8]>,
) -> Result<Attributes, CaptureError> {
    let secure_bits = agent.call(libc::SYS_prctl, &[PR_GET_SECUREBITS])?;
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap_or_default();
    Ok(Attributes {
        oom_score_adj: score.trim().parse().unwrap_or(0),
        secure_bits: u32::try_from(secure_bits).unwrap_or(0),
        allowed: bound.map_or_else(|| affinity(0), <[u8]>::to_vec),
        lock_future: lock_future(pid, agent)?,
        keys: 0,
    })
}

/// Those of this process.
pub(crate) fn own_secure_bits() -> u32 {
    // SAFETY: numbers only.
    u32::try_from(unsafe { libc::prctl(PR_GET_SECUREBITS as i32) }).unwrap_or(0)
}

/// Whether new memory is locked: looks at a page that is made and taken away again.
fn lock_future(pid: libc::pid_t, agent: &Agent) -> Result<u32, CaptureError> {
    let locked = || -> Result<u64, CaptureError> {
        let status = Status::read(pid)?;
        Ok(status.field("VmLck").trim_end_matches(" kB").trim().parse().unwrap_or(0))
    };
    let bytes = crate::PAGE_BYTES;
    let before = locked()?;
    let Ok(page) = agent.map(bytes) else {
        // No more may be locked, so it would be.
        return Ok(if before > 0 { locking::ALL } else { locking::NONE });
    };
    let after = locked();
    let mut found = locking::NONE;
    if after.is_ok_and(|after| after > before) {
        let there = agent.is_resident(page)?;
        found = if there { locking::ALL } else { locking::ON_FAULT };
    }
    agent.unmap(page, bytes)?;
    Ok(found)
}

/// The protection keys that a process has allocated, as a bit mask. Asked of its twin, which then
/// has all of them; one that is asked itself, as `back` says, gets its own keys and registers back.
pub(crate) fn keys(agent: &Agent, back: Option<(Tracee, &[u8])>) -> Result<u32, CaptureError> {
    if !processor::here().features.iter().any(|f| f == b"ospke") {
        return Ok(0);
    }
    let mut keys = (1 << KEYS) - 1;
    for _ in 1..KEYS {
        let Ok(free) = u32::try_from(agent.call(libc::SYS_pkey_alloc, &[0, 0])?) else { break };
        keys &= !(1u32 << free.min(31));
    }
    if let Some((tracee, xstate)) = back {
        for key in (0..KEYS).filter(|key| keys >> key & 1 == 0) {
            agent.call(libc::SYS_pkey_free, &[key as u64])?;
        }
        // Allocating opens a key in the register that says what is open.
        tracee.set_xstate(xstate)?;
    }
    Ok(keys)
}

/// Gives the process `pid` what can be given from outside. `threads` are in the order of the image.
/// `here`: the processors that it is given, if these are not all that this process may use.
pub(crate) fn apply(pid: libc::pid_t, threads: &[libc::pid_t], state: &State, here: Option<&[u8]>) {
    let here = here.map_or_else(|| affinity(0), <[u8]>::to_vec);
    let masks: Vec<&[u8]> = state.threads.iter().map(|t| t.affinity.as_slice()).collect();
    let masks = map_processors(&masks, &state.attributes.allowed, &here);
    for ((&tid, thread), mask) in threads.iter().zip(&state.threads).zip(&masks) {
        // SAFETY: the mask is live and as long as said.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, mask.len(), mask.as_ptr()) };
        reschedule(tid, &thread.schedule);
    }
    // Best effort: less may not be allowed.
    let score = state.attributes.oom_score_adj.to_string();
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), score);
    if let Some(filter) = state.switches.core_filter {
        let _ = fs::write(format!("/proc/{pid}/coredump_filter"), filter.to_string());
    }
}

/// As far as the user may.
fn reschedule(tid: libc::pid_t, schedule: &Schedule) {
    let [runtime, deadline, period] = schedule.deadline;
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: schedule.policy,
        flags: schedule.flags,
        nice: schedule.nice,
        priority: schedule.priority,
        runtime,
        deadline,
        period,
    };
    // SAFETY: reads a live structure; a refusal changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0) };
    // Policies other than the usual ones keep a nice value and do not set it.
    // SAFETY: numbers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, schedule.nice) };
    let io = schedule.io_priority;
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, tid, io) };
}

pub(crate) fn bits(mask: &[u8]) -> Vec<usize> {
    (0..mask.len() * 8).filter(|i| mask[i / 8] >> (i % 8) & 1 != 0).collect()
}

fn mask_of(bits: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut mask = vec![0u8; 8];
    for bit in bits {
        mask.resize(mask.len().max((bit / 8 + 1).next_multiple_of(8)), 0);
        mask[bit / 8] |= 1 << (bit % 8);
    }
    mask
}

/// Masks of processors of one machine, as masks of another. `there` and `here` are the processors
/// that may be used at all.
///
/// A thread that was not bound is not bound. Where all processors named exist, they are meant;
/// otherwise the n-th that could be used there becomes the n-th that can be used here.
fn map_processors(masks: &[&[u8]], there: &[u8], here: &[u8]) -> Vec<Vec<u8>> {
    let (there, here) = (bits(there), bits(here));
    let free = |mask: &[usize]| mask.is_empty() || there.iter().all(|b| mask.contains(b));
    let masks: Vec<Vec<usize>> = masks.iter().map(|m| bits(m)).collect();
    let exist = masks.iter().filter(|m| !free(m)).all(|m| m.iter().all(|b| here.contains(b)));
    let one = |mask: &Vec<usize>| {
        if here.is_empty() || (exist && !free(mask)) {
            return mask_of(mask.iter().copied());
        }
        if free(mask) {
            return mask_of(here.iter().copied());
        }
        mask_of(map_bits(mask, &there, &here).into_iter())
    };
    masks.iter().map(one).collect()
}

/// The n-th of those `there` becomes the n-th of those `here`, of which there is one at least.
pub(crate) fn map_bits(bits: &[usize], there: &[usize], here: &[usize]) -> Vec<usize> {
    let rank = |bit: &usize| there.iter().position(|b| b == bit).unwrap_or(*bit);
    bits.iter().map(|bit| here[rank(bit) % here.len()]).collect()
}

const AFFINITY_BYTES: usize = 1024;

pub(crate) fn affinity(pid: libc::pid_t) -> Vec<u8> {
    let mut mask = vec![0u8; AFFINITY_BYTES];
    // SAFETY: the mask is live and as long as said.
    let n =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, mask.len(), mask.as_mut_ptr()) };
    mask.truncate(usize::try_from(n).unwrap_or(0));
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(masks: &[&[usize]], there: &[usize], here: &[usize]) -> Vec<Vec<usize>> {
        let mask = |bits: &[usize]| mask_of(bits.iter().copied());
        let masks: Vec<Vec<u8>> = masks.iter().map(|m| mask(m)).collect();
        let masks: Vec<&[u8]> = masks.iter().map(Vec::as_slice).collect();
        map_processors(&masks, &mask(there), &mask(here)).iter().map(|m| bits(m)).collect()
    }

    #[test]
    fn processors_of_other_machines() {
        // Masks there, allowed there, allowed here, masks here.
        type Row = (&'static [&'static [usize]], &'static [usize], &'static [usize]);
        let table: [(Row, &[&[usize]]); 8] = [
            // The same machine.
            ((&[&[1], &[0, 1]], &[0, 1], &[0, 1]), &[&[1], &[0, 1]]),
            // Not bound: all that there are.
            ((&[&[0, 1]], &[0, 1], &[0, 1, 2, 3]), &[&[0, 1, 2, 3]]),
            ((&[&[0, 1, 2, 3]], &[0, 1], &[5]), &[&[5]]),
            // Bound to what exists here too.
            ((&[&[2], &[3]], &[0, 1, 2, 3], &[2, 3]), &[&[2], &[3]]),
            // Bound to what does not exist: by rank, distinct ones stay distinct.
            ((&[&[6], &[7]], &[4, 5, 6, 7], &[0, 1, 2, 3]), &[&[2], &[3]]),
            ((&[&[100], &[0]], &[0, 100], &[0, 1]), &[&[1], &[0]]),
            // Fewer here than there.
            ((&[&[0], &[1], &[2]], &[0, 1, 2, 3], &[8, 9]), &[&[8], &[9], &[8]]),
            // Nothing known.
            ((&[&[]], &[0], &[0, 1]), &[&[0, 1]]),
        ];
        for ((masks, there, here), expected) in table {
            let expected: Vec<Vec<usize>> = expected.iter().map(|m| m.to_vec()).collect();
            assert_eq!(map(masks, there, here), expected, "{masks:?} {there:?} {here:?}");
        }
    }
}
