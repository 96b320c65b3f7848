//! `eyrie history`: jobs, also those that have ended.

use crate::messages::say;
use crate::show::{tables, text};
use clap::Args;
use eyrie_state::history::{self, Found};
use eyrie_state::home;
use eyrie_state::wall_clock as wall;
use eyrie_terminal::units::millis;
use eyrie_terminal::{FAILED, Failure, print, print_json};
use std::path::Path;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie history\n  eyrie history --last 3\n  \
    eyrie history --json | jq -r '.[].job'\n\n\
    Jobs that have ended are known for 30 days (at most 1000, 256 MiB). eyrie status, events\n\
    and explain tell of them, too. The newest 20 are shown, the oldest of them first; with --json\n\
    all are.")]
pub struct History {
    /// Only the newest N jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// All jobs
    #[arg(long, conflicts_with = "last")]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Jobs that `eyrie history` shows to people, if nothing else is said: they fit on a screen.
const SHOWN: usize = 20;

impl History {
    /// How many of so many jobs, the oldest, are left out.
    pub fn left_out(&self, jobs: usize) -> usize {
        let most = match self.last {
            Some(last) => last as usize,
            None if self.all || self.json => jobs,
            None => SHOWN,
        };
        jobs.saturating_sub(most)
    }
}

fn row(found: &Found, home: &Path) -> Vec<String> {
    let it = &found.record;
    let folder = home.join("jobs").join(&it.job);
    let there = folder.exists().then(|| home::entry(folder)).flatten();
    let state = match (&there, it.exit_code) {
        (Some(entry), _) if entry.alive => String::from("runs"),
        (Some(entry), _) if entry.resumable => String::from("resume"),
        (Some(entry), _) if entry.saved => String::from("saved"),
        (_, Some(code)) => code.to_string(),
        _ => String::from("gone"),
    };
    let took = match it.ended_unix_ms {
        Some(_) => millis(it.took_ms as f64),
        None if state == "runs" => {
            millis(wall::now_unix_ms().saturating_sub(it.begun_unix_ms) as f64)
        }
        None => String::from("-"),
    };
    let name = it.name.as_ref().map_or(String::from("-"), |name| text::cut(name, 12));
    let recovered = it.account.recoveries + it.account.rollbacks;
    let recovered = if it.ended_unix_ms.is_some() { recovered.to_string() } else { "-".into() };
    let program = text::command(&it.program, &it.args);
    vec![
        it.job.clone(),
        name,
        wall::date(it.begun_unix_ms),
        took,
        it.size.to_string(),
        state,
        recovered,
        program,
    ]
}

pub fn history(args: &History) -> Result<i32, Failure> {
    let home = home::home()?;
    // Folders of jobs that died are removed on the way.
    home::jobs(&home);
    let (mut found, refused) = history::all(&home);
    let left_out = args.left_out(found.len());
    found.drain(..left_out);
    if args.json {
        let all: Vec<_> = found.iter().map(|it| &it.record).collect();
        print_json(&all)?;
    } else {
        let head = ["JOB", "NAME", "BEGUN", "TOOK", "RANKS", "EXIT", "BACK", "PROGRAM"];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(found.iter().map(|it| row(it, &home)));
        print(&tables::narrow_table(rows));
        if left_out > 0 && args.last.is_none() {
            say(&format!("{left_out} older jobs are not shown (eyrie history --all)"));
        }
    }
    for why in &refused {
        say(&format!("left out: {why}"));
    }
    Ok(if refused.is_empty() { 0 } else { FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_shown_the_newest_jobs() {
        let left_out = |last, all, json| History { last, all, json }.left_out(30);
        assert_eq!((left_out(None, false, false), left_out(Some(3), false, false)), (10, 27));
        assert_eq!((left_out(None, true, false), left_out(None, false, true)), (0, 0));
        assert_eq!((left_out(Some(3), false, true), left_out(Some(40), false, false)), (27, 0));
    }
}
