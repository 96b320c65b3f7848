//! What travels between the parts of the simulated job.

use crate::program::{Channel, State};
use eyrie_protocol::gate::ToReplica;
use eyrie_protocol::membership::Member;
use eyrie_protocol::replicas::Words;
use eyrie_protocol::retention::Point;
use eyrie_protocol::session::Numbered;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Virtual time in microseconds.
pub type Time = u64;

/// How many outcomes of each rank something depends on. Not part of the protocols: the checks' own.
pub type Depends = Rc<Vec<u64>>;

/// A message of the program.
#[derive(Debug, Clone)]
pub struct Message {
    pub payload: u64,
    pub depends: Depends,
}

/// A checkpoint image with the log that belongs to it.
#[derive(Debug, Clone)]
pub struct Image {
    pub incarnation: u32,
    pub state: State,
    pub depends: Depends,
    /// Where the rank stood in its determinants, and the run of fruitless polls that was open.
    pub cursor: u64,
    pub run: Option<(u64, u64)>,
    /// Its own streams, as far as they were not trimmed.
    pub log: Vec<(Channel, BTreeMap<u64, Message>)>,
}

impl Image {
    pub fn point(&self) -> Point {
        Point {
            need: self.state.received.clone(),
            det_pos: self.run.map_or(self.cursor, |(at, _)| at.min(self.cursor)),
            output: [self.state.printed, 0],
        }
    }
}

/// A rank to be brought back.
#[derive(Debug, Clone)]
pub struct RestoreOrder {
    pub rank: u32,
    pub incarnation: u32,
    pub generation: u32,
    pub from: Option<Member>,
    pub words: Option<Words>,
    /// It may be started; else its node says first that its image is there.
    pub told: bool,
}

/// Why a node that was told to bring a rank back cannot have it for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stumble {
    /// The image does not come there.
    NoImage,
    /// All is there, and its process cannot be started.
    NoStart,
}

/// What a node brought into the vault.
pub type Encoded = Vec<(u32, u32, Rc<Image>)>;

/// From a node to the controller, as the models say it; what it is told is made of that.
#[derive(Debug, Clone)]
pub enum FromNode {
    Restored {
        rank: u32,
        incarnation: u32,
    },
    ImageBad {
        rank: u32,
        incarnation: u32,
        generation: u32,
        at: Member,
    },
    /// What the rank is to be brought back from is there.
    Found {
        rank: u32,
        image: u32,
        incarnation: u32,
    },
    Stored {
        rank: u32,
        generation: u32,
        image: Rc<Image>,
        partner: Option<Member>,
    },
    NotCopied {
        rank: u32,
        generation: u32,
        to: Member,
    },
    NoCheckpoint {
        rank: u32,
    },
    /// Nothing is on its way from this router to the rank.
    Paused {
        rank: u32,
        generation: u32,
    },
    /// The ranks of a unit that are there stand for a snapshot.
    SnapshotStands {
        unit: u32,
        generation: u32,
    },
    RankDone {
        rank: u32,
        incarnation: u32,
        hash: u64,
        depends: Depends,
    },
    Output {
        rank: u32,
        incarnation: u32,
        index: u64,
        line: u64,
        depends: Depends,
    },
    Down,
    Guarded {
        round: u64,
    },
    /// All ranks stand still by this order.
    Suspended {
        turn: u64,
    },
    /// Something that is told as it is.
    Real(Box<crate::real::Told>),
}

/// Between two nodes.
#[derive(Debug, Clone)]
pub enum PeerMsg {
    /// There is something in the channels from this rank, or will be: from where on? `inner`: in
    /// those within its unit, else in the others.
    Open {
        from: u32,
        inner: bool,
    },
    /// From here on a node wants a channel's messages. `life`: how often the receiver's unit went
    /// back, as far as the node has heard.
    Have {
        channel: Channel,
        position: u64,
        life: u32,
    },
    Data {
        channel: Channel,
        position: u64,
        message: Message,
    },
    /// So many messages of a channel were received by the program.
    Taken {
        channel: Channel,
        upto: u64,
    },
    Determinants(ToReplica),
    Held(u64),
    Want {
        rank: u32,
        generation: u32,
    },
    File {
        rank: u32,
        generation: u32,
        image: Option<Rc<Image>>,
        /// Its node tells the controller of it, when the receiver has it.
        taken: bool,
    },
    Kept {
        rank: u32,
        generation: u32,
    },
    /// From a router: nothing more comes to the rank.
    Mark {
        rank: u32,
        generation: u32,
    },
    /// All that came before the mark is there.
    Marked {
        rank: u32,
        generation: u32,
    },
    /// The rank goes on.
    GoOn {
        rank: u32,
        generation: u32,
    },
}

/// Anything on a connection.
#[derive(Debug, Clone)]
pub enum Packet {
    ToNode(Numbered<eyrie_control::ToNode>),
    FromNode(Numbered<FromNode>),
    Peer(PeerMsg),
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    Controller,
    Node(Member),
}

/// What is going to happen.
#[derive(Debug, Clone)]
pub enum Event {
    /// A rank's process does its next operation.
    Step {
        at: Member,
        rank: u32,
        incarnation: u32,
    },
    /// The first packet of a connection arrives at one side.
    Arrive {
        conn: usize,
        side: usize,
    },
    /// One side notices that a connection is gone.
    Closed {
        conn: usize,
        side: usize,
    },
    /// A node's daemon looks at what may be sent.
    Pump {
        at: Member,
    },
    Connect {
        from: Member,
        to: Member,
    },
    /// An image was written.
    Written {
        at: Member,
        rank: u32,
        generation: u32,
        image: Rc<Image>,
    },
    /// A node has brought into the vault what it was to.
    Encoded {
        at: Member,
        round: u64,
        images: Encoded,
    },
    /// An image is read out of the vault.
    Unvault {
        at: Member,
        rank: u32,
        generation: u32,
    },
    /// A rank comes to stand for a snapshot.
    Stand {
        at: Member,
        rank: u32,
        generation: u32,
    },
    /// A node without a controller calls.
    Call {
        member: Member,
    },
    /// A rank has come to stand by this order.
    Suspended {
        at: Member,
        rank: u32,
        turn: u64,
    },
    /// What is on a connection gets through again.
    Heal {
        conn: usize,
    },
    /// Somebody who takes part in a checkpoint of a rank with a router dies.
    Strike {
        rank: u32,
    },
    /// Something of the run.
    Real(crate::real::Happens),
}

/// What is broken on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Which ranks are units from now on is not in the journal.
    UnitsUnwritten,
    /// Ranks stand for a snapshot that repeat themselves.
    StandsBehind,
    /// Nothing waits for determinants to be replicated.
    OpenGate,
    /// Growing runs of fruitless polls are not news for the gate.
    RunsUnnoticed,
    /// A recovered rank starts before its determinants are replicated again, and they never are.
    NoWriteBack,
    /// Not the longest but the shortest answer is taken.
    ShortestAnswer,
    /// The first part of an answer is taken for the whole.
    PartForWhole,
    /// It is not checked whether somebody holds all that matters.
    NoGuarantor,
    /// Dead nodes are still listened to.
    NoFence,
    /// Logs are trimmed as soon as an image is ordered.
    TrimBeforeDurable,
    /// Logs are trimmed by the newest image instead of the older one that is kept.
    TrimByNewest,
    /// What a restored rank sends again is not put into its log again.
    SuppressWithoutRelog,
    /// An image does not contain the rank's send log.
    NoLogInImage,
    /// A second copy of a message is taken for the next one.
    DuplicatesTaken,
    /// A sender keeps the position of a receiver's earlier incarnation.
    KeptWatermark,
    /// What a restored rank prints again is printed again.
    PrintedAgain,
    /// A rank that ended well is not run again when its node dies.
    DoneForgotten,
    /// An image counts with its first copy.
    OneCopyCounts,
    /// Logs are never trimmed.
    NeverTrim,
    /// An image that is complete only after its rank was restored from an older one counts.
    LateImages,
    /// What the controller decides has effects before it is written down.
    EffectsUnwritten,
    /// A new controller does not repeat what nodes have not confirmed.
    OrdersForgotten,
    /// An image counts when it is on its way into the vault.
    VaultedEarly,
    /// What a loss left of the nodes that guard an image counts as if it were all of them.
    LeftThin,
    /// A rank of a unit goes on before all others of it stand.
    OneGoesOn,
    /// What ranks of a unit have on their way to each other is not in the snapshot.
    InnerNotInSnapshot,
    /// What a rank sends within its unit is given up before it is received.
    InnerGivenEarly,
    /// Only the rank that died goes back, not its unit.
    OnlyTheDead,
    /// The image of one rank of a unit counts without those of the others.
    PartCounts,
    /// Of a unit that goes back where it was only the outcomes before the snapshot are kept.
    UnitForgetsOutcomes,
    /// The ranks of a unit on one node go on before those on its other nodes stand.
    NodeGoesOn,
    /// A node listens to what receivers said before their unit went back.
    StaleNeeds,
    /// What ranks of a unit send each other from node to node does not wait at the gate.
    UnitUngated,
    /// A controller that goes on has forgotten the snapshots that were being taken.
    SnapshotsForgotten,
    /// Of a unit some of which leaves only that part stands for good.
    MatesGoOn,
    /// Ranks that stand for a snapshot that does not come about are not let go.
    VoidHeld,
    /// Who is let go before it stands for good stands afterwards.
    HeldLater,
    /// A node leaves before the images that it held count elsewhere.
    LeavesEarly,
    /// A node leaves before the outcomes that it held are held by others.
    LeavesUnguarded,
    /// A rank goes on after its last image on a node that it leaves.
    NotHeld,
    /// That a rank cannot be brought back at a node is taken for damage of its image.
    PlaceForImage,
    /// A router gives up what its receivers have taken.
    RouterForgets,
    /// Senders give up what the receiver's router has.
    SendersForget,
    /// A router does not pass on that a message was received.
    RouterKeepsAcks,
    /// A node whose ranks have migrated joins again with what it had.
    NotEmptied,
    /// A router says that it stands before the mark behind all it had sent was answered.
    StandsUnanswered,
    /// A router goes on sending to a rank while its checkpoint is taken.
    SendsWhilePaused,
    /// A router is not told that the rank has died whose checkpoint it stands for.
    NeverResumed,
    /// A checkpoint waits for a router that is dead.
    DeadRouterAwaited,
    /// Second copies of images are on the next node, in the same cluster.
    ImagesInRing,
    /// So are those of outcomes.
    OutcomesInRing,
    /// An answer to any order says that a node's ranks stand.
    AnyAnswer,
    /// A node that joins is not told that ranks stand still.
    NewcomerRuns,
    /// The planner is not told that a rank is going to start.
    StartsUntold,
    /// Ranks that are started while others stand run.
    StartsRunning,
    /// The hold of a client that vanished does not lapse.
    LeaseForever,
    /// A new controller takes clients of the one before for its own.
    ClientsRemembered,
    /// Ranks of a lost node are brought back before nothing of it runs any more.
    NotCleared,
    /// A node does not say first how much it has heard.
    FirstWordUnsaid,
    /// Who is a member is not told while all ranks go back.
    MembersUntold,
    /// A rank comes to another node without what is recorded of it.
    WordsLost,
    /// What a rank has sent is copied when its image is written.
    LateLog,
    /// What the receiver's node has of its unit is not kept by the sender's.
    GivenToMirror,
    /// The images before go from the vault before the next ones count.
    CollectedEarly,
    /// It is not written down that the planner knew of all processes' end.
    DownUnwritten,
    /// A controller knows nothing of the snapshot of all ranks that the one before it was taking,
    /// and takes another one of that number.
    SnapshotForgotten,
    /// ... of who can come back.
    ReturnForgotten,
    /// A node goes that keeps images in the vault, though they can be brought in anew.
    LeavesGuard,
    /// Nobody writes down where ranks cost least.
    PreferencesForgotten,
}
