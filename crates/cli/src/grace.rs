//! How long nodes have that are told to end: what `--grace` says, else what Slurm leaves the
//! processes of an allocation between SIGTERM and SIGKILL (`KillWait`; `GraceTime` of the
//! partition, for jobs that give way to others), else a fixed time.
//!
//! Kept true: less is taken than Slurm leaves, so that all is over when it kills; if it does not
//! answer the job starts all the same.

use crate::slurm::variable;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// If nobody says anything; less than what Slurm leaves by default (30 s).
const DEFAULT_MS: u64 = 25_000;
/// Most of Slurm's time that is left for the end of the processes; a sixth, if that is less.
const REST_MS: u64 = 5_000;
const REST: u64 = 6;
/// Longest wait for an answer of Slurm.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// `asked`: by the user. `elsewhere`: the job may be over the hosts of an allocation.
pub fn grace_ms(asked: Option<u64>, elsewhere: bool) -> u64 {
    asked.unwrap_or_else(|| {
        let there = elsewhere && variable("SLURM_JOB_ID").is_some();
        let left = if there { left_by_slurm() } else { None };
        left.map_or(DEFAULT_MS, without_rest)
    })
}

fn without_rest(seconds: u64) -> u64 {
    let ms = seconds.saturating_mul(1000);
    ms - REST_MS.min(ms / REST)
}

/// Seconds from the first SIGTERM to SIGKILL, whyever it ends the job.
fn left_by_slurm() -> Option<u64> {
    let config = scontrol(&["show", "config"])?;
    let partition = variable("SLURM_JOB_PARTITION")
        .and_then(|name| scontrol(&["--oneliner", "show", "partition", &name]));
    let grace = partition.and_then(|text| seconds(&text, "GraceTime"));
    let waits = seconds(&config, "KillWait").into_iter().chain(grace);
    waits.filter(|wait| *wait > 0).min()
}

/// What Slurm's tool prints.
fn scontrol(args: &[&str]) -> Option<String> {
    let mut command = Command::new("scontrol");
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut out = child.stdout.take()?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = tell.send(out.read_to_string(&mut text).is_ok().then_some(text));
    });
    let text = told.recv_timeout(ANSWER_LIMIT).ok().flatten();
    if text.is_none() {
        let _ = child.kill();
    }
    let ended = child.wait().ok()?;
    text.filter(|_| ended.success())
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
        for odd in ["", "KillWait", "KillWait=", "KillWait = INFINITE", "NoKillWait=3"] {
            assert_eq!(seconds(odd, "KillWait"), None, "{odd}");
        }
    }

    #[test]
    fn something_is_left_for_the_end() {
        assert_eq!([30, 6, 300].map(without_rest), [25_000, 5_000, 295_000]);
    }
}
