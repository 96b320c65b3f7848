//! A simulated job over nodes with `--ft coordinated`, around the real planner and `sets`.
//!
//! Modelled: programs, processes, logs and mirrors, disks, links, network and clock; of a vault
//! that there are rounds, and which nodes keep what they brought in (`vault`). Ranks send
//! each other a given number of messages, in an order that chance decides anew each time. Each
//! message has a number of its own, so that one that belongs to a course that was given up is
//! known for it.

mod controller;
mod leave;
mod node;
mod vault;
mod world;

pub use world::{Kind, Mistake, Report, run, run_drain};

use eyrie_protocol::membership::Member;
use eyrie_protocol::sets::Verdict;
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
struct Order {
    rank: u32,
    incarnation: u32,
    generation: u32,
    from: Option<Member>,
}

/// One rank of a set.
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
    Start(Order),
    Set {
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

#[derive(Debug, Clone)]
enum Packet {
    ToNode(u32, ToNode),
    FromNode(Member, FromNode),
    Peer { from: Member, to: Member, channel: Channel, said: Said },
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
        order: Order,
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

/// A set as a node sees it.
#[derive(Debug)]
struct NodeSet {
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
#[derive(Debug)]
struct Node {
    own: Member,
    members: Vec<Member>,
    homes: Vec<Option<u32>>,
    logs: BTreeMap<Channel, Log>,
    mirrors: BTreeMap<Channel, Log>,
    next: BTreeMap<Channel, u64>,
    procs: BTreeMap<u32, Proc>,
    orders: BTreeMap<u32, Order>,
    disk: BTreeMap<(u32, u32), Stored>,
    set: Option<NodeSet>,
}

impl Node {
    fn new(own: Member, ranks: usize) -> Node {
        Node {
            own,
            members: Vec::new(),
            homes: vec![None; ranks],
            logs: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            next: BTreeMap::new(),
            procs: BTreeMap::new(),
            orders: BTreeMap::new(),
            disk: BTreeMap::new(),
            set: None,
        }
    }
}
