//! The object store that states of a job are brought to (`--save-to`).
//!
//! Kept true: the job never waits for it: what came of an order is told.

use eyrie_state::saved_job::SavedJob;
use std::collections::BTreeMap;
use std::io;

/// What was brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brought {
    pub bytes: u64,
    /// Of these had to be sent.
    pub sent_bytes: u64,
}

/// The place of this job in an object store.
pub trait ObjectStore {
    /// Its name.
    fn place(&self) -> String;
    /// Has what lies in the job's folder brought there; the newest only (`Msg::InDepot`).
    fn bring(&self) -> io::Result<()>;
    /// Has it looked at, before nodes bring something there in this attempt (`Msg::Surveyed`).
    fn survey(&self, attempt: u32) -> io::Result<()>;
    /// What is to be done for what nodes bring is not wanted any more.
    fn end_attempt(&self);
    /// Has a state of so many bytes committed there of which nodes have brought parts; tried once
    /// (`Msg::Committed`).
    fn commit(&self, attempt: u32, bytes: u64, state: &SavedJob) -> io::Result<()>;
    /// Has removed what is not needed any more. No node is bringing anything.
    fn tidy(&self) -> io::Result<()>;
    /// Nobody is to go on with the job: nothing of it is to stay there, once the last node has
    /// ended.
    fn clear(&self);
    /// What nodes are told, by their ranks, of the ways past the controller for what they bring in
    /// an attempt, so that only they can read it. `stored`: what was looked at goes to the store.
    fn ways(
        &self,
        attempt: u32,
        stored: bool,
        ranks: &BTreeMap<u32, Vec<u32>>,
    ) -> Vec<(u32, Vec<u8>)>;
}
