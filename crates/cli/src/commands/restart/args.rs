//! The options of `eyrie restart`.

use crate::config::defaults::{FileDefaults, TakesDefaults};
use crate::options::hosts::HostOptions;
use crate::options::local::Local;
use crate::options::metrics::MetricsArgs;
use crate::options::network::NetworkOptions;
use crate::options::output::OutputOptions;
use crate::options::processor::ProcessorOptions;
use clap::Args;
use eyrie_control::{Appended, Files, Orphans};
use eyrie_protocol::placement::Map;
use eyrie_terminal::units::parse_limit;
use std::path::PathBuf;

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
    on any others. Exit code: as that of `eyrie run` (docs/reference/exit-codes.md).")]
pub struct Restart {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    #[command(flatten)]
    pub placement: RestartPlacement,
    /// File with the key of a job that was brought to an object store with eyrie run --save-key
    #[arg(long, value_name = "FILE")]
    pub save_key: Option<PathBuf>,
    /// File with the key of a job that was started with eyrie run --encrypt-at-rest=FILE [default:
    /// where it was]
    #[arg(long, value_name = "FILE", require_equals = true)]
    pub encrypt_at_rest: Option<PathBuf>,
    #[command(flatten)]
    pub processor: ProcessorOptions,
    /// What becomes of what ranks appended to files after their checkpoints [default: as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub appended: Option<Appended>,
    /// What becomes of a checkpoint of a rank that has left processes behind [default: as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub orphans: Option<Orphans>,
    /// What becomes of files that ranks write to and that are not as they were at the checkpoints
    /// [default: as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub files: Option<Files>,
    /// Store what files hold that are open for writing, up to this size each [default: as before]
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    pub files_limit: Option<u64>,
    #[command(flatten)]
    pub host_options: HostOptions,
    #[command(flatten)]
    pub network: NetworkOptions,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub output: OutputOptions,
    /// Keep the job's folder when it is over (see eyrie run --keep)
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub local: Local,
    /// What files gave.
    #[arg(skip)]
    pub defaults: FileDefaults,
}

/// Where the job goes on.
#[derive(Debug, Args)]
pub struct RestartPlacement {
    /// Go on on N nodes of this machine (a job that was saved on several nodes)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub nodes: Option<u32>,
    /// Go on on these machines: a list or a file, as for eyrie run (a job that was saved on several
    /// nodes) [default: where it was; in an allocation of Slurm its hosts]
    #[arg(long, value_name = "LIST|FILE", conflicts_with = "nodes")]
    pub hosts: Option<String>,
    /// How ranks are laid out on these [default: as before]
    #[arg(long, value_enum)]
    pub map: Option<Map>,
    /// Nodes of these without ranks [default: as before on as many nodes, else 0]
    #[arg(long, value_name = "S")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    pub spares: Option<u32>,
    /// On these nodes: a router, which is a node more, for each N ranks (eyrie run --ft routed); of
    /// hosts the last; 0: no routers [default: as before]
    #[arg(long, value_name = "N")]
    pub routers: Option<u32>,
}

impl TakesDefaults for Restart {
    const COMMANDS: &'static [&'static str] = &["restart"];

    fn defaults(&self) -> &FileDefaults {
        &self.defaults
    }

    fn defaults_mut(&mut self) -> &mut FileDefaults {
        &mut self.defaults
    }
}
