//! How often states of a job are saved, and whether what nodes store is encrypted: `--save-every`,
//! `--encrypt-at-rest`.

use anyhow::Context;
use clap::Args;
use eyrie_state::sealing;
use eyrie_terminal::units::{parse_bytes, parse_millis};
use eyrie_terminal::{Failure, USAGE};
use std::path::{Path, PathBuf};

/// What of a job is saved while it runs, and how it is kept from others.
#[derive(Debug, Args)]
pub struct SavingOptions {
    /// How often at most the newest checkpoints of all ranks are brought to the job's folder, too,
    /// while the job runs: `eyrie restart` goes on from there when all nodes are lost (seconds, or
    /// with unit; Ng: whenever all ranks have N newer ones; over nodes) [default: never]
    #[arg(long, value_name = "SECS|Ng", value_parser = parse_save_every)]
    pub save_every: Option<SaveEvery>,
    /// Bring what --save-every saves to an object store, too: `eyrie restart URL/JOB` goes on from
    /// there. s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, or a folder that is
    /// shared, file:///FOLDER. Keys come from the environment: AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL; GOOGLE_APPLICATION_CREDENTIALS;
    /// AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY
    #[arg(long, value_name = "s3://BUCKET/PREFIX", requires = "save_every")]
    pub save_to: Option<String>,
    /// ... with so many bytes a second at most [default: as fast as can be]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "save_to")]
    pub save_rate: Option<u64>,
    /// ... encrypted with the key in this file (32 bytes, or 64 hexadecimal digits), which
    /// `eyrie restart` needs, too; the machine of the controller has to have it as long as the job
    /// runs
    #[arg(long, value_name = "FILE", requires = "save_to")]
    pub save_key: Option<PathBuf>,
    #[command(flatten)]
    pub at_rest: AtRestOption,
}

/// Who can read what nodes store.
#[derive(Debug, Args)]
pub struct AtRestOption {
    /// Encrypt what nodes store: what is on their disks is of use to nobody. Without a value with
    /// a key of the job that is in no file, so that such a job is not saved. FILE: with the key in
    /// it (32 bytes, or 64 hexadecimal digits; only its owner may read it), which `eyrie restart`
    /// needs, too. kernel: by the nodes' kernels, each with a key that nobody else has, on file
    /// systems with fscrypt (ext4, f2fs with the feature 'encrypt'); not saved, either (over nodes)
    #[arg(long, value_name = "kernel|FILE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "", value_parser = parse_at_rest, conflicts_with = "keep")]
    pub encrypt_at_rest: Option<AtRestChoice>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtRestChoice {
    Sealed,
    Kernel,
    Keyed(PathBuf),
}

fn parse_at_rest(text: &str) -> Result<AtRestChoice, String> {
    Ok(match text {
        "" => AtRestChoice::Sealed,
        "kernel" => AtRestChoice::Kernel,
        file => AtRestChoice::Keyed(file.into()),
    })
}

/// The key in this file.
pub fn keyed(file: &Path) -> Result<eyrie_control::AtRest, Failure> {
    let key = sealing::read(file);
    let key = key.context("--encrypt-at-rest").map_err(|e| Failure::new(USAGE, e))?;
    Ok(eyrie_control::AtRest::Keyed { file: key_path(file), mark: key.fingerprint() })
}

impl AtRestOption {
    /// As the job is told.
    pub fn spec(&self) -> Result<eyrie_control::AtRest, Failure> {
        match &self.encrypt_at_rest {
            None => Ok(eyrie_control::AtRest::Plain),
            Some(AtRestChoice::Sealed) => Ok(eyrie_control::AtRest::Sealed),
            Some(AtRestChoice::Kernel) => Ok(eyrie_control::AtRest::Kernel),
            Some(AtRestChoice::Keyed(file)) => keyed(file),
        }
    }

    /// Whether what is saved could not be read when the nodes are gone.
    pub fn goes_with_nodes(&self) -> bool {
        matches!(self.encrypt_at_rest, Some(AtRestChoice::Sealed | AtRestChoice::Kernel))
    }
}

/// How often states of a job are saved while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveEvery {
    /// At most so often, in milliseconds.
    Every(u64),
    /// Whenever all ranks have so many newer checkpoints.
    Generations(u32),
}

impl SaveEvery {
    pub fn millis(self) -> u64 {
        match self {
            SaveEvery::Every(ms) => ms,
            SaveEvery::Generations(_) => 0,
        }
    }

    pub fn generations(self) -> u32 {
        match self {
            SaveEvery::Every(_) => 0,
            SaveEvery::Generations(count) => count,
        }
    }
}

pub fn parse_save_every(text: &str) -> Result<SaveEvery, String> {
    let Some(count) = text.strip_suffix('g') else {
        return parse_millis(text).map(SaveEvery::Every);
    };
    let count = count.parse().ok().filter(|count| *count > 0);
    let wrong = || format!("'{text}' is no number of checkpoints: write for example 5g");
    count.map(SaveEvery::Generations).ok_or_else(wrong)
}

/// Where a key lies, from wherever it is looked for.
pub fn key_path(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
    whole.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_saved_by_time_or_by_checkpoints() {
        assert_eq!(parse_save_every("10m"), Ok(SaveEvery::Every(600_000)));
        assert_eq!(parse_save_every("3g"), Ok(SaveEvery::Generations(3)));
        for bad in ["0g", "g", "-1g", "1.5g", "4294967296g", "3 g"] {
            assert!(parse_save_every(bad).unwrap_err().contains("write for example 5g"), "{bad}");
        }
        assert!(parse_save_every("3x").is_err());
    }
}
