//! `--topology`: the network between the nodes of a job, out of a file.
//!
//! Kept true: what the controller is told describes a network, and has all nodes that the job
//! begins with.

use crate::config::defaults::OptionConflict;
use crate::options::run::Run;
use anyhow::{Context, anyhow, bail};
use eyrie_control::{JobSpec, Placement};
use eyrie_topo::{Network, reader};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A job's description, of which this is a part, is one message of at most a MiB.
const MOST_BYTES: usize = 256 << 10;
/// Names of nodes that are told where one is not found.
const TOLD: u32 = 3;

/// Tells a job the network that was asked for.
pub fn choose(run: &Run, spec: &mut JobSpec) -> anyhow::Result<()> {
    let Some(path) = &run.placement.topology else { return Ok(()) };
    if spec.placement.nodes == 0 {
        let text = "--topology is for a job over several nodes: give --nodes or --hosts";
        return Err(OptionConflict::new(text).into());
    }
    let text = text_of(path)?;
    let network = reader::read_topology(&text);
    let network = network.map_err(|error| anyhow!("{}, {error}", path.display()))?;
    check(&network, &spec.placement).with_context(|| format!("--topology {}", path.display()))?;
    spec.placement.topology = text;
    Ok(())
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() > MOST_BYTES {
        bail!(
            "{} has more than {} KiB: write nodes as n[0-99], or the network as its kind and sizes",
            path.display(),
            MOST_BYTES >> 10
        );
    }
    String::from_utf8(bytes).map_err(|_| anyhow!("{} is no text", path.display()))
}

/// Whether a network has the nodes of a job.
fn check(network: &Network, job: &Placement) -> anyhow::Result<()> {
    let nodes = network.nodes();
    let Some(hosts) = &job.hosts else {
        let wanted = job.nodes.saturating_add(job.spares);
        if wanted > nodes {
            bail!("it has {nodes} nodes, and the job {wanted}, spares counted");
        }
        return Ok(());
    };
    if let Some(host) = hosts.list.iter().find(|host| network.host(&host.name).is_none()) {
        let some: Vec<String> = (0..nodes.min(TOLD)).map(|node| network.names.get(node)).collect();
        let more = if nodes > TOLD { ", ..." } else { "" };
        bail!(
            "host {} is none of its nodes ({}{more}): 'names' names them",
            host.name,
            some.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::message::{Host, Hosts};
    use std::net::{IpAddr, Ipv4Addr};

    fn hosts(names: &[&str]) -> Placement {
        let controller = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let host = |name: &&str| Host { name: (*name).into(), controller, gateway: None };
        let hosts = Hosts {
            list: names.iter().map(host).collect(),
            rsh: Vec::new(),
            shell: true,
            binary: Vec::new(),
            join_ms: 1,
            outlive: true,
        };
        let nodes = names.len() as u32;
        Placement { nodes, hosts: Some(Box::new(hosts)), ..Placement::default() }
    }

    fn said(network: &str, job: &Placement) -> String {
        let network = reader::read_topology(network).unwrap();
        check(&network, job).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn all_nodes_of_the_job_are_in_the_network() {
        let here = Placement { nodes: 3, spares: 1, ..Placement::default() };
        assert_eq!(said("mesh 2x2", &here), "");
        assert_eq!(said("mesh 3x1", &here), "it has 3 nodes, and the job 4, spares counted");
        let named = "mesh 2x2\nnames a[0-3]\n";
        assert_eq!(said(named, &hosts(&["a3", "a0.example"])), "");
        let unknown = said(named, &hosts(&["a1", "b1"]));
        assert!(unknown.starts_with("host b1 is none of its nodes (a0, a1, a2, ...)"), "{unknown}");
        // Slurm's files have names anyway.
        let slurm = "SwitchName=s0 Nodes=a[0-3]\n";
        assert_eq!(said(slurm, &hosts(&["a3", "a0"])), "");
    }
}
