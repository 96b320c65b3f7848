//! `eyrie drain`: nodes leave a job while it runs.

mod all_users;

pub mod args;
mod every_job;

pub mod watch;

use crate::client::{find_running, order};
use crate::commands::drain::args::Drain;
use crate::commands::drain::watch::{Watch, follow, number, tell_how_to_cancel, tell_stay};
use anyhow::anyhow;
use eyrie_control::ClientMsg;
use eyrie_terminal::{Failure, Progress, USAGE};

/// Asks, and tells how far it is until it is over.
pub fn drain(args: &Drain) -> Result<i32, Failure> {
    match (args.job == args::ALL, args.all_users) {
        (true, true) => return all_users::drain(args),
        (true, false) => return every_job::drain(args),
        (false, true) => {
            let text = anyhow!("--all-users is for eyrie drain all HOST");
            return Err(Failure::new(USAGE, text));
        }
        (false, false) => {}
    }
    let (job, number) = (find_running(&args.job)?, number());
    if args.cancel {
        order(&job, &ClientMsg::Stay { nodes: args.nodes.clone() })?;
        tell_stay(args, &job.id)?;
        return Ok(0);
    }
    tell_how_to_cancel(&job.id, &args.nodes)?;
    let (nodes, to, deadline_ms) = (args.nodes.clone(), args.to.clone(), args.deadline);
    let ask = ClientMsg::Drain { nodes, to, deadline_ms, number };
    let progress = Progress::counted("draining", args.nodes.len() as u64, "nodes", args.quiet);
    follow(&job, &ask, Watch::of(number, args.json, progress))
}
