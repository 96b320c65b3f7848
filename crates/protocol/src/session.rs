//! Messages between the controller and a node that outlive connections, and controllers.
//!
//! Pure. Each end numbers what it says and keeps it until the other end has confirmed it; on a new
//! connection it says all of that again, and what was taken already is passed over. A controller
//! writes what it has taken and what it says to its journal before it confirms or sends anything
//! (see `job::journal`), so its successor goes on with the same numbers.
//!
//! Kept true: what is said arrives once and in order, however often connections and controllers
//! change, as long as both sessions live; what only matters at the moment bears no number, and may
//! be lost.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// From 1 on; 0: it may be lost.
    pub number: u64,
    /// The number of the last one that was taken from the other end.
    pub heard: u64,
    pub message: T,
}

impl<T> Numbered<T> {
    /// One that may be lost.
    pub fn beside(heard: u64, message: T) -> Self {
        Numbered { number: 0, heard, message }
    }
}

/// The other end cannot be the one that this session was held with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("message {found} came where {due} was due")]
    Gap { found: u64, due: u64 },
    #[error("message {found} is confirmed, of which {sent} were sent")]
    Unsent { found: u64, sent: u64 },
}

/// One end. `T` is what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session<T> {
    sent: u64,
    /// Not confirmed; the last one is number `sent`.
    unheard: VecDeque<T>,
    heard: u64,
}

impl<T> Default for Session<T> {
    fn default() -> Self {
        Session { sent: 0, unheard: VecDeque::new(), heard: 0 }
    }
}

impl<T: Clone> Session<T> {
    /// Numbers a message, which is kept until it is confirmed.
    pub fn number(&mut self, message: T) -> Numbered<T> {
        self.sent += 1;
        self.unheard.push_back(message.clone());
        Numbered { number: self.sent, heard: self.heard, message }
    }

    /// All that is not confirmed, for a new connection.
    pub fn again(&self) -> impl Iterator<Item = Numbered<T>> {
        let first = self.sent + 1 - self.unheard.len() as u64;
        let heard = self.heard;
        let numbered = move |(number, message): (u64, &T)| Numbered {
            number,
            heard,
            message: message.clone(),
        };
        (first..).zip(&self.unheard).map(numbered)
    }

    /// Takes note of a message of the other end. Tells whether it is to be taken: it is new.
    ///
    /// # Errors
    /// When the numbers cannot be those of this session. The connection is to be closed.
    pub fn hear(&mut self, number: u64, heard: u64) -> Result<bool, Foreign> {
        self.confirmed(heard)?;
        let due = self.heard + 1;
        if number > due {
            return Err(Foreign::Gap { found: number, due });
        }
        self.heard = self.heard.max(number);
        Ok(number == 0 || number == due)
    }

    fn confirmed(&mut self, heard: u64) -> Result<(), Foreign> {
        if heard > self.sent {
            return Err(Foreign::Unsent { found: heard, sent: self.sent });
        }
        let left = (self.sent - heard).min(self.unheard.len() as u64) as usize;
        self.unheard.drain(..self.unheard.len() - left);
        Ok(())
    }

    /// Of a session that is read from a journal: so much was taken, and confirmed.
    ///
    /// # Errors
    /// When it cannot be of this session.
    pub fn restore(&mut self, taken: u64, confirmed: u64) -> Result<(), Foreign> {
        self.heard = self.heard.max(taken);
        self.confirmed(confirmed)
    }

    /// The number of the last message that is confirmed.
    pub fn known(&self) -> u64 {
        self.sent - self.unheard.len() as u64
    }

    /// The number of the last message that was taken.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Messages that the other end has not confirmed.
    pub fn unheard(&self) -> &VecDeque<T> {
        &self.unheard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn what_is_not_confirmed_is_said_again_and_taken_once() {
        let (mut a, mut b) = (Session::default(), Session::<u8>::default());
        let first = a.number('x');
        assert_eq!(b.hear(first.number, first.heard), Ok(true));
        a.number('y');
        let again: Vec<_> = a.again().map(|n| (n.number, n.message)).collect();
        assert_eq!(again, [(1, 'x'), (2, 'y')]);
        assert_eq!((b.hear(1, 0), b.hear(2, 0), b.heard()), (Ok(false), Ok(true), 2));
        let back = b.number(7);
        assert_eq!(a.hear(back.number, back.heard), Ok(true));
        assert_eq!((a.unheard().len(), a.again().count()), (0, 0));
        assert_eq!(a.hear(0, 2), Ok(true), "it bears no number");
    }

    #[test]
    fn another_session_is_noticed() {
        let mut a = Session::<u8>::default();
        assert_eq!(a.hear(2, 0), Err(Foreign::Gap { found: 2, due: 1 }));
        assert_eq!(a.hear(1, 1), Err(Foreign::Unsent { found: 1, sent: 0 }));
    }

    /// Connections that break with what is on them, at either end: all comes, once and in order.
    #[test]
    fn nothing_is_lost_or_doubled() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut ends = [Session::<u64>::default(), Session::default()];
            let mut lines = [VecDeque::new(), VecDeque::new()];
            let (mut said, mut taken) = ([0u64; 2], [0u64; 2]);
            for step in 0..400 {
                let side = random.below(2) as usize;
                match random.below(if step < 300 { 8 } else { 4 }) {
                    0..=3 => {
                        let Some(n): Option<Numbered<u64>> = lines[1 - side].pop_front() else {
                            continue;
                        };
                        if ends[side].hear(n.number, n.heard).unwrap() {
                            assert_eq!(n.message, taken[side], "seed {seed}");
                            taken[side] += 1;
                        }
                    }
                    4..=6 => {
                        let n = ends[side].number(said[side]);
                        said[side] += 1;
                        lines[side].push_back(n);
                    }
                    _ => {
                        for side in [0, 1] {
                            lines[side] = ends[side].again().collect();
                        }
                    }
                }
            }
            for side in [0, 1] {
                lines[side] = ends[side].again().collect();
                for n in lines[side].clone() {
                    taken[1 - side] += u64::from(ends[1 - side].hear(n.number, n.heard).unwrap());
                }
                assert_eq!(taken[1 - side], said[side], "seed {seed}");
            }
        }
    }
}
