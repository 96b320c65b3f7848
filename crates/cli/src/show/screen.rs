//! `eyrie status` on one screen: 80 columns, 24 lines with the next prompt, however many ranks and
//! nodes there are.
//!
//! Kept true: ranks and nodes in the same state share a line, the worst first; no line is longer
//! than the screen is wide; what a program or a user named cannot steer the terminal. Details are
//! `show`'s (`-v`).

use crate::show::text::{command, count, cut, ranks};
use eyrie_control::{JobStatus, NodeStatus, RankStatus};
use eyrie_state::wall_clock;
use eyrie_terminal::units::{bytes, millis};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A screen.
const WIDTH: usize = 80;
/// The last line of a terminal is the next prompt's.
const HEIGHT: usize = 23;
/// Most lines of groups of nodes.
const NODE_GROUPS: usize = 4;
/// Most columns of a list of ranks.
const LIST: usize = 22;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Whether to colour what goes to standard output.
pub fn colours() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    // SAFETY: only asks.
    let terminal = unsafe { libc::isatty(1) } == 1;
    terminal && !set("NO_COLOR") && !dumb
}

/// The lines of a status.
struct Screen {
    text: String,
    colour: bool,
}

impl Screen {
    fn line(&mut self, text: &str) {
        let line = cut(text, WIDTH);
        self.text += line.trim_end();
        self.text.push('\n');
    }

    /// A line with a word of it in a colour.
    fn coloured(&mut self, text: &str, word: &str, colour: &str) {
        let line = cut(text, WIDTH);
        let line = line.trim_end();
        match line.find(word).filter(|_| self.colour && !word.is_empty()) {
            Some(at) => {
                let (before, rest) = line.split_at(at);
                let (word, after) = rest.split_at(word.len());
                let _ = writeln!(self.text, "{before}\x1b[{colour}m{word}\x1b[0m{after}");
            }
            None => {
                let _ = writeln!(self.text, "{line}");
            }
        }
    }
}

/// A job on one screen. `ended_unix_ms`: it is over since then.
pub fn status(job: &JobStatus, ended_unix_ms: Option<u64>, colour: bool) -> String {
    let mut screen = Screen { text: String::new(), colour };
    head(&mut screen, job, ended_unix_ms);
    screen.line(&format!("program: {}", command(&job.program, &job.args)));
    if job.phase == "saved" {
        screen.line(&format!("to go on with it: eyrie restart {}", job.job));
        screen.line(&format!("to give it up:    eyrie abort {}", job.job));
        return screen.text;
    }
    let over = job.phase == "ended" || ended_unix_ms.is_some();
    if !over {
        protection(&mut screen, job);
    }
    if job.recoveries + job.rollbacks + job.output_differences > 0 || !over {
        let (ranks, times) = (count(job.recoveries, "rank"), count(job.rollbacks, "time"));
        let mut line = format!("recovered: {ranks}, all went back {times}");
        if job.output_differences > 0 {
            let _ = write!(line, ", printed otherwise {} times", job.output_differences);
        }
        screen.line(&line);
    }
    if !over {
        let (nodes, troubles) = (node_groups(job), troubles(job));
        // Ranks have what is left.
        let used = screen.text.lines().count() + nodes.len() + troubles.len();
        rank_groups(&mut screen, job, HEIGHT.saturating_sub(used + 1));
        for (line, word) in nodes {
            screen.coloured(&line, &word, YELLOW);
        }
        for (line, word) in troubles {
            screen.coloured(&line, &word, RED);
        }
    }
    screen.text
}

fn head(screen: &mut Screen, job: &JobStatus, ended_unix_ms: Option<u64>) {
    let name = job.name.as_ref().map_or(String::new(), |n| format!(" ({})", cut(n, 20)));
    let (up, size) = (millis(job.uptime_ms as f64), job.size);
    let on = if size == 1 { String::from("1 rank") } else { format!("{size} ranks") };
    let live = job.nodes.iter().filter(|n| !is_gone(n)).count();
    let on = if live > 0 { format!("{on}, {}", count(live as u64, "node")) } else { on };
    let state = match (&job.suspended, job.exit_code, job.phase.as_str()) {
        (_, _, "saved") => String::from("saved"),
        (_, Some(code), _) => format!("ended with exit code {code}"),
        (Some(_), _, _) => String::from("suspended"),
        (_, _, phase) if ended_unix_ms.is_some() => format!("not ended in order ({phase})"),
        (_, _, phase) => phase.to_string(),
    };
    let colour = match (job.exit_code, state.as_str()) {
        (Some(0), _) | (_, "running" | "saved") => GREEN,
        (Some(_), _) => RED,
        _ => YELLOW,
    };
    let after = match (ended_unix_ms, state.as_str()) {
        (_, "saved") => format!("{on}, it ran for {up}"),
        (Some(_), _) => format!("after {up} on {on}"),
        (None, _) => format!("{on}, for {up}"),
    };
    screen.coloured(&format!("job {}{name}: {state}, {after}", job.job), &state, colour);
    let begun = wall_clock::date(job.started_unix_ms);
    let ended =
        ended_unix_ms.map_or(String::new(), |at| format!(", ended {}", wall_clock::date(at)));
    screen.line(&format!("begun {begun}{ended}"));
}

fn protection(screen: &mut Screen, job: &JobStatus) {
    let every = millis(job.checkpoint_every_ms as f64);
    let line = match (&job.unprotected_reason, job.ft.as_str()) {
        (Some(why), _) => format!("NOT PROTECTED: {why}"),
        (None, "none") => String::from("NOT PROTECTED: --ft none"),
        (None, "verify") => String::from("eyrie verify: nothing is brought back"),
        (None, ft) => format!("protected: {ft}, a checkpoint every {every} at most"),
    };
    screen.coloured(&line, "NOT PROTECTED", RED);
}

/// How bad a state is: 0 is the worst.
pub fn rank_order(rank: &RankStatus) -> usize {
    let states = [
        "dead",
        "recovering",
        "waits-for-log-space",
        "replaying",
        "checkpointing",
        "starting",
        "swapped-out",
        "suspended",
        "running",
        "waiting",
        "finalized",
        "exited",
    ];
    let place = states.iter().position(|s| *s == rank.state).unwrap_or(0);
    match (&rank.not_back_reason, &rank.no_checkpoint_reason) {
        (Some(_), _) => 0,
        (None, Some(_)) => place.min(3),
        (None, None) => 1 + place,
    }
}

/// A line with the word of it that is coloured, which may be empty.
type Marked = (String, String);

/// In so many lines below the heading.
fn rank_groups(screen: &mut Screen, job: &JobStatus, room: usize) {
    let mut groups: BTreeMap<(usize, &str), Vec<&RankStatus>> = BTreeMap::new();
    for rank in &job.ranks {
        groups.entry((rank_order(rank), &rank.state)).or_default().push(rank);
    }
    screen.line(&format!("{:<LIST$}  {:<19}  {:<21}  LOG", "RANKS", "STATE", "CHECKPOINT"));
    let bad = |order: usize| order <= 3;
    let why =
        |r: &&RankStatus| r.not_back_reason.clone().or_else(|| r.no_checkpoint_reason.clone());
    let (mut left, mut shown) = (room, 0);
    for ((order, state), group) in &groups {
        let why = group.iter().find_map(why);
        // The last line may have to tell of others.
        let others = usize::from(shown + 1 < groups.len());
        let lines = 1 + usize::from(why.is_some());
        if lines + others > left {
            break;
        }
        (left, shown) = (left - lines, shown + 1);
        let list = some(group.iter().map(|r| r.rank), LIST);
        let log = group.iter().map(|r| r.log_used_bytes).max().map_or_else(String::new, bytes);
        let line = format!("{list:<LIST$}  {state:<19}  {:<21}  {log}", checkpoints(group));
        let colour = if bad(*order) { RED } else { YELLOW };
        let calm = ["running", "waiting", "finalized", "exited"].contains(state);
        screen.coloured(&line, if calm && !bad(*order) { "" } else { state }, colour);
        if let Some(why) = why {
            screen.line(&format!("  {}", why.lines().next().unwrap_or_default()));
        }
    }
    let rest: usize = groups.values().skip(shown).map(Vec::len).sum();
    if rest > 0 {
        screen.line(&format!("... and {} in other states (-v)", count(rest as u64, "rank")));
    }
}

/// A list that fits a column so wide: `0-3,7`, or how many.
pub fn some(all: impl Iterator<Item = u32> + Clone, width: usize) -> String {
    let (list, count) = (ranks(all.clone()), all.count());
    if list.len() <= width {
        return list;
    }
    let count = format!(" ({count})");
    let room = width.saturating_sub(count.len() + 3);
    let end = list.get(..room).unwrap_or(&list).rfind(',').unwrap_or(room);
    format!("{},..{count}", list.get(..end).unwrap_or_default())
}

/// How old the checkpoints of a group are.
pub fn checkpoints(group: &[&RankStatus]) -> String {
    let ages = group.iter().filter_map(|r| Some(r.checkpoint.as_ref()?.age_ms));
    let (least, most) = (ages.clone().min(), ages.clone().max());
    let (Some(least), Some(most)) = (least, most) else { return String::from("none") };
    let without = group.len() - ages.count();
    let (least, most) = (millis(least as f64), millis(most as f64));
    let age = if least == most { most } else { format!("{least} - {most}") };
    match without {
        0 => format!("{age} ago"),
        without => format!("{age}, {without} none"),
    }
}

fn is_gone(node: &NodeStatus) -> bool {
    node.state == "lost" || node.state == "left"
}

/// How bad the state of a node is: 0 is the worst.
pub fn node_order(node: &NodeStatus) -> usize {
    let order = ["lost", "awaited", "joining", "leaving", "router", "live", "spare", "left"];
    order.iter().position(|s| *s == node.state).unwrap_or(0)
}

fn node_groups(job: &JobStatus) -> Vec<Marked> {
    let mut groups: BTreeMap<usize, Vec<&NodeStatus>> = BTreeMap::new();
    for node in &job.nodes {
        groups.entry(node_order(node)).or_default().push(node);
    }
    let mut lines = Vec::new();
    if !groups.is_empty() {
        lines.push((format!("{:<LIST$}  {:<19}  RANKS", "NODES", "STATE"), String::new()));
    }
    for group in groups.values().take(NODE_GROUPS) {
        let list = some(group.iter().map(|n| n.node), LIST);
        let on: usize = group.iter().map(|n| n.ranks.len()).sum();
        let state = group.first().map_or("", |n| n.state.as_str());
        let word = if ["live", "spare", "router"].contains(&state) { "" } else { state };
        lines.push((format!("{list:<LIST$}  {state:<19}  {on}"), word.to_string()));
    }
    let rest: usize = groups.values().skip(NODE_GROUPS).map(Vec::len).sum();
    if rest > 0 {
        let text = format!("... and {} in other states (-v)", count(rest as u64, "node"));
        lines.push((text, String::new()));
    }
    lines
}

/// What is to be known besides, in a line each.
fn troubles(job: &JobStatus) -> Vec<Marked> {
    let mut lines = Vec::new();
    if let Some(away) = job.ha.as_ref().and_then(|ha| ha.away.as_ref()) {
        lines.push(format!("the controller's decisions wait for etcd: {away}"));
    }
    if let Some(unguarded) = &job.vault_unguarded {
        let (images, why) = (unguarded.images, &unguarded.why);
        lines.push(format!("the vault does not guard {images} images: {why}"));
    }
    let unreached: usize = job.nodes.iter().map(|n| n.unreached.len()).sum();
    if unreached > 0 {
        lines.push(format!("{unreached} links between nodes are missed"));
    }
    let reason = |r: &RankStatus| r.not_back_reason.is_some() || r.no_checkpoint_reason.is_some();
    let troubled = job.ranks.iter().any(reason) || job.unprotected_reason.is_some();
    let why = if troubled || !lines.is_empty() {
        format!("why, and what to do: eyrie explain {}; ", job.job)
    } else {
        String::new()
    };
    let whole = |line: String| (cut(&line, WIDTH), cut(&line, WIDTH));
    let mut lines: Vec<Marked> = lines.into_iter().map(whole).collect();
    lines.push((format!("{why}details: eyrie status {} -v", job.job), String::new()));
    lines
}

#[cfg(test)]
#[path = "screen_tests.rs"]
pub(crate) mod tests;
