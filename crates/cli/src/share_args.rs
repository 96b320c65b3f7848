//! The command line of what has jobs stand still, and of what tells nodes that their host ends.

use clap::Args;
use eyrie_terminal::units::parse_interval;

pub const NOTICE_HELP: &str = "Example, on a host that is to be switched off:\n  eyrie notice\n\n\
    What the notice of a spot instance or a maintenance script calls, as the jobs' user. Nodes of\n\
    jobs over --hosts (or in an allocation of Slurm) leave their jobs as with eyrie drain, in the\n\
    time that eyrie run --grace gives them, and then they end; a job all of whose nodes are told,\n\
    or whose controller (eyrie run) is here, is saved, for eyrie restart: not one with --ha, with\n\
    which another controller goes on. SIGTERM or SIGUSR1 to a node's keeper (eyrie __host) tells\n\
    that node alone. The command returns at once, before nodes have left and jobs are saved. Exit\n\
    code: 0, or 1 if there is nobody here to be told.";

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
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// Free its memory, too: checkpoints take its place until it goes on
    #[arg(long)]
    pub swap: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie share k7mq wzpd --slice 2s\n\n\
    Each job runs for a slice of time while the others stand still (as with eyrie suspend): all\n\
    ranks of a job go on and stop together, on all nodes. A job that ends leaves the others with\n\
    the rest; when one is left it runs on alone and the command ends. However the command ends,\n\
    all jobs run on: also when it is killed. If it hangs they do after two slices and 10 s.")]
pub struct Share {
    /// Jobs that run: ids, or beginnings of them
    #[arg(required = true, num_args = 2.., value_name = "JOB")]
    pub jobs: Vec<String>,
    /// How long each runs in its turn
    #[arg(long, value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = parse_interval)]
    pub slice: u64,
    /// Tell each turn
    #[arg(short, long)]
    pub verbose: bool,
}
