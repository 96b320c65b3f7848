//! A simulated job over nodes with `--ft coordinated`, around the real planner and `snapshots`.
//!
//! Modelled: programs, processes, logs and mirrors, disks, links, network and clock; of a vault
//! that there are rounds, and which nodes keep what they brought in (`vault`). Ranks send
//! each other a given number of messages, in an order that chance decides anew each time. Each
//! message has a number of its own, so that one that belongs to a course that was given up is
//! known for it. Controllers die in any turn, and have successors (`term`).

mod controller;
mod leave;
mod node;
mod steps;
mod term;
mod vault;
mod world;

pub use steps::{Steps, run_every_step, run_one};
pub use world::{Job, Kind, Mistake, Report, run};

use eyrie_protocol::coordinated_snapshot::Verdict;
use eyrie_protocol::membership::Member;
use eyrie_protocol::session::{Numbered, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Source and destination.
type Channel = (u32, u32);
/// An image: rank and generation.
type Key = (u32, u32);
/// What a node brings into the vault.
type Encoded = Vec<(Key, Rc<Image>)>;
/// Messages by position.
type Log = BTreeMap<u64, u64>;

/// A rank's own memory: the messages that it sent and received, by rank.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    sent: Vec<Vec<u64>>,
    received: Vec<Vec<u64>>,
}

impl State {
    fn new(ranks: usize) -> State {
        State { sent: vec![Vec::new(); ranks], received: vec![Vec::new(); ranks] }
    }
}

/// An image, and the log that belongs to it.
#[derive(Debug, Clone)]
struct Image {
    state: State,
    log: Vec<(u32, Log)>,
}

#[derive(Debug, Clone)]
struct RestoreOrder {
    rank: u32,
    incarnation: u32,
    generation: u32,
    from: Option<Member>,
}

/// One rank of a snapshot.
#[derive(Debug, Clone, Copy)]
struct Part {
    rank: u32,
    incarnation: u32,
    partner: Option<Member>,
}

#[derive(Debug, Clone)]
enum ToNode {
    Members(Vec<Member>),
    Homes(Vec<Option<u32>>),
    /// Have the image of this rank at hand; answered by `Found`.
    Find(RestoreOrder),
    /// A step of all nodes before the ranks of a snapshot start, and its number; answered by
    /// `Rejoined`.
    Rejoin(u64),
    /// What was found is started.
    Start {
        rank: u32,
        incarnation: u32,
    },
    Snapshot {
        generation: u32,
        parts: Vec<Part>,
        /// Ranks do not go on after it.
        hold: bool,
    },
    Verdict {
        generation: u32,
        verdict: Verdict,
    },
    Copy {
        rank: u32,
        generation: u32,
        to: Member,
    },
    Remove {
        rank: u32,
        generation: u32,
    },
    /// Bring these images into the vault.
    Vault {
        round: u64,
        images: Vec<Key>,
    },
    Kill,
    Renew(Member),
    /// It forgets all, and joins again.
    Reset(Member),
    /// Some leave; answered by `Guarded`.
    Leaving {
        round: u64,
    },
    /// Ranks that stand for that go on.
    GoOn,
    /// Nothing hangs on it any more.
    Depart,
}

#[derive(Debug, Clone)]
enum FromNode {
    Fetched {
        rank: u32,
        incarnation: u32,
        generation: u32,
    },
    Found {
        rank: u32,
        incarnation: u32,
        generation: u32,
    },
    Rejoined(u64),
    ImageBad {
        rank: u32,
        incarnation: u32,
        generation: u32,
        at: Member,
    },
    Started {
        rank: u32,
        incarnation: u32,
    },
    Stands {
        generation: u32,
    },
    Taken {
        part: Part,
        generation: u32,
        at: Vec<Member>,
    },
    NoPart {
        rank: u32,
        generation: u32,
    },
    Copied {
        rank: u32,
        generation: u32,
        to: Member,
    },
    NotCopied {
        rank: u32,
        generation: u32,
        to: Member,
    },
    /// It has brought in what it was to, or could not.
    Vaulted {
        round: u64,
        images: Option<Encoded>,
    },
    Died {
        rank: u32,
        incarnation: u32,
    },
    Done {
        rank: u32,
        incarnation: u32,
    },
    Killed,
    Joined(Member),
    Guarded {
        round: u64,
    },
}

/// Between two nodes, about a channel.
#[derive(Debug, Clone, Copy)]
enum Said {
    /// From here on it is wanted.
    Have(u64),
    Data(u64, u64),
    /// So many were received.
    Upto(u64),
}

/// What a node says, and in which of its lives.
type Word = (Member, FromNode);

#[derive(Debug, Clone)]
enum Packet {
    /// `line`: the number of the connection that it is on.
    ToNode {
        node: u32,
        line: u64,
        frame: Numbered<ToNode>,
    },
    FromNode {
        node: u32,
        line: u64,
        frame: Numbered<Word>,
    },
    Peer {
        from: Member,
        to: Member,
        channel: Channel,
        said: Said,
    },
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(Packet),
    Step {
        node: u32,
        rank: u32,
        incarnation: u32,
    },
    /// A rank comes to stand, or not in time.
    Stand {
        node: u32,
        generation: u32,
        rank: u32,
        incarnation: u32,
        late: bool,
    },
    Written {
        at: Member,
        part: Part,
        generation: u32,
        image: Rc<Image>,
    },
    /// An image that was taken is with its partner, too.
    Copied {
        at: Member,
        part: Part,
        generation: u32,
        image: Rc<Image>,
    },
    /// One of a rank's images is copied elsewhere.
    Brought {
        at: Member,
        to: Member,
        rank: u32,
        generation: u32,
    },
    Fetched {
        at: Member,
        order: RestoreOrder,
    },
    /// A node has made its part of a round.
    Encoded {
        at: Member,
        round: u64,
        images: Encoded,
    },
    Suspect {
        member: Member,
    },
    Schedule,
    Fault,
    Join,
    /// Somebody wants a node to leave.
    Drain,
    /// A node that has no controller calls the next one.
    Call {
        node: u32,
    },
    /// There is one.
    Term,
    /// It does not wait for nodes any more, if no other one has followed it.
    Rejoined {
        deaths: u64,
    },
}

/// A process of a rank.
#[derive(Debug, Clone)]
struct Proc {
    incarnation: u32,
    state: State,
    stands: bool,
    done: bool,
    /// Its next step is on the way.
    awake: bool,
}

/// A snapshot as a node sees it.
#[derive(Debug, Clone)]
struct NodeSnapshot {
    generation: u32,
    parts: Vec<Part>,
    left: BTreeSet<u32>,
    images: BTreeMap<u32, Image>,
    hold: bool,
}

#[derive(Debug, Clone)]
struct Stored {
    image: Rc<Image>,
    bad: bool,
}

/// One node.
#[derive(Debug, Clone)]
struct Node {
    own: Member,
    /// What it says to the controllers, and the number of the connection.
    session: Session<Word>,
    line: u64,
    members: Vec<Member>,
    homes: Vec<Option<u32>>,
    logs: BTreeMap<Channel, Log>,
    mirrors: BTreeMap<Channel, Log>,
    next: BTreeMap<Channel, u64>,
    procs: BTreeMap<u32, Proc>,
    orders: BTreeMap<u32, RestoreOrder>,
    /// Images that are at hand; none: of the beginning.
    found: BTreeMap<u32, Option<Rc<Image>>>,
    disk: BTreeMap<(u32, u32), Stored>,
    snapshot: Option<NodeSnapshot>,
}

impl Node {
    fn new(own: Member, ranks: usize) -> Node {
        Node {
            own,
            session: Session::default(),
            line: 0,
            members: Vec::new(),
            homes: vec![None; ranks],
            logs: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            next: BTreeMap::new(),
            procs: BTreeMap::new(),
            orders: BTreeMap::new(),
            found: BTreeMap::new(),
            disk: BTreeMap::new(),
            snapshot: None,
        }
    }
}
