//! `--rankfile`: on which node and on which cores each rank runs.
//!
//! Kept true: every rank from 0 on stands there once; what is wrong is told with its line.

use crate::hosts::entry::Entry;
use crate::options::run::Run;
use anyhow::{Context, anyhow, bail};
use eyrie_control::Slot;
use std::path::Path;

/// Most ranks that a file may name.
const MOST: usize = eyrie_ledger::segment::MAX_RANKS as usize;

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankPlace {
    Host(String),
    /// A node by its number.
    Node(u32),
}

/// One rank's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankLine {
    pub place: RankPlace,
    /// None: it is bound as `--bind` says.
    pub slots: Vec<Slot>,
}

/// A rank file: a line for each rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankFile {
    pub ranks: Vec<RankLine>,
}

impl RankFile {
    pub fn read(path: &Path) -> anyhow::Result<RankFile> {
        let named = || format!("--rankfile {}", path.display());
        let text = std::fs::read_to_string(path).with_context(named)?;
        parse(&text).with_context(named)
    }

    /// The one that is asked for, for so many ranks.
    pub fn of(run: &Run) -> anyhow::Result<Option<RankFile>> {
        let Some(path) = &run.placement.rankfile else { return Ok(None) };
        let mut file = RankFile::read(path)?;
        let (have, want) = (file.ranks.len(), run.size.map_or(file.ranks.len(), |n| n as usize));
        if have < want {
            bail!("--rankfile {}: rank {have} of {want} has no line", path.display());
        }
        file.ranks.truncate(want);
        Ok(Some(file))
    }

    /// The hosts that are named, in the order of their first ranks; none if only numbers are.
    pub fn hosts(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = Vec::new();
        for line in &self.ranks {
            if let RankPlace::Host(name) = &line.place
                && !all.iter().any(|e| e.name == *name)
            {
                all.push(Entry::of(name.clone(), None));
            }
        }
        all
    }

    /// The node of each rank, where `names` are those of the nodes that may have ranks.
    pub fn homes(&self, names: &[&str], nodes: u32) -> anyhow::Result<Vec<u32>> {
        let home = |(rank, line): (usize, &RankLine)| match &line.place {
            RankPlace::Node(node) if *node < nodes => Ok(*node),
            RankPlace::Node(node) => Err(anyhow!(
                "--rankfile: rank {rank} is on +n{node}, but {nodes} nodes have ranks, from +n0 on"
            )),
            RankPlace::Host(host) => {
                let at = names.iter().position(|n| n == host).map(|at| at as u32);
                at.filter(|at| *at < nodes).ok_or_else(|| {
                    anyhow!(
                        "--rankfile: rank {rank} is on {host}, which is not among the hosts with \
                         ranks ({}); write +nK for the K-th node",
                        if names.is_empty() { "none is named".into() } else { names.join(", ") }
                    )
                })
            }
        };
        self.ranks.iter().enumerate().map(home).collect()
    }

    /// The cores of each rank, if any are named.
    pub fn slots(&self) -> Vec<Vec<Slot>> {
        match self.ranks.iter().all(|line| line.slots.is_empty()) {
            true => Vec::new(),
            false => self.ranks.iter().map(|line| line.slots.clone()).collect(),
        }
    }
}

fn parse(text: &str) -> anyhow::Result<RankFile> {
    let mut found: Vec<Option<RankLine>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (rank, line) = parse_line(line).with_context(|| format!("line {number}"))?;
        if found.len() <= rank {
            found.resize(rank + 1, None);
        }
        if found[rank].replace(line).is_some() {
            bail!("line {number}: rank {rank} has a line already");
        }
    }
    let missing = found.iter().position(Option::is_none);
    match (missing, found.is_empty()) {
        (Some(rank), _) => bail!("rank {rank} has no line, others behind it have"),
        (_, true) => bail!("it names no rank"),
        _ => Ok(RankFile { ranks: found.into_iter().flatten().collect() }),
    }
}

fn parse_line(line: &str) -> anyhow::Result<(usize, RankLine)> {
    let odd = || anyhow!("'{line}' is not understood: write for example 'rank 0=node7 slot=0-3'");
    let rest = line.strip_prefix("rank").filter(|r| r.starts_with([' ', '\t'])).ok_or_else(odd)?;
    let (rank, rest) = rest.split_once('=').ok_or_else(odd)?;
    let rank = rank.trim().parse::<usize>().ok().filter(|rank| *rank < MOST).ok_or_else(odd)?;
    let mut words = rest.split_whitespace();
    let place = match words.next().ok_or_else(odd)? {
        word if word.starts_with("+n") => {
            let number =
                word[2..].parse().map_err(|_| anyhow!("'{word}' is no node: write +n0"))?;
            RankPlace::Node(number)
        }
        word if word.starts_with(['+', '-']) => bail!("'{word}' is no host"),
        word => RankPlace::Host(word.to_string()),
    };
    let slots = match words.next() {
        None => Vec::new(),
        Some(word) => {
            let list =
                word.strip_prefix("slot=").or(word.strip_prefix("slots=")).ok_or_else(odd)?;
            parse_slots(list).ok_or_else(|| {
                anyhow!("'{word}' is not understood: write for example slot=0-3,7 or slot=1:0-3")
            })?
        }
    };
    if words.next().is_some() {
        return Err(odd());
    }
    Ok((rank, RankLine { place, slots }))
}

/// `0-3,7`, `1:0-3` or `1:*`, and several of these parted by semicolons.
fn parse_slots(list: &str) -> Option<Vec<Slot>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u32>().ok().filter(|n| digits && *n < u32::MAX)
    };
    let mut slots = Vec::new();
    for group in list.split(';') {
        let (socket, cores) = match group.split_once(':') {
            Some((socket, cores)) => (Some(number(socket)?), cores),
            None => (None, group),
        };
        for word in cores.split(',') {
            let (first, last) = match word.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None if word == "*" => (0, u32::MAX),
                None => (number(word)?, number(word)?),
            };
            if first > last {
                return None;
            }
            slots.push(Slot { socket, first, last });
        }
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(place: RankPlace, slots: &str) -> RankLine {
        RankLine { place, slots: parse_slots(slots).unwrap() }
    }

    #[test]
    fn files_are_read() {
        let file = parse("# two\nrank 1=b slot=1:0,1 # last\n\nrank  0=+n0 slot=0-3,7\n").unwrap();
        let wanted =
            [line(RankPlace::Node(0), "0-3,7"), line(RankPlace::Host("b".into()), "1:0,1")];
        assert_eq!(file.ranks, wanted);
        assert_eq!(file.slots()[1].iter().map(Slot::to_string).collect::<String>(), "1:01:1");
        let file = parse("rank 0=a\nrank 1=b\nrank 2=a\n").unwrap();
        assert!(file.slots().is_empty());
        assert_eq!(file.hosts().iter().map(|e| &e.name[..]).collect::<String>(), "ab");
        assert_eq!(file.homes(&["a", "b"], 2).unwrap(), [0, 1, 0]);
        assert!(parse_slots("0:*;1:0-2").is_some_and(|s| s.len() == 2 && s[0].last == u32::MAX));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(wrong("rank 0=a\nrank 0=b\n").contains("line 2: rank 0 has a line already"));
        assert!(wrong("rank 0=a slot=3-1\n").contains("line 1: 'slot=3-1' is not understood"));
        assert!(wrong("rank 2=a\n").contains("rank 0 has no line"));
        assert!(wrong("# nothing\n").contains("names no rank"));
        for bad in [
            "rank",
            "rank0=a",
            "rank 0",
            "rank 0=",
            "rank x=a",
            "rank -1=a",
            "rank 99999999=a",
            "rank 0=+nx",
            "rank 0=-oProxyCommand=x",
            "rank 0=a slot=",
            "rank 0=a slot=0:",
            "rank 0=a slot=+1",
            "rank 0=a cores=1",
            "rank 0=a slot=0 slot=1",
            "rank 0=a slot=4294967295",
        ] {
            assert!(wrong(&format!("rank 1=a\n{bad}\n")).contains("line 2"), "{bad}");
        }
        let file = parse("rank 0=c\nrank 1=+n2\n").unwrap();
        assert!(format!("{:#}", file.homes(&["a"], 1).unwrap_err()).contains("c, which is not"));
        let file = parse("rank 0=+n2\n").unwrap();
        assert!(format!("{:#}", file.homes(&[], 2).unwrap_err()).contains("+n2, but 2 nodes"));
    }
}
