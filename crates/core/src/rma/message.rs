//! An operation as bytes: what it is, where, and its data. Both ends are this library in one job,
//! of one byte order.

use crate::error::{Res, class};
use crate::handle::Handle;

/// What an operation asks of its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Put,
    Get,
    Accumulate,
    /// The old value comes back.
    GetAccumulate,
    /// Data: the new value, then that which is compared with.
    CompareAndSwap,
    LockShared,
    LockExclusive,
    Unlock,
    /// All before it is done: a reply.
    Flush,
    Post,
    Complete,
    Fence,
}

impl Kind {
    /// Whether it concerns memory of the target.
    pub(super) fn is_data(self) -> bool {
        use Kind::{Accumulate, CompareAndSwap, Get, GetAccumulate, Put};
        matches!(self, Put | Get | Accumulate | GetAccumulate | CompareAndSwap)
    }

    /// Whether what was there comes back.
    pub(super) fn has_data_back(self) -> bool {
        matches!(self, Kind::Get | Kind::GetAccumulate | Kind::CompareAndSwap)
    }
}

const KINDS: [Kind; 12] = [
    Kind::Put,
    Kind::Get,
    Kind::Accumulate,
    Kind::GetAccumulate,
    Kind::CompareAndSwap,
    Kind::LockShared,
    Kind::LockExclusive,
    Kind::Unlock,
    Kind::Flush,
    Kind::Post,
    Kind::Complete,
    Kind::Fence,
];

/// A run of bytes, by its distance from the start of the target's data.
pub(super) type Run = (i64, u64);

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub kind: Kind,
    /// Tag of its reply, where it has one.
    pub reply: i32,
    /// Displacement at the target, in its units.
    pub disp: i64,
    /// Operation and element of an accumulation.
    pub op: Handle,
    pub element: Handle,
    pub runs: Vec<Run>,
    pub data: Vec<u8>,
}

const WORD: usize = 8;
/// Words before the runs.
const HEAD: usize = 6;

impl Message {
    /// One without data.
    pub(super) fn of(kind: Kind, reply: i32) -> Message {
        Message {
            kind,
            reply,
            disp: 0,
            op: Handle(0),
            element: Handle(0),
            runs: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Bytes at the target that it concerns.
    pub(super) fn target_bytes(&self) -> u64 {
        self.runs.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = HEAD + 2 * self.runs.len();
        let mut out = Vec::with_capacity(words * WORD + self.data.len());
        let mut word = |w: u64| out.extend_from_slice(&w.to_ne_bytes());
        word(self.kind as u64);
        word(self.reply as u64);
        word(self.disp as u64);
        word(u64::from(self.op.0));
        word(u64::from(self.element.0));
        word(self.runs.len() as u64);
        for (at, bytes) in &self.runs {
            word(*at as u64);
            word(*bytes);
        }
        out.extend_from_slice(&self.data);
        out
    }

    pub(super) fn parse(from: &[u8]) -> Res<Message> {
        let word = |at: usize| -> Res<u64> {
            let bytes = from.get(at * WORD..(at + 1) * WORD).ok_or(class::INTERN)?;
            Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| class::INTERN)?))
        };
        let handle = |at: usize| Ok::<Handle, crate::error::Class>(Handle(word(at)? as u32));
        let kind = *KINDS.get(word(0)? as usize).ok_or(class::INTERN)?;
        let number = usize::try_from(word(5)?).map_err(|_| class::INTERN)?;
        let end = number.checked_mul(2).and_then(|n| n.checked_add(HEAD)).ok_or(class::INTERN)?;
        let data = from.get(end.checked_mul(WORD).ok_or(class::INTERN)?..).ok_or(class::INTERN)?;
        let runs: Res<Vec<Run>> = (0..number)
            .map(|i| Ok((word(HEAD + 2 * i)? as i64, word(HEAD + 2 * i + 1)?)))
            .collect();
        Ok(Message {
            kind,
            reply: word(1)? as i32,
            disp: word(2)? as i64,
            op: handle(3)?,
            element: handle(4)?,
            runs: runs?,
            data: data.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_survives_the_way() {
        for kind in KINDS {
            let message = Message {
                kind,
                reply: 7,
                disp: -3,
                op: Handle(0x21),
                element: Handle(0x203),
                runs: vec![(0, 8), (-16, 4)],
                data: vec![1, 2, 3],
            };
            assert_eq!(Message::parse(&message.bytes()), Ok(message));
        }
        let bytes = Message::of(Kind::Fence, 0).bytes();
        for n in 0..bytes.len() {
            assert_eq!(Message::parse(&bytes[..n]), Err(class::INTERN));
        }
    }
}
