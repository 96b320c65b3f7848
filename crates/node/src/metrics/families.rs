//! What is told, by name: from a job's status and the sums over its events.
//!
//! Kept true: how many series there are depends on nodes and clusters, never on ranks; all states
//! have a series, also those in which nobody is; what cannot be known is left out.

use eyrie_control::account::PAUSE_BOUNDS_MS;
use eyrie_control::{Account, JobStatus, NodeStatus, RankStatus};
use std::collections::BTreeMap;

/// States that ranks and nodes have (`RankStatus`, `NodeStatus`).
const RANK_STATES: [&str; 13] = [
    "starting",
    "running",
    "waiting",
    "checkpointing",
    "recovering",
    "replaying",
    "suspended",
    "swapped-out",
    "waits-for-log-space",
    "finalized",
    "exited",
    "dead",
    UNKNOWN,
];
/// A new controller has not heard of it yet.
const UNKNOWN: &str = "unknown";
const NODE_STATES: [&str; 8] =
    ["joining", "live", "spare", "router", "awaited", "leaving", "left", "lost"];
/// Ranks in these count again what they had counted before.
const BEHIND: [&str; 5] = ["starting", "recovering", "replaying", "dead", UNKNOWN];
/// Ranks in these need no checkpoint any more.
const OVER: [&str; 2] = ["exited", "finalized"];

const SECONDS: Option<&str> = Some("seconds");
const BYTES: Option<&str> = Some("bytes");

/// Labels of a series besides those of its job.
pub type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram(Histogram),
}

#[derive(Debug)]
pub struct Histogram {
    pub sum: f64,
    /// Upper bounds, and how many were in each class.
    pub classes: Vec<(f64, u64)>,
}

#[derive(Debug)]
pub struct Sample {
    pub labels: Labels,
    pub value: f64,
}

/// A name and its series.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub unit: Option<&'static str>,
    pub kind: Kind,
    pub samples: Vec<Sample>,
}

/// All that is told at a moment.
#[derive(Debug)]
pub struct Snapshot {
    pub labels: Labels,
    pub families: Vec<Family>,
}

/// What ranks that go back to a checkpoint count anew, at its highest. A new controller knows that
/// when none of them is behind.
#[derive(Debug, Default)]
pub struct Most {
    known: bool,
    messages: u64,
    bytes: u64,
}

impl Snapshot {
    pub fn of(job: &JobStatus, account: &Account, most: &mut Most) -> Snapshot {
        let mut labels = vec![("job_id", job.job.clone())];
        labels.extend(job.name.clone().map(|name| ("name", name)));
        let mut all = Snapshot { labels, families: Vec::new() };
        all.job(job);
        all.losses(account);
        all.checkpoints(job, account);
        all.messages(job, most);
        all.logs(job);
        all.vault(job);
        all.links(job);
        all
    }

    fn family(
        &mut self,
        kind: Kind,
        (name, unit): (&'static str, Option<&'static str>),
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let samples = samples.into_iter().map(|(labels, value)| Sample { labels, value });
        self.families.push(Family { name, help, unit, kind, samples: samples.collect() });
    }

    fn gauge(&mut self, name: (&'static str, Option<&'static str>), help: &'static str, v: f64) {
        self.family(Kind::Gauge, name, help, [(Vec::new(), v)]);
    }

    fn counter(&mut self, name: (&'static str, Option<&'static str>), help: &'static str, v: f64) {
        self.family(Kind::Counter, name, help, [(Vec::new(), v)]);
    }

    fn job(&mut self, job: &JobStatus) {
        let program = job.program.rsplit('/').next().unwrap_or_default().to_string();
        let version = env!("CARGO_PKG_VERSION").to_string();
        let about = vec![("program", program), ("ft", job.ft.clone()), ("version", version)];
        self.family(Kind::Gauge, ("job_info", None), "What the job is, always 1", [(about, 1.0)]);
        self.gauge(("uptime", SECONDS), "How long the job has run", job.uptime_ms as f64 / 1e3);
        let ended = job.exit_code.map_or(0.0, |_| 1.0);
        self.gauge(("job_ended", None), "1 when the job is over", ended);
        let code = job.exit_code.map(|code| (Vec::new(), f64::from(code)));
        self.family(Kind::Gauge, ("exit_code", None), "Exit code of a job that is over", code);
        let protected = if job.protected { 1.0 } else { 0.0 };
        self.gauge(("protected", None), "1 while a rank that dies can be brought back", protected);
        let suspended = job.suspended.as_ref().map_or(0.0, |_| 1.0);
        self.gauge(("suspended", None), "1 while all ranks stand still on request", suspended);
        let ranks = counted(&RANK_STATES, job.ranks.iter().map(state_of));
        self.family(Kind::Gauge, ("ranks", None), "Ranks in this state", ranks);
        let nodes = match job.nodes.is_empty() {
            true => counted(&NODE_STATES, ["live"]),
            false => counted(&NODE_STATES, job.nodes.iter().map(|n| n.state.as_str())),
        };
        self.family(Kind::Gauge, ("nodes", None), "Nodes in this state", nodes);
    }

    fn losses(&mut self, sums: &Account) {
        let help = "Deaths of ranks, and losses of nodes that had ranks";
        self.counter(("deaths", None), help, sums.deaths as f64);
        self.counter(("nodes_lost", None), "Nodes that were lost", sums.nodes_lost as f64);
        let help = "Ranks that came back after a death";
        self.counter(("recoveries", None), help, sums.recoveries as f64);
        let help = "Time from deaths until all ranks were back";
        self.counter(("recovery", SECONDS), help, sums.recovery_so_far_ms() / 1e3);
        let help = "Times that all ranks went back together";
        self.counter(("rollbacks", None), help, sums.rollbacks as f64);
        let help = "Work that was done again after all ranks had gone back together";
        self.counter(("repeated_work", SECONDS), help, sums.again_ms / 1e3);
        let help = "Controllers that took the place of one that had died";
        self.counter(("controllers_replaced", None), help, sums.controllers as f64);
        let help = "Streams of ranks that came back and printed something else than before";
        self.counter(("output_differences", None), help, sums.output_differences as f64);
    }

    fn checkpoints(&mut self, job: &JobStatus, sums: &Account) {
        let help = "Checkpoints that are complete";
        self.counter(("checkpoints", None), help, sums.checkpoints as f64);
        let help = "What checkpoints have written";
        self.counter(("checkpoint_written", BYTES), help, sums.checkpoint_bytes as f64);
        let bounds = PAUSE_BOUNDS_MS.iter().map(|ms| ms / 1e3).chain([f64::INFINITY]);
        let classes = bounds.zip(sums.pauses).collect();
        let pauses = Kind::Histogram(Histogram { sum: sums.stood_ms / 1e3, classes });
        let help = "How long a rank stood still for a checkpoint";
        self.family(pauses, ("checkpoint_pause", SECONDS), help, []);
        let interval = job.checkpoint_every_ms as f64 / 1e3;
        let help = "Most time between two checkpoints of a rank (--ckpt-every); 0: on request only";
        self.gauge(("checkpoint_interval", SECONDS), help, interval);
        let there = || job.ranks.iter().filter(|r| !OVER.contains(&r.state.as_str()));
        let age = |r: &RankStatus| r.checkpoint.as_ref().map_or(job.uptime_ms, |c| c.age_ms);
        let oldest = there().map(age).max().filter(|_| job.ft != "none");
        let oldest = oldest.map(|ms| (Vec::new(), ms as f64 / 1e3));
        let help = "Age of the newest checkpoint of the rank whose newest one is the oldest";
        self.family(Kind::Gauge, ("checkpoint_age", SECONDS), help, oldest);
        let failing = there().filter(|r| r.no_checkpoint_reason.is_some()).count();
        let help = "Ranks whose last checkpoint failed";
        self.gauge(("checkpoint_failing_ranks", None), help, failing as f64);
    }

    fn messages(&mut self, job: &JobStatus, most: &mut Most) {
        most.known |= job.ranks.iter().all(|r| !BEHIND.contains(&state_of(r)));
        if !most.known {
            return;
        }
        let sum = |of: fn(&RankStatus) -> u64| job.ranks.iter().map(of).sum::<u64>();
        most.messages = most.messages.max(sum(|r| r.messages_sent));
        most.bytes = most.bytes.max(sum(|r| r.bytes_sent));
        let help = "Messages that ranks have sent; with --ft logged each is logged";
        self.counter(("messages_sent", None), help, most.messages as f64);
        let help = "What these messages hold";
        self.counter(("messages_sent", BYTES), help, most.bytes as f64);
    }

    /// Of each node that has ranks.
    fn logs(&mut self, job: &JobStatus) {
        if job.ft == "none" {
            return;
        }
        let mut nodes: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
        for rank in &job.ranks {
            let [used, limit, fullest] = nodes.entry(rank.node).or_default();
            *used += rank.log_used_bytes;
            *limit += job.log_limit_bytes;
            *fullest = rank.log_used_bytes.max(*fullest);
        }
        let of = |at: usize| {
            let all = nodes.iter();
            all.map(|(node, sums)| (label(*node), sums[at] as f64)).collect::<Vec<_>>()
        };
        let (used, limit) = (of(0), of(1));
        let most = job.log_limit_bytes.max(1) as f64;
        let fullest = of(2).into_iter().map(|(labels, bytes)| (labels, bytes / most));
        let help = "What the send logs of a node's ranks hold";
        self.family(Kind::Gauge, ("log_used", BYTES), help, used);
        let help = "What they can hold (--log-limit)";
        self.family(Kind::Gauge, ("log_limit", BYTES), help, limit);
        let help = "How full the fullest of these logs is, from 0 to 1";
        self.family(Kind::Gauge, ("log_fill", Some("ratio")), help, fullest);
        let routers = job.nodes.iter().filter(|n| n.routes.is_some() && is_there(n));
        let kept = routers.map(|n| (label(n.node), n.logged_bytes as f64)).collect::<Vec<_>>();
        if !kept.is_empty() {
            let help = "What a router keeps of messages";
            self.family(Kind::Gauge, ("router_log", BYTES), help, kept);
        }
    }

    fn vault(&mut self, job: &JobStatus) {
        if job.vault.is_none() {
            return;
        }
        let newest = job.ranks.iter().filter_map(|r| r.vault_generation).max().unwrap_or(0);
        let help = "Newest generation of the vault that protects images; 0: none";
        self.gauge(("vault_generation", None), help, newest as f64);
        let unguarded = job.vault_unguarded.as_ref().map_or(0, |it| it.images);
        let help = "Images that count and that the vault cannot guard for now";
        self.gauge(("vault_unguarded_images", None), help, f64::from(unguarded));
        let round = job.vault_round.as_ref().map_or((0, 0), |r| (r.sent_bytes, r.total_bytes));
        let help = "What nodes have sent for the generation that is being made";
        self.gauge(("vault_round_sent", BYTES), help, round.0 as f64);
        let help = "What they send for it in all; 0: none is being made";
        self.gauge(("vault_round_total", BYTES), help, round.1 as f64);
        if let Some(scrub) = &job.vault_scrub {
            let help = "Chunks and images that were found damaged";
            self.counter(("vault_damaged", None), help, scrub.damaged_so_far as f64);
            let help = "Of these, those that were made anew";
            self.counter(("vault_repaired", None), help, scrub.repaired_so_far as f64);
        }
    }

    fn links(&mut self, job: &JobStatus) {
        let there = || job.nodes.iter().filter(|n| is_there(n));
        let lost = there().map(|n| (label(n.node), n.unreached.len() as f64));
        let help = "Other nodes that a node does not reach, though its ranks speak with theirs";
        let lost: Vec<_> = lost.collect();
        self.family(Kind::Gauge, ("links_lost", None), help, lost);
        let refused = |n: &NodeStatus| n.strangers + n.fenced + n.malformed + n.uninvited;
        let refused: Vec<_> = there().map(|n| (label(n.node), refused(n) as f64)).collect();
        let help = "Callers that a node has turned away, and connections that it ended";
        self.family(Kind::Counter, ("refused_connections", None), help, refused);
        let of = |number: fn(&eyrie_control::gateway::ClusterStatus) -> f64| {
            let all = job.clusters.iter();
            all.map(|c| (vec![("cluster", c.name.clone())], number(c))).collect::<Vec<_>>()
        };
        let live = of(|c| if c.gateway.state == "live" { 1.0 } else { 0.0 });
        self.family(Kind::Gauge, ("gateway_up", None), "1 while a cluster's gateway lives", live);
        let help = "What a cluster's gateway has sent to others since its start";
        let sent = of(|c| c.gateway.carried.bytes_sent as f64);
        self.family(Kind::Counter, ("gateway_sent", BYTES), help, sent);
        let help = "What it has received from others since its start";
        let received = of(|c| c.gateway.carried.bytes_received as f64);
        self.family(Kind::Counter, ("gateway_received", BYTES), help, received);
    }
}

fn state_of(rank: &RankStatus) -> &str {
    if rank.state.is_empty() { UNKNOWN } else { &rank.state }
}

fn label(node: u32) -> Labels {
    vec![("node", node.to_string())]
}

fn is_there(node: &NodeStatus) -> bool {
    !["lost", "left"].contains(&node.state.as_str())
}

/// How many there are in each state.
fn counted<'a>(known: &[&str], states: impl IntoIterator<Item = &'a str>) -> Vec<(Labels, f64)> {
    let mut all: BTreeMap<String, u64> = known.iter().map(|s| (s.to_string(), 0)).collect();
    for state in states {
        *all.entry(state.to_string()).or_default() += 1;
    }
    all.into_iter().map(|(state, count)| (vec![("state", state)], count as f64)).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
