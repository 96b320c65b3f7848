//! How long the other end of a connection may be silent before it counts as lost: between the
//! controller, which gives a node up first, and the node, which is to have ended before its ranks
//! run elsewhere.
//!
//! Pure: the caller says what time it is. Kept true: the limit follows the longest silence that
//! turned out to be none, within bounds; time in which the caller itself did not run (a machine
//! that stood still) hardly counts for the controller; a node bears what it was granted and no
//! more, however long it was used to wait or stood still itself, so the controller knows when a
//! node has ended that it does not hear of any more.
//!
//! A node's time runs from the moment at which it said the last thing that it knows to have been
//! heard: its beats bear a stamp, the controller's beats the last stamp that came. So what is late
//! on its way, however late, keeps no node alive that the controller has given up since.
//!
//! A node that is a process of its controller's machine is never cut off from it, and is killed
//! before its ranks run elsewhere: it need not end by itself, and bears a controller that stands
//! still, or takes long to die.
//!
//! The last node that there is is waited for as long as for anything: nobody could go on in its
//! place, and without it the job is over. A node that has not come up yet is waited for as long,
//! but is granted no more than any other: nothing is lost by waiting, and the job cannot begin
//! without it.

use crate::timing::Detector;
use std::collections::VecDeque;

/// In this time a node that gives up has killed what runs on it.
pub const CLEARING_MS: u64 = 1_000;
/// A node that stood still has so many heartbeats of time, and so long at least, to hear that it is
/// heard of.
const ROUND_BEATS: u64 = 5;
const ROUND_LEAST_MS: u64 = 500;
/// So many heartbeats later, and so much at least, a node that is ten times as slow sees that its
/// time is over. A busy machine is no quicker for short heartbeats.
const LATE_BEATS: u64 = 10;
const LATE_LEAST_MS: u64 = 1_000;
/// The limit, in longest silences.
const TIMES: u64 = 8;
/// So much longer than a node may hold a grant it is remembered.
const REMEMBERED_MS: u64 = 5_000;

/// What follows from the durations that are set. The clock is to be looked at with every heartbeat;
/// of a longer gap twice this counts.
impl Detector {
    /// In which a node that stood still hears that it is heard of.
    pub const fn round_ms(&self) -> u64 {
        at_least(ROUND_LEAST_MS, ROUND_BEATS * self.heartbeat_ms)
    }

    const fn late_ms(&self) -> u64 {
        at_least(LATE_LEAST_MS, LATE_BEATS * self.heartbeat_ms)
    }

    /// Granted from the beginning on to a node that reaches its controller through gateways only,
    /// by rule, so that it bears that also before it was told: a gateway may die, and be noticed,
    /// and the next one start meanwhile. And to the last node.
    pub const fn held_ms(&self) -> u64 {
        self.silence_most_ms
    }

    /// A grant that was said last so long ago is held by no node that lives: it would have given
    /// up.
    const fn memory_ms(&self) -> u64 {
        borne(self.silence_most_ms) + REMEMBERED_MS
    }

    /// So long after the controller hung up nothing is left of a node that was granted that, and
    /// whose last stamp it had heard so long before. None: it may have been just now, as another
    /// controller heard it, or as nobody took the node's calls since, and its time began anew.
    pub fn clear_after(&self, granted_ms: u64, known_ms: Option<u64>) -> u64 {
        let granted_ms = granted_ms.max(self.silence_least_ms);
        let clear_ms = borne(granted_ms) + self.late_ms() + CLEARING_MS;
        clear_ms.saturating_sub(known_ms.unwrap_or(0))
    }

    /// A grant as the journal has it: not below, and seldom another one.
    pub fn rounded(&self, granted_ms: u64) -> u64 {
        let most = self.silence_most_ms;
        let steps = [self.silence_least_ms, most / 4, most / 2, most];
        steps.into_iter().find(|step| granted_ms <= *step).unwrap_or(most)
    }

    /// How long the controller still waits for a node behind gateways whose connection has ended,
    /// and of which nothing was heard for so long before: it may call again through the next
    /// gateway.
    pub fn hold_ms(&self, silent_ms: u64) -> u64 {
        self.held_ms().saturating_sub(silent_ms)
    }
}

/// The longer of two times, also for constants.
const fn at_least(least_ms: u64, ms: u64) -> u64 {
    if ms < least_ms { least_ms } else { ms }
}

/// What a node bears by a grant: more than the controller, which gives it up before.
const fn borne(granted_ms: u64) -> u64 {
    granted_ms * 5 / 4
}

/// Which end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Controller,
    Node,
}

/// How long a controller waits for a node that says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// By what both are used to.
    Usual,
    /// It has not come up yet: as long as is ever borne, granting the usual.
    Joining,
    /// There is no other: so much is granted, too.
    Last,
}

/// What one end knows of the connection.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    detector: Detector,
    side: Side,
    habit: SilenceTracker,
    /// What the other end says: what the node is used to, or what the controller grants.
    other_ms: u64,
    /// What is granted at least.
    least_ms: u64,
    /// What a node bears that its controller can kill.
    near_ms: u64,
    patience: Patience,
    /// Grants, and when each was said last; smaller ones behind larger ones.
    granted: VecDeque<(u64, u64)>,
    /// The latest stamp of the node's that the controller has heard, as far as this end knows, in
    /// the node's time.
    stamp_ms: Option<u64>,
    /// When the controller heard it.
    stamped_ms: Option<u64>,
    seen_ms: u64,
    /// When the node saw last that it had stood still.
    woke_ms: Option<u64>,
    /// The same, where its time was over by then, or a moment later.
    stood_ms: Option<u64>,
}

impl Heartbeat {
    pub fn new(detector: Detector, side: Side, now_ms: u64) -> Heartbeat {
        Heartbeat::granting(detector, detector.silence_least_ms, side, now_ms)
    }

    /// That of a node that reaches its controller through gateways only.
    pub fn held(detector: Detector, side: Side, now_ms: u64) -> Heartbeat {
        Heartbeat::granting(detector, detector.held_ms(), side, now_ms)
    }

    /// That of a node that its controller can kill, and that bears so much.
    pub fn near(detector: Detector, bears_ms: u64, now_ms: u64) -> Heartbeat {
        Heartbeat { near_ms: bears_ms, ..Heartbeat::new(detector, Side::Node, now_ms) }
    }

    /// The same when it has called again: its time goes on from the last stamp of which it knows
    /// that it was heard. Who takes the call need not know yet whether the node was declared lost.
    pub fn held_since(detector: Detector, stamp_ms: u64, now_ms: u64) -> Heartbeat {
        let held = Heartbeat::held(detector, Side::Node, now_ms);
        Heartbeat { stamp_ms: Some(stamp_ms.min(now_ms)), ..held }
    }

    fn granting(detector: Detector, least_ms: u64, side: Side, now_ms: u64) -> Heartbeat {
        let mut heartbeat = Heartbeat {
            detector,
            side,
            habit: SilenceTracker::new(detector.heartbeat_ms, now_ms),
            other_ms: 0,
            least_ms,
            near_ms: 0,
            patience: Patience::Usual,
            granted: VecDeque::new(),
            // As it is called by the node, it is heard of then.
            stamp_ms: (side == Side::Node).then_some(now_ms),
            stamped_ms: None,
            seen_ms: now_ms,
            woke_ms: None,
            stood_ms: None,
        };
        heartbeat.grant(now_ms);
        heartbeat
    }

    /// Something came.
    pub fn heard(&mut self, now_ms: u64) {
        if self.side == Side::Controller {
            self.habit.heard(now_ms);
        }
        self.grant(now_ms);
    }

    /// A beat came: the other end says what it is used to, or grants; the node with the stamp of
    /// the beat, the controller with the last stamp that it has heard.
    pub fn told(&mut self, other_ms: u64, stamp_ms: Option<u64>, now_ms: u64) {
        self.other_ms = other_ms.min(self.detector.silence_most_ms);
        let fresh = stamp_ms.filter(|s| self.stamp_ms.is_none_or(|known| known < *s));
        // One that this node has not given yet is none.
        let fresh = fresh.filter(|s| self.side == Side::Controller || *s <= now_ms);
        if let Some(stamp) = fresh {
            (self.stamp_ms, self.stamped_ms) = (fresh, Some(now_ms));
            if self.side == Side::Node {
                self.habit.went_round(stamp, now_ms);
            }
        }
        self.grant(now_ms);
    }

    /// What a controller bears of the node at the other end.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Whether the other end has been silent for too long. What has come is to be read before.
    pub fn over(&mut self, now_ms: u64) -> bool {
        let stood = now_ms.saturating_sub(self.seen_ms) > 2 * self.detector.heartbeat_ms;
        self.seen_ms = now_ms;
        let joining = self.patience == Patience::Joining;
        let least_ms = if joining { self.detector.silence_most_ms } else { 0 };
        let habit_over = self.habit.passed(now_ms) > self.limit_ms().max(least_ms);
        self.grant(now_ms);
        if self.side == Side::Controller {
            return habit_over;
        }
        if stood {
            self.woke_ms = Some(now_ms);
        }
        if self.silent_ms(now_ms) <= self.limit_ms() {
            self.stood_ms = None;
            return false;
        }
        // The controller may not have looked either: whether it has, it can say once more. Also
        // where this node woke up just before its time was over.
        match self.stood_ms {
            Some(since) => now_ms > since + self.detector.round_ms(),
            None => {
                let round_ms = self.detector.round_ms();
                self.stood_ms = self.woke_ms.filter(|at| now_ms <= at + round_ms);
                self.stood_ms.is_none()
            }
        }
    }

    /// For how long nothing was heard; for a node: for how long it does not know that it was.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        match self.side {
            Side::Controller => self.habit.silent_ms,
            Side::Node => now_ms.saturating_sub(self.stamp_ms.unwrap_or(0)),
        }
    }

    /// How long a silence this end bears.
    pub fn limit_ms(&self) -> u64 {
        match self.side {
            Side::Controller => {
                let last = self.patience == Patience::Last;
                let last_ms = if last { self.detector.held_ms() } else { 0 };
                self.used_to_ms().max(self.other_ms).max(self.least_ms).max(last_ms)
            }
            Side::Node => borne(self.other_ms.max(self.least_ms)).max(self.near_ms),
        }
    }

    /// What it bears by what it is used to.
    fn used_to_ms(&self) -> u64 {
        let Detector { silence_least_ms, silence_most_ms, .. } = self.detector;
        (self.habit.longest_ms * TIMES).clamp(silence_least_ms, silence_most_ms)
    }

    /// What this end says again and again: what it grants, or is used to.
    pub fn says_ms(&self) -> u64 {
        match self.side {
            Side::Controller => self.limit_ms(),
            Side::Node => self.used_to_ms(),
        }
    }

    /// The stamp that a beat bears which is sent now.
    pub fn stamp_ms(&self, now_ms: u64) -> Option<u64> {
        match self.side {
            Side::Controller => self.stamp_ms,
            Side::Node => Some(now_ms),
        }
    }

    /// The longest that the node may still hold of what this controller granted.
    pub fn granted_ms(&self) -> u64 {
        self.granted.front().map_or(self.detector.silence_least_ms, |(_, grant)| *grant)
    }

    /// When the controller heard the latest stamp. The node's time does not run from later.
    pub fn stamped_ms(&self) -> Option<u64> {
        self.stamped_ms
    }

    /// So long after the controller, which hangs up now, nothing of the node is left. Another
    /// controller may have granted more; that counts until something is heard of the node.
    pub fn clear_ms(&self, now_ms: u64) -> u64 {
        let known_ms = self.stamped_ms.map(|at| now_ms.saturating_sub(at));
        self.detector.clear_after(self.granted_ms(), known_ms)
    }

    fn grant(&mut self, now_ms: u64) {
        if self.side == Side::Node {
            return;
        }
        let now = self.limit_ms();
        let memory_ms = self.detector.memory_ms();
        self.granted.retain(|(at, grant)| *grant > now && at + memory_ms > now_ms);
        self.granted.push_back((now_ms, now));
    }
}

/// A node without a connection, until it has another one or gives up.
#[derive(Debug, Clone, Copy)]
pub struct Disconnected {
    limit_ms: u64,
    sign_ms: u64,
}

impl Disconnected {
    /// It bore so much, and said the last thing then of which it knows that it was heard. That a
    /// connection ended says nothing: the end may have been on its way for long.
    pub fn new(limit_ms: u64, sign_ms: u64) -> Disconnected {
        Disconnected { limit_ms, sign_ms }
    }

    /// The controller's machine has answered a call that was begun then.
    pub fn answered(&mut self, begun_ms: u64) {
        self.sign_ms = self.sign_ms.max(begun_ms);
    }

    /// How long it may still wait.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        (self.sign_ms + self.limit_ms).saturating_sub(now_ms)
    }

    pub fn is_over(&self, now_ms: u64) -> bool {
        self.left_ms(now_ms) == 0
    }
}

/// What one end is used to.
#[derive(Debug, Clone)]
pub(crate) struct SilenceTracker {
    /// The clock is to be looked at so often.
    tick_ms: u64,
    /// When the clock was looked at last.
    seen_ms: u64,
    /// Silence up to then.
    silent_ms: u64,
    /// Longest silence that ended, slowly forgotten.
    longest_ms: u64,
}

impl SilenceTracker {
    pub fn new(tick_ms: u64, now_ms: u64) -> SilenceTracker {
        SilenceTracker { tick_ms, seen_ms: now_ms, silent_ms: 0, longest_ms: 0 }
    }

    pub fn silent_ms(&self) -> u64 {
        self.silent_ms
    }

    pub fn longest_ms(&self) -> u64 {
        self.longest_ms
    }

    /// How long ago the clock was looked at last.
    pub fn since(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.seen_ms)
    }

    pub fn heard(&mut self, now_ms: u64) {
        self.passed(now_ms);
        self.longest_ms = self.silent_ms.max(self.longest_ms * 31 / 32);
        self.silent_ms = 0;
    }

    /// What was said then is known to be heard now. That takes a beat of either end at least.
    fn went_round(&mut self, stamp_ms: u64, now_ms: u64) {
        let silent_ms = self.passed(now_ms);
        let longest_ms = silent_ms.saturating_sub(2 * self.tick_ms);
        self.longest_ms = longest_ms.max(self.longest_ms * 31 / 32);
        self.silent_ms = now_ms.saturating_sub(stamp_ms).min(silent_ms);
    }

    pub fn passed(&mut self, now_ms: u64) -> u64 {
        self.silent_ms += self.since(now_ms).min(2 * self.tick_ms);
        self.seen_ms = now_ms;
        self.silent_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Detector = Detector::DEFAULT;
    const TICK_MS: u64 = D.heartbeat_ms;
    const LEAST_MS: u64 = D.silence_least_ms;
    const MOST_MS: u64 = D.silence_most_ms;
    const HELD_MS: u64 = D.held_ms();
    const ROUND_MS: u64 = D.round_ms();
    const LATE_MS: u64 = D.late_ms();

    /// Looks at the clock as a reader does; returns when the other end was given up.
    fn silence(heartbeat: &mut Heartbeat, from_ms: u64) -> u64 {
        let mut now = from_ms;
        while !heartbeat.over(now) {
            now += TICK_MS;
        }
        now
    }

    #[test]
    fn silence_is_noticed_and_not_before_the_limit() {
        let mut heartbeat = Heartbeat::new(D, Side::Controller, 5_000);
        heartbeat.told(0, Some(7), 5_000);
        let now = 5_000 + LEAST_MS + TICK_MS;
        assert_eq!(silence(&mut heartbeat, 5_000), now);
        // The node's time has begun when its stamp was heard at the latest.
        assert_eq!(heartbeat.clear_ms(5_000), LEAST_MS * 5 / 4 + CLEARING_MS + LATE_MS);
        assert_eq!(heartbeat.clear_ms(now), LEAST_MS / 4 + CLEARING_MS + LATE_MS - TICK_MS);
        let unheard = Heartbeat::new(D, Side::Controller, 5_000);
        // Of what is not known it may have been just now.
        assert_eq!(unheard.clear_ms(now), LEAST_MS * 5 / 4 + CLEARING_MS + LATE_MS);
    }

    #[test]
    fn the_limit_follows_what_it_was_used_to() {
        let mut heartbeat = Heartbeat::new(D, Side::Controller, 0);
        let mut now = 0;
        (0..10).for_each(|_| {
            now += TICK_MS;
            assert!(!heartbeat.over(now));
        });
        heartbeat.heard(now);
        assert_eq!(heartbeat.limit_ms(), 8_000);
        assert_eq!(silence(&mut heartbeat, now), now + 8_000 + TICK_MS);
        (0..300).for_each(|_| {
            now += TICK_MS;
            heartbeat.heard(now);
        });
        assert_eq!(heartbeat.limit_ms(), LEAST_MS);
    }

    #[test]
    fn no_silence_however_long_makes_it_boundless() {
        let mut heartbeat = Heartbeat::new(D, Side::Controller, 0);
        (1..1_000).for_each(|n| assert!(!heartbeat.over(n * TICK_MS) || n > 20));
        heartbeat.heard(1_000 * TICK_MS);
        assert_eq!(heartbeat.limit_ms(), MOST_MS);
        heartbeat.told(u64::MAX, None, 1_000 * TICK_MS);
        assert_eq!(heartbeat.limit_ms(), MOST_MS);
    }

    #[test]
    fn the_last_node_is_waited_for_as_long_as_ever_and_granted_that() {
        let (mut heartbeat, mut node) =
            (Heartbeat::new(D, Side::Controller, 0), Heartbeat::new(D, Side::Node, 0));
        heartbeat.set_patience(Patience::Last);
        heartbeat.heard(TICK_MS);
        node.told(heartbeat.says_ms(), Some(TICK_MS), TICK_MS);
        let given_up = silence(&mut heartbeat.clone(), TICK_MS);
        assert_eq!(given_up, MOST_MS + 2 * TICK_MS);
        assert!(silence(&mut node, TICK_MS) > given_up);
        // Another one is there by now, and what was granted is remembered.
        heartbeat.set_patience(Patience::Usual);
        heartbeat.heard(2 * TICK_MS);
        assert_eq!((heartbeat.limit_ms(), heartbeat.granted_ms()), (LEAST_MS, MOST_MS));
        assert_eq!(silence(&mut heartbeat, 2 * TICK_MS), LEAST_MS + 3 * TICK_MS);
    }

    #[test]
    fn a_node_that_has_not_come_up_is_waited_for_and_granted_no_more_than_any() {
        let mut heartbeat = Heartbeat::new(D, Side::Controller, 0);
        heartbeat.set_patience(Patience::Joining);
        heartbeat.heard(TICK_MS);
        assert_eq!(silence(&mut heartbeat.clone(), TICK_MS), MOST_MS + 2 * TICK_MS);
        assert_eq!((heartbeat.says_ms(), heartbeat.granted_ms()), (LEAST_MS, LEAST_MS));
        heartbeat.set_patience(Patience::Usual);
        heartbeat.heard(2 * TICK_MS);
        assert_eq!(silence(&mut heartbeat, 2 * TICK_MS), LEAST_MS + 3 * TICK_MS);
    }

    #[test]
    fn time_in_which_the_controller_did_not_look_hardly_counts() {
        let mut heartbeat = Heartbeat::new(D, Side::Controller, 0);
        assert!(!heartbeat.over(3_600_000));
        assert_eq!(heartbeat.silent_ms(3_600_000), 2 * TICK_MS);
        heartbeat.heard(7_200_000);
        assert_eq!(heartbeat.limit_ms(), 4 * TICK_MS * TIMES);
    }

    #[test]
    fn a_node_that_stood_still_hears_that_it_is_heard_of_and_gives_up_else() {
        let mut heartbeat = Heartbeat::new(D, Side::Node, 0);
        assert!(!heartbeat.over(60_000), "it may not be given up");
        let mut heard = heartbeat.clone();
        // What was said before says nothing.
        heard.told(0, Some(50), 60_050);
        assert!(!heard.over(60_000 + ROUND_MS));
        heard.told(0, Some(60_000), 60_100 + ROUND_MS);
        assert!(!heard.over(60_200 + ROUND_MS));
        assert!(!heartbeat.over(60_000 + ROUND_MS));
        assert!(heartbeat.over(60_100 + ROUND_MS));
    }

    #[test]
    fn a_node_that_its_controller_can_kill_bears_more() {
        let bears = 30_000;
        assert_eq!(silence(&mut Heartbeat::near(D, bears, 0), TICK_MS), bears + TICK_MS);
        // Never less than any.
        assert_eq!(silence(&mut Heartbeat::near(D, 1, 0), TICK_MS), LEAST_MS * 5 / 4 + TICK_MS);
        assert_eq!(Heartbeat::near(D, bears, 0).says_ms(), LEAST_MS);
    }

    #[test]
    fn a_node_that_wakes_up_just_before_its_time_is_over_hears_first_as_well() {
        let mut heartbeat = Heartbeat::new(D, Side::Node, 0);
        for now in (TICK_MS..=1_000).step_by(TICK_MS as usize) {
            heartbeat.told(0, Some(0), now);
            assert!(!heartbeat.over(now));
        }
        assert!(!heartbeat.over(2_450), "it is within its limit");
        let mut heard = heartbeat.clone();
        assert!(!heard.over(2_550));
        heard.told(0, Some(2_500), 2_650);
        assert!(!heard.over(2_700));
        assert!(!heartbeat.over(2_550));
        assert!(!heartbeat.over(2_450 + ROUND_MS));
        assert!(heartbeat.over(2_500 + ROUND_MS), "it has had its time");
        // Who did not stand still has no more than its limit.
        let mut heartbeat = Heartbeat::new(D, Side::Node, 0);
        assert_eq!(silence(&mut heartbeat, TICK_MS), LEAST_MS * 5 / 4 + TICK_MS);
    }

    #[test]
    fn what_is_late_on_its_way_keeps_no_node_alive() {
        let mut heartbeat = Heartbeat::new(D, Side::Node, 0);
        let mut given_up = None;
        for now in (TICK_MS..10_000).step_by(TICK_MS as usize) {
            // Each takes four times as long as the one before.
            heartbeat.heard(now);
            heartbeat.told(0, Some(now / 4), now);
            if heartbeat.over(now) {
                given_up.get_or_insert(now);
            }
        }
        assert_eq!(given_up, Some(3_400));
    }

    #[test]
    fn a_node_bears_what_it_is_granted_and_the_controller_remembers_that() {
        let (mut node, mut heartbeat) =
            (Heartbeat::new(D, Side::Node, 0), Heartbeat::new(D, Side::Controller, 0));
        (1..=12).for_each(|n| assert!(!node.over(n * TICK_MS)));
        node.told(0, Some(1_200), 1_200);
        assert_eq!((node.says_ms(), node.limit_ms()), (8_000, LEAST_MS * 5 / 4));
        heartbeat.told(node.says_ms(), node.stamp_ms(1_200), 1_200);
        assert_eq!((heartbeat.says_ms(), heartbeat.clear_ms(1_200)), (8_000, 11_000 + CLEARING_MS));
        assert_eq!(
            (heartbeat.stamp_ms(9_000), D.rounded(heartbeat.granted_ms())),
            (Some(1_200), 10_000)
        );
        node.told(heartbeat.says_ms(), heartbeat.stamp_ms(0), 1_200);
        assert_eq!(node.limit_ms(), 10_000);
        // It may still hold the grant for as long as it would live by it.
        heartbeat.told(LEAST_MS, Some(2_000), 2_000);
        assert_eq!(
            (heartbeat.says_ms(), heartbeat.clear_ms(2_000)),
            (LEAST_MS, 11_000 + CLEARING_MS)
        );
        (0..400).for_each(|n| heartbeat.heard(2_000 + n * TICK_MS));
        heartbeat.told(LEAST_MS, Some(42_000), 42_000);
        assert_eq!(heartbeat.clear_ms(42_000), LEAST_MS * 5 / 4 + CLEARING_MS + LATE_MS);
    }

    #[test]
    fn behind_gateways_much_is_granted_before_a_word() {
        let (mut node, mut heartbeat) =
            (Heartbeat::held(D, Side::Node, 0), Heartbeat::held(D, Side::Controller, 0));
        assert_eq!((node.limit_ms(), heartbeat.says_ms()), (HELD_MS * 5 / 4, HELD_MS));
        assert_eq!(heartbeat.clear_ms(0), D.clear_after(HELD_MS, None));
        (0..400).for_each(|n| heartbeat.heard(n * TICK_MS));
        assert_eq!(heartbeat.says_ms(), HELD_MS);
        // The controller gives up first, whether the connection ends or falls silent.
        assert!(D.hold_ms(0) <= heartbeat.limit_ms() && heartbeat.limit_ms() < node.limit_ms());
        assert_eq!((D.hold_ms(4_000), D.hold_ms(HELD_MS + 1)), (HELD_MS - 4_000, 0));
        assert_eq!(silence(&mut node, 0), HELD_MS * 5 / 4 + TICK_MS);
    }

    #[test]
    fn a_greeting_through_gateways_renews_nothing() {
        let mut node = Heartbeat::held_since(D, 1_000, 21_000);
        assert_eq!((node.silent_ms(21_000), node.over(21_000)), (20_000, false));
        // Beats come, but none that bears a stamp: nobody has taken it.
        node.heard(22_000);
        node.told(HELD_MS, None, 22_000);
        assert_eq!(node.silent_ms(22_000), 21_000);
        let mut taken = node.clone();
        assert_eq!(silence(&mut node, 22_000), 22_000 + 4_000 + TICK_MS);
        taken.told(HELD_MS, Some(22_000), 22_100);
        assert_eq!(silence(&mut taken, 22_100), 22_100 + HELD_MS * 5 / 4);
        // And the controller counts from that stamp, though the connection has ended.
        assert_eq!(D.clear_after(HELD_MS, Some(20_000)), D.clear_after(HELD_MS, None) - 20_000);
    }

    #[test]
    fn a_controller_that_knows_nothing_counts_on_a_slow_node_s_end_no_sooner() {
        // Nobody took its call just before the next controller listened; the one after that is
        // waited for as long as it may be.
        let mut disconnected = Disconnected::new(LEAST_MS * 5 / 4, 0);
        disconnected.answered(2_000);
        let waits_until = 2_000 + disconnected.left_ms(2_000);
        // It sees half a second late that the call has failed, and that its time is over.
        let over = waits_until + 2 * 500;
        assert!(disconnected.is_over(over));
        assert!(over + CLEARING_MS <= 2_000 + D.clear_after(LEAST_MS, None));
    }

    #[test]
    fn only_a_call_that_was_answered_is_a_sign() {
        let mut disconnected = Disconnected::new(2_500, 1_000);
        assert_eq!((disconnected.left_ms(1_400), disconnected.is_over(3_499)), (2_100, false));
        assert!(disconnected.is_over(3_500));
        disconnected.answered(3_000);
        disconnected.answered(2_000);
        assert_eq!(disconnected.left_ms(3_600), 1_900);
    }
}
