//! `eyrie run --keep`: the logs of the ranks, saved beside their images for `eyrie replay`.
//!
//! Kept true: a log is written when its rank has ended, and the channels to it are released only
//! after that; what cannot be written is told and costs the job nothing.

use super::{Job, Msg};
use crate::replay;
use eyrie_ledger::saved::{self, From, Recorded};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How far the saving of a rank's log has come.
pub enum Saving {
    No,
    Running(JoinHandle<io::Result<u64>>),
    Done,
}

impl Job {
    /// Begins to write the log of a rank that has ended, if there is an image to go with it.
    pub(super) fn save_log(&mut self, rank: u32) {
        if matches!(self.rank(rank).saving, Saving::No) && self.has_image(rank) {
            let tell = self.tell.clone();
            match self.save_thread(rank, move || drop(tell.send(Msg::Saved { rank }))) {
                Ok(thread) => return self.rank(rank).saving = Saving::Running(thread),
                Err(error) => self.not_saved(rank, &error),
            }
        }
        self.release_channels_to(rank);
    }

    fn has_image(&mut self, rank: u32) -> bool {
        self.rank(rank).retention.newest().is_some_and(|k| k.generation > 0)
    }

    fn save_thread(
        &mut self,
        rank: u32,
        done: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<u64>>> {
        let r = self.rank(rank);
        // From the older of the kept images on.
        let floor = r.retention.floor().clone();
        let from = From { need: floor.need, det_pos: floor.det_pos };
        let output = [0, 1].map(|i| {
            let (first, bytes) = r.tapes[i].history();
            Recorded { first, bytes }
        });
        let segment = Arc::clone(&self.segment);
        let file = File::from(self.segment_fd.try_clone()?);
        let path = replay::log_path(&self.images(), rank);
        let write = move || {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let result = options
                .open(&path)
                .and_then(|to| saved::save(&file, &segment, rank, &from, &output, &to));
            if result.is_err() {
                let _ = std::fs::remove_file(&path);
            }
            done();
            result
        };
        std::thread::Builder::new().name("eyrie-save".into()).spawn(write)
    }

    /// The log of a rank is written: what it held in the others' logs is free now.
    pub(super) fn log_saved(&mut self, rank: u32) {
        self.finish_saving(rank);
        self.release_channels_to(rank);
    }

    fn finish_saving(&mut self, rank: u32) {
        let state = std::mem::replace(&mut self.rank(rank).saving, Saving::Done);
        if let Saving::Running(thread) = state {
            let result = thread.join().unwrap_or_else(|_| Err(io::Error::other("it failed")));
            if let Err(error) = result {
                self.not_saved(rank, &error);
            }
        }
    }

    fn not_saved(&mut self, rank: u32, error: &io::Error) {
        self.forget_images(rank);
        self.say(format!("the log of rank {rank} cannot be kept for a replay: {error}"));
    }

    /// At the end of the job: the logs that are not yet written. No rank runs any more.
    pub fn keep_logs(&mut self) {
        for rank in 0..self.size() {
            let unsaved = matches!(self.rank(rank).saving, Saving::No) && self.has_image(rank);
            if unsaved {
                match self.save_thread(rank, || ()) {
                    Ok(thread) => self.rank(rank).saving = Saving::Running(thread),
                    Err(error) => self.not_saved(rank, &error),
                }
            }
            self.finish_saving(rank);
        }
    }
}
