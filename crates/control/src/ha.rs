//! Where a controller keeps its state so that another machine can go on: etcd, by `--ha`.

use crate::message::Host;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// What an address begins with; the second one: encrypted.
const SCHEMES: [(&str, bool); 2] = [("etcd://", false), ("etcds://", true)];
const PORT: u16 = 2379;

/// Certificates, as PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaTls {
    /// Of those that sign etcd's.
    pub authorities: Vec<u8>,
    /// Our own, and its key.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for HaTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is not for logs.
        f.write_str("HaTls")
    }
}

/// A place in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ha {
    /// `HOST:PORT` each.
    pub endpoints: Vec<String>,
    /// Keys of jobs begin with this, a slash, and the job's name.
    pub prefix: String,
    pub tls: Option<HaTls>,
}

/// What of a job's folder leads to its state in etcd.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pointer {
    pub ha: Ha,
    /// Of the controller that had this folder.
    pub token: Option<String>,
    /// The machines of its nodes, with the addresses of this one that they reach; empty: as the
    /// journal has it.
    pub hosts: Vec<Host>,
}

/// Where the controller is, for nodes and for those that may follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    #[serde(rename = "reign")]
    pub term: u64,
    pub addresses: Vec<SocketAddr>,
    /// The machines of its nodes.
    pub hosts: Vec<String>,
    /// How long a controller of this job leads that is not heard of, if that is not the default:
    /// who follows has not read the journal yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// What the threads that write to etcd tell the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// All up to this number is durable.
    Committed(u64),
    /// Nothing becomes durable at the time.
    Away(String),
    Back,
    /// Another controller has the job.
    Deposed(String),
}

/// Why a text names no place in etcd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HaError {
    #[error("'{0}' is not of the form etcd://HOST:PORT[,HOST:PORT]/PREFIX (etcds:// with TLS)")]
    Form(String),
    #[error("'{0}' is no HOST:PORT")]
    Endpoint(String),
    #[error("the prefix '{0}' has other characters than letters, digits, '.', '_', '-' and '/'")]
    Prefix(String),
}

impl Ha {
    /// What a text names, and whether the connection is to be encrypted.
    ///
    /// # Errors
    /// When it is not of the form.
    pub fn parse(text: &str) -> Result<(Ha, bool), HaError> {
        let form = || HaError::Form(text.to_string());
        let scheme = SCHEMES.iter().find_map(|(s, tls)| Some((text.strip_prefix(s)?, *tls)));
        let (rest, tls) = scheme.ok_or_else(form)?;
        let (hosts, prefix) = rest.split_once('/').ok_or_else(form)?;
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() || hosts.is_empty() {
            return Err(form());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !prefix.chars().all(plain) || prefix.contains("//") {
            return Err(HaError::Prefix(prefix.to_string()));
        }
        let endpoints = hosts.split(',').map(endpoint).collect::<Result<_, _>>()?;
        Ok((Ha { endpoints, prefix: prefix.to_string(), tls: None }, tls))
    }

    /// The place of a job: what its keys begin with, but for the last slash.
    pub fn of(&self, job: &str) -> String {
        format!("{}/{job}", self.prefix)
    }
}

fn endpoint(text: &str) -> Result<String, HaError> {
    let bad = || HaError::Endpoint(text.to_string());
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    if text.is_empty() || !text.chars().all(plain) {
        return Err(bad());
    }
    let (host, port) = match text.rsplit_once(':') {
        // The last colon may be one of an address.
        Some((host, port)) if !text.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
        _ => (text, PORT),
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || port == 0 || (host.contains([':', '[', ']']) && !bracketed) {
        return Err(bad());
    }
    Ok(format!("{host}:{port}"))
}

impl fmt::Display for Ha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.endpoints.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let (ha, tls) = Ha::parse("etcd://a:2379,10.0.0.1,[::1]:7/eyrie/lab/").unwrap();
        assert_eq!(ha.endpoints, ["a:2379", "10.0.0.1:2379", "[::1]:7"]);
        assert_eq!((ha.prefix.as_str(), tls), ("eyrie/lab", false));
        assert_eq!(ha.to_string(), "etcd://a:2379,10.0.0.1:2379,[::1]:7/eyrie/lab");
        assert_eq!(ha.of("k7mq"), "eyrie/lab/k7mq");
        assert!(Ha::parse("etcds://a/x").unwrap().1);
    }

    #[test]
    fn others_are_refused() {
        for bad in [
            "",
            "a:1/x",
            "etcd://",
            "etcd://a",
            "etcd://a/",
            "etcd:///x",
            "http://a/x",
            "etcd://a,/x",
            "etcd://a:0/x",
            "etcd://a:x/x",
            "etcd://::1/x",
            "etcd://a b/x",
            "etcd://a/x y",
            "etcd://a//",
            "etcd://a/x//y",
            "etcd://u@a/x",
        ] {
            assert!(Ha::parse(bad).is_err(), "{bad}");
        }
    }
}
