//! A checkpoint of all ranks together (`--ft coordinated`).
//!
//! Kept true: every rank stands still, at a place where its own memory and the segment agree, from
//! before the first byte of the segment is copied until after the last one; so the images and that
//! copy are one state of the job. If one of them does not come to stand, the others go on.

use super::{Agent, Msg, saving};
use crate::checkpoint::Pipes;
use eyrie_control::node::FromNode;
use eyrie_ledger::saved;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The checkpoint, until the ranks go on.
pub(super) struct Together {
    generation: u32,
    /// Name of the segment's file.
    segment: String,
    /// Ranks that do not stand still yet.
    left: BTreeSet<u32>,
    /// Those that do: number of the start, and who waits.
    standing: BTreeMap<u32, (u64, Sender<Option<Pipes>>)>,
    /// The segment is being copied, which is told by itself.
    copying: bool,
}

impl Agent {
    pub(super) fn checkpoint_all(
        &mut self,
        ranks: &[(u32, u64)],
        generation: u32,
        incremental: bool,
        hold: bool,
        segment: String,
    ) {
        let left = ranks.iter().map(|r| r.0).collect();
        let standing = BTreeMap::new();
        self.together = Some(Together { generation, segment, left, standing, copying: false });
        for &(rank, start) in ranks {
            self.checkpoint(rank, start, generation, incremental, hold);
        }
    }

    /// A rank stands still.
    pub(super) fn stands(
        &mut self,
        rank: u32,
        start: u64,
        generation: u32,
        answer: Sender<Option<Pipes>>,
    ) {
        let awaited = |t: &&mut Together| t.generation == generation && t.left.contains(&rank);
        let Some(together) = self.together.as_mut().filter(awaited) else {
            let _ = answer.send(None);
            return;
        };
        together.left.remove(&rank);
        together.standing.insert(rank, (start, answer));
        if !together.left.is_empty() {
            return;
        }
        together.copying = true;
        let name = together.segment.clone();
        let path = self.place.images.join(&name);
        let (segment, tell) = (Arc::clone(&self.segment), self.tell.clone());
        let file = self.segment_fd.try_clone().map(File::from);
        self.save_in_thread(name, move || {
            let copy = file.and_then(|file| saved::copy_all(&file, &segment));
            let _ = tell.send(Msg::SegmentCopied { generation, whole: copy.is_ok() });
            let mut copy = copy?;
            io::Seek::rewind(&mut copy)?;
            let mut to = saving::create(&path)?;
            let bytes = io::copy(&mut copy, &mut to)?;
            to.sync_all()?;
            Ok(bytes)
        });
    }

    /// The segment is copied: the ranks may go on as soon as their own memory is kept.
    pub(super) fn segment_copied(&mut self, generation: u32, whole: bool) {
        let Some(together) = self.together.take_if(|t| t.generation == generation) else { return };
        for (rank, (start, answer)) in together.standing {
            let pipes = self.pipes(rank, start).filter(|_| whole);
            let _ = answer.send(pipes);
        }
    }

    /// A rank does not stand still, or not any more.
    pub(super) fn falls_out(&mut self, rank: u32) {
        let waits = |t: &mut Together| t.left.contains(&rank);
        if self.together.as_mut().is_some_and(waits) {
            self.give_up_together();
        }
    }

    /// Ranks that stand still go on.
    pub(super) fn give_up_together(&mut self) {
        let Some(together) = self.together.take() else { return };
        for (_, answer) in together.standing.into_values() {
            let _ = answer.send(None);
        }
        if !together.copying {
            let result = Err(String::from("not all ranks came to stand still"));
            self.say(FromNode::SegmentSaved { name: together.segment, result });
        }
    }
}
