//! How ranks stand still or are slowed down: what was ordered, and who holds them.
//!
//! Kept true: work that is handed to the thread of a rank is done in any case. Threads and orders
//! are left to `suspend`.

use eyrie_image::Frozen;
use std::io;
use std::sync::mpsc::{SendError, Sender};
use std::time::{Duration, Instant};

/// How long a rank that is slowed down runs each time ...
pub(crate) const RUN: Duration = Duration::from_millis(1);

/// ... and if it hardly runs: what it writes meanwhile is what is left to copy in the end ...
pub(crate) const SHORT_RUN: Duration = Duration::from_micros(250);

/// ... which it does if it runs one part in so many of the time.
pub(crate) const HARDLY: u32 = 64;

/// How long one stands at most that has run for longer than it was to, on a machine that is busy.
pub(crate) const MOST_STANDING: Duration = Duration::from_millis(500);

/// How a rank is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It stands still.
    Still,
    /// It runs one part in so many of the time.
    Slow(u32),
}

impl Manner {
    pub(crate) fn hardly_runs(self) -> bool {
        matches!(self, Manner::Slow(HARDLY..))
    }

    /// How long it runs each time.
    pub(crate) fn runs_for(self) -> Duration {
        if self.hardly_runs() { SHORT_RUN } else { RUN }
    }

    /// How long it stands after it has run for some time, if not until it is told otherwise.
    pub(crate) fn stands_for(self, ran: Duration) -> Option<Duration> {
        match self {
            Manner::Still => None,
            Manner::Slow(part) => {
                let most = MOST_STANDING.max(self.runs_for() * (part - 1));
                Some((ran.max(self.runs_for()) * (part - 1)).min(most))
            }
        }
    }
}

/// The order by which the ranks of a node stand still.
pub(crate) struct Halt {
    pub(crate) turn: u64,
    /// It was answered.
    pub(crate) told: bool,
}

/// A rank that stands still, or is about to.
pub(crate) struct Standing {
    pub(crate) start: u64,
    /// Dropped: it goes on.
    pub(crate) go_on: Option<Sender<Handed>>,
    pub(crate) manner: Manner,
    pub(crate) stands: bool,
    /// Its thread has other work to do with it.
    pub(crate) handed: bool,
}

impl Standing {
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// Of a rank that is dead: until its thread is done with that.
    pub fn called_off(self) -> Standing {
        Standing { go_on: None, ..self }
    }

    /// Whether what is to be done with the process can be given to the thread that slows it down.
    pub fn is_slow(&self) -> bool {
        self.go_on.is_some() && !self.handed && matches!(self.manner, Manner::Slow(_))
    }

    pub fn hardly_runs(&self) -> bool {
        self.manner.hardly_runs()
    }

    /// Gives it work, after which it has the process again if that is given back: `handed_back`.
    pub fn hand(
        &mut self,
        work: impl FnOnce(Option<Frozen>) -> Option<Frozen> + Send + 'static,
    ) -> io::Result<()> {
        let Some(go_on) = &self.go_on else { return Ok(()) };
        if let Err(SendError(handed)) = go_on.send(Handed(Some(Box::new(work)))) {
            // It has just ended.
            let thread = std::thread::Builder::new().name(String::from("eyrie-ckpt"));
            thread.spawn(move || drop(handed))?;
        }
        self.handed = true;
        Ok(())
    }
}

pub(crate) type Work = dyn FnOnce(Option<Frozen>) -> Option<Frozen> + Send;

/// Work with the process, by the thread that holds it. It is done in any case: without the process
/// if the thread ends before it looks.
pub(crate) struct Handed(Option<Box<Work>>);

impl Handed {
    pub(crate) fn work(mut self, frozen: Option<Frozen>) -> Option<Frozen> {
        self.0.take().and_then(|work| work(frozen))
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|work| drop(work(None)));
    }
}

/// Whether the ranks of this node are to stand still, also those to come.
#[derive(Default)]
pub(crate) struct Suspension {
    /// By the controller's order.
    pub(crate) order: Option<Halt>,
    /// Since when they are to, as another controller may have followed this node's.
    pub leaderless_since: Option<Instant>,
    /// All of this node is ended, as they did not come to stand.
    pub given_up: bool,
}

impl Suspension {
    pub(crate) fn is_wanted(&self) -> bool {
        self.order.is_some() || self.is_leaderless()
    }

    /// Whether ranks may run elsewhere soon: none runs here, not even for its image.
    pub fn is_leaderless(&self) -> bool {
        self.leaderless_since.is_some()
    }
}

/// How a rank stands or is slowed down.
#[derive(Default)]
pub(crate) struct Stand {
    /// It stands still with the job, or now and then as it is slowed down.
    pub standing: Option<Standing>,
    /// It is to run one part in so many of the time.
    pub slowed: Option<u32>,
    /// Why it could not be stopped.
    pub restless: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rank_stands_by_how_long_it_has_run() {
        let ms = Duration::from_millis;
        let stands = |part, ran| Manner::Slow(part).stands_for(ran);
        assert_eq!(Manner::Still.stands_for(ms(1)), None);
        assert_eq!(stands(8, Duration::ZERO), Some(RUN * 7), "it has not run yet");
        assert_eq!(stands(8, ms(10)), Some(ms(70)));
        assert_eq!(stands(256, SHORT_RUN), Some(SHORT_RUN * 255));
        assert_eq!(stands(256, ms(100)), Some(MOST_STANDING));
        assert!(!Manner::Slow(8).hardly_runs() && Manner::Slow(256).hardly_runs());
    }
}
