//! The durations of a job that its user, or a test, may want to set: heartbeats and what silence is
//! borne, leases, graces, retries, limits. All parts of a job have them from its description.
//!
//! Kept true: each has a key, a default and bounds here, and nowhere else; what follows from one (a
//! half, a multiple) is computed from it; values that contradict each other are refused with what
//! to write instead. On a wire and in files stand those that are not the defaults, by their keys:
//! one that is added later changes no bytes.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Name, default and bounds of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub group: &'static str,
    pub key: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    pub default_ms: u64,
    pub least_ms: u64,
    pub most_ms: u64,
}

/// Makes a struct of each group, and the table of all.
macro_rules! settings {
    ($(
        $(#[$doc:meta])+
        $group:ident: $name:ident {
            $(
                $field:ident: $key:literal = $default:literal ($least:literal..$most:literal)
                    $about:literal;
            )+
        }
    )+) => {
        $(
            $(#[$doc])+
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name {
                $(#[doc = $about] pub $field: u64,)+
            }

            impl $name {
                pub const DEFAULT: $name = $name { $($field: $default,)+ };
            }

            impl Default for $name {
                fn default() -> $name {
                    $name::DEFAULT
                }
            }
        )+

        /// The durations that can be set.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Intervals {
            $(pub $group: $name,)+
        }

        /// All of them, in the order in which they are shown.
        pub const SETTINGS: &[Setting] = &[
            $($(Setting {
                group: stringify!($group),
                key: $key,
                about: $about,
                default_ms: $default,
                least_ms: $least,
                most_ms: $most,
            },)+)+
        ];

        impl Intervals {
            pub const DEFAULT: Intervals = Intervals { $($group: $name::DEFAULT,)+ };

            /// The values, in the order of `SETTINGS`.
            pub fn values_ms(&self) -> Vec<u64> {
                vec![$($(self.$group.$field,)+)+]
            }

            fn places(&mut self) -> Vec<&mut u64> {
                vec![$($(&mut self.$group.$field,)+)+]
            }
        }
    };
}

settings! {
    /// When silence counts as death.
    detector: Detector {
        heartbeat_ms: "heartbeat" = 100 (10..10_000)
            "Time between two heartbeats of a controller and a node";
        silence_least_ms: "silence-least" = 2_000 (200..600_000)
            "Silence of a node that is always borne";
        silence_most_ms: "silence-most" = 20_000 (200..3_600_000)
            "Silence of a node that is never borne; two hosts that do not reach each other for so \
             long are parted";
        machine_silence_ms: "machine-silence" = 750 (100..600_000)
            "Silence of a node's machine that is always borne: it acknowledges nothing";
    }
    /// Who leads a job whose state is in etcd (`--ha`).
    lease: Lease {
        lease_ms: "lease" = 5_000 (2_000..600_000)
            "How long a controller leads that etcd hears nothing of, in whole seconds";
        stand_after_ms: "stand-after" = 25_000 (3_000..3_600_000)
            "How long ranks go on without a sign that nobody has followed their controller";
    }
    /// The time that something has which is to end, or to stand.
    grace: Grace {
        end_ms: "end" = 10_000 (100..3_600_000)
            "Time of a job for an orderly end after the first signal";
        leave_ms: "leave" = 30_000 (1_000..3_600_000)
            "Time of a node that has left to end";
        stand_within_ms: "stand-within" = 5_000 (500..600_000)
            "Time of ranks to stand that may run elsewhere soon; they are killed then";
        notices_ms: "notices" = 1_000 (10..600_000)
            "How long notices of other machines are waited for before nodes leave together";
        hang_up_ms: "hang-up" = 10_000 (100..3_600_000)
            "Time of nodes to end when the job is over, and of a controller to let a node go";
    }
    /// For how long, and how often, is tried again what fails.
    retries: Retries {
        checkpoints_ms: "retry-checkpoints" = 10_000 (100..3_600_000)
            "How long checkpoints of a rank fail in a row before they are given up";
        saves_ms: "retry-saves" = 30_000 (100..3_600_000)
            "How long a save without a deadline is tried again";
        write_ms: "retry-writes" = 5_000 (10..3_600_000)
            "Time between two attempts to write a journal or a state that could not be written";
        fetch_ms: "retry-fetches" = 10_000 (100..3_600_000)
            "How long a node tries to fetch an image of which nothing comes";
        start_pause_ms: "start-pause" = 10_000 (100..3_600_000)
            "Longest pause before a rank is started anew that could not be started";
        crash_pause_ms: "crash-pause" = 5_000 (10..3_600_000)
            "Longest pause before a rank comes back that dies again and again";
    }
    /// The longest waits.
    limits: Limits {
        link_silence_ms: "link-silence" = 20_000 (2_000..3_600_000)
            "Silence until a connection for messages or images is made anew, in whole seconds";
        rejoin_ms: "rejoin" = 20_000 (1_000..3_600_000)
            "How long a controller that takes over waits for nodes";
        safe_point_ms: "safe-point" = 20_000 (100..3_600_000)
            "How long is waited for a rank to come to where it can be checkpointed";
        cut_ms: "cut" = 5_000 (100..3_600_000)
            "How long ranks of a node stand for those of other nodes at a consistent cut";
        gateway_alone_ms: "gateway-alone" = 15_000 (1_000..3_600_000)
            "How long a gateway may reach no other one before it is started on another node";
        gateway_start_ms: "gateway-start" = 60_000 (1_000..3_600_000)
            "How long a gateway may take to listen; where hosts have longer to join, so long";
        connect_ms: "connect" = 5_000 (100..600_000)
            "How long a node waits for another one's answer while they connect";
        greeting_ms: "greeting" = 20_000 (1_000..3_600_000)
            "How long a node waits for its controller's first answer";
        answers_ms: "answers" = 1_000 (10..600_000)
            "How long nodes may take to say how their ranks are";
        survey_ms: "survey" = 10_000 (10..3_600_000)
            "How long is waited for what lies in a store, before a state goes to the job's folder";
    }
    /// How often it is told how the job is.
    watching: Watching {
        metrics_ms: "metrics" = 10_000 (100..3_600_000)
            "Time between two writes of the file of metrics";
    }
}

/// Why durations cannot be so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    #[error("{0}: there is no such duration")]
    Unknown(String),
    #[error(
        "{key} = {}: it takes {} to {} seconds",
        seconds(*.ms), seconds(*.least_ms), seconds(*.most_ms)
    )]
    Bounds { key: &'static str, ms: u64, least_ms: u64, most_ms: u64 },
    #[error("{key} = {}: write whole seconds", seconds(*.ms))]
    Whole { key: &'static str, ms: u64 },
    #[error(
        "{low} = {} is too long for {high} = {}: {why}; set {low} to {} or less, or {high} to {} \
         or more",
        seconds(*.low_ms), seconds(*.high_ms), seconds(*.low_most_ms), seconds(*.high_least_ms)
    )]
    Order {
        low: &'static str,
        low_ms: u64,
        low_most_ms: u64,
        high: &'static str,
        high_ms: u64,
        high_least_ms: u64,
        why: &'static str,
    },
}

impl TimingError {
    /// The keys that it is about.
    pub fn keys(&self) -> Vec<&str> {
        match self {
            TimingError::Unknown(key) => vec![key],
            TimingError::Bounds { key, .. } | TimingError::Whole { key, .. } => vec![key],
            TimingError::Order { low, high, .. } => vec![low, high],
        }
    }
}

/// Milliseconds as seconds, without zeros at the end.
pub fn seconds(ms: u64) -> String {
    let (whole, part) = (ms / 1_000, format!("{:03}", ms % 1_000));
    match part.trim_end_matches('0') {
        "" => whole.to_string(),
        part => format!("{whole}.{part}"),
    }
}

/// The setting of a key.
pub fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// One has to be so many times as long as another one, and longer by so much.
struct Rule {
    low: &'static str,
    times: u64,
    plus_ms: u64,
    high: &'static str,
    why: &'static str,
}

const RULES: [Rule; 6] = [
    Rule {
        low: "heartbeat",
        times: 10,
        plus_ms: 0,
        high: "silence-least",
        why: "ten heartbeats may be late before a node counts as dead",
    },
    Rule {
        low: "heartbeat",
        times: 5,
        plus_ms: 0,
        high: "machine-silence",
        why: "five heartbeats may go without acknowledgement before a machine counts as dead",
    },
    Rule {
        low: "machine-silence",
        times: 1,
        plus_ms: 0,
        high: "silence-least",
        why: "a machine is not waited for longer than a node",
    },
    Rule {
        low: "silence-least",
        times: 1,
        plus_ms: 0,
        high: "silence-most",
        why: "what is always borne is no more than what is ever borne",
    },
    Rule {
        low: "lease",
        times: 1,
        plus_ms: 1_000,
        high: "stand-after",
        why: "ranks go on while a lease is renewed late",
    },
    Rule {
        low: "silence-least",
        times: 1,
        plus_ms: 0,
        high: "rejoin",
        why: "nodes take as long to notice that another controller is there",
    },
];

impl Intervals {
    /// Each with its setting.
    pub fn shown(&self) -> impl Iterator<Item = (&'static Setting, u64)> {
        SETTINGS.iter().zip(self.values_ms())
    }

    /// # Errors
    /// When there is no such key.
    pub fn set(&mut self, key: &str, ms: u64) -> Result<(), TimingError> {
        let at = SETTINGS.iter().position(|setting| setting.key == key);
        let at = at.ok_or_else(|| TimingError::Unknown(key.to_string()))?;
        *self.places().swap_remove(at) = ms;
        Ok(())
    }

    fn get(&self, key: &str) -> u64 {
        self.shown().find(|(setting, _)| setting.key == key).map_or(0, |(_, ms)| ms)
    }

    /// # Errors
    /// When one is out of bounds, or two contradict each other.
    pub fn check(&self) -> Result<(), TimingError> {
        for (&Setting { key, least_ms, most_ms, .. }, ms) in self.shown() {
            if ms < least_ms || ms > most_ms {
                return Err(TimingError::Bounds { key, ms, least_ms, most_ms });
            }
        }
        for key in ["lease", "link-silence"] {
            let ms = self.get(key);
            if !ms.is_multiple_of(1_000) {
                return Err(TimingError::Whole { key, ms });
            }
        }
        RULES.iter().try_for_each(|rule| self.obeys(rule))?;
        self.ranks_stand_before_they_run_elsewhere()
    }

    fn obeys(&self, rule: &Rule) -> Result<(), TimingError> {
        let Rule { low, times, plus_ms, high, why } = *rule;
        let (low_ms, high_ms) = (self.get(low), self.get(high));
        let high_least_ms = low_ms * times + plus_ms;
        let low_most_ms = high_ms.saturating_sub(plus_ms) / times;
        match high_ms < high_least_ms {
            true => Err(TimingError::Order {
                low,
                low_ms,
                low_most_ms,
                high,
                high_ms,
                high_least_ms,
                why,
            }),
            false => Ok(()),
        }
    }

    /// A successor starts ranks elsewhere only when those of a node stand that never heard of it.
    fn ranks_stand_before_they_run_elsewhere(&self) -> Result<(), TimingError> {
        let (low_ms, high_ms) = (self.lease.stand_after_ms, self.limits.rejoin_ms);
        let (unknown_ms, step_ms) = (self.lease.disconnected_ms(), 1_000);
        match low_ms < high_ms + unknown_ms {
            true => Ok(()),
            false => Err(TimingError::Order {
                low: "stand-after",
                low_ms,
                low_most_ms: (high_ms + unknown_ms).saturating_sub(step_ms),
                high: "rejoin",
                high_ms,
                high_least_ms: (low_ms + step_ms).saturating_sub(unknown_ms),
                why: "ranks stand before the next controller starts them elsewhere",
            }),
        }
    }
}

impl Serialize for Intervals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let changed = self.shown().filter(|(setting, ms)| setting.default_ms != *ms);
        let changed: Vec<(&str, u64)> = changed.map(|(setting, ms)| (setting.key, ms)).collect();
        changed.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Intervals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut intervals = Intervals::default();
        for (key, ms) in Vec::<(String, u64)>::deserialize(deserializer)? {
            intervals.set(&key, ms).map_err(D::Error::custom)?;
        }
        intervals.check().map_err(D::Error::custom)?;
        Ok(intervals)
    }
}

#[cfg(test)]
#[path = "timing_tests.rs"]
mod tests;
