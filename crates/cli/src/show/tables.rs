//! How things look in the terminal.

use crate::show::text::{cut, pad, width};
use eyrie_control::status::{VaultRound, VaultScrub, VaultUnguarded};
use eyrie_control::{Event, FallbackStatus, JobStatus, NodeStatus, RankStatus, Suspension};
use eyrie_terminal::units::{bytes, millis};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One event as a line.
pub fn event_line(event: &Event) -> String {
    let mut line = format!("[{:>10.1} ms] ", event.ms);
    if let Some(node) = event.node {
        let _ = write!(line, "node {node} ");
    }
    if let Some(rank) = event.rank {
        let _ = write!(line, "rank {rank} ");
    }
    line.push_str(event.event.name());
    if let Some(generation) = event.generation.filter(|g| *g > 0) {
        let _ = write!(line, " checkpoint {generation}");
    }
    if let Some(size) = event.bytes {
        let _ = write!(line, ", {}", bytes(size));
    }
    if let Some(took) = event.took_ms {
        let _ = write!(line, " after {}", millis(took));
    }
    if !event.text.is_empty() {
        let _ = write!(line, ": {}", event.text);
    }
    line
}

/// Rows with columns of equal width; the last column is as wide as it likes.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |c: usize| rows.iter().filter_map(|r| Some(width(r.get(c)?))).max();
    let widths: Vec<usize> = (0..columns).map(|c| widest(c).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, w)| pad(cell, *w));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The same within `WIDTH` columns: the last one is cut off, to `LEAST` at least.
pub fn narrow_table(mut rows: Vec<Vec<String>>) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |c: usize| rows.iter().filter_map(|r| Some(width(r.get(c)?))).max();
    let used: usize = (0..columns.saturating_sub(1)).map(|c| widest(c).unwrap_or(0) + 2).sum();
    let left = WIDTH.saturating_sub(used).max(LEAST);
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(columns - 1)) {
        *cell = cut(cell, left);
    }
    table(&rows)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|c| (*c).to_string()).collect()
}

/// Columns of a list of jobs, of its last column at least, and of a name at most.
const WIDTH: usize = 80;
const LEAST: usize = 8;
const NAME: usize = 12;

const JOBS: [&str; 9] =
    ["JOB", "NAME", "STATE", "RANKS", "NODES", "FT", "UP", "RECOVERED", "PROGRAM"];

/// The list of jobs.
pub fn jobs(all: &[JobStatus]) -> String {
    let mut rows = vec![row(&JOBS)];
    rows.extend(all.iter().map(job_row));
    narrow_table(rows)
}

/// The same with whose they are, which others have written.
pub fn jobs_of(all: &[(String, JobStatus)]) -> String {
    let mut rows = vec![row(&[&["USER"][..], &JOBS].concat())];
    for (user, job) in all {
        let cells = std::iter::once(user.clone()).chain(job_row(job));
        rows.push(cells.map(|cell| crate::show::text::plain(&cell)).collect());
    }
    narrow_table(rows)
}

fn job_row(job: &JobStatus) -> Vec<String> {
    let state = match job.exit_code {
        Some(code) => format!("ended ({code})"),
        None if job.suspended.is_some() => String::from("suspended"),
        None => job.phase.clone(),
    };
    vec![
        job.job.clone(),
        job.name.as_ref().map_or_else(|| "-".into(), |name| cut(name, NAME)),
        state,
        job.size.to_string(),
        job.nodes
            .iter()
            .filter(|n| n.state != "lost" && n.state != "left")
            .count()
            .max(1)
            .to_string(),
        job.ft.clone(),
        millis(job.uptime_ms as f64),
        job.recoveries.to_string(),
        command(job),
    ]
}

fn command(job: &JobStatus) -> String {
    let name = job.program.rsplit('/').next().unwrap_or(&job.program);
    std::iter::once(name).chain(job.args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// One job in full.
pub fn status(job: &JobStatus) -> String {
    let mut text = format!("job {}: {}, {} ranks, up {}", job.job, job.phase, job.size, {
        millis(job.uptime_ms as f64)
    });
    if let Some(code) = job.exit_code {
        let _ = write!(text, ", exit code {code}");
    }
    if let Some(suspended) = &job.suspended {
        let _ = write!(text, "\n{}", suspension(suspended));
    }
    let _ = writeln!(text, "\nprogram: {}", command(job));
    let protection = match (&job.unprotected_reason, job.ft.as_str()) {
        (Some(why), _) => format!("LOST: {why}"),
        (None, "logged") => format!(
            "logged, a checkpoint every {}, log up to {} a rank",
            millis(job.checkpoint_every_ms as f64),
            bytes(job.log_limit_bytes)
        ),
        (None, other) => other.to_string(),
    };
    let _ = writeln!(text, "protection: {protection}");
    let _ = write!(text, "recoveries: {}, rollbacks: {}", job.recoveries, job.rollbacks);
    if job.output_differences > 0 {
        let _ = write!(text, ", printed otherwise when repeated: {}", job.output_differences);
    }
    text.push('\n');
    let head = [
        "RANK",
        "PID",
        "STATE",
        "CPUS",
        "INC",
        "RECOVERED",
        "LOG",
        "EVENTS",
        "SENT",
        "RECEIVED",
        "EARLY",
        "CHECKPOINT",
    ];
    let mut rows = vec![row(&head)];
    rows.extend(job.ranks.iter().map(rank_row));
    text.push_str(&table(&rows));
    text.push_str(&nodes(job));
    if let Some(ha) = &job.ha {
        let away = ha.away.as_ref().map(|why| format!(", AWAY: {why}; decisions wait"));
        let _ = writeln!(text, "controller's state: {}{}", ha.place, away.unwrap_or_default());
    }
    text.extend(job.fallback.as_ref().map(|fallback| snapshots(job, fallback)));
    if let Some(saved) = &job.saved_set {
        let now = job.started_unix_ms + job.uptime_ms;
        let (set, age) = (saved.set, millis(now.saturating_sub(saved.unix_ms) as f64));
        let stored = job.saved_to.as_ref().filter(|to| to.has_images);
        let place = stored.map_or("the job's folder", |to| &to.place);
        let _ = writeln!(text, "checkpoint {set} of all ranks lies in {place}, for {age}");
        text.push_str(&saved_ways(job));
    }
    for r in &job.ranks {
        if let Some(c) = &r.checkpoint {
            let (rank, tracking, mode, why) = (r.rank, &c.tracking, &c.mode, &c.why);
            let next = &r.next_checkpoint;
            let _ = writeln!(
                text,
                "rank {rank}: changes by {tracking}; kept by {mode}: {why}; next checkpoint {next}"
            );
        }
    }
    text
}

/// What all ranks return to if they cannot be brought back alone.
fn snapshots(job: &JobStatus, fallback: &FallbackStatus) -> String {
    let now = job.started_unix_ms + job.uptime_ms;
    let newest = match (fallback.checkpoint, fallback.unix_ms) {
        (Some(checkpoint), Some(at)) => {
            let age = millis(now.saturating_sub(at) as f64);
            format!("checkpoint {checkpoint}, {age} old, of {} kept", fallback.kept)
        }
        _ => String::from("none yet"),
    };
    format!("snapshot of all ranks to return to: {newest}; the next one {}\n", fallback.next)
}

/// A job that stands still.
fn suspension(suspended: &Suspension) -> String {
    let of = |who: &String| match who.as_str() {
        "share" => "waits for its turn (eyrie share)",
        _ => "suspended by eyrie suspend",
    };
    let by: Vec<&str> = suspended.by.iter().map(of).collect();
    let more = match (suspended.whole, suspended.swapped) {
        (true, false) => "",
        (true, true) => ", its memory is out",
        (false, false) => ", not all ranks stand yet",
        (false, true) => ", not all of its memory is out yet",
    };
    format!("{} for {}{more}", by.join(", "), millis(suspended.for_ms as f64))
}

/// How it got there, and why nodes did not bring it by themselves.
fn saved_ways(job: &JobStatus) -> String {
    let mut by: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
    for it in &job.saved_ways {
        let why = it.why.as_deref().unwrap_or_default();
        by.entry((&it.way, why)).or_default().push(it.node);
    }
    let mut text = String::new();
    for ((way, why), nodes) in by {
        let how = match way {
            "store" => "sent to the object store",
            "folder" => "written into the job's folder",
            _ => "brought through the controller",
        };
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let names: Vec<String> = nodes.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "  {how} by nodes {}{why}", names.join(", "));
    }
    text
}

/// The nodes of a job that has several.
fn nodes(job: &JobStatus) -> String {
    if job.nodes.is_empty() {
        return String::new();
    }
    let list = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut rows =
        vec![row(&["NODE", "PID", "STATE", "EPOCH", "RANKS", "IMAGES OF", "ADDRESS", "HOST"])];
    for n in &job.nodes {
        let images = job.ranks.iter().filter(|r| r.image_nodes.contains(&n.node));
        let images: Vec<u32> = images.map(|r| r.rank).collect();
        rows.push(vec![
            n.node.to_string(),
            n.pid.to_string(),
            n.state.clone(),
            n.epoch.to_string(),
            list(&n.ranks),
            list(&images),
            n.address.clone().unwrap_or_default(),
            n.host.clone().unwrap_or_default(),
        ]);
    }
    let mut text = table(&rows);
    let routes = |n: &&NodeStatus| n.routes.is_some() && n.state != "lost" && n.state != "left";
    for n in job.nodes.iter().filter(routes) {
        let (ranks, held) = (list(n.routes.as_deref().unwrap_or(&[])), n.logged_bytes);
        let (log, stood) = (bytes(held), n.paused_ms);
        let _ = writeln!(
            text,
            "node {} routes for ranks {ranks}: log {log}, stood for {} checkpoints, {stood:.1} ms \
             in all",
            n.node, n.pauses
        );
    }
    if job.tls {
        text.push_str("connections: encrypted (TLS 1.3)\n");
    }
    let over: BTreeSet<&str> = (job.nodes.iter())
        .filter(|n| n.libfabric_connections > 0)
        .filter_map(|n| n.transport.as_deref())
        .collect();
    for transport in over {
        let _ = writeln!(text, "connections: {transport}");
    }
    text.push_str(&clusters(job));
    text.push_str(&vault(job));
    if job.grace_ms > 0 {
        let grace = millis(job.grace_ms as f64);
        let _ = writeln!(text, "nodes that are told to end have {grace} for it");
    }
    text.push_str(&unreached(job));
    let refused = |n: &NodeStatus| n.strangers + n.fenced + n.malformed + n.uninvited > 0;
    for n in job.nodes.iter().filter(|n| refused(n)) {
        let (strangers, fenced, malformed) = (n.strangers, n.fenced, n.malformed);
        let _ = writeln!(
            text,
            "node {} turned away: {strangers} strangers, {fenced} of past incarnations, \
             {malformed} for malformed frames, {} images without a key",
            n.node, n.uninvited
        );
    }
    text
}

/// Which nodes do not reach each other.
fn unreached(job: &JobStatus) -> String {
    let mut text = String::new();
    for (n, other) in job.nodes.iter().flat_map(|n| n.unreached.iter().map(move |o| (n.node, o))) {
        let (time, to, why) = (millis(other.for_ms as f64), other.node, &other.why);
        let _ = writeln!(text, "node {n} does not reach node {to}, for {time}: {why}");
    }
    text
}

/// Clusters and their gateways.
fn clusters(job: &JobStatus) -> String {
    if job.clusters.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(&[
        "CLUSTER",
        "NODES",
        "GATEWAY",
        "PID",
        "STARTS",
        "NODES REACH IT AT",
        "GATEWAYS AT",
        "STREAMS",
        "SENT",
        "RECEIVED",
        "TURNED AWAY",
        "BLOCKED WITH",
    ])];
    for c in &job.clusters {
        let g = &c.gateway;
        let nodes: Vec<String> = c.nodes.iter().map(u32::to_string).collect();
        rows.push(vec![
            c.name.clone(),
            nodes.join(","),
            g.state.clone(),
            g.pid.map_or_else(|| "-".into(), |p| p.to_string()),
            g.starts.to_string(),
            g.inside.clone().unwrap_or_default(),
            g.outside.clone().unwrap_or_default(),
            g.carried.streams.to_string(),
            bytes(g.carried.bytes_sent),
            bytes(g.carried.bytes_received),
            (g.carried.strangers + g.carried.malformed).to_string(),
            c.blocked.iter().map(|b| b.cluster.as_str()).collect::<Vec<_>>().join(","),
        ]);
    }
    table(&rows)
}

/// What protects images against the loss of nodes.
fn vault(job: &JobStatus) -> String {
    let Some(scheme) = &job.vault else { return String::new() };
    let mut ranks: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for r in &job.ranks {
        if let Some(generation) = r.vault_generation {
            ranks.entry(generation).or_default().push(r.rank.to_string());
        }
    }
    let part = |(generation, ranks): (&u64, &Vec<String>)| {
        format!("; generation {generation} protects the images of {}", ranks.join(","))
    };
    let round = job.vault_round.iter().map(round);
    let now = job.started_unix_ms + job.uptime_ms;
    let scrub = job.vault_scrub.iter().map(|it| scrub(it, now));
    let encoder = job.vault_encoder.iter().map(|why| format!("; encoder {why}"));
    let unguarded = job.vault_unguarded.iter().map(unguarded);
    format!(
        "vault: {scheme}{}{}{}{}{}\n",
        ranks.iter().map(part).collect::<String>(),
        unguarded.collect::<String>(),
        round.collect::<String>(),
        scrub.collect::<String>(),
        encoder.collect::<String>()
    )
}

/// How sound what nodes have of it was found.
fn scrub(scrub: &VaultScrub, now_unix_ms: u64) -> String {
    let VaultScrub { sound, damaged, repaired, lost, .. } = scrub;
    let VaultScrub { images_sound, images_damaged, images_repaired, .. } = scrub;
    let mut text = match scrub.ended_unix_ms {
        None => String::from("; not scrubbed yet"),
        Some(at) => format!(
            "; scrubbed {} ago in {}: {sound} chunks sound, {damaged} damaged, {repaired} \
             repaired, {lost} lost; {images_sound} images sound, {images_damaged} damaged, \
             {images_repaired} repaired",
            millis(now_unix_ms.saturating_sub(at) as f64),
            millis(scrub.took_ms as f64)
        ),
    };
    if scrub.underway {
        text += ", and again now";
    }
    text
}

/// What it cannot guard.
fn unguarded(unguarded: &VaultUnguarded) -> String {
    let VaultUnguarded { images, rounds, next_ms, why } = unguarded;
    format!(
        "; {images} images that count CANNOT BE GUARDED AGAIN: {why} ({rounds} rounds came to \
         nothing, the next one begins in {})",
        millis(*next_ms as f64)
    )
}

/// How far a generation is that is being made.
fn round(round: &VaultRound) -> String {
    let VaultRound { generation, images, sent_bytes, total_bytes, rate_bytes, .. } = round;
    let why = if round.rebuild { ", which bring back what lost nodes guarded" } else { "" };
    let limit = match rate_bytes {
        0 => String::new(),
        rate => format!(", each node {} a second at most", bytes(*rate)),
    };
    let (sent, total) = (bytes(*sent_bytes), bytes(*total_bytes));
    format!(
        "; generation {generation} is made of {images} images{why}: {sent} of {total} sent{limit}"
    )
}

fn rank_row(r: &RankStatus) -> Vec<String> {
    let mut checkpoint = match &r.checkpoint {
        Some(c) => format!(
            "{}: {} ago, {} written, {} unchanged, {}, stood still {}",
            c.generation,
            millis(c.age_ms as f64),
            bytes(c.bytes),
            bytes(c.unchanged_bytes),
            millis(c.took_ms),
            millis(c.frozen_ms)
        ),
        None => String::from("none"),
    };
    if let Some(why) = &r.no_checkpoint_reason {
        let _ = write!(checkpoint, " ({why})");
    }
    if let Some(why) = &r.not_back_reason {
        let _ = write!(checkpoint, "; not back yet: {why}");
    }
    vec![
        r.rank.to_string(),
        r.pid.map_or_else(|| "-".into(), |p| p.to_string()),
        r.state.clone(),
        r.processors.clone(),
        r.incarnation.to_string(),
        r.recoveries.to_string(),
        bytes(r.log_used_bytes),
        r.determinant_words.to_string(),
        r.messages_sent.to_string(),
        r.messages_received.to_string(),
        r.messages_early.to_string(),
        checkpoint,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::EventKind;

    #[test]
    fn an_event_says_when_who_and_what() {
        let mut event = Event::new(12.34, EventKind::Restored);
        event.rank = Some(2);
        event.generation = Some(3);
        event.took_ms = Some(41.0);
        event.text = "pid 7".into();
        assert_eq!(
            event_line(&event),
            "[      12.3 ms] rank 2 restored checkpoint 3 after 41 ms: pid 7"
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [row(&["A", "B"]), row(&["long", "x"])];
        assert_eq!(table(&rows), "A     B\nlong  x\n");
    }
}
