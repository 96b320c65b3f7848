//! Screens of made-up jobs.

use super::*;
use eyrie_control::CheckpointStatus;

/// A rank that runs, with a checkpoint.
pub fn rank(rank: u32, state: &str) -> RankStatus {
    RankStatus {
        rank,
        node: 0,
        image_nodes: Vec::new(),
        vault_generation: None,
        pid: Some(1000 + rank),
        state: state.into(),
        processors: String::new(),
        incarnation: 0,
        recoveries: 0,
        checkpoint: Some(CheckpointStatus {
            generation: 3,
            age_ms: 1200,
            bytes: 1 << 20,
            unchanged_bytes: 0,
            tracking: "write protection".into(),
            mode: "twin".into(),
            why: "shorter".into(),
            took_ms: 30.0,
            frozen_ms: 2.0,
            cpu_ms: 1.0,
            busy: 0.0,
        }),
        no_checkpoint_reason: None,
        not_back_reason: None,
        next_checkpoint: "in 5.0 s".into(),
        log_used_bytes: 4 << 20,
        log_chunks: 1,
        determinant_words: 0,
        messages_sent: 1,
        bytes_sent: 1,
        messages_received: 1,
        messages_early: 0,
    }
}

/// A job of these ranks. What is not told of here has its default.
pub fn job(ranks: Vec<RankStatus>) -> JobStatus {
    let text = serde_json::json!({
        "format": 2, "job": "k7mq", "name": "heat-1", "program": "/bin/heat", "args": ["1000"],
        "size": ranks.len(), "ft": "logged", "phase": "running", "exit_code": null,
        "daemon_pid": 7, "started_unix_ms": 0, "uptime_ms": 61_000, "checkpoint_every_ms": 60_000,
        "log_limit_bytes": 1 << 20, "protected": true, "unprotected_reason": null,
        "recoveries": 1, "rollbacks": 0, "malformed_frames": 0, "ranks": [], "nodes": [],
    });
    JobStatus { ranks, ..serde_json::from_value(text).unwrap() }
}

/// A job of 4,096 ranks on 1,024 nodes, in all states that there are, with many troubles.
pub fn large() -> JobStatus {
    let states = [
        "running",
        "waiting",
        "checkpointing",
        "replaying",
        "starting",
        "finalized",
        "exited",
        "dead",
        "recovering",
        "waits-for-log-space",
        "swapped-out",
        "suspended",
        "of a newer Eyrie",
    ];
    let state = |r: u32| states[(r * 7 % 101) as usize % states.len()];
    let mut it = job((0..4096).map(|r| rank(r, state(r))).collect());
    it.name = Some("計算流体力学-".to_string() + &"x".repeat(50));
    it.args = vec!["arg\x1b[2J".repeat(100)];
    for (n, r) in (0u32..).zip(&mut it.ranks) {
        r.node = n / 4;
        let age = u64::from(n) * 3_600_000;
        match n % 5 {
            0 => r.checkpoint = None,
            _ => r.checkpoint.as_mut().unwrap().age_ms = age,
        }
        r.no_checkpoint_reason = (n % 17 == 0).then(|| format!("no partner, for the {n}th time"));
        r.not_back_reason = (n % 23 == 0).then(|| "no node has room\nfor it".repeat(9));
    }
    let nodes = ["live", "lost", "awaited", "joining", "leaving", "left", "spare", "router"];
    let node = |n: u32| {
        let ranks: Vec<u32> = (n * 4..n * 4 + 4).collect();
        let state = if n < 12 { "live" } else { nodes[(n * 5 % 31) as usize % nodes.len()] };
        serde_json::json!({
            "node": n, "pid": 7, "state": state, "epoch": 1, "ranks": ranks, "address": null,
            "host": format!("node{n:04}.of-a-cluster.example"), "routes": null, "logged_bytes": 0,
            "transport": null, "libfabric_connections": 0, "pauses": 0, "paused_ms": 0.0,
            "strangers": 0, "fenced": 0, "malformed": 0,
        })
    };
    it.nodes = (0..1024).map(|n| serde_json::from_value(node(n)).unwrap()).collect();
    let other = |to: u32| {
        let link = serde_json::json!({ "node": to, "for_ms": 9000, "why": "no route to host" });
        serde_json::from_value(link).unwrap()
    };
    it.nodes[0].unreached = (1..1024).map(other).collect();
    it.nodes[1..12].iter_mut().for_each(|node| node.unreached = vec![other(0)]);
    it.unprotected_reason = Some("the log of rank 7 is full ".repeat(9));
    it.output_differences = 12;
    it.recoveries = 123_456;
    it
}

fn columns(line: &str) -> usize {
    crate::show::text::width(line)
}

fn screen(job: &JobStatus) -> String {
    let text = status(job, None, false);
    // With the prompt behind it.
    assert!(text.lines().count() <= 23, "{text}");
    assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
    // When it began depends on the time zone.
    text.lines().filter(|line| !line.starts_with("begun")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn four_ranks_are_a_few_lines() {
    let mut ranks: Vec<RankStatus> = (0..4).map(|r| rank(r, "running")).collect();
    ranks[2].state = "recovering".into();
    ranks[2].checkpoint = None;
    ranks[3].checkpoint.as_mut().unwrap().age_ms = 3400;
    assert_eq!(
        screen(&job(ranks)),
        "job k7mq (heat-1): running, 4 ranks, for 1m01s\n\
         program: heat 1000\n\
         protected: logged, a checkpoint every 1m00s at most\n\
         recovered: 1 rank, all went back 0 times\n\
         RANKS                   STATE                CHECKPOINT             LOG\n\
         2                       recovering           none                   4.0 MiB\n\
         0-1,3                   running              1.2 s - 3.4 s ago      4.0 MiB\n\
         details: eyrie status k7mq -v\n"
    );
}

#[test]
fn thousands_fit_with_the_worst_first() {
    let states = ["running", "waiting", "checkpointing", "replaying", "starting", "finalized"];
    let state = |r: u32| states[(r * 7 % 11) as usize % states.len()];
    let mut ranks: Vec<RankStatus> = (0..4096).map(|r| rank(r, state(r))).collect();
    ranks[4000].not_back_reason = Some("no node has room\nfor it".into());
    ranks[5].no_checkpoint_reason =
        Some("it has a \x1b[31mdevice open ".to_string() + &"x".repeat(99));
    let text = screen(&job(ranks));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[5].starts_with("4000 "), "{text}");
    assert_eq!(lines[6], "  no node has room");
    assert!(lines[8].starts_with("  it has a ?[31mdevice"), "{text}");
    assert!(text.contains(",.. (") && text.contains("eyrie explain k7mq"), "{text}");
}

#[test]
fn whatever_happens_to_a_large_job_it_is_one_screen_with_the_worst_first() {
    let text = screen(&large());
    let lines: Vec<&str> = text.lines().collect();
    // As many states have a reason as there is room for; what is not shown is told.
    let at = |start: &str| lines.iter().position(|l| l.starts_with(start)).unwrap();
    assert_eq!(at("RANKS"), 4, "{text}");
    assert!(lines[6].starts_with("  no node has room"), "{text}");
    let more = lines.iter().filter(|l| l.ends_with("in other states (-v)"));
    assert_eq!(more.count(), 2, "{text}");
    assert!(lines[at("NODES") + 1].contains("  lost  "), "{text}");
    assert!(text.contains("1034 links between nodes are missed\n"), "{text}");
    assert!(
        lines.last().unwrap().starts_with("why, and what to do: eyrie explain k7mq; "),
        "{text}"
    );
}

#[test]
fn a_saved_job_says_how_it_goes_on_and_an_ended_one_is_short() {
    let mut saved = job((0..4).map(|r| rank(r, "dead")).collect());
    saved.phase = "saved".into();
    let text = screen(&saved);
    assert!(text.contains("saved") && text.contains("eyrie restart k7mq"), "{text}");
    assert!(!text.contains("dead"), "{text}");
    let mut ended = job((0..4).map(|r| rank(r, "dead")).collect());
    (ended.phase, ended.exit_code) = ("ended".into(), Some(0));
    let text = status(&ended, Some(90_000), false);
    assert!(
        text.starts_with("job k7mq (heat-1): ended with exit code 0, after 1m01s on 4 ranks\n")
    );
    assert!(text.contains(", ended ") && !text.contains("dead"), "{text}");
}

#[test]
fn colours_are_only_where_they_are_wanted() {
    let mut job = job(vec![rank(0, "running")]);
    job.unprotected_reason = Some("the log is full".into());
    let text = status(&job, None, true);
    assert!(text.contains("\x1b[31mNOT PROTECTED\x1b[0m: the log is full"), "{text}");
    assert!(text.contains("\x1b[32mrunning\x1b[0m"), "{text}");
    assert!(!status(&job, None, false).contains('\x1b'));
}

#[test]
fn lists_are_ranges() {
    assert_eq!(ranks([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    assert_eq!(ranks([]), "");
    assert_eq!(some((0..4096).filter(|r| r % 2 == 0), 22), "0,2,4,6,8,.. (2048)");
}
