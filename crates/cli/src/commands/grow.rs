//! `eyrie grow`: more nodes for a job that runs.

use crate::client::{Client, find_running};
use crate::launch::hosts;
use crate::messages::say;
use anyhow::anyhow;
use clap::Args;
use eyrie_control::{ClientMsg, NodeMsg};
use eyrie_terminal::{FAILED, Failure, USAGE, print, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie grow last\n  eyrie grow k7mq --nodes 2\n  \
    eyrie grow k7mq node7 node8\n  \
    eyrie grow k7mq node7 cluster=west\n  \
    eyrie grow k7mq node7 domain=rack3\n\n\
    The new nodes have no ranks: they take those of nodes that are lost, and images of others.")]
pub struct Grow {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// Of a job over --hosts: machines that join it, also such as it had lost; behind each, if the
    /// job has several clusters, `cluster=NAME` of one of these, if its hosts have domains,
    /// `domain=NAME` of what it fails together with, and, if other clusters' gateways are to reach
    /// one there at a certain address, `gateway=ADDRESS[:PORT]`
    #[arg(value_name = "HOST", conflicts_with_all = ["nodes", "cluster"])]
    pub hosts: Vec<String>,
    /// Of a job over --nodes: how many
    #[arg(long, value_name = "K", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=250))]
    pub nodes: u32,
    /// Of a job over --nodes and --clusters: which one they are in [default: each in turn]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR", requires = "hosts")]
    pub address: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

pub fn grow(args: &Grow) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = match args.hosts.is_empty() {
        true => ClientMsg::Grow { nodes: args.nodes, cluster: args.cluster.clone() },
        false => {
            let named = hosts::named(&args.hosts, args.address.as_deref());
            let joining = named.map_err(|e| Failure::new(USAGE, e))?;
            let hosts::JoiningHosts { hosts, clusters, domains } = joining;
            ClientMsg::GrowHosts { hosts, clusters, domains }
        }
    };
    let mut remote = Client::connect(&job)?.send_unlimited(&ask)?;
    let (mut joined, mut failed) = (Vec::new(), Vec::new());
    loop {
        match remote.next()? {
            NodeMsg::NodeJoined { node } => {
                joined.push(node);
                if !args.json {
                    print(&format!("node {node} has joined\n"));
                }
            }
            NodeMsg::NotJoined { node, reason } => {
                say(&format!("node {node} has not joined: {reason}"));
                failed.push(json!({ "node": node, "reason": reason }));
            }
            NodeMsg::Done => break,
            other => return Err(anyhow!("unexpected answer: {other:?}").into()),
        }
    }
    let code = if failed.is_empty() { 0 } else { FAILED };
    if args.json {
        print_json(&json!({ "job": job.id, "joined": joined, "failed": failed }))?;
    }
    Ok(code)
}
