//! `--hosts`, or a batch system's allocation: which machines there are, which ranks each has, and
//! what starts a process there.

use crate::batch::allocation::{self, Allocation};
use crate::batch::system::System;
use crate::hosts::address::{addresses, outer};
use crate::hosts::entry::{Entry, all_or_none, joining, merge, read};
use crate::launch::grid::GridHosts;
use crate::launch::rankfile::RankFile;
use crate::options::hosts::HostOptions;
use crate::show::text::count;
use anyhow::{Context, anyhow, bail};
use eyrie_control::message::{Host, Hosts};
use eyrie_launcher::remote_node::{DEFAULT_SHELL, is_here};
use eyrie_process::program;
use eyrie_protocol::placement::{self, Map};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;

/// Longest wait for hosts to join if none is given.
const JOIN_MS: u64 = 60_000;
/// Names the remote shell, too.
const RSH_ENV: &str = "EYRIE_RSH";

/// Where ranks are to run.
pub struct Plan {
    pub hosts: Hosts,
    pub nodes: u32,
    pub homes: Vec<u32>,
    /// The cluster of each host; empty: none is named.
    pub clusters: Vec<String>,
    /// What each host fails together with; empty: that was not said.
    pub domains: Vec<String>,
}

/// `--ppn`: so many ranks on each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerNode {
    pub ranks: u32,
    /// The number of all ranks was given besides.
    pub of_all: bool,
}

impl PerNode {
    /// The home of each rank on so many nodes.
    pub fn homes(self, ranks: u32, nodes: u32, map: Map, over: bool) -> anyhow::Result<Vec<u32>> {
        let room = self.ranks.saturating_mul(nodes);
        let ranks = if self.of_all { ranks } else { room };
        if ranks > room && !over {
            let each = self.ranks;
            bail!(
                "--ppn {each} on {nodes} nodes makes {room} ranks, and there are to be {ranks}: \
                 name more nodes, or give --oversubscribe"
            );
        }
        let most = eyrie_ledger::segment::MAX_RANKS;
        if ranks > most {
            bail!("--ppn {} on {nodes} nodes makes {ranks} ranks; {most} are the most", self.ranks);
        }
        let home = |rank: u32| match map {
            Map::Block => rank / self.ranks % nodes,
            Map::Cyclic => rank % nodes,
        };
        Ok((0..ranks).map(home).collect())
    }
}

/// What `--hosts` and its companions ask for.
pub struct HostRequest<'a> {
    pub hosts: Option<&'a str>,
    /// Those of a grid file instead.
    pub grid: Option<&'a GridHosts>,
    /// Nodes of this machine are asked for instead.
    pub here: bool,
    pub host_options: &'a HostOptions,
    pub ranks: u32,
    /// So many on each.
    pub ppn: Option<PerNode>,
    pub spares: u32,
    pub map: Map,
    pub file: Option<&'a RankFile>,
}

/// Hosts by that request, or those of a batch system's allocation. None: the job is of this
/// machine.
pub fn plan(wish: &HostRequest<'_>) -> anyhow::Result<Option<Plan>> {
    let Some((entries, given)) = entries(wish)? else { return Ok(None) };
    let (nodes, homes) = lay_out(wish, &entries)?;
    let options = wish.host_options;
    let all_here = entries.iter().all(|entry| is_here(&entry.name));
    let (rsh, shell) = match wish.grid {
        Some(grid) => (grid.rsh.iter().map(|word| word.clone().into_bytes()).collect(), true),
        None => starter(options, given, all_here)?,
    };
    let clusters = all_or_none(&entries, "cluster", |e| e.cluster.as_ref())?;
    let domains = all_or_none(&entries, "domain", |e| e.domain.as_ref())?;
    let gateways = entries.iter().map(outer).collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let addresses = addresses(&names, options.address.as_deref())?;
    let list = entries.into_iter().zip(addresses).zip(gateways);
    let list = list.map(|((e, controller), gateway)| Host { name: e.name, controller, gateway });
    let list = list.collect();
    let binary = match (wish.grid, &options.prefix) {
        (Some(grid), _) => grid.binary.clone(),
        (None, Some(prefix)) => std::path::absolute(prefix)?.join("bin/eyrie"),
        (None, None) => std::env::current_exe().context("cannot find the eyrie binary itself")?,
    };
    let binary = binary.into_os_string().into_vec();
    let join_ms = options.join_limit.unwrap_or(JOIN_MS);
    let hosts = Hosts { list, rsh, shell, binary, join_ms, outlive: true };
    Ok(Some(Plan { hosts, nodes, homes, clusters, domains }))
}

/// What starts a process on a host whose name follows, and whether that is a remote shell: the one
/// that is named, else what the batch system has, else ssh, which `all_here` do not need.
fn starter(
    options: &HostOptions,
    given: Option<(System, Vec<String>)>,
    all_here: bool,
) -> anyhow::Result<(Vec<Vec<u8>>, bool)> {
    let named =
        options.rsh.clone().or_else(|| std::env::var(RSH_ENV).ok().filter(|r| !r.is_empty()));
    let of_batch = given.filter(|_| named.is_none());
    let (shell, unused) = (of_batch.is_none(), all_here && named.is_none() && of_batch.is_none());
    let (what, words) = match of_batch {
        Some((system, words)) => (format!("this is {}", system.name()), words),
        None => {
            let words = named.unwrap_or_else(|| DEFAULT_SHELL.to_string());
            let words = words.split_whitespace().map(String::from).collect();
            (String::from("the remote shell (--rsh)"), words)
        }
    };
    let first = words.first().map_or("", String::as_str);
    if !unused {
        program::find(OsStr::new(first)).context(what)?;
    }
    Ok((words.into_iter().map(String::into_bytes).collect(), shell))
}

/// Hosts that join a job which runs, and of each its cluster and what it fails together with; empty
/// if none is named.
#[derive(Debug)]
pub struct JoiningHosts {
    pub hosts: Vec<Host>,
    pub clusters: Vec<String>,
    pub domains: Vec<String>,
}

/// Hosts that are named on the command line to join a job.
pub fn named(words: &[String], address: Option<&str>) -> anyhow::Result<JoiningHosts> {
    let entries = joining(words)?;
    let clusters = all_or_none(&entries, "cluster", |e| e.cluster.as_ref())?;
    let domains = all_or_none(&entries, "domain", |e| e.domain.as_ref())?;
    let gateways = entries.iter().map(outer).collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let addresses = addresses(&names, address)?;
    let hosts = entries.into_iter().zip(addresses).zip(gateways);
    let host =
        |((e, controller), gateway): ((Entry, _), _)| Host { name: e.name, controller, gateway };
    Ok(JoiningHosts { hosts: hosts.map(host).collect(), clusters, domains })
}

/// The hosts that are named, or those of an allocation, and what its batch system has to start
/// processes there.
type Found = (Vec<Entry>, Option<(System, Vec<String>)>);

fn entries(wish: &HostRequest<'_>) -> anyhow::Result<Option<Found>> {
    let named = wish.file.map(RankFile::hosts).filter(|hosts| !hosts.is_empty());
    if let Some(grid) = wish.grid {
        return Ok(Some((merge(grid.entries.clone())?, None)));
    }
    match wish.hosts {
        Some(text) => Ok(Some((merge(read(text)?)?, None))),
        None if wish.here => Ok(None),
        None => match allocation::allocation()? {
            Some(Allocation { system, entries, starter }) => {
                Ok(Some((merge(entries)?, starter.map(|words| (system, words)))))
            }
            None => named.map(|hosts| Ok((merge(hosts)?, None))).transpose(),
        },
    }
}

/// The number of hosts with ranks, and the home of each rank.
fn lay_out(wish: &HostRequest<'_>, entries: &[Entry]) -> anyhow::Result<(u32, Vec<u32>)> {
    let (spares, oversubscribe) = (wish.spares, wish.host_options.oversubscribe);
    let nodes = entries.len().saturating_sub(spares as usize);
    if nodes == 0 {
        bail!("{} hosts do not suffice for {spares} spares and a rank", entries.len());
    }
    let room: Vec<Option<u32>> = entries[..nodes].iter().map(|e| e.slots).collect();
    if let Some(file) = wish.file {
        let names: Vec<&str> = entries[..nodes].iter().map(|e| e.name.as_str()).collect();
        let homes = file.homes(&names, nodes as u32)?;
        for (name, (home, slots)) in names.iter().zip((0u32..).zip(&room)) {
            let there = homes.iter().filter(|h| **h == home).count() as u32;
            if let Some(most) = slots.filter(|most| there > *most && !oversubscribe) {
                bail!(
                    "--rankfile puts {there} ranks on {name}, which has {most} slots: move some, \
                     or give --oversubscribe"
                );
            }
        }
        return Ok((nodes as u32, homes));
    }
    let ranks = wish.ranks;
    if let Some(ppn) = wish.ppn {
        return Ok((nodes as u32, ppn.homes(ranks, nodes as u32, wish.map, oversubscribe)?));
    }
    let homes = placement::lay_out(ranks, &room, wish.map, oversubscribe).ok_or_else(|| {
        let all: u32 = room.iter().flatten().fold(0, |sum, n| sum.saturating_add(*n));
        let (all, ranks) = (count(all.into(), "slot"), count(ranks.into(), "rank"));
        anyhow!(
            "the hosts have {all} for {ranks}: name more hosts or slots, or give --oversubscribe"
        )
    })?;
    Ok((nodes as u32, homes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::address::choose;
    use crate::hosts::address::own_address;
    use crate::hosts::address::route;
    use crate::hosts::entry::parse_file;
    use eyrie_control::gateway::Outer;
    use std::net::IpAddr;

    fn entry(name: &str, slots: impl Into<Option<u32>>) -> Entry {
        Entry::of(name.into(), slots.into())
    }

    #[test]
    fn lists_and_files_are_read() {
        let list = read("a, b:4,[::1]:2,fe80::1,me@c").unwrap();
        let want = [entry("a", None), entry("b", 4), entry("::1", 2), entry("fe80::1", None)];
        assert_eq!((&list[..4], &list[4]), (&want[..], &entry("me@c", None)));
        let file = parse_file("# all\n\n node1 slots=4 # first\nnode2\nnode3:2\n").unwrap();
        assert_eq!(file, [entry("node1", 4), entry("node2", None), entry("node3", 2)]);
        let open = parse_file("node1 slots = 4 max_slots=8\nnode1 max-slots=9\n").unwrap();
        assert_eq!(open, [entry("node1", 4), entry("node1", None)]);
        let odd = "\u{feff}node1 slots= 4\r\n\tnode2\tcpu=2\n  node3 count =3 user = joe\r\n";
        let odd = parse_file(odd).unwrap();
        assert_eq!(odd, [entry("node1", 4), entry("node2", 2), entry("joe@node3", 3)]);
    }

    #[test]
    fn so_many_ranks_are_on_each_node() {
        let homes = |ranks: Option<u32>, nodes, map, over| {
            let ppn = PerNode { ranks: 2, of_all: ranks.is_some() };
            ppn.homes(ranks.unwrap_or(1), nodes, map, over).map_err(|e| e.to_string())
        };
        let (block, cyclic) = (Map::Block, Map::Cyclic);
        assert_eq!(homes(Some(3), 3, block, false).unwrap(), [0, 0, 1]);
        assert_eq!(homes(Some(4), 2, cyclic, false).unwrap(), [0, 1, 0, 1]);
        assert_eq!(homes(None, 2, block, false).unwrap(), [0, 0, 1, 1]);
        assert_eq!(homes(Some(5), 2, block, true).unwrap(), [0, 0, 1, 1, 0]);
        let error = homes(Some(5), 2, block, false).unwrap_err();
        assert!(error.contains("makes 4 ranks, and there are to be 5"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for bad in ["", "a,,b", "a:0", "a:x", "-oProxyCommand=x", "[::1]:", ":4"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for (line, told) in [
            ("node[1-4]", "scontrol show hostnames 'node[1-4]'"),
            ("a,b slots=2", "several hosts"),
            ("a user=-oProxyCommand=x", "names no user"),
            ("a ifhn=ib0", "'ifhn=ib0' is not known"),
        ] {
            let error = format!("{:#}", parse_file(line).unwrap_err());
            assert!(error.contains(told), "{line}: {error}");
        }
        assert!(format!("{:#}", read("node[1-4]:2").unwrap_err()).contains("scontrol"));
        let error = format!("{:#}", parse_file("a\nb cores=2\n").unwrap_err());
        assert!(error.contains("line 2: 'cores=2'"), "{error}");
        let error = format!("{:#}", parse_file("a slots=two\n").unwrap_err());
        assert!(error.contains("line 1: 'two' is no number"), "{error}");
        let error = format!("{:#}", read("no/such/file").unwrap_err());
        assert!(error.contains("no/such/file") && error.contains("No such file"), "{error}");
        assert!(merge(Vec::new()).is_err());
        let two = parse_file("a domain=x\na domain=y\n").unwrap();
        assert!(merge(two).unwrap_err().to_string().contains("a is in two domains"));
        let some = parse_file("a domain=x\nb\n").unwrap();
        let error = all_or_none(&some, "domain", |e| e.domain.as_ref()).unwrap_err();
        assert!(error.to_string().contains("host b has no domain=NAME"), "{error}");
    }

    #[test]
    fn hosts_that_join_say_their_cluster_behind_their_name() {
        let of = |text: &str| {
            joining(&text.split(' ').map(String::from).collect::<Vec<_>>())
                .map_err(|error| format!("{error:#}"))
        };
        let east = Entry { cluster: Some("east".into()), ..entry("b", None) };
        assert_eq!(of("a b cluster=east"), Ok(vec![entry("a", None), east]));
        let [gate] = &of("a cluster=x gateway=b:7400").unwrap()[..] else { panic!() };
        assert_eq!(gate.gateway, Some(("b".into(), Some(7400))));
        for (bad, told) in [
            ("cluster=east a", "of which host"),
            ("a cluster=", "is not known"),
            ("a domain=", "is not known"),
            ("a slots=2", "is not known"),
            ("a:3", "without slots"),
            ("a b a", "once"),
        ] {
            let error = of(bad).unwrap_err();
            assert!(error.contains(told), "{bad}: {error}");
        }
        for what in ["cluster", "domain"] {
            let some = ["a", "b", &format!("{what}=x")].map(String::from);
            let error = named(&some, Some("127.0.0.1")).unwrap_err().to_string();
            assert!(error.contains(&format!("host a has no {what}=NAME")), "{error}");
        }
        let words = ["127.0.0.1", "domain=x", "localhost", "domain=y"].map(String::from);
        let all = named(&words, Some("127.0.0.1")).unwrap();
        assert_eq!((all.hosts.len(), &all.domains[..]), (2, &["x", "y"].map(String::from)[..]));
        assert!(all.clusters.is_empty());
    }

    #[test]
    fn a_gateways_place_is_an_address_and_perhaps_a_port() {
        let of = |text: &str| {
            let [entry] = &parse_file(text).unwrap()[..] else { panic!("{text}") };
            outer(entry)
        };
        let at = |text: &str| of(&format!("a cluster=x gateway={text}")).unwrap().unwrap();
        let v4: IpAddr = [203, 0, 113, 7].into();
        assert_eq!(at("203.0.113.7"), Outer { at: v4, port: None });
        assert_eq!(at("203.0.113.7:7400"), Outer { at: v4, port: Some(7400) });
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        assert_eq!(at("2001:db8::7"), Outer { at: v6, port: None });
        assert_eq!(at("[2001:db8::7]"), Outer { at: v6, port: None });
        assert_eq!(at("[2001:db8::7]:7400"), Outer { at: v6, port: Some(7400) });
        assert_eq!(of("a cluster=x").unwrap(), None);
        for bad in ["", ":7400", "b:", "b:0", "b:65536", "[::1]7400", "[]:7400", "b:port"] {
            let error = parse_file(&format!("a\nb gateway={bad}\n")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains("line 2: 'gateway=") && error.contains("7400"), "{error}");
        }
        assert!(of("a gateway=203.0.113.7").unwrap_err().to_string().contains("cluster=NAME"));
        assert!(of("a cluster=x gateway=0.0.0.0").unwrap_err().to_string().contains("nobody"));
        let two = parse_file("a gateway=b\na gateway=c\n").unwrap();
        assert!(merge(two).unwrap_err().to_string().contains("two different gateway="));
    }

    #[test]
    fn a_host_that_is_named_again_has_more_slots() {
        let merged = |text| merge(read(text).unwrap()).unwrap();
        assert_eq!(merged("a,b"), [entry("a", None), entry("b", None)]);
        assert_eq!(merged("a,a,b"), [entry("a", 2), entry("b", 1)]);
        assert_eq!(merged("a:3,b:2,a"), [entry("a", 4), entry("b", 2)]);
    }

    #[test]
    fn hosts_are_told_an_address_that_all_of_them_reach() {
        let (lo, lan): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [10, 0, 0, 7].into());
        let all = |towards: &[Option<IpAddr>], default| choose(towards, default);
        assert_eq!(all(&[Some(lo), Some(lo)], Some(lan)), Some(vec![lo, lo]));
        assert_eq!(all(&[Some(lo), Some(lan)], None), Some(vec![lan, lan]));
        assert_eq!(all(&[None, Some(lo)], Some(lan)), Some(vec![lan, lan]));
        assert_eq!(all(&[None], None), None);
        assert_eq!(route(([127, 0, 0, 1], 9).into()), Some(lo));
        assert_eq!(own_address("127.0.0.1").unwrap(), lo);
        assert!(own_address("192.0.2.1").is_err());
    }
}
