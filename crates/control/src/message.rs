//! The messages themselves.
//!
//! Every connection begins with `Hello` from both sides; versions must be equal, as daemon and
//! CLI are one binary. The console (the connection of `eyrie run`) then sends `Start`, and the job
//! lives as long as that connection. All other connections ask one thing and close.

use crate::bind::{Bind, Slot};
use crate::event::Event;
use crate::gateway::{Clusters, Outer};
use crate::ha::Ha;
use crate::status::JobStatus;
use crate::transport::Transport;
use crate::vault::{Checked, Inspected, Kept};
use eyrie_vault::Scheme;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Version of this protocol.
pub const PROTOCOL: u32 = 23;
/// Most bytes of standard input or output in one message.
pub const MAX_DATA_BYTES: usize = 256 * 1024;

/// Fault-tolerance mode of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ft {
    /// Message logging: a rank that dies is recovered alone.
    Logged,
    /// Nothing is logged; a rank that dies ends the job.
    None,
    /// `eyrie verify`: record, run again under force, compare; so many times, with messages delayed
    /// and hastened by this seed and those that follow it.
    Verify { seed: u32, seeds: u32 },
    /// Nothing is logged; all ranks are checkpointed together, and go back together.
    Coordinated,
    /// The ranks that begin on one node are checkpointed together, and go back together; what they
    /// send to others is logged.
    Node,
    /// The same of those that begin in one cluster. `outside`: copies of their images and outcomes
    /// are in another cluster.
    Cluster { outside: bool },
}

impl Ft {
    pub fn name(self) -> &'static str {
        match self {
            Ft::Logged => "logged",
            Ft::None => "none",
            Ft::Verify { .. } => "verify",
            Ft::Coordinated => "coordinated",
            Ft::Node => "node",
            Ft::Cluster { .. } => "cluster",
        }
    }

    /// Whether it is `eyrie verify`.
    pub fn verifies(self) -> bool {
        matches!(self, Ft::Verify { .. })
    }

    /// Whether ranks are checkpointed, and brought back when they die.
    pub fn protects(self) -> bool {
        matches!(self, Ft::Logged | Ft::Coordinated) || self.has_units()
    }

    /// Whether several ranks are brought to stand for one checkpoint.
    pub fn stands_together(self) -> bool {
        self == Ft::Coordinated || self.has_units()
    }

    /// Whether ranks go back with others, and log against the rest.
    pub fn has_units(self) -> bool {
        matches!(self, Ft::Node | Ft::Cluster { .. })
    }
}

/// Whether an image refers to those of other ranks for what these hold too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dedup {
    /// Where it saves a good part of the image.
    Auto,
    /// Wherever something is the same.
    On,
    Off,
}

/// In which order ranks are checkpointed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointPolicy {
    /// At each interval one after the other.
    Sequential,
    /// At each interval all at once.
    Batch,
    /// Each by a timer of its own.
    Timer,
    /// One at a time; the interval follows from measurements.
    Auto,
}

/// How a rank's memory is kept until it is in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freeze {
    /// The cheaper of copy and twin.
    Auto,
    Copy,
    Twin,
    /// Not at all: the rank stands still until the image is written.
    Sync,
}

/// A machine that is reached by a remote shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    /// The controller's address, as the host reaches it.
    pub controller: IpAddr,
    /// Where other clusters' gateways reach one that is on it, if that is not where it reaches the
    /// controller from. Of a cluster with such hosts one of them has the gateway.
    pub gateway: Option<Outer>,
}

/// Machines that nodes are on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// One for each node, spares last.
    pub list: Vec<Host>,
    /// The remote shell and its arguments; the host's name and a command follow.
    pub rsh: Vec<Vec<u8>>,
    /// The command is read by a shell there.
    pub shell: bool,
    /// The path of `eyrie` there.
    pub binary: Vec<u8>,
    /// Longest wait for all nodes to have joined.
    pub join_ms: u64,
    /// Nodes there may outlive the controller, and what it had started them with.
    pub outlive: bool,
}

/// What to run. Working folder and environment are those the daemon was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub size: u32,
    pub ft: Ft,
    pub checkpoint_every_ms: u64,
    /// When all ranks have been checkpointed once, if that is sooner.
    pub checkpoint_first_ms: u64,
    pub checkpoint_policy: CheckpointPolicy,
    /// Store in a checkpoint only what has changed since the one before.
    pub incremental: bool,
    pub freeze: Freeze,
    /// Store once what several ranks have in common.
    pub dedup: Dedup,
    /// Send log of each rank, in bytes.
    pub log_limit_bytes: u64,
    pub name: Option<String>,
    /// Keep the job's folder when it is over.
    pub keep: bool,
    /// Tell the console about every event.
    pub verbose: bool,
    /// Nodes, each with its own daemon; 0: the controller is the only one.
    pub nodes: u32,
    /// Nodes without ranks: for when one is lost, and routers.
    pub spares: u32,
    /// So many of these, the last ones, are routers: messages between nodes go by them, and they
    /// log them.
    pub routers: u32,
    /// Ranks of each router.
    pub router_share: u32,
    /// Each node in a network namespace of its own.
    pub netns: bool,
    /// Where nodes are; none: here.
    pub hosts: Option<Box<Hosts>>,
    /// Lay ranks out one on each node in turn.
    pub cyclic: bool,
    /// The node of each rank at the start; empty: as many on each.
    pub homes: Vec<u32>,
    pub bind: Bind,
    /// The processors of each rank, instead of that; empty: none are named.
    pub slots: Vec<Vec<Slot>>,
    /// Other nodes that hold each determinant.
    pub log_replicas: u32,
    /// Whether what clocks and the C library give is recorded.
    pub wtime: Wtime,
    /// A replay that writes something else has diverged.
    pub strict_output: bool,
    /// How images are protected against the loss of nodes.
    pub vault: Scheme,
    pub manner: crate::vault::Manner,
    /// Resolved path of the program.
    pub program: Vec<u8>,
    /// The name the program is called by, and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The console's standard input is a file: it has an end, and is read to it when the job is
    /// saved.
    pub input_is_file: bool,
    /// How long nodes go on without a controller; 0: not at all.
    pub controller_limit_ms: u64,
    /// Connections between nodes, and to the controller, are encrypted.
    pub tls: bool,
    /// What those between nodes go over.
    pub transport: Transport,
    /// How often, at most, the newest set of a job over nodes is brought to the job's folder while
    /// it runs; 0: never.
    pub save_every_ms: u64,
    /// The same whenever all ranks have so many newer checkpoints; 0: never.
    pub save_every_generations: u32,
    pub clusters: Clusters,
    /// How long a node has that is told to end; 0: none, it goes at once.
    pub grace_ms: u64,
    /// Where states of the job are brought besides its folder: `s3://BUCKET/PREFIX`.
    pub save_to: Option<String>,
    /// With so many bytes a second at most; 0: as fast as can be.
    pub save_rate_bytes: u64,
    /// ... encrypted with the key in this file.
    pub save_key: Option<String>,
    /// Who can read what nodes store.
    pub at_rest: AtRest,
    /// Features of the processor that a node may lack, although a rank that comes to it seems to
    /// use them.
    pub ignore_features: Vec<String>,
    /// The controller's state is kept there, too, so that one on another machine can go on.
    pub ha: Option<Box<Ha>>,
    /// What becomes of what a rank appended to files after the checkpoint that it comes back from.
    pub appended: Appended,
    /// What becomes of a checkpoint of a rank that has left processes behind.
    pub orphans: Orphans,
    /// What becomes of files that are not as they were at the checkpoint that a rank comes back
    /// from.
    pub files: Files,
    /// Most bytes stored of a file that a rank writes to; 0: none is noted.
    pub files_limit_bytes: u64,
    /// How often all ranks that are checkpointed alone are checkpointed together.
    pub fallback: Fallback,
}

/// What becomes of files that are not as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Files {
    /// They are put back where that can be, and named elsewhere.
    Auto,
    /// They stay, and are named.
    Warn,
    /// The rank does not come back from that checkpoint.
    Refuse,
    /// They are put back, or the rank does not come back from that checkpoint.
    Restore,
}

/// How often a job whose ranks are checkpointed alone takes a snapshot of all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fallback {
    Off,
    /// By what one costs, and whether it was needed.
    Auto,
    /// In place of every so many checkpoints of each rank.
    Every(u32),
}

/// Whether there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Orphans {
    /// There is none as long as they live.
    Refuse,
    /// They are not part of it.
    Leave,
}

/// How what nodes store is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtRest {
    Plain,
    /// By their kernels, each with a key of its own.
    Kernel,
    /// By their daemons, with a key of the job that is in no file.
    Sealed,
    /// The same with the key in this file on the controller's machine; `mark` tells it from others.
    Keyed {
        file: String,
        mark: [u8; 16],
    },
}

impl AtRest {
    /// Whether the daemons do it.
    pub fn is_sealed(&self) -> bool {
        matches!(self, AtRest::Sealed | AtRest::Keyed { .. })
    }

    /// Whether nobody can read it when the nodes are gone.
    pub fn goes_with_nodes(&self) -> bool {
        matches!(self, AtRest::Kernel | AtRest::Sealed)
    }
}

/// Whether that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Appended {
    /// Where the kernel says that nobody else has the file open for writing.
    Auto,
    /// Nobody else writes, the user says.
    Cut,
    Keep,
}

/// Whether what clocks give is an outcome like others, and what else the C library says of the
/// process and its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wtime {
    /// In programs that call MPI in one thread.
    Auto,
    /// Also in others, of their main thread.
    Logged,
    /// As `Auto`, but only what MPI_Wtime gives.
    Mpi,
    Plain,
}

impl JobSpec {
    /// Whether images are kept in a vault, with parity on other nodes.
    pub fn is_vaulted(&self) -> bool {
        self.nodes > 0 && matches!(self.vault, Scheme::Rs { .. } | Scheme::Xor { .. })
    }

    /// The mode as the user knows it.
    pub fn mode(&self) -> &'static str {
        if self.routers > 0 { "routed" } else { self.ft.name() }
    }

    /// Whether states of it are saved while it runs.
    pub fn saves(&self) -> bool {
        self.save_every_ms > 0 || self.save_every_generations > 0
    }

    /// Numbers of the nodes that are routers.
    pub fn router_nodes(&self) -> std::ops::Range<u32> {
        let all = self.nodes + self.spares;
        all.saturating_sub(self.routers)..all
    }

    /// Whether the controller keeps a journal, so that its death does not end the job.
    pub fn is_journaled(&self) -> bool {
        let outlive = self.hosts.as_ref().is_none_or(|h| h.outlive);
        let goes_on = self.nodes > 0 && !self.ft.verifies();
        goes_on && outlive && self.controller_limit_ms > 0
    }

    /// How long nodes go on without a controller.
    pub fn controller_limit(&self) -> Duration {
        Duration::from_millis(if self.is_journaled() { self.controller_limit_ms } else { 0 })
    }
}

/// A rank's output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// From a client to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMsg {
    Hello {
        protocol: u32,
    },
    /// Console: start the job.
    Start(Box<JobSpec>),
    /// Console: bytes for rank 0, as many as credit was given for.
    Stdin(Vec<u8>),
    /// Console: standard input is over.
    StdinEof,
    /// Console: a signal that reached the CLI.
    Signal(i32),
    Status,
    /// Checkpoint one rank, or all; answered by `Checkpointed` for each, then `Done`.
    Checkpoint {
        rank: Option<u32>,
    },
    /// Kill ranks with SIGKILL, as a fault would.
    Kill {
        ranks: Vec<u32>,
    },
    /// End the job.
    Abort,
    /// Events from number `from` on; with `follow` also those to come.
    Events {
        from: u64,
        follow: bool,
    },
    /// Kill nodes with all that is on them, as a fault would.
    KillNodes {
        nodes: Vec<u32>,
    },
    /// Start so many more nodes, in this cluster or, of several, in each in turn; answered by
    /// `NodeJoined` for each, then `Done`.
    Grow {
        nodes: u32,
        cluster: Option<String>,
    },
    /// Checkpoint all ranks, save the job and end it; answered by `Checkpointed` for each, then
    /// `Done`.
    CheckpointAndEnd,
    /// Console: go on with the job that is saved in the folder.
    Restart(Box<JobSpec>),
    /// Console: the controller died; go on with the job by its journal.
    Resume {
        verbose: bool,
    },
    /// Kill the controller with SIGKILL, as a fault would.
    KillController,
    /// Start nodes on these hosts, of which each is in one of the job's clusters, if it has
    /// several, and fails together with the others of its domain, if that is said; answered as
    /// `Grow`.
    GrowHosts {
        hosts: Vec<Host>,
        clusters: Vec<String>,
        domains: Vec<String>,
    },
    /// Kill the gateways of clusters with SIGKILL, as a fault would.
    KillGateways {
        clusters: Vec<u32>,
    },
    /// Have nodes (numbers, ranges of them, names of hosts, clusters) leave, their ranks to `to` if
    /// that is given, within so much time; answered by `Leaving` more than once, then `Done`.
    /// `number`: of this request, which the events of what it began have, so that who hears no
    /// answer can tell whether to ask again.
    Drain {
        nodes: Vec<String>,
        to: Vec<String>,
        deadline_ms: Option<u64>,
        number: u64,
    },
    /// Have all ranks of these nodes (none: of all that have some and are not among `to`) move
    /// there at one time; the nodes leave (`release`), or are spares afterwards. Ranks that have
    /// not set out within so much time stay. Answered as `Drain`.
    Migrate {
        from: Vec<String>,
        to: Vec<String>,
        release: bool,
        deadline_ms: Option<u64>,
        number: u64,
    },
    /// Have all ranks stand still until `Continue`; answered by `Done` when they do. With `swap`
    /// their processes end, when there is an image of each, and come back from that.
    Suspend {
        swap: bool,
    },
    /// They go on.
    Continue,
    /// Have them stand still (not `runs`), or go on, as long as this connection stands and says so
    /// again within so much time; answered by `Done` when it is so.
    Turn {
        runs: bool,
        lease_ms: u64,
    },
    /// The machine of the controller is about to end; answered by `Done` if the job is being saved
    /// for that.
    Notice,
    /// These nodes, named as for `Drain`, are not to leave; answered by `Done`.
    Stay {
        nodes: Vec<String>,
    },
    /// Let nothing go between these clusters (`block`), or all again; answered by `Done` at once.
    Block {
        clusters: [String; 2],
        block: bool,
    },
    /// The generations of the job's vault; answered by `InVault` for each, then `Done`.
    Vault,
    /// Have the nodes read all that they have of them, at most so many bytes a second each (0:
    /// any), and make anew what is damaged if `write`; answered by `Checked` for each generation
    /// and node and `Inspected` for each image and node, then `Done`.
    Scrub {
        write: bool,
        rate: u64,
    },
}

/// From the daemon to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum NodeMsg {
    Hello {
        protocol: u32,
    },
    /// The console may send this many more bytes of standard input.
    StdinCredit(u32),
    /// Whole lines of a rank's output (a part of one only if it is the last, or very long).
    Output {
        rank: u32,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// A line for the user from the daemon itself.
    Say(String),
    Event(Box<Event>),
    /// Console: what `eyrie verify` found. `None`: it was broken off, and found nothing.
    Verdict {
        ok: Option<bool>,
        text: String,
    },
    /// Console: the job is over.
    Exit {
        code: i32,
    },
    Status(Box<JobStatus>),
    Checkpointed {
        rank: u32,
        generation: u32,
        bytes: u64,
        took_ms: f64,
        frozen_ms: f64,
    },
    CheckpointFailed {
        rank: u32,
        reason: String,
    },
    Done,
    Error(String),
    /// A node that was asked for is there.
    NodeJoined {
        node: u32,
    },
    NotJoined {
        node: u32,
        reason: String,
    },
    /// Console: so much of standard input is known here, and the console may go up to `limit`.
    StdinFrom {
        known: u64,
        limit: u64,
    },
    /// How far a node is that is to leave.
    Leaving(Box<Leaving>),
    /// Console: a controller elsewhere has the job now, and this one ends; the text says why.
    Deposed {
        text: String,
    },
    InVault(Box<Kept>),
    Checked(Checked),
    Inspected(Inspected),
}

/// A step of a node on its way out of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaveStep {
    /// Its ranks are copied while they run.
    Copying,
    /// They are brought to stand.
    Stopping,
    /// They come back elsewhere.
    Moving,
    /// They run; what else the node holds is copied.
    Emptying,
    /// Nothing of the job is there any more.
    Left,
    /// It has no ranks any more, and is a spare.
    Spare,
    /// It does not leave; the text says why.
    Stays,
    /// It was lost before it had left.
    Lost,
    /// Its time will not do, or is over; the text says what is done.
    Late,
}

impl LeaveStep {
    /// Nothing follows.
    pub fn is_last(self) -> bool {
        matches!(self, LeaveStep::Left | LeaveStep::Spare | LeaveStep::Stays | LeaveStep::Lost)
    }
}

/// How far a node is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leaving {
    pub node: u32,
    pub step: LeaveStep,
    /// Since it was asked to leave.
    pub took_ms: f64,
    pub text: String,
}
