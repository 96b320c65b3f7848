//! `eyrie migrate`: ranks move to other nodes, all at one time, and the nodes stay.

use crate::client::find_running;
use crate::commands::drain::watch::{Watch, follow, number, tell_how_to_cancel};
use clap::Args;
use eyrie_control::ClientMsg;
use eyrie_terminal::units::parse_millis;
use eyrie_terminal::{Failure, Progress};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie migrate last --to 4-7\n  \
    eyrie migrate last --from 0-1 --to 2,3\n  \
    eyrie migrate k7mq --from node1,node2 --to node3,node4\n  \
    eyrie migrate last --from cluster=east --to cluster=west --release\n\n\
    A SET is a list of numbers of nodes, ranges (0-3), names of hosts and cluster=NAME. The ranks\n\
    are copied while they run, then all of them are stopped, and go on on the other nodes where\n\
    they were: nothing is computed again. They are spread so that no node has more than it need\n\
    have. The nodes that they came from forget all that they had, and stay in the job as spares;\n\
    with --release they leave it, as with eyrie drain. Until the ranks are stopped a fault leaves\n\
    everything as it was: if one cannot move, none does.\n\n\
    Exit code: 0 all have moved, 1 they have not, or a node was lost.")]
pub struct Migrate {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// The nodes whose ranks move [default: all that have ranks, and are not among those of --to]
    #[arg(long, value_name = "SET", num_args = 1.., value_delimiter = ',')]
    pub from: Vec<String>,
    /// Where they go
    #[arg(long, value_name = "SET", num_args = 1.., value_delimiter = ',', required = true)]
    pub to: Vec<String>,
    /// If the ranks have not set out after so long they stay where they are. They are stopped at
    /// once, without being copied while they run, where there is no time for that
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub deadline: Option<u64>,
    /// The nodes that the ranks came from leave the job
    #[arg(long)]
    pub release: bool,
    /// Do not show how far it is
    #[arg(short, long)]
    pub quiet: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// The same for `eyrie migrate`.
pub fn migrate(args: &Migrate) -> Result<i32, Failure> {
    let (job, number) = (find_running(&args.job)?, number());
    tell_how_to_cancel(&job.id, &args.from)?;
    let (from, to, release) = (args.from.clone(), args.to.clone(), args.release);
    let deadline_ms = args.deadline;
    let ask = ClientMsg::Migrate { from, to, release, deadline_ms, number };
    let progress = Progress::counted("migrating", args.from.len() as u64, "nodes", args.quiet);
    follow(&job, &ask, Watch::of(number, args.json, progress))
}
