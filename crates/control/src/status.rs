//! What `eyrie status` shows; its JSON form is documented in `docs/formats/control.md`.

use crate::gateway::ClusterStatus;
use serde::{Deserialize, Serialize};

/// A generation of the vault while it is being made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VaultRound {
    pub generation: u64,
    /// It brings back what lost nodes guarded.
    pub rebuild: bool,
    /// How many images.
    pub images: u32,
    /// What all nodes have sent of their parts of sums, and are about to.
    pub sent_bytes: u64,
    pub total_bytes: u64,
    /// Most that each node sends in a second; 0: no limit.
    pub rate_bytes: u64,
}

/// Images that count, and that the vault cannot guard as they are to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultUnguarded {
    /// How many images.
    pub images: u32,
    /// Rounds in a row that came to nothing.
    pub rounds: u32,
    /// Until the next one.
    pub next_ms: u64,
    pub why: String,
}

/// Passes over all that a job's nodes have of its vault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultScrub {
    /// From one to the next; null: only if somebody asks.
    pub every_ms: Option<u64>,
    /// One is under way.
    pub underway: bool,
    /// When the last one ended, and how long it took.
    pub ended_unix_ms: Option<u64>,
    pub took_ms: u64,
    /// Chunks that it found sound, or not; and of these those that were made anew, and that could
    /// not be had.
    pub sound: u64,
    pub damaged: u64,
    pub repaired: u64,
    pub lost: u64,
    /// What was found damaged, and made anew, since the job began here.
    pub damaged_so_far: u64,
    pub repaired_so_far: u64,
    /// Of the files of images: how many images, each on each of its nodes, the last pass found
    /// sound or damaged, and how many of these were fetched anew.
    #[serde(default)]
    pub images_sound: u64,
    #[serde(default)]
    pub images_damaged: u64,
    #[serde(default)]
    pub images_repaired: u64,
}

/// A whole job at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Version of this record.
    pub format: u32,
    pub job: String,
    pub name: Option<String>,
    pub program: String,
    pub args: Vec<String>,
    pub size: u32,
    pub ft: String,
    /// How images of a job over nodes are protected: a scheme of `--vault`.
    #[serde(default)]
    pub vault: Option<String>,
    /// Which encoder the newest generation was made with, and why.
    #[serde(default)]
    pub vault_encoder: Option<String>,
    /// The generation that is being made.
    #[serde(default)]
    pub vault_round: Option<VaultRound>,
    /// Images that count and cannot be brought into it again.
    #[serde(default)]
    pub vault_unguarded: Option<VaultUnguarded>,
    /// With parity: what is known of how sound it is.
    #[serde(default)]
    pub vault_scrub: Option<VaultScrub>,
    /// `running`, `stopping`, `rolling-back` or `ended`.
    pub phase: String,
    pub exit_code: Option<i32>,
    pub daemon_pid: u32,
    /// Number of the controller: 1, and one more for each that went on after the death of another.
    #[serde(default)]
    pub reign: u64,
    pub started_unix_ms: u64,
    pub uptime_ms: u64,
    pub checkpoint_every_ms: u64,
    /// How long a node has that is told to end.
    #[serde(default)]
    pub grace_ms: u64,
    /// Send log of each rank, in bytes.
    pub log_limit_bytes: u64,
    /// Connections between nodes, and to the controller, are encrypted.
    #[serde(default)]
    pub tls: bool,
    /// The set of checkpoints that lies in the job's folder, too (`--save-every`).
    #[serde(default)]
    pub saved_set: Option<SavedSet>,
    /// The snapshot that all ranks return to when they cannot be brought back alone
    /// (`--fallback-every`), and when the next one comes; none: there are none.
    #[serde(default)]
    pub fallback: Option<FallbackStatus>,
    /// Where the controller's state is kept (`--ha`).
    #[serde(default)]
    pub ha: Option<HaStatus>,
    /// False when a rank that dies now could not be recovered.
    pub protected: bool,
    pub unprotected_reason: Option<String>,
    pub recoveries: u64,
    pub rollbacks: u64,
    /// Ranks that came back and printed something else than before, each stream once a recovery.
    #[serde(default)]
    pub output_differences: u64,
    /// Connections closed because of malformed frames.
    pub malformed_frames: u64,
    /// States of it are brought there (`--save-to`).
    #[serde(default)]
    pub saved_to: Option<SavedTo>,
    /// How the newest state that was brought got there.
    #[serde(default)]
    pub saved_ways: Vec<SavedWay>,
    /// It stands still.
    #[serde(default)]
    pub suspended: Option<Suspension>,
    /// How long it has done so in all.
    #[serde(default)]
    pub suspended_ms: u64,
    pub ranks: Vec<RankStatus>,
    /// Empty if the daemon is the only node.
    pub nodes: Vec<NodeStatus>,
    /// Empty if there is but one.
    #[serde(default)]
    pub clusters: Vec<ClusterStatus>,
}

/// Where states of a job are besides its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTo {
    /// What `eyrie restart` takes.
    pub place: String,
    /// Since when the newest one is there, as far as this controller knows.
    pub unix_ms: Option<u64>,
    /// Why a newer one is not, for now.
    pub error: Option<String>,
    /// Images of what `saved_set` tells of are there only, all or some: the job's folder has their
    /// names.
    #[serde(default)]
    pub has_images: bool,
}

/// How what a node has was brought to where the newest state of the job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWay {
    pub node: u32,
    /// `store` or `folder`: the node did it by itself; `controller`: through that.
    pub way: String,
    /// Why the node could not.
    pub why: Option<String>,
}

/// A job that stands still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// For so long.
    pub for_ms: u64,
    /// `user` (`eyrie suspend`), `share` (it waits for its turn), or both.
    pub by: Vec<String>,
    /// Every rank stands.
    pub whole: bool,
    /// Their memory goes out (`eyrie suspend --swap`); with `whole`: it is out.
    #[serde(default)]
    pub swapped: bool,
}

/// A set of checkpoints that a job can be restarted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSet {
    pub set: u32,
    /// Since when it lies there.
    pub unix_ms: u64,
}

/// Snapshots of all ranks (`--fallback-every`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// Number of the newest one; null: there is none yet.
    pub checkpoint: Option<u32>,
    /// Of which moment it is.
    pub unix_ms: Option<u64>,
    /// How many there are.
    pub kept: u32,
    pub next: String,
}

/// A controller's state in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaStatus {
    pub place: String,
    /// Why what the controller decides waits at the time; null: it does not.
    pub away: Option<String>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub node: u32,
    /// `joining`, `live`, `spare`, `awaited` (it is not with the new controller yet) or `lost`.
    pub state: String,
    pub epoch: u64,
    /// The machine it is on; null: the controller's.
    pub host: Option<String>,
    /// Of its daemon, on its machine.
    pub pid: u32,
    /// Where other nodes reach it.
    pub address: Option<String>,
    pub ranks: Vec<u32>,
    /// It is a router, and logs the messages to these.
    pub routes: Option<Vec<u32>>,
    /// Bytes that it keeps for them.
    pub logged_bytes: u64,
    /// What its connections to other nodes of its cluster go over: `tcp`, or `libfabric:PROVIDER`.
    pub transport: Option<String>,
    /// Connections over libfabric so far, made by it and by others to it.
    pub libfabric_connections: u64,
    /// Of a router: how often it stopped what goes to a rank for a checkpoint of that, and for how
    /// long in all.
    pub pauses: u64,
    pub paused_ms: f64,
    /// Callers that it has turned away: of no job or another, of no time or the past; and
    /// connections that it ended for what came on them.
    pub strangers: u64,
    pub fenced: u64,
    pub malformed: u64,
    /// And images that moved without a key for that, or with one that was used before.
    #[serde(default)]
    pub uninvited: u64,
    /// Other nodes that it does not reach, though its ranks have to speak with theirs.
    #[serde(default)]
    pub unreached: Vec<UnreachedStatus>,
}

/// Another node that one does not reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachedStatus {
    pub node: u32,
    pub for_ms: u64,
    pub why: String,
}

/// One rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankStatus {
    pub rank: u32,
    /// Node that it has its home on.
    pub node: u32,
    /// Nodes that have its newest image.
    pub image_nodes: Vec<u32>,
    /// The vault's generation that protects it, if one does.
    #[serde(default)]
    pub vault_generation: Option<u64>,
    pub pid: Option<u32>,
    /// `starting`, `running`, `waiting`, `checkpointing`, `recovering`, `replaying`,
    /// `suspended`, `swapped-out`, `waits-for-log-space`, `finalized`, `exited` or `dead`.
    pub state: String,
    /// Processors that its first thread may run on, as a list; empty while there is no process.
    pub processors: String,
    pub incarnation: u32,
    pub recoveries: u64,
    /// The newest complete checkpoint.
    pub checkpoint: Option<CheckpointStatus>,
    /// Why the last attempt did not give a checkpoint; cleared by the next success.
    pub no_checkpoint_reason: Option<String>,
    /// Why it cannot be brought back for now, and where.
    #[serde(default)]
    pub not_back_reason: Option<String>,
    /// When the next one comes, and why then.
    pub next_checkpoint: String,
    pub log_used_bytes: u64,
    pub log_chunks: u64,
    /// Words in the determinant log that are still needed.
    pub determinant_words: u64,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    /// Those of them that a datagram brought, ahead of the links.
    #[serde(default)]
    pub messages_early: u64,
}

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    pub generation: u32,
    pub age_ms: u64,
    pub bytes: u64,
    /// Content that had not changed and was not written again.
    pub unchanged_bytes: u64,
    /// How changed pages are found: `write protection`, `page hashes` (and why) or `off`.
    pub tracking: String,
    /// How the content was kept from the freeze on: `copy`, `twin` or `synchronous`; and why so.
    pub mode: String,
    pub why: String,
    /// From the request to the complete file.
    pub took_ms: f64,
    /// How long the rank stood still.
    pub frozen_ms: f64,
    /// Processor time for storing it while the rank ran, and which part of that time no processor
    /// of the node was idle (0 to 1).
    #[serde(default)]
    pub cpu_ms: f64,
    #[serde(default)]
    pub busy: f64,
}

/// Version of `JobStatus`.
pub const STATUS_FORMAT: u32 = 2;
