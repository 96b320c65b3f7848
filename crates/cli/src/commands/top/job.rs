//! One job on the screen: its ranks and nodes by their states, what is under way, what happened.
//!
//! Kept true: of what does not fit the least important goes first: events, then nodes, then the
//! job's description; ranks stay, those around the chosen one.

use crate::commands::top::model::{Row, Watched, rows};
use crate::commands::top::style::{CHOSEN, GREEN, HEAD, RED, WIDE, YELLOW, first, state, styled};
use crate::show::screen::{checkpoints, rank_order, some};
use crate::show::text::{command, count, cut};
use eyrie_control::{JobStatus, RankStatus};
use eyrie_terminal::units::{bytes, millis};
use ratatui::style::{Color, Style};
use ratatui::text::Line;

/// Of a bar that shows how full the log is.
const BAR: usize = 20;
const SHORT_BAR: usize = 6;
/// States from this order on are nothing to worry about.
const CALM: usize = 4;

/// The title, and the lines below it.
pub fn screen(watched: &Watched, width: u16, height: usize) -> (String, Vec<Line<'static>>) {
    let Some(job) = &watched.status else {
        return (format!("job {}", watched.id), vec![Line::raw("asking...")]);
    };
    let ended = watched.ended_unix_ms.is_some();
    let all = rows(job);
    let nodes = all.iter().position(|row| matches!(row, Row::Nodes { .. })).unwrap_or(all.len());
    let (ranks, nodes) = all.split_at(nodes);
    let head = head(job, ended);
    let facts = if ended { Vec::new() } else { facts(job, width) };
    // In the order of their weight: each gets what is left.
    let wants = [
        if ended { 0 } else { 1 + ranks.len().min(height / 2) },
        1,
        facts.len(),
        head.len() - 1,
        if ended || nodes.is_empty() { 0 } else { 1 + nodes.len().min(4) },
        1 + watched.events.len(),
    ];
    let mut left = height;
    let [ranks_room, head_room, facts_room, more, nodes_room, events_room] = wants.map(|want| {
        let room = want.min(left);
        left -= room;
        room
    });
    let mut lines: Vec<Line> = Vec::new();
    lines.extend(head.into_iter().take(head_room + more));
    lines.extend(group(ranks, watched.row, ranks_room, width));
    let row = watched.row.checked_sub(ranks.len()).unwrap_or(usize::MAX);
    lines.extend(group(nodes, row, nodes_room, width));
    lines.extend(facts.into_iter().take(facts_room));
    if events_room > 1 {
        lines.push(Line::styled("EVENTS", HEAD));
        let skip = watched.events.len() - (events_room - 1);
        let newest = watched.events.iter().skip(skip);
        lines.extend(newest.map(|text| Line::raw(cut(text, usize::from(width)))));
    }
    (title(job, ended, width), lines)
}

fn title(job: &JobStatus, ended: bool, width: u16) -> String {
    let name = job
        .name
        .as_ref()
        .filter(|_| width >= WIDE)
        .map_or(String::new(), |n| format!(" ({})", cut(n, 16)));
    let (word, up) = (state(job).0, millis(job.uptime_ms as f64));
    let live = job.nodes.iter().filter(|n| n.state != "lost" && n.state != "left").count();
    let nodes = if live > 0 { count(live as u64, "node") + ", " } else { String::new() };
    let after = if ended { "after" } else { "for" };
    let size = count(u64::from(job.size), "rank");
    format!("job {}{name}: {word}, {size}, {nodes}{after} {up}", job.job)
}

fn head(job: &JobStatus, ended: bool) -> Vec<Line<'static>> {
    let every = millis(job.checkpoint_every_ms as f64);
    let protection = match (&job.unprotected_reason, job.ft.as_str()) {
        _ if ended => styled(&format!("all of it: eyrie report {}", job.job), "", GREEN),
        (Some(why), _) => styled(&format!("NOT PROTECTED: {why}"), "NOT PROTECTED", RED),
        (None, "none") => styled("NOT PROTECTED: --ft none", "NOT PROTECTED", RED),
        (None, ft) => {
            styled(&format!("protected: {ft}, a checkpoint every {every} at most"), "", GREEN)
        }
    };
    let times = count(job.rollbacks, "time");
    let back = count(job.recoveries, "rank");
    vec![
        protection,
        styled(&format!("program: {}", command(&job.program, &job.args)), "", GREEN),
        styled(&format!("recovered: {back}, all went back {times}"), "", GREEN),
    ]
}

fn row(row: &Row, width: u16) -> Line<'static> {
    let wide = width >= WIDE;
    let (text, word, style) = match row {
        Row::Ranks { order, state, all } => {
            let list = some(all.iter().map(|r| r.rank), if wide { 22 } else { 12 });
            let log = all.iter().map(|r| r.log_used_bytes).max().map_or_else(String::new, bytes);
            let ages = checkpoints(all);
            let text = match wide {
                true => format!("{list:<22}  {state:<19}  {ages:<21}  {log}"),
                false => format!("{list:<12} {state:<15} {log}"),
            };
            let colour = match order {
                0..CALM => RED,
                _ if ["running", "waiting", "finalized", "exited"].contains(state) => GREEN,
                _ => YELLOW,
            };
            (text, *state, colour)
        }
        Row::Nodes { state, all } => {
            let list = some(all.iter().map(|n| n.node), if wide { 22 } else { 12 });
            let on: usize = all.iter().map(|n| n.ranks.len()).sum();
            let text = match wide {
                true => format!("{list:<22}  {state:<19}  {on}"),
                false => format!("{list:<12} {state:<15} {on}"),
            };
            let calm = ["live", "spare", "router"].contains(state);
            (text, *state, if calm { GREEN } else { YELLOW })
        }
    };
    styled(&cut(&text, usize::from(width)), word, style)
}

/// Rows of one kind under their heading, as far as there is room.
fn group(all: &[Row], chosen: usize, room: usize, width: u16) -> Vec<Line<'static>> {
    let Some(kind) = all.first().filter(|_| room > 0) else { return Vec::new() };
    let head = match (kind, width >= WIDE) {
        (Row::Ranks { .. }, true) => {
            format!("{:<22}  {:<19}  {:<21}  LOG", "RANKS", "STATE", "CHECKPOINT")
        }
        (Row::Ranks { .. }, false) => format!("{:<12} {:<15} LOG", "RANKS", "STATE"),
        (Row::Nodes { .. }, true) => format!("{:<22}  {:<19}  RANKS", "NODES", "STATE"),
        (Row::Nodes { .. }, false) => format!("{:<12} {:<15} RANKS", "NODES", "STATE"),
    };
    let shown = room - 1;
    let first = if chosen < all.len() { first(all.len(), chosen, shown) } else { 0 };
    let hidden = all.len().saturating_sub(shown);
    let head = match (hidden, width >= WIDE) {
        (0, _) => head,
        (_, true) => format!("{head}  ({hidden} more)"),
        (_, false) => format!("{head}  +{hidden}"),
    };
    let mut lines = vec![Line::styled(head, HEAD)];
    for (at, it) in all.iter().enumerate().skip(first).take(shown) {
        let line = row(it, width);
        lines.push(if at == chosen { line.style(CHOSEN) } else { line });
    }
    lines
}

/// Why a rank is not back, or has no newer checkpoint.
fn reason(job: &JobStatus, width: u16) -> Option<Line<'static>> {
    let why = |r: &RankStatus| r.not_back_reason.clone().or_else(|| r.no_checkpoint_reason.clone());
    let worst = job.ranks.iter().filter(|r| why(r).is_some()).min_by_key(|r| rank_order(r))?;
    let text = format!("rank {}: {}", worst.rank, why(worst)?);
    let text = text.lines().next().unwrap_or_default();
    Some(styled(&cut(text, usize::from(width)), "rank", RED))
}

/// Checkpoints under way, how full the log is, links between nodes.
fn facts(job: &JobStatus, width: u16) -> Vec<Line<'static>> {
    let under_way = job.ranks.iter().filter(|r| r.state == "checkpointing").map(|r| r.rank);
    let room = usize::from(width).saturating_sub(27);
    let mut lines: Vec<Line> = reason(job, width).into_iter().collect();
    lines.push(match some(under_way, room) {
        none if none.is_empty() => {
            let soon = job.ranks.iter().find(|r| !r.next_checkpoint.is_empty());
            let next = soon.map_or(String::new(), |r| format!(", the next {}", r.next_checkpoint));
            styled(
                &cut(&format!("checkpoints: none under way{next}"), usize::from(width)),
                "",
                GREEN,
            )
        }
        list => styled(&format!("checkpoints: under way of {list}"), "under way", YELLOW),
    });
    if let Some(round) = &job.vault_round {
        let (sent, total) = (bytes(round.sent_bytes), bytes(round.total_bytes));
        lines.push(styled(&format!("vault: {sent} of {total} sent"), "", GREEN));
    }
    lines.push(log(job, width));
    let unreached = job.nodes.iter().flat_map(|n| n.unreached.iter().map(move |o| (n.node, o)));
    let all: Vec<String> = unreached
        .map(|(node, other)| {
            format!("node {node} does not reach node {}: {}", other.node, other.why)
        })
        .collect();
    match (all.first(), job.nodes.len()) {
        (Some(one), _) => {
            let text = format!("links: {} missed: {one}", all.len());
            lines.push(styled(&cut(&text, usize::from(width)), "missed", RED));
        }
        (None, 2..) => {
            let how = if job.tls { ", encrypted" } else { "" };
            lines.push(styled(&format!("links: all there{how}"), "", GREEN));
        }
        (None, _) => {}
    }
    lines
}

/// How full that log is which is fullest.
fn log(job: &JobStatus, width: u16) -> Line<'static> {
    let fullest = job.ranks.iter().max_by_key(|r| r.log_used_bytes);
    let (used, rank) = fullest.map_or((0, 0), |r| (r.log_used_bytes, r.rank));
    let limit = job.log_limit_bytes.max(1);
    let part = (used as f64 / limit as f64).clamp(0.0, 1.0);
    let length = if width >= WIDE { BAR } else { SHORT_BAR };
    let full = (part * length as f64).round() as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(length - full));
    let colour = match part {
        0.9.. => RED,
        0.7.. => YELLOW,
        _ => Style::new().fg(Color::Green),
    };
    let percent = part * 100.0;
    styled(&format!("log: [{bar}] {percent:.0}% of {} (rank {rank})", bytes(limit)), &bar, colour)
}
