//! How exactly a rank that comes back has to repeat itself.

use clap::{Args, ValueEnum};
use eyrie_control::Wtime;

/// Whether what MPI_Wtime gives is an outcome like others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WtimeMode {
    /// Recorded in programs that ask for at most MPI_THREAD_FUNNELED, so not in Python's
    Auto,
    /// Also in others: what their main thread asks for, while which no other may call MPI
    Logged,
    /// Not recorded: for programs that ask as often as threads, signals or clocks have it
    Plain,
}

impl From<WtimeMode> for Wtime {
    fn from(mode: WtimeMode) -> Wtime {
        match mode {
            WtimeMode::Auto => Wtime::Auto,
            WtimeMode::Logged => Wtime::Logged,
            WtimeMode::Plain => Wtime::Plain,
        }
    }
}

#[derive(Debug, Args)]
pub struct Exact {
    /// Whether what MPI_Wtime gives is recorded, so that a rank that comes back finds the same
    /// times again (not with --ft coordinated and none, which record nothing). Costs little, but
    /// what is sent to another node behind it waits for its copy there: plain is for benchmarks
    /// that ask for the time around every message
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub wtime: WtimeMode,
    /// A rank that comes back and prints something else than before has diverged: all ranks go back
    /// to the beginning. Without it what was printed stays, and lines that it repeats are left out
    #[arg(long)]
    pub strict_output: bool,
}
