//! The timeline as Chrome trace events, which Perfetto and chrome://tracing show: a process a
//! node, a thread a rank.
//!
//! Kept true: times are in microseconds of the job's own clock; a rank that was on several nodes
//! is a thread of each of them, and its spans are where it was.

use crate::commands::report::gather::JobReport;
use crate::show::text::command;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The job itself: what is of no node.
const JOB: u32 = 1;
/// The process of node 0: numbers are not 0, which the viewers take for something else.
const FIRST_NODE: u32 = 2;

fn process(node: Option<u32>) -> u32 {
    node.map_or(FIRST_NODE, |node| node.saturating_add(FIRST_NODE))
}

fn thread(rank: u32) -> u32 {
    rank.saturating_add(1)
}

fn us(ms: f64) -> f64 {
    (ms * 1e3).round()
}

pub fn trace(told: &JobReport) -> String {
    let mut events = names(told);
    events.extend(spans(told));
    events.extend(checkpoints(told));
    events.extend(marks(told));
    events.extend(told.samples.iter().map(|sample| {
        json!({"ph": "C", "name": "log of all ranks", "pid": JOB, "ts": us(sample.ms),
               "args": {"bytes": sample.log_bytes}})
    }));
    let all = json!({
        "displayTimeUnit": "ms",
        "otherData": {"job": told.job, "program": command(&told.program, &told.args),
                      "begun_unix_ms": told.begun_unix_ms},
        "traceEvents": events,
    });
    all.to_string() + "\n"
}

/// Which threads there are, and how all are called.
fn names(told: &JobReport) -> Vec<Value> {
    let meta = |name: &str, pid: u32, tid: u32, args: Value| {
        let (ph, tid) = ("M", json!(tid));
        json!({"ph": ph, "name": name, "pid": pid, "tid": tid, "args": args})
    };
    let mut all = vec![meta("process_name", JOB, 0, json!({"name": format!("job {}", told.job)}))];
    let ranks = told.timeline.ranks.iter();
    let threads: BTreeSet<(Option<u32>, u32)> =
        ranks.flat_map(|r| r.spans.iter().map(|s| (s.node, r.rank))).collect();
    let nodes: BTreeSet<Option<u32>> = threads.iter().map(|(node, _)| *node).collect();
    for node in nodes {
        let name = node.map_or(String::from("this machine"), |node| format!("node {node}"));
        all.push(meta("process_name", process(node), 0, json!({"name": name})));
        all.push(meta(
            "process_sort_index",
            process(node),
            0,
            json!({"sort_index": process(node)}),
        ));
    }
    for (node, rank) in threads {
        let (pid, tid) = (process(node), thread(rank));
        all.push(meta("thread_name", pid, tid, json!({"name": format!("rank {rank}")})));
        all.push(meta("thread_sort_index", pid, tid, json!({"sort_index": rank})));
    }
    all
}

fn spans(told: &JobReport) -> impl Iterator<Item = Value> {
    told.timeline.ranks.iter().flat_map(|r| {
        r.spans.iter().map(move |span| {
            json!({"ph": "X", "cat": "rank", "name": span.state.name(), "pid": process(span.node),
                   "tid": thread(r.rank), "ts": us(span.from_ms),
                   "dur": us(span.to_ms) - us(span.from_ms)})
        })
    })
}

/// Where a rank was at that time.
fn node_of(told: &JobReport, rank: u32, ms: f64) -> Option<u32> {
    let spans = &told.timeline.ranks.get(rank as usize)?.spans;
    spans.iter().rev().find(|span| span.from_ms <= ms).or(spans.first())?.node
}

/// They are no spans of the rank's thread: it computes on while they are written, and may die.
fn checkpoints(told: &JobReport) -> impl Iterator<Item = Value> {
    told.timeline.checkpoints.iter().flat_map(move |it| {
        let name = match it.failed {
            Some(_) => format!("no checkpoint {}", it.generation),
            None => format!("checkpoint {}", it.generation),
        };
        let id = format!("{}.{}", it.rank, it.generation);
        let pid = process(node_of(told, it.rank, it.from_ms));
        let part = |ph: &str, ms: f64, args: Value| {
            json!({"ph": ph, "cat": "checkpoint", "name": name, "id": id, "pid": pid,
                   "tid": thread(it.rank), "ts": us(ms), "args": args})
        };
        let args = json!({"rank": it.rank, "bytes": it.bytes, "stood_ms": it.stood_ms,
                          "failed": it.failed});
        [part("b", it.from_ms, args), part("e", it.to_ms, json!({}))]
    })
}

fn marks(told: &JobReport) -> impl Iterator<Item = Value> {
    told.timeline.marks.iter().map(move |mark| {
        let at = match mark.rank {
            Some(rank) => (process(node_of(told, rank, mark.ms)), thread(rank), "t"),
            None => (mark.node.map_or(JOB, |node| process(Some(node))), 0, "p"),
        };
        json!({"ph": "i", "s": at.2, "cat": "event", "name": mark.event, "pid": at.0,
               "tid": at.1, "ts": us(mark.ms), "args": {"text": mark.text}})
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::gather::tests::job;

    #[test]
    fn a_trace_has_a_process_a_node_and_a_thread_a_rank() {
        let told = job("/bin/\"heat\"\u{1}");
        let all: Value = serde_json::from_str(&trace(&told)).unwrap();
        let events = all["traceEvents"].as_array().unwrap();
        let named = |kind: &str| -> Vec<(u64, &str)> {
            let of = events.iter().filter(|e| e["ph"] == "M" && e["name"] == kind);
            of.map(|e| (e["pid"].as_u64().unwrap(), e["args"]["name"].as_str().unwrap())).collect()
        };
        assert_eq!(named("process_name"), [(1, "job k7mq"), (2, "node 0"), (3, "node 1")]);
        let ranks = [(2, "rank 0"), (2, "rank 1"), (3, "rank 2"), (3, "rank 3")];
        assert_eq!(named("thread_name"), ranks);
        let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).collect::<Vec<_>>();
        let down = of("X").into_iter().find(|e| e["name"] == "down").unwrap();
        let place = (&down["pid"], &down["tid"], &down["ts"], &down["dur"]);
        assert_eq!(place, (&json!(3), &json!(3), &json!(300e3), &json!(40e3)));
        let (begin, end) = (of("b"), of("e"));
        assert_eq!((begin.len(), end.len()), (1, 1));
        assert_eq!((&begin[0]["id"], &begin[0]["pid"]), (&end[0]["id"], &json!(3)));
        assert_eq!(begin[0]["args"]["stood_ms"], 1.5);
        assert_eq!((of("C").len(), of("i").len()), (9, 1));
        assert_eq!(of("i")[0]["args"]["text"], "died of SIGKILL");
    }
}
