//! Switches of a process that are seldom used, told and set by `prctl`.

use crate::agent::Agent;
use crate::error::CaptureError;
use crate::plan::Plan;
use crate::procfs;
use crate::state::{State, Switch, Switches, switch};

const PR_GET_THP_DISABLE: u64 = 42;
const PR_SET_THP_DISABLE: u64 = 41;
const PR_GET_TSC: u64 = 25;
const PR_SET_TSC: u64 = 26;
const PR_MCE_KILL: u64 = 33;
const PR_MCE_KILL_GET: u64 = 34;
const PR_GET_SPECULATION_CTRL: u64 = 52;
const PR_SET_SPECULATION_CTRL: u64 = 53;
const PR_SET_MDWE: u64 = 65;
const PR_GET_MDWE: u64 = 66;
const PR_SET_MEMORY_MERGE: u64 = 67;
const PR_GET_MEMORY_MERGE: u64 = 68;
/// `PR_SPEC_PRCTL`: it can be set for a thread; the other bits say how.
const PER_THREAD: u32 = 1;
/// `PR_SPEC_DISABLE` and `PR_SPEC_FORCE_DISABLE`.
const DISABLED: u32 = 1 << 2 | 1 << 3;
/// `PR_MCE_KILL_SET`.
const KILL_SET: u64 = 1;

/// How a switch is asked for.
struct Question {
    which: u32,
    args: [u64; 2],
    /// The answer is put where the second argument points.
    points: bool,
    /// Answers of a new process, which are not noted.
    usual: &'static [u32],
}

const QUESTIONS: [Question; 7] = [
    // What has no flags is in every image.
    ask_for(switch::HUGE_PAGES, [PR_GET_THP_DISABLE, 0], &[0, 1]),
    Question { points: true, ..ask_for(switch::TIME_STAMPS, [PR_GET_TSC, 0], &[0, 1]) },
    ask_for(switch::MEMORY_FAULTS, [PR_MCE_KILL_GET, 0], &[2]),
    ask_for(switch::STORE_BYPASS, [PR_GET_SPECULATION_CTRL, 0], &[]),
    ask_for(switch::INDIRECT_BRANCH, [PR_GET_SPECULATION_CTRL, 1], &[]),
    ask_for(switch::MERGE, [PR_GET_MEMORY_MERGE, 0], &[0]),
    ask_for(switch::NO_NEW_CODE, [PR_GET_MDWE, 0], &[0]),
];

const fn ask_for(which: u32, args: [u64; 2], usual: &'static [u32]) -> Question {
    Question { which, args, points: false, usual }
}

/// Asks the process, or its twin `pid`, which has inherited them.
pub(crate) fn ask(pid: libc::pid_t, agent: &Agent) -> Result<Switches, CaptureError> {
    let filter = procfs::read(pid, "coredump_filter").ok();
    let filter =
        filter.and_then(|text| u32::from_str_radix(String::from_utf8_lossy(&text).trim(), 16).ok());
    let mut set = Vec::new();
    for q in &QUESTIONS {
        let answer = if q.points {
            let words = agent.ask::<1>(libc::SYS_prctl, &q.args, 1)?;
            words.map_or(-1, |[word]| (word & 0xffff_ffff) as i64)
        } else {
            agent.call(libc::SYS_prctl, &q.args)?
        };
        // A kernel that does not know it has no such switch.
        let Ok(value) = u32::try_from(answer) else { continue };
        let speculation = [switch::STORE_BYPASS, switch::INDIRECT_BRANCH].contains(&q.which);
        let usual = match speculation {
            true => value & PER_THREAD == 0 || value & DISABLED == 0,
            false => q.usual.contains(&value),
        };
        if !usual {
            set.push(Switch { which: q.which, value });
        }
    }
    Ok(Switches { core_filter: filter, set })
}

/// Sets them. None is needed for the process to go on, and some take rights, or another kernel or
/// processor.
pub(crate) fn set(plan: &mut Plan, state: &State) {
    for Switch { which, value } in &state.switches.set {
        let value = u64::from(*value);
        // As the process had it: one that is off for good can only be set so.
        let off = |kind: u64| [PR_SET_SPECULATION_CTRL, kind, value & u64::from(DISABLED), 0, 0];
        let args = match *which {
            switch::HUGE_PAGES => [PR_SET_THP_DISABLE, 1, value & !1, 0, 0],
            switch::TIME_STAMPS => [PR_SET_TSC, value, 0, 0, 0],
            switch::MEMORY_FAULTS => [PR_MCE_KILL, KILL_SET, value, 0, 0],
            switch::STORE_BYPASS => off(0),
            switch::INDIRECT_BRANCH => off(1),
            switch::MERGE => [PR_SET_MEMORY_MERGE, value, 0, 0, 0],
            // The threads that use AMX are made with a piece of code of ours.
            switch::NO_NEW_CODE if state.threads.len() > 1 && state.xcomp_perm >> 18 & 1 != 0 => {
                continue;
            }
            switch::NO_NEW_CODE => [PR_SET_MDWE, value, 0, 0, 0],
            _ => continue,
        };
        plan.tolerant("set a switch", libc::SYS_prctl, &args);
    }
}

/// Whether an image may have these.
pub(crate) fn hold(switches: &Switches) -> bool {
    let known = |s: &Switch| (switch::HUGE_PAGES..=switch::NO_NEW_CODE).contains(&s.which);
    let ordered = switches.set.windows(2).all(|w| w[0].which < w[1].which);
    ordered && switches.set.iter().all(known)
}
