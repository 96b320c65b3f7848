//! Hosts as they are written in a list, in a file, or behind a command: their names, slots,
//! clusters and domains.
//!
//! Kept true: a host is named once; what is wrong is told with its place.

use anyhow::{Context, anyhow, bail};
use std::path::Path;

/// A host, and how many ranks it has room for (any number if that was not said).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub slots: Option<u32>,
    pub cluster: Option<String>,
    /// What it fails together with, such as a switch.
    pub domain: Option<String>,
    /// Where other clusters' gateways reach one there: an address or name, and a port.
    pub gateway: Option<(String, Option<u16>)>,
}

impl Entry {
    /// One in no cluster and no domain.
    pub fn of(name: String, slots: Option<u32>) -> Entry {
        Entry { name, slots, cluster: None, domain: None, gateway: None }
    }
}

/// What each host says it is part of: all say it, or none does.
pub fn all_or_none(
    entries: &[Entry],
    what: &str,
    of: impl Fn(&Entry) -> Option<&String>,
) -> anyhow::Result<Vec<String>> {
    let named: Vec<String> = entries.iter().filter_map(|e| of(e).cloned()).collect();
    match entries.iter().find(|e| of(e).is_none()) {
        Some(host) if !named.is_empty() => {
            bail!("host {} has no {what}=NAME, as others have: give it one", host.name)
        }
        _ => Ok(named),
    }
}

/// Words of a command: `cluster=NAME`, `domain=NAME` and `gateway=ADDRESS[:PORT]` are of the host
/// before them.
pub fn joining(words: &[String]) -> anyhow::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for word in words {
        if let Some((what, value)) = word.split_once('=') {
            let before = entries.last_mut().ok_or_else(|| anyhow!("'{word}': of which host?"))?;
            match what {
                "cluster" if !value.is_empty() => before.cluster = Some(value.to_string()),
                "domain" if !value.is_empty() => before.domain = Some(value.to_string()),
                "gateway" => before.gateway = Some(parse_gateway(value)?),
                _ => bail!(
                    "'{word}' is not known: write for example 'node7 cluster=east domain=rack3 \
                     gateway=203.0.113.7:7400'"
                ),
            }
            continue;
        }
        let entry = parse_entry(word)?;
        if entry.slots.is_some() || entries.iter().any(|e| e.name == entry.name) {
            bail!("'{word}': name each host once, without slots");
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// A file if the text has a slash or names one, else a list.
pub fn read(text: &str) -> anyhow::Result<Vec<Entry>> {
    if text.contains('/') || Path::new(text).is_file() {
        let content = std::fs::read_to_string(text).with_context(|| format!("--hosts {text}"))?;
        let entries = parse_file(&content).with_context(|| format!("--hosts {text}"))?;
        if entries.is_empty() {
            bail!("the file of hosts {text} names none: write one a line");
        }
        return Ok(entries);
    }
    text.split(',')
        .map(|word| parse_entry(word.trim()))
        .collect::<Result<_, _>>()
        .context("--hosts")
}

/// One host a line, `slots=N`, `cluster=NAME`, `domain=NAME` and `gateway=ADDRESS[:PORT]` behind it
/// or not.
pub fn parse_file(content: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(content.lines()) {
        let line = line.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default();
        let line = close_up(line);
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let place = || format!("line {number}");
        let mut entry = parse_entry(name).with_context(place)?;
        for word in words {
            if let Some(cluster) = word.strip_prefix("cluster=").filter(|name| !name.is_empty()) {
                entry.cluster = Some(cluster.to_string());
                continue;
            }
            if let Some(domain) = word.strip_prefix("domain=").filter(|name| !name.is_empty()) {
                entry.domain = Some(domain.to_string());
                continue;
            }
            if let Some(gateway) = word.strip_prefix("gateway=") {
                entry.gateway = Some(parse_gateway(gateway).with_context(place)?);
                continue;
            }
            // Open MPI's limit for --oversubscribe.
            if word.starts_with("max_slots=") || word.starts_with("max-slots=") {
                continue;
            }
            if let Some(user) = of_any(word, &["user=", "username=", "user-name=", "user_name="]) {
                if user.is_empty() || user.starts_with('-') || user.contains('@') {
                    bail!("line {number}: '{word}' names no user");
                }
                entry.name = format!("{user}@{}", entry.name);
                continue;
            }
            // `cpu=` is LAM's, `count=` and `cpus=` are Open MPI's.
            let slots = of_any(word, &["slots=", "cpu=", "cpus=", "count="]).map(parse_slots);
            let Some(slots) = slots else {
                bail!(
                    "line {number}: '{word}' is not known: write for example 'node7 slots=4 \
                     cluster=east domain=rack3 gateway=203.0.113.7:7400'"
                );
            };
            entry.slots = Some(slots.with_context(place)?);
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// What stands behind one of these.
fn of_any<'a>(word: &'a str, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| word.strip_prefix(name))
}

/// Without blanks around `=`.
fn close_up(line: &str) -> String {
    let parts: Vec<&str> = line.split('=').collect();
    let last = parts.len() - 1;
    let close = |(at, part): (usize, &&str)| {
        let part = if at > 0 { part.trim_start() } else { part };
        String::from(if at < last { part.trim_end() } else { part })
    };
    parts.iter().enumerate().map(close).collect::<Vec<_>>().join("=")
}

/// `host`, `host:slots`, `[address]:slots`; an address of IPv6 with no slots needs no brackets.
pub fn parse_entry(word: &str) -> anyhow::Result<Entry> {
    let (name, slots) = match word.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':')),
        None if word.matches(':').count() == 1 => {
            let (name, slots) = word.split_once(':').unwrap_or((word, ""));
            (name, Some(slots))
        }
        None => (word, None),
    };
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.starts_with('-') || name.contains(odd) {
        bail!("'{word}' is no host: write for example 'node7' or 'node7:4'");
    }
    if name.contains(['[', ']', ',']) {
        bail!("'{word}' is several hosts: write each (scontrol show hostnames '{word}')");
    }
    let slots = slots.map(parse_slots).transpose()?;
    Ok(Entry::of(name.to_string(), slots))
}

/// An address or a name, and a port or not; an address of IPv6 with a port is in brackets.
pub fn parse_gateway(text: &str) -> anyhow::Result<(String, Option<u16>)> {
    let (at, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((at, "")) => (at, None),
        Some((at, rest)) => (at, Some(rest.strip_prefix(':').unwrap_or(""))),
        None if text.matches(':').count() == 1 => {
            let (at, port) = text.split_once(':').unwrap_or((text, ""));
            (at, Some(port))
        }
        None => (text, None),
    };
    let number = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
    match port.map(number) {
        None if !at.is_empty() => Ok((at.to_string(), None)),
        Some(Some(port)) if !at.is_empty() => Ok((at.to_string(), Some(port))),
        _ => bail!(
            "'gateway={text}' says no place: write an address or a name, and a port if it is to \
             be a certain one, as gateway=203.0.113.7:7400"
        ),
    }
}

fn parse_slots(text: &str) -> anyhow::Result<u32> {
    let count = text.parse().ok().filter(|n| *n > 0);
    count.ok_or_else(|| anyhow!("'{text}' is no number of slots: write a number from 1 on"))
}

/// Every host once. If one is named more often, each of its names counts with its slots, or as one.
pub fn merge(entries: Vec<Entry>) -> anyhow::Result<Vec<Entry>> {
    let mut merged: Vec<Entry> = Vec::new();
    let again = (1..entries.len()).any(|i| entries[..i].iter().any(|e| e.name == entries[i].name));
    for mut entry in entries {
        if again {
            entry.slots = Some(entry.slots.unwrap_or(1));
        }
        match merged.iter_mut().find(|e| e.name == entry.name) {
            Some(known) => {
                if known.cluster != entry.cluster {
                    bail!("host {} is in two clusters: name one for it", entry.name);
                }
                if known.domain != entry.domain {
                    bail!("host {} is in two domains: name one for it", entry.name);
                }
                if known.gateway != entry.gateway {
                    bail!("host {} has two different gateway=: give it one", entry.name);
                }
                let sum = known.slots.unwrap_or(0).saturating_add(entry.slots.unwrap_or(0));
                known.slots = Some(sum);
            }
            None => merged.push(entry),
        }
    }
    match merged.len() {
        0 => bail!("--hosts names no host"),
        1..=256 => Ok(merged),
        more => bail!("--hosts names {more} hosts; 256 are the most"),
    }
}
