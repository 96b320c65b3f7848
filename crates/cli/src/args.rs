//! The command line.

use crate::clusters::Wide;
use crate::exact_args::{AppendedMode, ClocksMode, Exact, FilesMode, OrphansMode};
use crate::guard::Guard;
use crate::ha_args::{HaArgs, Standby};
use crate::keeping::Keeping;
pub use crate::layout::{BindMode, MapMode};
use crate::leave_args::{Drain, Migrate};
use crate::needs_args::Ignored;
use crate::saving::{AtRest, Saving, parse_saving};
use clap::{Args, Parser, Subcommand, ValueEnum};
use eyrie_terminal::units::{parse_bytes, parse_millis};
use eyrie_vault::Scheme;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs MPI programs that outlive their ranks.
#[derive(Debug, Parser)]
#[command(name = "eyrie", version, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    eyrie run -n 4 ./heat 1000          run an MPI program on 4 ranks\n  \
    eyrie status last                   how the newest job is doing\n  \
    eyrie inject last kill-rank 2       kill a rank and watch it come back\n\n\
    State lives under $EYRIE_HOME (default ~/.eyrie).")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program, on this machine or over hosts
    Run(Run),
    /// Run a program as one job, in the processes that another launcher starts (mpiexec, srun)
    #[command(override_usage = "LAUNCHER -n N eyrie join [OPTIONS] PROGRAM [ARGS]...")]
    #[command(after_help = JOIN_HELP)]
    Join(Run),
    /// Run a program twice, the second time forced to the first one's outcomes, and compare
    Verify(Verify),
    /// List jobs
    Ps(Ps),
    /// Show a job's ranks, checkpoints and logs
    Status(Status),
    /// Checkpoint a job now and wait until it is complete; with --end, save the job and end it
    Checkpoint(Checkpoint),
    /// Add nodes to a job over nodes or hosts
    Grow(Grow),
    /// Have nodes leave a job over nodes or hosts, in order: no work is lost
    Drain(Drain),
    /// Tell the nodes of jobs on this host that it is about to end
    #[command(after_help = crate::share_args::NOTICE_HELP)]
    Notice,
    /// Move the ranks of a running job to other nodes, all at one time
    Migrate(Migrate),
    /// Let nothing go between two clusters of a job for a while
    Clusters(crate::block::Clusters),
    /// Go on with a job that was saved and ended
    Restart(Restart),
    /// Have all ranks of a job stand still, so that others have their processors
    Suspend(crate::share_args::Suspend),
    /// Go on with a job that is suspended, or whose nodes are left alone
    Resume(Resume),
    /// Let jobs take turns on the processors that they share
    Share(crate::share_args::Share),
    /// Wait for the end of another machine's controller, and go on with its job (eyrie run --ha)
    Standby(Standby),
    /// Cause a fault on purpose
    Inject(Inject),
    /// End a job
    Abort(Abort),
    /// Show what happened in a job
    Events(Events),
    /// Run one rank again from its checkpoint, with its logged messages and no other rank
    Replay(Replay),
    /// Look into, verify or extract a process image
    Image(Image),
    /// Look after vaults: folders of several nodes, any few of which may be lost
    Vault(crate::vault_args::Vault),
    /// Show what this machine offers and what Eyrie makes of it
    Info(Info),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  eyrie completions bash > ~/.bash_completion.d/eyrie")]
    Completions { shell: clap_complete::Shell },
    /// The node daemon (started by `eyrie run`)
    #[command(name = "__node", hide = true)]
    Node(Node),
    /// A node of a job with several (started by its controller)
    #[command(name = "__member", hide = true)]
    Member,
    /// A node on another host (started by its controller, through a remote shell)
    #[command(name = "__host", hide = true)]
    Host,
    /// The gateway of a cluster (started by the job's controller)
    #[command(name = "__gateway", hide = true)]
    Gateway,
    /// Speaks PMIx with a launcher (started by `eyrie join`)
    #[command(name = "__pmix", hide = true)]
    Pmix,
    /// The way to a node of `eyrie join` (started by its controller)
    #[command(name = "__call", hide = true)]
    Call {
        folder: PathBuf,
        host: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
}

const JOIN_HELP: &str = "Examples:\n  \
    mpiexec -n 4 eyrie join ./heat 4000\n  \
    srun --mpi=pmi2 -n 64 eyrie join --ckpt-every 30 ./heat 4000\n  \
    mpirun -n 4 eyrie join ./heat 4000          (Open MPI 5)\n\n\
    Speaks PMI 1.1 (PMI_FD), as of hydra (MPICH, Intel MPI) and of Slurm with --mpi=pmi2, and\n\
    PMIx where libpmix is installed (Open MPI, PRRTE, srun --mpi=pmix). The\n\
    launcher says how many ranks there are and on which machines; options for that are refused.\n\
    Ranks are children of Eyrie's daemons there. What they print comes out of the first\n\
    process, which also has the job's exit code; the others have 0. Its standard input is that of\n\
    rank 0.\n\
    On a signal to the first process the job ends, as with eyrie run.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FtMode {
    /// Message logging: a rank that dies is restored alone
    Logged,
    /// Nothing is logged: all ranks are checkpointed together, and when one dies, all go back
    Coordinated,
    /// That for the ranks of each node, and between nodes messages are logged: when a rank or a
    /// node dies, the ranks that began on its node go back (on one node: coordinated)
    Node,
    /// The same for the ranks of each cluster (--clusters), and between clusters messages are
    /// logged: when a rank or a node dies, the ranks that began in its cluster go back
    Cluster,
    /// Message logging as in the Eagle paper: messages between nodes go by routers, which are
    /// nodes of their own, and a rank that is restored gets them again from there
    Routed,
    /// No protection: a rank that dies ends the job
    None,
}

/// In which order ranks are checkpointed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CkptPolicy {
    /// At each interval one after the other, without a pause
    Sr,
    /// At each interval all at once
    Br,
    /// Each by a timer of its own, spread over the interval
    St,
    /// One at a time, spread over an interval that follows from what a checkpoint costs and how
    /// often ranks die, and is at most --ckpt-every
    Auto,
}

/// What a checkpoint stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CkptMode {
    /// What has changed since the one before, and all of it now and then
    Incremental,
    /// All memory every time
    Full,
}

/// How a rank's memory is kept until it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CkptFreeze {
    /// Copy or twin, whichever the rank stands still for the shorter time
    Auto,
    /// Pages that have changed are copied, up to 48 MiB of them
    Copy,
    /// A copy-on-write twin of the process holds them
    Twin,
    /// Not at all: the rank stands still until everything is stored
    Sync,
}

/// Whether memory that ranks have in common is stored once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CkptDedup {
    /// Where a sample of its pages says that a tenth of the checkpoint is saved
    Auto,
    /// Wherever 64 KiB are the same
    On,
    /// Never: no rank needs files of another
    Off,
}

fn parse_size(text: &str) -> Result<u32, String> {
    let most = eyrie_ledger::segment::MAX_RANKS;
    match text.parse::<u32>() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("give a number of ranks from 1 to {most}")),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie run -n 4 ./cg B\n  \
    eyrie run -n 4 -l -v --ckpt-every 10 -- ./heat 2000 --steps 500\n  \
    eyrie run -n 2 --ft none python3 pi.py\n  \
    eyrie run -n 8 --hosts node1,node2,node3 --spares 1 ./heat 4000\n  \
    eyrie run -n 8 --nodes 4 --clusters 2 ./heat 4000\n  \
    eyrie run -n 8 --nodes 4 --clusters 2 --ft cluster --copies outside ./heat 4000\n  \
    eyrie run -n 4 --nodes 4 --ft routed --routers 2 ./heat 4000\n\n\
    Ctrl-C asks the program to end; a second one kills it. SIGQUIT (Ctrl-\\) saves the job and\n\
    ends it with exit code 85; eyrie restart goes on. The exit code is 0 if all ranks\n\
    exit with 0, else that of the first rank that failed (128 + signal if one killed it).")]
pub struct Run {
    /// Number of ranks [default: 1; in a Slurm allocation its number of tasks]
    #[arg(short = 'n', long = "np", value_name = "N")]
    #[arg(value_parser = parse_size, allow_negative_numbers = true)]
    pub size: Option<u32>,
    /// Fault tolerance
    #[arg(long, value_enum, default_value = "logged")]
    pub ft: FtMode,
    /// Time between two checkpoints of a rank (seconds, or with unit), more where they would take
    /// over half of the job's time; 0: only on request
    #[arg(long, value_name = "SECS", default_value = "60", value_parser = parse_millis)]
    pub ckpt_every: u64,
    /// Time until the first checkpoint of every rank, if less than --ckpt-every
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = parse_millis)]
    pub ckpt_first: u64,
    /// In which order ranks are checkpointed, and whether at given or at measured intervals
    /// [default: auto; br with --vault rs or xor, as images that are new together share their
    /// parity; with --ft coordinated, where all are checkpointed together, auto is all there is]
    #[arg(long, value_enum)]
    pub ckpt_policy: Option<CkptPolicy>,
    /// What a checkpoint stores
    #[arg(long, value_enum, default_value = "incremental")]
    pub ckpt: CkptMode,
    /// How a rank's memory is kept until it is stored
    #[arg(long, value_enum, default_value = "auto")]
    pub ckpt_freeze: CkptFreeze,
    /// Whether a full checkpoint refers to those of other ranks for memory that these hold too
    /// (with --nodes none does yet: a copy for another node is complete by itself)
    #[arg(long, value_enum, default_value = "auto")]
    pub ckpt_dedup: CkptDedup,
    /// Most memory for the send log of each rank [default: 512M, less if memory is short]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub log_limit: Option<u64>,
    #[command(flatten)]
    pub exact: Exact,
    /// Spread the ranks over N nodes, each a daemon with storage of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub nodes: Option<u32>,
    /// Run on these machines, a node on each: a list (a,b:4,c) or a file (one a line; `slots=N`,
    /// `cluster=NAME`, `domain=NAME` and `gateway=ADDRESS[:PORT]` behind it, # begins a comment).
    /// Slots, here 4, are the most ranks that a host gets; a domain is what fails together, such as
    /// the hosts of a switch, and of which --vault puts no two into one group if it can; a gateway
    /// of the host's cluster is reached by other clusters at this address [default: in a Slurm
    /// allocation its hosts, started by srun, unless --nodes is given]
    #[arg(long, value_name = "LIST|FILE")]
    #[arg(conflicts_with_all = ["nodes", "netns"])]
    pub hosts: Option<String>,
    #[command(flatten)]
    pub wide: Wide,
    #[command(flatten)]
    pub reach: Reach,
    /// How ranks are laid out on the nodes [default: block]
    #[arg(long, value_enum)]
    pub map: Option<MapMode>,
    /// Where each rank runs and on which cores: lines `rank N=HOST slot=CORES`, or `rank N=+nK
    /// slot=CORES` for the K-th node (cores as 0-3,7, as SOCKET:CORES, or *; counted among those
    /// that the node may use). Without --hosts and --nodes the hosts are those that it names; -n is
    /// the number of ranks in it if it is not given
    #[arg(long, value_name = "FILE", conflicts_with = "map")]
    pub rankfile: Option<PathBuf>,
    /// What each rank is bound to; nothing where there are more ranks than cores, or where another
    /// job's ranks are bound [default: none, unless the cores are this job's own, see --exclusive]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub bind: Option<BindMode>,
    /// The cores that the job may use are its own: ranks are bound to a core each where a node has
    /// as many ranks as cores, to a memory domain where it has fewer. So it is without this
    /// option, too, where a batch system (Slurm, PBS, LSF) gave the job its cores, and where it may
    /// use only a part of the machine's (a cpuset). A rank is let go if others use its core
    #[arg(long, conflicts_with = "bind")]
    pub exclusive: bool,
    /// Nodes without ranks, which take those of nodes that are lost; of hosts, and of the nodes of
    /// another launcher (eyrie join), the last [default: 0]
    #[arg(long, value_name = "S")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    pub spares: Option<u32>,
    /// With --ft routed: a router, which is a node more, for each N ranks; of hosts the last
    /// [default: 4]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub routers: Option<u32>,
    /// How images outlive their nodes: rs:K+M (of each K + M nodes any M may be lost at once with
    /// their disks), xor:K (of each K + 1 nodes any one), partner (a copy on the next node), local
    /// (not at all); not with --ft none [default: partner]
    #[arg(long, value_name = "SCHEME")]
    pub vault: Option<Scheme>,
    #[command(flatten)]
    pub keeping: Keeping,
    /// Other nodes that hold each recorded outcome before anything that depends on it leaves a node
    /// [default: 1; M with --vault rs:K+M]
    #[arg(long, value_name = "F")]
    pub log_replicas: Option<u32>,
    /// How long nodes go on without a controller, if it dies: `eyrie run` starts another one at
    /// once, `eyrie resume` if `eyrie run` died, too (seconds, or with unit; with --nodes or
    /// --hosts only); 0: the job ends with its controller [default: 60]
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub controller_limit: Option<u64>,
    /// How often at most the newest checkpoints of all ranks are brought to the job's folder, too,
    /// while the job runs: `eyrie restart` goes on from there when all nodes are lost (seconds, or
    /// with unit; Ng: whenever all ranks have N newer ones; over nodes) [default: never]
    #[arg(long, value_name = "SECS|Ng", value_parser = parse_saving)]
    pub save_every: Option<Saving>,
    /// Bring what --save-every saves to an object store, too (S3): `eyrie restart URL/JOB` goes on
    /// from there. Endpoint, region and keys are AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY of the environment
    #[arg(long, value_name = "s3://BUCKET/PREFIX", requires = "save_every")]
    pub save_to: Option<String>,
    /// ... with so many bytes a second at most [default: as fast as can be]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "save_to")]
    pub save_rate: Option<u64>,
    /// ... encrypted with the key in this file (32 bytes, or 64 hexadecimal digits), which
    /// `eyrie restart` needs, too; the machine of the controller has to have it as long as the job
    /// runs
    #[arg(long, value_name = "FILE", requires = "save_to")]
    pub save_key: Option<PathBuf>,
    #[command(flatten)]
    pub at_rest: AtRest,
    #[command(flatten)]
    pub ignored: Ignored,
    /// How long a node has from the SIGTERM or SIGUSR1 on that tells it to end: its ranks go on
    /// elsewhere; if all nodes are told, the job is saved (seconds, or with unit; over nodes);
    /// 0: no time, they end at once [default: in an allocation of Slurm 5 s less than its KillWait,
    /// or its partition's GraceTime; else 25]
    #[arg(long, value_name = "SECS", value_parser = parse_millis, env = "EYRIE_GRACE")]
    pub grace: Option<u64>,
    /// Put each node into a network namespace of its own, joined by a bridge: the program reaches
    /// the other nodes and nothing else (root only; takes `ip` of iproute2)
    #[arg(long, requires = "nodes")]
    pub netns: bool,
    #[command(flatten)]
    pub guard: Guard,
    #[command(flatten)]
    pub ha: HaArgs,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// A name shown by `eyrie ps`
    #[arg(long)]
    pub name: Option<String>,
    /// Keep the job's folder when it is over: events, last status, log, and the images and logs
    /// of its ranks, for `eyrie replay`
    #[arg(long)]
    pub keep: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(value_names = ["PROGRAM", "ARGS"], trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

/// How hosts are reached, and how many ranks they take.
#[derive(Debug, Args)]
pub struct Reach {
    /// The remote shell that reaches hosts, called with a host and a command (blanks part its
    /// words) [env: EYRIE_RSH] [default: ssh -o BatchMode=yes -o ControlMaster=no]
    #[arg(long, value_name = "CMD", requires = "hosts")]
    pub rsh: Option<String>,
    /// Where Eyrie is on the hosts: DIR/bin/eyrie [default: as here]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR")]
    pub address: Option<String>,
    /// Longest wait for all hosts to join (seconds, or with unit) [default: 60]
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub join_limit: Option<u64>,
    /// Put more ranks on hosts than they have slots
    #[arg(long)]
    pub oversubscribe: bool,
}

impl Run {
    pub fn ranks(&self) -> u32 {
        self.size.or_else(crate::slurm::tasks).unwrap_or(1)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie verify -n 4 -- ./farm 100\n\n\
    eyrie verify -n 4 --seeds 20 -- ./farm 100\n\n\
    The program is run once, and its outcomes are recorded; then it is run again under these\n\
    outcomes, once for each seed, and what it sends and prints is compared. Messages are delayed\n\
    and hastened on purpose, in another way with each seed. The first message that differs is\n\
    named, with both values and a guess what they are.\n\n\
    Exit code 0: all runs sent the same messages and printed the same. 1: one did not. 3: no\n\
    verdict, as the program failed when it was recorded, a limit was met, or it was stopped.")]
pub struct Verify {
    /// Number of ranks
    #[arg(short = 'n', long = "np", value_name = "N", default_value = "1")]
    #[arg(value_parser = parse_size, allow_negative_numbers = true)]
    pub size: u32,
    /// Most memory for the send log of each rank
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub log_limit: Option<u64>,
    /// Whether what clocks, random devices and the C library tell the program is recorded, so that
    /// the second run is told the same again (see `eyrie run --help`)
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW", alias = "wtime")]
    pub clocks: ClocksMode,
    /// Runs that are compared with the recorded one
    #[arg(long, value_name = "N", default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// By what messages are delayed and hastened: in the recorded run and in the first of the
    /// others by this, in those that follow by the next numbers
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub seed: u32,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Tell on standard error what happens
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(value_names = ["PROGRAM", "ARGS"], trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie ps --json | jq -r '.[].job'")]
pub struct Ps {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie status last\n  eyrie status k7mq --json")]
pub struct Status {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie checkpoint last\n  \
    eyrie checkpoint k7mq --rank 3\n  \
    eyrie checkpoint k7mq --end && eyrie restart k7mq")]
pub struct Checkpoint {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// Only this rank
    #[arg(long)]
    pub rank: Option<u32>,
    /// Checkpoint all ranks, save the job and end it: `eyrie restart` goes on (as SIGQUIT to
    /// `eyrie run`)
    #[arg(long, conflicts_with = "rank")]
    pub end: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie run -n 4 ./cg B; test $? = 85 && eyrie restart last\n  \
    eyrie restart k7mq -v\n  \
    eyrie restart --hosts node4,node5 --map cyclic k7mq\n\n\
    A job is saved as a whole by SIGQUIT to `eyrie run` (or Ctrl-\\) or by `eyrie checkpoint JOB\n\
    --end`; `eyrie run` then exits with 85. It goes on under the same name, in the folder and\n\
    with the environment that it was started with, where each rank stood; what was printed is not\n\
    printed again. Of standard input all that was read before is kept (a file is read to its end\n\
    when the job is saved); what `eyrie restart` gets on its own comes after that. A job can be\n\
    saved and restarted as often as needed. One that ran on several nodes goes on on the same, or\n\
    on any others. Exit code: as that of `eyrie run`.")]
pub struct Restart {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// Go on on N nodes of this machine (a job that was saved on several nodes)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub nodes: Option<u32>,
    /// Go on on these machines: a list or a file, as for eyrie run (a job that was saved on several
    /// nodes) [default: where it was; in an allocation of Slurm its hosts]
    #[arg(long, value_name = "LIST|FILE", conflicts_with = "nodes")]
    pub hosts: Option<String>,
    /// How ranks are laid out on these [default: as before]
    #[arg(long, value_enum)]
    pub map: Option<MapMode>,
    /// Nodes of these without ranks [default: as before on as many nodes, else 0]
    #[arg(long, value_name = "S")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    pub spares: Option<u32>,
    /// File with the key of a job that was brought to an object store with eyrie run --save-key
    #[arg(long, value_name = "FILE")]
    pub save_key: Option<PathBuf>,
    /// File with the key of a job that was started with eyrie run --encrypt-at-rest=FILE [default:
    /// where it was]
    #[arg(long, value_name = "FILE", require_equals = true)]
    pub encrypt_at_rest: Option<PathBuf>,
    #[command(flatten)]
    pub ignored: Ignored,
    /// On these nodes: a router, which is a node more, for each N ranks (eyrie run --ft routed); of
    /// hosts the last; 0: no routers [default: as before]
    #[arg(long, value_name = "N")]
    pub routers: Option<u32>,
    /// What becomes of what ranks appended to files after their checkpoints [default: as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub appended: Option<AppendedMode>,
    /// What becomes of a checkpoint of a rank that has left processes behind [default: as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub orphans: Option<OrphansMode>,
    /// What becomes of files that ranks write to and that are not as they were at the checkpoints
    /// [default: as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub files: Option<FilesMode>,
    /// Store what files hold that are open for writing, up to this size each [default: as before]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub files_limit: Option<u64>,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub guard: Guard,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Keep the job's folder when it is over (see eyrie run --keep)
    #[arg(long)]
    pub keep: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie resume last\n\n\
    A job that is suspended goes on where it stood (eyrie suspend).\n\n\
    A job over --nodes or --hosts goes on for a while (eyrie run --controller-limit) when\n\
    `eyrie run` and its controller were killed. This starts another controller, which goes on\n\
    by the journal of the dead one, and takes the place of `eyrie run`: output that was not\n\
    printed is printed, standard input goes on behind what was read. If only the controller was\n\
    killed, `eyrie run` does that by itself. Exit code: as that of `eyrie run`.")]
pub struct Resume {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie grow last\n  eyrie grow k7mq --nodes 2\n  \
    eyrie grow k7mq node7 node8\n  \
    eyrie grow k7mq node7 cluster=west\n  \
    eyrie grow k7mq node7 domain=rack3\n\n\
    The new nodes have no ranks: they take those of nodes that are lost, and images of others.")]
pub struct Grow {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// Of a job over --hosts: machines that join it, also such as it had lost; behind each, if the
    /// job has several clusters, `cluster=NAME` of one of these, if its hosts have domains,
    /// `domain=NAME` of what it fails together with, and, if other clusters' gateways are to reach
    /// one there at a certain address, `gateway=ADDRESS[:PORT]`
    #[arg(value_name = "HOST", conflicts_with_all = ["nodes", "cluster"])]
    pub hosts: Vec<String>,
    /// Of a job over --nodes: how many
    #[arg(long, value_name = "K", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=250))]
    pub nodes: u32,
    /// Of a job over --nodes and --clusters: which one they are in [default: each in turn]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR", requires = "hosts")]
    pub address: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie inject last kill-rank 2\n  \
    eyrie inject k7mq kill-rank 0,3\n  \
    eyrie inject last kill-node 1\n  \
    eyrie inject last kill-gateway 0\n  \
    eyrie inject last kill-controller")]
pub struct Inject {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    #[command(subcommand)]
    pub fault: Fault,
}

#[derive(Debug, Subcommand)]
pub enum Fault {
    /// Kill nodes: their daemons, all that runs on them, and their storage
    #[command(name = "kill-node")]
    Node {
        /// Nodes, separated by commas
        #[arg(value_name = "N[,N..]", value_delimiter = ',', required = true)]
        nodes: Vec<u32>,
    },
    /// Kill the gateways of clusters; others are started
    #[command(name = "kill-gateway")]
    Gateway {
        /// Clusters by their numbers, separated by commas
        #[arg(value_name = "C[,C..]", value_delimiter = ',', required = true)]
        clusters: Vec<u32>,
    },
    /// Kill the controller; another one goes on by its journal
    #[command(name = "kill-controller")]
    Controller,
    /// Kill ranks with SIGKILL, all at the same moment
    #[command(name = "kill-rank")]
    Rank {
        /// Ranks, separated by commas
        #[arg(value_name = "R[,R..]", value_delimiter = ',', required = true)]
        ranks: Vec<u32>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie abort last\n\n\
    Of a job that is saved, what is saved is removed.")]
pub struct Abort {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie events last\n  eyrie events last --follow --json")]
pub struct Events {
    /// The job: its id, the beginning of one, or `last`
    pub job: String,
    /// Go on until the job is over
    #[arg(short, long)]
    pub follow: bool,
    /// As JSON, one event a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie run --keep -n 4 ./farm 100\n  \
    eyrie replay ~/.eyrie/jobs/k7mq/images/rank-2.gen-3\n  \
    eyrie replay ~/.eyrie/jobs/k7mq/images/rank-2.gen-3 --gdb\n  \
    eyrie replay rank-2.gen-3 --gdb -- -batch -ex continue -ex backtrace\n\n\
    `eyrie run --keep` leaves images and logs in the job's folder. The rank gets the messages and\n\
    outcomes that it got then; what it sends is compared. Where it asks for what nobody recorded,\n\
    it stops, in gdb with the call at hand. Its output is compared and, in gdb or with --output,\n\
    shown.\n\n\
    Exit code: the program's own if it ends (128 + signal if one kills it), 0 at the end of its\n\
    log, 1 if what it did differs from what was recorded; with --gdb that of gdb.")]
pub struct Replay {
    /// The image of the rank
    pub image: PathBuf,
    /// Its log [default: rank-N.log beside the image]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Start it stopped, under gdb
    #[arg(long)]
    pub gdb: bool,
    /// Show what it writes
    #[arg(long)]
    pub output: bool,
    /// As JSON
    #[arg(long, conflicts_with = "gdb")]
    pub json: bool,
    /// More arguments for gdb
    #[arg(last = true, value_name = "GDB ARGS", requires = "gdb")]
    pub gdb_args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Image {
    #[command(subcommand)]
    pub action: ImageAction,
}

#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// Show what an image holds: memory, threads, files, sizes
    Inspect(ImageInspect),
    /// Say of each part of an image whether it holds
    Verify(ImageVerify),
    /// Write a core file that gdb opens, or the bytes of one region
    Extract(ImageExtract),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie image inspect rank-0.gen-3\n  \
    eyrie image inspect heat.2.img --json | jq '.threads[].ip'\n  \
    eyrie image inspect rank-0.gen-1 --shared rank-1.gen-1 rank-2.gen-1\n\n\
    The image is verified first. PAGES are those stored, CHANGED those stored in this file and\n\
    not in an earlier one that it builds on.")]
pub struct ImageInspect {
    /// The image
    pub file: PathBuf,
    /// Show instead how many pages of each of these images those before it have too
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub shared: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie image verify heat.2.img && echo it holds\n\n\
    Exit code 0: every part holds. 1: one does not.")]
pub struct ImageVerify {
    /// The image
    pub file: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie image extract heat.2.img -o heat.core && gdb ./heat heat.core\n  \
    eyrie image extract heat.2.img --region 0x7ffc20000000 -o stack.bin\n\n\
    Pages of a region that are not stored (zeros, or those of its unchanged file) are zeros in\n\
    what --region writes.")]
pub struct ImageExtract {
    /// The image
    pub file: PathBuf,
    /// Where to write [default: the image's name with .core, or with .ADDR.bin]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only the region that holds this address
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub region: Option<u64>,
}

fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("'{text}' is no address: write for example 0x7f0012345000"))
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie info\n  \
    eyrie info --json | jq .decisions.tracking")]
pub struct Info {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Node {
    #[arg(long)]
    pub id: String,
    #[arg(long)]
    pub folder: PathBuf,
    #[arg(long)]
    pub console_fd: i32,
    #[arg(long)]
    pub lock_fd: i32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn run(words: &[&str]) -> Run {
        match Cli::try_parse_from(words).map(|c| c.command) {
            Ok(Command::Run(run)) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_programs_own_options_are_left_to_it() {
        let r = run(&["eyrie", "run", "-n", "2", "prog", "-n", "7", "--ft", "x"]);
        assert_eq!((r.ranks(), r.command.len()), (2, 5));
        let r = run(&["eyrie", "run", "-n2", "--", "prog", "--", "-l"]);
        assert_eq!(r.command, ["prog", "--", "-l"]);
        assert!(Cli::try_parse_from(["eyrie", "run", "--unknown", "prog"]).is_err());
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for bad in ["0", "-3", "1025", "x", "1.5"] {
            assert!(Cli::try_parse_from(["eyrie", "run", "-n", bad, "p"]).is_err(), "{bad}");
        }
    }
}
