//! How long the other end of a connection may be silent before it counts as lost: between the
//! controller, which gives a node up first, and the node, which is to have ended before its ranks
//! run elsewhere.
//!
//! Pure: the caller says what time it is. Kept true: the limit follows the longest silence that
//! turned out to be none, within bounds; time in which the caller itself did not run (a machine
//! that stood still) hardly counts for the controller; a node bears what it was granted and no
//! more, however long it was used to wait or stood still itself, so the controller knows when a
//! node has ended that it does not hear of any more.

use std::collections::VecDeque;

/// The clock is to be looked at so often; of a longer gap twice this counts.
pub const TICK_MS: u64 = 100;
/// Silence that is always borne.
pub const LEAST_MS: u64 = 2_000;
/// Silence that is never borne, unless the other end bears it.
pub const MOST_MS: u64 = 20_000;
/// In this time a node that gives up has killed what runs on it.
pub const CLEARING_MS: u64 = 1_000;
/// The limit, in longest silences.
const TIMES: u64 = 8;
/// A grant that was said last so long ago is held by no node that lives: it would have given up.
const MEMORY_MS: u64 = borne(MOST_MS) + 5_000;

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

/// What one end knows of the connection.
#[derive(Debug, Clone)]
pub struct Tie {
    side: Side,
    habit: Patience,
    /// What the other end says: what the node is used to, or what the controller grants.
    other_ms: u64,
    /// Grants, and when each was said last; smaller ones behind larger ones.
    granted: VecDeque<(u64, u64)>,
    heard_ms: u64,
    seen_ms: u64,
    /// The node has stood still since it heard of the controller; that was overlooked once.
    stood: bool,
}

impl Tie {
    pub fn new(side: Side, now_ms: u64) -> Tie {
        let mut tie = Tie {
            side,
            habit: Patience::new(now_ms),
            other_ms: 0,
            granted: VecDeque::new(),
            heard_ms: now_ms,
            seen_ms: now_ms,
            stood: false,
        };
        tie.grant(now_ms);
        tie
    }

    /// Something came.
    pub fn heard(&mut self, now_ms: u64) {
        self.habit.heard(now_ms);
        (self.heard_ms, self.seen_ms, self.stood) = (now_ms, now_ms, false);
        self.grant(now_ms);
    }

    /// The other end says what it is used to, or grants.
    pub fn told(&mut self, other_ms: u64, now_ms: u64) {
        self.other_ms = other_ms.min(MOST_MS);
        self.grant(now_ms);
    }

    /// Whether the other end has been silent for too long. What has come is to be read before.
    pub fn over(&mut self, now_ms: u64) -> bool {
        let stood = now_ms.saturating_sub(self.seen_ms) > 2 * TICK_MS;
        self.seen_ms = now_ms;
        let habit_over = self.habit.passed(now_ms) > self.limit_ms();
        self.grant(now_ms);
        match self.side {
            Side::Controller => habit_over,
            // What came meanwhile may not be there yet.
            Side::Node if stood && !std::mem::replace(&mut self.stood, true) => false,
            Side::Node => self.silent_ms(now_ms) > self.limit_ms(),
        }
    }

    /// For how long nothing was heard.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        match self.side {
            Side::Controller => self.habit.silent_ms,
            Side::Node => now_ms.saturating_sub(self.heard_ms),
        }
    }

    /// How long a silence this end bears.
    pub fn limit_ms(&self) -> u64 {
        match self.side {
            Side::Controller => self.habit.limit_ms().max(self.other_ms),
            Side::Node => borne(self.other_ms.max(LEAST_MS)),
        }
    }

    /// What this end says again and again: what it grants, or is used to.
    pub fn says_ms(&self) -> u64 {
        match self.side {
            Side::Controller => self.limit_ms(),
            Side::Node => self.habit.limit_ms(),
        }
    }

    /// So long after the controller hung up nothing of the node is left.
    pub fn clear_ms(&self) -> u64 {
        let most = self.granted.front().map_or(0, |(_, grant)| *grant);
        borne(most.max(LEAST_MS)) + CLEARING_MS
    }

    fn grant(&mut self, now_ms: u64) {
        if self.side == Side::Node {
            return;
        }
        let now = self.limit_ms();
        self.granted.retain(|(at, grant)| *grant > now && at + MEMORY_MS > now_ms);
        self.granted.push_back((now_ms, now));
    }
}

/// What one end is used to.
#[derive(Debug, Clone)]
struct Patience {
    /// When the clock was looked at last.
    seen_ms: u64,
    /// Silence up to then.
    silent_ms: u64,
    /// Longest silence that ended, slowly forgotten.
    longest_ms: u64,
}

impl Patience {
    fn new(now_ms: u64) -> Patience {
        Patience { seen_ms: now_ms, silent_ms: 0, longest_ms: 0 }
    }

    fn heard(&mut self, now_ms: u64) {
        self.passed(now_ms);
        self.longest_ms = self.silent_ms.max(self.longest_ms * 31 / 32);
        self.silent_ms = 0;
    }

    fn limit_ms(&self) -> u64 {
        (self.longest_ms * TIMES).clamp(LEAST_MS, MOST_MS)
    }

    fn passed(&mut self, now_ms: u64) -> u64 {
        self.silent_ms += now_ms.saturating_sub(self.seen_ms).min(2 * TICK_MS);
        self.seen_ms = now_ms;
        self.silent_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at the clock as a reader does; returns when the other end was given up.
    fn silence(tie: &mut Tie, from_ms: u64) -> u64 {
        let mut now = from_ms;
        while !tie.over(now) {
            now += TICK_MS;
        }
        now
    }

    #[test]
    fn silence_is_noticed_and_not_before_the_limit() {
        let mut tie = Tie::new(Side::Controller, 5_000);
        assert_eq!(silence(&mut tie, 5_000), 5_000 + LEAST_MS + TICK_MS);
        assert_eq!(tie.clear_ms(), LEAST_MS * 5 / 4 + CLEARING_MS);
    }

    #[test]
    fn the_limit_follows_what_it_was_used_to() {
        let mut tie = Tie::new(Side::Controller, 0);
        let mut now = 0;
        (0..10).for_each(|_| {
            now += TICK_MS;
            assert!(!tie.over(now));
        });
        tie.heard(now);
        assert_eq!(tie.limit_ms(), 8_000);
        assert_eq!(silence(&mut tie, now), now + 8_000 + TICK_MS);
        (0..300).for_each(|_| {
            now += TICK_MS;
            tie.heard(now);
        });
        assert_eq!(tie.limit_ms(), LEAST_MS);
    }

    #[test]
    fn no_silence_however_long_makes_it_boundless() {
        let mut tie = Tie::new(Side::Controller, 0);
        (1..1_000).for_each(|n| assert!(!tie.over(n * TICK_MS) || n > 20));
        tie.heard(1_000 * TICK_MS);
        assert_eq!(tie.limit_ms(), MOST_MS);
        tie.told(u64::MAX, 1_000 * TICK_MS);
        assert_eq!(tie.limit_ms(), MOST_MS);
    }

    #[test]
    fn time_in_which_the_controller_did_not_look_hardly_counts() {
        let mut tie = Tie::new(Side::Controller, 0);
        assert!(!tie.over(3_600_000));
        assert_eq!(tie.silent_ms(3_600_000), 2 * TICK_MS);
        tie.heard(7_200_000);
        assert_eq!(tie.limit_ms(), 4 * TICK_MS * TIMES);
    }

    #[test]
    fn a_node_that_stood_still_reads_what_has_come_and_gives_up_else() {
        let mut tie = Tie::new(Side::Node, 0);
        assert!(!tie.over(60_000), "there may be something to read");
        let mut heard = tie.clone();
        heard.heard(60_050);
        assert!(!heard.over(60_150));
        assert!(tie.over(60_100));
    }

    #[test]
    fn a_node_bears_what_it_is_granted_and_the_controller_remembers_that() {
        let (mut node, mut tie) = (Tie::new(Side::Node, 0), Tie::new(Side::Controller, 0));
        (1..=10).for_each(|n| assert!(!node.over(n * TICK_MS)));
        node.heard(1_000);
        assert_eq!((node.says_ms(), node.limit_ms()), (8_000, LEAST_MS * 5 / 4));
        tie.told(node.says_ms(), 1_000);
        assert_eq!((tie.says_ms(), tie.clear_ms()), (8_000, 10_000 + CLEARING_MS));
        node.told(tie.says_ms(), 1_000);
        assert_eq!(node.limit_ms(), 10_000);
        // It may still hold the grant for as long as it would live by it.
        tie.told(LEAST_MS, 2_000);
        assert_eq!((tie.says_ms(), tie.clear_ms()), (LEAST_MS, 10_000 + CLEARING_MS));
        (0..400).for_each(|n| tie.heard(2_000 + n * TICK_MS));
        assert_eq!(tie.clear_ms(), LEAST_MS * 5 / 4 + CLEARING_MS);
    }
}
