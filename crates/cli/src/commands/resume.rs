//! The command line.

use crate::client::{Client, await_done};
use crate::launch::console::ConsoleOptions;
use crate::launch::controller;
use crate::options::metrics::MetricsArgs;
use anyhow::{Context, anyhow};
use clap::Args;
use eyrie_control::ClientMsg;
use eyrie_state::home::{self, JobEntry};
use eyrie_terminal::{FAILED, Failure};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie resume last\n\n\
    A job that is suspended goes on where it stood (eyrie suspend).\n\n\
    A job over --nodes or --hosts goes on for a while (eyrie run --controller-limit) when\n\
    `eyrie run` and its controller were killed. This starts another controller, which goes on\n\
    by the journal of the dead one, and takes the place of `eyrie run`: output that was not\n\
    printed is printed, standard input goes on behind what was read. If only the controller was\n\
    killed, `eyrie run` does that by itself. Exit code: as that of `eyrie run`\n\
    (docs/reference/exit-codes.md).")]
pub struct Resume {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
    /// Tell nothing of deaths that are recovered from, while the job runs or at its end
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

pub fn resume(args: &Resume) -> Result<i32, Failure> {
    let home = home::home()?;
    let mut job = home::resolve(&home, &args.job)?;
    if job.alive {
        let Err(failure) = go_on(&job) else { return Ok(0) };
        // It may have been about to die.
        job = match home::resolve(&home, &job.id) {
            Ok(now) if !now.alive => now,
            _ => return Err(failure),
        };
    }
    if !job.resumable {
        let text = "has no nodes that wait for a controller; one that was saved goes on by";
        return Err(Failure::new(FAILED, anyhow!("job {} {text} eyrie restart", job.id)));
    }
    let folder = home::claim(&job)?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let order = ClientMsg::Resume { verbose: args.verbose };
    let metrics = args.metrics.open(args.quiet)?;
    let shows = ConsoleOptions { label: args.label, quiet: args.quiet, metrics };
    controller::start_in(&folder, &binary, &order, None, shows)
}

/// A job that has a controller goes on.
pub fn go_on(job: &JobEntry) -> Result<(), Failure> {
    Ok(await_done(Client::connect(job)?.send_unlimited(&ClientMsg::Continue)?)?)
}
