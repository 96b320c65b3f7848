//! Where a process wants its memory on a machine with several nodes (NUMA): the policies of its
//! threads (`set_mempolicy`) and of its mappings (`mbind`).
//!
//! The kernel shows them in `numa_maps`, after a walk through all page tables, and tells a process
//! that asks about an address or the calling thread. So they are asked for in the process's name:
//! of mappings by its twin, where there is one, after the process has been let go.
//!
//! Policies are wishes: one that the kernel here does not take is left out, and said so
//! ([`crate::Restored::left_out`]).

use crate::error::CaptureError;
use crate::kernel::procfs::{self, Mapping, Status};
use crate::kernel::remote_calls::{Agent, Borrowed};
use crate::kernel::script::Plan;
use crate::resources::attributes::{bits, map_bits};
use eyrie_image_format::state::placement::{MPOL_F_RELATIVE_NODES, NODES, WORDS};
use eyrie_image_format::state::{
    Backing, ObjectKind, Placement, Policy, RangePolicy, Region, State, region,
};

const MAX_NODE: u64 = NODES + 1;
/// Most stretches of memory that are lent the first thread's policy while they are filled.
const MOST_LENT: usize = 1 << 14;
/// Most mappings that a process stands still for to be asked about: 30 ms.
const MAX_ASKED: usize = 2048;
/// Most that a twin is asked about one by one. Each answer takes eight turns of the scheduler,
/// which on a busy machine are long.
const MAX_ASKED_TWIN: usize = 256;
const MPOL_F_ADDR: u64 = 2;

/// Nodes whose memory this process may use, as a bit mask.
pub(crate) fn allowed() -> Vec<u8> {
    let status = Status::read(std::process::id() as libc::pid_t);
    status.map_or_else(|_| Vec::new(), |status| mask(status.field("Mems_allowed_list")))
}

/// A list such as `0-3,8` as a bit mask.
fn mask(list: &str) -> Vec<u8> {
    let mut mask = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<usize>()) else {
            continue;
        };
        for node in (first..=last).take_while(|&node| node < NODES as usize) {
            mask.resize(mask.len().max(node / 8 + 1), 0);
            mask[node / 8] |= 1 << (node % 8);
        }
    }
    mask
}

/// An answer of `get_mempolicy`: the mode, then the nodes.
fn policy(answer: &[u64; 1 + WORDS]) -> Policy {
    let mut nodes: Vec<u8> = answer[1..].iter().flat_map(|w| w.to_le_bytes()).collect();
    nodes.truncate(nodes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1));
    Policy { mode: answer[0] as u32, nodes }
}

/// The policies of the threads `borrowed` of a process that stands still; nothing if all have the
/// default one, or the kernel has none.
pub(crate) fn of_threads(
    agent: &Agent,
    borrowed: &[Borrowed],
    modes: &[u32],
) -> Result<Vec<Policy>, CaptureError> {
    if modes.iter().all(|&mode| mode == 0) {
        return Ok(Vec::new());
    }
    let one = |(thread, &mode): (&Borrowed, &u32)| {
        if mode == 0 {
            return Ok(Policy::default());
        }
        let agent = agent.of_thread(thread);
        let answer = agent.ask_at(libc::SYS_get_mempolicy, |at| [at, at + 8, MAX_NODE, 0, 0])?;
        Ok(answer.map_or_else(|_| Policy::default(), |answer| policy(&answer)))
    };
    borrowed.iter().zip(modes).map(one).collect()
}

/// Whether a policy of its own makes a difference to a mapping. A page of a file that the process
/// only reads comes from wherever it was read first; what the kernel made by itself has none.
fn matters(m: &Mapping) -> bool {
    let own = m.is_private() && (m.is_anon() || m.prot & libc::PROT_WRITE as u32 != 0);
    own || m.shared
}

/// Whether it would take long to ask for the policies of all these mappings in the name of a
/// process that stands still for it: a call takes some 15 us.
pub(crate) fn are_many(maps: &[Mapping]) -> bool {
    are_more(maps, MAX_ASKED)
}

fn are_more(maps: &[Mapping], than: usize) -> bool {
    maps.iter().filter(|m| matters(m)).count() > than
}

/// Where mappings begin, in order, and whether each may have a policy of its own: what the kernel
/// lists of all at once. It lists the first thread's policy for those that have none.
fn listed(text: &[u8]) -> Vec<(u64, bool)> {
    let lines = text.split(|&b| b == b'\n');
    let one = |line: &[u8]| {
        let mut words = line.split(|&b| b == b' ');
        let start = std::str::from_utf8(words.next()?).ok()?;
        Some((u64::from_str_radix(start, 16).ok()?, words.next()? != b"default"))
    };
    lines.filter_map(one).collect()
}

/// The same of the process of `agent`, if that has so many mappings that not each can be asked
/// about. `twin`: it never runs, so that it need not keep the policy of its first thread.
fn listed_of(
    agent: &Agent,
    maps: &[Mapping],
    twin: bool,
) -> Result<Option<Vec<(u64, bool)>>, CaptureError> {
    if !are_more(maps, if twin { MAX_ASKED_TWIN } else { MAX_ASKED }) {
        return Ok(None);
    }
    if twin {
        // A kernel without policies refuses, and lists none.
        agent.call(libc::SYS_set_mempolicy, &[0, 0, 0])?;
    }
    Ok(procfs::numa_maps(agent.pid())?.map(|text| listed(&text)))
}

/// The policy at an address; an error if there is nothing, or the kernel has none.
fn at(agent: &Agent, address: u64) -> Result<Result<Policy, i64>, CaptureError> {
    let args = |at| [at, at + 8, MAX_NODE, address, MPOL_F_ADDR];
    let answer = agent.ask_at(libc::SYS_get_mempolicy, args)?;
    Ok(answer.map(|answer| policy(&answer)))
}

/// The policies of some mappings, in the name of the process or of its `twin`.
pub(crate) fn of_mappings(
    agent: &Agent,
    maps: &[Mapping],
    twin: bool,
) -> Result<Vec<RangePolicy>, CaptureError> {
    let mut all: Vec<RangePolicy> = Vec::new();
    let listed = listed_of(agent, maps, twin)?;
    // Neighbours may have become one since the mappings were listed: if their policies are alike.
    let may_have = |m: &&Mapping| {
        let after = |all: &[(u64, bool)]| all.partition_point(|&(start, _)| start <= m.start);
        let found = |all: &[(u64, bool)]| after(all).checked_sub(1).is_none_or(|i| all[i].1);
        listed.as_deref().is_none_or(found)
    };
    for m in maps.iter().filter(|m| matters(m)).filter(may_have) {
        let policy = match at(agent, m.start)? {
            Ok(policy) => policy,
            // A twin does not have it.
            Err(error) if error == -i64::from(libc::EFAULT) => continue,
            // No other one would be answered either: the kernel has none, or a filter forbids it.
            Err(_) => return Ok(Vec::new()),
        };
        if policy == Policy::default() {
            continue;
        }
        // Of shared memory it is the object's, which may have another one further on: then it is
        // that of a process that has mapped just this part.
        if m.shared && at(agent, m.end - 1)? != Ok(policy.clone()) {
            continue;
        }
        match all.last_mut().filter(|last| last.end == m.start && last.policy == policy) {
            Some(last) => last.end = m.end,
            None => all.push(RangePolicy { start: m.start, end: m.end, policy }),
        }
    }
    Ok(all)
}

/// A state's policies as they are meant here.
pub(crate) struct Here {
    threads: Vec<Policy>,
    ranges: Vec<RangePolicy>,
    /// Why some are left out.
    pub left_out: Option<String>,
}

impl Here {
    /// Those of the image's nodes that are not here are mapped to others, as processors are.
    pub fn of(placement: &Placement) -> Here {
        let none = || Here { threads: vec![], ranges: vec![], left_out: None };
        let there = || placement.threads.iter().chain(placement.ranges.iter().map(|r| &r.policy));
        if there().all(|policy| *policy == Policy::default()) {
            return none();
        }
        let here = allowed();
        let moved = |policy: &Policy| moved(policy, &placement.allowed, &here);
        let mut kinds: Vec<Policy> = Vec::new();
        for policy in there().map(moved) {
            if !kinds.contains(&policy) {
                kinds.push(policy);
            }
        }
        let refused = refused(&kinds);
        let taken = |policy: &Policy| !refused.iter().any(|(kind, _)| kind == policy);
        let thread = |policy: &Policy| Some(moved(policy)).filter(taken).unwrap_or_default();
        let range = |r: &RangePolicy| RangePolicy { policy: moved(&r.policy), ..*r };
        let left_out = refused.first().map(|(_, why)| format!("memory policies (NUMA): {why}"));
        Here {
            threads: placement.threads.iter().map(thread).collect(),
            ranges: placement.ranges.iter().map(range).filter(|r| taken(&r.policy)).collect(),
            left_out,
        }
    }

    /// What thread `i`, counted as in the image, gets, if not all have the default one.
    pub fn thread(&self, i: usize) -> Option<&Policy> {
        self.threads.get(i)
    }

    /// Before memory is filled: from outside, so that what belongs to no policy of a mapping needs
    /// one meanwhile, that of the first thread.
    pub fn before_filling(&self, plan: &mut Plan, state: &State) {
        if let Some(policy) = self.lent() {
            let told = Told::new(plan, policy);
            private(&state.regions).into_iter().for_each(|span| told.bind(plan, span));
        }
        for ranges in self.ranges.chunk_by(|a, b| a.policy == b.policy) {
            let Some(first) = ranges.first() else { continue };
            let told = Told::new(plan, &first.policy);
            for span in ranges.iter().flat_map(|range| pieces(range, state)) {
                told.bind(plan, span);
            }
        }
    }

    /// Takes back what was lent, and sets that of the first thread.
    pub fn after_filling(&self, plan: &mut Plan, state: &State) {
        let Some(policy) = self.lent() else { return };
        let none = Told::new(plan, &Policy::default());
        for [start, end] in private(&state.regions) {
            let mut from = start;
            let first = self.ranges.partition_point(|own| own.end <= start);
            for own in self.ranges[first..].iter().take_while(|own| own.start < end) {
                if from < own.start {
                    none.bind(plan, [from, own.start]);
                }
                from = own.end;
            }
            if from < end {
                none.bind(plan, [from, end]);
            }
        }
        let (nodes, max) = (plan.words(&words(policy)), MAX_NODE);
        let args = [u64::from(policy.mode), nodes, max];
        plan.tolerant("set its memory policy", libc::SYS_set_mempolicy, &args);
    }

    /// The policy of the first thread.
    fn lent(&self) -> Option<&Policy> {
        self.threads.first().filter(|policy| **policy != Policy::default())
    }
}

/// A policy as `mbind` is told it, however often.
struct Told {
    mode: u64,
    nodes: u64,
    max: u64,
}

impl Told {
    fn new(plan: &mut Plan, policy: &Policy) -> Told {
        let empty = policy.nodes.is_empty();
        let nodes = if empty { 0 } else { plan.words(&words(policy)) };
        Told { mode: u64::from(policy.mode), nodes, max: if empty { 0 } else { MAX_NODE } }
    }

    fn bind(&self, plan: &mut Plan, [start, end]: [u64; 2]) {
        let args = [start, end - start, self.mode, self.nodes, self.max, 0];
        plan.tolerant("bind memory to a node", libc::SYS_mbind, &args);
    }
}

/// Memory that is lent a policy: what lies side by side at once. Nothing if that would be so many
/// steps that there was no room for what the process needs: it is a wish.
fn private(regions: &[Region]) -> Vec<[u64; 2]> {
    let mut all: Vec<[u64; 2]> = Vec::new();
    for r in regions.iter().filter(|r| r.flags & region::SHARED == 0) {
        match all.last_mut().filter(|[_, end]| *end == r.start) {
            Some(last) => last[1] = r.end,
            None => all.push([r.start, r.end]),
        }
    }
    if all.len() > MOST_LENT { Vec::new() } else { all }
}

/// Nodes as the kernel reads them.
pub(crate) fn words(policy: &Policy) -> [u64; WORDS + 1] {
    let mut words = [0u64; WORDS + 1];
    for node in bits(&policy.nodes).into_iter().filter(|&node| node < NODES as usize) {
        words[node / 64] |= 1 << (node % 64);
    }
    words
}

/// The arguments of `set_mempolicy`, given where the words of the nodes are.
pub(crate) fn set_args(policy: &Policy, nodes: u64) -> [u64; 3] {
    let set = [u64::from(policy.mode), nodes, MAX_NODE];
    if policy.nodes.is_empty() { [set[0], 0, 0] } else { set }
}

/// The parts of a range that are the process's to place: not what it shares with others that are
/// not part of an image.
fn pieces(range: &RangePolicy, state: &State) -> Vec<[u64; 2]> {
    let is_its = |r: &&Region| match &r.backing {
        Backing::Object { object, .. } => {
            let kind = state.anonymous.get(*object as usize).map(|o| &o.kind);
            !matches!(kind, None | Some(ObjectKind::Named { .. } | ObjectKind::Kept { .. }))
        }
        _ => r.flags & region::SHARED == 0,
    };
    let first = state.regions.partition_point(|r| r.end <= range.start);
    let regions = state.regions[first..].iter().take_while(|r| r.start < range.end);
    let regions = regions.filter(is_its);
    let cut = regions.map(|r| [r.start.max(range.start), r.end.min(range.end)]);
    cut.filter(|[start, end]| start < end).collect()
}

/// A policy as it is meant on this machine.
fn moved(policy: &Policy, there: &[u8], here: &[u8]) -> Policy {
    let (there, here) = (bits(there), bits(here));
    // Relative ones say nothing of numbers; none but these are meant where nothing is known.
    if there == here || policy.mode & MPOL_F_RELATIVE_NODES != 0 || here.is_empty() {
        return policy.clone();
    }
    if policy.nodes.is_empty() {
        return policy.clone();
    }
    let nodes = bits(&policy.nodes);
    let nodes = match nodes.iter().all(|node| here.contains(node)) {
        // Those of all nodes are meant for all nodes.
        _ if !there.is_empty() && nodes.len() > 1 && nodes == there => here,
        true => nodes,
        false => map_bits(&nodes, &there, &here),
    };
    let mut mask = Vec::new();
    for node in nodes {
        mask.resize(mask.len().max(node / 8 + 1), 0u8);
        mask[node / 8] |= 1 << (node % 8);
    }
    Policy { mode: policy.mode, nodes: mask }
}

/// Which of these the kernel here does not take, and why. Tried by a thread of its own, as each
/// thread has one.
fn refused(kinds: &[Policy]) -> Vec<(Policy, String)> {
    let one = |policy: &Policy| {
        let words = words(policy);
        let [mode, nodes, max] = set_args(policy, words.as_ptr() as u64);
        // SAFETY: reads the words, which are live and more than `max` bits.
        let r = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes, max) };
        let error = std::io::Error::last_os_error();
        (r != 0).then(|| (policy.clone(), why(&error)))
    };
    std::thread::scope(|scope| {
        let tried = std::thread::Builder::new()
            .spawn_scoped(scope, || kinds.iter().filter_map(one).collect::<Vec<_>>());
        tried.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

fn why(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel knows none".into(),
        Some(libc::EINVAL) => {
            "this machine has no such nodes, or this kernel no such policy".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image_format::state::placement::MAX_NODES_BYTES;

    #[test]
    fn lists_of_nodes() {
        assert_eq!(bits(&mask("0-2,9")), [0, 1, 2, 9]);
        assert_eq!(bits(&mask("")), [0usize; 0]);
        assert_eq!(bits(&mask("5-4,7,x")), [7]);
        assert_eq!(mask("0-99999999").len(), MAX_NODES_BYTES);
    }

    #[test]
    fn nodes_of_other_machines() {
        let moved = |mode, nodes: &str, there: &str, here: &str| {
            let policy = Policy { mode, nodes: mask(nodes) };
            bits(&moved(&policy, &mask(there), &mask(here)).nodes)
        };
        // The same machine, and one that has the node, too.
        assert_eq!(moved(2, "1", "0-1", "0-1"), [1]);
        assert_eq!(moved(2, "1", "0-1", "0-3"), [1]);
        // All of them: all of them.
        assert_eq!(moved(3, "0-1", "0-1", "0-3"), [0, 1, 2, 3]);
        assert_eq!(moved(3, "0-3", "0-3", "0"), [0]);
        // One that is not there: by its rank.
        assert_eq!(moved(2, "2", "2-3", "0-1"), [0]);
        assert_eq!(moved(2, "3", "2-3", "0-1"), [1]);
        assert_eq!(moved(2, "3", "0-3", "0"), [0]);
        // Relative ones and those without nodes stay as they are.
        assert_eq!(moved(2 | MPOL_F_RELATIVE_NODES, "3", "0-3", "0"), [3]);
        assert_eq!(moved(4, "", "0-3", "0"), [0usize; 0]);
    }

    #[test]
    fn many_mappings_are_not_asked_about_while_a_process_stands() {
        let text = |count: usize, what: &str| -> String {
            let line = |i: u64| format!("{:x}-{:x} {what}\n", i << 13, (i << 13) + 4096);
            (1..=count as u64).map(line).collect()
        };
        let many = |count, what| {
            are_many(&crate::kernel::procfs::parse_maps(text(count, what).as_bytes()).unwrap())
        };
        assert!(!many(MAX_ASKED, "rw-p 00000000 00:00 0"));
        assert!(many(MAX_ASKED + 1, "rw-p 00000000 00:00 0"));
        assert!(!many(MAX_ASKED + 1, "r--p 00000000 08:01 7 /lib"), "no policy matters to these");
    }

    #[test]
    fn what_the_kernel_lists_of_all_mappings() {
        let text = b"55d0 default file=/a=b anon=1\n\
            7f00 bind=static:0-1 anon=2\n7f10 interleave:0\nnothing\n7f20 default\n";
        assert_eq!(
            listed(text),
            [(0x55d0, false), (0x7f00, true), (0x7f10, true), (0x7f20, false)]
        );
    }

    #[test]
    fn what_is_lent_takes_few_steps() {
        let region = |start, end, flags| Region {
            start,
            end,
            prot: 3,
            flags,
            name: vec![],
            backing: Backing::Anon {},
            key: 0,
        };
        let regions = [
            region(0x1000, 0x2000, 0),
            region(0x2000, 0x5000, region::GROWSDOWN),
            region(0x5000, 0x6000, region::SHARED),
            region(0x6000, 0x7000, 0),
            region(0x8000, 0x9000, 0),
        ];
        let expected = [[0x1000, 0x5000], [0x6000, 0x7000], [0x8000, 0x9000]];
        assert_eq!(private(&regions), expected);
        let apart = |n: u64| (0..n).map(|i| region(i * 0x2000, i * 0x2000 + 0x1000, 0)).collect();
        let many: Vec<Region> = apart(MOST_LENT as u64);
        assert_eq!(private(&many).len(), MOST_LENT);
        let too_many: Vec<Region> = apart(MOST_LENT as u64 + 1);
        assert_eq!(private(&too_many).len(), 0);
    }

    #[test]
    fn a_policy_of_no_node_that_is_here_is_left_out() {
        let far = Policy { mode: 2, nodes: mask("1000") };
        let local = Policy { mode: 4, nodes: vec![] };
        let refused = refused(&[far.clone(), local]);
        assert!(refused.iter().any(|(policy, _)| *policy == far), "{refused:?}");
    }
}
