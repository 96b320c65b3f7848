//! Waits for what a cloud says of this machine's end.
//!
//! Kept true: a service that does not answer is asked less and less often, up to once a minute, and
//! that is said once, until it answers again; where none is found it ends, and does not wait for
//! ever.

use crate::commands::notice::args::Notice;
use crate::commands::notice::cloud::{Cloud, Metadata, USUAL};
use anyhow::anyhow;
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::time::{Duration, Instant};

/// Longest time between two questions to a service that does not answer.
const MOST: Duration = Duration::from_secs(60);
/// So often it is tried to find out whose machine this is.
const TRIES: u32 = 6;

/// Returns why the machine is about to end.
pub fn wait(cloud: Cloud, args: &Notice) -> Result<String, Failure> {
    let base = args.url.as_deref().unwrap_or(USUAL);
    if !base.starts_with("http://") {
        let text = format!("--url {base}: write http://ADDRESS[:PORT]");
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let every = Duration::from_millis(args.every.max(10));
    let mut service = Metadata::new(cloud, base, !args.ignore_rebalance);
    find(&mut service, every, base)?;
    let mut quiet = Quiet::default();
    loop {
        let (begun, waits) = (Instant::now(), service.waits());
        match service.look(every) {
            Ok(Some(why)) => return Ok(why),
            Ok(None) => {
                quiet.answers(service.cloud().name());
                // It may have waited for news itself.
                if !waits || begun.elapsed() < every / 2 {
                    std::thread::sleep(every);
                }
            }
            Err(error) => std::thread::sleep(quiet.fails(every, &error)),
        }
    }
}

fn find(service: &mut Metadata, every: Duration, base: &str) -> Result<(), Failure> {
    let mut pause = every;
    for _ in 1..TRIES {
        if service.find().is_ok() {
            return Ok(());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MOST);
    }
    service.find().map_err(|error| {
        let text = format!(
            "no metadata service of EC2, GCE or Azure answers at {base} ({error:#}): leave this \
             out, or name the cloud (--watch ec2, gce, azure) and --url"
        );
        Failure::new(FAILED, anyhow!(text))
    })
}

/// How long a service has not answered.
#[derive(Default)]
struct Quiet {
    failures: u32,
}

impl Quiet {
    /// It does not answer; how long it is let alone.
    fn fails(&mut self, every: Duration, error: &anyhow::Error) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            eprintln!("eyrie: no answer ({error:#}): it is asked again, less and less often");
        }
        (every * 2u32.saturating_pow(self.failures.min(16))).min(MOST)
    }

    fn answers(&mut self, who: &str) {
        if std::mem::take(&mut self.failures) > 0 {
            eprintln!("eyrie: {who} answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_let_alone_longer_and_longer() {
        let mut quiet = Quiet::default();
        let every = Duration::from_secs(5);
        let waits: Vec<u64> = (0..5).map(|_| quiet.fails(every, &anyhow!("x")).as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 60, 60]);
        quiet.answers("EC2");
        assert_eq!(quiet.fails(every, &anyhow!("x")).as_secs(), 10);
    }
}
