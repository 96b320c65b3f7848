//! What a job notes of its course besides events: samples while it runs, and at its end what each
//! rank has sent to each.
//!
//! Kept true: only what nodes say of themselves anyway is asked for, in no turn of its own; while
//! a job stands, ends or is verified nothing is.

use crate::Job;
use eyrie_state::samples::{MOST_BYTES, SAMPLES, Sample, Sampler, Traffic, Written};
use std::time::Duration;

/// Longest time between two looks whether one is due.
const IDLE: Duration = Duration::from_secs(2);

impl Job {
    fn samples(&self) -> bool {
        self.recovery.monitor.running() && self.verify.is_none() && !self.suspension.is_suspended()
    }

    /// Asks the nodes how their ranks are, now and then.
    pub(crate) fn tend_samples(&mut self) {
        if !self.samples() || !self.status.looks.left.is_empty() {
            return;
        }
        let (now, size) = (self.clock.now_ms(), self.size());
        let files = &self.outside.files;
        let known = || files.read(SAMPLES, MOST_BYTES).unwrap_or_default();
        let sampler = self.status.looks.sampler.get_or_insert_with(|| Sampler::new(&known(), size));
        if sampler.is_due(now) {
            self.ask_looks();
        }
    }

    /// When the next one is due.
    pub(crate) fn next_sample(&self) -> Duration {
        let due = self.status.looks.sampler.as_ref().filter(|_| self.samples());
        due.map_or(IDLE, |s| {
            let left = s.due_ms().saturating_sub(self.clock.now_ms());
            Duration::from_millis(left.max(1)).min(IDLE)
        })
    }

    /// The nodes have said that, or had time to.
    pub(crate) fn take_sample(&mut self) {
        let (now, mut sample) = (self.clock.age_ms(), None);
        if self.status.looks.sampler.as_ref().is_some_and(Sampler::is_awaited) {
            let chunk = u64::from(self.geometry().chunk_bytes);
            let looks = || self.ranks.all.iter().map(|r| &r.look);
            sample = Some(Sample {
                ms: now,
                log_bytes: looks().map(|l| l.log_chunks * chunk).sum(),
                most_bytes: looks().map(|l| l.log_chunks * chunk).max().unwrap_or(0),
                messages: looks().map(|l| l.messages_sent).sum(),
                message_bytes: looks().map(|l| l.bytes_sent).sum(),
            });
        }
        if let (Some(sampler), Some(sample)) = (&mut self.status.looks.sampler, sample) {
            let files = &self.outside.files;
            let written = match sampler.take(sample) {
                Written::Line(line) => files.append(SAMPLES, line.as_bytes()),
                Written::All(all) => files.replace(SAMPLES, all.as_bytes()),
            };
            if let Err(error) = written {
                tracing::debug!(%error, "a sample is not written");
            }
        }
    }

    /// What each rank has sent to each, if that is known of all.
    pub fn traffic(&self) -> Option<Traffic> {
        Traffic::of(self.spec.program.size, self.ranks.all.iter().map(|r| r.look.sent.as_slice()))
    }
}
