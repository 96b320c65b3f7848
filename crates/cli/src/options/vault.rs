//! How the vault of `--vault rs` and `xor` works: `--encoder`, `--vault-rate`, `--rebuild-rate`,
//! `--scrub-every`.

use anyhow::anyhow;
use clap::Args;
use eyrie_control::vault::Manner;
use eyrie_terminal::units::parse_millis;
use eyrie_vault::Encoder;

/// Bytes a second in 1 Mbit/s.
const MBIT_BYTES: u64 = 1_000_000 / 8;

/// From one look at all that nodes have of a vault to the next.
const SCRUB_EVERY_MS: u64 = 24 * 3_600_000;

/// How the vault of `--vault rs` and `xor` makes parity.
#[derive(Debug, Args)]
pub struct VaultOptions {
    /// How parity is summed up on its way: pipeline (along a chain of nodes), fanin (a tree),
    /// broadcast (everybody sends to who keeps it), or auto, by what was measured of the links
    /// [default: auto]
    #[arg(long, value_name = "HOW", value_parser = parse_encoder)]
    pub encoder: Option<Encode>,
    /// Most that each node sends for the vault, in Mbit/s: so it leaves the program its links
    /// [default: no limit]
    #[arg(long, value_name = "MBIT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub vault_rate: Option<u32>,
    /// Most that each node sends to protect again what lost nodes guarded, in Mbit/s; 0: no limit
    /// but --vault-rate. The more, the sooner as many nodes may be lost again [default: half of
    /// what the slowest link was measured to carry]
    #[arg(long, value_name = "MBIT")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rebuild_rate: Option<u32>,
    /// How often nodes read all that they have of the vault, and their images, slowly (32 MiB a
    /// second each, or --vault-rate if that is less), and make anew from parity or another copy
    /// what is damaged (seconds, or with unit); 0: only for `eyrie vault scrub JOB` [default: 24h]
    #[arg(long, value_name = "SECS", value_parser = parse_millis)]
    pub scrub_every: Option<u64>,
}

/// An encoder, or whichever is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encode {
    Auto,
    With(Encoder),
}

fn parse_encoder(text: &str) -> Result<Encode, String> {
    if text == "auto" { Ok(Encode::Auto) } else { text.parse().map(Encode::With) }
}

impl VaultOptions {
    /// What a job is told of it.
    pub fn manner(&self, domains: Vec<String>) -> Manner {
        let encoder = match self.encoder {
            None | Some(Encode::Auto) => None,
            Some(Encode::With(encoder)) => Some(encoder),
        };
        let rate = self.vault_rate.map_or(0, |mbit| u64::from(mbit) * MBIT_BYTES);
        let rebuild = self.rebuild_rate.map(|mbit| u64::from(mbit) * MBIT_BYTES);
        let scrub_every_ms = self.scrub_every.unwrap_or(SCRUB_EVERY_MS);
        Manner { encoder, rate, rebuild, domains, scrub_every_ms }
    }

    /// An option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            ("--encoder", self.encoder.is_some()),
            ("--vault-rate", self.vault_rate.is_some()),
            ("--rebuild-rate", self.rebuild_rate.is_some()),
            ("--scrub-every", self.scrub_every.is_some()),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Refuses what has nothing to work on.
    pub fn check(&self, has_parity: bool, nodes: u32) -> anyhow::Result<()> {
        match self.given() {
            // Images lie on the nodes of any job.
            Some("--scrub-every") if nodes > 0 => Ok(()),
            Some(option) if !has_parity => {
                Err(anyhow!("{option} is for a vault with parity: give --vault rs:K+M or xor:K"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoders_have_names() {
        assert_eq!(parse_encoder("auto"), Ok(Encode::Auto));
        assert_eq!(parse_encoder("fanin"), Ok(Encode::With(Encoder::FanIn)));
        assert!(parse_encoder("star").unwrap_err().contains("broadcast"));
    }
}
