//! The controller's time, which is given to it with each event.
//!
//! Kept true: nothing in the controller reads a clock. Whoever drives it (`serve::drive`, or a
//! simulator) says what its clocks show before it hands over an event, and that holds until the
//! next one.

use eyrie_control::{Event, EventKind};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::time::{Duration, SystemTime};

/// What the clocks show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since the controller's process began, by a clock that nobody sets.
    pub steady: Duration,
    /// The same, and it goes on while the machine sleeps.
    pub boot: Duration,
    pub wall: SystemTime,
    /// The wall clock when the others began.
    pub origin: SystemTime,
}

impl Now {
    pub(crate) fn moment(&self) -> Moment {
        Moment { at: Some(self.steady), unix_ms: self.unix_ms() }
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        eyrie_state::wall_clock::unix_ms(self.wall)
    }

    /// How long before the process began that was, by the wall clock.
    fn before_origin(&self, unix_ms: u64) -> Duration {
        Duration::from_millis(eyrie_state::wall_clock::unix_ms(self.origin).saturating_sub(unix_ms))
    }

    #[cfg(test)]
    pub fn of_test() -> Now {
        let wall = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let steady = Duration::from_secs(1000);
        Now { steady, boot: steady, wall, origin: wall - steady }
    }

    /// So much later.
    #[cfg(test)]
    pub fn after(self, time: Duration) -> Now {
        let Now { steady, boot, wall, origin } = self;
        Now { steady: steady + time, boot: boot + time, wall: wall + time, origin }
    }
}

/// A moment that another process can make something of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// None: it was before this controller.
    at: Option<Duration>,
    unix_ms: u64,
}

impl Moment {
    pub fn elapsed(&self, clock: Now) -> Duration {
        match self.at {
            Some(at) => clock.steady.saturating_sub(at),
            None => clock.steady + clock.before_origin(self.unix_ms),
        }
    }

    pub fn elapsed_ms(&self, clock: Now) -> f64 {
        self.elapsed(clock).as_secs_f64() * 1e3
    }
}

impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.unix_ms.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        Ok(Moment { at: None, unix_ms: u64::deserialize(from)? })
    }
}

/// The clocks as the controller knows them, and since when there is the job.
pub(crate) struct Clock {
    now: Cell<Now>,
    /// When this controller took the job up, and how old it was then.
    taken_up: Duration,
    before: Duration,
    begun: SystemTime,
}

impl Clock {
    /// Of a job that was so old already.
    pub fn new(now: Now, before: Duration) -> Clock {
        let begun = now.wall - before;
        Clock { now: Cell::new(now), taken_up: now.steady, before, begun }
    }

    /// It began then, under another controller.
    pub fn begun_at(&mut self, unix_ms: u64) {
        let before = self.now.get().before_origin(unix_ms);
        (self.taken_up, self.before) = (Duration::ZERO, before);
        self.begun = std::time::UNIX_EPOCH + Duration::from_millis(unix_ms);
    }

    pub fn set(&self, now: Now) {
        self.now.set(now);
    }

    pub fn now(&self) -> Now {
        self.now.get()
    }

    /// How old the job is.
    pub fn age(&self) -> Duration {
        self.now.get().steady.saturating_sub(self.taken_up) + self.before
    }

    /// The same in milliseconds, as events have it.
    pub fn age_ms(&self) -> f64 {
        self.age().as_secs_f64() * 1e3
    }

    /// When the job began, by the wall clock.
    pub fn begun(&self) -> SystemTime {
        self.begun
    }
}

impl Clock {
    /// An event that happens now.
    pub fn event(&self, kind: EventKind) -> Event {
        Event::new(self.age_ms(), kind)
    }

    pub fn now_ms(&self) -> u64 {
        self.age().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_before_this_controller_is_known_by_the_wall_clock() {
        let clock = Now::of_test();
        let moment = clock.moment();
        let later = clock.after(Duration::from_secs(7));
        assert_eq!(moment.elapsed(later), Duration::from_secs(7));
        let bytes = postcard::to_stdvec(&moment).unwrap();
        // The next controller begins 3 s later, and looks 2 s after that.
        let origin = clock.wall + Duration::from_secs(3);
        let steady = Duration::from_secs(2);
        let next = Now { steady, boot: steady, wall: origin + steady, origin };
        let known: Moment = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(known.elapsed(next), Duration::from_secs(5));
        assert_eq!(postcard::to_stdvec(&known).unwrap(), bytes);
    }

    #[test]
    fn a_job_that_is_gone_on_with_is_as_old_as_it_is() {
        let clock = Now::of_test();
        let mut own = Clock::new(clock, Duration::from_secs(60));
        own.set(clock.after(Duration::from_secs(5)));
        assert_eq!(own.age(), Duration::from_secs(65));
        assert_eq!(own.begun(), clock.wall - Duration::from_secs(60));
        own.begun_at(eyrie_state::wall_clock::unix_ms(clock.origin) - 9_000);
        assert_eq!(own.age(), clock.steady + Duration::from_secs(5 + 9));
    }
}
