//! `eyrie suspend`: all ranks of a job stand still.

use crate::client::{Client, await_done, find_running};
use clap::Args;
use eyrie_control::ClientMsg;
use eyrie_terminal::{Failure, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie suspend last\n  eyrie suspend last --swap\n\
    \x20 eyrie resume last\n\n\
    All processes of all ranks stop where they are, on all nodes, and go on from there when\n\
    `eyrie resume` says so; they notice nothing of it but the time. Daemons go on: the job\n\
    answers, what dies is brought back and stands then, too, and checkpoints that are asked for\n\
    are taken. No time counts for intervals of checkpoints. Memory and logs stay. The command\n\
    returns when all stand. If the controller dies the job stays suspended; a job that is to end\n\
    goes on first.\n\n\
    With --swap the job gives its memory away, too: each rank gets a checkpoint of the moment at\n\
    which it stands (with --ft coordinated, node and cluster all of a set together), and its\n\
    process ends; `eyrie resume` makes the processes again. Their logs stay in memory, but for\n\
    those of --ft coordinated over nodes. For every --ft but none.")]
pub struct Suspend {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// Free its memory, too: checkpoints take its place until it goes on
    #[arg(long)]
    pub swap: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn suspend(args: &Suspend) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    await_done(Client::connect(&job)?.send_unlimited(&ClientMsg::Suspend { swap: args.swap })?)?;
    if args.json {
        print_json(&json!({ "job": job.id, "suspended": true, "swapped": args.swap }))?;
    }
    Ok(0)
}
