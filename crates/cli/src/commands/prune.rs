//! `eyrie prune`: forgets jobs that ended long ago.

use clap::Args;
use eyrie_state::history;
use eyrie_state::home;
use eyrie_terminal::{Failure, print, print_json};
use serde_json::json;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie prune\n  eyrie prune --older 7d\n\n\
    Jobs that run or are saved stay, and folders that eyrie run --keep has left (eyrie rm).")]
pub struct Prune {
    /// Those that ended so long ago (30d, 12h; without unit: seconds)
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_days)]
    pub older: u64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Milliseconds, also from days.
fn parse_days(text: &str) -> Result<u64, String> {
    let Some(days) = text.strip_suffix('d') else {
        return eyrie_terminal::units::parse_millis(text);
    };
    let days = days.parse::<u32>().ok().map(|days| u64::from(days) * 24 * 3_600_000);
    days.ok_or_else(|| format!("'{text}' is no time: write for example 30d or 12h"))
}

pub fn prune(args: &Prune) -> Result<i32, Failure> {
    let home = home::home()?;
    home::jobs(&home);
    let mut removed = Vec::new();
    history::prune(&home, Duration::from_millis(args.older), &mut |it| {
        removed.push(it.record.job.clone());
    });
    match args.json {
        true => print_json(&json!({ "removed": removed }))?,
        false => {
            let lines = removed.iter().map(|job| format!("job {job} is forgotten\n"));
            print(&lines.collect::<String>());
        }
    }
    Ok(0)
}

#[cfg(test)]
mod age_tests {
    use super::*;

    #[test]
    fn ages_have_days() {
        assert_eq!(parse_days("30d"), Ok(2_592_000_000));
        assert_eq!((parse_days("12h"), parse_days("0")), (Ok(43_200_000), Ok(0)));
        assert!(parse_days("d").is_err() && parse_days("-1d").is_err());
    }
}
