//! What the controller knows of the vault: generations, the round under way, scrubs. Rounds are
//! made by `vault`, `rebuild` and `retry`, scrubs by `scrub`.

use crate::clock::{Moment, Now};
use crate::outside::ClientHandle;
use crate::vault::encoder::{Links, Pick};
use eyrie_control::NodeMsg;
use eyrie_control::vault::{Checked, Spent};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Guard, Planner, Rule};
use eyrie_vault::Scheme;
use eyrie_vault::coordinator::Coordinator;
use eyrie_vault::record::Commit;
use eyrie_vault::vault::Mended;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// After a round that came to nothing the next one waits for so long, and twice as long for each
/// one more, ...
pub(super) const PAUSE_MS: u64 = 500;
/// ... up to this.
pub(super) const LONGEST_PAUSE_MS: u64 = 60_000;

/// How long the next round waits after so many that came to nothing.
pub(super) fn pause_ms(rounds: u32) -> u64 {
    let doubled = 1u64.checked_shl(rounds.saturating_sub(1)).unwrap_or(u64::MAX);
    PAUSE_MS.saturating_mul(doubled).min(LONGEST_PAUSE_MS)
}

/// A file of an image: rank and generation.
pub(super) type File = (u32, u32);

/// A committed generation.
#[derive(Serialize, Deserialize)]
pub(super) struct Generation {
    pub(super) commit: Commit,
    pub(super) members: Vec<Member>,
    /// Groups of which more is damaged than can be mended: what is needed of these is stored anew.
    pub(super) unsound: BTreeSet<usize>,
}

impl Generation {
    /// As `Guard::renew`.
    pub(super) fn renew(&mut self, before: &[Member], live: &[Member]) {
        let mut guard = Guard { members: std::mem::take(&mut self.members), tolerates: 0 };
        guard.renew(before, live);
        self.members = guard.members;
    }
}

/// One that is being made.
#[derive(Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) generation: u64,
    pub(super) members: Vec<Member>,
    pub(super) images: Vec<File>,
    pub(super) groups: Vec<Vec<u32>>,
    /// Whose object each file is.
    pub(super) files: BTreeMap<File, u32>,
    pub(super) begun: Moment,
    pub(super) encoder: String,
    /// A successor of this controller begins another round.
    #[serde(skip)]
    pub(super) coordinator: Option<Coordinator>,
    #[serde(skip)]
    pub(super) commit: Option<Commit>,
    #[serde(skip)]
    pub(super) pick: Arc<Pick>,
    #[serde(skip)]
    pub(super) progress: Progress,
    pub(super) spent: Costs,
}

/// What the controller knows of the vault.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Vaults {
    pub(super) last: u64,
    pub(super) generations: BTreeMap<u64, Generation>,
    /// Where each file is: generation, and node whose object it is.
    pub(super) files: BTreeMap<File, (u64, u32)>,
    pub(super) round: Option<Round>,
    /// Rounds in a row that came to nothing, though no node was lost.
    pub(super) failed: u32,
    pub(super) links: Links,
    /// Which encoder the newest round was made with, and why.
    pub(super) encoder: Option<String>,
    /// How long the last round took.
    pub(super) took_ms: f64,
    #[serde(skip)]
    pub(super) retry: Retry,
    pub(super) scrubs: Scrubs,
}

impl Vaults {
    /// The generation that has a file, its group, and who is in that.
    pub(super) fn place(&self, file: File) -> Option<(&Generation, u32, Guard)> {
        let (generation, node) = self.files.get(&file)?;
        let generation = self.generations.get(generation)?;
        let (group, _) = generation.commit.place(*node)?;
        let nodes = &generation.commit.groups[group];
        let in_it = |m: &&Member| nodes.iter().any(|s| s.node == m.node);
        let members = generation.members.iter().filter(in_it).copied().collect();
        let tolerates = generation.commit.scheme.tolerates();
        Some((generation, *node, Guard { members, tolerates }))
    }

    /// Whether more is damaged of what guards a file than can be mended.
    pub(super) fn is_unsound(&self, file: File) -> bool {
        let place = self.files.get(&file);
        let generation = place.and_then(|(number, _)| self.generations.get(number));
        let group = |it: &Generation| it.commit.place(place?.1).map(|(group, _)| group);
        generation.is_some_and(|it| group(it).is_some_and(|group| it.unsound.contains(&group)))
    }
}

/// A planner that heeds what `--vault` says.
pub(crate) fn with_rule(planner: Planner, scheme: Scheme) -> Planner {
    match scheme {
        Scheme::Rs { .. } | Scheme::Xor { .. } => {
            planner.with_rule(Rule::Vault { least: scheme.least() })
        }
        Scheme::Local => planner.with_rule(Rule::Copies(1)),
        Scheme::Partner => planner,
    }
}

impl Vaults {
    /// The generation that has a file, the nodes of its group, and how many of them may be lost.
    pub fn guards_of(&self, file: File) -> Option<(u64, Vec<u32>, usize)> {
        let (generation, _, guard) = self.place(file)?;
        let nodes = guard.members.iter().map(|m| m.node).collect();
        Some((generation.commit.generation, nodes, guard.tolerates))
    }

    /// Whether the vault has a file, and nothing of what guards it is lost.
    pub fn is_guarded(&self, file: File, live: &[Member]) -> bool {
        let place = self.place(file);
        let there = |guard: Guard| guard.members.iter().all(|m| live.contains(m));
        !self.is_unsound(file) && place.is_some_and(|(_, _, guard)| there(guard))
    }
}

/// How many images were found so, each on each of its nodes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub sound: u64,
    pub damaged: u64,
    pub repaired: u64,
}

/// Images of one pass.
#[derive(Default)]
pub(crate) struct Images {
    /// Nodes, ranks and generations of which nothing was told yet.
    pub left: BTreeSet<(u32, u32, u32)>,
    pub found: Counts,
}

/// How far a round is.
#[derive(Default)]
pub(crate) struct Progress {
    /// It brings back what lost nodes guarded.
    pub(super) rebuild: bool,
    /// Most bytes a second that a node sends; 0: no limit.
    pub rate: u64,
    /// What all nodes are about to send, about.
    pub(super) total: u64,
    pub(super) sent: BTreeMap<u32, u64>,
}

impl Progress {
    /// A node has sent so much.
    pub fn note(&mut self, node: u32, sent: u64) {
        self.sent.insert(node, sent);
    }

    /// A group encodes payloads of these lengths.
    pub fn encodes(&mut self, scheme: Scheme, payloads: &[u64]) {
        let terms = scheme.tolerates() as u64;
        let all = payloads.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        self.total = self.total.saturating_add(all.saturating_mul(terms));
    }

    /// What is told of a generation that came to be so.
    pub fn describe(&self) -> String {
        match (self.rebuild, self.rate) {
            (false, _) => String::new(),
            (true, 0) => String::from(", after a loss"),
            (true, rate) => format!(", after a loss, at most {:.1} MB/s a node", rate as f64 / 1e6),
        }
    }
}

/// What a round took of its slowest nodes, in microseconds.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub payload: u64,
    pub(super) encode: u64,
    pub(super) durable: u64,
    /// That were sent, by all.
    pub(super) bytes: u64,
}

impl Costs {
    pub fn add(&mut self, spent: Spent) {
        self.encode = self.encode.max(spent.encode_us);
        self.durable = self.durable.max(spent.durable_us);
        self.bytes += spent.bytes;
    }

    /// What is told of a generation that these were the costs of.
    pub fn describe(&self, commit: &Commit, encoder: &str, begun: &Moment, clock: Now) -> String {
        let nodes: usize = commit.groups.iter().map(Vec::len).sum();
        let bytes: u64 = commit.groups.iter().flatten().map(|s| s.payload).sum();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (scheme, spent) = (commit.scheme, self);
        let ms = begun.elapsed_ms(clock);
        let part = |us: u64| us as f64 / 1e3;
        format!(
            "{scheme} over {nodes} nodes, {:.1} MiB by {encoder} in {ms:.0} ms: payload {:.1} ms, \
         parity {:.1} ms ({:.1} MiB sent), durable {:.1} ms",
            mib(bytes),
            part(spent.payload),
            part(spent.encode),
            mib(spent.bytes),
            part(spent.durable),
        )
    }
}

/// Rounds in a row that came to nothing. A new controller begins to count anew.
#[derive(Default)]
pub(crate) struct Retry {
    pub(super) rounds: u32,
    /// When the next one may begin.
    pub not_before_ms: u64,
    pub(super) trouble: Option<Trouble>,
}

/// Images that are kept cannot be guarded as they are to be.
pub(super) struct Trouble {
    pub(super) images: u32,
    pub(super) why: String,
}

impl Retry {
    /// One more came to nothing; after a loss it may be another matter.
    pub fn one_more(&mut self, now_ms: u64, lost: bool) {
        self.rounds = if lost { 1 } else { self.rounds.saturating_add(1) };
        self.not_before_ms = now_ms.saturating_add(pause_ms(self.rounds));
    }
}

/// Passes: the one that is under way, those that wait, and what was found. The next controller
/// knows what was found, and that of a pass under way as far as it was told; it begins another one.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Scrubs {
    #[serde(skip)]
    pub(super) count: u64,
    #[serde(skip)]
    pub(crate) pass: Option<Pass>,
    #[serde(skip)]
    pub(super) waiting: VecDeque<Wish>,
    /// When the next one begins unasked.
    #[serde(skip)]
    pub(super) due_ms: Option<u64>,
    /// When the last one ended that repairs.
    pub(super) mended_unix_ms: Option<u64>,
    pub(super) last: Option<Last>,
    pub(super) so_far: Mended,
    /// Ranks, generations that were being taken of them, nodes and files that were found damaged
    /// there meanwhile.
    #[serde(skip)]
    pub(crate) spoilt: BTreeSet<(u32, u32, u32, u32)>,
}

/// Somebody asks for a pass.
pub(super) struct Wish {
    pub(super) write: bool,
    pub(super) rate: u64,
    pub(super) asker: Asker,
}

/// A client: by its connection's number, and the way to it.
pub(super) type Asker = (u64, ClientHandle);

pub(crate) struct Pass {
    pub number: u64,
    /// What is damaged is made anew.
    pub(super) write: bool,
    pub(super) begun_ms: u64,
    /// Generations and nodes that have not answered.
    pub(super) left: BTreeSet<(u64, u32)>,
    pub(super) found: Mended,
    /// The same of the nodes' files of images.
    pub images: Images,
    /// Who asked for it.
    pub asker: Option<Asker>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Last {
    pub(super) ended_unix_ms: u64,
    pub(super) took_ms: u64,
    pub(super) found: Mended,
    pub(super) images: Counts,
}

impl Pass {
    pub(super) fn tell(&self, generation: u64, node: u32, result: Result<Mended, String>) {
        if let Some((_, client)) = &self.asker {
            client.send(&NodeMsg::Checked(Checked { generation, node, result }));
        }
    }
}
