//! What is said of nodes that leave a job, and of ranks that move.

use clap::Args;
use eyrie_terminal::units::parse_millis;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie drain last 2\n  \
    eyrie drain k7mq node7 --deadline 90\n  \
    eyrie drain last 0 1 --to 3\n  \
    eyrie drain last cluster=east\n  \
    eyrie drain all node7 --deadline 90\n  \
    eyrie drain --cancel last 0\n\n\
    The ranks of the node are copied while they run, stopped, and go on on another node (a spare\n\
    first, then the one with fewest) where they were: nothing is computed again. Other ranks are\n\
    not touched, but with --ft coordinated all stand and go on with them, and with node and\n\
    cluster those of their units. When all that the node holds is as safe without it its daemon\n\
    ends, and nothing of the job is left there. Until its ranks are stopped a fault leaves\n\
    everything as it was; a node that is lost on the way is lost as at any other time.\n\n\
    What a maintenance script, Slurm's epilogue or the notice of a spot instance calls, on the\n\
    machine that `eyrie run` is on; with `all` it need not know which jobs have nodes there: each\n\
    that has is asked, and of its nodes those that are named. Exit code: 0 all have left (or none\n\
    was there), 1 one has not.")]
pub struct Drain {
    /// The job: its id, the beginning of one, `last`, or `all`: every job with a node there, which
    /// is said by HOST or cluster=NAME then
    pub job: String,
    /// Numbers of nodes, ranges (0-3), names of hosts, `cluster=NAME`, or lists of these (0-3,7)
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Where their ranks go [default: a spare, else the nodes with fewest ranks; if there are
    /// several clusters, of the same one, if a node of that stays]
    #[arg(long, value_name = "SET", num_args = 1.., value_delimiter = ',')]
    pub to: Vec<String>,
    /// After so long a node that has not left is given up as lost, which it then is
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub deadline: Option<u64>,
    /// They are not to leave after all (nor, after eyrie migrate, their ranks), which can be said
    /// as long as their ranks have not begun to go on elsewhere
    #[arg(long, conflicts_with_all = ["to", "deadline", "json"])]
    pub cancel: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

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
    /// The job: its id, the beginning of one, or `last`
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
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}
