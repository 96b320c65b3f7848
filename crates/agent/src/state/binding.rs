//! Where a rank runs, and whether others use its processors.

use eyrie_ledger::crowd::Reading;
use eyrie_process::cores::Set;
use std::time::Duration;

/// How often bound ranks are looked at, whether others use their cores.
pub(crate) const WATCH_BOUND: Duration = Duration::from_millis(500);

/// So many looks in a row, so that what is short is borne.
pub(crate) const CROWDED_LOOKS: u32 = 3;

/// What a bound rank has met with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pressed {
    last: Option<(libc::pid_t, Reading)>,
    /// Looks in a row that found others on its cores.
    looks: u32,
}

impl Pressed {
    /// Takes a reading into account; whether the rank is to be let go.
    pub(crate) fn judge(&mut self, pid: libc::pid_t, now: Reading) -> bool {
        let before = self.last.filter(|(of, _)| *of == pid).map(|(_, reading)| reading);
        if before.is_some_and(|b| now.at.saturating_sub(b.at) < WATCH_BOUND / 2) {
            // Too short to tell.
            return false;
        }
        self.last = Some((pid, now));
        let crowded = before.is_some_and(|before| now.is_crowded_since(&before));
        self.looks = if crowded { self.looks + 1 } else { 0 };
        self.looks >= CROWDED_LOOKS
    }
}

/// Where a rank runs.
#[derive(Default)]
pub(crate) struct Binding {
    /// Processors that it was bound to.
    pub processors: Option<Set>,
    /// Whether others use them.
    pub(crate) pressed: Pressed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_let_go_when_others_stay_on_its_cores() {
        let ms = Duration::from_millis;
        let reading = |at, waited| Reading { at: ms(at), forced: 0, waited: Some(ms(waited)) };
        let mut pressed = Pressed::default();
        assert!(!pressed.judge(7, reading(0, 900)));
        assert!(!pressed.judge(7, reading(500, 1_000)), "once");
        assert!(!pressed.judge(7, reading(1_000, 1_100)), "twice");
        assert!(!pressed.judge(7, reading(1_100, 1_200)), "too soon to tell");
        assert!(pressed.judge(7, reading(1_500, 1_200)));
        let mut pressed = Pressed::default();
        for at in [0u64, 500, 1_000, 2_000, 2_500, 4_000, 4_500] {
            let waits = if at % 1_000 == 0 { at } else { at - 100 };
            assert!(!pressed.judge(7, reading(at, waits / 20)), "{at}");
        }
        for (pid, at) in [(8, 500), (9, 1_000), (10, 1_500), (11, 2_000)] {
            assert!(!pressed.judge(pid, reading(at, at)), "another process");
        }
    }
}
