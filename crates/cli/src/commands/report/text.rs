//! The report as text: what a terminal shows.
//!
//! Kept true: no line is wider than 80 columns, and what somebody named cannot steer the terminal.

use crate::commands::report::gather::JobReport;
use crate::commands::report::recovery::Recovery;
use crate::show::tables;
use crate::show::text::{command, count, cut, ranks};
use eyrie_state::wall_clock;
use eyrie_terminal::units::{bytes, millis};

const WIDTH: usize = 80;
/// Most recoveries that are told.
const MOST: usize = 20;

pub fn text(told: &JobReport) -> String {
    let mut lines = vec![head(told), format!("program: {}", command(&told.program, &told.args))];
    let begun = wall_clock::date(told.begun_unix_ms);
    let ended =
        told.ended_unix_ms.map_or(String::new(), |at| format!(", ended {}", wall_clock::date(at)));
    lines.push(format!("begun {begun}{ended}"));
    lines.push(told.verdict());
    lines.extend(wrapped(&deaths(told)));
    lines.push(checkpoints(told));
    lines.extend(log(told));
    if told.logged {
        let messages = count(told.messages, "message");
        lines.push(format!("{messages} logged, {}", bytes(told.message_bytes)));
    }
    if told.events_left_out > 0 {
        let left_out = told.events_left_out;
        lines.push(format!("{left_out} events, most of checkpoints, were not kept"));
    }
    let mut text: String = lines.iter().map(|line| cut(line, WIDTH) + "\n").collect();
    text += &recoveries(told);
    let more = format!("all of it on a page: eyrie report {} -o", told.job);
    text + "\n" + &more + "\n"
}

fn head(told: &JobReport) -> String {
    let name = told.name.as_ref().map_or(String::new(), |n| format!(" ({})", cut(n, 20)));
    let state = match told.exit_code {
        Some(code) => format!("ended with exit code {code}"),
        None => told.phase.clone(),
    };
    let on = match told.nodes {
        0 => count(u64::from(told.size), "rank"),
        nodes => {
            let (ranks, nodes) = (u64::from(told.size), u64::from(nodes));
            format!("{}, {}", count(ranks, "rank"), count(nodes, "node"))
        }
    };
    let took = millis(told.took_ms as f64);
    format!("job {}{name}: {state}, {on}, for {took}", told.job)
}

/// In as many lines as it takes: it is parted behind commas.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in text.split_inclusive(", ") {
        let last = lines.last_mut().filter(|line| line.len() + part.trim_end().len() <= WIDTH);
        match last {
            Some(line) => line.push_str(part),
            None => lines.push(format!("  {part}")),
        }
    }
    lines
}

/// What died, and came back.
pub fn deaths(told: &JobReport) -> String {
    let it = &told.account;
    let mut parts = vec![count(it.deaths, "death")];
    if it.nodes_lost > 0 {
        parts.push(count(it.nodes_lost, "node") + " lost");
    }
    parts.push(count(it.recoveries, "rank") + " brought back");
    if it.rollbacks > 0 {
        let again = millis(it.again_ms);
        parts.push(format!("all went back {}, {again} done again", count(it.rollbacks, "time")));
    }
    if it.recovery_ms > 0.0 {
        parts.push(format!("{} in recoveries", millis(it.recovery_ms)));
    }
    parts.join(", ")
}

/// The middle one of these.
fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn checkpoints(told: &JobReport) -> String {
    let done = || told.timeline.checkpoints.iter().filter(|c| c.failed.is_none());
    let failed = told.timeline.checkpoints.len() - done().count();
    let stood: Vec<f64> = done().filter_map(|c| c.stood_ms).collect();
    let most = stood.iter().copied().reduce(f64::max);
    let mut line = count(told.account.checkpoints, "checkpoint");
    if let (Some(middle), Some(most)) = (median(stood), most) {
        let (size, middle) = (bytes(told.account.checkpoint_bytes), millis(middle));
        line += &format!(", {size}; a rank stood still {middle} (most: {})", millis(most));
    }
    if failed > 0 {
        line += &format!("; {failed} did not come about");
    }
    line
}

fn log(told: &JobReport) -> Option<String> {
    let most = told.samples.iter().max_by_key(|s| s.most_bytes)?;
    let peak = told.samples.iter().map(|s| s.log_bytes).max()?;
    let (one, limit) = (bytes(most.most_bytes), bytes(told.log_limit_bytes));
    told.logged.then(|| {
        format!("log at its fullest: {} of all ranks, {one} of one (limit {limit})", bytes(peak))
    })
}

/// Who it was, and of what.
pub fn who(it: &Recovery) -> String {
    let all = ranks(it.ranks.iter().copied());
    let many = if it.ranks.len() == 1 { "rank" } else { "ranks" };
    let nodes = ranks(it.nodes_lost.iter().copied());
    match (it.together, nodes.is_empty()) {
        (true, _) => format!("all ranks: {}", it.cause),
        (false, true) => format!("{many} {all}: {}", it.cause),
        (false, false) => format!("node {nodes} with {many} {all}: {}", it.cause),
    }
}

/// Where they came back from, or went back to.
pub fn from(it: &Recovery) -> String {
    let name = |generation: &u32| match generation {
        0 => String::from("beginning"),
        generation => format!("checkpoint {generation}"),
    };
    let mut all: Vec<String> = it.from_checkpoints.iter().take(3).map(name).collect();
    if it.from_checkpoints.len() > 3 {
        all.push(String::from("..."));
    }
    all.join(", ")
}

fn recoveries(told: &JobReport) -> String {
    let all = &told.timeline.recoveries;
    if all.is_empty() {
        return String::new();
    }
    let time = |ms: Option<f64>| ms.map_or(String::from("-"), millis);
    let head = ["AT", "BACK AFTER", "RESTORED", "REPEATED", "WHO"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(all.iter().take(MOST).map(|it| {
        let back = it.back_ms.map_or(String::from("not back"), millis);
        let who = cut(&who(it), 34);
        vec![millis(it.from_ms), back, time(it.restored_ms), time(it.repeated_ms), who]
    }));
    let mut text = String::from("\n") + &tables::table(&rows);
    if all.len() > MOST {
        text += &format!("... and {} more\n", all.len() - MOST);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::gather::tests::job;

    #[test]
    fn a_report_fits_a_terminal() {
        let mut told = job("/bin/heat\x1b[2J");
        told.logged = true;
        let text = text(&told);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("begun")).collect();
        assert_eq!(
            lines[..9].join("\n"),
            "job k7mq (heat-1): ended with exit code 0, 4 ranks, for 1.0 s\n\
             program: heat?[2J 1000\n\
             nothing was lost\n\
             1 death, 1 rank brought back, 90 ms in recoveries\n\
             1 checkpoint, 1.0 MiB; a rank stood still 1.50 ms (most: 1.50 ms)\n\
             log at its fullest: 8.0 MiB of all ranks, 4.0 MiB of one (limit 1.0 MiB)\n\
             4 messages logged, 4 B\n\
             \n\
             AT      BACK AFTER  RESTORED  REPEATED  WHO"
        );
        assert_eq!(lines[9], "300 ms  90 ms       40 ms     50 ms     rank 2: died of SIGKILL");
        assert_eq!(lines.last(), Some(&"all of it on a page: eyrie report k7mq -o"));
    }
}
