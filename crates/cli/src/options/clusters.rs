//! `--clusters`, or clusters that a host file names: which nodes belong together, and how gateways
//! reach each other.
//!
//! With `--ft cluster` they are the recovery units of the job.
//!
//! Kept true: every node is in one cluster, and every cluster has a node with ranks or a spare.

use crate::options::checkpoints::FtMode;
use anyhow::bail;
use clap::{Args, ValueEnum};
use eyrie_control::gateway::{Clusters, MAX_CLUSTERS, MAX_CONNECTIONS, Ports};

/// Bytes a second in 1 Mbit/s.
const MBIT_BYTES: u64 = 1_000_000 / 8;

/// Where a cluster's second copies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Copies {
    /// On another node of the cluster: nothing of them crosses the WAN, and the loss of a whole
    /// cluster sends all ranks back to the beginning (the default with --ft cluster)
    Inside,
    /// On a node of another cluster: the loss of a whole cluster costs no more than that of a node
    Outside,
}

/// What clusters are and how they reach each other.
#[derive(Debug, Args)]
pub struct ClusterOptions {
    /// Divide the nodes into K clusters, the first ones into the first; nodes of different clusters
    /// reach each other through the clusters' gateways only (a host file can name clusters instead:
    /// `cluster=NAME` behind each host)
    #[arg(long, value_name = "K")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLUSTERS)))]
    pub clusters: Option<u32>,
    /// Do not encrypt what gateways say to each other (without this they speak TLS 1.3, whether
    /// --tls is given or not)
    #[arg(long)]
    pub wan_plain: bool,
    /// Most that a gateway sends to another, in Mbit/s, evenly paced [default: no limit]
    #[arg(long, value_name = "MBIT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=30_000))]
    pub wan_rate: Option<u32>,
    /// Connections between two gateways [default: 1]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CONNECTIONS)))]
    pub wan_connections: Option<u32>,
    /// Ports at which gateways listen for those of other clusters: the first one that is free on
    /// the gateway's host, for example 7400 or 7400-7403 (with --nodes one for each cluster, at
    /// least; `gateway=ADDRESS:PORT` behind a host in a host file goes before it) [default: any]
    #[arg(long, value_name = "P[-Q]", value_parser = parse_ports)]
    pub gateway_port: Option<Ports>,
    /// Nodes of other clusters than the first reach the controller, too, through their gateways
    /// only: no host but a gateway's needs a way to another cluster. The controller is to be in the
    /// first one
    #[arg(long)]
    pub wan_only: bool,
    /// Where copies of images (without a vault) and of recorded outcomes are [default: inside with
    /// --ft cluster, else on the next node, whichever cluster that is in]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub copies: Option<Copies>,
}

impl ClusterOptions {
    /// An option that says something of clusters, if there is one.
    pub fn given(&self) -> Option<&'static str> {
        let clusters = self.clusters.map(|_| "--clusters");
        clusters.or_else(|| self.needless()).or(self.copies.map(|_| "--copies"))
    }

    /// Whether copies are in another cluster.
    pub fn are_outside(&self) -> bool {
        self.copies == Some(Copies::Outside)
    }

    /// Refuses a mode that does not go with clusters, one that needs some where there are none, and
    /// fewer ports than there are gateways if these are all at one address (`together`).
    pub fn check(&self, ft: FtMode, clusters: &Clusters, together: bool) -> anyhow::Result<()> {
        let several = clusters.count() > 1;
        if ft == FtMode::Cluster && !several {
            bail!(
                "--ft cluster needs several clusters: give --clusters, or name them in a host file"
            );
        }
        if several && ![FtMode::Logged, FtMode::Routed, FtMode::Cluster].contains(&ft) {
            bail!(
                "several clusters take --ft logged, routed or cluster: leave --ft or --clusters out"
            );
        }
        if self.copies.is_some() && !several {
            bail!("--copies is for several clusters: give --clusters, or name them in a host file");
        }
        let (ports, count) = (clusters.ports, clusters.count());
        match ports.filter(|ports| together && ports.count() < count) {
            Some(ports) => bail!(
                "--gateway-port {ports} is too few for {count} gateways at one address: give a \
                 port for each, as 7400-{}",
                7399 + count
            ),
            None => Ok(()),
        }
    }

    /// One that says how clusters reach each other.
    fn needless(&self) -> Option<&'static str> {
        let options = [
            ("--wan-plain", self.wan_plain),
            ("--wan-rate", self.wan_rate.is_some()),
            ("--wan-connections", self.wan_connections.is_some()),
            ("--gateway-port", self.gateway_port.is_some()),
            ("--wan-only", self.wan_only),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The clusters of so many nodes and spares; `named` are those of hosts, if they are named.
    pub fn plan(&self, nodes: u32, spares: u32, named: &[String]) -> anyhow::Result<Clusters> {
        let (names, of) = match (self.clusters, named.is_empty()) {
            (Some(_), false) => bail!("the host file names clusters: leave --clusters out"),
            (None, false) => by_name(named)?,
            (Some(count), true) => in_blocks(count, nodes, spares)?,
            (None, true) => (Vec::new(), Vec::new()),
        };
        // One cluster is a job as any other.
        if names.len() < 2 {
            if let Some(option) = self.needless() {
                bail!("{option} is for several clusters: give --clusters, too");
            }
            return Ok(Clusters::default());
        }
        Ok(Clusters {
            names,
            of,
            plain: self.wan_plain,
            connections: self.wan_connections.unwrap_or(1),
            rate: self.wan_rate.map(|mbit| u64::from(mbit) * MBIT_BYTES),
            outside: self.copies.map(|copies| copies == Copies::Outside),
            ports: self.gateway_port,
            wan_only: self.wan_only,
        })
    }
}

/// A port, or the first and the last of several.
pub fn parse_ports(text: &str) -> Result<Ports, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(Ports { first, last }),
        (Some(_), Some(_)) => Err(String::from("the first port is behind the last one")),
        _ => Err(String::from("write a port from 1 to 65535, or two of them as 7400-7403")),
    }
}

/// As many nodes in each as possible, the spares in turn.
pub fn in_blocks(count: u32, nodes: u32, spares: u32) -> anyhow::Result<(Vec<String>, Vec<u32>)> {
    if nodes < count {
        bail!("{nodes} nodes are too few for {count} clusters: give more --nodes, or hosts");
    }
    let block = |node: u32| (u64::from(node) * u64::from(count) / u64::from(nodes)) as u32;
    let of = (0..nodes).map(block).chain((0..spares).map(|spare| spare % count));
    Ok(((0..count).map(|n| n.to_string()).collect(), of.collect()))
}

/// Numbers for names, in the order in which they come first.
pub fn by_name(named: &[String]) -> anyhow::Result<(Vec<String>, Vec<u32>)> {
    let (mut names, mut of): (Vec<String>, Vec<u32>) = (Vec::new(), Vec::new());
    for name in named {
        let known = names.iter().position(|n| n == name);
        of.push(known.unwrap_or(names.len()) as u32);
        if known.is_none() {
            names.push(name.clone());
        }
    }
    if names.len() > MAX_CLUSTERS as usize {
        bail!("the host file names {} clusters; {MAX_CLUSTERS} are the most", names.len());
    }
    Ok((names, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_divided_in_blocks_and_spares_in_turn() {
        let (names, of) = in_blocks(2, 5, 3).unwrap();
        assert_eq!((names.len(), of), (2, vec![0, 0, 0, 1, 1, 0, 1, 0]));
        assert_eq!(in_blocks(3, 3, 0).unwrap().1, [0, 1, 2]);
        assert!(in_blocks(3, 2, 9).is_err());
    }

    #[test]
    fn names_have_numbers_in_their_order() {
        let named = ["b", "b", "a", "b"].map(String::from);
        assert_eq!(by_name(&named).unwrap(), (vec!["b".into(), "a".into()], vec![0, 0, 1, 0]));
    }

    #[test]
    fn modes_that_do_not_go_with_clusters_are_refused() {
        let wide = |copies| ClusterOptions {
            clusters: Some(2),
            wan_plain: false,
            wan_rate: None,
            wan_connections: None,
            gateway_port: None,
            wan_only: false,
            copies,
        };
        let two = wide(None).plan(4, 0, &[]).unwrap();
        let one = Clusters::default();
        assert!(wide(None).check(FtMode::Cluster, &two, false).is_ok());
        assert!(wide(Some(Copies::Outside)).check(FtMode::Cluster, &two, false).is_ok());
        assert!(wide(Some(Copies::Inside)).check(FtMode::Logged, &two, false).is_ok());
        assert!(wide(Some(Copies::Outside)).check(FtMode::Logged, &one, false).is_err());
        assert!(wide(Some(Copies::Outside)).check(FtMode::Node, &two, false).is_err());
        assert!(wide(None).check(FtMode::Cluster, &one, false).is_err());
        assert!(wide(None).check(FtMode::Node, &two, false).is_err());
        assert!(wide(None).check(FtMode::Node, &one, false).is_ok());
    }

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!(parse_ports("7400"), Ok(Ports { first: 7400, last: 7400 }));
        assert_eq!(parse_ports("7400-7403"), Ok(Ports { first: 7400, last: 7403 }));
        assert_eq!(parse_ports("1-65535").map(Ports::count), Ok(65535));
        for bad in ["", "0", "65536", "7403-7400", "7400-", "-7400", "7400:7403", "+7400-7401x"] {
            assert!(parse_ports(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_that_say_nothing_are_refused() {
        let wide = |clusters, wan_plain| ClusterOptions {
            clusters,
            wan_plain,
            wan_rate: None,
            wan_connections: None,
            gateway_port: None,
            wan_only: false,
            copies: None,
        };
        assert!(wide(None, true).plan(4, 0, &[]).is_err());
        assert!(wide(Some(1), true).plan(4, 0, &[]).is_err());
        assert_eq!(wide(Some(1), false).plan(4, 0, &[]).unwrap(), Clusters::default());
        assert!(wide(Some(2), true).plan(4, 0, &[]).unwrap().plain);
        let only = |clusters| ClusterOptions { wan_only: true, ..wide(clusters, false) };
        assert!(only(None).plan(4, 0, &[]).is_err());
        assert!(only(Some(2)).plan(4, 0, &[]).unwrap().is_behind(3));
        let ported = |clusters| {
            let ports = Some(Ports { first: 7400, last: 7400 });
            ClusterOptions { gateway_port: ports, ..wide(clusters, false) }
        };
        assert!(ported(None).plan(4, 0, &[]).is_err());
        let two = ported(Some(2)).plan(4, 0, &[]).unwrap();
        assert_eq!(two.ports.map(Ports::count), Some(1));
        assert!(ported(Some(2)).check(FtMode::Logged, &two, false).is_ok());
        let error = ported(Some(2)).check(FtMode::Logged, &two, true).unwrap_err().to_string();
        assert!(error.contains("7400-7401"), "{error}");
        assert!(wide(Some(2), false).plan(2, 0, &["x".into(), "y".into()]).is_err());
    }
}
