//! Nodes whose machines are about to go: a signal to a node's keeper or daemon says so (Slurm's
//! SIGTERM, the notice of a spot instance), and for so long they are there (`--grace`).
//!
//! Some are drained, with that time as the deadline. When all are to go there is nobody to drain
//! them to: then the job is saved, so that it can be restarted. So it is when the controller's
//! machine is to end (`eyrie notice` there), unless another can go on with it, and on SIGTERM to
//! the controller, if states of the job are saved in any case (`--save-every`); then it ends, also
//! if it cannot be saved.
//!
//! Kept true: what is decided waits a moment for the notices of others; what cannot be done is
//! told, and tried again as long as there is time, also what was begun and came to nothing, and
//! also by the next controller.

use crate::Job;
use crate::clock::Moment;
use crate::leaving::model::{Departures, Here};
use crate::timers::Timer;
use eyrie_control::signals::SIGTERM;
use eyrie_state::units;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Of the time that there is, what a node needs to end.
const FAREWELL: Duration = Duration::from_secs(1);

impl Departures {
    /// What the next controller needs to know of it.
    pub fn known_notices(&self) -> BTreeMap<u32, Moment> {
        self.notices.nodes.clone()
    }

    /// The same of its own.
    pub fn known_notice_here(&self) -> Option<Here> {
        self.notices.here
    }
}

impl Job {
    /// A node is told to go.
    pub(crate) fn noticed(&mut self, node: u32) {
        let clock = self.clock.now();
        if self.leaving.notices.nodes.contains_key(&node) || self.end.exit_code.is_some() {
            return;
        }
        self.leaving.notices.nodes.insert(node, clock.moment());
        let (name, grace) = (self.nodes.node_name(node), self.spec.timing.grace_ms as f64 / 1e3);
        self.journal.say(format!("{name} is told to end, and has {grace} s for it"));
        self.arm_notices();
    }

    fn arm_notices(&mut self) {
        if std::mem::replace(&mut self.leaving.notices.armed, true) {
            return;
        }
        let settle = Duration::from_millis(self.spec.timing.intervals.grace.notices_ms);
        self.arm(settle.min(self.grace() / 4), Timer::Notices);
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.spec.timing.grace_ms)
    }

    /// Does what the notices ask for, as far as that is not under way.
    pub(crate) fn heed_notices(&mut self) {
        let clock = self.clock.now();
        self.leaving.notices.armed = false;
        if self.end.exit_code.is_none() && self.leaving.notices.here.is_some() {
            return self.end_in_time();
        }
        let grace = self.grace();
        let noticed =
            self.leaving.notices.nodes.iter().filter(|(_, since)| since.elapsed(clock) < grace);
        let noticed: BTreeSet<u32> = noticed.map(|(node, _)| *node).collect();
        if self.end.exit_code.is_some() || noticed.is_empty() {
            return;
        }
        // What is begun now, or is under way, may come to nothing.
        self.arm_notices();
        if self.recovery.monitor.is_ending() || self.saving.under_way.is_some() {
            return;
        }
        let live: BTreeSet<u32> = (0u32..)
            .zip(&self.nodes.all)
            .filter(|(_, n)| n.is_live())
            .map(|(node, _)| node)
            .collect();
        let going: BTreeSet<u32> = noticed.intersection(&live).copied().collect();
        self.call_off_futile(&going);
        let result = match going.is_empty() {
            true => return,
            false if self.nobody_stays(&live, &going) => self.save_in_time(&going),
            false => self.drain_in_time(&going),
        };
        if let Err(why) = result {
            self.tell_obstacle(why);
        }
    }

    /// Tells it unless it was the last that was told.
    fn tell_obstacle(&mut self, why: String) {
        if self.leaving.notices.obstacle.as_ref() != Some(&why) {
            self.journal.say(why.clone());
        }
        self.leaving.notices.obstacle = Some(why);
    }

    /// Whether a node was told to end, and has time for it.
    pub(crate) fn is_noticed(&self, node: u32) -> bool {
        let clock = self.clock.now();
        let since = self.leaving.notices.nodes.get(&node);
        since.is_some_and(|since| since.elapsed(clock) < self.grace())
    }

    /// Whether no node is left that ranks could go to, also not when others have given theirs away.
    fn nobody_stays(&self, live: &BTreeSet<u32>, going: &BTreeSet<u32>) -> bool {
        if self.leaving.some_become_spares(going) {
            return false;
        }
        let routing = units::routing(&self.spec);
        let leaves = |node: &u32| going.contains(node) || self.leaving.nodes.contains_key(node);
        live.iter().all(|node| leaves(node) || routing.is_router(*node))
    }

    /// What the dead controller knew. A job that was told to end is to end, and has its time to be
    /// saved once more; a machine that was to end long ago does not.
    pub(crate) fn take_notices(&mut self, nodes: BTreeMap<u32, Moment>, here: Option<Here>) {
        let clock = self.clock.now();
        self.leaving.notices.nodes = nodes;
        let grace = self.grace();
        self.leaving.notices.here = match here {
            Some(Here { ends: true, .. }) => Some(Here { since: clock.moment(), ends: true }),
            here => here.filter(|here| here.since.elapsed(clock) < grace),
        };
        if !self.leaving.notices.nodes.is_empty() || self.leaving.notices.here.is_some() {
            self.arm_notices();
        }
    }

    /// What is left of the time that nodes have.
    fn time_left(&self, nodes: &BTreeSet<u32>) -> Duration {
        let clock = self.clock.now();
        let passed =
            nodes.iter().filter_map(|n| Some(self.leaving.notices.nodes.get(n)?.elapsed(clock)));
        let left = self.grace().saturating_sub(passed.max().unwrap_or_default());
        left.saturating_sub(self.farewell())
    }

    /// What is kept of it for the end.
    fn farewell(&self) -> Duration {
        FAREWELL.min(self.grace() / 4)
    }

    /// All nodes go: the job is saved.
    fn save_in_time(&mut self, nodes: &BTreeSet<u32>) -> Result<(), String> {
        self.all_stay("all nodes are to end: the job is saved");
        let left_ms = self.time_left(nodes).as_millis() as f64;
        let taken = |r: &crate::Rank| r.latest.as_ref().map_or(0.0, |l| l.taken.took_ms);
        // Its images, and bringing them here.
        let needed_ms = 2.0 * self.ranks.all.iter().map(taken).sum::<f64>();
        if needed_ms > left_ms {
            self.journal.say(format!(
                "saving the job takes about {:.1} s by what its checkpoints have taken, and there \
                 are {:.1} s: it may be lost (a longer --grace, or --save-every)",
                needed_ms / 1e3,
                left_ms / 1e3
            ));
        }
        self.journal.say("all nodes are to end: the job is saved, and goes on with eyrie restart");
        let saved = self.save_within(self.time_left(nodes), None);
        saved.map_err(|why| format!("all nodes are to end, and the job cannot be saved: {why}"))
    }

    /// Some go: their ranks go on elsewhere.
    fn drain_in_time(&mut self, nodes: &BTreeSet<u32>) -> Result<(), String> {
        let (already, new): (BTreeSet<u32>, BTreeSet<u32>) =
            nodes.iter().partition(|node| self.leaving.nodes.contains_key(node));
        for node in already {
            let left = self.time_left(&BTreeSet::from([node]));
            self.preempt(node, left.as_millis() as u64);
        }
        // Whoever is about to give its ranks away can take theirs then.
        let waits =
            self.leaving.some_become_spares(nodes) && self.recovery.some_stay(&new).is_err();
        if new.is_empty() || waits {
            return Ok(());
        }
        let limit_ms = self.time_left(&new).as_millis() as u64;
        if !self.spec.protection.ft.protects() {
            let (names, ft) = (self.nodes.names(&new), self.spec.protection.ft.name());
            return Err(format!("{names} is to end, and the job with it: it runs with --ft {ft}"));
        }
        self.drain_unasked(new.clone(), limit_ms).map_err(|why| {
            format!("{} is to end, and cannot leave the job: {why}", self.nodes.names(&new))
        })
    }

    /// SIGTERM to the controller of a job in an allocation of a batch system is the allocation's
    /// end: the job is saved, unless that is asked for already. Whether it is.
    pub(crate) fn saves_in_batch(&mut self) -> bool {
        let in_batch = self.outside.machine.in_batch(self.spec.placement.hosts.is_some());
        if !in_batch || self.spec.timing.grace_ms == 0 || self.end.exit_code.is_some() {
            return false;
        }
        if self.saving.under_way.is_some() {
            return true;
        }
        self.all_stay("the allocation ends: the job is saved");
        match self.save_within(self.grace().saturating_sub(self.farewell()), None) {
            Ok(()) => true,
            Err(why) => {
                self.journal.say(format!("the job is not saved: {why}"));
                false
            }
        }
    }

    /// SIGTERM to the controller of a job of which states are saved while it runs: it is saved
    /// once more, if it can be, and ends. Whether that is under way.
    pub(crate) fn saves_when_told(&mut self) -> bool {
        let clock = self.clock.now();
        let runs = self.recovery.planned && !self.saving.restarting;
        let saves = runs && self.flushes() && self.spec.timing.grace_ms > 0;
        if !saves || self.end.exit_code.is_some() || self.recovery.monitor.is_ending() {
            return false;
        }
        if self.leaving.notices.here.as_ref().is_none_or(|here| !here.ends) {
            self.leaving.notices.here = Some(Here { since: clock.moment(), ends: true });
            self.end_in_time();
        }
        true
    }

    /// The machine of the controller is about to end, and the job with it: it is saved, so that it
    /// can be restarted. It goes on for now if that cannot be.
    pub fn noticed_here(&mut self) -> Result<(), String> {
        let clock = self.clock.now();
        if self.end.exit_code.is_some() || self.recovery.monitor.is_ending() {
            return Err(String::from("it is ending"));
        }
        if self.spec.storage.ha.is_some() {
            let text = "it goes on with another controller, if there is one (eyrie standby)";
            return Err(text.into());
        }
        if self.spec.timing.grace_ms == 0 {
            return Err(String::from("it is not saved, as it has no time for that (--grace 0)"));
        }
        if !self.spec.protection.ft.protects() {
            return Err(format!(
                "it is not saved, as it runs with --ft {}",
                self.spec.protection.ft.name()
            ));
        }
        if self.leaving.notices.here.is_none() {
            self.leaving.notices.here = Some(Here { since: clock.moment(), ends: false });
            self.journal.say("the machine of the job's controller is to end: the job is saved");
            self.end_in_time();
        }
        Ok(())
    }

    /// The job is saved and ends; it only ends if it cannot be saved, or not in time.
    fn end_in_time(&mut self) {
        let clock = self.clock.now();
        self.arm_notices();
        let Some(Here { since, ends }) = &self.leaving.notices.here else { return };
        let (late, ends) = (since.elapsed(clock) >= self.grace(), *ends);
        let under_way = self.saving.under_way.is_some() && !(late && ends);
        if self.recovery.monitor.is_ending() || under_way {
            return;
        }
        let result = if late { Err(String::from("there is no time")) } else { self.save_here() };
        let Err(why) = result else { return };
        if ends {
            self.journal.say(format!("the job is told to end, and not saved once more: {why}"));
            return self.stop(SIGTERM);
        }
        self.tell_obstacle(format!("the controller's machine is to end, the job not saved: {why}"));
        if late {
            self.leaving.notices.here = None;
        }
    }

    fn save_here(&mut self) -> Result<(), String> {
        if self.saving.restarting || (self.many() && !self.recovery.planned) {
            return Err(String::from("it is just starting"));
        }
        self.all_stay("the job is told to end, and saved");
        let since = self.leaving.notices.here.as_ref().map(|here| here.since);
        let passed = since.map_or(Duration::ZERO, |since| since.elapsed(self.clock.now()));
        let left = self.grace().saturating_sub(passed).saturating_sub(self.farewell());
        self.save_within(left, None)
    }
}
