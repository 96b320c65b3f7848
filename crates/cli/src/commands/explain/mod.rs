//! `eyrie explain`: why a job, a rank or a node is as it is.

mod chosen;
mod findings;

use crate::commands::explain::findings::About;
use crate::jobs::{find, status_of};
use anyhow::anyhow;
use clap::{Args, Subcommand};
use eyrie_terminal::{FAILED, Failure, print, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie explain last\n  eyrie explain k7mq rank 3\n  \
    eyrie explain heat-1 node 1")]
pub struct Explain {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    #[command(subcommand)]
    pub about: Option<AboutArg>,
    /// As JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum AboutArg {
    /// One rank
    #[command(after_help = "Example:\n  eyrie explain last rank 3")]
    Rank {
        #[arg(value_name = "R")]
        rank: u32,
    },
    /// One node
    #[command(after_help = "Example:\n  eyrie explain last node 1")]
    Node {
        #[arg(value_name = "N")]
        node: u32,
    },
}

pub fn explain(args: &Explain) -> Result<i32, Failure> {
    let job = find(&args.job)?;
    let (status, _) = status_of(&job)?;
    let about = match args.about {
        None => About::Job,
        Some(AboutArg::Rank { rank }) => About::Rank(rank),
        Some(AboutArg::Node { node }) => About::Node(node),
    };
    let found = findings::explain(&status, about);
    let mut found = found.map_err(|why| Failure::new(FAILED, anyhow!(why)))?;
    if let About::Node(node) = about {
        found.extend(chosen::findings(&chosen::events(&job), node));
    }
    match args.json {
        true => {
            let (rank, node) = match args.about {
                Some(AboutArg::Rank { rank }) => (Some(rank), None),
                Some(AboutArg::Node { node }) => (None, Some(node)),
                None => (None, None),
            };
            let findings = found.iter().map(|it| json!({ "what": it.what, "remedy": it.then }));
            let findings: Vec<_> = findings.collect();
            print_json(&json!({
                "job": status.job, "rank": rank, "node": node, "findings": findings,
            }))?;
        }
        false => print(&findings::text(&found)),
    }
    Ok(0)
}
