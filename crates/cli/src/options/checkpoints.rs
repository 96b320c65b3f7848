//! Options that say how a job is protected, and how ranks are checkpointed.

use clap::{Args, ValueEnum};
use eyrie_control::{CheckpointPolicy, Dedup, Freeze, Ft};
use eyrie_terminal::units::parse_millis;

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

impl FtMode {
    /// What it comes to on so many nodes with daemons of their own. `outside`: copies are in
    /// another cluster.
    pub fn on(self, nodes: u32, outside: bool) -> Ft {
        match self {
            FtMode::Logged | FtMode::Routed => Ft::Logged,
            FtMode::Coordinated => Ft::Coordinated,
            // The only node has all ranks.
            FtMode::Node if nodes == 0 => Ft::Coordinated,
            FtMode::Node => Ft::Node,
            FtMode::Cluster => Ft::Cluster { outside },
            FtMode::None => Ft::None,
        }
    }

    /// Whether messages are logged by nodes that do nothing else.
    pub fn is_routed(self) -> bool {
        self == FtMode::Routed
    }

    /// Whether it is what is taken if nothing is said, or what a job has that is told of failures.
    pub fn gives_way(self) -> bool {
        matches!(self, FtMode::Logged | FtMode::None)
    }

    fn units(self) -> Ft {
        self.on(1, false)
    }

    /// Whether its recovery units are clusters.
    pub fn needs_clusters(self) -> bool {
        self.units().stays_in_a_cluster()
    }

    /// Whether a job may have several clusters: no recovery unit has ranks in two of them.
    pub fn takes_clusters(self) -> bool {
        self.units().goes_back_alone() || self.needs_clusters()
    }

    /// Whether ranks are checkpointed.
    pub fn protects(self) -> bool {
        self.units().protects()
    }

    /// Whether several ranks are checkpointed together.
    pub fn has_sets(self) -> bool {
        self.units().stands_together()
    }

    /// When all ranks have one turn of checkpoints, if they have on so many nodes.
    pub fn one_turn(self, nodes: u32) -> Option<&'static str> {
        match self {
            FtMode::Coordinated => Some("with --ft coordinated"),
            _ if self.on(nodes, false).all_go_back() => Some("with --ft node and one node"),
            _ => None,
        }
    }

    /// The option, if it says where ranks are that log for each other.
    pub fn places(self) -> Option<&'static str> {
        match self {
            FtMode::Routed => Some("--ft routed"),
            FtMode::Cluster => Some("--ft cluster"),
            _ => None,
        }
    }

    /// Why there are no snapshots of all ranks beside their own checkpoints, if there are none.
    pub fn without_snapshots(self) -> Option<&'static str> {
        Some(match self {
            FtMode::None => "with --ft none there are no checkpoints",
            FtMode::Coordinated => {
                "with --ft coordinated all ranks are checkpointed and go back together as it is"
            }
            FtMode::Node | FtMode::Cluster => {
                "with --ft node and cluster ranks have no snapshots beside the sets of their units"
            }
            FtMode::Routed => "with --ft routed there are no snapshots: messages lie with routers",
            FtMode::Logged => return None,
        })
    }
}

/// What a checkpoint stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CkptMode {
    /// What has changed since the one before, and all of it now and then
    Incremental,
    /// All memory every time
    Full,
}

/// When and how ranks are checkpointed.
#[derive(Debug, Args)]
pub struct CheckpointOptions {
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
    pub ckpt_policy: Option<CheckpointPolicy>,
    /// What a checkpoint stores
    #[arg(long, value_enum, default_value = "incremental")]
    pub ckpt: CkptMode,
    /// How a rank's memory is kept until it is stored
    #[arg(long, value_enum, default_value = "auto")]
    pub ckpt_freeze: Freeze,
    /// Whether a full checkpoint refers to those of other ranks for memory that these hold too
    /// (with --nodes none does yet: a copy for another node is complete by itself)
    #[arg(long, value_enum, default_value = "auto")]
    pub ckpt_dedup: Dedup,
}
