//! `--save-every`: by time, or by checkpoints; `--encrypt-at-rest`: what nodes store.

use crate::launch::key_path;
use anyhow::Context;
use clap::Args;
use eyrie_node::sealing;
use eyrie_terminal::units::parse_millis;
use eyrie_terminal::{Failure, USAGE};
use std::path::{Path, PathBuf};

/// Who can read what nodes store.
#[derive(Debug, Args)]
pub struct AtRest {
    /// Encrypt what nodes store: what is on their disks is of use to nobody. Without a value with
    /// a key of the job that is in no file, so that such a job is not saved. FILE: with the key in
    /// it (32 bytes, or 64 hexadecimal digits; only its owner may read it), which `eyrie restart`
    /// needs, too. kernel: by the nodes' kernels, each with a key that nobody else has, on file
    /// systems with fscrypt (ext4, f2fs with the feature 'encrypt'); not saved, either (over nodes)
    #[arg(long, value_name = "kernel|FILE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "", value_parser = parse_at_rest, conflicts_with = "keep")]
    pub encrypt_at_rest: Option<Wish>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Sealed,
    Kernel,
    Keyed(PathBuf),
}

fn parse_at_rest(text: &str) -> Result<Wish, String> {
    Ok(match text {
        "" => Wish::Sealed,
        "kernel" => Wish::Kernel,
        file => Wish::Keyed(file.into()),
    })
}

/// The key in this file.
pub fn keyed(file: &Path) -> Result<eyrie_control::AtRest, Failure> {
    let key = sealing::read(file);
    let key = key.context("--encrypt-at-rest").map_err(|e| Failure::new(USAGE, e))?;
    Ok(eyrie_control::AtRest::Keyed { file: key_path(file), mark: key.fingerprint() })
}

impl AtRest {
    /// As the job is told.
    pub fn spec(&self) -> Result<eyrie_control::AtRest, Failure> {
        match &self.encrypt_at_rest {
            None => Ok(eyrie_control::AtRest::Plain),
            Some(Wish::Sealed) => Ok(eyrie_control::AtRest::Sealed),
            Some(Wish::Kernel) => Ok(eyrie_control::AtRest::Kernel),
            Some(Wish::Keyed(file)) => keyed(file),
        }
    }

    /// Whether what is saved could not be read when the nodes are gone.
    pub fn goes_with_nodes(&self) -> bool {
        matches!(self.encrypt_at_rest, Some(Wish::Sealed | Wish::Kernel))
    }
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
