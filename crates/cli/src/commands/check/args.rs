//! The options of `eyrie check`.

use clap::Args;
use eyrie_terminal::units::parse_interval;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie check grid.toml && eyrie run --config grid.toml\n  \
    eyrie check grid.toml --time 1\n  \
    eyrie check grid.toml --json | jq '.findings[].remedy'\n\n\
    Reads the file, reaches every host as the job would, compares versions and clocks, has the\n\
    hosts of each cluster call each other, and measures the link between each two gateways. It\n\
    says which ports have to be open, and in which direction. Nothing of the job is started.\n\n\
    Exit code 0: the job can start. 1: it can, and something costs or is slower than the file\n\
    says. 2: it cannot, or the file is wrong.")]
pub struct Check {
    /// The file of a grid job, as for eyrie run --config
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
    /// How long the bandwidth of a link is measured, each way (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "0.5", value_parser = parse_interval)]
    pub time: u64,
    /// Longest wait for each host (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "20", value_parser = parse_interval)]
    pub limit: u64,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR")]
    pub address: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
