//! `eyrie run --keep`: the logs of the ranks, saved beside their images for `eyrie replay`. And
//! what all ranks need of the segment, when a whole job is saved.
//!
//! Kept true: a log is written when its rank has ended; what cannot be written is told and leaves
//! no file.

use super::{Agent, Msg};
use crate::replay;
use eyrie_control::auth::Key;
use eyrie_control::node::{FromNode, Written};
use eyrie_ledger::saved::{self, From, Recorded};
use eyrie_state::local::images::bring;
use eyrie_state::sealing;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

impl Agent {
    pub(super) fn save_log(
        &mut self,
        rank: u32,
        need: Vec<u64>,
        det_pos: u64,
        output: [Written; 2],
    ) {
        let output = output.map(|w| Recorded { first: w.first, bytes: w.bytes });
        match self.save_thread(rank, From { need, det_pos }, output) {
            Ok(thread) => self.rank(rank).saving = Some(thread),
            Err(error) => self.say(FromNode::Saved { rank, error: Some(error.to_string()) }),
        }
    }

    fn save_thread(
        &mut self,
        rank: u32,
        from: From,
        output: [Recorded; 2],
    ) -> io::Result<JoinHandle<io::Result<u64>>> {
        let segment = Arc::clone(&self.segment);
        let file = File::from(self.segment_file.fd.try_clone()?);
        let path = replay::log_path(&self.place.images, rank);
        let tell = self.tell.clone();
        let write = move || {
            let save = |to: &File| saved::save(&file, &segment, rank, &from, &output, to);
            let result = sealing::create(&path, true, save);
            if result.is_err() {
                let _ = std::fs::remove_file(&path);
            }
            let _ = tell.send(Msg::Saved { rank });
            result
        };
        std::thread::Builder::new().name("eyrie-save".into()).spawn(write)
    }

    /// Writes what all ranks need of the segment, in a thread.
    pub(super) fn save_segment(&self, name: String) {
        let segment = Arc::clone(&self.segment);
        let (images, saved) = (self.place.images.clone(), self.place.saved.clone());
        let path = images.join(&name);
        let file = self.segment_file.fd.try_clone().map(File::from);
        self.save_in_thread(name, move || {
            let file = file?;
            let bytes = sealing::create(&path, true, |to| saved::save_all(&file, &segment, to))?;
            saved.map_or(Ok(()), |saved| bring(&images, &saved))?;
            Ok(bytes)
        });
    }

    /// Runs `write` in a thread, and tells what became of the file. Whether there is one.
    pub(super) fn save_in_thread(
        &self,
        name: String,
        write: impl FnOnce() -> io::Result<u64> + Send + 'static,
    ) -> bool {
        let path = self.place.images.join(&name);
        let (tell, file) = (self.tell.clone(), name.clone());
        let write = move || {
            let result = write();
            if result.is_err() {
                let _ = std::fs::remove_file(&path);
            }
            let result = result.map_err(|e| format!("{}: {e}", path.display()));
            let _ = tell.send(Msg::SegmentSaved { name: file, result });
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-save"));
        let started = thread.spawn(write);
        if let Err(error) = &started {
            self.say(FromNode::SegmentSaved { name, result: Err(error.to_string()) });
        }
        started.is_ok()
    }

    /// A controller has to know what nodes encrypt with, for those that are still to come.
    pub(super) fn tell_at_rest(&self) {
        if let Some(key) = sealing::key() {
            self.say(FromNode::AtRest(Key(*key)));
        }
    }

    pub(super) fn log_saved(&mut self, rank: u32) {
        let Some(thread) = self.rank(rank).saving.take() else { return };
        let result = thread.join().unwrap_or_else(|_| Err(io::Error::other("it failed")));
        self.say(FromNode::Saved { rank, error: result.err().map(|e| e.to_string()) });
    }
}
