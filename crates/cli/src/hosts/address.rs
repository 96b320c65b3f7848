//! Addresses of this machine as hosts reach it, and those at which gateways are reached.

use crate::hosts::entry::Entry;
use anyhow::{Context, anyhow, bail};
use eyrie_connection::source_address::source_address;
use eyrie_control::gateway::Outer;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Where other clusters' gateways reach one on this host, if it says so.
pub fn outer(entry: &Entry) -> anyhow::Result<Option<Outer>> {
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

pub fn route(to: SocketAddr) -> Option<IpAddr> {
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
pub fn own_address(text: &str) -> anyhow::Result<IpAddr> {
    let mut found =
        (text, 0).to_socket_addrs().context("is neither an address nor a known name")?;
    let own = |a: &SocketAddr| UdpSocket::bind(a).is_ok();
    found.find(own).map(|a| a.ip()).ok_or_else(|| anyhow!("is no address of this machine"))
}
