//! How long nodes have that are told to end: what `--grace` says, else what the batch system
//! leaves the processes of an allocation between SIGTERM and SIGKILL (Slurm: `KillWait`, or
//! `GraceTime` of the partition for jobs that give way to others; PBS: the queue's `kill_delay`),
//! else a fixed time.
//!
//! Kept true: less is taken than the batch system leaves, so that all is over when it kills; if it
//! does not answer the job starts all the same.

use crate::batch::system::{System, ask, system, variable};

/// If nobody says anything; less than what Slurm and Kubernetes leave by default (30 s).
const DEFAULT_MS: u64 = 25_000;
/// What PBS leaves if the queue does not say it.
const PBS_S: u64 = 10;
/// Most of that time that is left for the end of the processes; a sixth, if that is less.
const REST_MS: u64 = 5_000;
const REST: u64 = 6;

/// `asked`: by the user. `elsewhere`: the job may be over the hosts of an allocation.
pub fn grace_ms(asked: Option<u64>, elsewhere: bool) -> u64 {
    asked.unwrap_or_else(|| {
        let left = match system().filter(|_| elsewhere) {
            Some(System::Slurm) => left_by_slurm(),
            Some(System::Pbs) => Some(left_by_pbs().unwrap_or(PBS_S)),
            _ => None,
        };
        left.map_or(DEFAULT_MS, without_rest)
    })
}

fn without_rest(seconds: u64) -> u64 {
    let ms = seconds.saturating_mul(1000);
    ms - REST_MS.min(ms / REST)
}

/// Seconds from the first SIGTERM to SIGKILL, whyever it ends the job.
fn left_by_slurm() -> Option<u64> {
    let config = ask("scontrol", &["show", "config"])?;
    let partition = variable("SLURM_JOB_PARTITION")
        .and_then(|name| ask("scontrol", &["--oneliner", "show", "partition", &name]));
    let grace = partition.and_then(|text| seconds(&text, "GraceTime"));
    let waits = seconds(&config, "KillWait").into_iter().chain(grace);
    waits.filter(|wait| *wait > 0).min()
}

/// The same of the queue that the job is in.
fn left_by_pbs() -> Option<u64> {
    let queue = ask("qstat", &["-Qf", &variable("PBS_QUEUE")?])?;
    seconds(&queue, "kill_delay").filter(|wait| *wait > 0)
}

/// The number behind `name =`.
fn seconds(text: &str, name: &str) -> Option<u64> {
    let begins = |at: &usize| text[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let at = text.match_indices(name).map(|found| found.0).find(begins)?;
    let value = text[at + name.len()..].trim_start().strip_prefix('=')?.trim_start();
    value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_prints_is_understood() {
        let config = "Configuration data as of now\nKillOnBadExit           = 0\n\
                      KillWait                = 30 sec\nLaunchParameters        = (null)\n";
        assert_eq!(seconds(config, "KillWait"), Some(30));
        let partition = "PartitionName=all AllowGroups=ALL GraceTime=120 Hidden=NO";
        assert_eq!(seconds(partition, "GraceTime"), Some(120));
        let queue =
            "Queue: workq\n    queue_type = Execution\n    kill_delay = 40\n    enabled = True\n";
        assert_eq!(seconds(queue, "kill_delay"), Some(40));
        for odd in ["", "KillWait", "KillWait=", "KillWait = INFINITE", "NoKillWait=3"] {
            assert_eq!(seconds(odd, "KillWait"), None, "{odd}");
        }
    }

    #[test]
    fn something_is_left_for_the_end() {
        assert_eq!([30, 6, 300].map(without_rest), [25_000, 5_000, 295_000]);
    }
}
