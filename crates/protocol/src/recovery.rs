//! The recovery planner: where each rank lives, and how it comes back after the death of ranks and
//! nodes - any of them, several at once, again while they are being recovered.
//!
//! Pure, run by the controller. The steps of a rank whose node died: *fence* (a new membership goes
//! to all nodes; from then on they refuse the dead one), *fetch* (all live nodes say what they hold
//! of its determinants; the longest is taken), *place*, *restore* (the new home gets the newest
//! good image and the determinants, has them replicated, and only then starts it). Whatever dies on
//! the way leads back to the step that it undoes.
//!
//! Kept true: determinants are taken only if one of those who answered was in step with the last
//! node on which the rank may have run - otherwise all ranks go back to the beginning, loudly; what
//! was fetched is kept until it is replicated elsewhere, whichever homes die on the way; an
//! incarnation's number is used once; an image counts only
//! when it lies on two nodes (on one, if there is no second), and is copied again when one dies, or
//! when the vault has it.
//! An image counts only for the incarnation that it is of and those after it, never for one that
//! was restored from an older image meanwhile and still needs the logs since then.
//! Ranks that ended well are run again if their node dies, as their last messages die with it.
//! A job that was saved as a whole is brought back alike, from an archive that is no member.
//!
//! Which ranks come back together is said by one value, `units::Units`. A rank that is a unit comes
//! back at once. The ranks of a larger unit wait for each other, and come from one coordinated
//! snapshot (`units`). If all ranks are one unit nothing is recorded of them, and nothing fetched
//! (`coordinated`).

mod coordinated;
mod data_loss;
mod dropped;
mod images;
mod leave;
mod placement;
mod preferences;
mod saved;
mod snapshots;
mod spread;
mod stored;
#[cfg(test)]
mod testing;
mod unfit;
mod units;
mod vault;

use crate::membership::{Member, Neighbours};
use crate::replicas::{Answer, Words, longest};
use crate::units::{LogAt, Units};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use leave::Stage;
pub use saved::{ARCHIVE, Saved};
pub use spread::spread;
pub use vault::{Guard, Rule, VAULT};

/// On how many nodes each image lies.
pub const COPIES: usize = 2;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A node is there for the first time in this incarnation. A spare gets ranks when others die.
    Joined { member: Member, spare: bool },
    /// It is dead or must be taken for dead.
    NodeDied { member: Member },
    /// The process of this incarnation died, its node did not, and it is to be brought back.
    RankDied { rank: u32, incarnation: u32 },
    /// It ended well.
    RankDone { rank: u32 },
    /// Nothing that it ever sent is needed any more.
    RankReleased { rank: u32 },
    /// What a node holds, or a part: of the time after it took the membership before `Query`.
    Answered { from: Member, round: u64, answer: Answer },
    /// Its new home is told to start it: it may run, whether that is heard of or not.
    Starting { rank: u32, incarnation: u32 },
    /// Its determinants are replicated and its process runs.
    Restored { rank: u32, incarnation: u32 },
    /// The copy of an image that lies at `at` cannot be used.
    ImageBad { rank: u32, incarnation: u32, generation: u32, at: Member },
    /// The rank cannot be brought back at this node now, whatever its image is like.
    Unfit { rank: u32, incarnation: u32, at: Member },
    /// An image of this incarnation, its log and the files that it needs are complete and durable
    /// at these.
    Stored { rank: u32, incarnation: u32, generation: u32, at: Vec<Member> },
    /// The vault has an image: each of its files is kept by one of these.
    Vaulted { rank: u32, generation: u32, guards: Vec<Guard> },
    /// A copy could not be made.
    NotCopied { rank: u32, generation: u32, to: Member },
    /// Some time went by: copies that could not be made are tried again.
    Tick,
    /// Retention gave this image up.
    Dropped { rank: u32, generation: u32 },
    /// Of ranks that are all one unit: this snapshot is given up.
    Void { generation: u32 },
    /// Of ranks that are all one unit: processes are being killed, `AllDown` comes.
    GoBack,
    /// After `RollBack`: no process is left. `members`: all live nodes, with new epochs.
    AllDown { members: Vec<Member> },
    /// This snapshot of one recovery unit is given up.
    VoidUnit { unit: u32, generation: u32 },
    /// These are to leave, all at one time. `wishes`: where their ranks are to go if that can be,
    /// best first. Nothing happens if nobody stays.
    Leave { members: Vec<Member>, wishes: BTreeMap<u32, Vec<Member>> },
    /// It stays, unless its ranks are moving already.
    Stay { member: Member },
    /// All ranks of one that leaves stand for good, and an image of that counts of each.
    Stands { member: Member },
    /// After `Leaving` of this round: what leaves this node is known to nodes that stay.
    Guarded { from: Member, round: u64 },
    /// Of what guards an image in the vault more is damaged than can be mended: it may not be had
    /// from there, and is to be brought in anew by a node that has it.
    Unsound { rank: u32, generation: u32 },
    /// The cluster of each node, also of such as are to join.
    Places { of: Vec<u32> },
    /// What each node fails together with, also such as are to join.
    Domains { of: Vec<u32> },
    /// The images of this generation, which count, are a snapshot of all ranks.
    Pin { generation: u32 },
    /// This snapshot is let go.
    Unpin { generation: u32 },
    /// No process is left: all ranks return to this snapshot. `members`: all live nodes, with new
    /// epochs.
    Return { generation: u32, members: Vec<Member> },
    /// The process of this incarnation died where others of the rank did, time and again: it is to
    /// be brought back elsewhere.
    Evicted { rank: u32, incarnation: u32 },
    /// On which nodes, best first, it costs least to have these ranks when they come back: of
    /// nodes that are as good otherwise the first one is taken. It counts until they run.
    Prefer { nodes: BTreeMap<u32, Vec<u32>> },
    /// From now on these are the units, by rank, whose ranks stay on one node, or in one cluster;
    /// `map`: where ranks begin. No process is left, and `Return` or `AllDown` comes.
    Regroup { of: Vec<u32>, on_nodes: bool, map: Vec<u32> },
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Tell all of these; who is not among them is refused from now on.
    Members(Vec<Member>),
    /// Tell all nodes where a rank lives from now on.
    Home { rank: u32, at: Member },
    /// Ask a node what it holds of these ranks.
    Query { to: Member, round: u64, ranks: Vec<u32> },
    /// Bring a rank back at a node: the image of `generation` (0: the program's beginning) is
    /// there, or, if what is there cannot be used, at `from`; `words`: its determinants, `None` if
    /// the segment there has them and its log.
    Restore {
        rank: u32,
        incarnation: u32,
        at: Member,
        generation: u32,
        from: Option<Member>,
        words: Option<Words>,
    },
    /// Copy an image, its log and the files that it needs.
    Copy { rank: u32, generation: u32, from: Member, to: Member },
    /// Enough copies exist: the checkpoint counts.
    Complete { rank: u32, generation: u32 },
    /// This image will never count: remove it wherever it is.
    Discard { rank: u32, generation: u32 },
    /// No good copy of this complete checkpoint is left.
    Damaged { rank: u32, generation: u32 },
    /// Kill every process, then give `AllDown`: ranks cannot be brought back alone.
    RollBack { why: String },
    /// No node is left.
    Lost,
    /// The rank's unit goes back: kill its process, so that `RankDied` or `RankDone` comes. If it
    /// was not told to start yet it must not be any more.
    Kill { rank: u32, incarnation: u32 },
    /// No process of these ranks, which are one unit, is left, and some of them come back at this
    /// node: what they passed each other there is given up. `life`: how often they went back.
    Gather { at: Member, ranks: Vec<u32>, life: u32 },
    /// Tell all nodes that these leave, and ask each to say when what leaves it is known to others.
    Leaving { round: u64, members: Vec<Member> },
    /// The ranks there stand for good: end their processes. They start elsewhere when none is left.
    Vacate { member: Member },
    /// Nothing hangs on it any more: it ends. `Members` without it follows.
    Dismiss { member: Member },
    /// What is recorded of the rank on this node, where no process of it is left, goes to others
    /// with what it holds of theirs: it comes back elsewhere.
    Yield { at: Member, rank: u32 },
    /// No copy of this rank's image is left: this snapshot is none any more.
    Unpinned { generation: u32, rank: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Up,
    /// Its node died; determinants are being asked for.
    Fetching,
    /// Its node died, its determinants are known; it waits for the others of its unit.
    Fetched,
    /// Ordered at `at`.
    Restoring {
        at: Member,
        generation: u32,
        from: Option<Member>,
    },
    Done,
    Released,
    /// It was killed, or will be when it has started, as its unit goes back.
    Falling {
        at: Member,
    },
    /// No process of it is left; it waits for the others of its unit.
    Down {
        at: Member,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rank {
    incarnation: u32,
    /// Where it ran last.
    home: Member,
    /// The last that was told to start it: its gate covers the rank's determinants, as far as
    /// `words` are not all.
    ran: Member,
    phase: Phase,
    /// Fetched determinants that are not replicated again yet.
    words: Option<Words>,
    /// Checkpoints that count, and who holds them.
    committed: BTreeMap<u32, BTreeSet<Member>>,
    /// Those that do not count yet.
    pending: BTreeMap<u32, BTreeSet<Member>>,
    /// Those of snapshots, also such as are kept for nothing else.
    pinned: BTreeMap<u32, BTreeSet<Member>>,
    /// Who keeps those that the vault has.
    guards: BTreeMap<u32, Vec<Guard>>,
    /// Those of which less guards them than that says.
    unsound: BTreeSet<u32>,
    /// Up to this one all that are in neither list were given up, for ever.
    given_up: u32,
    /// The incarnation that a node was told to start last.
    told: u32,
}

/// All ranks and nodes of a job.
#[derive(Debug, Clone)]
pub struct Planner {
    rule: Rule,
    members: Vec<Member>,
    spares: BTreeSet<Member>,
    ranks: Vec<Rank>,
    round: u64,
    /// Who has not answered in this round.
    awaited: BTreeSet<Member>,
    answers: Vec<Answer>,
    /// Copies under way: rank, generation and target; and where from.
    copying: BTreeMap<(u32, u32, Member), Member>,
    rolling_back: bool,
    /// Node numbers by rank, as at the start.
    map: Vec<u32>,
    /// Which ranks come back together, and which nodes take none as they log for others.
    units: Units,
    /// The snapshot that each unit of several ranks came from last.
    snapshots: BTreeMap<u32, u32>,
    /// How often each of them went back, if it is not all ranks.
    lives: BTreeMap<u32, u32>,
    /// Which nodes copies go to.
    neighbours: Neighbours,
    leaves: leave::Leaves,
    /// Ranks that could not be brought back where they were to be, and where that was.
    unfit: BTreeMap<u32, unfit::Tried>,
    /// Nodes on which it costs least to have ranks that come back, best first.
    preferences: preferences::Preferences,
}

impl Planner {
    /// `map`: the node number of each rank. Nothing is started before all those nodes have joined:
    /// see `start`.
    pub fn new(units: Units, map: Vec<u32>) -> Self {
        Planner {
            rule: Rule::Copies(COPIES),
            members: Vec::new(),
            spares: BTreeSet::new(),
            ranks: Vec::new(),
            round: 0,
            awaited: BTreeSet::new(),
            answers: Vec::new(),
            copying: BTreeMap::new(),
            rolling_back: false,
            map,
            units,
            snapshots: BTreeMap::new(),
            lives: BTreeMap::new(),
            neighbours: Neighbours::default(),
            leaves: leave::Leaves::default(),
            unfit: BTreeMap::new(),
            preferences: preferences::Preferences::default(),
        }
    }

    /// The same, with the log there.
    #[must_use]
    pub fn logged_at(self, log_at: LogAt) -> Self {
        Planner { units: self.units.logged_at(log_at), ..self }
    }

    /// The same, with copies on these.
    #[must_use]
    pub fn with_neighbours(self, neighbours: Neighbours) -> Self {
        Planner { neighbours, ..self }
    }

    /// All nodes have joined: starts every rank from the program's beginning.
    pub fn start(&mut self) -> Vec<Action> {
        let mut todo = vec![Action::Members(self.members.clone())];
        self.begin(&mut todo);
        todo
    }

    fn begin(&mut self, todo: &mut Vec<Action>) {
        let before: Vec<u32> = self.ranks.iter().map(|r| r.incarnation).collect();
        self.ranks.clear();
        self.forget_returns();
        for rank in 0..self.map.len() {
            let Some(home) = self.mapped(rank) else { return todo.push(Action::Lost) };
            self.ranks.push(Rank {
                incarnation: before.get(rank).copied().unwrap_or(0),
                home,
                ran: home,
                phase: Phase::Fetching,
                words: None,
                committed: BTreeMap::from([(0, BTreeSet::new())]),
                pending: BTreeMap::new(),
                pinned: BTreeMap::new(),
                guards: BTreeMap::new(),
                unsound: BTreeSet::new(),
                given_up: 0,
                told: 0,
            });
        }
        for rank in 0..self.ranks.len() {
            let at = self.ranks[rank].home;
            self.restore_at(rank, at, todo);
        }
    }

    /// The member a rank starts on: as mapped, or if that node is gone, round the others.
    fn mapped(&self, rank: usize) -> Option<Member> {
        let node = self.map[rank];
        let there = self.members.iter().find(|m| m.node == node);
        let routes = |m: &Member| self.units.log_at().is_router(m.node);
        let all: Vec<Member> = self.members.iter().copied().filter(|m| !routes(m)).collect();
        let busy: Vec<Member> = all.iter().copied().filter(|m| !self.spares.contains(m)).collect();
        let others = if busy.is_empty() { &all } else { &busy };
        let (others, turn) = self.begins_among(rank, others);
        there.copied().or_else(|| others.get(turn % others.len().max(1)).copied())
    }

    /// Live members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Where a rank lives, or is being brought to.
    pub fn home(&self, rank: u32) -> Option<Member> {
        let rank = self.ranks.get(rank as usize)?;
        match rank.phase {
            Phase::Restoring { at, .. } | Phase::Falling { at } | Phase::Down { at } => Some(at),
            Phase::Fetching | Phase::Fetched => None,
            Phase::Up | Phase::Done | Phase::Released => Some(rank.home),
        }
    }

    /// Where a new image of a rank goes besides its home: the next node in the ring, if images are
    /// copied; where it is going to live, if its home leaves.
    pub fn partner(&self, rank: u32) -> Option<Member> {
        let home = self.home(rank)?;
        if self.leaves(&home).is_some() {
            return self.refuge(rank);
        }
        if self.vaults() || self.enough() < COPIES {
            return None;
        }
        let ring = self.neighbours.after(home.node, &self.members);
        let stays = ring.iter().find(|m| self.leaves(m).is_none());
        stays.or(ring.first()).copied()
    }

    /// Who has an image of a rank that counts.
    pub fn holders(&self, rank: u32, generation: u32) -> impl Iterator<Item = Member> {
        let rank = self.ranks.get(rank as usize);
        let holders = rank.and_then(|r| r.committed.get(&generation));
        holders.into_iter().flatten().copied()
    }

    /// Whether all ranks go back, and processes are being killed.
    pub fn goes_back(&self) -> bool {
        self.rolling_back
    }

    pub fn incarnation(&self, rank: u32) -> u32 {
        self.ranks[rank as usize].incarnation
    }

    /// Whether nothing is under way: every rank has its place, every image its copies.
    pub fn settled(&self) -> bool {
        self.placed() && self.copying.is_empty() && self.unguarded().is_empty()
    }

    /// Takes one input.
    pub fn step(&mut self, input: Input) -> Vec<Action> {
        let mut todo = Vec::new();
        self.take(input, &mut todo);
        self.see_off(&mut todo);
        // Once everything goes back to the beginning nothing else is to be done.
        let end = |a: &Action| matches!(a, Action::RollBack { .. } | Action::Lost);
        if let Some(last) = todo.iter().position(end) {
            todo.truncate(last + 1);
        }
        todo
    }

    fn take(&mut self, input: Input, todo: &mut Vec<Action>) {
        match input {
            Input::Joined { member, spare } => self.joined(member, spare, todo),
            Input::NodeDied { member } => self.node_died(member, todo),
            Input::AllDown { members } => self.all_down(members, todo),
            Input::GoBack => self.go_back(),
            Input::Return { generation, members } => self.return_all(generation, members, todo),
            Input::Unpin { generation } => self.unpin(generation),
            Input::Places { of } => self.neighbours.place(of),
            Input::Domains { of } => self.neighbours.set_domains(of),
            Input::Prefer { nodes } => self.preferences.set(nodes),
            Input::Regroup { of, on_nodes, map } => self.regroup(of, on_nodes, map),
            late if self.rolling_back => self.take_late(&late),
            Input::RankDied { rank, incarnation } => {
                self.rank_died(rank as usize, incarnation, todo);
            }
            Input::RankDone { rank } => self.rank_done(rank as usize, todo),
            Input::RankReleased { rank } => self.release(rank),
            Input::Answered { from, round, answer } => {
                if round == self.round && self.awaited.contains(&from) {
                    self.awaited.retain(|m| answer.partly || *m != from);
                    self.answers.push(answer);
                    self.resolve(todo);
                }
            }
            Input::Starting { rank, incarnation } => {
                let rank = &mut self.ranks[rank as usize];
                if let Phase::Restoring { at, .. } = rank.phase
                    && rank.incarnation == incarnation
                {
                    rank.ran = at;
                    rank.told = incarnation;
                }
            }
            Input::Restored { rank, incarnation } => {
                self.restored(rank as usize, incarnation, todo);
                if self.leaving().next().is_some() {
                    // What waited for it.
                    self.balance(todo);
                }
            }
            Input::ImageBad { rank, incarnation, generation, at } => {
                self.image_bad(rank as usize, incarnation, generation, at, todo);
            }
            Input::Unfit { rank, incarnation, at } => {
                self.unfit(rank as usize, incarnation, at, todo);
            }
            Input::Stored { rank, incarnation, generation, at } => {
                self.stored(rank, incarnation, generation, &at, todo);
            }
            Input::Vaulted { rank, generation, guards } => {
                self.vaulted(rank, generation, guards, todo);
            }
            Input::Unsound { rank, generation } => self.unsound(rank, generation, todo),
            Input::NotCopied { rank, generation, to } => {
                self.copying.remove(&(rank, generation, to));
            }
            Input::Tick => self.balance(todo),
            leave @ (Input::Leave { .. }
            | Input::Stay { .. }
            | Input::Stands { .. }
            | Input::Guarded { .. }) => self.take_leave(&leave, todo),
            Input::Void { generation } => self.void(&self.all(), generation, todo),
            Input::VoidUnit { unit, generation } => {
                self.void(&self.units.ranks_of(unit), generation, todo);
            }
            Input::Dropped { rank, generation } => self.dropped(rank, generation),
            Input::Pin { generation } => self.pin(generation, todo),
            Input::Evicted { rank, incarnation } => self.evicted(rank as usize, incarnation, todo),
        }
    }

    fn joined(&mut self, member: Member, spare: bool, todo: &mut Vec<Action>) {
        if let Some(old) = self.members.iter().copied().find(|m| m.node == member.node) {
            self.node_died(old, todo);
        }
        self.members.push(member);
        self.members.sort();
        if spare {
            self.spares.insert(member);
        }
        if !self.ranks.is_empty() && !self.rolling_back {
            todo.push(Action::Members(self.members.clone()));
            for rank in 0..self.ranks.len() as u32 {
                todo.extend(self.home(rank).map(|at| Action::Home { rank, at }));
            }
            self.balance(todo);
        }
    }

    fn node_died(&mut self, member: Member, todo: &mut Vec<Action>) {
        if !self.members.contains(&member) {
            return;
        }
        self.members.retain(|m| *m != member);
        self.spares.remove(&member);
        self.awaited.remove(&member);
        self.copying.retain(|c, from| c.2 != member && *from != member);
        if self.ranks.is_empty() {
            return;
        }
        if self.rolling_back {
            // What others have to say, also of the ends of ranks, must not wait for it.
            return todo.push(Action::Members(self.members.clone()));
        }
        if self.members.is_empty() {
            return todo.push(Action::Lost);
        }
        todo.push(Action::Members(self.members.clone()));
        let mut any = false;
        for rank in &mut self.ranks {
            let images = rank.committed.values_mut().chain(rank.pending.values_mut());
            for holders in images.chain(rank.pinned.values_mut()) {
                holders.remove(&member);
            }
            rank.weaken(&self.members);
            let lost = match rank.phase {
                Phase::Up | Phase::Done => rank.home == member,
                Phase::Restoring { at, .. } | Phase::Falling { at } | Phase::Down { at } => {
                    at == member
                }
                Phase::Fetching | Phase::Fetched | Phase::Released => false,
            };
            if lost {
                rank.phase = Phase::Fetching;
            }
            any |= lost;
            rank.pending.retain(|_, holders| !holders.is_empty());
        }
        if any && self.units.are_one() {
            return self.roll_back(format!("{member} is lost"), todo);
        }
        self.units_fall(todo);
        self.forget_lost_images(todo);
        self.lose_snapshots(todo);
        self.refetch_lost_sources(member, todo);
        self.query(todo);
        self.balance(todo);
    }

    /// Images of which no copy is left are given up now: one that turned up again after its rank
    /// was restored from an older one would be without the log in between.
    fn forget_lost_images(&mut self, todo: &mut Vec<Action>) {
        for index in 0..self.ranks.len() {
            let kept = self.ranks[index].committed.iter();
            let lost: Vec<u32> =
                kept.filter(|k| *k.0 > 0 && k.1.is_empty()).map(|k| *k.0).collect();
            lost.into_iter().for_each(|generation| self.lose_image(index, generation, todo));
        }
    }

    /// Asks all nodes anew for what they hold of the ranks that are to be fetched.
    fn query(&mut self, todo: &mut Vec<Action>) {
        let fetching = |r: &(u32, &Rank)| r.1.phase == Phase::Fetching;
        let ranks: Vec<u32> = (0..).zip(&self.ranks).filter(fetching).map(|r| r.0).collect();
        if ranks.is_empty() || self.rolling_back {
            return;
        }
        self.round += 1;
        self.answers.clear();
        self.awaited = self.members.iter().copied().collect();
        for &to in &self.members {
            todo.push(Action::Query { to, round: self.round, ranks: ranks.clone() });
        }
    }

    /// Once all have answered: the determinants of each rank that is to be fetched.
    fn resolve(&mut self, todo: &mut Vec<Action>) {
        if !self.awaited.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut self.answers);
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            if rank.phase != Phase::Fetching {
                continue;
            }
            let ran = rank.ran;
            if ran != ARCHIVE && !answers.iter().any(|a| a.in_step.contains(&ran)) {
                let why = format!(
                    "the determinants of rank {index} were lost with {ran} and its replicas{}",
                    self.whole_cluster(ran)
                );
                return self.roll_back(why, todo);
            }
            let held = answers.iter().filter_map(|a| a.held.get(&(index as u32)).cloned());
            rank.words = Some(longest(held.chain(rank.words.take())).unwrap_or_default());
        }
        if self.units.are_groups() {
            return self.place_units(todo);
        }
        for index in 0..self.ranks.len() {
            if self.ranks[index].phase != Phase::Fetching {
                continue;
            }
            let Some(at) = self.place(index) else { return todo.push(Action::Lost) };
            self.restore_at(index, at, todo);
            if self.rolling_back {
                return;
            }
        }
    }

    /// Orders a rank's newest image at a node, under a new incarnation.
    fn restore_at(&mut self, index: usize, at: Member, todo: &mut Vec<Action>) {
        let only = self.snapshot_of(index);
        let rank = &mut self.ranks[index];
        let eligible = rank.committed.iter().rev().filter(|k| only.is_none_or(|only| *k.0 == only));
        let newest = eligible.into_iter().find_map(|(generation, holders)| {
            let own = self.unfit.get(&(index as u32)).map_or(0, |t| t.source(holders.len()));
            let own = holders.get(&at).or_else(|| holders.iter().nth(own)).copied();
            (*generation == 0 || own.is_some()).then_some((*generation, own))
        });
        let Some((generation, holder)) = newest else {
            let beyond = match self.rule {
                Rule::Vault { .. } => ": more nodes are lost than the vault bears",
                Rule::Copies(_) => "",
            };
            return self.roll_back(format!("no image of rank {index} is left{beyond}"), todo);
        };
        let from = holder.filter(|h| *h != at);
        // Images of the last incarnation that come to count only now could have the logs trimmed
        // that this one is going to replay.
        let late = std::mem::take(&mut rank.pending);
        rank.given_up = rank.given_up.max(late.keys().next_back().copied().unwrap_or(0));
        let discarded = late.keys().map(|g| Action::Discard { rank: index as u32, generation: *g });
        todo.extend(discarded);
        self.copying.retain(|c, _| c.0 != index as u32 || !late.contains_key(&c.1));
        rank.incarnation += 1;
        rank.phase = Phase::Restoring { at, generation, from };
        let (rank_number, incarnation) = (index as u32, rank.incarnation);
        let words = rank.words.clone();
        todo.push(Action::Home { rank: rank_number, at });
        todo.push(Action::Restore { rank: rank_number, incarnation, at, generation, from, words });
    }

    fn rank_died(&mut self, index: usize, incarnation: u32, todo: &mut Vec<Action>) {
        let rank = &self.ranks[index];
        if rank.incarnation != incarnation {
            return;
        }
        if self.units.are_one() {
            return self.roll_back(format!("rank {index} died"), todo);
        }
        if let Some(unit) = self.unit_of(index) {
            return self.mate_died(index, unit, todo);
        }
        match rank.phase {
            Phase::Up => self.restore_at(index, rank.home, todo),
            Phase::Restoring { at, .. } => self.restore_at(index, at, todo),
            _ => {}
        }
    }

    fn restored(&mut self, index: usize, incarnation: u32, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        if rank.incarnation != incarnation {
            return;
        }
        match rank.phase {
            Phase::Restoring { at, .. } => {
                rank.phase = Phase::Up;
                rank.home = at;
                rank.words = None;
                self.spares.remove(&at);
                self.forget_unfit(index as u32);
                self.preferences.forget(index as u32);
                self.arrives(index as u32, at);
            }
            Phase::Falling { at } => self.started_falling(index, at, todo),
            _ => {}
        }
    }

    /// Sees to it that each image lies on two nodes, if the vault does not keep them; those that
    /// are safe begin to count.
    fn balance(&mut self, todo: &mut Vec<Action>) {
        if !self.vaults() || self.leaving().next().is_some() {
            self.copy_more(todo);
        }
        let units = if self.ranks.is_empty() { BTreeSet::new() } else { self.units.all() };
        for unit in units {
            self.complete_safe(&self.units.ranks_of(unit), todo);
        }
    }

    fn roll_back(&mut self, why: String, todo: &mut Vec<Action>) {
        if !self.rolling_back {
            self.rolling_back = true;
            self.awaited.clear();
            self.copying.clear();
            todo.push(Action::RollBack { why });
        }
    }

    fn all_down(&mut self, members: Vec<Member>, todo: &mut Vec<Action>) {
        if self.units.are_one() && !self.ranks.is_empty() {
            return self.back(members, todo);
        }
        self.settle_on(members);
        if self.members.is_empty() {
            return todo.push(Action::Lost);
        }
        todo.push(Action::Members(self.members.clone()));
        self.begin(todo);
    }

    /// All begin anew on these nodes.
    fn settle_on(&mut self, members: Vec<Member>) {
        let spare = |m: &Member| self.spares.iter().any(|s| s.node == m.node);
        self.spares = members.iter().copied().filter(spare).collect();
        self.members = members;
        self.members.sort();
        self.rolling_back = false;
        self.copying.clear();
        self.awaited.clear();
        self.unfit.clear();
        if !self.units.are_one() {
            self.preferences = preferences::Preferences::default();
        }
        self.settle_leaves();
    }

    /// The controller was started again, with this state read from its log: says all that may have
    /// been lost on the way once more. Nodes answer what they have carried out already as before.
    pub fn resume(&mut self) -> Vec<Action> {
        let mut todo = vec![Action::Members(self.members.clone())];
        for (rank, r) in (0u32..).zip(&self.ranks) {
            let Some(at) = self.home(rank) else { continue };
            todo.push(Action::Home { rank, at });
            if let Phase::Restoring { at, generation, from } = r.phase {
                let (incarnation, words) = (r.incarnation, r.words.clone());
                todo.push(Action::Restore { rank, incarnation, at, generation, from, words });
            }
        }
        self.copying.clear();
        self.query(&mut todo);
        self.balance(&mut todo);
        todo
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
