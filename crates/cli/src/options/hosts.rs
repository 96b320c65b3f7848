//! How hosts are reached, and how many ranks they take.

use clap::Args;
use eyrie_terminal::units::parse_millis;
use std::path::PathBuf;

/// How hosts are reached, and how many ranks they take.
#[derive(Debug, Clone, Args)]
pub struct HostOptions {
    /// The remote shell that reaches hosts, called with a host and a command (blanks part its
    /// words) [env: EYRIE_RSH] [default: what the batch system has (srun, blaunch, flux exec,
    /// qrsh), else ssh -o BatchMode=yes -o ControlMaster=no]
    #[arg(long, value_name = "CMD", conflicts_with = "nodes")]
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
