//! `eyrie explain`: why a job, a rank or a node is as it is.

mod chosen;
mod collective;
mod findings;

use crate::commands::explain::findings::About;
use crate::jobs::{find, status_of};
use anyhow::anyhow;
use clap::{Args, Subcommand};
use eyrie_core::coll::told::NAMES;
use eyrie_terminal::units::parse_limit;
use eyrie_terminal::{FAILED, Failure, print, print_json};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie explain last\n  eyrie explain k7mq rank 3\n  \
    eyrie explain heat-1 node 1\n  eyrie explain last collective allreduce 4096")]
pub struct Explain {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    #[command(subcommand)]
    pub about: Option<AboutArg>,
    /// As JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Clone, Subcommand)]
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
    /// Which way a blocking collective takes on all ranks
    #[command(after_help = "Example:\n  eyrie explain last collective allreduce 4096")]
    Collective {
        /// Its name, without MPI_
        #[arg(value_name = "NAME", value_parser = NAMES)]
        name: String,
        /// What a rank gives: a block, or the whole vector of a reduction
        #[arg(value_name = "BYTES", value_parser = parse_limit)]
        bytes: u64,
    },
}

pub fn explain(args: &Explain) -> Result<i32, Failure> {
    let job = find(&args.job)?;
    if let Some(AboutArg::Collective { name, bytes }) = &args.about {
        return collective::explain(&job, name, *bytes, args.json);
    }
    let (status, _) = status_of(&job)?;
    let about = match args.about {
        Some(AboutArg::Rank { rank }) => About::Rank(rank),
        Some(AboutArg::Node { node }) => About::Node(node),
        _ => About::Job,
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
                _ => (None, None),
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
