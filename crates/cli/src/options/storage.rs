//! Where nodes keep images, and what outlives them: `--vault`, `--local`; how much is logged.

use crate::options::local::Local;
use crate::options::vault::VaultOptions;
use clap::Args;
use eyrie_terminal::units::parse_bytes;
use eyrie_vault::Scheme;

/// Where nodes keep images and logs, and what outlives them.
#[derive(Debug, Args)]
pub struct StorageOptions {
    /// How images outlive their nodes: rs:K+M (of each K + M nodes any M may be lost at once with
    /// their disks), xor:K (of each K + 1 nodes any one), partner (a copy on the next node), local
    /// (not at all); not with --ft none [default: partner]
    #[arg(long, value_name = "SCHEME")]
    pub vault: Option<Scheme>,
    #[command(flatten)]
    pub vault_options: VaultOptions,
    #[command(flatten)]
    pub local: Local,
    /// Most memory for the send log of each rank [default: 512M, less if memory is short]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub log_limit: Option<u64>,
    /// Other nodes that hold each recorded outcome before anything that depends on it leaves a node
    /// [default: 1; M with --vault rs:K+M]
    #[arg(long, value_name = "F")]
    pub log_replicas: Option<u32>,
}
