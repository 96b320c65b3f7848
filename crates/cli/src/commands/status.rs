//! `eyrie status`: how a job is, or was when it ended.

use crate::jobs::{find, status_of};
use crate::show::{screen, tables};
use clap::Args;
use eyrie_terminal::{Failure, print, print_json};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie status last\n  eyrie status k7mq --json")]
pub struct Status {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// Each rank and node in a line of its own, with all that is known
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn status(args: &Status) -> Result<i32, Failure> {
    let (status, ended) = status_of(&find(&args.job)?)?;
    if args.json {
        print_json(&status)?;
    } else if args.verbose {
        print(&tables::status(&status));
    } else {
        print(&screen::status(&status, ended, screen::colours()));
    }
    Ok(0)
}
