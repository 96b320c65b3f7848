//! A process ended: what that means, and bringing its rank back.

use crate::monitor;
use crate::{Job, Starting};
use eyrie_control::event::WITH_UNIT;
use eyrie_control::job::gone_signal;
use eyrie_control::node::{Choice, Fault, RankLook, ToNode};
use eyrie_control::signals::{SIGKILL, signal_name};
use eyrie_control::{Death, EventKind, Meta, Said};
use eyrie_ledger::segment::{GONE_FIRST, GONE_KEEPER, GONE_OTHERS};
use std::time::Duration;

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1000.0
}

impl Job {
    pub(crate) fn process_ended(
        &mut self,
        rank: u32,
        start: u64,
        (death, cause): (Death, Option<String>),
        said: Said,
        progress: u64,
        look: RankLook,
    ) {
        let clock = self.clock.now();
        if self.ranks.proc(rank, start).is_none() {
            return;
        }
        let killed = death == Death::Signal(SIGKILL);
        let out = killed && self.ranks.goes_out(rank);
        let moves = killed && self.ranks.moves_with_unit(rank);
        let r = self.ranks.rank(rank);
        r.proc = None;
        r.sees(look);
        r.deaths.count += 1;
        if !moves {
            r.deaths.died_at = (!out).then(|| clock.moment());
        }
        r.gone = death == Death::Exit(0) && said != Said::Running;
        // Output is progress, too.
        let progress = r.tapes.iter().fold(progress, |n, t| n.wrapping_add(t.progress()));
        if rank == 0 {
            self.console.input.detach();
        }
        self.checkpoints.scheduler.set_live(self.checkpoints.units.turn(rank), false);
        self.pause_lost(rank);
        let meant = self.ranks.all[rank as usize].deaths.injected_at.is_some();
        let absent = self.ranks.missing_program(rank, death, &said);
        let elsewhere = absent.as_ref().is_some_and(|what| {
            let code = if let Death::Exit(code) = death { code } else { 0 };
            self.may_be_elsewhere(rank, &format!("exit code {code}, {what}"))
        });
        if !out && !moves && !elsewhere {
            self.report_death(rank, death, cause.as_deref());
        }
        if self.ranks.rank(rank).gone {
            self.rank_is_done(rank);
            if !self.ranks.rank(rank).gone {
                // It comes back with its unit already.
                return;
            }
        }
        let protected = self.protected();
        if self.ranks.has_fallen(rank, death, &said) {
            // It is no fault of its own.
            return self.step(monitor::Input::Lost { rank, protected });
        }
        if let Death::Signal(signal) = death
            && self.console.talk.passed.contains(&signal)
            && self.recovery.monitor.running()
        {
            self.died_of_what_was_passed(rank, signal);
        }
        let cause = cause.or_else(|| absent.map(|what| self.describe_missing_program(rank, &what)));
        let why = monitor::Why { cause, meant, elsewhere };
        self.step(monitor::Input::Died { rank, death, why, said, progress, protected });
    }

    /// The user has it so, as with any other launcher: nothing is brought back.
    fn died_of_what_was_passed(&mut self, rank: u32, signal: i32) {
        let name = signal_name(signal);
        let text = format!(
            "rank {rank} died of {name}, which was passed on to it: it has no handler for it; the \
             job ends"
        );
        self.step(monitor::Input::Fatal { text, code: 128 + signal });
    }

    fn report_death(&mut self, rank: u32, death: Death, cause: Option<&str>) {
        let clock = self.clock.now();
        let injected = self.ranks.rank(rank).deaths.injected_at.take();
        let (kind, text) = match death {
            Death::Exit(code) => (EventKind::Exited, format!("code {code}")),
            Death::Signal(signal) => {
                let why = if self.ranks.all[rank as usize].falls { WITH_UNIT } else { "" };
                let cause = cause.map_or(String::new(), |cause| format!(" ({cause})"));
                (EventKind::Detected, format!("died of {}{cause}{why}", signal_name(signal)))
            }
        };
        let mut event = self.clock.event(kind);
        event.rank = Some(rank);
        event.text = text;
        if let Death::Exit(code) = death {
            event.count = u64::try_from(code).ok();
        } else {
            event.took_ms = injected.map(|at| millis(at.elapsed(clock)));
        }
        self.journal.log_event(event);
    }

    /// The rank ended well: it is never restored, so nothing is kept for it any more.
    pub(crate) fn rank_is_done(&mut self, rank: u32) {
        self.flush_output(rank);
        self.end_coordinated(rank);
        self.unit_ends(rank);
        // A job can be saved without it.
        for ask in self.checkpoints.asks.iter_mut().filter(|a| a.ends) {
            ask.left.retain(|(r, _)| *r != rank);
        }
        self.fail_asks(rank, "it has ended", true);
        if self.verify.is_some() {
            return;
        }
        self.let_ended_go(rank);
        self.tell_of_gone();
    }

    /// Where ranks wait for programs that others start: has them know who has ended.
    pub(crate) fn tell_of_gone(&mut self) {
        let room = self.spec.program.room() as usize;
        let (begun, [others @ .., keeper]) = self.ranks.all.split_at(self.ranks.all.len() - room)
        else {
            return;
        };
        if !begun.iter().all(|r| r.gone) {
            return;
        }
        let keeper = if keeper.gone { GONE_KEEPER } else { 0 };
        let others = if others.iter().all(|r| r.gone) { GONE_OTHERS } else { 0 };
        let signal = gone_signal(GONE_FIRST | keeper | others);
        self.nodes.to_all(&ToNode::Signal { signal });
    }

    /// Where nothing is elsewhere: has the newest good image found that a rank has.
    pub(crate) fn look_for_newest(&mut self, rank: u32) {
        if self.is_swapped() {
            return;
        }
        let r = self.ranks.rank(rank);
        let attempt = r.deaths.count;
        let generations = r.retention.newest_first().map(|k| k.generation).collect();
        self.nodes.to_home(rank, ToNode::Find { rank, attempt, generations, fetch: None });
    }

    /// The checking of images has a result.
    pub(crate) fn candidate(&mut self, rank: u32, choice: Choice) {
        let kept = |job: &mut Job, g: u32| {
            job.ranks.rank(rank).retention.newest_first().any(|k| k.generation == g)
        };
        match choice {
            Choice::Refused { generation, why, .. } => {
                if kept(self, generation) {
                    self.refuse_image(rank, generation, &why);
                }
            }
            Choice::Nothing if self.ranks.rank(rank).retention.newest().is_none() => {
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

    pub(crate) fn recovered(&mut self, rank: u32, order: &Starting, pid: u32) {
        let clock = self.clock.now();
        // With a job that is restarted it did not die.
        let moved = self.ranks.rank(rank).moves.arrives();
        if self.ranks.all[rank as usize].deaths.died_at.is_some() && moved.is_none() {
            self.recovery.recoveries += 1;
            if self.checkpoints.units.is_first(rank) {
                self.checkpoints.scheduler.died();
            }
            self.ranks.rank(rank).deaths.recoveries += 1;
        }
        let r = self.ranks.rank(rank);
        let took = r.deaths.died_at.map(|at| millis(at.elapsed(clock)));
        let mut event = self.clock.event(EventKind::Restored);
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
            Some(node) if node == self.nodes.placement.home(rank) => {
                String::from(", as its unit moves")
            }
            Some(node) => format!(", moved from node {node}"),
        };
        event.text = format!("{from}{moved}, pid {pid}");
        self.journal.log_event(event);
    }

    pub(crate) fn refuse_image(&mut self, rank: u32, generation: u32, why: &str) {
        let unneeded = self.ranks.rank(rank).retention.damaged(generation);
        self.remove_images(rank, unneeded);
        let text = format!("checkpoint {generation} of rank {rank} cannot be used: {why}");
        self.journal.say(format!("{text}; the one before is taken"));
        let mut event = self.clock.event(EventKind::ImageRefused);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.text = why.to_string();
        self.journal.log_event(event);
    }
}
