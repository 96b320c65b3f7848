//! The messages themselves.
//!
//! Every connection begins with `Hello` from both sides; versions must be equal, as daemon and
//! CLI are one binary. The console (the connection of `eyrie run`) then sends `Start`, and the job
//! lives as long as that connection. All other connections ask one thing and close.

use crate::event::Event;
use crate::gateway::Outer;
use crate::job::JobSpec;
use crate::status::JobStatus;
use crate::vault::{Checked, Inspected, Kept};
use clap::ValueEnum;
pub use eyrie_protocol::scheduler::Policy as CheckpointPolicy;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Version of this protocol.
pub const PROTOCOL: u32 = 29;
/// Most bytes of standard input or output in one message.
pub const MAX_DATA_BYTES: usize = 256 * 1024;

/// Whether an image refers to those of other ranks for what these hold too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Dedup {
    /// Where a sample of its pages says that a tenth of the checkpoint is saved
    Auto,
    /// Wherever 64 KiB are the same
    On,
    /// Never: no rank needs files of another
    Off,
}

/// How a rank's memory is kept until it is in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Freeze {
    /// Copy or twin, whichever the rank stands still for the shorter time
    Auto,
    /// Pages that have changed are copied, up to 48 MiB of them
    Copy,
    /// A copy-on-write twin of the process holds them
    Twin,
    /// Not at all: the rank stands still until everything is stored
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

/// What becomes of files that are not as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Files {
    /// Put back where the checkpoint has what they held and nobody else writes to them; the others
    /// are named
    Auto,
    /// Left as they are, and named
    Warn,
    /// The rank does not come back from that checkpoint, and nothing is changed
    Refuse,
    /// Put back; if one cannot be, the rank does not come back from that checkpoint
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Orphans {
    /// There is none as long as they live, and it is said which they are
    Refuse,
    /// They are left out: they live on, and are killed before the rank comes back, which finds
    /// itself without them
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Appended {
    /// Cut off where the kernel says that nobody else has the file open for writing; it does not
    /// on NFS, Lustre and most of FUSE
    Auto,
    /// Cut off: no other process writes to files that a rank appends to
    Cut,
    /// Left there
    Keep,
}

/// Whether what clocks give is an outcome like others, and what else the C library says of the
/// process and its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Wtime {
    /// Recorded in programs that ask for at most MPI_THREAD_FUNNELED, and in Python while it has
    /// one thread
    Auto,
    /// Also in others: what their main thread asks for, while which no other may call MPI
    Logged,
    /// As auto, but only of MPI_Wtime: for programs that ask other clocks as often as threads,
    /// signals or processes have it
    Mpi,
    /// Not recorded: for programs that ask as often as threads or signals have it
    Plain,
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
    /// How much each rank has sent to each; answered by `Sent` for each rank, then `Done`.
    Traffic,
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
    /// What a rank has sent so far to those that it has sent most; all: there are no others.
    Sent {
        rank: u32,
        to: Vec<Sent>,
        all: bool,
    },
}

/// What a rank has sent to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub to: u32,
    pub messages: u64,
    pub bytes: u64,
}

/// Of no rank it is told to how many more it has sent something.
pub const MOST_TARGETS: usize = 128;

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
