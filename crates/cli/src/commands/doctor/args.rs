//! The options of `eyrie doctor`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie doctor\n  \
    eyrie doctor --hosts node1,node2 || echo look into it\n  \
    eyrie doctor --hosts hosts.txt --json | jq '.findings[].remedy'\n\n\
    Looks at the kernel, limits, memory, storage, compilers and other MPIs here; with --hosts\n\
    also at each of them, through the remote shell: whether it is reached without a question,\n\
    has the same Eyrie, sees EYRIE_HOME, has the same time, and reaches the others. What it\n\
    finds is told with what to type against it.\n\n\
    Exit code 0: nothing is lacking. 1: something is that costs. 2: jobs cannot run.")]
pub struct Doctor {
    /// Look at these machines, too: a list or a file, as for eyrie run
    #[arg(long, value_name = "LIST|FILE")]
    pub hosts: Option<String>,
    /// The remote shell that reaches them, as for eyrie run [env: EYRIE_RSH] [default: ssh -o
    /// BatchMode=yes -o ControlMaster=no]
    #[arg(long, value_name = "CMD", requires = "hosts")]
    pub rsh: Option<String>,
    /// Where Eyrie is on the hosts: DIR/bin/eyrie [default: as here]
    #[arg(long, value_name = "DIR", requires = "hosts")]
    pub prefix: Option<PathBuf>,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR", requires = "hosts")]
    pub address: Option<String>,
    /// Longest wait for each host (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "20", requires = "hosts")]
    #[arg(value_parser = eyrie_terminal::units::parse_interval)]
    pub limit: u64,
    /// Also what is as it should be
    #[arg(short, long)]
    pub verbose: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
