//! The life of a job's ranks: what a death, a report or a signal means, and what is to be done.
//!
//! Pure: inputs in, actions out. Kept true: an exit is the program's own decision and final, a
//! death by signal is a fault and answered by recovery while the job is protected; no rank is
//! started once the job is ending; `End` comes exactly once, when no process is left; what begins
//! the end decides whether anybody is to go on with the job; all ranks go back as often as it
//! takes, as long as the job gets further in between than ever before.

mod going_back;

use eyrie_control::signals::{SIGHUP, SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ, is_own_bug, signal_name};
pub use eyrie_control::{Death, Said};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Duration;

/// Deaths by a bug's signal at one and the same point before the program is held responsible.
pub const SAME_POINT_DEATHS: u32 = 3;
/// Deaths of any kind in a row without progress before the job is given up: within about 45 s,
/// unless `crash-pause` is another.
pub const FRUITLESS_DEATHS: u32 = 15;
/// Of these so many are answered at once; each further one after a pause ...
const DEATHS_AT_ONCE: u32 = 3;
/// ... which is twice as long as the one before, up to what `crash-pause` says.
const PAUSE: Duration = Duration::from_millis(250);
/// After so many on one node the rank goes to another.
const DEATHS_ON_ONE_NODE: u32 = 3;

/// Times in a row that all ranks may go back without having got further than before.
pub const FRUITLESS_ROLLBACKS: u32 = 10;

/// Replays in a row that diverged before the job had got further than before, until all ranks go
/// back at each death: what the program does is not repeated by its messages.
const VAIN_REPLAYS: u32 = 2;

/// Times in a row that all ranks return to one and the same snapshot after a divergence without
/// having got further than before, until it is given up for the one before.
pub const RETURNS: u32 = 3;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A process of the rank was ordered: `Started`, `NotStarted` or (of its node) a death follows.
    Starting {
        rank: u32,
    },
    /// There is none after all.
    NotStarted {
        rank: u32,
    },
    /// A process of the rank runs.
    Started {
        rank: u32,
    },
    Died {
        rank: u32,
        death: Death,
        why: Why,
        said: Said,
        /// Grows whenever the rank gets on.
        progress: u64,
        /// Whether the rank can be brought back.
        protected: bool,
    },
    /// The rank is lost with its node, whether it had a process or had ended there.
    Lost {
        rank: u32,
        /// Whether it can be brought back.
        protected: bool,
    },
    /// Seen in the control block of a live rank.
    Reported {
        rank: u32,
        said: Said,
    },
    /// The rank wrote something else than before.
    OutputDiffers {
        rank: u32,
        text: String,
    },
    /// A checkpoint of the rank is complete. `place` grows along the program.
    Reached {
        rank: u32,
        place: u64,
    },
    /// Ranks cannot be brought back alone.
    Unrecoverable {
        why: String,
    },
    /// A newer state of the job than its beginning is in its folder: all go back there, if they
    /// must, and may do so again.
    Kept,
    /// There are so many snapshots that all ranks can return to, in place of the beginning.
    Snapshots {
        count: u32,
    },
    /// The job cannot go on.
    Fatal {
        text: String,
        code: i32,
    },
    /// The job is asked to end by a signal: SIGTERM is of whoever manages the machine.
    Stop {
        signal: i32,
    },
    /// The user gives the job up.
    Abort,
    /// The console is gone: nobody waits for this job.
    ConsoleGone,
    GraceOver,
    /// Every rank has a checkpoint: the job is to be saved and to end.
    Save,
    /// It is saved.
    Saved {
        code: i32,
    },
    /// It could not be, and goes on.
    NotSaved,
    /// All ranks go back to the last set of checkpoints, as often as it takes.
    Together,
    /// Ranks are to have memory in common, for which they have to be one recovery unit: all end,
    /// and go on as larger units.
    Regroup {
        why: String,
    },
}

/// What is known of a death besides its signal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Why {
    /// What the kernel tells, for people.
    pub cause: Option<String>,
    /// The user had it killed, to try that out.
    pub meant: bool,
    /// There was nothing to run, and it may be tried at another node.
    pub elsewhere: bool,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Bring this rank back alone.
    Recover { rank: u32 },
    /// The same, after a pause; `elsewhere`: on another node, if there is one that takes it.
    RecoverLater { rank: u32, pause: Duration, elsewhere: bool },
    /// It is not brought back: tell the others.
    Report { rank: u32 },
    /// All processes are gone: start all ranks from the beginning.
    RestartAll,
    /// The same: all go on as larger recovery units.
    Regroup,
    /// All ranks do not return to the newest snapshot any more.
    GiveUpSnapshot,
    /// Pass a signal to all ranks.
    SignalAll(i32),
    /// Kill every process.
    KillAll,
    /// Call `GraceOver` when the time for an orderly end is over.
    ArmGrace,
    /// No process is left: save the job, then give `Saved` or `NotSaved`.
    Save,
    /// Tell the user.
    Say(String),
    /// All is over.
    End { code: i32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Running,
    /// Everybody is being killed; the beginning, or the last set of checkpoints, comes next.
    RollingBack {
        together: bool,
    },
    /// Everybody is being killed; then the job is saved.
    Saving {
        ordered: bool,
        /// Nobody waits for the job any more, so it ends also if it is not saved.
        alone: bool,
    },
    /// Ranks may end by themselves.
    Stopping {
        signal: i32,
    },
    /// Ranks are being killed.
    Ending,
    Over,
}

/// Why the job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Cause {
    /// Its program ended, or it could not go on.
    Itself,
    /// The user ended it.
    User,
    /// Nobody waits for it any more.
    HungUp,
    /// Its machine ends, or whoever manages that wants it to.
    Terminated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Life {
    /// A process is being prepared.
    Waiting,
    /// It was ordered.
    Starting,
    Alive,
    /// Ended by itself, as it should.
    Gone,
    /// Lost, and reported to the others.
    Failed,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rank {
    life: Life,
    last: Option<(i32, u64)>,
    same_point: u32,
    /// Deaths since it last got further than at any death before.
    fruitless: u32,
    /// How far it was at a death at most, and the place of its newest checkpoint then.
    furthest: (u64, u64),
    /// That it is killed for memory was told.
    told: bool,
    /// The place of its newest checkpoint since all ranks went back.
    reached: u64,
}

impl Rank {
    fn new(life: Life) -> Rank {
        let (last, furthest) = (None, (0, 0));
        Rank { life, last, same_point: 0, fruitless: 0, furthest, told: false, reached: 0 }
    }
}

/// One job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Monitor {
    ranks: Vec<Rank>,
    phase: Phase,
    cause: Cause,
    code: i32,
    /// Times that all went back, and of these the ones for a replay that diverged, since the job
    /// last got further than before.
    rollbacks: u32,
    divergences: u32,
    /// How far the checkpoints of all ranks were when they went back, at most.
    furthest: u128,
    /// All go back to a later state than the beginning.
    kept: bool,
    /// ... which is one of these, as long as there are any.
    snapshots: u32,
    /// Why all went back last.
    why: String,
    /// They do to go on as larger recovery units.
    regroups: bool,
    /// In `eyrie verify` nothing is brought back: every death and difference is an answer.
    recovers: bool,
    /// A rank that is lost is reported to the others. The job's description says so.
    #[serde(skip)]
    reports: bool,
}

impl Monitor {
    pub fn new(size: u32, recovers: bool) -> Self {
        Monitor {
            ranks: vec![Rank::new(Life::Waiting); size as usize],
            phase: Phase::Running,
            cause: Cause::Itself,
            code: 0,
            rollbacks: 0,
            divergences: 0,
            furthest: 0,
            kept: false,
            snapshots: 0,
            why: String::new(),
            regroups: false,
            recovers,
            reports: false,
        }
    }

    /// Ranks that are lost are reported, or not.
    pub fn set_reports(&mut self, reports: bool) {
        self.reports = reports;
    }

    /// The word `eyrie status` shows.
    pub fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Running => "running",
            Phase::RollingBack { .. } => "rolling-back",
            Phase::Saving { .. } => "saving",
            Phase::Stopping { .. } | Phase::Ending => "stopping",
            Phase::Over => "ended",
        }
    }

    /// Whether a process may be started for `rank` now.
    pub fn may_start(&self, rank: u32) -> bool {
        self.phase == Phase::Running && self.ranks[rank as usize].life == Life::Waiting
    }

    /// Whether checkpoints make sense now.
    pub fn running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether the job is to end.
    pub fn is_ending(&self) -> bool {
        !matches!(self.phase, Phase::Running | Phase::RollingBack { .. })
    }

    /// Of a job that is over: whether nobody is to go on with what is kept of it. It did its work,
    /// or the user ended it.
    pub fn is_given_up(&self) -> bool {
        match self.cause {
            Cause::Itself => self.code == 0,
            Cause::User => true,
            Cause::HungUp | Cause::Terminated => false,
        }
    }

    /// Whether it ended only because nobody was there any more who had started it.
    pub fn is_hung_up(&self) -> bool {
        self.cause == Cause::HungUp
    }

    /// Whether a live rank's reports still count.
    pub fn listens_to(&self, rank: u32) -> bool {
        self.phase == Phase::Running && self.ranks[rank as usize].life == Life::Alive
    }

    /// Takes one input.
    pub fn step(&mut self, input: Input) -> Vec<Action> {
        let mut todo = Vec::new();
        match input {
            Input::Starting { rank } => self.ranks[rank as usize].life = Life::Starting,
            Input::NotStarted { rank } => self.ranks[rank as usize].life = Life::Waiting,
            Input::Started { rank } => {
                self.ranks[rank as usize].life = Life::Alive;
                if self.phase != Phase::Running {
                    todo.push(Action::KillAll);
                }
            }
            Input::Died { rank, death, why, said, progress, protected } => {
                self.ranks[rank as usize].life = Life::Waiting;
                let how = (death, why);
                match self.phase {
                    Phase::Running => self.died(rank, how, said, progress, protected, &mut todo),
                    Phase::Saving { .. } if !is_kill(&said, death) => {
                        self.died(rank, how, said, progress, protected, &mut todo);
                    }
                    Phase::Stopping { .. } => self.died_stopping(rank, death),
                    Phase::RollingBack { .. }
                    | Phase::Saving { .. }
                    | Phase::Ending
                    | Phase::Over => {}
                }
            }
            Input::Lost { rank, protected } => {
                self.ranks[rank as usize].life = Life::Waiting;
                if self.phase == Phase::Running {
                    self.lost(rank, protected, &mut todo);
                }
            }
            Input::Reported { rank, said } if self.listens_to(rank) => match said {
                Said::Aborted { code, text } => self.aborted(rank, code, &text, &mut todo),
                Said::Diverged { text } => self.diverged(rank, &text, &mut todo),
                Said::Nothing | Said::Running => {}
            },
            Input::OutputDiffers { rank, text } if self.phase == Phase::Running => {
                self.diverged(rank, &text, &mut todo);
            }
            Input::Unrecoverable { why } if self.phase == Phase::Running => {
                self.gets_on();
                self.roll_back(&why, &mut todo);
            }
            Input::Reached { rank, place } => {
                let reached = &mut self.ranks[rank as usize].reached;
                *reached = place.max(*reached);
            }
            Input::Kept => (self.rollbacks, self.divergences, self.kept) = (0, 0, true),
            Input::Snapshots { count } => self.snapshots = count,
            Input::Fatal { text, code } if self.phase != Phase::Over => {
                self.end(code, text, &mut todo);
            }
            Input::Stop { signal } => self.stop(signal, cause_of(signal), &mut todo),
            Input::Abort => self.stop(SIGTERM, Cause::User, &mut todo),
            Input::Save | Input::Saved { .. } | Input::NotSaved | Input::Together => {
                self.saving(&input, &mut todo);
            }
            Input::Regroup { why } if self.phase == Phase::Running => {
                self.phase = Phase::RollingBack { together: false };
                (self.regroups, self.kept, self.why) = (true, false, why);
                todo.push(Action::KillAll);
            }
            Input::ConsoleGone => self.console_gone(&mut todo),
            Input::GraceOver => {
                if let Phase::Stopping { signal } = self.phase {
                    self.kill(128 + signal, &mut todo);
                }
            }
            _ => {}
        }
        self.settle(&mut todo);
        todo
    }

    fn console_gone(&mut self, todo: &mut Vec<Action>) {
        match &mut self.phase {
            // Whoever is about to be killed has the job saved for that: it is saved all the same.
            Phase::Saving { alone, .. } => *alone = true,
            Phase::Over => {}
            _ => self.hang_up(todo),
        }
    }

    /// Of a job whose controller is replaced: somebody waits for it again.
    pub fn console_back(&mut self) {
        if let Phase::Saving { alone, .. } = &mut self.phase {
            *alone = false;
        }
    }

    fn hang_up(&mut self, todo: &mut Vec<Action>) {
        if self.cause == Cause::Itself {
            self.cause = Cause::HungUp;
        }
        self.kill(128 + SIGHUP, todo);
    }

    /// What concerns all ranks: saving the job, going back together.
    fn saving(&mut self, input: &Input, todo: &mut Vec<Action>) {
        let saving = matches!(self.phase, Phase::Saving { .. });
        let alone = matches!(self.phase, Phase::Saving { alone: true, .. });
        match input {
            Input::Save if self.phase == Phase::Running => {
                self.phase = Phase::Saving { ordered: false, alone: false };
                todo.push(Action::KillAll);
            }
            Input::Saved { code } if saving => {
                self.phase = Phase::Over;
                self.code = *code;
                todo.push(Action::End { code: *code });
            }
            Input::NotSaved | Input::Together if alone => self.hang_up(todo),
            Input::NotSaved if saving => {
                self.phase = Phase::Running;
                let waiting = |r: &(u32, &Rank)| r.1.life == Life::Waiting;
                let ranks = (0..).zip(&self.ranks).filter(waiting);
                todo.extend(ranks.map(|(rank, _)| Action::Recover { rank }));
            }
            Input::Together if saving || self.phase == Phase::Running => {
                self.phase = Phase::RollingBack { together: true };
                todo.push(Action::KillAll);
            }
            _ => {}
        }
    }

    fn alive(&self) -> bool {
        self.ranks.iter().any(|r| [Life::Starting, Life::Alive].contains(&r.life))
    }

    fn all_gone(&self) -> bool {
        self.ranks.iter().all(|r| [Life::Gone, Life::Failed].contains(&r.life))
    }

    /// A rank that had ended before the job was saved.
    pub fn set_gone(&mut self, rank: u32) {
        self.ranks[rank as usize].life = Life::Gone;
    }

    /// What follows once the last process is gone.
    fn settle(&mut self, todo: &mut Vec<Action>) {
        if self.alive() {
            return;
        }
        match self.phase {
            Phase::Running | Phase::Saving { .. } if self.all_gone() => {}
            Phase::Saving { ordered, alone } => {
                self.phase = Phase::Saving { ordered: true, alone };
                if !ordered {
                    todo.push(Action::Save);
                }
                return;
            }
            Phase::Stopping { .. } | Phase::Ending => {}
            Phase::RollingBack { together } => {
                self.phase = Phase::Running;
                for rank in &mut self.ranks {
                    // All alike begin anew; what one does at one and the same point still counts.
                    if !together {
                        *rank = Rank::new(rank.life);
                    }
                    rank.life = Life::Waiting;
                }
                todo.push(match std::mem::take(&mut self.regroups) {
                    true => Action::Regroup,
                    false => Action::RestartAll,
                });
                return;
            }
            Phase::Running | Phase::Over => return,
        }
        self.phase = Phase::Over;
        todo.push(Action::End { code: self.code });
    }

    fn died(
        &mut self,
        rank: u32,
        (death, why): (Death, Why),
        said: Said,
        progress: u64,
        protected: bool,
        todo: &mut Vec<Action>,
    ) {
        match (said, death) {
            (Said::Aborted { code, text }, _) => self.aborted(rank, code, &text, todo),
            (Said::Diverged { text }, _) => self.diverged(rank, &text, todo),
            (Said::Running, Death::Exit(0)) => {
                let text = format!("rank {rank} exited without calling MPI_Finalize");
                self.end(1, text, todo);
            }
            (_, Death::Exit(0)) => self.ranks[rank as usize].life = Life::Gone,
            (_, Death::Exit(_)) if why.elsewhere => {
                todo.push(Action::RecoverLater { rank, pause: Duration::ZERO, elsewhere: true });
            }
            (_, Death::Exit(code)) => {
                let cause = why.cause.map_or(String::new(), |cause| format!(" ({cause})"));
                self.end(code, format!("rank {rank} exited with code {code}{cause}"), todo);
            }
            (_, Death::Signal(signal)) if self.reports => {
                let what = format!("died of {}", told(signal, &why));
                self.fails(rank, signal, &what, todo);
            }
            (_, Death::Signal(signal)) if !protected || !self.recovers => {
                let mut text = format!("rank {rank} died of {}", told(signal, &why));
                if self.recovers {
                    let _ = write!(text, "; the job runs without protection and ends");
                }
                self.end(128 + signal, text, todo);
            }
            (_, Death::Signal(signal)) => self.fault(rank, signal, &why, progress, todo),
        }
    }

    /// A rank is lost, and the others are to go on without it.
    fn fails(&mut self, rank: u32, signal: i32, what: &str, todo: &mut Vec<Action>) {
        self.ranks[rank as usize].life = Life::Failed;
        todo.push(Action::Report { rank });
        let is_left = |r: &Rank| [Life::Waiting, Life::Starting, Life::Alive].contains(&r.life);
        if !self.ranks.iter().any(is_left) {
            let text = format!("rank {rank} {what}, and no rank is left that could go on");
            return self.end(128 + signal, text, todo);
        }
        todo.push(Action::Say(format!("rank {rank} {what}; the others are told")));
    }

    fn lost(&mut self, rank: u32, protected: bool, todo: &mut Vec<Action>) {
        if self.reports {
            return self.fails(rank, SIGKILL, "is lost with its node", todo);
        }
        if protected && self.recovers {
            todo.push(Action::Recover { rank });
            return;
        }
        let text =
            format!("rank {rank} is lost with its node; the job runs without protection and ends");
        self.end(128 + SIGKILL, text, todo);
    }

    fn fault(&mut self, rank: u32, signal: i32, why: &Why, progress: u64, todo: &mut Vec<Action>) {
        if why.meant {
            todo.push(Action::Recover { rank });
            return;
        }
        let name = told(signal, why);
        let r = &mut self.ranks[rank as usize];
        let same_point = r.last == Some((signal, progress));
        r.same_point = if same_point { r.same_point + 1 } else { 1 };
        r.last = Some((signal, progress));
        let (before, place) = r.furthest;
        if r.fruitless == 0 || progress > before || r.reached > place {
            (r.fruitless, r.furthest) = (0, (progress.max(before), r.reached));
        }
        r.fruitless += 1;
        if repeats(signal) && r.same_point >= SAME_POINT_DEATHS {
            let cause = why.cause.as_ref().map_or(String::new(), |cause| format!(" ({cause})"));
            let text = format!(
                "rank {rank} died of {} three times at the same point: \
                 this is the program's own fault{cause}",
                signal_name(signal)
            );
            return self.end(128 + signal, text, todo);
        }
        if r.fruitless >= FRUITLESS_DEATHS {
            let text = format!(
                "rank {rank} died {FRUITLESS_DEATHS} times in a row without getting on, at last \
                 of {name}"
            );
            return self.end(128 + signal, text, todo);
        }
        let count = r.fruitless;
        if self.repeats_in_vain() {
            self.gets_on();
        }
        if self.repeats_in_vain() {
            return self.roll_back(&format!("rank {rank} died of {name}"), todo);
        }
        let r = &mut self.ranks[rank as usize];
        if repeats(signal) && r.same_point + 1 == SAME_POINT_DEATHS {
            // At another node it may be none.
            todo.push(Action::RecoverLater { rank, pause: Duration::ZERO, elsewhere: true });
            return;
        }
        let of_limit = [SIGKILL, SIGXCPU, SIGXFSZ].contains(&signal);
        if let Some(cause) = why.cause.as_ref().filter(|_| of_limit && !r.told) {
            r.told = true;
            let what = match signal {
                SIGKILL => format!("was {cause}"),
                _ => format!("died of {name}"),
            };
            todo.push(Action::Say(format!("rank {rank} {what}; it is brought back")));
        }
        if count < DEATHS_AT_ONCE {
            todo.push(Action::Recover { rank });
            return;
        }
        if count == DEATHS_AT_ONCE {
            todo.push(Action::Say(format!(
                "rank {rank} died {count} times in a row without getting on, now of {name}: it is \
                 brought back after growing pauses; after {FRUITLESS_DEATHS} times the job ends"
            )));
        }
        let pause = PAUSE.saturating_mul(1 << (count - DEATHS_AT_ONCE).min(8));
        let elsewhere = count.is_multiple_of(DEATHS_ON_ONE_NODE);
        todo.push(Action::RecoverLater { rank, pause, elsewhere });
    }

    fn died_stopping(&mut self, rank: u32, death: Death) {
        let code = match death {
            Death::Exit(0) => {
                self.ranks[rank as usize].life = Life::Gone;
                return;
            }
            Death::Exit(code) => code,
            Death::Signal(signal) => 128 + signal,
        };
        if self.code == 0 {
            self.code = code;
        }
    }

    fn aborted(&mut self, rank: u32, code: i32, text: &str, todo: &mut Vec<Action>) {
        let line = match text {
            "" => format!("rank {rank} called MPI_Abort with code {code}"),
            // An error that is fatal: the program has not called it.
            why if why.starts_with("rank ") => why.to_string(),
            why => format!("rank {rank}: {why}"),
        };
        // An exit code has eight bits; an abort must not look like success.
        let code = if code & 0xff == 0 { 1 } else { code & 0xff };
        self.end(code, line, todo);
    }

    fn end(&mut self, code: i32, text: String, todo: &mut Vec<Action>) {
        todo.push(Action::Say(text));
        self.kill(code, todo);
    }

    fn kill(&mut self, code: i32, todo: &mut Vec<Action>) {
        self.code = code;
        self.phase = Phase::Ending;
        todo.push(Action::KillAll);
    }

    fn stop(&mut self, signal: i32, cause: Cause, todo: &mut Vec<Action>) {
        match self.phase {
            Phase::Running | Phase::RollingBack { .. } => {
                self.phase = Phase::Stopping { signal };
                self.cause = cause;
                // Ranks that wait for their recovery are not brought back any more.
                if self.ranks.iter().any(|r| [Life::Waiting, Life::Starting].contains(&r.life)) {
                    self.code = 128 + signal;
                }
                todo.push(Action::SignalAll(signal));
                todo.push(Action::ArmGrace);
            }
            Phase::Stopping { signal } => self.kill(128 + signal, todo),
            Phase::Saving { .. } => {
                todo.push(Action::Say(String::from("the job is being saved, and ends then")));
            }
            Phase::Ending | Phase::Over => {}
        }
    }
}

/// Why a job ends that is asked to by a signal.
fn cause_of(signal: i32) -> Cause {
    match signal {
        SIGHUP => Cause::HungUp,
        SIGTERM => Cause::Terminated,
        _ => Cause::User,
    }
}

/// Whether a rank that was running was killed, for all it said.
fn is_kill(said: &Said, death: Death) -> bool {
    matches!((said, death), (Said::Nothing | Said::Running, Death::Signal(_)))
}

/// Signals that a program gets again where it got them.
fn repeats(signal: i32) -> bool {
    is_own_bug(signal) || signal == SIGXFSZ
}

/// A signal with what the kernel tells of it.
fn told(signal: i32, why: &Why) -> String {
    let name = signal_name(signal);
    why.cause.as_ref().map_or(name.clone(), |cause| format!("{name} ({cause})"))
}

#[cfg(test)]
#[path = "monitor_tests.rs"]
mod tests;
