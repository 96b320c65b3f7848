//! `eyrie inject`: faults on purpose.

use crate::client::{Client, find_running};
use clap::{Args, Subcommand};
use eyrie_control::ClientMsg;
use eyrie_terminal::{Failure, print, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie inject last kill-rank 2\n  \
    eyrie inject k7mq kill-rank 0,3\n  \
    eyrie inject last kill-node 1\n  \
    eyrie inject last kill-gateway 0\n  \
    eyrie inject last kill-controller")]
pub struct Inject {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    #[command(subcommand)]
    pub fault: Fault,
    /// As JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Fault {
    /// Kill nodes: their daemons, all that runs on them, and their storage
    #[command(name = "kill-node")]
    Node {
        /// Nodes, separated by commas
        #[arg(value_name = "N[,N..]", value_delimiter = ',', required = true)]
        nodes: Vec<u32>,
    },
    /// Kill the gateways of clusters; others are started
    #[command(name = "kill-gateway")]
    Gateway {
        /// Clusters by their numbers, separated by commas
        #[arg(value_name = "C[,C..]", value_delimiter = ',', required = true)]
        clusters: Vec<u32>,
    },
    /// Kill the controller; another one goes on by its journal
    #[command(name = "kill-controller")]
    Controller,
    /// Kill ranks with SIGKILL, all at the same moment
    #[command(name = "kill-rank")]
    Rank {
        /// Ranks, separated by commas
        #[arg(value_name = "R[,R..]", value_delimiter = ',', required = true)]
        ranks: Vec<u32>,
    },
}

pub fn inject(args: &Inject) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = match &args.fault {
        Fault::Rank { ranks } => ClientMsg::Kill { ranks: ranks.clone() },
        Fault::Gateway { clusters } => ClientMsg::KillGateways { clusters: clusters.clone() },
        Fault::Controller => ClientMsg::KillController,
        Fault::Node { nodes } => ClientMsg::KillNodes { nodes: nodes.clone() },
    };
    Client::ask(&job, &ask)?;
    let list = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let none = Vec::new();
    let (what, numbers, text) = match &args.fault {
        Fault::Rank { ranks } => ("rank", ranks, format!("rank {}", list(ranks))),
        Fault::Gateway { clusters } => {
            ("gateway", clusters, format!("gateway of cluster {}", list(clusters)))
        }
        Fault::Controller => ("controller", &none, String::from("the controller")),
        Fault::Node { nodes } => ("node", nodes, format!("node {}", list(nodes))),
    };
    match args.json {
        true => print_json(&json!({ "job": job.id, "killed": what, "numbers": numbers }))?,
        false => print(&format!("job {}: killed: {text}\n", job.id)),
    }
    Ok(0)
}
