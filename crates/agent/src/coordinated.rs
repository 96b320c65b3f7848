//! A checkpoint of all ranks together (`--ft coordinated`; a snapshot of ranks that else have their
//! checkpoints alone, for when they cannot be brought back by what is recorded of them).
//!
//! Kept true: every rank stands still, at a place where its own memory and the segment agree, from
//! before the first byte of the segment is copied until after the last one, and until what is in
//! flight on connections between them is read; so the images and that are one state of the job. If
//! one of them does not come to stand, the others go on.
//!
//! Over nodes what each rank has sent is copied in place of the segment, and ranks stand until the
//! controller says that those of all nodes do. What came over connections of their own between
//! nodes is read in between. With `--ft cluster` it is the same with the ranks of one unit, of
//! which only what they sent each other is copied; with `--ft node` these all live here, and go on
//! as soon as it is.

use super::state::capture::Wanted;
use super::state::image_copy::{Copy, Sent};
use super::state::together::{Copied, Ends, Logs, Together};
use super::{Agent, Msg};
use crate::checkpoint::{GoOn, Stands};
use eyrie_control::cross_node_sockets::{MatchedEnd, SocketEnd};
use eyrie_control::node::{FromNode, SetPart};
use eyrie_image::{Between, ProcessTree};
use eyrie_ledger::saved;
use eyrie_ledger::segment::Segment;
use eyrie_ledger::walk::Walk;
use eyrie_state::{saved_job, sealing};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Why a node takes no part in a checkpoint of several.
pub(super) const UNLED: &str = "another controller may lead by now";

impl Agent {
    pub(super) fn checkpoint_all(
        &mut self,
        ranks: &[(u32, u64)],
        generation: u32,
        incremental: bool,
        hold: bool,
        segment: String,
    ) {
        self.stand_together(generation, Some(segment), ranks.iter().map(|r| r.0));
        for &(rank, start) in ranks {
            self.checkpoint(Wanted { rank, start, generation, incremental, hold });
        }
    }

    fn stand_together(
        &mut self,
        generation: u32,
        segment: Option<String>,
        ranks: impl Iterator<Item = u32>,
    ) {
        let (left, standing, logs) = (ranks.collect(), BTreeMap::new(), Logs::new());
        let (copying, between) = (false, Between::default());
        self.together =
            Some(Together { generation, segment, left, standing, copying, logs, between });
    }

    /// The ranks of this node, of a set of several.
    pub(super) fn checkpoint_set(
        &mut self,
        parts: Vec<SetPart>,
        generation: u32,
        incremental: bool,
        hold: bool,
    ) {
        self.stand_together(generation, None, parts.iter().map(|p| p.rank));
        if self.suspension.is_leaderless() {
            self.leave_together(UNLED);
        }
        for SetPart { rank, start, partner, missing, key } in parts {
            self.rank(rank).capture.copy = Some(Copy::to(partner, missing, key));
            self.checkpoint(Wanted { rank, start, generation, incremental, hold });
        }
    }

    /// A rank stands still.
    pub(super) fn stands(&mut self, rank: u32, start: u64, generation: u32, stands: Stands) {
        let awaited = |t: &&mut Together| t.generation == generation && t.left.contains(&rank);
        let Some(together) = self.together.as_mut().filter(awaited) else {
            let _ = stands.answer.send(None);
            return;
        };
        together.left.remove(&rank);
        together.standing.insert(rank, (start, stands));
        if !together.left.is_empty() {
            return;
        }
        let Some(name) = together.segment.clone() else { return self.copy_sent(generation) };
        if let Some(rank) = self.behind() {
            return self.stand_in_vain(format!("rank {rank} repeats itself"));
        }
        let Some(together) = &mut self.together else { return };
        together.copying = true;
        let families: Vec<ProcessTree> =
            together.standing.values().map(|(_, stands)| stands.family.clone()).collect();
        let path = self.place.images.join(&name);
        let logged = self.spec.protection.ft.goes_back_alone();
        // Else they come back together from this one on.
        let alone = logged && !saved_job::is_segment(&name);
        let (segment, tell) = (Arc::clone(&self.segment), self.tell.clone());
        let file = self.segment_file.fd.try_clone().map(File::from);
        let copies = self.save_in_thread(name, move || {
            let copy = file.and_then(|file| match logged {
                true => saved::copy_unread(&file, &segment),
                false => saved::copy_all(&file, &segment),
            });
            // Sockets of ranks that come back alone, too, are closed whenever they do.
            let between = || if alone { Between::default() } else { Between::look(&families) };
            let copied = copy.is_ok().then(|| Arc::new(between()));
            let _ = tell.send(Msg::SegmentCopied { generation, copied });
            let mut copy = copy?;
            io::Seek::rewind(&mut copy)?;
            sealing::create(&path, true, |mut to| {
                let bytes = io::copy(&mut copy, &mut to)?;
                to.sync_all()?;
                Ok(bytes)
            })
        });
        if !copies {
            self.segment_copied(generation, None);
        }
    }

    /// Whether a rank is checkpointed together with others.
    pub(super) fn is_of_set(&self, rank: u32, generation: u32) -> bool {
        let of = |t: &Together| t.generation == generation && t.has(rank);
        self.spec.protection.ft.stands_together() || self.together.as_ref().is_some_and(of)
    }

    /// One that stands and is not where what is recorded of it ends: others may have received what
    /// it will only send again. With `--ft coordinated` nobody ever is.
    fn behind(&self) -> Option<u32> {
        let repeats = |rank: u32| self.segment.rank(rank).replaying.load(Ordering::Acquire) != 0;
        let standing = self.together.as_ref().map(|t| t.standing.keys().copied());
        let logged = self.spec.protection.ft.goes_back_alone();
        standing.into_iter().flatten().find(|rank| logged && repeats(*rank))
    }

    /// The segment is copied: the ranks may go on as soon as their own memory is kept.
    pub(super) fn segment_copied(&mut self, generation: u32, copied: Option<Arc<Between>>) {
        let Some(together) = self.together.take_if(|t| t.generation == generation) else { return };
        for (rank, (start, stands)) in together.standing {
            let go_on = self.pipes(rank, start).zip(copied.clone());
            let go_on = go_on.map(|(pipes, between)| GoOn { pipes, between });
            let _ = stands.answer.send(go_on);
        }
    }

    /// All ranks here stand: copies what they have sent, before anybody learns of that.
    fn copy_sent(&mut self, generation: u32) {
        if let Some(rank) = self.behind() {
            self.give_up_together();
            return self.say_stands(generation, Err(format!("rank {rank} repeats itself")));
        }
        let Some(together) = &self.together else { return };
        let ranks: Vec<u32> = together.standing.keys().copied().collect();
        let (segment, tell) = (Arc::clone(&self.segment), self.tell.clone());
        let file = self.segment_file.fd.try_clone().map(File::from);
        let (of_unit, logged) =
            (self.spec.protection.ft.has_units(), self.spec.protection.ft.goes_back_alone());
        let families: Vec<ProcessTree> = match self.spec.protection.ft.all_go_back() {
            true => together.standing.values().map(|s| s.1.family.clone()).collect(),
            false => Vec::new(),
        };
        let copy = move || {
            let copies = file.and_then(|file| {
                let sent = |rank| match of_unit {
                    true => saved::hold(&file, &segment, rank).map(Sent::Inner),
                    false => saved::copy_streams(&file, &segment, rank).map(Sent::All),
                };
                let copy = |rank: &u32| Ok((*rank, sent(*rank)?));
                ranks.iter().map(copy).collect::<io::Result<Logs>>()
            });
            let size = segment.geometry().ranks;
            let ends = |rank| (rank, (0..size).map(|to| sent_upto(&segment, rank, to)).collect());
            let sent = ranks.iter().filter(|_| logged).map(|rank| ends(*rank)).collect();
            let copied = copies.map(|logs| {
                let (between, ends) = Between::look_over_nodes(&families);
                let ends = ends.into_iter().map(far_end).collect();
                Copied { logs, sent, between, ends }
            });
            let _ = tell.send(Msg::SentCopied { generation, copied });
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-sent"));
        if let Err(error) = thread.spawn(copy) {
            self.sent_copied(generation, Err(error));
        }
    }

    /// What the ranks here have sent is copied: the controller hears that they stand.
    pub(super) fn sent_copied(&mut self, generation: u32, copied: io::Result<Copied>) {
        let this = |t: &&mut Together| t.generation == generation;
        let Some(together) = self.together.as_mut().filter(this) else { return };
        let result = match copied {
            Ok(Copied { logs, sent, between, ends }) => {
                (together.logs, together.between) = (logs, between);
                if self.spec.protection.ft.stays_on_a_node() {
                    return self.go_on(generation, true);
                }
                Ok((ends, sent))
            }
            Err(error) => {
                self.give_up_together();
                Err(format!("what its ranks have sent cannot be copied: {error}"))
            }
        };
        self.say_stands(generation, result);
    }

    fn say_stands(&self, generation: u32, result: Result<(Vec<SocketEnd>, Ends), String>) {
        let (result, sent) = match result {
            Ok((ends, sent)) => (Ok(ends), sent),
            Err(why) => (Err(why), Ends::new()),
        };
        self.say(FromNode::Stands { generation, result, sent });
    }

    /// The ranks of all nodes stand: reads what has come over connections between these.
    pub(super) fn read_far(&mut self, generation: u32, joints: Vec<MatchedEnd>) {
        let this = |t: &&mut Together| t.generation == generation;
        let Some(together) = self.together.as_mut().filter(this) else { return };
        let (mut between, tell) = (std::mem::take(&mut together.between), self.tell.clone());
        let joints: Vec<_> = joints.into_iter().map(far_joint).collect();
        let read = move || {
            between.join(&joints);
            let _ = tell.send(Msg::FarRead { generation, between });
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-far"));
        if let Err(error) = thread.spawn(read) {
            self.give_up_together();
            let result = Err(format!("what its ranks have received cannot be read: {error}"));
            self.say(FromNode::HasRead { generation, result });
        }
    }

    /// That is done.
    pub(super) fn far_read(&mut self, generation: u32, between: Between) {
        let this = |t: &&mut Together| t.generation == generation;
        let Some(together) = self.together.as_mut().filter(this) else { return };
        together.between = between;
        self.say(FromNode::HasRead { generation, result: Ok(()) });
    }

    /// The ranks of all nodes stand, and may go on as soon as their memory is kept; or go on
    /// without.
    pub(super) fn go_on(&mut self, generation: u32, keep: bool) {
        let Some(mut together) = self.together.take_if(|t| t.generation == generation) else {
            return;
        };
        if !keep {
            self.together = Some(together);
            return self.give_up_together();
        }
        let between = Arc::new(together.between);
        for (rank, (start, stands)) in together.standing {
            let log = together.logs.remove(&rank);
            if let Some(copy) = &mut self.rank(rank).capture.copy {
                copy.log = log;
            }
            let between = Arc::clone(&between);
            let pipes = self.pipes(rank, start);
            let _ = stands.answer.send(pipes.map(|pipes| GoOn { pipes, between }));
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
        self.stand_in_vain(String::from("not all ranks came to stand still"));
    }

    /// The same for a reason that no rank's own checkpoint tells of: one that does not stand yet
    /// has its image by itself then, and those of other nodes must not wait for it.
    pub(super) fn leave_together(&mut self, why: &str) {
        let Some(Together { generation, segment: None, .. }) = self.together else {
            return self.give_up_together();
        };
        self.give_up_together();
        self.say_stands(generation, Err(String::from(why)));
    }

    fn stand_in_vain(&mut self, why: String) {
        let Some(together) = self.together.take() else { return };
        for (_, stands) in together.standing.into_values() {
            let _ = stands.answer.send(None);
        }
        if let Some(name) = together.segment.filter(|_| !together.copying) {
            self.say(FromNode::SegmentSaved { name, result: Err(why) });
        }
    }
}

/// Position up to which a rank that stands has sent to another.
fn sent_upto(segment: &Segment, rank: u32, to: u32) -> u64 {
    let next = segment.channel(rank, to).chunks_next.load(Ordering::Acquire);
    // The last chunk may be gone already, if the receiver has passed it.
    let Some(last) = next.checked_sub(1) else { return 0 };
    let Some(mut walk) = Walk::from_chunk(segment, rank, to, last) else {
        return next * u64::from(segment.geometry().chunk_bytes);
    };
    while matches!(walk.step(segment), Ok(Some(_))) {}
    walk.pos()
}

fn far_end(end: eyrie_image::CrossNodeEnd) -> SocketEnd {
    let eyrie_image::CrossNodeEnd { socket, own, peer, network, behind } = end;
    SocketEnd { socket, own, peer, network, behind }
}

fn far_joint(joint: MatchedEnd) -> eyrie_image::CrossNodeConnection {
    let MatchedEnd { socket, link, behind } = joint;
    eyrie_image::CrossNodeConnection { socket, link, behind }
}
