//! How exactly a rank that comes back has to repeat itself.

use clap::{Args, ValueEnum};
use eyrie_control::{Appended, Fallback, Files, Orphans, Wtime};
use eyrie_core::dynamic::ORDERS_VARIABLE;
use eyrie_terminal::units::parse_limit;

/// In which order the operands of a reduction are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReduceOrder {
    /// Within each cluster, then over all
    Fast,
    /// The same wherever ranks are, in one cluster or in several
    Canonical,
}

#[derive(Debug, Args)]
pub struct RepeatOptions {
    /// Whether what the program is told is recorded, so that a rank that comes back is told the
    /// same again: by clocks (MPI_Wtime, clock_gettime, time, getrusage and all that come down to
    /// them), by random devices, and about the process and its machine (getpid, gethostname,
    /// getifaddrs). Not with --ft coordinated and none, which record nothing. Costs little, but
    /// what is sent to another node behind it waits for its copy there: plain is for benchmarks
    /// that ask for the time around every message
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW", alias = "wtime")]
    pub clocks: Wtime,
    /// A rank that comes back and prints something else than before has diverged: all ranks go back
    /// together. Without it what was printed stays, and lines that it repeats are left out
    #[arg(long)]
    pub strict_output: bool,
    /// What becomes of what a rank appended to a file after its checkpoint, and appends again when
    /// it comes back: where it is left it is there twice. What others had open for writing at the
    /// checkpoint is never cut
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub appended: Appended,
    /// What becomes of a checkpoint of a rank that has started processes which nobody waits for
    /// (daemons): they cannot be part of it
    #[arg(long, value_enum, default_value = "refuse", value_name = "HOW")]
    pub orphans: Orphans,
    /// What becomes of files that a rank writes to and that are not as they were at its checkpoint
    /// when it comes back: written to, renamed, removed
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub files: Files,
    /// Store what files hold that are open for writing, up to this size each (of a rank four times
    /// as much in all), with its checkpoint, so that they can be put back; 0: nothing of files
    #[arg(long, value_name = "SIZE", value_parser = parse_limit, default_value = "64M")]
    pub files_limit: u64,
    /// A user and PID namespace of each node's own, in which ranks with child processes and threads
    /// get back the numbers that these had: where this user may not choose numbers otherwise
    /// (auto), in any case (yes), or never (no). In it other users, root too, are shown as nobody,
    /// and setuid programs (sudo, ping) have no rights. Where the kernel refuses it to a user
    /// without the right, a rank with child processes is not checkpointed; `eyrie info` tells
    /// [default: EYRIE_OWN_PIDS, or auto; a restart: as before, or EYRIE_OWN_PIDS]
    #[arg(long, value_name = "WHEN", value_parser = eyrie_image::OwnPids::WORDS)]
    pub own_pids: Option<String>,
    /// In place of every N-th checkpoint of each rank all ranks are checkpointed together, in one
    /// moment: to this snapshot all of them return if one of them does not repeat what is recorded
    /// of it, or its images are lost, in place of the beginning. auto: so that it takes at most 1 %
    /// of the time, and each time once it was needed; off: never. Only with --ft logged and without
    /// --keep: elsewhere a number is refused, and auto is off; with a vault other than copies, and
    /// with an order of checkpoints (--ckpt-policy), auto is off, too
    #[arg(long, default_value = "auto", value_name = "N|off|auto", value_parser = parse_fallback)]
    pub fallback_every: Fallback,
    /// In which order reductions combine what ranks give. The order, and so each bit of a sum,
    /// depends on the ranks' numbers, and with fast also on which of them were in one cluster when
    /// the job began; canonical gives the same bits with any placement, and crosses between
    /// clusters more often [default: fast]
    #[arg(long, value_enum, value_name = "ORDER", env = "EYRIE_REDUCE_ORDER")]
    pub reduce_order: Option<ReduceOrder>,
}

impl RepeatOptions {
    /// Has ranks told of the order of reductions: they are started with our environment.
    pub fn choose_order(&self) {
        let Some(order) = self.reduce_order else { return };
        let word = match order {
            ReduceOrder::Fast => "fast",
            ReduceOrder::Canonical => "canonical",
        };
        // SAFETY: no other thread is there yet.
        unsafe { std::env::set_var(ORDERS_VARIABLE, word) };
    }
}

fn parse_fallback(text: &str) -> Result<Fallback, String> {
    match text {
        "off" => Ok(Fallback::Off),
        "auto" => Ok(Fallback::Auto),
        _ => match text.parse() {
            Ok(every @ 1..) => Ok(Fallback::Every(every)),
            _ => Err(String::from("neither off, auto nor a number of checkpoints from 1 on")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_told_by_a_number_or_a_word() {
        assert_eq!(parse_fallback("off"), Ok(Fallback::Off));
        assert_eq!(parse_fallback("auto"), Ok(Fallback::Auto));
        assert_eq!(parse_fallback("3"), Ok(Fallback::Every(3)));
        for wrong in ["0", "-1", "often", "", "4294967296", "2 "] {
            assert!(parse_fallback(wrong).is_err(), "{wrong}");
        }
    }
}
