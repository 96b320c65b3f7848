//! Hosts that a batch system lists in a file or in a variable: PBS, LSF, Grid Engine.
//!
//! Kept true: each host is named once, with the slots that it was given; what is wrong in a list is
//! told with its name and line.

use crate::batch::system::variable;
use crate::hosts::entry::Entry;
use anyhow::{Context, anyhow, bail};

/// `PBS_NODEFILE`: a line for each task.
pub fn pbs() -> anyhow::Result<Option<Vec<Entry>>> {
    variable("PBS_NODEFILE").map(|path| from_file("PBS_NODEFILE", &path, each)).transpose()
}

/// `LSB_DJOB_HOSTFILE`: a line for each slot; else `LSB_MCPU_HOSTS`: hosts and slots in turn.
pub fn lsf() -> anyhow::Result<Option<Vec<Entry>>> {
    if let Some(path) = variable("LSB_DJOB_HOSTFILE") {
        return from_file("LSB_DJOB_HOSTFILE", &path, each).map(Some);
    }
    let pairs = variable("LSB_MCPU_HOSTS");
    let read = |text: String| in_turn(&text).with_context(|| format!("LSB_MCPU_HOSTS={text}"));
    pairs.map(read).transpose()
}

/// `PE_HOSTFILE`: a line for each queue of a host: its name, slots, queue, processors.
pub fn sge() -> anyhow::Result<Option<Vec<Entry>>> {
    variable("PE_HOSTFILE").map(|path| from_file("PE_HOSTFILE", &path, queues)).transpose()
}

fn from_file(
    variable: &str,
    path: &str,
    parse: fn(&str) -> anyhow::Result<Vec<Entry>>,
) -> anyhow::Result<Vec<Entry>> {
    let place = || format!("{variable}={path}");
    let text = std::fs::read_to_string(path).with_context(place)?;
    parse(&text).with_context(place)
}

/// Adds slots to a host, which may be named before.
fn add(entries: &mut Vec<Entry>, name: &str, slots: u32) -> anyhow::Result<()> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.starts_with('-') || name.contains(odd) {
        bail!("'{name}' is no host");
    }
    match entries.iter_mut().find(|entry| entry.name == name) {
        Some(known) => known.slots = known.slots.map(|n| n.saturating_add(slots)),
        None => entries.push(Entry::of(name.to_string(), Some(slots))),
    }
    Ok(())
}

/// A host a line, as often as it has slots.
fn each(text: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        add(&mut entries, line.trim(), 1).with_context(|| format!("line {number}"))?;
    }
    Ok(entries)
}

fn slots(text: Option<&str>) -> anyhow::Result<u32> {
    let text = text.ok_or_else(|| anyhow!("slots are missing"))?;
    text.parse().map_err(|_| anyhow!("'{text}' is no number of slots"))
}

/// `HOST SLOTS HOST SLOTS`.
fn in_turn(text: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(name) = words.next() {
        add(&mut entries, name, slots(words.next())?)?;
    }
    Ok(entries)
}

/// `HOST SLOTS QUEUE PROCESSORS`, a line each.
fn queues(text: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("line {number}");
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        add(&mut entries, name, slots(words.next()).with_context(place)?).with_context(place)?;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(entries: anyhow::Result<Vec<Entry>>) -> String {
        match entries {
            Ok(all) => {
                let one = |e: &Entry| format!("{}:{}", e.name, e.slots.unwrap_or(0));
                all.iter().map(one).collect::<Vec<_>>().join(" ")
            }
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn lists_of_batch_systems_are_read() {
        assert_eq!(told(each("n1\nn1\nn2\n\nn1\n")), "n1:3 n2:1");
        assert_eq!(told(in_turn("batch 1 n1 4 n2 4")), "batch:1 n1:4 n2:4");
        let file = "n1.cluster 2 all.q@n1 UNDEFINED\nn2.cluster 1 all.q@n2 <NULL>\n\
                    n1.cluster 1 b@n1 0,0\n";
        assert_eq!(told(queues(file)), "n1.cluster:3 n2.cluster:1");
    }

    #[test]
    fn what_is_wrong_in_a_list_is_told_with_its_place() {
        assert_eq!(told(each("n1\n-oProxyCommand=x\n")), "line 2: '-oProxyCommand=x' is no host");
        assert_eq!(told(each("a b\n")), "line 1: 'a b' is no host");
        assert_eq!(told(in_turn("n1 4 n2")), "slots are missing");
        assert_eq!(told(in_turn("n1 x")), "'x' is no number of slots");
        assert_eq!(told(queues("n1\n")), "line 1: slots are missing");
        let error = told(from_file("PBS_NODEFILE", "/no/such/file", each));
        assert!(error.starts_with("PBS_NODEFILE=/no/such/file: No such file"), "{error}");
    }
}
