//! A process ended: what that means, and bringing its rank back.

use super::books::Moment;
use super::{Job, Starting};
use crate::monitor::{self, signal_name};
use crate::recovery::Input;
use eyrie_control::node::{Choice, Fault, RankLook, ToNode};
use eyrie_control::{Death, EventKind, Ft, Meta, Said};
use std::time::Duration;

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1000.0
}

impl Job {
    pub(super) fn process_ended(
        &mut self,
        rank: u32,
        start: u64,
        (death, cause): (Death, Option<String>),
        said: Said,
        progress: u64,
        look: RankLook,
    ) {
        if self.proc(rank, start).is_none() {
            return;
        }
        let killed = death == Death::Signal(libc::SIGKILL);
        let out = killed && self.goes_out(rank);
        let moves = killed && self.moves_with_unit(rank);
        let r = self.rank(rank);
        r.proc = None;
        r.look = look;
        r.deaths += 1;
        if !moves {
            r.died_at = (!out).then(Moment::now);
        }
        r.gone = death == Death::Exit(0) && said != Said::Running;
        // Output is progress, too.
        let progress = r.tapes.iter().fold(progress, |n, t| n.wrapping_add(t.progress()));
        if rank == 0 {
            self.input.detach();
        }
        self.scheduler.set_live(self.units.turn(rank), false);
        self.pause_lost(rank);
        let meant = self.ranks[rank as usize].injected_at.is_some();
        if !out && !moves {
            self.report_death(rank, death, cause.as_deref());
        }
        if self.rank(rank).gone {
            self.rank_is_done(rank);
            if !self.rank(rank).gone {
                // It comes back with its unit already.
                return;
            }
        }
        let protected = self.protected();
        if self.has_fallen(rank, death, &said) {
            // It is no fault of its own.
            return self.step(monitor::Input::Lost { rank, protected });
        }
        let why = monitor::Why { cause, meant };
        self.step(monitor::Input::Died { rank, death, why, said, progress, protected });
    }

    fn report_death(&mut self, rank: u32, death: Death, cause: Option<&str>) {
        let injected = self.rank(rank).injected_at.take();
        let (kind, text) = match death {
            Death::Exit(code) => (EventKind::Exited, format!("code {code}")),
            Death::Signal(signal) => {
                let why = if self.ranks[rank as usize].falls { ", with its unit" } else { "" };
                let cause = cause.map_or(String::new(), |cause| format!(" ({cause})"));
                (EventKind::Detected, format!("died of {}{cause}{why}", signal_name(signal)))
            }
        };
        let mut event = self.event(kind);
        event.rank = Some(rank);
        event.text = text;
        if let Death::Exit(code) = death {
            event.count = u64::try_from(code).ok();
        } else {
            event.took_ms = injected.map(|at| millis(at.elapsed()));
        }
        self.log_event(event);
    }

    /// The rank ended well: it is never restored, so nothing is kept for it any more.
    fn rank_is_done(&mut self, rank: u32) {
        self.flush_output(rank);
        if self.together.is_some() && self.many() {
            self.sets_end(rank);
        }
        self.unit_ends(rank);
        // A job can be saved without it.
        for ask in self.asks.iter_mut().filter(|a| a.ends) {
            ask.left.retain(|(r, _)| *r != rank);
        }
        self.fail_asks(rank, "it has ended");
        if self.verify.is_some() {
            return;
        }
        if self.many() {
            // With its node may be lost what it had sent: then it is restored all the same.
            self.plan(Input::RankDone { rank });
            if !self.protected() {
                self.plan(Input::RankReleased { rank });
            }
            return;
        }
        if self.together.is_some() {
            // All may go back to where it had not ended.
            return self.to_all(&ToNode::Release { rank });
        }
        if self.spec.keep && self.spec.ft == Ft::Logged {
            return self.save_log(rank);
        }
        self.forget_images_but_snapshots(rank);
        self.to_all(&ToNode::Release { rank });
    }

    /// Brings a rank back: has the newest good image found.
    pub(super) fn recover(&mut self, rank: u32) {
        if self.many() {
            let r = self.rank(rank);
            if r.order.is_some() {
                return self.carry_order(rank);
            }
            let incarnation = r.incarnation;
            return self.plan(Input::RankDied { rank, incarnation });
        }
        if self.is_swapped() {
            return;
        }
        let r = self.rank(rank);
        let attempt = r.deaths;
        let generations = r.retention.newest_first().map(|k| k.generation).collect();
        self.to_home(rank, ToNode::Find { rank, attempt, generations, fetch: None });
    }

    /// The checking of images has a result.
    pub(super) fn candidate(&mut self, rank: u32, attempt: u64, choice: Choice) {
        if self.rank(rank).deaths != attempt || !self.monitor.may_start(rank) {
            return;
        }
        if self.together.is_some() {
            return self.set_candidate(rank, choice);
        }
        let kept = |job: &mut Job, g: u32| {
            job.rank(rank).retention.newest_first().any(|k| k.generation == g)
        };
        match choice {
            Choice::Refused { generation, why, .. } => {
                if kept(self, generation) {
                    self.refuse_image(rank, generation, &why);
                }
            }
            Choice::Nothing if self.rank(rank).retention.newest().is_none() => {
                let why = format!(
                    "rank {rank} cannot be restored alone: no image of it is good any more"
                );
                self.drop_bad_snapshots();
                self.step(monitor::Input::Unrecoverable { why });
            }
            Choice::Unfit(why) => self.cannot_start_here(rank, &why),
            Choice::Lacks { generation, why } => {
                if self.is_tried_again(rank, Fault::Files, generation) {
                    self.cannot_start_here(rank, &why);
                } else {
                    if kept(self, generation) {
                        self.refuse_image(rank, generation, &why);
                    }
                    self.recover(rank);
                }
            }
            Choice::Left(count) => {
                self.fatal(format!("{count} processes of the dead rank {rank} cannot be killed"));
            }
            Choice::Beginning if kept(self, 0) => {
                let meta = Meta::start(&self.place.id, rank, self.size());
                self.launch(rank, meta, true, None);
            }
            Choice::Image(meta) if kept(self, meta.generation) => {
                self.launch(rank, *meta, true, None);
            }
            // A checkpoint was completed meanwhile: choose again.
            _ => self.recover(rank),
        }
    }

    pub(super) fn recovered(&mut self, rank: u32, order: &Starting, pid: u32) {
        // With a job that is restarted it did not die.
        let moved = self.rank(rank).moves.arrives();
        if self.ranks[rank as usize].died_at.is_some() && moved.is_none() {
            self.recoveries += 1;
            if self.units.is_first(rank) {
                self.scheduler.died();
            }
            self.rank(rank).recoveries += 1;
        }
        let r = self.rank(rank);
        let took = r.died_at.map(|at| millis(at.elapsed()));
        let mut event = self.event(EventKind::Restored);
        event.rank = Some(rank);
        event.generation = Some(order.generation);
        event.node = self.home_told(rank);
        event.took_ms = took;
        let from = match order.generation {
            0 => "from the beginning",
            _ => "from its checkpoint",
        };
        let moved = match moved {
            None => String::new(),
            Some(node) if node == self.placement.home(rank) => String::from(", as its unit moves"),
            Some(node) => format!(", moved from node {node}"),
        };
        event.text = format!("{from}{moved}, pid {pid}");
        self.log_event(event);
    }

    pub(super) fn refuse_image(&mut self, rank: u32, generation: u32, why: &str) {
        let unneeded = self.rank(rank).retention.damaged(generation);
        self.remove_images(rank, unneeded);
        let text = format!("checkpoint {generation} of rank {rank} cannot be used: {why}");
        self.say(format!("{text}; the one before is taken"));
        let mut event = self.event(EventKind::ImageRefused);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.text = why.to_string();
        self.log_event(event);
    }
}
