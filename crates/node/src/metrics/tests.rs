//! Metrics of made-up jobs.

use super::super::encode::{self, Texts};
use super::*;

fn job(ranks: u32, nodes: u32) -> JobStatus {
    let rank = |rank: u32| {
        serde_json::json!({
            "rank": rank, "node": rank % nodes.max(1), "image_nodes": [], "pid": 7,
            "state": if rank == 1 { "recovering" } else { "running" }, "processors": "0",
            "incarnation": 0, "recoveries": 0, "checkpoint": null, "no_checkpoint_reason": null,
            "next_checkpoint": "", "log_used_bytes": rank * 100, "log_chunks": 1,
            "determinant_words": 0, "messages_sent": 10, "bytes_sent": 1000,
            "messages_received": 10,
        })
    };
    let node = |node: u32| {
        serde_json::json!({
            "node": node, "state": if node == 1 { "lost" } else { "live" }, "epoch": 1,
            "host": null, "pid": 8, "address": null, "ranks": [], "routes": null,
            "logged_bytes": 0, "transport": null, "libfabric_connections": 0, "pauses": 0,
            "paused_ms": 0.0, "strangers": 1, "fenced": 0, "malformed": 2,
        })
    };
    let all = serde_json::json!({
        "format": 2, "job": "k7mq", "name": "a \"b\"\\", "program": "/bin/heat", "args": [],
        "size": ranks, "ft": "logged", "phase": "running", "exit_code": null, "daemon_pid": 7,
        "started_unix_ms": 0, "uptime_ms": 61_000, "checkpoint_every_ms": 60_000,
        "log_limit_bytes": 1000, "protected": true, "unprotected_reason": null, "recoveries": 1,
        "rollbacks": 0, "malformed_frames": 0, "ranks": (0..ranks).map(rank).collect::<Vec<_>>(),
        "nodes": (0..nodes).map(node).collect::<Vec<_>>(),
    });
    serde_json::from_value(all).unwrap()
}

fn told(job: &JobStatus, account: &Account) -> Texts {
    encode::texts(Snapshot::of(job, account, &mut Most::default()))
}

fn has(text: &str, series: &str) {
    assert!(text.lines().any(|line| line == series), "{series}:\n{text}");
}

#[test]
fn names_units_and_labels_are_those_of_openmetrics() {
    let mut account = Account::default();
    (account.deaths, account.recovery_ms) = (2, 1500.0);
    let text = told(&job(4, 2), &account).open_metrics;
    let labels = r#"job_id="k7mq",name="a \"b\"\\""#;
    for line in [
        "# TYPE eyrie_deaths counter".to_string(),
        format!("eyrie_deaths_total{{{labels}}} 2.0"),
        "# UNIT eyrie_recovery_seconds seconds".to_string(),
        format!("eyrie_recovery_seconds_total{{{labels}}} 1.5"),
        format!("eyrie_ranks{{{labels},state=\"recovering\"}} 1.0"),
        format!("eyrie_ranks{{{labels},state=\"dead\"}} 0.0"),
        format!("eyrie_nodes{{{labels},state=\"lost\"}} 1.0"),
        format!("eyrie_log_fill_ratio{{{labels},node=\"1\"}} 0.3"),
        format!("eyrie_refused_connections_total{{{labels},node=\"0\"}} 3.0"),
        "# TYPE eyrie_checkpoint_pause_seconds histogram".to_string(),
        format!("eyrie_checkpoint_age_seconds{{{labels}}} 61.0"),
    ] {
        has(&text, &line);
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn the_older_format_names_counters_with_their_ends() {
    let mut all = job(2, 0);
    all.ranks[1].state = "waiting".into();
    let text = told(&all, &Account::default()).plain;
    has(&text, "# TYPE eyrie_deaths_total counter");
    has(&text, "# TYPE eyrie_messages_sent_bytes_total counter");
    has(&text, "# TYPE eyrie_ranks gauge");
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    let helps = text.lines().filter(|line| line.starts_with("# HELP ")).count();
    assert_eq!(helps, text.lines().filter(|line| line.starts_with("# TYPE ")).count());
}

#[test]
fn pauses_are_cumulated_up_to_all() {
    let mut account = Account::default();
    (account.checkpoints, account.stood_ms) = (3, 6.0);
    (account.pauses[0], account.pauses[2]) = (1, 2);
    let text = told(&job(1, 0), &account).plain;
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("pause_seconds_bucket")).collect();
    assert_eq!(lines.len(), PAUSE_BOUNDS_MS.len() + 1, "{lines:?}");
    assert!(lines[0].contains("le=\"0.001\"") && lines[0].ends_with(" 1"), "{lines:?}");
    assert!(lines[2].ends_with(" 3") && lines[12].contains("le=\"+Inf\""), "{lines:?}");
    assert!(lines[12].ends_with(" 3") && text.contains("pause_seconds_sum"), "{text}");
}

#[test]
fn many_ranks_have_no_more_series_than_few() {
    let count = |ranks| told(&job(ranks, 4), &Account::default()).plain.lines().count();
    assert_eq!(count(4), count(4096));
    assert!(count(4096) < 200, "{}", count(4096));
}

#[test]
fn ranks_that_go_back_do_not_count_messages_anew() {
    let mut most = Most::default();
    let mut sent = |messages, state: &str| {
        let mut job = job(1, 0);
        (job.ranks[0].messages_sent, job.ranks[0].state) = (messages, state.into());
        let text = encode::texts(Snapshot::of(&job, &Account::default(), &mut most)).plain;
        text.lines().any(|line| line.ends_with("} 50.0") && line.contains("_messages_sent_total"))
    };
    assert!(
        !sent(50, "replaying") && !sent(50, "") && sent(50, "running") && sent(20, "replaying")
    );
    assert!(!sent(51, "running"));
}
