//! Snapshots of ranks that come back alone (`--fallback-every`), around the real planner and
//! retention: ranks and nodes die, images are damaged, replays diverge, in any order.
//!
//! Modelled: what ranks do (a number that grows), disks, what nodes hold of each other's outcomes,
//! the controller that takes snapshots and has all return; in a third of the runs a vault, which
//! gives what no more than two of its nodes are gone of; in half of them nodes leave. A run is
//! right if whoever comes back is sent where its image is; if all return to one moment; if no
//! snapshot is given up whose images are there, and none relied on whose images are not; if no
//! image that is relied on goes with a node that leaves; and if at the end each image of it lies
//! on three nodes, or is guarded by all that guard it, and all ranks run.

mod leaving;

use crate::random::Random;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Action, Guard, Input, Planner, Rule, VAULT};
use eyrie_protocol::replicas::Answer;
use eyrie_protocol::retention::{Point, Retention};
use eyrie_protocol::units::{Extent, Units};
use leaving::Leaving;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// On how many nodes each image of a snapshot is to lie.
const COPIES: usize = 3;
const STEPS: u32 = 400;
/// Nodes of a vault that may be gone.
const VAULT_BEARS: usize = 2;

/// What a controller could do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Retention is not told that images are of a snapshot.
    NotKept,
    /// The planner is not told.
    NotPinned,
    /// Ranks go on before their images are those of one moment.
    Torn,
}

impl Mistake {
    pub const ALL: [Mistake; 3] = [Mistake::NotKept, Mistake::NotPinned, Mistake::Torn];
}

/// What was met.
#[derive(Debug, Default, Clone)]
pub struct Report {
    pub snapshots: u64,
    pub alone: u64,
    pub diverged: u64,
    pub beyond: u64,
    pub returns: u64,
    pub beginnings: u64,
    pub lost: u64,
    /// Images that came into the vault, and out of it.
    pub vaulted: u64,
    pub unvaulted: u64,
    /// Nodes that left.
    pub left: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.snapshots += other.snapshots;
        self.alone += other.alone;
        self.diverged += other.diverged;
        self.beyond += other.beyond;
        self.returns += other.returns;
        self.beginnings += other.beginnings;
        self.lost += other.lost;
        self.vaulted += other.vaulted;
        self.unvaulted += other.unvaulted;
        self.left += other.left;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { snapshots, alone, diverged, beyond, returns, beginnings, lost, .. } = self;
        write!(
            f,
            "{snapshots} snapshots, {lost} lost; {alone} ranks came back alone; {diverged} replays \
             diverged, {beyond} times more was lost than replicas bear: {returns} returns, \
             {beginnings} beginnings; {} images came into a vault, {} out of it; {} nodes left",
            self.vaulted, self.unvaulted, self.left
        )
    }
}

/// What is on its way.
#[derive(Debug, Clone)]
enum Event {
    Wrote { rank: u32, incarnation: u32, generation: u32, at: Vec<Member>, work: u64 },
    Fetch { rank: u32, incarnation: u32, at: Member, generation: u32, from: Option<Member> },
    Up { rank: u32, incarnation: u32, at: Member },
    Copy { rank: u32, generation: u32, from: Member, to: Member },
    Ask { to: Member, round: u64, ranks: Vec<u32> },
    Round { images: Vec<(u32, u32, Member)>, members: Vec<Member> },
    Guard { from: Member, round: u64 },
}

struct Rank {
    retention: Retention,
    /// Where it runs, and as which incarnation.
    runs: Option<(u32, Member)>,
    work: u64,
    writes: Option<u32>,
    /// It came back alone: its replay may diverge.
    alone: bool,
}

#[derive(Clone)]
struct Snapshot {
    generation: u32,
    works: Vec<u64>,
    left: BTreeSet<u32>,
}

/// What a rank had done by then, by rank and generation.
type Images = BTreeMap<(u32, u32), u64>;

/// What a rank had done by then, and which nodes guard it.
type Vault = BTreeMap<(u32, u32), (u64, Vec<Member>)>;

struct World {
    random: Random,
    mistake: Option<Mistake>,
    trace: bool,
    planner: Planner,
    /// Of each node its epoch, whether it lives, and its images.
    nodes: Vec<(u64, bool, Images)>,
    ranks: Vec<Rank>,
    on_the_way: Vec<Event>,
    under_way: Option<Snapshot>,
    kept: Option<Snapshot>,
    /// Who holds the outcomes of whom.
    in_step: BTreeMap<Member, BTreeSet<Member>>,
    /// Who is to come back with all others, from which snapshot (0: from the beginning), and what
    /// it had done by then.
    returning: BTreeMap<u32, (u32, u64)>,
    /// The incarnation that each rank was ordered as last.
    ordered: Vec<u32>,
    /// Copies of images that are bad.
    bad: BTreeSet<(Member, u32, u32)>,
    /// What the vault has, and which nodes guard it; none: images are copied.
    vault: Option<Vault>,
    leaving: Leaving,
    report: Report,
    is_over: bool,
}

type Done = Result<(), String>;

/// Runs a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let (nodes, ranks) = (3 + random.below(4) as u32, 2 + random.below(5) as u32);
    let map: Vec<u32> = (0..ranks).map(|rank| rank % nodes).collect();
    let retained = |_| Rank {
        retention: Retention::new(ranks),
        runs: None,
        work: 0,
        writes: None,
        alone: false,
    };
    let vaults = seed % 3 == 2;
    let rule = if vaults { Rule::Vault { least: VAULT_BEARS + 1 } } else { Rule::Copies(2) };
    let mut world = World {
        random,
        mistake,
        trace,
        vault: vaults.then(BTreeMap::new),
        planner: Planner::new(Units::new(Extent::Rank, &map, |node| node), map).with_rule(rule),
        nodes: (0..nodes).map(|_| (1, true, BTreeMap::new())).collect(),
        ranks: (0..ranks).map(retained).collect(),
        on_the_way: Vec::new(),
        under_way: None,
        kept: None,
        in_step: BTreeMap::new(),
        returning: (0..ranks).map(|rank| (rank, (0, 0))).collect(),
        ordered: vec![0; ranks as usize],
        bad: BTreeSet::new(),
        leaving: Leaving::new(seed),
        report: Report::default(),
        is_over: false,
    };
    world.run()?;
    Ok(world.report)
}

impl World {
    fn run(&mut self) -> Done {
        for member in self.members() {
            self.step(Input::Joined { member, spare: false })?;
        }
        self.keep_in_step();
        let todo = self.planner.start();
        self.carry_out(todo)?;
        for _ in 0..STEPS {
            if self.is_over {
                return Ok(());
            }
            self.something()?;
            self.leave_perhaps()?;
            self.check()?;
        }
        self.settle()
    }

    fn members(&self) -> Vec<Member> {
        let live = (0..).zip(&self.nodes).filter(|(_, n)| n.1);
        live.map(|(node, n)| Member { node, epoch: n.0 }).collect()
    }

    fn lives(&self, member: Member) -> bool {
        let (epoch, lives, _) = &self.nodes[member.node as usize];
        *lives && *epoch == member.epoch
    }

    fn image(&self, at: Member, rank: u32, generation: u32) -> Option<u64> {
        let node = &self.nodes[at.node as usize];
        self.lives(at).then(|| node.2.get(&(rank, generation)).copied()).flatten()
    }

    fn holders(&self, rank: u32, generation: u32) -> usize {
        let has = |m: &Member| self.image(*m, rank, generation).is_some();
        self.members().iter().filter(|m| has(m)).count()
    }

    /// What the vault gives of an image.
    fn given(&self, rank: u32, generation: u32) -> Option<u64> {
        let (work, guards) = self.vault.as_ref()?.get(&(rank, generation))?;
        let gone = guards.iter().filter(|m| !self.lives(**m)).count();
        (gone <= VAULT_BEARS).then_some(*work)
    }

    fn is_lost(&self, rank: u32, generation: u32) -> bool {
        self.holders(rank, generation) == 0 && self.given(rank, generation).is_none()
    }

    /// Brings into the vault what is to be there.
    fn begin_round(&mut self) {
        let under_way = |e: &Event| matches!(e, Event::Round { .. });
        let images = self.planner.unguarded();
        let waits = self.on_the_way.iter().any(under_way) || !self.planner.placed();
        if self.vault.is_some() && !waits && !images.is_empty() {
            let members = self.planner.keepers();
            self.on_the_way.push(Event::Round { images, members });
        }
    }

    /// All of it is there, or nothing.
    fn end_round(&mut self, images: &[(u32, u32, Member)], members: &[Member]) -> Done {
        let work = |(rank, generation, from): &(u32, u32, Member)| {
            Some(((*rank, *generation), self.image(*from, *rank, *generation)?))
        };
        let found: Option<Vec<_>> = images.iter().map(work).collect();
        let Some(found) = found.filter(|_| members.iter().all(|m| self.lives(*m))) else {
            return Ok(());
        };
        for ((rank, generation), work) in found {
            let entry = (work, members.to_vec());
            self.vault.iter_mut().for_each(|v| drop(v.insert((rank, generation), entry.clone())));
            self.report.vaulted += 1;
            let guards = vec![Guard { members: members.to_vec(), tolerates: VAULT_BEARS }];
            self.step(Input::Vaulted { rank, generation, guards })?;
        }
        Ok(())
    }

    fn keep(&mut self, at: Member, rank: u32, generation: u32, work: u64) {
        self.bad.remove(&(at, rank, generation));
        self.nodes[at.node as usize].2.insert((rank, generation), work);
    }

    fn remove(&mut self, rank: u32, generations: &[u32]) {
        for (_, _, disk) in &mut self.nodes {
            disk.retain(|image, _| image.0 != rank || !generations.contains(&image.1));
        }
        if let Some(vault) = &mut self.vault {
            vault.retain(|image, _| image.0 != rank || !generations.contains(&image.1));
        }
    }

    /// Each node's outcomes lie on the next one, too.
    fn keep_in_step(&mut self) {
        let members = self.members();
        for holders in self.in_step.values_mut() {
            holders.retain(|m| members.contains(m));
        }
        members.into_iter().for_each(|member| self.keep_one_in_step(member));
    }

    /// Its outcomes lie on the next node that stays, if one does.
    fn keep_one_in_step(&mut self, member: Member) {
        let members = self.members();
        let at = members.iter().position(|m| *m == member).unwrap_or(0);
        let ring = || (1..=members.len()).map(|n| members[(at + n) % members.len()]);
        let stays = |m: &Member| *m != member && self.planner.leaves(m).is_none();
        let next = ring().find(stays).or(ring().next());
        self.in_step.insert(member, next.into_iter().chain([member]).collect());
    }

    fn step(&mut self, input: Input) -> Done {
        if self.trace {
            println!("{input:?}");
        }
        let todo = self.planner.step(input);
        self.carry_out(todo)
    }

    /// Chance has it.
    fn something(&mut self) -> Done {
        let rank = self.random.below(self.ranks.len() as u64) as u32;
        match self.random.below(100) {
            0..50 => self.deliver(),
            50..70 => {
                let stands = |rank: u32| self.leaving.stands(rank);
                let all =
                    (0..).zip(&mut self.ranks).filter(|(n, r)| r.runs.is_some() && !stands(*n));
                all.for_each(|(_, r)| r.work += 1);
                self.checkpoint(rank);
                Ok(())
            }
            70..82 => self.snapshot(),
            82..88 => self.rank_dies(rank),
            88..90 => self.diverges(),
            90..93 => self.node_dies(),
            93..95 => self.damage(rank),
            95..99 => self.node_joins(),
            _ => self.step(Input::Tick),
        }
    }

    fn deliver(&mut self) -> Done {
        self.begin_round();
        if self.on_the_way.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.on_the_way.len() as u64) as usize;
        let event = self.on_the_way.swap_remove(at);
        if self.trace {
            println!("  {event:?}");
        }
        match event {
            Event::Wrote { rank, incarnation, generation, at, work } => {
                let r = &mut self.ranks[rank as usize];
                r.writes.take_if(|g| *g == generation);
                let work = if self.mistake == Some(Mistake::Torn) { r.work } else { work };
                let at: Vec<Member> = at.into_iter().filter(|m| self.lives(*m)).collect();
                for member in &at {
                    self.keep(*member, rank, generation, work);
                }
                self.step(Input::Stored { rank, incarnation, generation, at })
            }
            Event::Fetch { rank, incarnation, at, generation, from } => {
                self.fetch(rank, incarnation, at, generation, from)
            }
            Event::Up { rank, incarnation, at } => {
                if self.lives(at) && self.ordered[rank as usize] == incarnation {
                    self.ranks[rank as usize].runs = Some((incarnation, at));
                    self.step(Input::Restored { rank, incarnation })?;
                }
                Ok(())
            }
            Event::Copy { rank, generation, from, to } => {
                let image = self.image(from, rank, generation).filter(|_| self.lives(to));
                let Some(work) = image else {
                    return self.step(Input::NotCopied { rank, generation, to });
                };
                self.keep(to, rank, generation, work);
                self.step(Input::Stored { rank, incarnation: 0, generation, at: vec![to] })
            }
            Event::Round { images, members } => self.end_round(&images, &members),
            Event::Guard { from, round } => {
                if self.lives(from) {
                    self.keep_one_in_step(from);
                    self.step(Input::Guarded { from, round })?;
                }
                Ok(())
            }
            Event::Ask { to, round, ranks } => {
                let with = |h: &(&Member, &BTreeSet<Member>)| h.1.contains(&to);
                let in_step = self.in_step.iter().filter(with).map(|h| *h.0).collect();
                let held = ranks.into_iter().map(|rank| (rank, Default::default())).collect();
                let answer = Answer { held, in_step, partly: false };
                self.step(Input::Answered { from: to, round, answer })
            }
        }
    }

    fn fetch(
        &mut self,
        rank: u32,
        incarnation: u32,
        at: Member,
        generation: u32,
        from: Option<Member>,
    ) -> Done {
        let given = self.given(rank, generation).filter(|_| from == Some(VAULT));
        let gives = from.is_none_or(|from| from == VAULT || self.lives(from));
        let lives = self.lives(at) && gives;
        if !lives || self.ordered[rank as usize] != incarnation {
            return Ok(());
        }
        let found = self.image(at, rank, generation);
        let node = from.filter(|from| *from != VAULT);
        let found = found.or_else(|| node.and_then(|from| self.image(from, rank, generation)));
        self.report.unvaulted += u64::from(found.is_none() && given.is_some());
        let found = found.or(given);
        if generation > 0 {
            let Some(work) = found else {
                let source = from.unwrap_or(at);
                if self.bad.contains(&(source, rank, generation)) {
                    return self.step(Input::ImageBad {
                        rank,
                        incarnation,
                        generation,
                        at: source,
                    });
                }
                return Err(format!("rank {rank}: no image {generation} at {at} nor at {from:?}"));
            };
            self.keep(at, rank, generation, work);
            self.step(Input::Stored { rank, incarnation, generation, at: vec![at] })?;
        }
        let all = self.returning.remove(&rank);
        let r = &mut self.ranks[rank as usize];
        r.alone = all.is_none();
        match all {
            None => self.report.alone += 1,
            Some((generation, work)) if generation == 0 || found == Some(work) => r.work = work,
            Some(_) => {
                return Err(format!("rank {rank} is not at the moment of the others: {found:?}"));
            }
        }
        self.step(Input::Starting { rank, incarnation })?;
        self.on_the_way.push(Event::Up { rank, incarnation, at });
        Ok(())
    }

    fn carry_out(&mut self, todo: Vec<Action>) -> Done {
        for action in todo {
            if self.trace {
                println!("    {action:?}");
            }
            match action {
                Action::Members(_) | Action::Home { .. } => {}
                Action::Query { to, round, ranks } => {
                    self.on_the_way.push(Event::Ask { to, round, ranks });
                }
                Action::Restore { rank, incarnation, at, generation, from, .. } => {
                    if self.returning.get(&rank).is_some_and(|g| g.0 != generation) {
                        return Err(format!(
                            "rank {rank} comes back from {generation}, not as all"
                        ));
                    }
                    self.ordered[rank as usize] = incarnation;
                    self.on_the_way.push(Event::Fetch { rank, incarnation, at, generation, from });
                }
                Action::Copy { rank, generation, from, to } => {
                    self.on_the_way.push(Event::Copy { rank, generation, from, to });
                }
                Action::Complete { rank, generation } => self.counts(rank, generation)?,
                Action::Discard { rank, generation } => {
                    self.remove(rank, &[generation]);
                    self.leaving.discarded(rank, generation);
                    self.under_way.take_if(|u| u.generation == generation);
                }
                Action::Damaged { rank, generation } => {
                    let gone = self.ranks[rank as usize].retention.damaged(generation);
                    self.remove(rank, &gone);
                }
                Action::Unpinned { generation, rank } => self.unpinned(generation, rank)?,
                Action::RollBack { .. } => {
                    self.report.beyond += 1;
                    return self.return_all();
                }
                Action::Lost => self.is_over = true,
                other => self.carry_out_leave(other)?,
            }
        }
        Ok(())
    }

    /// An image counts.
    fn counts(&mut self, rank: u32, generation: u32) -> Done {
        self.leaving.counts(rank, generation);
        let (size, r) = (self.ranks.len() as u32, &mut self.ranks[rank as usize]);
        let kept = |r: &Retention| r.newest_first().map(|k| k.generation).collect::<Vec<_>>();
        let before = kept(&r.retention);
        let gone = r.retention.complete(generation, Point::start(size), Vec::new());
        let after = kept(&r.retention);
        self.remove(rank, &gone);
        for generation in before.into_iter().filter(|g| !after.contains(g)) {
            self.step(Input::Dropped { rank, generation })?;
        }
        let Some(under_way) = &mut self.under_way else { return Ok(()) };
        if under_way.generation == generation {
            under_way.left.remove(&rank);
        }
        let Some(snapshot) = self.under_way.take_if(|u| u.left.is_empty()) else { return Ok(()) };
        let generation = snapshot.generation;
        let is_newest = |r: &Rank| r.retention.newest().is_some_and(|k| k.generation == generation);
        if !self.ranks.iter().all(is_newest) {
            return Ok(());
        }
        let old = self.kept.replace(snapshot);
        if self.mistake != Some(Mistake::NotKept) {
            self.ranks.iter_mut().for_each(|r| r.retention.pin(generation));
        }
        self.report.snapshots += 1;
        if let Some(old) = old {
            self.let_go(old.generation)?;
        }
        if self.mistake == Some(Mistake::NotPinned) {
            return Ok(());
        }
        self.step(Input::Pin { generation })
    }

    fn let_go(&mut self, generation: u32) -> Done {
        for rank in 0..self.ranks.len() as u32 {
            let gone = self.ranks[rank as usize].retention.unpin(generation);
            self.remove(rank, &gone);
        }
        self.step(Input::Unpin { generation })
    }

    fn unpinned(&mut self, generation: u32, rank: u32) -> Done {
        if !self.is_lost(rank, generation) {
            return Err(format!(
                "snapshot {generation} is given up, and rank {rank}'s image is there"
            ));
        }
        if self.kept.take_if(|s| s.generation == generation).is_some() {
            self.report.lost += 1;
            return self.let_go(generation);
        }
        Ok(())
    }

    /// No process is left, and all nodes begin anew.
    fn return_all(&mut self) -> Done {
        self.on_the_way.clear();
        self.leaving.forget_all();
        (self.under_way, self.returning) = (None, BTreeMap::new());
        for r in &mut self.ranks {
            (r.runs, r.writes, r.alone) = (None, None, false);
        }
        let before = self.members();
        self.nodes.iter_mut().filter(|n| n.1).for_each(|n| n.0 += 1);
        for (_, guards) in self.vault.iter_mut().flat_map(BTreeMap::values_mut) {
            guards.iter_mut().filter(|m| before.contains(m)).for_each(|m| m.epoch += 1);
        }
        self.in_step.clear();
        self.keep_in_step();
        let (members, size) = (self.members(), self.ranks.len() as u32);
        if let Some(generation) = self.kept.as_ref().map(|s| s.generation) {
            let truly = (0..size).find(|rank| self.is_lost(*rank, generation));
            if self.planner.lacks_on(generation, &members) != truly {
                return Err(format!("of snapshot {generation} truly {truly:?} is lost"));
            }
            if truly.is_none() {
                for rank in 0..size {
                    let gone = self.ranks[rank as usize].retention.go_back(generation);
                    self.remove(rank, &gone);
                }
                self.report.returns += 1;
                let works = self.kept.iter().flat_map(|s| s.works.iter().copied());
                self.returning =
                    (0..size).zip(works).map(|(rank, work)| (rank, (generation, work))).collect();
                return self.step(Input::Return { generation, members });
            }
            self.kept = None;
            self.report.lost += 1;
            self.let_go(generation)?;
        }
        self.report.beginnings += 1;
        self.returning = (0..size).map(|rank| (rank, (0, 0))).collect();
        self.ranks.iter_mut().for_each(|r| r.retention.restart());
        self.nodes.iter_mut().for_each(|n| n.2.clear());
        self.vault.iter_mut().for_each(BTreeMap::clear);
        self.step(Input::AllDown { members })
    }

    /// The home of a rank, and the next, if images are copied.
    fn places(&self, home: Member) -> Vec<Member> {
        if self.planner.vaults() {
            return vec![home];
        }
        let members = self.members();
        let next =
            members.iter().position(|m| *m == home).map(|n| members[(n + 1) % members.len()]);
        let mut at = vec![home];
        at.extend(next.filter(|m| *m != home));
        at
    }

    fn checkpoint(&mut self, rank: u32) {
        let r = &mut self.ranks[rank as usize];
        let Some((incarnation, home)) = r.runs else { return };
        if r.writes.is_some() || self.under_way.is_some() || self.leaving.stands(rank) {
            return;
        }
        let (generation, work) = (r.retention.begin(), r.work);
        r.writes = Some(generation);
        let at = self.places(home);
        self.on_the_way.push(Event::Wrote { rank, incarnation, generation, at, work });
    }

    fn snapshot(&mut self) -> Done {
        let still = self.ranks.iter().all(|r| r.runs.is_some() && r.writes.is_none());
        if !still || !self.planner.only_detained() || self.under_way.is_some() {
            return Ok(());
        }
        let begun = self.ranks.iter_mut().map(|r| r.retention.begin());
        let generation = begun.max().unwrap_or(1);
        let works = self.ranks.iter().map(|r| r.work).collect();
        let left = (0..self.ranks.len() as u32).collect();
        self.under_way = Some(Snapshot { generation, works, left });
        for rank in 0..self.ranks.len() as u32 {
            let r = &mut self.ranks[rank as usize];
            r.retention.skip_to(generation);
            (r.writes, r.alone) = (Some(generation), false);
            let (work, runs) = (r.work, r.runs);
            let Some((incarnation, home)) = runs else { continue };
            let at = self.places(home);
            self.on_the_way.push(Event::Wrote { rank, incarnation, generation, at, work });
        }
        Ok(())
    }

    /// A process is no more.
    fn ends(&mut self, rank: u32) {
        let r = &mut self.ranks[rank as usize];
        (r.runs, r.writes) = (None, None);
        self.leaving.forget(rank);
        let own = |e: &Event| matches!(e, Event::Wrote { rank: of, .. } if *of == rank);
        self.on_the_way.retain(|e| !own(e));
        self.under_way.take_if(|u| u.left.contains(&rank));
    }

    fn rank_dies(&mut self, rank: u32) -> Done {
        let Some((incarnation, _)) = self.ranks[rank as usize].runs else { return Ok(()) };
        self.ends(rank);
        self.step(Input::RankDied { rank, incarnation })
    }

    fn diverges(&mut self) -> Done {
        if !self.ranks.iter().any(|r| r.alone && r.runs.is_some()) {
            return Ok(());
        }
        self.report.diverged += 1;
        self.return_all()
    }

    fn node_dies(&mut self) -> Done {
        let members = self.members();
        // One death in three takes the node after it along.
        let count = if self.random.one_in(3) { 2 } else { 1 };
        let first = self.random.below(members.len() as u64) as usize;
        let dead: Vec<Member> = (0..count).map(|n| members[(first + n) % members.len()]).collect();
        if dead.len() >= members.len() {
            return Ok(());
        }
        for member in &dead {
            self.nodes[member.node as usize].1 = false;
            self.nodes[member.node as usize].2.clear();
        }
        for rank in 0..self.ranks.len() as u32 {
            if self.ranks[rank as usize].runs.is_some_and(|(_, at)| dead.contains(&at)) {
                self.ends(rank);
            }
        }
        for holders in self.in_step.values_mut() {
            holders.retain(|m| !dead.contains(m));
        }
        for member in dead {
            let before = self.members();
            self.step(Input::NodeDied { member })?;
            if self.members() != before {
                // All have returned meanwhile, without it.
                break;
            }
        }
        self.keep_in_step();
        Ok(())
    }

    fn node_joins(&mut self) -> Done {
        let gone = (0..self.nodes.len()).filter(|n| !self.nodes[*n].1).collect::<Vec<_>>();
        let Some(node) = self.random.pick(&gone) else { return Ok(()) };
        let (epoch, lives, _) = &mut self.nodes[node];
        (*epoch, *lives) = (*epoch + 1, true);
        let member = Member { node: node as u32, epoch: *epoch };
        self.keep_in_step();
        self.step(Input::Joined { member, spare: false })
    }

    /// A copy of an image turns out to be bad.
    fn damage(&mut self, rank: u32) -> Done {
        let mut there = Vec::new();
        for at in self.members() {
            let disk = &self.nodes[at.node as usize].2;
            there.extend(disk.keys().filter(|k| k.0 == rank).map(|k| (at, k.1)));
        }
        let Some((at, generation)) = self.random.pick(&there) else { return Ok(()) };
        self.nodes[at.node as usize].2.remove(&(rank, generation));
        self.bad.insert((at, rank, generation));
        self.step(Input::ImageBad { rank, incarnation: 0, generation, at })
    }

    /// What is relied on is there.
    fn check(&self) -> Done {
        let Some(kept) = &self.kept else { return Ok(()) };
        for rank in 0..self.ranks.len() as u32 {
            if self.is_lost(rank, kept.generation) {
                return Err(format!("snapshot {}: rank {rank}'s is gone, untold", kept.generation));
            }
        }
        match self.planner.lacks_on(kept.generation, &self.members()) {
            Some(rank) => Err(format!("snapshot {}: rank {rank}'s is not known", kept.generation)),
            None => Ok(()),
        }
    }

    /// Nothing happens any more but what is on its way.
    fn settle(&mut self) -> Done {
        for _ in 0..2_000 {
            if self.on_the_way.is_empty() {
                self.step(Input::Tick)?;
                self.begin_round();
                self.tend_leaves(false)?;
                if self.on_the_way.is_empty() {
                    break;
                }
            }
            self.deliver()?;
            self.tend_leaves(false)?;
            self.check()?;
        }
        self.check_left()?;
        if let Some(rank) = self.ranks.iter().position(|r| r.runs.is_none()) {
            return Err(format!("rank {rank} does not come back"));
        }
        let enough = COPIES.min(self.members().len());
        let Some(generation) = self.kept.as_ref().map(|s| s.generation) else { return Ok(()) };
        for rank in 0..self.ranks.len() as u32 {
            let there = self.holders(rank, generation);
            let guards = self.vault.iter().flat_map(|v| v.get(&(rank, generation)));
            let whole = guards.flat_map(|g| &g.1).all(|m| self.lives(*m));
            let given = self.given(rank, generation).is_some();
            let guarded = given && (there == 0 || (self.planner.vaults() && whole));
            if there < enough && !guarded {
                return Err(format!(
                    "rank {rank}'s of {generation} is on {there} nodes at the end"
                ));
            }
        }
        Ok(())
    }
}
