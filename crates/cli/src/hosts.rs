//! `--hosts`, or a Slurm allocation: which machines there are, how many ranks each has room for,
//! and at which address they reach the controller.
//!
//! Kept true: a host is named once; what is wrong in a list or a file is told with its place.

use crate::args::{Reach, Run};
use crate::rankfile::RankFile;
use crate::slurm;
use anyhow::{Context, anyhow, bail};
use eyrie_control::gateway::Outer;
use eyrie_control::message::{Host, Hosts};
use eyrie_node::placement::{self, Map};
use eyrie_node::program;
use eyrie_node::way::source_address;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The remote shell if none is named. It joins a connection that there is, but makes none that
/// others would depend on.
const RSH: &str = "ssh -o BatchMode=yes -o ControlMaster=no";
/// Longest wait for hosts to join if none is given.
const JOIN_MS: u64 = 60_000;
/// Names the remote shell, too.
const RSH_ENV: &str = "EYRIE_RSH";

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

/// What `--hosts` and its companions ask for.
pub struct Wish<'a> {
    pub hosts: Option<&'a str>,
    /// Nodes of this machine are asked for instead.
    pub here: bool,
    pub reach: &'a Reach,
    pub ranks: u32,
    pub spares: u32,
    pub map: Map,
    pub file: Option<&'a RankFile>,
}

/// Hosts by that wish, or those of a Slurm allocation. None: the job is of this machine.
pub fn plan(wish: &Wish<'_>) -> anyhow::Result<Option<Plan>> {
    let Some((entries, shell)) = entries(wish)? else { return Ok(None) };
    let (nodes, homes) = lay_out(wish, &entries)?;
    let reach = wish.reach;
    let named = reach.rsh.clone().or_else(|| std::env::var(RSH_ENV).ok().filter(|r| !r.is_empty()));
    let rsh = if shell { named.unwrap_or_else(|| RSH.to_string()) } else { slurm::SRUN.into() };
    let rsh: Vec<Vec<u8>> = rsh.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
    let starter = rsh.first().map_or(&b""[..], Vec::as_slice);
    let what = if shell { "the remote shell (--rsh)" } else { "this is an allocation of Slurm" };
    program::find(OsStr::from_bytes(starter)).context(what)?;
    let clusters = all_or_none(&entries, "cluster", |e| e.cluster.as_ref())?;
    let domains = all_or_none(&entries, "domain", |e| e.domain.as_ref())?;
    let gateways = entries.iter().map(outer).collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let addresses = addresses(&names, reach.address.as_deref())?;
    let list = entries.into_iter().zip(addresses).zip(gateways);
    let list = list.map(|((e, controller), gateway)| Host { name: e.name, controller, gateway });
    let list = list.collect();
    let binary = match &reach.prefix {
        Some(prefix) => std::path::absolute(prefix)?.join("bin/eyrie"),
        None => std::env::current_exe().context("cannot find the eyrie binary itself")?,
    };
    let binary = binary.into_os_string().into_vec();
    let join_ms = reach.join_limit.unwrap_or(JOIN_MS);
    let hosts = Hosts { list, rsh, shell, binary, join_ms, outlive: true };
    Ok(Some(Plan { hosts, nodes, homes, clusters, domains }))
}

/// What each host says it is part of: all say it, or none does.
fn all_or_none(
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

/// Hosts that join a job which runs, and of each its cluster and what it fails together with; empty
/// if none is named.
#[derive(Debug)]
pub struct Joining {
    pub hosts: Vec<Host>,
    pub clusters: Vec<String>,
    pub domains: Vec<String>,
}

/// Hosts that are named on the command line to join a job.
pub fn named(words: &[String], address: Option<&str>) -> anyhow::Result<Joining> {
    let entries = joining(words)?;
    let clusters = all_or_none(&entries, "cluster", |e| e.cluster.as_ref())?;
    let domains = all_or_none(&entries, "domain", |e| e.domain.as_ref())?;
    let gateways = entries.iter().map(outer).collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let addresses = addresses(&names, address)?;
    let hosts = entries.into_iter().zip(addresses).zip(gateways);
    let host =
        |((e, controller), gateway): ((Entry, _), _)| Host { name: e.name, controller, gateway };
    Ok(Joining { hosts: hosts.map(host).collect(), clusters, domains })
}

/// Words of a command: `cluster=NAME`, `domain=NAME` and `gateway=ADDRESS[:PORT]` are of the host
/// before them.
fn joining(words: &[String]) -> anyhow::Result<Vec<Entry>> {
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

/// The hosts that are named, or those of a Slurm allocation; whether a remote shell leads there.
fn entries(wish: &Wish<'_>) -> anyhow::Result<Option<(Vec<Entry>, bool)>> {
    let named = wish.file.map(RankFile::hosts).filter(|hosts| !hosts.is_empty());
    match wish.hosts {
        Some(text) => Ok(Some((merge(read(text)?)?, true))),
        None if wish.here => Ok(None),
        None => match slurm::hosts()? {
            Some(entries) => Ok(Some((merge(entries)?, false))),
            None => named.map(|hosts| Ok((merge(hosts)?, true))).transpose(),
        },
    }
}

/// An option that says something of nodes, where there is but one. `joins`: of its processes
/// some may be reached, though.
pub fn pointless(run: &Run, joins: bool) -> Option<&'static str> {
    let options = [
        ("--map", run.map.is_some()),
        ("--spares", run.spares.is_some()),
        ("--log-replicas", run.log_replicas.is_some()),
        ("--vault", run.vault.is_some()),
        ("--prefix", run.reach.prefix.is_some()),
        ("--address", !joins && run.reach.address.is_some()),
        ("--join-limit", !joins && run.reach.join_limit.is_some()),
        ("--oversubscribe", run.reach.oversubscribe),
        ("--save-every", run.save_every.is_some()),
        ("--encrypt-at-rest", run.at_rest.encrypt_at_rest.is_some()),
        ("--controller-limit", run.controller_limit.is_some()),
        ("--ha", run.ha.ha.is_some()),
    ];
    let given = options.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
    given.or_else(|| run.keeping.given()).or_else(|| run.wide.given())
}

/// The number of hosts with ranks, and the home of each rank.
fn lay_out(wish: &Wish<'_>, entries: &[Entry]) -> anyhow::Result<(u32, Vec<u32>)> {
    let (spares, oversubscribe) = (wish.spares, wish.reach.oversubscribe);
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
    let homes = placement::lay_out(ranks, &room, wish.map, oversubscribe).ok_or_else(|| {
        let all: u32 = room.iter().flatten().fold(0, |sum, n| sum.saturating_add(*n));
        anyhow!(
            "the hosts have {all} slots for {ranks} ranks: name more hosts or slots, or give \
             --oversubscribe"
        )
    })?;
    Ok((nodes as u32, homes))
}

/// A file if the text has a slash or names one, else a list.
fn read(text: &str) -> anyhow::Result<Vec<Entry>> {
    if text.contains('/') || Path::new(text).is_file() {
        let content = std::fs::read_to_string(text).with_context(|| format!("--hosts {text}"))?;
        return parse_file(&content).with_context(|| format!("--hosts {text}"));
    }
    text.split(',')
        .map(|word| parse_entry(word.trim()))
        .collect::<Result<_, _>>()
        .context("--hosts")
}

/// One host a line, `slots=N`, `cluster=NAME`, `domain=NAME` and `gateway=ADDRESS[:PORT]` behind it
/// or not.
fn parse_file(content: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(content.lines()) {
        let line = line.split('#').next().unwrap_or_default();
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
            let slots = word.strip_prefix("slots=").map(parse_slots);
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

/// `host`, `host:slots`, `[address]:slots`; an address of IPv6 with no slots needs no brackets.
fn parse_entry(word: &str) -> anyhow::Result<Entry> {
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
    let slots = slots.map(parse_slots).transpose()?;
    Ok(Entry::of(name.to_string(), slots))
}

/// An address or a name, and a port or not; an address of IPv6 with a port is in brackets.
fn parse_gateway(text: &str) -> anyhow::Result<(String, Option<u16>)> {
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

/// Where other clusters' gateways reach one on this host, if it says so.
fn outer(entry: &Entry) -> anyhow::Result<Option<Outer>> {
    let Some((name, port)) = &entry.gateway else { return Ok(None) };
    let host = &entry.name;
    if entry.cluster.is_none() {
        bail!(
            "host {host} has gateway=, which is for hosts of several clusters: give cluster=NAME"
        );
    }
    let found = (name.as_str(), 9).to_socket_addrs();
    let found = found.with_context(|| format!("host {host}, gateway={name}"))?;
    let reached = |at: &IpAddr| !at.is_unspecified() && !at.is_multicast();
    let Some(at) = found.map(|a| a.ip()).find(reached) else {
        bail!("host {host}, gateway={name}: nobody is reached at that address");
    };
    Ok(Some(Outer { at, port: *port }))
}

fn parse_slots(text: &str) -> anyhow::Result<u32> {
    let count = text.parse().ok().filter(|n| *n > 0);
    count.ok_or_else(|| anyhow!("'{text}' is no number of slots: write a number from 1 on"))
}

/// Every host once. If one is named more often, each of its names counts with its slots, or as one.
fn merge(entries: Vec<Entry>) -> anyhow::Result<Vec<Entry>> {
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

/// The address at which each of the hosts reaches this machine.
pub fn addresses(hosts: &[&str], given: Option<&str>) -> anyhow::Result<Vec<IpAddr>> {
    if let Some(given) = given {
        let own = own_address(given).with_context(|| format!("--address {given}"))?;
        return Ok(vec![own; hosts.len()]);
    }
    let towards: Vec<Option<IpAddr>> = std::thread::scope(|scope| {
        let asked: Vec<_> = hosts.iter().map(|h| scope.spawn(|| towards(h))).collect();
        asked.into_iter().map(|a| a.join().ok().flatten()).collect()
    });
    choose(&towards, default_route()).ok_or_else(|| {
        anyhow!(
            "no way to the hosts is known here: say with --address which address of this machine \
             they reach"
        )
    })
}

/// What is told to each host. One without a route, which only its remote shell knows, is told what
/// the others are; one on this machine, too, as its node must be reached by the others.
pub fn choose(towards: &[Option<IpAddr>], default: Option<IpAddr>) -> Option<Vec<IpAddr>> {
    let outer = towards.iter().flatten().find(|a| !a.is_loopback()).copied();
    let unknown = towards.iter().any(Option::is_none);
    let common = outer.or(default.filter(|_| unknown));
    let told = |a: &Option<IpAddr>| match a {
        Some(a) if a.is_loopback() => Some(common.unwrap_or(*a)),
        Some(a) => Some(*a),
        None => common,
    };
    towards.iter().map(told).collect()
}

/// Our end of the way to a host. No packet is sent.
fn towards(host: &str) -> Option<IpAddr> {
    let name = host.rsplit('@').next().unwrap_or(host);
    (name, 9).to_socket_addrs().ok()?.find_map(route)
}

fn route(to: SocketAddr) -> Option<IpAddr> {
    source_address(to).ok()
}

/// Addresses of this machine that others may reach: the one that is given, or those on the way to
/// everybody and those of its name.
pub fn own_addresses(given: Option<&str>) -> anyhow::Result<Vec<IpAddr>> {
    if let Some(given) = given {
        let own = own_address(given).with_context(|| format!("--address {given}"))?;
        return Ok(vec![own]);
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let named = (name.trim(), 0).to_socket_addrs().into_iter().flatten().map(|a| a.ip());
    let mut all: Vec<IpAddr> = Vec::new();
    for address in default_route().into_iter().chain(named) {
        if !address.is_loopback() && !all.contains(&address) {
            all.push(address);
        }
    }
    Ok(all)
}

/// Our address on the way to everybody who is not nearer.
fn default_route() -> Option<IpAddr> {
    // Addresses for documentation: nobody has them.
    let v4 = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    let v6 = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9));
    route(v4).or_else(|| route(v6))
}

/// An address of this machine, by itself or by a name.
fn own_address(text: &str) -> anyhow::Result<IpAddr> {
    let mut found =
        (text, 0).to_socket_addrs().context("is neither an address nor a known name")?;
    let own = |a: &SocketAddr| UdpSocket::bind(a).is_ok();
    found.find(own).map(|a| a.ip()).ok_or_else(|| anyhow!("is no address of this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for bad in ["", "a,,b", "a:0", "a:x", "-oProxyCommand=x", "[::1]:", ":4"] {
            assert!(read(bad).is_err(), "{bad}");
        }
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
