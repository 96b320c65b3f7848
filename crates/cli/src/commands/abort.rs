//! `eyrie abort`: ends a job, or gives up what is saved of it.

use crate::client::{Client, find, find_running};
use anyhow::Context;
use clap::Args;
use eyrie_control::ClientMsg;
use eyrie_state::home;
use eyrie_terminal::{Failure, print, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie abort last\n\n\
    Of a job that is saved, what is saved is removed.")]
pub struct Abort {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn abort(args: &Abort) -> Result<i32, Failure> {
    let job = find(&args.job)?;
    if !job.alive && job.saved {
        // It goes on no more.
        let folder = home::claim(&job)?;
        let gone = home::remove_folder(&folder.path);
        gone.with_context(|| format!("cannot remove {}", folder.path.display()))?;
        match args.json {
            true => print_json(&json!({ "job": job.id, "was": "saved" }))?,
            false => print(&format!("job {}: what was saved of it is removed\n", job.id)),
        }
        return Ok(0);
    }
    let job = find_running(&args.job)?;
    Client::ask(&job, &ClientMsg::Abort)?;
    let text = format!("job {}: its ranks are told to end, and after a while killed\n", job.id);
    match args.json {
        true => print_json(&json!({ "job": job.id, "was": "running" }))?,
        false => print(&text),
    }
    Ok(0)
}
