//! Copy or twin: which of the two costs the program less, by what was measured on it.
//!
//! Pages that have changed can be copied while the program stands still, into a bounded buffer; or
//! a twin is made, which takes time by the size of the whole process, and after that each first
//! write to a page costs a copy of it as long as the twin lives. What is done about a twin while
//! the program runs takes processors that the program, or another one, may want.

use std::time::Duration;

/// Most bytes of pages that are copied while the process stands still.
pub const MAX_COPY_BYTES: u64 = 48 << 20;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;
/// How much of an average a new measurement makes up.
const WEIGHT: f64 = 0.5;
/// What is assumed as long as nothing was measured.
const FORK_S_PER_GIB: f64 = 0.012;
const LIST_S_PER_GIB: f64 = 0.017;
const COPY_BYTES_PER_S: f64 = 2e9;
const FRESH_S_PER_BYTE: f64 = 2e-6 / 4096.0;
/// What a second of work costs the program that is done while it runs: listing the twin's pages,
/// and ending it, which takes about as long as making it.
const MEANWHILE: f64 = 0.5;
/// First write to a page while a twin lives.
const COW_S_PER_BYTE: f64 = 4.7e-6 / 4096.0;
/// Smaller amounts say nothing about speed.
const MIN_SAMPLE_BYTES: u64 = 1 << 20;

/// How the content of a frozen process is to be kept until it is in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Whichever of copy and twin costs the program less.
    #[default]
    Auto,
    /// Pages that have changed are copied while it stands still, up to 48 MiB of them; a twin if
    /// there are more.
    Copy,
    /// A twin is made.
    Twin,
    /// Not at all: the image is written while it stands still.
    Sync,
}

impl Mode {
    /// What `EYRIE_IMAGE_FREEZE` (`auto`, `copy`, `twin`, `sync`) asks for, for tests; else `Auto`.
    pub fn from_env() -> Mode {
        match std::env::var("EYRIE_IMAGE_FREEZE").as_deref() {
            Ok("copy") => Mode::Copy,
            Ok("twin") => Mode::Twin,
            Ok("sync") => Mode::Sync,
            _ => Mode::Auto,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "undecided",
            Mode::Copy => "copy",
            Mode::Twin => "twin",
            Mode::Sync => "synchronous",
        }
    }
}

/// What was decided for one freeze, and why.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Choice {
    /// `Copy`, `Twin` or `Sync`; `Auto` before the first.
    pub mode: Mode,
    /// Why, for the user.
    pub why: String,
}

/// What a freeze would have to cope with.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Memory of the process that a twin shares with it.
    pub own_bytes: u64,
    /// What has to be stored of it.
    pub changed_bytes: u64,
    /// Memory for a copy that has been used before; what is not ready costs extra.
    pub ready_bytes: u64,
    /// How long ago that was unchanged.
    pub interval: Option<Duration>,
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    fork_s_per_gib: Option<f64>,
    list_s_per_gib: Option<f64>,
    copy_bytes_per_s: Option<f64>,
    fresh_s_per_byte: Option<f64>,
    store_bytes_per_s: Option<f64>,
}

fn blend(average: &mut Option<f64>, sample: f64) {
    *average = Some(average.map_or(sample, |old| old + WEIGHT * (sample - old)));
}

impl Cost {
    /// Making a twin of a process with so much memory took so long.
    pub fn forked(&mut self, own_bytes: u64, took: Duration) {
        if own_bytes >= MIN_SAMPLE_BYTES {
            blend(&mut self.fork_s_per_gib, took.as_secs_f64() / (own_bytes as f64 / GIB));
        }
    }

    /// Listing the mappings and pages of a process took so long.
    pub fn listed(&mut self, own_bytes: u64, took: Duration) {
        if own_bytes >= MIN_SAMPLE_BYTES {
            blend(&mut self.list_s_per_gib, took.as_secs_f64() / (own_bytes as f64 / GIB));
        }
    }

    /// Copying so many bytes took so long.
    pub fn copied(&mut self, bytes: u64, took: Duration) {
        if bytes >= MIN_SAMPLE_BYTES {
            blend(&mut self.copy_bytes_per_s, bytes as f64 / took.as_secs_f64().max(1e-9));
        }
    }

    /// Having so much memory for the first time took so long.
    pub fn grown(&mut self, bytes: u64, took: Duration) {
        if bytes >= MIN_SAMPLE_BYTES {
            blend(&mut self.fresh_s_per_byte, took.as_secs_f64() / bytes as f64);
        }
    }

    /// Getting so many bytes out of a twin took so long.
    pub fn stored(&mut self, bytes: u64, took: Duration) {
        if bytes >= MIN_SAMPLE_BYTES {
            blend(&mut self.store_bytes_per_s, bytes as f64 / took.as_secs_f64().max(1e-9));
        }
    }

    /// Seconds that a copy costs the program.
    fn copy_s(&self, load: &Load, changed: u64) -> f64 {
        let list = self.list_s_per_gib.unwrap_or(LIST_S_PER_GIB) * load.own_bytes as f64 / GIB;
        let fresh = changed.saturating_sub(load.ready_bytes) as f64
            * self.fresh_s_per_byte.unwrap_or(FRESH_S_PER_BYTE);
        list + fresh + changed as f64 / self.copy_bytes_per_s.unwrap_or(COPY_BYTES_PER_S)
    }

    /// Seconds that a twin costs it: making it, the pages that it will write meanwhile, and what is
    /// to be done about the twin.
    fn twin_s(&self, load: &Load, changed: u64) -> f64 {
        let own_gib = load.own_bytes as f64 / GIB;
        let fork = self.fork_s_per_gib.unwrap_or(FORK_S_PER_GIB) * own_gib;
        let list = self.list_s_per_gib.unwrap_or(LIST_S_PER_GIB) * own_gib;
        let life = changed as f64 / self.store_bytes_per_s.unwrap_or(COPY_BYTES_PER_S);
        let interval = load.interval.map_or(f64::INFINITY, |i| i.as_secs_f64().max(1e-3));
        let written = changed as f64 * (life / interval).min(1.0);
        fork + written * COW_S_PER_BYTE + MEANWHILE * (list + fork)
    }

    /// Whether a copy would have cost less if there had been memory for it.
    pub fn lacks_memory(&self, load: &Load) -> bool {
        let ready = Load { ready_bytes: load.changed_bytes, ..*load };
        load.ready_bytes < load.changed_bytes && self.choose(Mode::Auto, &ready).mode == Mode::Copy
    }

    /// Decides for one freeze.
    pub fn choose(&self, wish: Mode, load: &Load) -> Choice {
        let mib = |bytes: u64| bytes as f64 / MIB;
        let choice = |mode, why: String| Choice { mode, why };
        match (wish, load.changed_bytes) {
            (Mode::Twin | Mode::Sync, _) => choice(wish, "as asked for".into()),
            (_, changed) if changed > MAX_COPY_BYTES => {
                let (changed, most) = (mib(changed), mib(MAX_COPY_BYTES));
                choice(
                    Mode::Twin,
                    format!("{changed:.0} MiB to store, copied are {most:.0} at most"),
                )
            }
            (Mode::Copy, _) => choice(Mode::Copy, "as asked for".into()),
            (Mode::Auto, changed) => {
                let (copy, twin) = (self.copy_s(load, changed), self.twin_s(load, changed));
                let (mode, less, more, other) = if copy <= twin {
                    (Mode::Copy, copy, twin, "a twin")
                } else {
                    (Mode::Twin, twin, copy, "a copy")
                };
                let (less, more) = (less * 1e3, more * 1e3);
                let what =
                    format!("{:.1} of {:.0} MiB to store", mib(changed), mib(load.own_bytes));
                choice(mode, format!("{what}: {less:.1} ms expected, {more:.1} with {other}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(own_mib: u64, changed_mib: u64) -> Load {
        Load {
            own_bytes: own_mib << 20,
            changed_bytes: changed_mib << 20,
            ready_bytes: changed_mib << 20,
            interval: Some(Duration::from_secs(10)),
        }
    }

    #[test]
    fn little_is_copied_and_much_has_a_twin() {
        let cost = Cost::default();
        let mode = |own, changed| cost.choose(Mode::Auto, &load(own, changed)).mode;
        assert_eq!(mode(1024, 1), Mode::Copy);
        assert_eq!(mode(1024, 60), Mode::Twin);
        assert_eq!(mode(65536, 45), Mode::Copy);
        assert_eq!(mode(65536, 49), Mode::Twin);
    }

    #[test]
    fn measurements_replace_assumptions() {
        let mut cost = Cost::default();
        let small = load(1024, 8);
        assert_eq!(cost.choose(Mode::Auto, &small).mode, Mode::Copy);
        // Huge pages: a twin is made in no time.
        for _ in 0..8 {
            cost.forked(1 << 30, Duration::from_micros(800));
        }
        let choice = cost.choose(Mode::Auto, &small);
        assert_eq!(choice.mode, Mode::Twin);
        assert!(choice.why.starts_with("8.0 of 1024 MiB to store: 9."), "{}", choice.why);
        for _ in 0..8 {
            cost.listed(1 << 30, Duration::from_micros(100));
            cost.copied(1 << 30, Duration::from_millis(100));
        }
        assert_eq!(cost.choose(Mode::Auto, &load(1024, 1)).mode, Mode::Copy);
        assert_eq!(cost.choose(Mode::Auto, &load(1024, 20)).mode, Mode::Twin);
    }

    #[test]
    fn what_is_written_while_a_twin_lives_counts() {
        let mut cost = Cost::default();
        // Storage so slow that the twin lives as long as the whole interval.
        cost.stored(1 << 20, Duration::from_secs(1));
        assert_eq!(cost.choose(Mode::Auto, &load(1024, 30)).mode, Mode::Copy);
    }

    #[test]
    fn memory_that_is_not_there_yet_counts() {
        let cost = Cost::default();
        let small = Load { ready_bytes: 0, ..load(1024, 12) };
        assert_eq!(cost.choose(Mode::Auto, &small).mode, Mode::Twin);
        assert!(cost.lacks_memory(&small));
        assert!(!cost.lacks_memory(&load(1024, 12)));
        assert!(!cost.lacks_memory(&Load { ready_bytes: 0, ..load(1024, 60) }));
    }

    #[test]
    fn wishes_are_granted_within_bounds() {
        let cost = Cost::default();
        let mode = |wish, changed| cost.choose(wish, &load(1024, changed)).mode;
        assert_eq!(mode(Mode::Twin, 1), Mode::Twin);
        assert_eq!(mode(Mode::Sync, 1000), Mode::Sync);
        assert_eq!(mode(Mode::Copy, 45), Mode::Copy);
        assert_eq!(mode(Mode::Copy, 49), Mode::Twin);
    }
}
