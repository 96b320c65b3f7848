//! Whether the machine of a node gives a sign, whatever the node's daemon does: a kernel
//! acknowledges what comes for a daemon that is slow or stopped, and one that is gone does not. So
//! a node whose machine is gone is given up long before its daemon's time would be over.
//!
//! Pure: the caller says what time it is, and what its own kernel tells of the connection. Kept
//! true: the limit follows the longest silence of that machine that turned out to be none, within
//! bounds; nothing counts that was not due, nor time in which the caller did not look; nobody is
//! given up sooner for silence that most nodes share, as this end may be the one that is cut off,
//! nor right after that, as TCP sends again to some earlier than to others.
//!
//! Behind gateways the other end of a controller's connection is a gateway's machine. There the
//! gateway looks at its nodes' machines in this way, and at the controller's cluster as one more,
//! and says which give no sign. The controller takes its word for a node of which it has not heard
//! for as long itself: the word may be old.

use crate::failure_detector::SilenceTracker;
use crate::timing::Detector;

/// When nothing came from a machine for so many heartbeats, it says nothing for the controller's
/// own.
const QUIET_BEATS: u64 = 3;
/// The limit, in longest silences.
const TIMES: u64 = 4;

/// What this end's kernel tells of the other end's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign {
    /// Something was sent that is not acknowledged.
    pub due: bool,
    /// How long ago anything came.
    pub age_ms: u64,
}

impl Sign {
    /// Of two connections to the same machine.
    pub fn or(self, other: Sign) -> Sign {
        Sign { due: self.due || other.due, age_ms: self.age_ms.min(other.age_ms) }
    }
}

impl Detector {
    /// Whether a node is gone of whose machine its gateway says that it gives no sign, and of which
    /// nothing was heard for so long.
    pub fn is_missed(&self, silent_ms: u64) -> bool {
        silent_ms > self.machine_silence_ms
    }
}

/// What is known of a machine. A heartbeat is sent to it every 100 ms, and again by TCP 200 and
/// 600 ms later: the 750 ms that are always borne by default let so long an outage pass unnoticed.
#[derive(Debug, Clone)]
pub struct Machine {
    detector: Detector,
    habit: SilenceTracker,
    /// Nothing came for a while, whether anything was due or not.
    quiet: bool,
}

impl Machine {
    pub fn new(detector: Detector, now_ms: u64) -> Machine {
        let habit = SilenceTracker::new(detector.heartbeat_ms, now_ms);
        Machine { detector, habit, quiet: false }
    }

    /// Whether it is time to look again: forgetting takes its time, however much comes.
    pub fn wants_look(&self, now_ms: u64) -> bool {
        self.habit.since(now_ms) >= self.detector.heartbeat_ms / 2
    }

    /// A look. No sign: the kernel does not tell, and nothing is concluded.
    pub fn look(&mut self, sign: Option<Sign>, now_ms: u64) {
        let since_ms = self.habit.since(now_ms);
        let quiet_ms = QUIET_BEATS * self.detector.heartbeat_ms;
        self.quiet = sign.is_some_and(|sign| sign.age_ms > quiet_ms);
        match sign {
            Some(sign) if sign.due && sign.age_ms > since_ms => {
                self.habit.passed(now_ms);
            }
            _ => self.habit.heard(now_ms),
        }
    }

    pub fn silent_ms(&self) -> u64 {
        self.habit.silent_ms()
    }

    /// How long a silence is borne.
    pub fn limit_ms(&self) -> u64 {
        let Detector { machine_silence_ms, silence_least_ms, .. } = self.detector;
        (self.habit.longest_ms() * TIMES).clamp(machine_silence_ms, silence_least_ms)
    }
}

/// The machines of all nodes that a controller is connected to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Company {
    there: u32,
    quiet: u32,
    /// When most were quiet last.
    unsound_ms: Option<u64>,
}

/// One of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seat {
    quiet: bool,
}

impl Company {
    pub fn joins(&mut self) -> Seat {
        self.there += 1;
        Seat::default()
    }

    pub fn leaves(&mut self, seat: Seat) {
        self.there = self.there.saturating_sub(1);
        self.quiet = self.quiet.saturating_sub(u32::from(seat.quiet));
    }

    /// One was looked at. Whether it is gone. The time is one that all share.
    pub fn looked(&mut self, seat: &mut Seat, machine: &Machine, now_ms: u64) -> bool {
        if seat.quiet != machine.quiet {
            seat.quiet = machine.quiet;
            match seat.quiet {
                true => self.quiet += 1,
                false => self.quiet = self.quiet.saturating_sub(1),
            }
        }
        let calm_ms = machine.detector.silence_least_ms;
        self.is_sound(calm_ms, now_ms) && machine.silent_ms() > machine.limit_ms()
    }

    /// Whether others give signs, and have for so long: this end is not what is cut off.
    fn is_sound(&mut self, calm_ms: u64, now_ms: u64) -> bool {
        if 2 * self.quiet > self.there || self.quiet == self.there {
            self.unsound_ms = Some(now_ms);
        }
        self.unsound_ms.is_none_or(|at| at + calm_ms < now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Detector = Detector::DEFAULT;
    const TICK_MS: u64 = D.heartbeat_ms;
    const LEAST_MS: u64 = D.silence_least_ms;
    const LEAST_SIGN_MS: u64 = D.machine_silence_ms;

    const NONE: Option<Sign> = Some(Sign { due: true, age_ms: u64::MAX });

    fn came(age_ms: u64) -> Option<Sign> {
        Some(Sign { due: true, age_ms })
    }

    /// Looks as a reader does; returns when that machine was gone, of so many of which others are
    /// quiet.
    fn gone(machine: &mut Machine, from_ms: u64, there: u32, others: u32) -> Option<u64> {
        let mut company = Company { there: there - 1, quiet: others, unsound_ms: None };
        let mut seat = company.joins();
        (1..100).map(|n| from_ms + n * TICK_MS).find(|now| {
            machine.look(NONE, *now);
            company.looked(&mut seat, machine, *now)
        })
    }

    #[test]
    fn a_machine_without_a_sign_is_gone_within_a_second() {
        let mut machine = Machine::new(D, 0);
        (1..=50).for_each(|n| machine.look(came(20), n * TICK_MS));
        assert_eq!(machine.limit_ms(), LEAST_SIGN_MS);
        assert_eq!(gone(&mut machine, 5_000, 3, 0), Some(5_800));
    }

    #[test]
    fn silence_that_most_share_is_no_sign_of_theirs() {
        for (there, others, found) in
            [(2, 0, true), (1, 0, false), (2, 1, false), (4, 1, true), (4, 2, false), (5, 2, false)]
        {
            let found_at = gone(&mut Machine::new(D, 0), 0, there, others);
            assert_eq!(found_at.is_some(), found, "{there} nodes, {others} others quiet");
        }
    }

    #[test]
    fn after_silence_that_most_shared_some_are_heard_later() {
        let (mut company, mut one) = (Company::default(), Machine::new(D, 0));
        let (mut seat, mut other) = (company.joins(), company.joins());
        for now in (TICK_MS..=1_000).step_by(TICK_MS as usize) {
            one.look(NONE, now);
            assert!(
                !company.looked(&mut other, &one, now) && !company.looked(&mut seat, &one, now)
            );
        }
        // The other one is heard.
        assert!(!company.looked(&mut other, &Machine::new(D, 1_000), 1_100));
        (11..=31).for_each(|n| one.look(NONE, n * TICK_MS));
        assert!(!company.looked(&mut seat, &one, 1_000 + LEAST_MS));
        assert!(company.looked(&mut seat, &one, 1_001 + LEAST_MS));
    }

    #[test]
    fn what_is_not_due_or_not_told_is_no_silence() {
        let mut machine = Machine::new(D, 0);
        for now in (TICK_MS..5_000).step_by(TICK_MS as usize) {
            let idle = Some(Sign { due: false, age_ms: now });
            machine.look(if now < 2_500 { idle } else { None }, now);
            assert_eq!(machine.silent_ms(), 0);
        }
    }

    #[test]
    fn the_limit_follows_the_longest_silence_and_is_bounded() {
        let mut machine = Machine::new(D, 0);
        let mut now = 0;
        for (silent, limit) in [(300, 1_200), (5_000, LEAST_MS)] {
            let end = now + silent;
            while now < end {
                now += TICK_MS;
                machine.look(NONE, now);
            }
            machine.look(came(0), now);
            assert_eq!(machine.limit_ms(), limit);
        }
        (1..400).for_each(|n| machine.look(came(10), now + n * TICK_MS));
        assert_eq!(machine.limit_ms(), LEAST_SIGN_MS);
        // However much comes in between, it is not forgotten at once.
        let busy = Machine::new(D, 1_000);
        assert!(!busy.wants_look(1_010) && busy.wants_look(1_050));
    }

    #[test]
    fn time_in_which_nobody_looked_hardly_counts() {
        let mut machine = Machine::new(D, 0);
        machine.look(NONE, 3_600_000);
        assert_eq!(machine.silent_ms(), 2 * TICK_MS);
    }

    #[test]
    fn who_leaves_is_not_counted_any_more() {
        let mut company = Company::default();
        let mut seats = [(); 3].map(|()| company.joins());
        let mut machine = Machine::new(D, 0);
        (1..5).for_each(|n| machine.look(NONE, n * TICK_MS));
        let _ = company.looked(&mut seats[0], &machine, 500);
        assert_eq!((company.there, company.quiet), (3, 1));
        company.leaves(seats[0]);
        assert_eq!((company.there, company.quiet), (2, 0));
    }
}
