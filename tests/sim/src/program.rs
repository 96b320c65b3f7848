//! The model programs: what each rank does, and its state.
//!
//! A rank's state is a hash of all that it received and of what its polls returned; what it sends
//! and prints depends on that hash. Kept true: however wildcards match, no rank waits for ever.
//! Each pair of ranks has one channel of messages that are received by name and one of those that
//! are received from anybody; operations are drawn along one possible history, and nothing blocks
//! but receives, whose number of messages that history provides, and waits for acknowledgements
//! of messages that are received right then.

use crate::random::{Random, mix};

/// A channel: (source, destination, kind).
pub type Channel = (u32, u32, u8);
/// Received by name.
pub const NAMED: u8 = 0;
/// Received from anybody, or found by polling.
pub const ANY: u8 = 1;

/// One operation of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Send {
        to: u32,
        kind: u8,
    },
    /// Waits for the next message from `from`.
    Receive {
        from: u32,
    },
    /// Waits until this many messages of kind `ANY` have been received in all.
    ReceiveAny {
        upto: u64,
    },
    /// Looks for a message of kind `ANY` and receives it, if there is one.
    Poll,
    /// Waits until the last message sent to `to` by name has been received.
    WaitAck {
        to: u32,
    },
    Print,
}

/// What all ranks of a job do.
pub type Programs = Vec<Vec<Op>>;

/// Draws the programs of `ranks` ranks with about `steps` operations in all.
pub fn draw(random: &mut Random, ranks: u32, steps: u64) -> Programs {
    let mut programs: Programs = vec![Vec::new(); ranks as usize];
    let mut named = vec![0u64; (ranks * ranks) as usize];
    let mut any = vec![0u64; ranks as usize];
    let mut any_received = vec![0u64; ranks as usize];
    let ends_early = random.below(u64::from(ranks)) as u32;
    for step in 0..steps {
        let (a, b) = (random.below(u64::from(ranks)) as u32, random.below(u64::from(ranks)) as u32);
        if a == ends_early && step > steps / 3 {
            continue;
        }
        let (from, to) = (a as usize, b as usize);
        match random.below(12) {
            0..=2 if a != b => {
                programs[from].push(Op::Send { to: b, kind: NAMED });
                named[from * ranks as usize + to] += 1;
            }
            3..=5 if a != b => {
                programs[from].push(Op::Send { to: b, kind: ANY });
                any[to] += 1;
            }
            6 | 7 => {
                let waiting = &mut named[to * ranks as usize + from];
                if *waiting > 0 {
                    *waiting -= 1;
                    programs[from].push(Op::Receive { from: b });
                }
            }
            8 => {
                if any_received[from] < any[from] {
                    any_received[from] += 1;
                    programs[from].push(Op::ReceiveAny { upto: any_received[from] });
                }
            }
            9 => programs[from].extend([Op::Poll; 3]),
            10 if a != b && b != ends_early => {
                synchronous(&mut programs, &mut named, ranks, a, b);
            }
            _ => programs[from].push(Op::Print),
        }
    }
    programs.iter_mut().for_each(|program| program.push(Op::Print));
    programs
}

/// A send that ends when it has been received, which happens next.
fn synchronous(programs: &mut Programs, named: &mut [u64], ranks: u32, from: u32, to: u32) {
    programs[from as usize].push(Op::Send { to, kind: NAMED });
    let waiting = &mut named[(from * ranks + to) as usize];
    for _ in 0..=*waiting {
        programs[to as usize].push(Op::Receive { from });
    }
    *waiting = 0;
    programs[from as usize].push(Op::WaitAck { to });
}

/// A rank's own memory: what an image contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub rank: u32,
    pub at: usize,
    pub hash: u64,
    /// Messages received by source and kind: `source * 2 + kind`.
    pub received: Vec<u64>,
    /// Messages sent by destination and kind.
    pub sent: Vec<u64>,
    pub printed: u64,
}

impl State {
    pub fn new(rank: u32, ranks: u32) -> Self {
        let none = vec![0; ranks as usize * 2];
        let hash = mix(u64::from(rank), 1);
        State { rank, at: 0, hash, received: none.clone(), sent: none, printed: 0 }
    }

    pub fn any_received(&self) -> u64 {
        self.received.iter().skip(ANY.into()).step_by(2).sum()
    }

    /// Number of the next message of a channel to this rank.
    pub fn next(&self, from: u32, kind: u8) -> u64 {
        self.received[slot(from, kind)]
    }

    pub fn take(&mut self, from: u32, kind: u8, payload: u64) {
        self.received[slot(from, kind)] += 1;
        self.hash = mix(self.hash, mix(payload, u64::from(from) * 2 + u64::from(kind)));
    }

    pub fn polled_in_vain(&mut self) {
        self.hash = mix(self.hash, 3);
    }

    /// What the next message holds.
    pub fn send(&mut self, to: u32, kind: u8) -> u64 {
        self.sent[slot(to, kind)] += 1;
        mix(self.hash, u64::from(to))
    }

    pub fn print(&mut self) -> u64 {
        self.printed += 1;
        mix(self.hash, self.printed)
    }
}

pub fn slot(other: u32, kind: u8) -> usize {
    other as usize * 2 + usize::from(kind)
}

/// What was drawn, run without any fault, given what each rank's wildcards and polls came to:
/// final states and all that is printed.
pub fn reference(
    programs: &Programs,
    outcomes: &[Vec<Outcome>],
) -> Result<Vec<Undisturbed>, String> {
    let ranks = programs.len() as u32;
    let mut all: Vec<Undisturbed> = (0..ranks).map(|r| Undisturbed::new(r, ranks)).collect();
    let mut channels = std::collections::BTreeMap::<Channel, Vec<u64>>::new();
    loop {
        let mut moved = false;
        for (rank, known) in all.iter_mut().zip(outcomes) {
            while rank.step(&programs[rank.state.rank as usize], known, &mut channels)? {
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    for rank in &all {
        let (r, at) = (rank.state.rank as usize, rank.state.at);
        if at < programs[r].len() || rank.outcome < outcomes[r].len() {
            let (op, left) = (programs[r].get(at), outcomes[r].len() - rank.outcome);
            return Err(format!(
                "undisturbed, rank {r} stands at {at} ({op:?}); {left} outcomes left"
            ));
        }
    }
    Ok(all)
}

/// What a wildcard or a poll came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Source(u32),
    Nothing,
}

/// A rank in a run without faults.
pub struct Undisturbed {
    pub state: State,
    pub printed: Vec<u64>,
    outcome: usize,
}

impl Undisturbed {
    fn new(rank: u32, ranks: u32) -> Self {
        Undisturbed { state: State::new(rank, ranks), printed: Vec::new(), outcome: 0 }
    }

    /// One operation; false: it cannot go on now.
    fn step(
        &mut self,
        program: &[Op],
        known: &[Outcome],
        channels: &mut std::collections::BTreeMap<Channel, Vec<u64>>,
    ) -> Result<bool, String> {
        let me = self.state.rank;
        let Some(op) = program.get(self.state.at) else { return Ok(false) };
        match *op {
            Op::Send { to, kind } => {
                let payload = self.state.send(to, kind);
                channels.entry((me, to, kind)).or_default().push(payload);
            }
            Op::Print => {
                let line = self.state.print();
                self.printed.push(line);
            }
            Op::WaitAck { .. } => {}
            Op::Receive { from } => {
                let next = self.state.next(from, NAMED) as usize;
                let there = channels.get(&(from, me, NAMED)).and_then(|c| c.get(next));
                let Some(&payload) = there else { return Ok(false) };
                self.state.take(from, NAMED, payload);
            }
            Op::ReceiveAny { upto } if self.state.any_received() >= upto => {}
            Op::ReceiveAny { .. } | Op::Poll => match known.get(self.outcome) {
                None => return Err(format!("rank {me}: an outcome of {op:?} is missing")),
                Some(Outcome::Nothing) if *op == Op::Poll => {
                    self.state.polled_in_vain();
                    self.outcome += 1;
                }
                Some(Outcome::Nothing) => return Err(format!("rank {me}: no source for {op:?}")),
                Some(Outcome::Source(from)) => {
                    let next = self.state.next(*from, ANY) as usize;
                    let there = channels.get(&(*from, me, ANY)).and_then(|c| c.get(next));
                    let Some(&payload) = there else { return Ok(false) };
                    self.state.take(*from, ANY, payload);
                    self.outcome += 1;
                }
            },
        }
        self.state.at += 1;
        Ok(true)
    }
}
