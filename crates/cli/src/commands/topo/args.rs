//! The command line of `eyrie topo`.

use clap::{Args, Subcommand};
use eyrie_terminal::units::{parse_bytes, parse_interval, parse_millis};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie topo show network.topo\n  \
    eyrie topo predict network.topo --pattern stencil:6x11 --spares row --lost 7 --spare 70\n  \
    eyrie topo place /etc/slurm/topology.conf --pattern ring:60 --spares per-switch --lost n7\n\n\
    A network is a file of a few lines, such as `torus 8x8x8`, or Slurm's topology.conf\n\
    (docs/guides/topology.md).")]
pub struct Topo {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Show a network: nodes, links, and a picture where it is a grid
    #[command(after_help = "Examples:\n  \
        eyrie topo show network.topo\n  \
        eyrie topo show network.topo --route 0,0 3,2\n  \
        eyrie topo show /etc/slurm/topology.conf --svg network.svg")]
    Show(Show),
    /// Say which links messages share and how much longer they take when a spare replaces a node
    #[command(after_help = "Examples:\n  \
        eyrie topo predict k.topo --pattern stencil:6x11 --spares row --lost 7 --spare 70\n  \
        eyrie topo predict k.topo --pattern stencil:6x11 --spares row --lost 7\n  \
        eyrie topo predict k.topo --traffic sent.txt --spares 70,71 --lost 7\n\n\
        The slow-down is told twice: by the most messages on a link (the paper's equation 2), and\n\
        by flows that share links, memory and engines fairly.")]
    Predict(Predict),
    /// Say which spare to take for a lost node; without --lost, where to put spares
    #[command(after_help = "Examples:\n  \
        eyrie topo place k.topo --pattern stencil:6x11 --spares row --lost 7 --rest 2h\n  \
        eyrie topo place k.topo --pattern stencil:6x11 --spares row --lost 7 --state 16G\n  \
        eyrie topo place fat.topo --pattern ring:100 --count 4\n\n\
        The cost of a choice is the time to move ranks, and what the pattern is slower afterwards\n\
        over the rest of the run. Ranks may also slide by a node each, in up to 3 dimensions.")]
    Place(Place),
    /// Show how much each rank of a job has sent to each, as a file for --traffic
    #[command(after_help = "Examples:\n  \
        eyrie topo traffic last\n  \
        eyrie topo traffic last > sent.txt\n  \
        eyrie topo predict k.topo --traffic sent.txt --spares 70,71 --lost 7")]
    Traffic(Traffic),
    /// Measure latency and bandwidth between hosts, and write a network file of it
    #[command(after_help = "Examples:\n  \
        eyrie topo probe --hosts node1,node2,node3 > network.topo\n  \
        eyrie topo probe --hosts hosts.txt --time 1 --json\n\n\
        Each pair is measured alone, both ways, then groups of hosts that are near each other,\n\
        all pairs of two groups at one time. Nothing else should run on the hosts.")]
    Probe(Probe),
}

#[derive(Debug, Args)]
pub struct Probe {
    /// These machines: a list or a file, as for eyrie run
    #[arg(long, value_name = "LIST|FILE")]
    pub hosts: String,
    /// The remote shell that reaches them, as for eyrie run [env: EYRIE_RSH] [default: ssh -o
    /// BatchMode=yes -o ControlMaster=no]
    #[arg(long, value_name = "CMD")]
    pub rsh: Option<String>,
    /// Where Eyrie is on the hosts: DIR/bin/eyrie [default: as here]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// This machine's address as the hosts reach it [default: the one on the way to them]
    #[arg(long, value_name = "ADDR")]
    pub address: Option<String>,
    /// How long the bandwidth of a pair is measured (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "0.25", value_parser = parse_interval)]
    pub time: u64,
    /// Longest wait for each host (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "20", value_parser = parse_interval)]
    pub limit: u64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Traffic {
    /// The job: its id, its name, the beginning of its id, or `last`
    pub job: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Show {
    /// The file that describes the network, or - for standard input
    #[arg(value_name = "FILE")]
    pub network: PathBuf,
    /// Also show the links that a message takes, between two nodes by name, number or coordinates
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
    pub route: Option<Vec<String>>,
    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// A network and a program on it.
#[derive(Debug, Args)]
pub struct Program {
    /// The file that describes the network, or - for standard input
    #[arg(value_name = "FILE")]
    pub network: PathBuf,
    /// Which ranks send to which: stencil:6x11[:periodic], one-way:6x11, ring:64, all-to-all:16,
    /// transpose:8x8, random:64:4[:SEED]
    #[arg(long, value_name = "KIND:SIZES", required_unless_present = "traffic")]
    pub pattern: Option<String>,
    /// The same as a file: each line two ranks and the bytes that the first one sends
    #[arg(long, value_name = "FILE", conflicts_with = "pattern")]
    pub traffic: Option<PathBuf>,
    /// Bytes of each message of --pattern
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_bytes)]
    pub bytes: u64,
    /// Spare nodes: row, face, spread or per-switch, each with :COUNT if it is not 1, or a list of
    /// nodes
    #[arg(long, value_name = "WHERE")]
    pub spares: Option<String>,
    /// The node that is lost: its name, its number, or its coordinates (3,4)
    #[arg(long, value_name = "NODE", requires = "spares")]
    pub lost: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Predict {
    #[command(flatten)]
    pub program: Program,
    /// The spare that takes its place; without it each is looked at
    #[arg(long, value_name = "NODE", requires = "lost")]
    pub spare: Option<String>,
    /// Write a picture of links before and after to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Place {
    #[command(flatten)]
    pub program: Program,
    /// Bytes of the ranks of a node, which have to move
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub state: u64,
    /// How long the job goes on (seconds, or with unit)
    #[arg(long, value_name = "SECS", default_value = "1h", value_parser = parse_millis)]
    pub rest: u64,
    /// The part of its time that goes into these messages, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent())]
    pub communication: u8,
    /// How many spares to compare places for, without --lost
    #[arg(long, value_name = "N", default_value = "1", value_parser = from_one())]
    pub count: u32,
    /// How many choices to show
    #[arg(long, value_name = "N", default_value = "10")]
    pub show: usize,
}

fn percent() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=100)
}

fn from_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}
