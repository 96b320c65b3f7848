//! How long a job goes on without what it lost or is told to leave.

use crate::options::failures::FailureOptions;
use clap::Args;
use eyrie_terminal::units::parse_millis;

/// Limits of time.
#[derive(Debug, Args)]
pub struct LimitOptions {
    #[command(flatten)]
    pub failures: FailureOptions,
    /// How long nodes go on without a controller, if it dies: `eyrie run` starts another one at
    /// once, `eyrie resume` if `eyrie run` died, too (seconds, or with unit; with --nodes or
    /// --hosts only); 0: the job ends with its controller [default: 60]
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub controller_limit: Option<u64>,
    /// How long a node has from the SIGTERM or SIGUSR1 on that tells it to end: its ranks go on
    /// elsewhere; if all nodes are told, the job is saved (seconds, or with unit; over nodes);
    /// 0: no time, they end at once [default: in an allocation of Slurm 5 s less than its KillWait,
    /// or its partition's GraceTime, in PBS than the queue's kill_delay; else 25]
    #[arg(long, value_name = "SECS", value_parser = parse_millis, env = "EYRIE_GRACE")]
    pub grace: Option<u64>,
}
