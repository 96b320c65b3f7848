//! What the controller of a job and its nodes say to each other.
//!
//! The controller decides, a node carries out: it holds the processes of its ranks, their pipes,
//! the job segment and the images. Kept true: each side handles the messages of the other in the
//! order in which they were sent; what concerns a process bears the number of its start, so that a
//! message that crossed its end is known as late.

use crate::auth::Key;
use crate::cross_node_sockets::{MatchedEnd, Rejoin, Rejoined, SocketEnd};
use crate::job::JobSpec;
use crate::message::{Sent, Stream};
use crate::meta::Meta;
use crate::second_level::Delivered;
use crate::vault::{Inspection, Report, VaultOrder, VaultStep, Vaulted};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The number of a job's first controller.
pub const FIRST_TERM: u64 = 1;
/// Bytes of output a node sends ahead of the controller's `OutputTaken`.
pub const OUTPUT_WINDOW_BYTES: u64 = 1 << 20;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    Exit(i32),
    Signal(i32),
}

/// What a rank's control block said last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// Not between init and finalize.
    Nothing,
    /// Between init and finalize.
    Running,
    /// `MPI_Abort`.
    Aborted { code: i32, text: String },
    /// A replay did not reproduce what was recorded.
    Diverged { text: String },
}

/// The newest output of a rank: position of its first byte, and the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub first: u64,
    pub bytes: Vec<u8>,
}

/// What a node daemon reads from its standard input, as one frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enlist {
    pub job: String,
    pub node: u32,
    /// Grows with every start of a node in the job.
    pub epoch: u64,
    pub key: [u8; 32],
    /// Its own storage; removed at its end unless it is to be kept.
    pub folder: Vec<u8>,
    /// The folder around it goes with it.
    pub lodged: bool,
    pub controller: SocketAddr,
    /// The gateway that it reaches the controller through, if it does: which start of one, and
    /// where.
    pub gateway: Option<(u64, SocketAddr)>,
    pub spec: JobSpec,
    /// What it stores is encrypted with this.
    pub at_rest: Option<Key>,
}

/// What `eyrie __host` reads from its standard input, behind a frame that holds `PROTOCOL`. The
/// input stays open as long as the node is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lodge {
    /// For the node's daemon; the folder is found there.
    pub enlist: Enlist,
    pub working_folder: Vec<u8>,
    /// Names and values that the host's own do not stand against.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A daemon on this machine, as another controller can find it. Its bytes are in journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonRecord {
    pub node: u32,
    pub pid: i32,
    pub born: u64,
    /// That it was started with.
    pub epoch: u64,
}

/// A live node, as the others reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub node: u32,
    pub epoch: u64,
    pub link: SocketAddr,
    pub store: SocketAddr,
}

/// Determinants of a rank: position of the first word, and the words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Determinants {
    pub rank: u32,
    pub first: u64,
    pub words: Vec<u64>,
}

/// How a node of several comes to an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Generations whose files it needs, its own among them.
    pub files: Vec<u32>,
    /// The node that has what is not here, or cannot be used.
    pub from: Option<u32>,
    /// Whether its log is needed, too.
    pub log: bool,
    /// If `from` is the vault: where that has the files.
    pub vault: Vec<Vaulted>,
}

/// One rank of a set of checkpoints: the number of its start, the node that its image is copied to
/// (none: there is no other), the generations whose files that one lacks, and the key that it has
/// been given if the image is to go there while it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPart {
    pub rank: u32,
    pub start: u64,
    pub partner: Option<u32>,
    pub missing: Vec<u32>,
    pub key: Option<[u8; 32]>,
}

/// A checkpoint of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointOrder {
    pub rank: u32,
    pub start: u64,
    pub generation: u32,
    pub incremental: bool,
    /// A copy is for this node ...
    pub partner: Option<u32>,
    /// ... which lacks the files of these generations.
    pub missing: Vec<u32>,
    /// The rank stays stopped if its image comes about.
    pub hold: bool,
    /// The partner has been given it by `Invite`: the image goes there while it is written.
    pub key: Option<[u8; 32]>,
}

/// From the controller to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// Start a process for the rank: from its image `from.generation`, or from the beginning (0).
    /// If it comes from another node, `moved` are its determinants, and its log lies beside the
    /// image.
    Start { rank: u32, start: u64, from: Box<Meta>, moved: Option<Box<Determinants>> },
    /// Clear away what the dead process of the rank left, and find the best of these images.
    /// Answered by `Found`, more than once if images are refused.
    Find { rank: u32, attempt: u64, generations: Vec<u32>, fetch: Option<Fetch> },
    /// Answered by `CheckpointOver`.
    Checkpoint(CheckpointOrder),
    /// Let this image of the rank in while it is written, once, by this key.
    Invite { rank: u32, generation: u32, key: [u8; 32] },
    /// To the router of a rank: send nothing more to it. Answered by `Paused` when what was sent is
    /// there.
    Pause { rank: u32, generation: u32 },
    /// That checkpoint is over.
    Resume { rank: u32, generation: u32 },
    /// Copy these images of the rank to another node: the last, and what it needs. Answered by
    /// `Copied`.
    Copy { rank: u32, generations: Vec<u32>, to: u32 },
    /// Of the vault that keeps images.
    Vault(VaultOrder),
    /// The live nodes. Who is not among them any more is fenced.
    Members { members: Vec<Peer> },
    /// The node that each rank has its home on.
    Homes { homes: Vec<u32> },
    /// Which determinants of these ranks are held here? Answered by `Held`.
    Held { ask: u64, ranks: Vec<u32> },
    /// Nothing; the connection stands, and the controller bears so long a silence: the node may
    /// bear a quarter more, from the last stamp of its own on that came.
    Beat { timeout_ms: u64, stamp_ms: Option<u64> },
    /// No kept checkpoint of the rank needs what lies before these positions.
    Trim { rank: u32, need: Vec<u64>, det_pos: u64 },
    /// The rank has ended: nobody reads the channels to it any more.
    Release { rank: u32 },
    /// No image that is begun from now on may refer to these.
    Withdraw { rank: u32, generations: Vec<u32> },
    /// These images of the rank are not needed any more.
    Remove { rank: u32, generations: Vec<u32> },
    /// Pass a signal to all ranks.
    Signal { signal: i32 },
    /// Kill these ranks' own processes.
    Kill { ranks: Vec<u32> },
    /// Standard input of rank 0.
    Input { start: u64, bytes: Vec<u8> },
    /// It ends behind the bytes that were sent.
    InputOver { start: u64 },
    /// So many bytes of output were taken.
    OutputTaken { bytes: u64 },
    /// The job goes on without protection.
    Unprotect,
    /// Nothing of what the ranks did counts any more: forget processes, segment and images. The
    /// node is a member with this epoch from now on. `all`: so do all nodes, as all ranks go back.
    Renew { epoch: u64, all: bool },
    /// How are the ranks, and (`targets`) to whom have they sent? Answered by `Looks`.
    Look { ask: u64, targets: bool },
    /// Write the log of a rank that has ended, from these positions on. Answered by `Saved`.
    SaveLog { rank: u32, need: Vec<u64>, det_pos: u64, output: [Written; 2] },
    /// Checkpoint these ranks (each with the number of its start) while all of them stand still,
    /// and write what they need of the segment to the file `segment` beside the images. With `hold`
    /// they stay stopped. With `--ft logged` without what was received already. Answered by
    /// `CheckpointOver` for each, and `SegmentSaved`.
    CheckpointAll {
        ranks: Vec<(u32, u64)>,
        generation: u32,
        incremental: bool,
        hold: bool,
        segment: String,
    },
    /// Over nodes: bring these ranks to stand and copy what they have sent, say so (`Stands`), and
    /// wait for `GoOn`. With `hold` they stay stopped then. Answered by `CheckpointOver` for each.
    /// With `--ft node` they are one unit, and go on at once; `Stands` tells of a failure only.
    /// With `--ft cluster` they are those of one unit that are here.
    CheckpointSet { parts: Vec<SetPart>, generation: u32, incremental: bool, hold: bool },
    /// The ranks of that set stand everywhere: they are kept and go on. Or they go on without
    /// (not `keep`).
    GoOn { generation: u32, keep: bool },
    /// The ranks of that set stand everywhere: read what has come over these connections of theirs.
    /// Answered by `HasRead`.
    ReadFar { generation: u32, joints: Vec<MatchedEnd> },
    /// The sockets of ranks that come back together.
    Rejoin(Rejoin),
    /// No process is left: forget all that the ranks did since this file of the segment was
    /// written. Answered by `Reloaded`.
    Reload { segment: String },
    /// Write what the ranks, of which none runs, need of the segment to this file beside the
    /// images. Answered by `SegmentSaved`.
    SaveSegment { name: String },
    /// The controller takes and gives images, and what is said to belong to them, here.
    Archive { at: SocketAddr },
    /// Bring these images of the rank, of which no process is left, to the archive: the last, and
    /// what it needs. Answered by `Deposited`, with the same number.
    Deposit { attempt: u32, rank: u32, generations: Vec<u32> },
    /// The ways past the controller that there are for what is deposited with this number: sealed
    /// with a key that is made of the job's, as keys of an object store are in it. No record of it
    /// is kept.
    Ways { attempt: u32, sealed: Vec<u8> },
    /// What is being deposited is not wanted any more.
    EndDeposits,
    /// `eyrie verify`: keep the record of the run that is over, and prepare the one that is forced
    /// to its outcomes, with messages delayed and hastened by this seed. Answered by `Forced`.
    Force { seed: u32 },
    /// `eyrie verify`: compare the runs. Answered by `Judged`.
    Judge,
    /// End all processes. Answered by `Finished`.
    Finish,
    /// The node is no member of the job any more, and ends.
    Dismissed,
    /// Stop these ranks (in these starts), tell what is recorded of them (`Cut`), and let them
    /// stand until `CutOver`, but not for long. Answered by `CutOver` with the same number.
    Cut { attempt: u32, ranks: Vec<(u32, u64)> },
    /// All ranks of all nodes stood still, or will not: they go on.
    CutOver { attempt: u32 },
    /// These ranks, which are one recovery unit and of which none runs, come back, some of them at
    /// this node: what they passed each other there is given up. They did so `life` times by now.
    Gather { ranks: Vec<u32>, life: u32 },
    /// The cluster of each node, and where the gateway of this one's is, if it is there.
    Clusters { of: Vec<u32>, gateway: Option<SocketAddr> },
    /// These nodes leave. Answered by `Guarded` when all that is recorded here by now is held by
    /// nodes that stay.
    Leaving { round: u64, nodes: Vec<u32> },
    /// A rank that was held goes on.
    LetGo { rank: u32 },
    /// Let a rank run one part in so many of the time (1: all of it).
    Slow { rank: u32, part: u32 },
    /// The ranks here are held and come back elsewhere: end all processes. Answered by `Vacated`.
    Vacate,
    /// Nothing hangs on this node any more: it ends, and nothing of the job stays. Answered by
    /// `Finished`.
    Depart,
    /// The ranks here stand still until `EndHalt`, also those that are started meanwhile. Answered
    /// by `Halted` with the same number.
    Halt { turn: u64 },
    /// They go on.
    EndHalt,
    /// `Inspected` follows for each image, unless a later pass is ordered.
    Inspect(Inspection),
    /// What each node fails together with, also such as are to join.
    Domains { names: Vec<String> },
    /// This controller does not know what nodes encrypt with. Answered by `AtRest`.
    TellAtRest,
    /// The rank, of which no process is left here, comes back elsewhere: what is recorded of it
    /// here is among what `Held` tells from now on, until it starts here again.
    Yield { rank: u32 },
    /// The rank is lost and not brought back: those here are told (`--on-failure report`).
    Failed { rank: u32 },
    /// How ranks come back from now on, as some are to have memory in common: as this job's would,
    /// whose units are counted by its homes. None runs here; `Renew` or `Reload` follows where they
    /// ran.
    Units { spec: Box<JobSpec> },
}

impl ToNode {
    /// Whether it matters at the moment only: it may be lost with the connection.
    pub fn is_fleeting(&self) -> bool {
        matches!(
            self,
            ToNode::Beat { .. }
                | ToNode::Look { .. }
                | ToNode::Dismissed
                | ToNode::Ways { .. }
                | ToNode::EndDeposits
        )
    }
}

/// How a checkpoint came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CheckpointResult {
    Taken(Box<Taken>),
    /// `lasting`: a later attempt would fail for the same reason.
    Failed {
        text: String,
        lasting: bool,
    },
    /// The node that was to have a copy is lost, or seems to be: that is told of, and the next
    /// checkpoint goes to another one.
    NoPartner(String),
    /// The rank died; its recovery is on the way and needs no report.
    Died,
}

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    pub meta: Meta,
    pub bytes: u64,
    /// Content that had not changed and was not written again.
    pub unchanged_bytes: u64,
    /// Content that lies in images of other ranks.
    pub shared_bytes: u64,
    /// How changed pages are found, and why so if it is not the best way.
    pub tracking: String,
    /// How the content was kept from the freeze on, and why so.
    pub mode: String,
    pub why: String,
    pub took_ms: f64,
    pub frozen_ms: f64,
    /// Processor time for storing it while the rank ran, and which part of that time no processor
    /// of the node was idle (0 to 1).
    pub cpu_ms: f64,
    pub busy: f64,
    /// It was stored while the rank stood still.
    pub is_synchronous: bool,
    /// Generations whose image files this one needs.
    pub needs: Vec<u32>,
    /// The files of other ranks that it needs: rank and generation.
    pub borrows: Vec<(u32, u32)>,
}

/// What the checking of a rank's images found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// No image is left, but the program's beginning is good.
    Beginning,
    Image(Box<Meta>),
    /// This one is damaged; the next is being looked at.
    Refused {
        generation: u32,
        why: String,
        /// It is what was fetched from elsewhere.
        fetched: bool,
    },
    /// None is left, and the logs no longer reach back to the beginning.
    Nothing,
    /// It cannot be had here now, and nothing is known against it.
    Unfit(String),
    /// It is right, but a file that its process has open or mapped is not here, or is another.
    Lacks {
        generation: u32,
        why: String,
    },
    /// So many processes of the dead incarnation cannot be killed.
    Left(u64),
}

/// Why a process could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Its image is not right.
    Image,
    /// Its node lacks something.
    Place,
    /// A file that it needs is not there, is another, or is locked by somebody else: it may be so
    /// elsewhere, too.
    Files,
    /// It may be either: the same may happen elsewhere, or not.
    Unknown,
}

/// A rank as its node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLook {
    pub rank: u32,
    pub pid: Option<u32>,
    /// What the process does, if there is one: a state of `RankStatus`.
    pub state: String,
    /// Processors that its first thread may run on, as a list.
    pub processors: String,
    pub incarnation: u32,
    pub log_chunks: u64,
    pub determinant_words: u64,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub messages_early: u64,
    /// Memory of its own that it has, with its child processes.
    pub resident_bytes: u64,
    /// Of a process that has ended: messages and bytes that the rank has sent to each rank, or
    /// group of ranks (of more than 64).
    pub sent: Vec<(u64, u64)>,
    /// To which ranks it has sent most from this node, by number: at most `MOST_TARGETS`. Empty,
    /// if that was not asked for.
    pub targets: Vec<Sent>,
    /// There are others, to which it has sent less.
    pub more_targets: bool,
}

/// What is held of the ranks that were asked for: a message for each, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeterminantsHeld {
    pub ask: u64,
    /// Node and epoch of those of which it holds all that anything depends on; in the last.
    pub in_step: Vec<(u32, u64)>,
    pub held: Vec<Determinants>,
    /// Another one follows.
    pub partly: bool,
}

/// Callers of a node that were turned away, and connections that it ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// They do not belong to the job, or do not say so.
    pub strangers: u64,
    /// An incarnation that is no member any more.
    pub fenced: u64,
    /// What no correct node sends.
    pub malformed: u64,
    /// Images that were to come without a key for that, or with one that was used before.
    pub uninvited: u64,
}

/// How a node itself is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLook {
    pub refused: Refusals,
    /// Of a router: bytes that it keeps.
    pub logged_bytes: u64,
    /// What its connections go over, and how many have gone over libfabric so far.
    pub transport: String,
    pub piped: u64,
    /// How often it stopped what goes to a rank for a checkpoint, and for how long in all.
    pub pauses: u64,
    pub paused_us: u64,
    /// Memory that more ranks could have on its machine; and what is left to this node, if it has a
    /// limit of its own.
    pub available_bytes: Option<u64>,
    pub left_bytes: Option<u64>,
}

impl Refusals {
    pub fn total(&self) -> u64 {
        self.strangers + self.fenced + self.malformed + self.uninvited
    }
}

/// Why images were not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCopied {
    /// The newest of them is damaged where it was to be copied from, and removed there.
    pub damaged: bool,
    pub text: String,
}

/// The comparison of two runs in `eyrie verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The first difference between messages or outcomes.
    pub difference: Option<String>,
    /// A rank did not use all recorded outcomes.
    pub unused: Option<String>,
    pub messages: u64,
    pub channels: u64,
    pub events: u64,
}

/// From a node to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromNode {
    Started {
        rank: u32,
        start: u64,
        pid: u32,
        /// Files that are not as they were at its checkpoint, in words.
        files: Vec<String>,
    },
    NotStarted {
        rank: u32,
        start: u64,
        why: (Fault, String),
    },
    Found {
        rank: u32,
        attempt: u64,
        choice: Choice,
    },
    /// All that the process wrote before came before this.
    Ended {
        rank: u32,
        start: u64,
        death: Death,
        /// Why, where the kernel tells: for people.
        cause: Option<String>,
        said: Said,
        /// Moves when the rank gets on in messages.
        progress: u64,
        look: Box<RankLook>,
    },
    Output {
        rank: u32,
        start: u64,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// Position up to which standard input was fed.
    InputFed {
        start: u64,
        position: u64,
    },
    /// A live rank's control block says that it cannot go on.
    Said {
        rank: u32,
        start: u64,
        said: Said,
    },
    /// It re-executes what was recorded.
    Replaying {
        rank: u32,
        start: u64,
    },
    CaughtUp {
        rank: u32,
        start: u64,
        count: u64,
    },
    /// The rank waits for log space; checkpoints of these would free some, the first most.
    Pressed {
        rank: u32,
        start: u64,
        relief: Vec<u32>,
    },
    CheckpointOver {
        rank: u32,
        start: u64,
        generation: u32,
        result: CheckpointResult,
    },
    /// Nothing is on its way from this router to the rank any more.
    Paused {
        rank: u32,
        generation: u32,
    },
    /// All ranks here of a set stand, and what they have sent is copied; or that failed. With the
    /// ends of connections of their own that lead out of this node.
    Stands {
        generation: u32,
        result: Result<Vec<SocketEnd>, String>,
        /// Of ranks that else have their checkpoints alone: how far each has sent to each other.
        sent: Vec<(u32, Vec<u64>)>,
    },
    HasRead {
        generation: u32,
        result: Result<(), String>,
    },
    Rejoined {
        generation: u32,
        turn: u64,
        result: Result<Rejoined, String>,
    },
    Looks {
        ask: u64,
        ranks: Vec<RankLook>,
        own: NodeLook,
    },
    Saved {
        rank: u32,
        error: Option<String>,
    },
    /// The length of that file, or why there is none.
    SegmentSaved {
        name: String,
        result: Result<u64, String>,
    },
    Reloaded {
        segment: String,
        result: Result<(), String>,
    },
    /// With all that was recorded of the rank.
    Deposited {
        attempt: u32,
        rank: u32,
        result: Result<Box<Delivered>, String>,
    },
    Forced {
        error: Option<String>,
    },
    Judged(Box<Judgement>),
    /// The forced run waits for what does not come.
    Stuck {
        text: String,
    },
    /// The node cannot go on.
    Failed {
        text: String,
    },
    /// Something that the user is to know of the ranks here, told once in a job.
    Tells {
        text: String,
    },
    /// The first message of a node daemon, and the answer to `Renew`.
    Joined {
        /// The daemon's, on its machine.
        pid: u32,
        link: SocketAddr,
        store: SocketAddr,
    },
    Held(DeterminantsHeld),
    Copied {
        rank: u32,
        generations: Vec<u32>,
        to: u32,
        error: Option<NotCopied>,
    },
    /// Of the vault: how it stands with a generation.
    Vault {
        generation: u64,
        step: VaultStep,
    },
    /// Nothing; the node lives, would bear so long a silence by what it is used to, and says this
    /// so long after the connection's beginning.
    Beat {
        timeout_ms: u64,
        stamp_ms: Option<u64>,
    },
    /// So many processes are left that cannot be killed.
    Finished {
        left: u64,
    },
    /// The ranks named in `Cut` stand, and this is recorded of them: a message for each, of which
    /// all but the last are `partly`.
    Cut {
        attempt: u32,
        result: Result<Vec<Determinants>, String>,
        partly: bool,
    },
    /// They go on. `whole`: they stood until that was ordered.
    CutOver {
        attempt: u32,
        whole: bool,
    },
    /// Nothing that is recorded here up to `Leaving` of this round is lost with nodes that leave.
    Guarded {
        round: u64,
    },
    /// The same after `Vacate`.
    Vacated {
        left: u64,
    },
    /// The node is told to end, and will.
    Notice,
    /// The ranks here stand still, but for these, which cannot be stopped for now.
    Halted {
        turn: u64,
        restless: Vec<(u32, String)>,
    },
    /// What a pass found of an image here.
    Inspected(Report),
    /// A connection from here to another node is wanted and does not come about, or does again.
    Unreached(Unreached),
    /// What this job's nodes encrypt with.
    AtRest(Key),
    /// A rank here has handled so many lost ranks.
    Handled {
        failures: u32,
    },
    /// A program of this rank is a job of its own, as another one was the rank.
    Beside {
        rank: u32,
        programs: Beside,
    },
    /// It is to have memory in common with this other rank, though each comes back without the
    /// other, and waits until they are one recovery unit.
    Shares {
        rank: u32,
        start: u64,
        peer: u32,
    },
}

/// Two programs of a rank at once. Of each: a hash of its file's name, and of its words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// The one that is the rank.
    pub rank: [u32; 2],
    /// The one that is a job of its own, and what it is called.
    pub alone: [u32; 2],
    pub name: String,
}

impl Beside {
    /// Whether the same two programs are the other way round on another rank: which of them comes
    /// first is chance.
    pub fn is_crossed_by(&self, other: &Beside) -> bool {
        // Words may name a process or a folder; they count where names do not tell.
        let told = if self.rank[0] == self.alone[0] { 2 } else { 1 };
        self.rank[..told] != self.alone[..told]
            && self.rank[..told] == other.alone[..told]
            && self.alone[..told] == other.rank[..told]
    }
}

/// Another node that one does not reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    /// Its own epoch.
    pub epoch: u64,
    /// The other one, its epoch, and where it was called.
    pub to: (u32, u64),
    pub address: Option<SocketAddr>,
    /// For how long it has been so; none: it is over.
    pub for_ms: Option<u64>,
    pub why: String,
}

impl FromNode {
    /// Whether it matters at the moment only: it may be lost with the connection.
    pub fn is_fleeting(&self) -> bool {
        matches!(
            self,
            FromNode::Beat { .. }
                | FromNode::Looks { .. }
                | FromNode::Pressed { .. }
                | FromNode::Unreached(_)
        )
    }
}
