//! The arguments of `eyrie top`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie top\n  eyrie top heat-1\n\n\
    Keys: arrows or j and k choose, Enter goes into a job, Esc back, q quits; c has checkpoints\n\
    taken, d drains a node, K kills a rank for trying out: both ask first. ? shows them.\n\
    Where there is no terminal: eyrie ps, eyrie status JOB.")]
pub struct Top {
    /// The job: its id, its name, the beginning of its id, or `last`; without it: all jobs
    pub job: Option<String>,
}
