//! Options that say who handles it that a rank is lost.

use clap::{Args, ValueEnum};
use eyrie_terminal::units::parse_millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// Eyrie brings the rank back, as --ft says, and the program notices nothing
    Mask,
    /// The rank is not brought back: calls of MPI that need it return MPI_ERR_PROC_FAILED in the
    /// others, and the program goes on without it by MPI_Comm_revoke, MPI_Comm_shrink,
    /// MPI_Comm_agree and their kin (ULFM). Nothing is logged and no checkpoint is taken, as with
    /// --ft none; options of checkpoints, logs and the vault do not go with it. It goes with
    /// --nodes, --hosts and eyrie join
    Report,
}

/// What follows when a rank is lost.
#[derive(Debug, Args)]
pub struct FailureOptions {
    /// Who handles it that a rank is lost
    #[arg(long, value_enum, default_value = "mask")]
    pub on_failure: OnFailure,
    /// With --on-failure report: how long the other ranks have to ask for a rank that is lost,
    /// acknowledge it or agree on it, before the job ends (seconds, or with unit); 0: for ever
    /// [default: 600]
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub failure_grace: Option<u64>,
}

/// If nothing else is said.
const GRACE_MS: u64 = 600_000;

impl FailureOptions {
    /// How long the program has to handle the loss of a rank, in milliseconds; none: Eyrie does.
    pub fn report(&self) -> Option<u64> {
        (self.on_failure == OnFailure::Report).then_some(self.failure_grace.unwrap_or(GRACE_MS))
    }
}
