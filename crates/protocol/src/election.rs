//! The lead of a job whose journal is in a store that several controllers reach: how it is taken,
//! kept and lost, and what a leader writes there.
//!
//! Pure: transactions out, what came of them in; keys are those of the job
//! (`docs/formats/ha.md`). Kept true: one leads at a time, by a key that goes with a lease, and
//! each term has a number of its own; a leader's writes are numbered, and each is carried out once
//! and in order, however often it was repeated, and however late an attempt arrives whose answer
//! was not waited for any more; the leader's key goes with no lease but the one that is kept.

pub const LEADER: &str = "leader";
pub const TERM: &str = "reign";
/// The term and the number of its last write.
pub const WRITTEN: &str = "written";
/// The generation of the journal that counts; what it is made of is below.
pub const JOURNAL: &str = "journal";

/// A key has this value; none: it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Is {
    pub key: &'static str,
    pub value: Option<String>,
}

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Put {
        key: String,
        value: Vec<u8>,
        /// It goes with the leader's lease.
        leased: bool,
    },
    Delete(String),
    /// All keys that begin so.
    DeleteAll(String),
}

impl Op {
    pub fn put(key: &str, value: impl Into<Vec<u8>>) -> Op {
        Op::Put { key: key.to_string(), value: value.into(), leased: false }
    }
}

/// All steps, if all of that is so; else none. What there is of `Seen` comes back then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    pub if_so: Vec<Is>,
    pub then: Vec<Op>,
}

/// What the store has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub term: Option<u64>,
    pub leader: Option<String>,
    /// The lease that the leader's key goes with.
    pub lease: Option<i64>,
    pub written: Option<String>,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Not now; nobody else leads.
    Lapsed,
    /// Somebody else does, or the job is over.
    Deposed,
}

/// A lead, or what is to become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Nobody else has it.
    pub token: String,
    pub term: u64,
}

impl Claim {
    fn is(key: &'static str, value: Option<String>) -> Is {
        Is { key, value }
    }

    fn lead(&self) -> Op {
        let value = self.token.clone().into_bytes();
        Op::Put { key: LEADER.to_string(), value, leased: true }
    }

    fn mark(&self, number: u64) -> String {
        format!("{}.{number}", self.term)
    }

    /// Takes the lead of a job where that was seen: nobody leads it, or who is dead.
    pub fn take(&self, seen: &Seen) -> Txn {
        let term = seen.term.map(|r| r.to_string());
        let if_so = vec![Self::is(LEADER, seen.leader.clone()), Self::is(TERM, term)];
        let term = Op::put(TERM, self.term.to_string());
        Txn { if_so, then: vec![self.lead(), term, Op::put(WRITTEN, self.mark(0))] }
    }

    /// Takes it once more, after the lease ran out, if nobody had it since.
    pub fn again(&self) -> Txn {
        let if_so = vec![Self::is(LEADER, None), Self::is(TERM, Some(self.term.to_string()))];
        Txn { if_so, then: vec![self.lead()] }
    }

    /// Whether another one has led since, or does.
    fn is_over(&self, seen: &Seen) -> bool {
        let other = seen.leader.as_ref().is_some_and(|leader| *leader != self.token);
        other || seen.term != Some(self.term)
    }
}

/// The lease, as its leader keeps it.
#[derive(Debug, Clone)]
pub struct LeaderKey {
    claim: Claim,
    lease: i64,
    /// The lease has run out.
    over: bool,
    /// The leader's key goes with it for all that is known.
    sure: bool,
}

impl LeaderKey {
    /// `sure`: it is known that the lead was taken with this lease.
    pub fn new(claim: Claim, lease: i64, sure: bool) -> LeaderKey {
        LeaderKey { claim, lease, over: false, sure }
    }

    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// The store says whether the lease goes on.
    pub fn kept(&mut self, goes_on: bool) {
        self.over = !goes_on;
        self.sure &= goes_on;
    }

    /// A write found no leader.
    pub fn lapsed(&mut self) {
        self.sure = false;
    }

    /// Whether another lease is needed: never as long as this one may go on, so that no late
    /// attempt has the leader's key go with one that is not kept.
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub fn granted(&mut self, lease: i64) {
        (self.lease, self.over) = (lease, false);
    }

    /// What is to be tried with this lease now.
    pub fn to_claim(&self) -> Option<Txn> {
        (!self.sure && !self.over).then(|| self.claim.again())
    }

    /// It came to that. Lapsed: the key may go with one that ran out just now.
    pub fn claimed(&mut self, held: bool, seen: &Seen) -> Outcome {
        let own = seen.leader.as_ref() == Some(&self.claim.token);
        self.sure = held || own && seen.lease == Some(self.lease);
        match self.sure {
            true => Outcome::Done,
            false if self.claim.is_over(seen) => Outcome::Deposed,
            false => Outcome::Lapsed,
        }
    }
}

/// What a leader writes with: one transaction after the other.
#[derive(Debug, Clone)]
pub struct TermWriter {
    claim: Claim,
    /// Of the last write that was carried out.
    number: u64,
}

impl TermWriter {
    pub fn new(claim: Claim) -> TermWriter {
        TermWriter { claim, number: 0 }
    }

    /// The next write.
    pub fn write(&self, mut steps: Vec<Op>) -> Txn {
        let leads = Claim::is(LEADER, Some(self.claim.token.clone()));
        let last = Claim::is(WRITTEN, Some(self.claim.mark(self.number)));
        steps.push(Op::put(WRITTEN, self.claim.mark(self.number + 1)));
        Txn { if_so: vec![leads, last], then: steps }
    }

    /// The last write: of the job nothing stays but these.
    pub fn end(&self, stays: Vec<Op>, goes: impl IntoIterator<Item = Op>) -> Txn {
        let mut txn = self.write(stays);
        txn.then.pop();
        txn.then.extend(goes);
        txn.then.extend([LEADER, TERM, WRITTEN].map(|key| Op::Delete(key.to_string())));
        txn
    }

    /// What came of it, at this attempt or an earlier one.
    pub fn judge(&mut self, held: bool, seen: &Seen, ends: bool) -> Outcome {
        let next = self.claim.mark(self.number + 1);
        let over = ends && seen.term.is_none();
        if held || over || seen.written.as_ref() == Some(&next) {
            self.number += 1;
            return Outcome::Done;
        }
        if self.claim.is_over(seen) { Outcome::Deposed } else { Outcome::Lapsed }
    }
}

/// Where a leader's journal is.
#[derive(Debug, Clone)]
pub struct JournalKeys {
    generation: u64,
    /// Number of the next one.
    chunk: u64,
}

impl JournalKeys {
    /// That of a leader who found this generation, and is going to replace it.
    pub fn new(generation: u64) -> JournalKeys {
        JournalKeys { generation, chunk: 0 }
    }

    /// What the keys of a generation begin with.
    pub fn chunks(generation: u64) -> String {
        format!("{JOURNAL}/{generation:016x}/")
    }

    /// More of it.
    pub fn append(&mut self, bytes: Vec<u8>) -> Op {
        let key = format!("{}{:016x}", Self::chunks(self.generation), self.chunk);
        self.chunk += 1;
        Op::put(&key, bytes)
    }

    /// Writes that put another one in its place: that is there whole, or not at all.
    pub fn renew(&mut self, parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<Op>> {
        let before = Self::chunks(self.generation);
        (self.generation, self.chunk) = (self.generation + 1, 0);
        // What a controller left that died over it.
        let mut writes = vec![vec![Op::DeleteAll(Self::chunks(self.generation))]];
        writes.extend(parts.into_iter().map(|part| vec![self.append(part)]));
        let current = Op::put(JOURNAL, self.generation.to_string());
        writes.push(vec![current, Op::DeleteAll(before)]);
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(term: u64, leader: Option<&str>, written: &str) -> Seen {
        let leader = leader.map(String::from);
        Seen { term: Some(term), leader, lease: None, written: Some(written.to_string()) }
    }

    fn claim() -> Claim {
        Claim { token: String::from("a"), term: 3 }
    }

    #[test]
    fn a_write_that_was_carried_out_is_not_repeated() {
        let mut pen = TermWriter::new(claim());
        let first = pen.write(vec![Op::put("x", "1")]);
        assert_eq!(first.if_so[1].value.as_deref(), Some("3.0"));
        assert_eq!(pen.judge(false, &seen(3, None, "3.0"), false), Outcome::Lapsed);
        assert_eq!(pen.write(vec![Op::put("x", "1")]), first);
        assert_eq!(pen.judge(false, &seen(3, Some("a"), "3.1"), false), Outcome::Done);
        assert_eq!(pen.write(Vec::new()).if_so[1].value.as_deref(), Some("3.1"));
        assert_eq!(pen.judge(false, &seen(4, None, "4.0"), false), Outcome::Deposed);
        assert_eq!(pen.judge(false, &seen(3, Some("b"), "3.1"), false), Outcome::Deposed);
        assert_eq!(pen.judge(false, &Seen::default(), false), Outcome::Deposed);
        assert_eq!(pen.judge(false, &Seen::default(), true), Outcome::Done, "its own end");
    }

    #[test]
    fn another_lease_is_asked_for_only_when_the_last_one_is_over() {
        let mut hold = LeaderKey::new(claim(), 7, true);
        hold.kept(true);
        assert_eq!((hold.is_over(), hold.to_claim()), (false, None));
        hold.lapsed();
        assert_eq!((hold.is_over(), hold.to_claim()), (false, Some(claim().again())));
        let mut other = seen(3, Some("a"), "3.0");
        other.lease = Some(6);
        assert_eq!(hold.claimed(false, &other), Outcome::Lapsed);
        // That of an attempt whose answer was not heard.
        let mut same = hold.clone();
        other.lease = Some(7);
        assert_eq!((same.claimed(false, &other), same.to_claim()), (Outcome::Done, None));
        hold.kept(false);
        assert_eq!((hold.is_over(), hold.to_claim()), (true, None));
        hold.granted(8);
        assert_eq!((hold.lease(), hold.claimed(true, &Seen::default())), (8, Outcome::Done));
        assert_eq!(hold.to_claim(), None);
        assert_eq!(hold.claimed(false, &seen(4, None, "4.0")), Outcome::Deposed);
    }
}
