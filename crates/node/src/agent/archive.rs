//! The archive, which the controller keeps for a job that is saved as a whole: images go there and
//! come from there as they do to and from other nodes.
//!
//! Kept true: what is brought of a rank is all that it did; a damaged image is not brought.

use super::Agent;
use super::cut::recorded;
use super::death::check_image;
use super::network::bring;
use crate::recovery::ARCHIVE;
use eyrie_control::node::{Choice, FromNode};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

impl Agent {
    /// The archive is here from now on.
    pub(super) fn set_archive(&mut self, at: SocketAddr) {
        let Some(network) = &mut self.network else { return };
        let archive = (ARCHIVE.node, ARCHIVE.epoch, at);
        network.archive = Some(archive);
        let mut members = network.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|m| m.0 != ARCHIVE.node);
        members.push(archive);
    }

    /// Brings what is here of a rank to the archive.
    pub(super) fn deposit(&mut self, attempt: u32, rank: u32, generations: Vec<u32>) {
        let told = move |result| FromNode::Deposited { attempt, rank, result };
        let Some(network) = &self.network else { return };
        let (own, members) = (network.own.clone(), Arc::clone(&network.members));
        let (images, out) = (self.place.images.clone(), Arc::clone(&self.out));
        let (job, size) = (self.place.id.clone(), self.size());
        let determinants = recorded(&self.segment, rank);
        let work = move || {
            let newest = generations.last().copied().unwrap_or(0);
            let result = match check_image(&images, &job, rank, newest, size) {
                Choice::Refused { why, .. } | Choice::Unfit(why) => {
                    Err(format!("its checkpoint {newest}: {why}"))
                }
                _ => bring(&own, &members, &images, rank, generations.into_iter(), ARCHIVE.node)
                    .map_err(|e| e.to_string()),
            };
            out(told(result.map(|()| determinants)));
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-deposit"));
        if let Err(error) = thread.spawn(work) {
            self.say(told(Err(error.to_string())));
        }
    }
}
