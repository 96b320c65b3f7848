//! What must hold, checked from outside by what nobody in the simulated job knows: what every rank
//! really recorded, what depends on it, and how much was broken at one time.

use crate::program::{self, Outcome};
use crate::segment;
use crate::types::Depends;
use crate::world::World;
use eyrie_protocol::membership::Member;
use eyrie_protocol::replicas::Words;
use std::collections::{BTreeMap, BTreeSet};

/// What really happened.
#[derive(Clone)]
pub struct Truth {
    /// All that each rank recorded, from its beginning on, as far as it was not lost.
    history: Vec<Vec<u64>>,
    incarnation: Vec<u32>,
    /// What the controller has printed or counts on depends on so many outcomes of each rank.
    outside: Vec<u64>,
    images: BTreeMap<(u32, u32), Depends>,
    /// Nodes lost since all was whole the last time; before the first time one more.
    pub deaths: u64,
    /// So many may be lost then.
    pub bears: u64,
    /// Recovery units of which a rank or the node was ever lost.
    pub hurt: BTreeSet<u32>,
}

impl Truth {
    pub fn new(ranks: u32, bears: u64) -> Self {
        Truth {
            history: vec![Vec::new(); ranks as usize],
            // What runs before a rank was ordered does not count.
            incarnation: vec![u32::MAX; ranks as usize],
            outside: vec![0; ranks as usize],
            images: BTreeMap::new(),
            deaths: bears,
            bears,
            hurt: BTreeSet::new(),
        }
    }

    /// Everything begins anew.
    pub fn restart(&mut self) {
        let deaths = self.deaths + self.bears;
        *self = Truth { deaths, ..Truth::new(self.history.len() as u32, self.bears) };
    }

    /// A rank recorded an outcome. Those of incarnations that have a successor do not count.
    pub fn recorded(&mut self, rank: u32, incarnation: u32, outcome: Result<u32, u64>) {
        if self.incarnation[rank as usize] != incarnation {
            return;
        }
        let words = &mut self.history[rank as usize];
        match (outcome, words.last_mut()) {
            (Ok(source), _) => words.push(segment::word_of(source)),
            (Err(_), Some(last)) if segment::read_word(*last).is_err() => *last += 1,
            (Err(_), _) => words.push(segment::RUN | 1),
        }
    }

    /// Whether a process of a rank has a successor.
    pub fn is_succeeded(&self, rank: u32, incarnation: u32) -> bool {
        let last = self.incarnation[rank as usize];
        last != u32::MAX && incarnation < last
    }

    /// Of ranks that go back together: this one does to an image of it, or to the beginning (0), so
    /// that what it recorded since counts for nothing.
    pub fn goes_back(&mut self, rank: u32, incarnation: u32, generation: u32) {
        let image = self.images.get(&(rank, generation));
        let mut left = image.map_or(0, |depends| depends[rank as usize]);
        let words = std::mem::take(&mut self.history[rank as usize]);
        for word in words {
            let count = segment::read_word(word).err().unwrap_or(1);
            let kept = count.min(left);
            left -= kept;
            let part = if kept < count { segment::RUN | kept } else { word };
            self.history[rank as usize].extend((kept > 0).then_some(part));
        }
        self.incarnation[rank as usize] = incarnation;
    }

    /// All ranks go on from where they stood: what they did since matters to nobody.
    pub fn forget_outside(&mut self) {
        self.outside.fill(0);
    }

    pub fn prints(&mut self, depends: &Depends) {
        for (out, n) in self.outside.iter_mut().zip(depends.iter()) {
            *out = (*out).max(*n);
        }
    }

    pub fn stored(&mut self, rank: u32, generation: u32, depends: &Depends) {
        self.images.insert((rank, generation), depends.clone());
    }

    /// Whether more was lost at once than is to be survived.
    pub fn may_roll_back(&self) -> bool {
        self.deaths > self.bears
    }

    pub fn outcomes(&self, rank: usize) -> Vec<Outcome> {
        let mut all = Vec::new();
        for word in &self.history[rank] {
            match segment::read_word(*word) {
                Ok(source) => all.push(Outcome::Source(source)),
                Err(count) => all.extend((0..count).map(|_| Outcome::Nothing)),
            }
        }
        all
    }
}

impl World {
    /// A rank is brought back with these determinants: what it loses must not matter to anybody.
    pub fn check_restore(
        &mut self,
        rank: u32,
        incarnation: u32,
        words: Option<&Words>,
        least: u64,
    ) {
        let index = rank as usize;
        self.check_hurt(rank, incarnation);
        self.truth.incarnation[index] = incarnation;
        let Some(words) = words else { return };
        let history = &mut self.truth.history[index];
        let before = segment::outcomes(history);
        let end = words.end().max(least) as usize;
        if end > history.len() {
            return self.fail(format!("rank {rank} has more determinants than it recorded"));
        }
        for (at, word) in (words.first as usize..).zip(&words.words) {
            let grows = at + 1 == end && segment::read_word(*word).is_err();
            if history[at] != *word && !(grows && history[at] > *word) {
                return self.fail(format!("determinant {at} of rank {rank} is not what it was"));
            }
        }
        history.truncate(end);
        if let (Some(last), Some(word)) = (history.last_mut(), words.words.last()) {
            *last = *word;
        }
        let now = segment::outcomes(history);
        if now < before {
            self.trace(|| format!("rank {rank} loses {} outcomes", before - now));
            self.check_orphans(index, now);
        }
    }

    /// Nobody who goes on depends on more than the first `kept` outcomes of a rank.
    fn check_orphans(&mut self, rank: usize, kept: u64) {
        let mut orphans = Vec::new();
        if self.truth.outside[rank] > kept {
            orphans.push(String::from("what was printed"));
        }
        for member in self.controller.planner.members() {
            let Some(node) = self.nodes.get(member) else { continue };
            let procs = node.procs.iter().filter(|p| p.1.depends[rank] > kept);
            orphans.extend(procs.map(|p| format!("rank {} on {member}", p.0)));
            for (channel, stream) in &node.segment.streams {
                let known = stream.messages.values().any(|m| m.depends[rank] > kept);
                if known {
                    orphans.push(format!("a message of {channel:?} on {member}"));
                }
            }
        }
        for (index, retention) in (0u32..).zip(&self.controller.retention) {
            for kept_image in retention.newest_first() {
                let depends = self.truth.images.get(&(index, kept_image.generation));
                if depends.is_some_and(|d| d[rank] > kept) {
                    orphans.push(format!("image {} of rank {index}", kept_image.generation));
                }
            }
        }
        if let Some(first) = orphans.first() {
            self.fail(format!("orphan: {first} depends on lost determinants of rank {rank}"));
        }
    }

    /// A checkpoint begins to count: it must lie in the vault, if there is one, or on two nodes,
    /// dead ones that nobody has noticed included. `few`: there may have been too few nodes for
    /// the vault. `had`: there were enough when the turn began. Who began to leave after the image
    /// came to count in the same turn does not count: the vault has it all the same.
    pub fn check_copies(&mut self, rank: u32, generation: u32, few: bool, had: bool) {
        let vaulted = self.vault.contains_key(&(rank, generation));
        if had && vaulted {
            return;
        }
        if self.controller.planner.vaults() {
            if !vaulted && !few {
                self.fail(format!("image {generation} of rank {rank} counts before it is safe"));
            }
            if vaulted || !few {
                return;
            }
        }
        let members = self.controller.planner.members();
        let has = |m: &&Member| {
            self.nodes.get(m).is_none_or(|n| n.disk.contains_key(&(rank, generation)))
        };
        // Those that go in the same step are there until then.
        let stay = members.iter().filter(|m| !self.going.contains(m)).count();
        let all: BTreeSet<&Member> = members.iter().chain(&self.going).collect();
        let only_given = self.is_only_given(&(rank, generation));
        if all.into_iter().filter(has).count() < 2.min(stay.max(1)) && !only_given {
            self.fail(format!(
                "image {generation} of rank {rank} counts with less than two copies"
            ));
        }
    }

    /// A rank is about to start: it must not run anywhere else.
    pub fn check_alone(&mut self, at: Member, rank: u32) {
        let members = self.controller.planner.members();
        if !members.contains(&at) {
            return;
        }
        // One that has ended on a lost node is not waited for where all go back together.
        let counts = |p: &crate::node::Proc| !(self.together || self.shares) || !p.done;
        let runs = |n: &crate::node::Node| n.procs.get(&rank).is_some_and(counts);
        let twin = |m: &&Member| **m != at && self.nodes.get(m).is_some_and(runs);
        // The controller waits until nothing of a lost node runs any more.
        let all: Vec<Member> = self.nodes.keys().copied().collect();
        if let Some(other) = all.iter().find(twin).copied() {
            self.fail(format!("rank {rank} is started on {at} and runs on {other}"));
        }
    }

    /// Whether any one node could be lost now without loss of more than time.
    pub fn is_whole(&mut self) -> bool {
        let members = self.controller.planner.members().to_vec();
        let mut whole = self.controller.planner.takers().len() > 1
            && self.controller.planner.settled()
            && !self.controller.is_busy
            && self.nodes.keys().copied().eq(members.iter().copied());
        let replicas = self.replicas.min(members.len().saturating_sub(1));
        for (member, node) in &mut self.nodes {
            // Who has lost the controller's connection is lost, as soon as that is noticed.
            let cut = |c: &crate::net::Conn| c.blocked || c.broken;
            let conn = self.controller.conns.get(member);
            let blocked = conn.is_none_or(|c| cut(&self.conns[*c]));
            let ticket = node.gate.sample(&node.segment);
            whole &= !blocked
                && node.members == members
                && node.gate.replicas().count() >= replicas
                && node.gate.may_leave(ticket, None)
                && node.disk.values().all(|s| !s.bad);
        }
        if self.controller.planner.vaults() {
            return whole;
        }
        for (rank, retention) in (0u32..).zip(&self.controller.retention) {
            for generation in retention.newest_first().map(|k| k.generation).filter(|g| *g > 0) {
                let there = |n: &&crate::node::Node| n.disk.contains_key(&(rank, generation));
                whole &= self.nodes.values().filter(there).count() >= 2.min(members.len());
            }
        }
        whole
    }

    /// What a node holds that nobody needs any more: messages to a rank before `need`, determinants
    /// of it before `det_pos`.
    pub fn untrimmed(
        &self,
        member: Member,
        rank: u32,
        need: &[u64],
        det_pos: u64,
    ) -> Option<String> {
        let node = self.nodes.get(&member)?;
        for (channel, stream) in node.segment.streams.iter().filter(|s| s.0.1 == rank) {
            let need = need.get(program::slot(channel.0, channel.2)).copied().unwrap_or(0);
            if stream.messages.keys().next().is_some_and(|first| *first < need) {
                return Some(format!("the log of {channel:?} on {member} is not trimmed"));
            }
        }
        let held = node.replicas.answer(&[rank]).held.remove(&rank).unwrap_or_default();
        let late = !held.words.is_empty() && held.first < det_pos;
        late.then(|| format!("determinants of rank {rank} on {member} are not trimmed"))
    }

    /// What ranks of a unit have received of each other is not kept.
    pub fn check_inner(&self) -> Result<(), String> {
        for (member, node) in &self.nodes {
            for (channel, stream) in node.segment.streams.iter().filter(|s| self.is_inner(*s.0)) {
                let Some(proc) = node.procs.get(&channel.1) else { continue };
                if self.is_spread() && proc.incarnation > 1 {
                    // What it brought with it may be more, as its sender's node had not heard yet
                    // what it had received at the snapshot.
                    continue;
                }
                let next = proc.state.next(channel.0, channel.2);
                if stream.messages.keys().next().is_some_and(|first| *first < next) {
                    return Err(format!("{member} keeps what is received of {channel:?}"));
                }
            }
        }
        Ok(())
    }

    pub fn where_it_stands(&self) -> String {
        let mut text = format!("done {:?}", self.controller.done.keys().collect::<Vec<_>>());
        for (member, node) in &self.nodes {
            text += &format!("; {member}: orders {:?}", node.orders.keys().collect::<Vec<_>>());
            for (rank, proc) in &node.procs {
                let op = self.programs[*rank as usize].get(proc.state.at);
                text += &format!(", rank {rank} at {} {op:?}", proc.state.at);
                let still = [
                    ("waits", proc.waits),
                    ("held", proc.held),
                    ("stands", proc.stands),
                    ("halted", proc.suspended),
                ];
                let still = still.iter().filter(|s| s.1).map(|s| s.0);
                text += &still.map(|word| format!(" ({word})")).collect::<String>();
            }
            text += &self.streams_at(*member);
        }
        text
    }

    /// The streams to ranks that have not ended, as one node has them: from where on it lies there
    /// and up to where it was received, and from where on others want it.
    fn streams_at(&self, at: Member) -> String {
        let node = &self.nodes[&at];
        let unended = |to: u32| !self.controller.done.contains_key(&to);
        let mut text = String::new();
        for (channel, stream) in node.segment.streams.iter().filter(|s| unended(s.0.1)) {
            let (from, to, kind) = channel;
            let ends = [stream.messages.keys().next(), stream.messages.keys().next_back()];
            let [Some(first), Some(last)] = ends else { continue };
            text += &format!(", stream {from}>{to}:{kind} {first}..={last}");
            let next = node.procs.get(to).map(|p| p.state.next(*from, *kind));
            text += &next.map_or_else(String::new, |next| format!(" read to {next}"));
            let (count, floor) = (stream.messages.len(), node.floor(*channel));
            text += &format!(" of {count} taken {} floor {floor}", stream.taken);
        }
        for (peer, link) in &node.peers {
            for ((from, to, kind), next) in link.next.iter().filter(|n| unended(n.0.1)) {
                text += &format!(", {peer} wants {from}>{to}:{kind} from {next}");
            }
        }
        text
    }
}
