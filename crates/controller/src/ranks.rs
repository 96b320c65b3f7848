//! The ranks of a job, as the controller knows them.
//!
//! Kept true: whoever changes a rank gets it by `Ranks::rank`, so that the journal has the change.

use crate::checkpoints::failures::Failures;
use crate::clock::Moment;
use crate::leaving::model::{Moves, OVERHEAD_PART};
use crate::outside::Needed;
use crate::recovery::model::{Later, Order, Retries};
use crate::saving::model::LogSaving;
use eyrie_control::node::{Beside, RankLook, Taken};
use eyrie_control::signals::SIGKILL;
use eyrie_control::{Death, Meta, Said};
use eyrie_protocol::membership::Member;
use eyrie_protocol::output::Tape;
use eyrie_protocol::retention::Retention;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The process of a rank.
#[derive(Serialize, Deserialize)]
pub(crate) struct Proc {
    pub pid: u32,
    pub start: u64,
    /// Its output is no longer listened to: it differed.
    pub mute: bool,
}

/// A start that was ordered and not answered yet.
#[derive(Serialize, Deserialize)]
pub(crate) struct Starting {
    pub start: u64,
    pub generation: u32,
    /// It brings back a rank that died.
    pub recovery: bool,
    /// With what was recorded of it elsewhere.
    pub moved: bool,
}

/// An image that was taken of a process of a rank.
#[derive(Serialize, Deserialize)]
pub(crate) struct Capture {
    pub generation: u32,
    /// The planner's number of the process.
    pub incarnation: u32,
    pub taken: Box<Taken>,
}

/// A checkpoint as `eyrie status` shows it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Latest {
    pub at: Moment,
    pub taken: Box<Taken>,
}

/// Checkpoints of a rank that come to nothing.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Failing {
    pub reason: Option<String>,
    /// Why the last one is on no other node, if for want of that.
    #[serde(skip)]
    pub partnerless: Option<String>,
    pub failures: Failures,
}

/// The checkpoint of a rank that is under way.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// Generation under way.
    pub generation: Option<u32>,
    /// Of which process of the rank, by the planner's number.
    pub incarnation: u32,
    /// Where its image is copied while it is taken.
    pub partner: Option<Member>,
}

/// A rank that is to be brought back.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Restore {
    /// Nodes that it was lost with and that are not cleared away yet.
    pub lost: BTreeSet<u32>,
    /// How it is to be brought back, until it is ordered to start.
    pub order: Option<Order>,
    /// Of ranks that come back together: its image, which is at its home.
    pub found: Option<Box<Meta>>,
}

/// How often a rank died.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Deaths {
    pub recoveries: u64,
    pub count: u64,
    #[serde(skip)]
    pub injected_at: Option<Moment>,
    pub died_at: Option<Moment>,
}

/// What a rank waits for that cannot be brought back at once.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct ComingBack {
    /// What has kept it from being brought back since it ran last.
    pub retries: Retries,
    /// It is brought back after a pause, as it died again and again.
    pub later: Option<Later>,
    /// It is to come back at another node, if there is one.
    pub elsewhere: bool,
    /// What was said of files that were not as they were.
    pub said_of_files: BTreeSet<String>,
    /// Programs of it that met in MPI since it was started.
    pub beside: Vec<Beside>,
}

/// One rank. What is skipped is in the journal by itself, or of no weight.
#[derive(Serialize, Deserialize)]
pub(crate) struct Rank {
    pub proc: Option<Proc>,
    pub starting: Option<Starting>,
    /// Ended by itself.
    pub gone: bool,
    #[serde(skip, default = "blank")]
    pub tapes: [Tape; 2],
    pub retention: Retention,
    pub latest: Option<Latest>,
    /// What keeps it from being checkpointed.
    pub failing: Failing,
    /// Its checkpoint that is under way.
    pub capture: UnderWay,
    /// How it is brought back.
    pub restore: Restore,
    /// The planner's number of the process that was ordered last.
    pub incarnation: u32,
    /// An image that does not count yet.
    pub pending: Option<Capture>,
    /// How often it died, and when.
    pub deaths: Deaths,
    /// What its node said of it last.
    #[serde(skip)]
    pub look: RankLook,
    /// Its log as it is written, or was, for `eyrie replay`.
    pub saving: LogSaving,
    /// It was killed, or will be, as its recovery unit goes back.
    pub falls: bool,
    /// It leaves its node.
    pub moves: Moves,
    /// The image for which its memory goes out.
    pub swap: Option<u32>,
    /// What it waits for if it cannot be brought back at once.
    pub coming_back: ComingBack,
}

fn blank() -> [Tape; 2] {
    [Tape::new(0), Tape::new(0)]
}

/// All of them.
pub(crate) struct Ranks {
    pub all: Vec<Rank>,
    /// Those that may have changed since the journal's last record.
    pub touched: BTreeSet<u32>,
}

impl Ranks {
    pub fn new(all: Vec<Rank>) -> Ranks {
        Ranks { all, touched: BTreeSet::new() }
    }

    pub fn rank(&mut self, rank: u32) -> &mut Rank {
        self.touched.insert(rank);
        &mut self.all[rank as usize]
    }

    /// The process of a rank, if it is the one of that start.
    pub fn proc(&mut self, rank: u32, start: u64) -> Option<&mut Proc> {
        self.touched.insert(rank);
        self.all.get_mut(rank as usize)?.proc.as_mut().filter(|p| p.start == start)
    }
}

impl Rank {
    pub fn new(ranks: u32, tape: &Tape) -> Rank {
        Rank {
            proc: None,
            starting: None,
            gone: false,
            tapes: [tape.clone(), tape.clone()],
            retention: Retention::new(ranks),
            latest: None,
            failing: Failing::default(),
            capture: UnderWay::default(),
            restore: Restore::default(),
            incarnation: 0,
            pending: None,
            deaths: Deaths::default(),
            look: RankLook::default(),
            saving: LogSaving::No,
            falls: false,
            moves: Moves::default(),
            swap: None,
            coming_back: ComingBack::default(),
        }
    }

    /// Its node says how it is. What it has sent is counted on its node: what it sent on nodes
    /// before counts as long as that is more.
    pub fn sees(&mut self, look: RankLook) {
        let before = std::mem::replace(&mut self.look, look);
        let all = |look: &RankLook| look.targets.iter().map(|sent| sent.messages).sum::<u64>();
        if all(&self.look) < all(&before) {
            (self.look.targets, self.look.more_targets) = (before.targets, before.more_targets);
        }
    }
}

impl Ranks {
    /// What the codes mean with which shells, and the loader of programs, say that there is nothing
    /// to run, if that is all that came of a rank.
    pub fn missing_program(&self, rank: u32, death: Death, said: &Said) -> Option<String> {
        let what = match death {
            Death::Exit(127) => "the program, or a library that it needs, was not found",
            Death::Exit(126) => "the program cannot be run",
            _ => return None,
        };
        let r = &self.all[rank as usize];
        let begun = *said != Said::Nothing
            || r.tapes[0].progress() > 0
            || r.retention.newest().is_some_and(|k| k.generation > 0);
        (!begun).then(|| format!("before MPI_Init: as a rule {what} there"))
    }

    pub fn unsaved(&self, rank: u32) -> bool {
        let r = &self.all[rank as usize];
        r.saving == LogSaving::No && r.retention.newest().is_some_and(|k| k.generation > 0)
    }

    /// The order that is answered with this number.
    pub fn ordered(&mut self, rank: u32, start: u64) -> Option<Starting> {
        self.touched.insert(rank);
        self.all.get_mut(rank as usize)?.starting.take_if(|s| s.start == start)
    }

    /// The generation that all ranks have reached.
    pub fn reached(&self) -> u32 {
        let newest = |r: &crate::Rank| r.retention.newest().map_or(0, |kept| kept.generation);
        self.all.iter().map(newest).min().unwrap_or(0)
    }

    /// Bytes of memory that a rank needs elsewhere.
    pub fn needs(&self, rank: u32) -> u64 {
        let bytes = self.all[rank as usize].look.resident_bytes;
        bytes + bytes / OVERHEAD_PART
    }

    /// Whether a rank's process was killed because its unit moves.
    pub fn moves_with_unit(&self, rank: u32) -> bool {
        let r = &self.all[rank as usize];
        r.falls && r.moves.from.is_some()
    }

    pub fn live_ranks(&self) -> impl Iterator<Item = usize> {
        (0..self.all.len()).filter(|rank| !self.all[*rank].gone)
    }

    /// Generations whose files an image consists of; its own is the last.
    pub fn files_of(&self, rank: u32, generation: u32) -> Vec<u32> {
        let r = &self.all[rank as usize];
        let needs = match &r.pending {
            Some(p) if p.generation == generation => &p.taken.needs[..],
            _ => r.retention.needs(generation),
        };
        needs.iter().copied().chain([generation]).collect()
    }

    /// Whether the process of a rank is ended so that its memory goes out.
    pub fn goes_out(&self, rank: u32) -> bool {
        let r = &self.all[rank as usize];
        r.falls && r.swap.is_some()
    }

    /// What the newest image of every rank consists of.
    pub fn needed_now(&self) -> Needed {
        let ranks = (0u32..).zip(&self.all);
        let newest = ranks.filter_map(|(rank, r)| Some((rank, r.retention.newest()?.generation)));
        let newest = newest.filter(|n| n.1 > 0);
        let files = |(rank, g)| self.files_of(rank, g).into_iter().map(move |file| (rank, file));
        newest.flat_map(files).collect()
    }

    /// Whether a process ended because its unit goes back.
    pub fn has_fallen(&self, rank: u32, death: Death, said: &Said) -> bool {
        let killed = death == Death::Signal(SIGKILL);
        let quiet = matches!(said, Said::Nothing | Said::Running);
        self.all[rank as usize].falls && killed && quiet
    }
}
