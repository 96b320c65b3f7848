//! What happened in a job, and when: the lines of `eyrie events` and `eyrie run -v`.
//!
//! One flat record for all kinds, so that its JSON is stable and a reader needs no table of
//! shapes. A field that a kind does not use is `null`.

use serde::{Deserialize, Serialize};

/// What happened. The names are part of the JSON format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A process of a rank was started from the program's beginning.
    Started,
    /// A checkpoint is complete on disk.
    Checkpointed,
    /// A checkpoint did not come about; `text` says why.
    CheckpointFailed,
    /// A rank was killed on request (`eyrie inject`).
    Injected,
    /// A rank died by a signal.
    Detected,
    /// A stored image is damaged and was removed.
    ImageRefused,
    /// A rank cannot be brought back at `node` now, for what that lacks: `text`.
    Unfit,
    /// A rank runs again, from an image (`generation`) or from the beginning (generation 0).
    Restored,
    /// A rank re-executes what was recorded.
    Replaying,
    /// A rank has reproduced all that was recorded.
    CaughtUp,
    /// A replay differed from what was recorded.
    Diverged,
    /// All ranks go back together, to the beginning, to the set of checkpoints `generation`, or to
    /// the snapshot of that number.
    RolledBack,
    /// The job goes on without protection; `text` says why.
    Unprotected,
    /// A process of a rank ended by itself.
    Exited,
    /// The job is over; `count` is its exit code.
    Ended,
    /// A checkpoint begins: the rank is about to be stopped.
    Checkpointing,
    /// A node has joined the job.
    NodeJoined,
    /// A node is gone, with its ranks and all that it had stored; `text` says how that was noticed.
    NodeLost,
    /// The images of a rank are on another node again.
    Copied,
    /// An image of a rank is in the vault, in whose generation `count`.
    Vaulted,
    /// The job is saved as a whole, and can be restarted; `bytes`: what is stored besides images.
    Saved,
    /// A saved job goes on.
    Restarted,
    /// The controller died; a new one goes on by its journal.
    ControllerLost,
    /// All nodes that are left are with the new controller (`count` of them).
    ControllerBack,
    /// A set of checkpoints is in the job's folder, too, from which it can be restarted (`bytes`).
    Flushed,
    /// The gateway of a cluster is gone; `text` says which, and how that was noticed.
    GatewayLost,
    /// Another one is there.
    GatewayBack,
    /// A node is to leave.
    NodeLeaving,
    /// It has left: nothing of the job is there any more; `count` is its daemon's exit code.
    NodeLeft,
    /// It stays after all; `text` says why.
    NodeStays,
    /// All ranks stand still.
    Suspended,
    /// They go on.
    Resumed,
    /// A state of the job is in the object store (`bytes`).
    Stored,
    /// Its ranks have moved elsewhere, and it is a spare.
    NodeVacated,
    /// The process of a rank of a suspended job ends: its image holds its memory.
    SwappedOut,
    /// What a node has of the vault was found damaged, in `count` chunks; `text` says where, and
    /// what was made anew.
    Scrubbed,
    /// A rank that came back printed something else than before; what was printed stays.
    OutputDiffers,
    /// A node does not reach another one, with which its ranks have to speak; `text` says which,
    /// and why.
    LinkLost,
    /// It does again, or nobody wants it any more.
    LinkBack,
    /// All ranks have a checkpoint (`generation`) of one moment, to which they return together when
    /// they cannot be brought back alone.
    Snapshot,
    /// A rank came back, and a file is not as it was at its checkpoint: `text`.
    FileLeft,
    /// Ranks of `node`, which is lost or leaves, are to go to node `count`, as that costs least:
    /// `text` has what it costs there and elsewhere.
    Placed,
}

impl EventKind {
    /// The name as it stands in JSON and on the terminal.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::Checkpointed => "checkpointed",
            EventKind::CheckpointFailed => "checkpoint-failed",
            EventKind::Injected => "injected",
            EventKind::Detected => "detected",
            EventKind::ImageRefused => "image-refused",
            EventKind::Unfit => "unfit",
            EventKind::Restored => "restored",
            EventKind::Replaying => "replaying",
            EventKind::CaughtUp => "caught-up",
            EventKind::Diverged => "diverged",
            EventKind::RolledBack => "rolled-back",
            EventKind::Unprotected => "unprotected",
            EventKind::Exited => "exited",
            EventKind::Ended => "ended",
            EventKind::Checkpointing => "checkpointing",
            EventKind::NodeJoined => "node-joined",
            EventKind::NodeLost => "node-lost",
            EventKind::Saved => "saved",
            EventKind::Restarted => "restarted",
            EventKind::Copied => "copied",
            EventKind::Vaulted => "vaulted",
            EventKind::ControllerLost => "controller-lost",
            EventKind::ControllerBack => "controller-back",
            EventKind::Flushed => "flushed",
            EventKind::GatewayLost => "gateway-lost",
            EventKind::GatewayBack => "gateway-back",
            EventKind::NodeLeaving => "node-leaving",
            EventKind::NodeLeft => "node-left",
            EventKind::NodeStays => "node-stays",
            EventKind::Suspended => "suspended",
            EventKind::Resumed => "resumed",
            EventKind::Stored => "stored",
            EventKind::NodeVacated => "node-vacated",
            EventKind::SwappedOut => "swapped-out",
            EventKind::Scrubbed => "scrubbed",
            EventKind::OutputDiffers => "output-differs",
            EventKind::LinkLost => "link-lost",
            EventKind::LinkBack => "link-back",
            EventKind::Snapshot => "snapshot",
            EventKind::FileLeft => "file-left",
            EventKind::Placed => "placed",
        }
    }
}

/// How the text of `detected` ends for a rank that was ended because its recovery unit goes back.
pub const WITH_UNIT: &str = ", with its unit";

impl EventKind {
    /// Whether it is told of as it happens: something dies, is to die, or is back.
    pub fn is_told(self) -> bool {
        matches!(
            self,
            EventKind::Started
                | EventKind::Injected
                | EventKind::Detected
                | EventKind::NodeLost
                | EventKind::Restored
                | EventKind::Replaying
                | EventKind::CaughtUp
                | EventKind::RolledBack
                | EventKind::Exited
                | EventKind::Ended
                | EventKind::ControllerBack
        )
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds since the job started.
    pub ms: f64,
    pub event: EventKind,
    pub rank: Option<u32>,
    pub node: Option<u32>,
    pub generation: Option<u32>,
    /// How long it took, or how long after its cause it was noticed.
    pub took_ms: Option<f64>,
    /// Bytes written or read.
    pub bytes: Option<u64>,
    /// Events replayed, exit code: what the kind says.
    pub count: Option<u64>,
    pub text: String,
}

impl Event {
    pub fn new(ms: f64, event: EventKind) -> Self {
        Event {
            ms,
            event,
            rank: None,
            node: None,
            generation: None,
            took_ms: None,
            bytes: None,
            count: None,
            text: String::new(),
        }
    }
}
