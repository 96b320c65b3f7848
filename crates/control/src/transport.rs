//! What the connections between a job's nodes go over.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Over TCP, or over libfabric with a provider of this name, or with its first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    #[default]
    Tcp,
    /// Nodes that have none are no nodes of the job.
    Fabric(Option<String>),
    /// Over libfabric where both ends have that provider, or one that is better than TCP.
    Auto(Option<String>),
    /// Over so many TCP connections between any two nodes.
    Lanes(u8),
}

/// Most connections between two nodes.
const MOST_LANES: u8 = 16;
/// Longest name of a provider.
const NAME_BYTES: usize = 64;

/// What is no transport.
#[derive(Debug, thiserror::Error)]
#[error("tcp, tcp:2 to tcp:16, libfabric, libfabric:PROVIDER or auto are known, not '{0}'")]
pub struct Unknown(String);

impl Transport {
    /// Whether `--tls` encrypts it, or something in its place.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Transport::Tcp | Transport::Auto(_))
    }

    /// With this provider where none is named.
    pub fn with(self, provider: Option<&str>) -> Transport {
        let named = || provider.filter(|name| is_name(name)).map(String::from);
        match self {
            Transport::Fabric(None) => Transport::Fabric(named()),
            Transport::Auto(None) => Transport::Auto(named()),
            other => other,
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

impl FromStr for Transport {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Transport, Unknown> {
        match (text, text.split_once(':')) {
            ("tcp", _) => Ok(Transport::Tcp),
            ("libfabric", _) => Ok(Transport::Fabric(None)),
            ("auto", _) => Ok(Transport::Auto(None)),
            (_, Some(("tcp", count))) => match count.parse() {
                Ok(count @ 2..=MOST_LANES) => Ok(Transport::Lanes(count)),
                _ => Err(Unknown(text.into())),
            },
            (_, Some(("libfabric", name))) if is_name(name) => {
                Ok(Transport::Fabric(Some(name.into())))
            }
            _ => Err(Unknown(text.into())),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Tcp => f.write_str("tcp"),
            Transport::Lanes(count) => write!(f, "tcp:{count}"),
            Transport::Fabric(None) => f.write_str("libfabric"),
            Transport::Fabric(Some(name)) => write!(f, "libfabric:{name}"),
            Transport::Auto(None) => f.write_str("auto"),
            Transport::Auto(Some(name)) => write!(f, "auto:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all = [
            "tcp",
            "tcp:2",
            "tcp:16",
            "libfabric",
            "libfabric:verbs",
            "libfabric:tcp;ofi_rxm",
            "auto",
        ];
        for text in all {
            assert_eq!(text.parse::<Transport>().unwrap().to_string(), text);
        }
        let long = format!("libfabric:{}", "x".repeat(65));
        for text in ["", "udp", "libfabric:", "tcp:tcp", "tcp:1", "tcp:17", "libfabric:a b", &long]
        {
            assert!(text.parse::<Transport>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_provider_of_the_environment_stands_where_none_is_named() {
        let of = |text: &str| text.parse::<Transport>().unwrap().with(Some("verbs")).to_string();
        let all = ["tcp", "libfabric", "libfabric:tcp", "auto"].map(of);
        assert_eq!(all, ["tcp", "libfabric:verbs", "libfabric:tcp", "auto:verbs"]);
        assert_eq!(Transport::Fabric(None).with(Some("")), Transport::Fabric(None));
    }
}
