//! All ranks go back together: why, and how often in vain.

use super::{Action, FRUITLESS_ROLLBACKS, Monitor, Phase, RETURNS, VAIN_REPLAYS};

impl Monitor {
    pub(super) fn diverged(&mut self, rank: u32, text: &str, todo: &mut Vec<Action>) {
        let what = format!("REPLAY DIVERGED in rank {rank}: {text}");
        if !self.recovers {
            return self.end(1, what, todo);
        }
        self.gets_on();
        if self.snapshots > 0 && self.divergences >= RETURNS {
            // It leads there again and again.
            self.snapshots -= 1;
            self.divergences = 0;
            todo.push(Action::GiveUpSnapshot);
        }
        self.divergences += 1;
        self.roll_back(&what, todo);
        self.why = format!("the replay of rank {rank} diverged");
    }

    /// Whether a rank that is brought back alone would only diverge once more.
    pub(super) fn repeats_in_vain(&self) -> bool {
        self.divergences >= VAIN_REPLAYS
    }

    /// Before all go back: whether the job got further than ever.
    pub(super) fn gets_on(&mut self) {
        let reached = self.ranks.iter().map(|r| u128::from(r.reached)).sum();
        if reached > self.furthest {
            self.furthest = reached;
            (self.rollbacks, self.divergences) = (0, 0);
        }
    }

    pub(super) fn roll_back(&mut self, why: &str, todo: &mut Vec<Action>) {
        if self.rollbacks >= FRUITLESS_ROLLBACKS {
            let place = self.goal();
            let text = format!(
                "{why}; all ranks went back to {place} {FRUITLESS_ROLLBACKS} times in a row \
                 without getting further than before"
            );
            return self.end(1, text, todo);
        }
        self.rollbacks += 1;
        self.phase = Phase::RollingBack { together: false };
        self.why = why.lines().next().unwrap_or_default().to_string();
        if self.snapshots > 0 {
            // To which one is told when they do.
            todo.extend([Action::Say(why.to_string()), Action::KillAll]);
            return;
        }
        let place = self.goal();
        todo.push(Action::Say(format!(
            "{why}\nall ranks go back to {place} together; what was printed so far is not printed \
             again"
        )));
        todo.push(Action::KillAll);
    }

    /// Why all ranks went back last.
    pub fn why_back(&self) -> &str {
        &self.why
    }

    /// What all ranks go back to.
    fn goal(&self) -> &'static str {
        match (self.snapshots, self.kept) {
            (1.., _) => "a snapshot",
            (0, true) => "what the job's folder has",
            (0, false) => "the beginning",
        }
    }
}
