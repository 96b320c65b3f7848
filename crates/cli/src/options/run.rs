//! The options of a job that `eyrie run` and `eyrie join` start.

use crate::config::defaults::{FileDefaults, TakesDefaults};
use crate::options::checking::CheckingOptions;
use crate::options::checkpoints::{CheckpointOptions, FtMode};
use crate::options::clusters::ClusterOptions;
use crate::options::ha::HaArgs;
use crate::options::hosts::HostOptions;
use crate::options::limits::LimitOptions;
use crate::options::metrics::MetricsArgs;
use crate::options::name::NamingOptions;
use crate::options::network::NetworkOptions;
use crate::options::nodes::NodeOptions;
use crate::options::output::OutputOptions;
use crate::options::placement::PlacementOptions;
use crate::options::processor::ProcessorOptions;
use crate::options::ranks::parse_size;
use crate::options::repeat::RepeatOptions;
use crate::options::saving::SavingOptions;
use crate::options::storage::StorageOptions;
use clap::Args;
use eyrie_control::Ft;
use std::ffi::OsString;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie run -n 4 ./cg B\n  \
    eyrie run -n 4 -l -v --ckpt-every 10 -- ./heat 2000 --steps 500\n  \
    eyrie run -n 2 --ft none python3 pi.py\n  \
    eyrie run -n 5 --on-failure report ./stencil_ulfm\n  \
    eyrie run -n 8 --hosts node1,node2,node3 --spares 1 ./heat 4000\n  \
    eyrie run -n 8 --nodes 4 --clusters 2 ./heat 4000\n  \
    eyrie run -n 8 --nodes 4 --clusters 2 --ft cluster --copies outside ./heat 4000\n  \
    eyrie run -n 4 --nodes 4 --ft routed --routers 2 ./heat 4000\n  \
    eyrie run -n 4 --metrics 9464 ./heat 4000\n  \
    eyrie run -n 1 ./master : -n 3 ./worker\n\n\
    Options of other MPIs' mpiexec are taken, too (-np, -hosts, -genv; see eyrie mpiexec --help).\n\
    Ctrl-C asks the program to end; a second one kills it. SIGQUIT (Ctrl-\\) saves the job and\n\
    ends it with exit code 85; eyrie restart goes on. The exit code is 0 if all ranks\n\
    exit with 0, else that of the first rank that failed (128 + signal if one killed it); all\n\
    of them are in docs/reference/exit-codes.md.")]
pub struct Run {
    /// Number of ranks [default: 1; in a batch system's allocation its number of tasks]
    #[arg(short = 'n', long = "np", value_name = "N")]
    #[arg(value_parser = parse_size, allow_negative_numbers = true)]
    pub size: Option<u32>,
    /// Fault tolerance
    #[arg(long, value_enum, default_value = "logged")]
    pub ft: FtMode,
    #[command(flatten)]
    pub checkpoints: CheckpointOptions,
    #[command(flatten)]
    pub placement: PlacementOptions,
    #[command(flatten)]
    pub host_options: HostOptions,
    #[command(flatten)]
    pub storage: StorageOptions,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub cluster_options: ClusterOptions,
    #[command(flatten)]
    pub node_options: NodeOptions,
    #[command(flatten)]
    pub repeat: RepeatOptions,
    #[command(flatten)]
    pub saving: SavingOptions,
    #[command(flatten)]
    pub processor: ProcessorOptions,
    #[command(flatten)]
    pub limits: LimitOptions,
    #[command(flatten)]
    pub network: NetworkOptions,
    #[command(flatten)]
    pub ha: HaArgs,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub checking: CheckingOptions,
    #[command(flatten)]
    pub naming: NamingOptions,
    /// Keep the job's folder when it is over: events, last status, log, and the images and logs
    /// of its ranks, for `eyrie replay`
    #[arg(long)]
    pub keep: bool,
    /// The program and its arguments
    #[arg(value_names = ["PROGRAM", "ARGS"], trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
    /// What files gave.
    #[arg(skip)]
    pub defaults: FileDefaults,
}

impl Run {
    /// Whether the number of ranks was said.
    pub fn is_sized(&self) -> bool {
        self.size.or_else(crate::batch::allocation::tasks).is_some()
    }

    /// What `--ft` comes to on so many nodes with daemons of their own.
    pub fn mode(&self, nodes: u32) -> Ft {
        match self.limits.failures.report() {
            Some(grace_ms) => Ft::Report { grace_ms },
            None => self.ft.on(nodes, self.cluster_options.are_outside()),
        }
    }

    /// The mode as far as it is about checkpoints and logs: where failures are reported there are
    /// none.
    pub fn ft(&self) -> FtMode {
        if self.limits.failures.report().is_some() { FtMode::None } else { self.ft }
    }

    pub fn ranks(&self) -> u32 {
        self.size.or_else(crate::batch::allocation::tasks).unwrap_or(1)
    }
}

impl TakesDefaults for Run {
    const COMMANDS: &'static [&'static str] = &["run", "join"];

    fn defaults(&self) -> &FileDefaults {
        &self.defaults
    }

    fn defaults_mut(&mut self) -> &mut FileDefaults {
        &mut self.defaults
    }
}
