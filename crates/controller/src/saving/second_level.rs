//! `--save-to`: a state of the job goes to an object store, by a thread: its list, and what nodes
//! did not bring there by themselves.
//!
//! Kept true: the job never waits for the store, but for the last state when it ends, and for a
//! moment before nodes bring something; what cannot be brought is told, and tried again until it
//! is, or until there is a newer one; files stay as long as they are being brought, as they have
//! names of their own; what nobody wants any more is brought no further.

use crate::Job;
use crate::outside::Brought;
use crate::timers::Timer;
use eyrie_control::{EventKind, SavedTo};
use eyrie_state::saved_job::SavedJob;
use std::io;
use std::time::Duration;

impl Job {
    /// Has what lies in the job's folder brought to the store.
    pub(crate) fn bring_to_depot(&mut self) {
        if self.spec.storage.save_to.is_none() {
            return;
        }
        if let Err(error) = self.outside.store.bring() {
            self.depot_failed(&error.to_string());
        }
    }

    /// Has the store looked at, before nodes bring something there. Whether that is done.
    pub(crate) fn survey_depot(&mut self, attempt: u32) -> bool {
        if let Err(error) = self.outside.store.survey(attempt) {
            self.depot_failed(&error.to_string());
            return false;
        }
        // It may not answer, or a state may be on its way there for hours.
        let limit = Duration::from_millis(self.spec.timing.intervals.limits.survey_ms);
        self.arm(limit, Timer::Survey { attempt });
        true
    }

    /// The store had time to answer: else what is brought goes to the folder.
    pub(crate) fn survey_late(&mut self, attempt: u32) {
        if self.saving.periodic.awaits_survey(attempt) {
            self.outside.store.end_attempt();
            self.order_deposits(attempt, false);
        }
    }

    /// It was looked at, or does not answer: then what is brought goes to the folder.
    pub(crate) fn surveyed(&mut self, attempt: u32, result: Result<(), String>) {
        if let Err(why) = &result {
            self.depot_failed(why);
        }
        self.order_deposits(attempt, result.is_ok());
    }

    /// Has a state of so many bytes committed there of which nodes have brought parts.
    pub(crate) fn commit_in_depot(
        &mut self,
        attempt: u32,
        bytes: u64,
        state: &SavedJob,
    ) -> io::Result<()> {
        self.console.input.sync()?;
        self.outside.store.commit(attempt, bytes, state)
    }

    /// It is there, or is not.
    pub(crate) fn committed(&mut self, attempt: u32, bytes: u64, result: Result<Brought, String>) {
        if !self.saving.periodic.is_at(attempt) {
            return;
        }
        let sent = self.saving.periodic.sent_bytes();
        let result = result.map(|brought| {
            let sent_bytes = brought.sent_bytes + sent;
            self.in_depot(Ok(Brought { sent_bytes, ..brought }));
            bytes
        });
        if let Err(why) = &result {
            self.saving.periodic.second_level.refuses = true;
            self.depot_failed(why);
        }
        self.flushed_to_depot(attempt, result);
    }

    pub(crate) fn tidy_depot(&mut self) {
        // It costs room only if it is not done.
        let _ = self.outside.store.tidy();
    }

    /// Nobody is to go on with the job.
    pub(crate) fn clear_depot(&mut self) {
        if self.spec.storage.save_to.is_some() {
            self.outside.store.clear();
        }
    }

    /// A state is in the store, or not yet.
    pub(crate) fn in_depot(&mut self, result: Result<Brought, String>) {
        let clock = self.clock.now();
        let brought = match result {
            Ok(brought) => brought,
            Err(why) => return self.depot_failed(&why),
        };
        (self.saving.periodic.second_level.told, self.saving.periodic.second_level.refuses) =
            (None, false);
        self.saving.periodic.second_level.unix_ms = Some(clock.unix_ms());
        let mut event = self.clock.event(EventKind::Stored);
        event.bytes = Some(brought.bytes);
        event.text = format!("{} bytes of it were sent", brought.sent_bytes);
        self.journal.log_event(event);
    }

    fn depot_failed(&mut self, why: &str) {
        if self.saving.periodic.second_level.told.as_deref() != Some(why) {
            let to = self.spec.storage.save_to.clone().unwrap_or_default();
            self.journal.say(format!("{to} does not get a newer state of the job, for now: {why}"));
            self.saving.periodic.second_level.told = Some(why.to_string());
        }
    }

    pub(crate) fn saved_to(&self) -> Option<SavedTo> {
        self.spec.storage.save_to.as_ref()?;
        Some(SavedTo {
            place: self.outside.store.place(),
            unix_ms: self.saving.periodic.second_level.unix_ms,
            error: self.saving.periodic.second_level.told.clone(),
            has_images: self.saving.archive.has_stored(),
        })
    }

    /// The last state could not be brought.
    pub fn depot_lacks(&mut self, why: &str) {
        self.depot_failed(why);
    }
}
