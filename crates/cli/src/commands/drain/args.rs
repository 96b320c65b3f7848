//! The options of `eyrie drain`.

use clap::Args;
use eyrie_terminal::units::parse_millis;

/// In the place of a job's name. No job is called so: their names have no `l`.
pub const ALL: &str = "all";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie drain last 2\n  \
    eyrie drain k7mq node7 --deadline 90\n  \
    eyrie drain last 0 1 --to 3\n  \
    eyrie drain last cluster=east\n  \
    eyrie drain all node7 --deadline 90\n  \
    sudo eyrie drain all node7 --all-users\n  \
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
    /// The job: its id, its name, the beginning of its id, `last`, or `all`: every job with a node
    /// there, which is said by HOST or cluster=NAME then
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
    #[arg(long, conflicts_with_all = ["to", "deadline"])]
    pub cancel: bool,
    /// The jobs of all users with a controller on this machine, with `all` (root only)
    #[arg(long)]
    pub all_users: bool,
    /// Do not show how far it is
    #[arg(short, long)]
    pub quiet: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}
