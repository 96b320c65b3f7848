//! `--save-every`: by time, or by checkpoints; `--encrypt-at-rest`: what nodes store.

use clap::Args;
use eyrie_terminal::units::parse_millis;

/// Who can read what nodes store.
#[derive(Debug, Args)]
pub struct AtRest {
    /// Have the kernel encrypt what nodes store, each with a key that only its kernel has: what is
    /// on their disks is of use to nobody. Takes a file system with fscrypt (ext4, f2fs with the
    /// feature 'encrypt'); such a job is not saved (over nodes)
    #[arg(long, conflicts_with_all = ["keep", "save_every"])]
    pub encrypt_at_rest: bool,
}

/// How often states of a job are saved while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    /// At most so often, in milliseconds.
    Every(u64),
    /// Whenever all ranks have so many newer checkpoints.
    Generations(u32),
}

impl Saving {
    pub fn millis(self) -> u64 {
        match self {
            Saving::Every(ms) => ms,
            Saving::Generations(_) => 0,
        }
    }

    pub fn generations(self) -> u32 {
        match self {
            Saving::Every(_) => 0,
            Saving::Generations(count) => count,
        }
    }
}

pub fn parse_saving(text: &str) -> Result<Saving, String> {
    let Some(count) = text.strip_suffix('g') else { return parse_millis(text).map(Saving::Every) };
    let count = count.parse().ok().filter(|count| *count > 0);
    let wrong = || format!("'{text}' is no number of checkpoints: write for example 5g");
    count.map(Saving::Generations).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_saved_by_time_or_by_checkpoints() {
        assert_eq!(parse_saving("10m"), Ok(Saving::Every(600_000)));
        assert_eq!(parse_saving("3g"), Ok(Saving::Generations(3)));
        for bad in ["0g", "g", "-1g", "1.5g", "4294967296g", "3 g"] {
            assert!(parse_saving(bad).unwrap_err().contains("write for example 5g"), "{bad}");
        }
        assert!(parse_saving("3x").is_err());
    }
}
