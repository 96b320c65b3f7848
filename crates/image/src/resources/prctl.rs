//! Switches of a process that are seldom used, told and set by `prctl`; and its registrations for
//! `membarrier`.

use crate::error::CaptureError;
use crate::kernel::procfs;
use crate::kernel::remote_calls::{AT_ONCE, Agent, Borrowed};
use crate::kernel::script::Plan;
use eyrie_image_format::state::{State, Switch, Switches, switch};

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
/// `PR_SPEC_DISABLE`, `PR_SPEC_FORCE_DISABLE` and `PR_SPEC_DISABLE_NOEXEC`.
const DISABLED: u32 = 1 << 2 | 1 << 3 | 1 << 4;
/// `PR_MCE_KILL_SET`.
const KILL_SET: u64 = 1;

/// `MEMBARRIER_CMD_GET_REGISTRATIONS` (Linux 6.3).
const GET_REGISTRATIONS: u64 = 1 << 9;
/// `MEMBARRIER_CMD_REGISTER_*`: global and private ones, private ones for new code and for
/// restartable sequences.
const REGISTRATIONS: [u32; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];

/// How a switch is asked for.
struct Question {
    which: u32,
    args: [u64; 2],
    /// The answer is put where the second argument points.
    points: bool,
    /// Answers of a new process, which are not noted.
    usual: &'static [u32],
}

/// Those that each thread has for itself.
const EACH_HAS: [u32; 4] =
    [switch::TIME_STAMPS, switch::MEMORY_FAULTS, switch::STORE_BYPASS, switch::INDIRECT_BRANCH];

impl Question {
    fn is_usual(&self, value: u32) -> bool {
        match self.which {
            switch::STORE_BYPASS | switch::INDIRECT_BRANCH => {
                value & PER_THREAD == 0 || value & DISABLED == 0
            }
            _ => self.usual.contains(&value),
        }
    }
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

/// What a twin does not tell of a process.
#[derive(Default)]
pub(crate) struct Own {
    /// Switches of its first thread that not all of its threads have alike. An image has one value
    /// for all: they would get what they had not, such as death at a look at the time.
    unlike: Vec<u32>,
    /// [`switch::NO_NEW_CODE`], which a twin inherits only without `PR_MDWE_NO_INHERIT`.
    no_new_code: Option<u32>,
    /// [`switch::BARRIERS`].
    barriers: Option<u32>,
}

/// What a process has registered for `membarrier`. A kernel that does not tell is to be told all
/// again: a registration that is not used costs nothing that could be measured, one that is missing
/// is an error that programs do not expect.
fn barriers(agent: &Agent) -> Result<Option<u32>, CaptureError> {
    let all = REGISTRATIONS.iter().fold(0, |all, one| all | one);
    Ok(match agent.call(libc::SYS_membarrier, &[GET_REGISTRATIONS, 0, 0])? {
        told @ 0.. => Some(told as u32 & all),
        error if error == -i64::from(libc::EINVAL) => Some(all),
        // Not there, or forbidden.
        _ => None,
    })
}

/// Asks the process that stands still, by its threads `borrowed`.
pub(crate) fn own(agent: &Agent, borrowed: &[Borrowed]) -> Result<Own, CaptureError> {
    let barriers = barriers(agent)?.filter(|&some| some != 0);
    let mut own = Own { barriers, ..Own::default() };
    let (first, others) = borrowed.split_at(borrowed.len().min(1));
    for q in &QUESTIONS {
        let each = EACH_HAS.contains(&q.which);
        if q.which != switch::NO_NEW_CODE && (!each || others.is_empty()) {
            continue;
        }
        let value = answers(q, agent, first)?.into_iter().next().flatten();
        let Some(value) = value.filter(|&value| !q.is_usual(value)) else { continue };
        if !each {
            own.no_new_code = Some(value);
        } else if answers(q, agent, others)?.iter().any(|other| *other != Some(value)) {
            own.unlike.push(q.which);
        }
    }
    Ok(own)
}

/// What threads answer, all at once. A kernel that does not know it has no such switch.
fn answers(
    q: &Question,
    agent: &Agent,
    threads: &[Borrowed],
) -> Result<Vec<Option<u32>>, CaptureError> {
    let mut all = Vec::with_capacity(threads.len());
    for threads in threads.chunks(AT_ONCE) {
        if q.points {
            let words = agent.ask_each::<1>(threads, libc::SYS_prctl, Some(q.args[0]))?;
            all.extend(words.into_iter().map(|word| word.ok().map(|[word]| word as u32)));
        } else {
            let values = agent.call_each(threads, libc::SYS_prctl, q.args)?;
            all.extend(values.into_iter().map(|value| u32::try_from(value).ok()));
        }
    }
    Ok(all)
}

/// Asks the process, or its twin `pid`, which has inherited the others.
pub(crate) fn ask(pid: libc::pid_t, agent: &Agent, own: &Own) -> Result<Switches, CaptureError> {
    let filter = procfs::read(pid, "coredump_filter").ok();
    let filter =
        filter.and_then(|text| u32::from_str_radix(String::from_utf8_lossy(&text).trim(), 16).ok());
    let mut set = Vec::new();
    let of_twin = |q: &&Question| q.which != switch::NO_NEW_CODE && !own.unlike.contains(&q.which);
    for q in QUESTIONS.iter().filter(of_twin) {
        let answer = if q.points {
            let words = agent.ask::<1>(libc::SYS_prctl, &q.args, 1)?;
            words.map_or(-1, |[word]| (word & 0xffff_ffff) as i64)
        } else {
            agent.call(libc::SYS_prctl, &q.args)?
        };
        // A kernel that does not know it has no such switch.
        let Ok(value) = u32::try_from(answer) else { continue };
        if !q.is_usual(value) {
            set.push(Switch { which: q.which, value });
        }
    }
    set.extend(own.no_new_code.map(|value| Switch { which: switch::NO_NEW_CODE, value }));
    set.extend(own.barriers.map(|value| Switch { which: switch::BARRIERS, value }));
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
            switch::BARRIERS => {
                for one in REGISTRATIONS.map(u64::from).into_iter().filter(|one| value & one != 0) {
                    let what = "register for membarrier";
                    plan.tolerant(what, libc::SYS_membarrier, &[one, 0, 0]);
                }
                continue;
            }
            _ => continue,
        };
        plan.tolerant("set a switch", libc::SYS_prctl, &args);
    }
}
