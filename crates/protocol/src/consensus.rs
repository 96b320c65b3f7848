//! Uniform agreement among the members of a group of which any number may fail meanwhile: what
//! `MPI_Comm_agree` and `MPI_Comm_shrink` decide by.
//!
//! Members are told of failures, never wrongly, each at its own time. What is sent between two that
//! live arrives, in order; what a member has sent that fails may be lost.
//!
//! Two phases over a tree. Contributions go up to the first member that lives, which chooses a
//! value. All *lock* it, and acknowledgements go up. When all have it, it is decided, and the
//! decision goes down. A member returns as soon as it has the decision, and goes on telling others.
//!
//! Kept true: a value is decided when every member that lives has locked it under one *ballot*, the
//! number of the member that chose it. If that one fails, the next one that lives has locked it,
//! too, and takes it over; nobody locks anything for a ballot before the one that it knows of. So
//! all that decide, also those that fail afterwards, decide the same. Contributions are merged, and
//! merging one twice changes nothing, so nobody counts them.
//!
//! The tree re-forms by itself: the parent of a member is its nearest ancestor in a fixed binary
//! tree that lives, else the first member. Who has another parent tells that one all it knows; who
//! has another child tells it what it told the others.

/// A value that contributions are merged to; in whichever order, however often.
pub trait Value: Clone {
    fn merge(&mut self, other: &Self);
    /// These have failed, as whoever chooses the value knows.
    fn without(&mut self, failed: &Members);
}

/// Some of the members of a group, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(Vec<u64>);

impl Members {
    /// None of so many.
    pub fn none(size: u32) -> Members {
        Members(vec![0; size.div_ceil(u64::BITS) as usize])
    }

    pub fn all(size: u32) -> Members {
        let mut all = Members::none(size);
        (0..size).for_each(|m| all.insert(m));
        all
    }

    /// As `words` gave them. Bits beyond the group are dropped.
    pub fn of_words(words: &[u64], size: u32) -> Members {
        let mut members = Members::none(size);
        for (own, word) in members.0.iter_mut().zip(words) {
            *own = *word;
        }
        let all = Members::all(size);
        members.0.iter_mut().zip(&all.0).for_each(|(own, all)| *own &= all);
        members
    }

    pub fn words(&self) -> &[u64] {
        &self.0
    }

    pub fn insert(&mut self, member: u32) {
        if let Some(word) = self.0.get_mut((member / u64::BITS) as usize) {
            *word |= 1 << (member % u64::BITS);
        }
    }

    pub fn remove(&mut self, member: u32) {
        if let Some(word) = self.0.get_mut((member / u64::BITS) as usize) {
            *word &= !(1 << (member % u64::BITS));
        }
    }

    pub fn contains(&self, member: u32) -> bool {
        let word = self.0.get((member / u64::BITS) as usize);
        word.is_some_and(|w| w >> (member % u64::BITS) & 1 != 0)
    }

    pub fn add(&mut self, others: &Members) {
        self.0.iter_mut().zip(&others.0).for_each(|(own, other)| *own |= other);
    }

    /// Those that are in both stay.
    pub fn keep(&mut self, others: &Members) {
        self.0.iter_mut().zip(&others.0).for_each(|(own, other)| *own &= other);
    }

    pub fn are_in(&self, others: &Members) -> bool {
        self.0.iter().zip(&others.0).all(|(own, other)| own & !other == 0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.0).flat_map(|(at, word)| {
            (0..u64::BITS)
                .filter(move |bit| word >> bit & 1 != 0)
                .map(move |bit| at * u64::BITS + bit)
        })
    }
}

/// From one member to another.
#[derive(Debug, Clone, PartialEq)]
pub enum Message<V> {
    /// What these have contributed.
    Given {
        who: Members,
        value: V,
    },
    Lock {
        ballot: u32,
        value: V,
    },
    /// These have locked under the ballot.
    Locked {
        ballot: u32,
        who: Members,
    },
    Decided {
        value: V,
    },
}

/// Mistakes for the simulation to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Decides when it has chosen, before all have locked.
    DecidesAtOnce,
    /// The next first member chooses anew.
    ForgetsLocks,
    /// Says nothing to another parent.
    KeepsParent,
    /// Says nothing to another child.
    ForgetsChildren,
    /// Once it has returned it tells nobody who has lost its parent.
    FallsSilent,
}

/// One agreement, at one member.
#[derive(Debug, Clone)]
pub struct Consensus<V> {
    me: u32,
    size: u32,
    alive: Members,
    /// The first member that lives, as far as is known.
    ballot: u32,
    /// Whose contributions are in the value.
    given: Members,
    /// Merged contributions.
    value: Option<V>,
    contributed: bool,
    /// What this member has locked, and under which ballot.
    own_lock: Option<(u32, V)>,
    /// Who is known to have locked under the ballot.
    locked: Members,
    decided: Option<V>,
    /// Which children know of the lock, or of the decision.
    told: Members,
    /// What was told to which parent last: of locks or contributions, and whose.
    sent: Option<(u32, bool, Members)>,
    /// The parent that knows the decision.
    knows: Option<u32>,
    mistake: Option<Mistake>,
}

/// What is to be sent, and to whom.
pub type Out<V> = Vec<(u32, Message<V>)>;

impl<V: Value> Consensus<V> {
    /// Member `me` of so many, none of which is known to have failed.
    pub fn new(me: u32, size: u32) -> Self {
        Consensus {
            me,
            size,
            alive: Members::all(size),
            ballot: 0,
            given: Members::none(size),
            value: None,
            contributed: false,
            own_lock: None,
            locked: Members::none(size),
            decided: None,
            told: Members::none(size),
            sent: None,
            knows: None,
            mistake: None,
        }
    }

    #[must_use]
    pub fn with_mistake(mut self, mistake: Option<Mistake>) -> Self {
        self.mistake = mistake;
        self
    }

    /// The decision, once there is one: the call may return.
    pub fn decided(&self) -> Option<&V> {
        self.decided.as_ref()
    }

    /// This member calls. Once.
    pub fn contribute(&mut self, value: V) -> Out<V> {
        self.contributed = true;
        self.given.insert(self.me);
        self.take_in(&value);
        self.settle()
    }

    /// A member has failed.
    pub fn fail(&mut self, member: u32) -> Out<V> {
        if member == self.me || !self.alive.contains(member) {
            return Vec::new();
        }
        self.alive.remove(member);
        if self.decided.is_some() && self.has(Mistake::FallsSilent) {
            return Vec::new();
        }
        self.settle()
    }

    pub fn hear(&mut self, from: u32, message: Message<V>) -> Out<V> {
        if self.decided.is_some() {
            // Whoever asks is told when this member knows who has failed, too.
            return Vec::new();
        }
        match message {
            Message::Given { who, value } => {
                self.take_in(&value);
                self.given.add(&who);
            }
            Message::Lock { ballot, value } => {
                self.enter(ballot);
                if ballot == self.ballot {
                    self.lock(ballot, value);
                }
            }
            Message::Locked { ballot, who } => {
                self.enter(ballot);
                if ballot == self.ballot {
                    self.locked.add(&who);
                }
            }
            Message::Decided { value } => {
                self.decide(value);
                self.knows = Some(from);
            }
        }
        self.settle()
    }

    fn has(&self, mistake: Mistake) -> bool {
        cfg!(any(test, feature = "testing")) && self.mistake == Some(mistake)
    }

    fn take_in(&mut self, value: &V) {
        match &mut self.value {
            Some(own) => own.merge(value),
            None => self.value = Some(value.clone()),
        }
    }

    /// Whoever speaks of this ballot knows that all members before it have failed.
    fn enter(&mut self, ballot: u32) {
        if ballot <= self.ballot || ballot >= self.size {
            return;
        }
        (0..ballot).for_each(|m| self.alive.remove(m));
        self.ballot = ballot;
        self.locked = Members::none(self.size);
        self.told = Members::none(self.size);
        self.sent = None;
    }

    fn lock(&mut self, ballot: u32, value: V) {
        self.own_lock = Some((ballot, value));
        self.locked.insert(self.me);
        self.told = Members::none(self.size);
    }

    fn decide(&mut self, value: V) {
        self.decided = Some(value);
        self.told = Members::none(self.size);
    }

    /// The lock under this ballot.
    fn current_lock(&self) -> Option<&V> {
        self.own_lock.as_ref().filter(|(b, _)| *b == self.ballot).map(|(_, v)| v)
    }

    fn parent(&self, member: u32) -> Option<u32> {
        let mut at = member;
        while at > 0 {
            at = (at - 1) / 2;
            if self.alive.contains(at) {
                return Some(at);
            }
        }
        self.alive.first().filter(|first| *first != member)
    }

    /// Those that live and have this member above them, and it itself.
    fn subtree(&self) -> Members {
        let mut all = Members::none(self.size);
        for member in self.alive.iter() {
            let mut at = Some(member);
            while let Some(here) = at.filter(|here| *here != self.me) {
                at = self.parent(here);
            }
            if at.is_some() {
                all.insert(member);
            }
        }
        all
    }

    /// Does what can be done.
    fn settle(&mut self) -> Out<V> {
        let mut out = Vec::new();
        if let Some(first) = self.alive.first() {
            self.enter(first);
        }
        if self.decided.is_none() && self.me == self.ballot {
            self.lead();
        }
        self.tell_children(&mut out);
        if self.me != self.ballot {
            self.tell_parent(&mut out);
        }
        out
    }

    /// The first member that lives chooses and decides.
    fn lead(&mut self) {
        let ready = self.contributed && self.alive.are_in(&self.given);
        if self.current_lock().is_none() && ready {
            let before = self.own_lock.clone().filter(|_| !self.has(Mistake::ForgetsLocks));
            let value = match (before, &self.value) {
                (Some((_, locked)), _) => locked,
                (None, Some(merged)) => {
                    let mut value = merged.clone();
                    let mut failed = Members::all(self.size);
                    self.alive.iter().for_each(|m| failed.remove(m));
                    value.without(&failed);
                    value
                }
                (None, None) => return,
            };
            self.lock(self.ballot, value);
        }
        let done = self.alive.are_in(&self.locked) || self.has(Mistake::DecidesAtOnce);
        if let (Some(value), true) = (self.current_lock().cloned(), done) {
            self.decide(value);
        }
    }

    fn tell_children(&mut self, out: &mut Out<V>) {
        let message = match (&self.decided, self.current_lock()) {
            (Some(value), _) => Message::Decided { value: value.clone() },
            (None, Some(value)) => Message::Lock { ballot: self.ballot, value: value.clone() },
            (None, None) => return,
        };
        if self.has(Mistake::ForgetsChildren) && !self.told.is_empty() {
            return;
        }
        let untold = self.alive.iter().filter(|m| !self.told.contains(*m));
        let children: Vec<u32> = untold.filter(|m| self.parent(*m) == Some(self.me)).collect();
        for child in children {
            self.told.insert(child);
            out.push((child, message.clone()));
        }
    }

    fn tell_parent(&mut self, out: &mut Out<V>) {
        let Some(parent) = self.parent(self.me) else { return };
        if let Some(value) = &self.decided {
            // One that has not told this member of it may wait for it.
            if self.knows != Some(parent) && !self.has(Mistake::KeepsParent) {
                out.push((parent, Message::Decided { value: value.clone() }));
                self.knows = Some(parent);
            }
            return;
        }
        let locks = self.current_lock().is_some();
        let known = if locks { &self.locked } else { &self.given };
        let complete = self.contributed && self.subtree().are_in(known);
        let now = (parent, locks, known.clone());
        let again = match &self.sent {
            Some((_, before, _)) if self.has(Mistake::KeepsParent) => *before == locks,
            sent => sent.as_ref() == Some(&now),
        };
        if !complete || again {
            return;
        }
        let (ballot, who) = (self.ballot, now.2.clone());
        let message = match (locks, &self.value) {
            (true, _) => Message::Locked { ballot, who },
            (false, Some(value)) => Message::Given { who, value: value.clone() },
            (false, None) => return,
        };
        self.sent = Some(now);
        out.push((parent, message));
    }
}

#[cfg(test)]
#[path = "consensus_tests.rs"]
mod tests;
