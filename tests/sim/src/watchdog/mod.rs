//! A controller and several nodes around the real `protocol::failure_detector` and
//! `protocol::machine`: who is given up, how soon, and has it ended before its ranks run elsewhere?
//!
//! Modelled: machines that die, or sleep with all that runs on them; daemons that are ten times as
//! slow, or stopped, on machines that are well; ways that are cut for a while or for good, in one
//! direction or both; a controller that is stopped, asleep, or cut off from everybody; what TCP
//! makes of that. Each end has a clock of its own, which began at another time. Then the same
//! behind a gateway (`gate`), which is the one that sees the machines.

mod gate;
mod net;
mod world;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A daemon that says nothing counts as a machine that gives no sign.
    StoppedIsGone,
    /// What is not due counts as silence.
    UndueCounts,
    /// A controller does not ask whether it is cut off itself.
    AloneIsRight,
    /// When others are heard again, who is not yet is gone.
    HeardAtOnce,
    /// Whose machine gives no sign has ended.
    GoneIsEnded,
    /// Times are taken from clocks that are set.
    WallClock,
    /// Only the silence of daemons counts.
    SignsUnused,
    /// A gateway does not ask whether it is cut off itself.
    GateIsRight,
    /// What a gateway says of a node counts, whatever the controller has heard of that one.
    WordIsEnough,
}

impl Mistake {
    pub const ALL: [Mistake; 9] = [
        Mistake::StoppedIsGone,
        Mistake::UndueCounts,
        Mistake::AloneIsRight,
        Mistake::HeardAtOnce,
        Mistake::GoneIsEnded,
        Mistake::WallClock,
        Mistake::SignsUnused,
        Mistake::GateIsRight,
        Mistake::WordIsEnough,
    ];
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub beats: u64,
    /// Nodes given up for what their machines, or their daemons, did not say.
    pub gone: u64,
    pub silent: u64,
    /// Nodes that gave the controller up.
    pub gave_up: u64,
    /// Of machines that died in otherwise quiet times: how many, and the longest until that was
    /// seen.
    pub died: u64,
    pub slowest_ms: u64,
    /// Nodes that were slow, stopped, asleep or cut off, and were not given up.
    pub borne: u64,
    /// Nodes given up by their gateway's word, and the longest until one was that died alone.
    pub missed: u64,
    pub slowest_missed_ms: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.beats += other.beats;
        self.gone += other.gone;
        self.silent += other.silent;
        self.gave_up += other.gave_up;
        self.died += other.died;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self.borne += other.borne;
        self.missed += other.missed;
        self.slowest_missed_ms = self.slowest_missed_ms.max(other.slowest_missed_ms);
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { beats, gone, silent, gave_up, died, slowest_ms, borne, .. } = self;
        let Report { missed, slowest_missed_ms, .. } = self;
        write!(
            f,
            "{beats} beats, {gone} nodes given up for their machines, {silent} for their daemons, \
             {gave_up} gave up, {borne} in trouble and not lost, {died} died alone and were missed \
             within {slowest_ms} ms; {missed} by their gateway's word, alone within \
             {slowest_missed_ms} ms"
        )
    }
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    let mut report = world::World::new(seed, mistake, trace).run()?;
    report.add(&gate::World::new(seed, mistake, trace).run()?);
    Ok(report)
}
