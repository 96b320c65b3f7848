//! The options of `eyrie notice`.

use crate::commands::notice::cloud::Cloud;
use clap::Args;
use eyrie_terminal::units::parse_millis;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie notice                      on a host that is to be switched off\n  \
    eyrie notice --watch auto         on a spot instance: waits for its notice\n  \
    eyrie notice --watch ec2 --all-users\n\n\
    Nodes of jobs over --hosts (or in an allocation of a batch system) leave their jobs as with\n\
    eyrie drain, in the time that eyrie run --grace gives them, and then they end; a job all of\n\
    whose nodes are told, or whose controller (eyrie run) is here, is saved, for eyrie restart:\n\
    not one with --ha, with which another controller goes on. SIGTERM or SIGUSR1 to a node's\n\
    keeper (eyrie __host) tells that node alone. The command returns at once, before nodes have\n\
    left and jobs are saved.\n\n\
    --watch asks the metadata service of the machine's cloud: EC2 for interruptions and for\n\
    recommendations to rebalance, GCE for pre-emption and maintenance that ends the machine,\n\
    Azure for Preempt, Terminate, Reboot, Redeploy. It says one line when it acts, and ends. Give\n\
    jobs a --grace below what the notice leaves: 100 s on EC2, 25 s on GCE and Azure.\n\n\
    Exit code: 0; 1 if there is nobody here to be told, or no cloud to be asked.")]
pub struct Notice {
    /// Wait until this machine's cloud says that it is about to end
    #[arg(long, value_enum, value_name = "CLOUD")]
    pub watch: Option<Cloud>,
    /// Where the metadata service is, as http://ADDRESS[:PORT] [default: where the cloud has it]
    #[arg(long, value_name = "BASE", requires = "watch")]
    pub url: Option<String>,
    /// Time between two questions (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "5", requires = "watch")]
    #[arg(value_parser = parse_millis)]
    pub every: u64,
    /// EC2: do nothing on a recommendation to rebalance, which may come hours before an end
    #[arg(long, requires = "watch")]
    pub ignore_rebalance: bool,
    /// Tell the nodes and controllers of all users (root only)
    #[arg(long)]
    pub all_users: bool,
    /// As JSON
    #[arg(long, conflicts_with = "all_users")]
    pub json: bool,
}
