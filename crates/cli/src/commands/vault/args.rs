//! The command line of `eyrie vault`.

use clap::{Args, Subcommand};
use eyrie_terminal::units::parse_bytes;
use eyrie_vault::Scheme;
use eyrie_vault::strategy::Strategy;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie vault import --vault rs:4+2 --from checkpoint/ n0 n1 n2 n3 n4 n5\n  \
    eyrie vault ls n*\n  \
    eyrie vault scrub n*\n  \
    eyrie vault scrub last                # of the job that was started last, and runs\n  \
    eyrie vault export --to restored/ n*\n  \
    eyrie vault export --to s3://bucket/monday --seal key n*\n\n\
    A vault's members are folders, one for each node, each on a storage of its own; which of them\n\
    are given, and in what order, does not matter, as each says what it is. `eyrie run --vault`\n\
    keeps the checkpoints of a job over nodes in one, in the folders node-N/vault: while it runs\n\
    ls, verify and scrub take the JOB, and its nodes, wherever they are, look into their own.")]
pub struct Vault {
    #[command(subcommand)]
    pub action: Action,
}

const SCRUB: &str = "Examples:
  eyrie vault scrub n*
  eyrie vault scrub last --limit 50M

Exit code 0: everything is sound now, and every generation whole. 1: something is lost, or a member
is missing; or a folder is in use by a job that runs, or by another command, and nothing was
changed.";
const REPAIR: &str = "Example, with an empty folder in the place of a lost one:
  mkdir n3; eyrie vault repair n*

Exit code 0: everything is sound now, and every generation whole. 1: something is lost, or a member
is missing; or a folder is in use by a job that runs, or by another command, and nothing was
changed.";

#[derive(Debug, Subcommand)]
pub enum Action {
    /// List generations, what can be had of each, and their objects
    #[command(after_help = "Examples:\n  eyrie vault ls n*\n  eyrie vault ls last --json")]
    Ls(Ls),
    /// Read everything (of a job also its images), and say what is damaged or missing; nothing is
    /// changed
    #[command(after_help = "Examples:\n  eyrie vault verify n*\n  eyrie vault verify last")]
    Verify(Look),
    /// Read everything, and make anew from parity, or another copy, what is damaged
    #[command(after_help = SCRUB)]
    Scrub(Mend),
    /// As scrub; empty folders take the places of members that are missing
    #[command(after_help = REPAIR)]
    Repair(Mend),
    /// Write the objects of a generation to files, from parity where that must be
    #[command(after_help = "Examples:\n  eyrie vault export n* --to checkpoint/\n  \
        eyrie vault export n* --to s3://bucket/heat")]
    Export(Export),
    /// Store files as a new generation
    Import(Import),
}

#[derive(Debug, Args)]
pub struct Look {
    /// Folders of the members; or, for ls, verify and scrub, a job that runs
    #[arg(required = true, value_name = "DIR|JOB")]
    pub members: Vec<PathBuf>,
    /// Do not show how far it is
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ls {
    #[command(flatten)]
    pub look: Look,
    /// The objects of all nodes, too
    #[arg(long)]
    pub objects: bool,
    /// Why each was stored as it was, with what each way would have taken by the model
    #[arg(long)]
    pub why: bool,
}

#[derive(Debug, Args)]
pub struct Mend {
    #[command(flatten)]
    pub look: Look,
    /// Most bytes written in a second, such as 100M; of a job: read by each node
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub look: Look,
    /// Where to write: TO/node-N/OBJECT; s3://BUCKET/PREFIX, gs://, az://, file://: to an object
    /// store, whose endpoint and keys are in the environment as for eyrie run --save-to
    #[arg(long, value_name = "DIR|URL")]
    pub to: PathBuf,
    /// Which generation [default: the newest that can be had]
    #[arg(long, value_name = "G")]
    pub generation: Option<u64>,
    /// File with the key that it was encrypted with: 32 bytes, or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Encrypt what goes to the object store with the key in this file: 32 bytes, or 64
    /// hexadecimal digits; import needs it
    #[arg(long, value_name = "FILE")]
    pub seal: Option<PathBuf>,
    /// Most bytes a second to the object store, such as 100M
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
    /// Only the objects of this node
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("'{text}' is no rate: give Mbit/s, such as 200"))
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie vault import --vault rs:4+2 --from monday/ n0 n1 n2 n3 n4 n5\n  \
    eyrie vault import --from tuesday/ --link 200 n*   # what changed, as the model says\n  \
    eyrie vault import --from today/ --keep 7 n*       # each night: a week is kept\n  \
    eyrie vault ls --why n*")]
pub struct Import {
    #[command(flatten)]
    pub look: Look,
    /// The files: FROM/node-N/OBJECT; s3://BUCKET/PREFIX or the like: what export brought there
    #[arg(long, value_name = "DIR|URL")]
    pub from: PathBuf,
    /// File with the key that export encrypted it with for the object store
    #[arg(long, value_name = "FILE")]
    pub seal: Option<PathBuf>,
    /// Make a new vault of the folders, the first of which is node 0: rs:K+M (any M nodes of K + M
    /// may be lost), xor:K, partner, local
    #[arg(long, value_name = "SCHEME")]
    pub vault: Option<Scheme>,
    /// How to store it: whole; increments (what changed since the newest generation, with parity
    /// over that); update (parity of the newest one with the differences added, of which nothing
    /// else crosses the network) [default: what takes least by the model]
    #[arg(long, value_name = "WAY")]
    pub by: Option<Strategy>,
    /// Rate of the nodes' links in Mbit/s, for the model [default: 10000]
    #[arg(long, value_name = "MBIT", value_parser = parse_rate)]
    pub link: Option<f64>,
    /// Most generations that one with increments may refer to, before one is whole again
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub chain: usize,
    /// Then drop all generations but the newest N, this one among them. If it refers to older ones
    /// it is stored once more, whole, first; what others of the N refer to stays as long as they
    /// [default: all stay]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: Option<u64>,
    /// Encrypt it with the key in this file: 32 bytes, or 64 hexadecimal digits; export takes it,
    /// too, and nothing else does
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}
