//! `eyrie clusters block` and `unblock`: nothing goes between two clusters for a while.
//!
//! Kept true: `block` ends with 0 only when both gateways have said that nothing is under way.

use crate::client::{self, Client, find_running};
use anyhow::anyhow;
use clap::{Args, Subcommand};
use eyrie_control::{ClientMsg, JobStatus};
use eyrie_terminal::units::parse_millis;
use eyrie_terminal::{FAILED, Failure, print, print_json};
use serde_json::json;
use std::time::{Duration, Instant};

/// Between two looks whether there is silence.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie clusters block last east west\n  \
    eyrie clusters unblock last east west")]
pub struct Clusters {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Debug, Subcommand)]
pub enum What {
    /// Let nothing go between two clusters, and wait until nothing is under way
    #[command(after_help = "Example, around work on the line between two sites:\n  \
        eyrie clusters block last east west\n  \
        eyrie clusters unblock last east west\n\n\
        Each of the two gateways sends on what it has taken from its nodes, takes nothing more,\n\
        and says so; the command ends when all that came has been delivered on both sides. Ranks\n\
        that wait for the other cluster wait, all others go on, and nothing is lost: nodes keep\n\
        what they cannot send. Gateways that are started meanwhile, also by the next controller,\n\
        let nothing through, until `unblock`. What needs the other cluster takes as long: copies\n\
        of images there, output that waits for copies of outcomes, ranks that move there.")]
    Block(Block),
    /// Let it go again
    #[command(after_help = "Example:\n  eyrie clusters unblock last east west")]
    Unblock(Pair),
}

#[derive(Debug, Args)]
pub struct Block {
    #[command(flatten)]
    pub pair: Pair,
    /// How long to wait for silence (seconds, or with unit); after that they stay blocked all the
    /// same
    #[arg(long, value_name = "SECS", default_value = "60", value_parser = parse_millis)]
    pub limit: u64,
}

#[derive(Debug, Args)]
pub struct Pair {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// A cluster, by its name (with --clusters: its number)
    pub one: String,
    /// Another one
    pub other: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

impl Pair {
    fn ask(&self, block: bool) -> ClientMsg {
        ClientMsg::Block { clusters: [self.one.clone(), self.other.clone()], block }
    }

    fn tell(&self, job: &str, blocked: bool) -> anyhow::Result<()> {
        let clusters = [&self.one, &self.other];
        print_json(&json!({ "job": job, "clusters": clusters, "blocked": blocked }))
    }

    /// Which of the two still hear something; none: they are not blocked any more.
    fn awaited(&self, status: &JobStatus) -> Option<Vec<String>> {
        let mut awaited = Vec::new();
        for (own, other) in [(&self.one, &self.other), (&self.other, &self.one)] {
            let cluster = status.clusters.iter().find(|c| c.name == *own)?;
            if !cluster.blocked.iter().find(|b| b.cluster == *other)?.silent {
                awaited.push(own.clone());
            }
        }
        Some(awaited)
    }
}

pub fn clusters(args: &Clusters) -> Result<i32, Failure> {
    match &args.what {
        What::Block(args) => block(args),
        What::Unblock(pair) => {
            let job = find_running(&pair.job)?;
            Client::ask(&job, &pair.ask(false))?;
            if pair.json {
                pair.tell(&job.id, false)?;
            }
            Ok(0)
        }
    }
}

fn block(args: &Block) -> Result<i32, Failure> {
    let Block { pair, limit } = args;
    let end = Instant::now() + Duration::from_millis(*limit);
    let mut job = find_running(&pair.job)?;
    let (one, other) = (&pair.one, &pair.other);
    Client::ask(&job, &pair.ask(true))?;
    loop {
        let Some(awaited) = pair.awaited(&client::job_status(&job)?) else {
            let text = format!("clusters {one} and {other} were unblocked meanwhile");
            return Err(Failure::new(FAILED, anyhow!(text)));
        };
        if awaited.is_empty() {
            match pair.json {
                true => pair.tell(&job.id, true)?,
                false => {
                    print(&format!("nothing is under way between clusters {one} and {other}\n"));
                }
            }
            return Ok(0);
        }
        if Instant::now() >= end {
            let text = format!(
                "there is no silence yet after {:.1} s: not all that came to cluster {} is \
                 delivered, or the other gateway does not answer; nothing new is taken, and \
                 `eyrie clusters unblock {} {one} {other}` ends that",
                *limit as f64 / 1e3,
                awaited.join(" and to cluster "),
                pair.job
            );
            return Err(Failure::new(FAILED, anyhow!(text)));
        }
        std::thread::sleep(PAUSE);
        job = find_running(&job.id)?;
    }
}
