//! `eyrie explain`: why a job, a rank or a node is as it is, and what can be done.
//!
//! Kept true: each finding comes from what the job says of itself; where nothing is in the way
//! that is said, too.

use crate::show::screen::some;
use crate::show::text::{count, plain};
use eyrie_control::{JobStatus, NodeStatus, RankStatus};
use eyrie_terminal::units::{bytes, millis};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A rank that stands still for longer for a checkpoint is told of.
const LONG_STOP_MS: f64 = 1000.0;
/// Most findings of one kind.
const MOST: usize = 6;
/// Most nodes in the same state that are told of one by one, and links of one node.
const FEW: usize = 3;
/// Most columns of a list of ranks, or of nodes.
const LIST: usize = 48;

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Job,
    Rank(u32),
    Node(u32),
}

/// One thing that is so, why, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    pub then: Option<String>,
}

pub(super) fn finding(what: impl Into<String>, then: &str) -> Finding {
    let then = (!then.is_empty()).then(|| then.to_string());
    Finding { what: what.into(), then }
}

/// Ranks as a list, `rank 3` or `ranks 0-3,7`.
fn ranks(all: impl Iterator<Item = u32> + Clone) -> String {
    match all.clone().count() {
        0 => String::from("no ranks"),
        1 => format!("rank {}", some(all, LIST)),
        _ => format!("ranks {}", some(all, LIST)),
    }
}

/// As lines.
pub fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for it in findings {
        for (at, line) in it.what.lines().enumerate() {
            text += if at == 0 { "- " } else { "  " };
            text += &plain(line);
            text.push('\n');
        }
        if let Some(then) = &it.then {
            text += &format!("  -> {then}\n");
        }
    }
    text
}

/// All that is to be said; an error if there is no such rank or node.
pub fn explain(job: &JobStatus, about: About) -> Result<Vec<Finding>, String> {
    let mut all = Vec::new();
    match about {
        About::Job => whole(job, &mut all),
        About::Rank(rank) => {
            let found = job.ranks.iter().find(|r| r.rank == rank);
            let size = job.size;
            let found = found.ok_or(format!("there is no rank {rank} (the job has {size})"))?;
            of_rank(job, found, &mut all);
        }
        About::Node(node) => {
            let found = job.nodes.iter().find(|n| n.node == node);
            let few = "the job runs without --nodes or --hosts: it has no nodes of its own";
            let found = found.ok_or_else(|| match job.nodes.len() {
                0 => few.to_string(),
                count => format!("there is no node {node} (the job has {count})"),
            })?;
            of_node(job, found, &mut all);
        }
    }
    Ok(all)
}

fn whole(job: &JobStatus, all: &mut Vec<Finding>) {
    if state(job, all) {
        return;
    }
    protection(job, all);
    same(job, all, "not back", |r| r.not_back_reason.as_ref());
    same(job, all, "without a newer checkpoint", |r| r.no_checkpoint_reason.as_ref());
    let full = job.ranks.iter().filter(|r| r.state == "waits-for-log-space").map(|r| r.rank);
    if full.clone().next().is_some() {
        all.push(log_full(&ranks(full), job));
    }
    slow(job, all);
    waits(job, all);
    nodes(job, all);
    if let Some(it) = &job.vault_unguarded {
        let (images, why, next) = (it.images, &it.why, millis(it.next_ms as f64));
        let what = format!("the vault does not guard {images} images: {why}; again in {next}");
        all.push(finding(what, &format!("add nodes: eyrie grow {}", job.job)));
    }
    if job.output_differences > 0 {
        let what = "ranks that came back printed something else than before: the program depends \
                    on what is not recorded";
        all.push(finding(what, "eyrie verify finds the first difference"));
    }
    if all.is_empty() {
        all.push(finding("nothing is in the way: all ranks run, and can be brought back", ""));
    }
}

/// What holds of the job as a whole. True: there is nothing more to say.
fn state(job: &JobStatus, all: &mut Vec<Finding>) -> bool {
    let id = &job.job;
    if job.phase == "saved" {
        let then = format!("eyrie restart {id} goes on with it, eyrie abort {id} gives it up");
        all.push(finding("the job is saved, and does not run", &then));
        return true;
    }
    if let Some(code) = job.exit_code {
        let what = match code {
            0 => String::from("the job has ended, all ranks with exit code 0"),
            128.. => format!("the job has ended: signal {} ended a rank or it", code - 128),
            _ => format!("the job has ended with exit code {code}"),
        };
        all.push(finding(what, &format!("eyrie events {id} tells what happened")));
        return true;
    }
    if let Some(suspended) = &job.suspended {
        let by: Vec<&str> = suspended.by.iter().map(String::as_str).collect();
        let (what, then) = match by.contains(&"share") {
            true => ("it waits for its turn (eyrie share)", String::new()),
            false => ("it was suspended", format!("eyrie resume {id} goes on with it")),
        };
        all.push(finding(format!("no rank runs: {what}"), &then));
    }
    if let Some(away) = job.ha.as_ref().and_then(|ha| ha.away.as_ref()) {
        let what = format!("what the controller decides waits for etcd: {away}");
        all.push(finding(what, "bring etcd back; Ctrl-C ends the job without it"));
    }
    false
}

fn protection(job: &JobStatus, all: &mut Vec<Finding>) {
    match (&job.unprotected_reason, job.ft.as_str()) {
        (Some(why), _) => {
            let what = format!("a rank that dies now ends the job: {why}");
            let then = "start it with a larger --log-limit, or mend what keeps ranks from being \
                        checkpointed";
            all.push(finding(what, then));
        }
        (None, "none") => {
            all.push(finding("a rank that dies ends the job: --ft none", "leave --ft none out"));
        }
        _ => {}
    }
}

/// Ranks with the same reason, in one finding.
fn same(
    job: &JobStatus,
    all: &mut Vec<Finding>,
    what: &str,
    reason: impl Fn(&RankStatus) -> Option<&String>,
) {
    let mut by: BTreeMap<&String, Vec<u32>> = BTreeMap::new();
    for r in &job.ranks {
        if let Some(why) = reason(r) {
            by.entry(why).or_default().push(r.rank);
        }
    }
    let mut by: Vec<_> = by.into_iter().collect();
    by.sort_by_key(|(_, who)| (Reverse(who.len()), who.first().copied()));
    for (why, who) in by.iter().take(MOST) {
        let (is, who) = (if who.len() == 1 { "is" } else { "are" }, ranks(who.iter().copied()));
        all.push(finding(format!("{who} {is} {what}: {why}"), &remedy(job, why)));
    }
    if by.len() > MOST {
        all.push(finding(format!("{} more reasons (eyrie status -v)", by.len() - MOST), ""));
    }
}

/// What helps against a reason, where its words do not say so themselves.
fn remedy(job: &JobStatus, why: &str) -> String {
    let known = [
        ("No space left", "make room where EYRIE_HOME lies, or set it to another folder"),
        ("ermission denied", "see that the folder can be written to by the user of the job"),
        ("no partner", "add a node: eyrie grow JOB"),
        ("no other node", "add a node: eyrie grow JOB"),
    ];
    let then = known.iter().find(|(words, _)| why.contains(words)).map_or("", |(_, then)| then);
    then.replace("JOB", &job.job)
}

fn log_full(who: &str, job: &JobStatus) -> Finding {
    let limit = bytes(job.log_limit_bytes);
    let what = format!(
        "{who} cannot send: the log of messages is full ({limit} a rank) until receivers have \
         their next checkpoints"
    );
    finding(what, "a larger --log-limit, or a shorter --ckpt-every")
}

/// Checkpoints for which ranks stand still for long.
fn slow(job: &JobStatus, all: &mut Vec<Finding>) {
    let stood = |r: &&RankStatus| {
        let stood = r.checkpoint.as_ref().map_or(0.0, |c| c.frozen_ms);
        (stood > LONG_STOP_MS).then_some(stood).is_some()
    };
    let slow: Vec<&RankStatus> = job.ranks.iter().filter(stood).collect();
    let key = |r: &&&RankStatus| r.checkpoint.as_ref().map_or(0, |c| c.frozen_ms as u64);
    if let Some(worst) = slow.iter().max_by_key(key) {
        of_checkpoint(worst, all);
        if slow.len() > 1 {
            let list = ranks(slow.iter().map(|r| r.rank));
            all.push(finding(format!("the same holds of {list}"), ""));
        }
    }
}

fn of_checkpoint(r: &RankStatus, all: &mut Vec<Finding>) {
    let Some(c) = &r.checkpoint else { return };
    let then = match (c.frozen_ms > LONG_STOP_MS, c.mode.as_str()) {
        (false, _) => "",
        (true, "synchronous") => "leave --ckpt-freeze sync out",
        (true, _) => "memory that changes fast, or a slow disk: see eyrie info, and EYRIE_HOME",
    };
    let what = format!(
        "rank {} stood still for {} of {} for its checkpoint ({}), by {}: {}\nchanged memory is \
         found by {}",
        r.rank,
        millis(c.frozen_ms),
        millis(c.took_ms),
        bytes(c.bytes),
        c.mode,
        c.why,
        c.tracking
    );
    all.push(finding(what, then));
}

/// Whether anybody computes.
fn waits(job: &JobStatus, all: &mut Vec<Finding>) {
    let there: Vec<&RankStatus> =
        job.ranks.iter().filter(|r| !["finalized", "exited"].contains(&&*r.state)).collect();
    if there.len() > 1 && there.iter().all(|r| r.state == "waiting") {
        let what = "all ranks wait in MPI at this moment: if that stays so, the program waits for \
                    a message that nobody sends";
        let first = there.iter().find_map(|r| Some((r.rank, r.pid?)));
        let then = first.map_or(String::from("ask again"), |(rank, pid)| {
            format!("ask again; where rank {rank} waits: gdb -p {pid}")
        });
        all.push(finding(what, &then));
    }
}

fn of_rank(job: &JobStatus, r: &RankStatus, all: &mut Vec<Finding>) {
    if state(job, all) {
        return;
    }
    let rank = r.rank;
    let compute: Vec<u32> =
        job.ranks.iter().filter(|r| r.state == "running").map(|r| r.rank).collect();
    let what = match r.state.as_str() {
        "running" => "computes, or is in a call that is not MPI's".to_string(),
        "waiting" if compute.is_empty() => "waits in MPI, as all others do".to_string(),
        "waiting" => {
            let verb = if compute.len() == 1 { "computes" } else { "compute" };
            format!("waits in an MPI call for others; {} {verb}", ranks(compute.into_iter()))
        }
        "recovering" => "died, and is being brought back".to_string(),
        "replaying" => "came back, and repeats what was recorded since its checkpoint".to_string(),
        "checkpointing" => "stands still for its checkpoint".to_string(),
        "waits-for-log-space" => "cannot send: its log is full".to_string(),
        "exited" => "has ended by itself".to_string(),
        "dead" => "is dead, and the job ends".to_string(),
        other => format!("is {other}"),
    };
    let pid = r.pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
    all.push(finding(format!("rank {rank}{pid} {what}"), ""));
    if r.state == "waits-for-log-space" {
        all.push(log_full(&format!("rank {rank}"), job));
    }
    if let Some(why) = &r.not_back_reason {
        all.push(finding(format!("it is not back: {why}"), &remedy(job, why)));
    }
    match (&r.no_checkpoint_reason, &r.checkpoint) {
        (Some(why), _) => {
            all.push(finding(format!("no newer checkpoint: {why}"), &remedy(job, why)))
        }
        (None, None) if job.ft != "none" => {
            all.push(finding(format!("no checkpoint yet; the next one {}", r.next_checkpoint), ""));
        }
        (None, None) => {}
        (None, Some(c)) => {
            let (number, age, next) = (c.generation, millis(c.age_ms as f64), &r.next_checkpoint);
            let what = format!("checkpoint {number} is {age} old; the next one {next}");
            all.push(finding(what, ""));
        }
    }
    of_checkpoint(r, all);
    if r.recoveries > 0 {
        let times = count(r.recoveries, "time");
        let then = format!("eyrie events {} tells of what it died", job.job);
        all.push(finding(format!("it was brought back {times}"), &then));
    }
    protection(job, all);
}

fn of_node(job: &JobStatus, n: &NodeStatus, all: &mut Vec<Finding>) {
    let node = n.node;
    let (on, id) = (ranks(n.ranks.iter().copied()), &job.job);
    let (what, then) = match n.state.as_str() {
        "lost" => (
            "is lost; its ranks went to others".to_string(),
            format!("eyrie events {id} tells why; eyrie grow {id} adds a node"),
        ),
        "awaited" => ("is not with the new controller yet".to_string(), String::new()),
        "joining" => ("has not called yet".to_string(), String::from("see its host-N.log")),
        "leaving" => (format!("is to leave, with {on}"), String::new()),
        "left" => ("has left in order".to_string(), String::new()),
        "spare" => ("has no ranks: it takes those of a node that is lost".into(), String::new()),
        "router" => ("passes messages on".to_string(), String::new()),
        _ => (format!("runs {on}"), String::new()),
    };
    let host = n.host.as_ref().map_or(String::new(), |h| format!(" on host {h}"));
    all.push(finding(format!("node {node}{host} {what}"), &then));
    links(n, all);
}

/// Nodes that are not as they should be, and links between the others.
fn nodes(job: &JobStatus, all: &mut Vec<Finding>) {
    let mut odd: BTreeMap<&str, Vec<&NodeStatus>> = BTreeMap::new();
    for node in job.nodes.iter().filter(|n| !["live", "spare", "router"].contains(&&*n.state)) {
        odd.entry(&node.state).or_default().push(node);
    }
    for (state, these) in odd {
        these.iter().take(FEW).for_each(|node| of_node(job, node, all));
        if these.len() > FEW {
            let more = some(these.iter().skip(FEW).map(|n| n.node), LIST);
            all.push(finding(format!("the same ({state}) holds of nodes {more}"), ""));
        }
    }
    let reach = job.nodes.iter().filter(|n| ["live", "spare"].contains(&&*n.state));
    let missed: usize = reach.clone().map(|n| n.unreached.len()).sum();
    let lacking = reach.filter(|n| !n.unreached.is_empty());
    lacking.clone().take(FEW).for_each(|node| links(node, all));
    if lacking.clone().nth(FEW).is_some() {
        let more = some(lacking.skip(FEW).map(|n| n.node), LIST);
        let text = format!("nodes {more} miss links, too: {missed} in all (eyrie status -v)");
        all.push(finding(text, ""));
    }
}

fn links(n: &NodeStatus, all: &mut Vec<Finding>) {
    for it in n.unreached.iter().take(FEW) {
        let (node, to, time, why) = (n.node, it.node, millis(it.for_ms as f64), &it.why);
        let what = format!("node {node} does not reach node {to}, for {time}: {why}");
        all.push(finding(what, "see the firewall between them; --address names another way"));
    }
    if n.unreached.len() > FEW {
        let others = some(n.unreached.iter().skip(FEW).map(|it| it.node), LIST);
        all.push(finding(format!("node {} does not reach nodes {others} either", n.node), ""));
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
