//! What a job tells of itself while it runs.

use clap::Args;

/// What a job tells of itself while it runs.
#[derive(Debug, Clone, Args)]
pub struct OutputOptions {
    /// Begin every output line with [rank]
    #[arg(short, long)]
    pub label: bool,
    /// Tell nothing of deaths that are recovered from, while the job runs or at its end
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell on standard error what happens, with milliseconds since the start
    #[arg(short, long)]
    pub verbose: bool,
}
