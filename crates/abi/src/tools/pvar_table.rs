//! The performance variables: one table, from which the reference page is made, too
//! (`scripts/reference`).
//!
//! What only grows (counters, sums, times) is counted per handle from its start on, and may be
//! stopped, set and reset; all else is always there and only read.

use eyrie_channel::counters::Gauge;
use eyrie_core::tools::Queue;

use super::about::About;
use crate::repr::tools::{PvarClass, Verbosity};

/// Where its value comes from.
#[derive(Clone, Copy)]
pub enum From {
    Gauge(Gauge),
    /// A number of nanoseconds, told in seconds.
    Time(Gauge),
    /// How full the message log is.
    Fill,
    /// What the rank does (`choices::STATE`).
    State,
    /// A queue of the communicator that the handle is bound to.
    Queue(Queue),
}

/// A performance variable.
pub struct Pvar {
    pub name: &'static str,
    pub description: &'static str,
    pub class: PvarClass,
    pub from: From,
    pub verbosity: Verbosity,
    pub category: About,
}

impl Pvar {
    const fn new(
        (name, class): (&'static str, PvarClass),
        category: About,
        from: From,
        description: &'static str,
    ) -> Pvar {
        let verbosity = match category {
            About::Messages | About::Recovery => Verbosity::UserBasic,
            _ => Verbosity::TunerBasic,
        };
        Pvar { name, description, class, from, verbosity, category }
    }

    const fn detail(self) -> Pvar {
        Pvar { verbosity: Verbosity::TunerDetail, ..self }
    }

    /// Whether it only grows, so that a handle counts from its start on.
    pub fn is_total(&self) -> bool {
        matches!(self.class, PvarClass::Counter | PvarClass::Aggregate | PvarClass::Timer)
    }

    /// Whether a handle is bound to a communicator.
    pub fn is_bound(&self) -> bool {
        matches!(self.from, From::Queue(_))
    }
}

use PvarClass::{Aggregate, Counter, Level, Percentage, Size, State, Timer};

/// All performance variables, by index.
pub static PVARS: [Pvar; 16] = [
    Pvar::new(
        ("eyrie_messages_sent", Counter),
        About::Messages,
        From::Gauge(Gauge::MessagesSent),
        "Messages that this rank sent, those of collectives among them",
    ),
    Pvar::new(
        ("eyrie_bytes_sent", Aggregate),
        About::Messages,
        From::Gauge(Gauge::BytesSent),
        "Bytes of these messages",
    ),
    Pvar::new(
        ("eyrie_messages_received", Counter),
        About::Messages,
        From::Gauge(Gauge::MessagesReceived),
        "Messages that this rank received, those of collectives among them",
    ),
    Pvar::new(
        ("eyrie_bytes_received", Aggregate),
        About::Messages,
        From::Gauge(Gauge::BytesReceived),
        "Bytes of these messages",
    ),
    Pvar::new(
        ("eyrie_messages_early", Counter),
        About::Messages,
        From::Gauge(Gauge::Early),
        "Messages of other nodes that came ahead of the links",
    )
    .detail(),
    Pvar::new(
        ("eyrie_posted_receives", Level),
        About::Messages,
        From::Queue(Queue::Posted),
        "Receives of the communicator that wait for a message",
    ),
    Pvar::new(
        ("eyrie_unexpected_messages", Level),
        About::Messages,
        From::Queue(Queue::Unexpected),
        "Messages of the communicator that wait for a receive",
    ),
    Pvar::new(
        ("eyrie_waits", Counter),
        About::Messages,
        From::Gauge(Gauge::Waits),
        "Times that this rank waited in a call for longer than a few microseconds",
    ),
    Pvar::new(
        ("eyrie_wait_time", Timer),
        About::Messages,
        From::Time(Gauge::WaitedNs),
        "Seconds that these took",
    ),
    Pvar::new(
        ("eyrie_log_bytes", Level),
        About::Log,
        From::Gauge(Gauge::LogBytes),
        "Bytes of this rank's message log that are in use, in whole chunks",
    ),
    Pvar::new(
        ("eyrie_log_size", Size),
        About::Log,
        From::Gauge(Gauge::LogSizeBytes),
        "Bytes that this rank's message log may take",
    ),
    Pvar::new(("eyrie_log_fill", Percentage), About::Log, From::Fill, "How full it is, up to 1"),
    Pvar::new(
        ("eyrie_determinant_bytes", Aggregate),
        About::Log,
        From::Gauge(Gauge::DeterminantBytes),
        "Bytes of determinants that this rank recorded",
    )
    .detail(),
    Pvar::new(
        ("eyrie_checkpoints", Counter),
        About::Recovery,
        From::Gauge(Gauge::Checkpoint),
        "Checkpoints of this rank, by the number of the newest; one that failed has a number, too",
    ),
    Pvar::new(
        ("eyrie_recoveries", Counter),
        About::Recovery,
        From::Gauge(Gauge::Recoveries),
        "Times that this rank came back from its death",
    ),
    Pvar::new(
        ("eyrie_state", State),
        About::Recovery,
        From::State,
        "Whether this rank repeats what it had done before it died",
    ),
];
