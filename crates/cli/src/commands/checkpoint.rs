//! The command line.

use crate::client::{Client, find_running};
use crate::messages::say;
use anyhow::anyhow;
use clap::Args;
use eyrie_control::{ClientMsg, NodeMsg};
use eyrie_state::home::{self, JobEntry};
use eyrie_terminal::{FAILED, Failure, Progress, print, print_json, units};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie checkpoint last\n  \
    eyrie checkpoint k7mq --rank 3\n  \
    eyrie checkpoint k7mq --end && eyrie restart k7mq")]
pub struct Checkpoint {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// Only this rank
    #[arg(long)]
    pub rank: Option<u32>,
    /// Checkpoint all ranks, save the job and end it: `eyrie restart` goes on (as SIGQUIT to
    /// `eyrie run`)
    #[arg(long, conflicts_with = "rank")]
    pub end: bool,
    /// Do not show how far it is
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn checkpoint(args: &Checkpoint) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = match args.end {
        true => ClientMsg::CheckpointAndEnd,
        false => ClientMsg::Checkpoint { rank: args.rank },
    };
    let mut remote = Client::connect(&job)?.send_unlimited(&ask)?;
    let size = if args.rank.is_some() { Some(1) } else { size_of(&job) };
    let progress = match size {
        Some(size) => Progress::counted("checkpoint", size.into(), "ranks", args.quiet),
        None => Progress::working("checkpoint", args.quiet),
    };
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    loop {
        match remote.next()? {
            NodeMsg::Checkpointed { rank, generation, bytes, took_ms, frozen_ms } => {
                done.push(json!({
                    "rank": rank, "checkpoint": generation, "bytes": bytes, "took_ms": took_ms,
                    "frozen_ms": frozen_ms,
                }));
                progress.set(done.len() as u64);
                if !args.json {
                    print(&format!(
                        "rank {rank}: checkpoint {generation}, {}, {}, stood still {}\n",
                        units::bytes(bytes),
                        units::millis(took_ms),
                        units::millis(frozen_ms)
                    ));
                }
            }
            NodeMsg::CheckpointFailed { rank, reason } => {
                say(&format!("no checkpoint of rank {rank}: {reason}"));
                failed.push(json!({ "rank": rank, "reason": reason }));
            }
            NodeMsg::Done => break,
            other => return Err(anyhow!("unexpected answer: {other:?}").into()),
        }
        if args.end && size.is_some_and(|size| done.len() as u64 == u64::from(size)) {
            progress.tell("the job is being saved");
        }
    }
    drop(progress);
    let code = if failed.is_empty() { 0 } else { FAILED };
    if args.json {
        let saved = args.end && code == 0;
        print_json(&json!({
            "job": job.id, "checkpoints": done, "failed": failed, "saved": saved,
        }))?;
    }
    Ok(code)
}

/// How many ranks a job has, by its record.
fn size_of(job: &JobEntry) -> Option<u32> {
    let home = home::home().ok()?;
    Some(eyrie_state::history::of(&home, &job.id)?.record.size)
}
