//! `eyrie verify`: a program run again under recorded outcomes, and compared.

use crate::config::timing;
use crate::launch::console::ConsoleOptions;
use crate::launch::controller::start;
use crate::launch::program::checked_program;
use crate::launch::spec::{argv, default_log};
use crate::options::metrics::Metrics;
use crate::options::ranks::parse_size;
use clap::Args;
use eyrie_control::{
    Appended, CheckpointPolicy, Dedup, Fallback, Files, Freeze, Ft, JobSpec, Orphans, Placement,
    Program, Protection, Security, Storage, Timing, Wtime,
};
use eyrie_terminal::Failure;
use eyrie_terminal::units::parse_bytes;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie verify -n 4 -- ./farm 100\n\n\
    eyrie verify -n 4 --seeds 20 -- ./farm 100\n\n\
    The program is run once, and its outcomes are recorded; then it is run again under these\n\
    outcomes, once for each seed, and what it sends and prints is compared. Messages are delayed\n\
    and hastened on purpose, in another way with each seed. The first message that differs is\n\
    named, with both values and a guess what they are.\n\n\
    Exit code 0: all runs sent the same messages and printed the same. 1: one did not. 3: no\n\
    verdict, as the program failed when it was recorded, a limit was met, or it was stopped\n\
    (docs/reference/exit-codes.md).")]
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
    pub clocks: Wtime,
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

pub fn verify(verify: &Verify) -> Result<i32, Failure> {
    let program = checked_program(&verify.command)?;
    let spec = JobSpec {
        program: Program {
            path: program.as_os_str().as_bytes().to_vec(),
            argv: argv(&verify.command),
            size: verify.size,
            name: None,
            input_is_file: false,
            verbose: verify.verbose,
        },
        placement: Placement::default(),
        protection: Protection {
            ft: Ft::Verify { seed: verify.seed, seeds: verify.seeds },
            checkpoint_policy: CheckpointPolicy::Auto,
            incremental: false,
            freeze: Freeze::Auto,
            dedup: Dedup::Off,
            log_limit_bytes: verify.log_limit.unwrap_or_else(|| default_log(verify.size)),
            log_replicas: 0,
            clocks: verify.clocks,
            strict_output: true,
            appended: Appended::Auto,
            orphans: Orphans::Refuse,
            files: Files::Warn,
            files_limit_bytes: 0,
            fallback: Fallback::Off,
        },
        storage: Storage::default(),
        security: Security::default(),
        timing: Timing { intervals: timing::read()?, ..Timing::default() },
    };
    start(spec, ConsoleOptions { label: verify.label, quiet: true, metrics: Metrics::default() })
}
