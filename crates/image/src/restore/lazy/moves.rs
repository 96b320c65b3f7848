//! Where pages that were not filled yet belong by now: the program goes on moving and giving up
//! memory while it is filled.

/// A change of the mappings.
#[derive(Debug, Clone)]
enum Change {
    Moved { from: u64, to: u64, bytes: u64 },
    Gone { start: u64, end: u64 },
}

/// All changes since the beginning, in their order.
#[derive(Debug, Clone, Default)]
pub struct Moves(Vec<Change>);

impl Moves {
    /// Notes that memory was moved.
    pub fn moved(&mut self, from: u64, to: u64, bytes: u64) {
        self.0.push(Change::Moved { from, to, bytes });
    }

    /// Notes that memory was given up.
    pub fn gone(&mut self, start: u64, end: u64) {
        // Programs give up the same range again and again.
        let last = self.0.last();
        let known =
            matches!(last, Some(Change::Gone { start: s, end: e }) if *s <= start && end <= *e);
        if !known {
            self.0.push(Change::Gone { start, end });
        }
    }

    /// Where the bytes at `start..end` in the beginning belong now: pieces of it, each with the
    /// address that it has now.
    pub fn now(&self, start: u64, end: u64) -> Vec<(u64, u64, u64)> {
        // Original start, length, address now.
        let mut pieces = vec![(start, end - start, start)];
        for change in &self.0 {
            let (from, bytes, to) = match *change {
                Change::Moved { from, to, bytes } => (from, bytes, Some(to)),
                Change::Gone { start, end } => (start, end - start, None),
            };
            let affected = |p: &(u64, u64, u64)| p.2 < from + bytes && from < p.2 + p.1;
            if !pieces.iter().any(affected) {
                continue;
            }
            let mut next = Vec::new();
            for (origin, len, at) in pieces {
                let cut = at.max(from).min(at + len);
                let after = (at + len).min(from + bytes).max(cut);
                let mut keep = |a: u64, b: u64, shown: u64| {
                    if a < b {
                        next.push((origin + (a - at), b - a, shown));
                    }
                };
                keep(at, cut, at);
                if let Some(to) = to {
                    keep(cut, after, to.wrapping_add(cut.wrapping_sub(from)));
                }
                keep(after, at + len, after);
            }
            pieces = next;
        }
        pieces
    }

    /// Where what is at `address` now was in the beginning; `None` if it is new.
    pub fn origin(&self, address: u64) -> Option<u64> {
        let mut at = address;
        for change in self.0.iter().rev() {
            match *change {
                Change::Moved { from, to, bytes } if (to..to + bytes).contains(&at) => {
                    at = at - to + from;
                }
                Change::Moved { from, bytes, .. } if (from..from + bytes).contains(&at) => {
                    return None;
                }
                Change::Gone { start, end } if (start..end).contains(&at) => return None,
                _ => {}
            }
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moved_and_given_up() {
        let mut moves = Moves::default();
        moves.moved(0x3000, 0x9000, 0x2000);
        moves.gone(0x3000, 0x5000);
        moves.gone(0xa000, 0xb000);
        let now = moves.now(0x1000, 0x8000);
        let expected =
            [(0x1000, 0x2000, 0x1000), (0x3000, 0x1000, 0x9000), (0x5000, 0x3000, 0x5000)];
        assert_eq!(now, expected);
        assert_eq!(moves.origin(0x9fff), Some(0x3fff));
        assert_eq!(moves.origin(0xa000), None);
        assert_eq!(moves.origin(0x3000), None);
        assert_eq!(moves.origin(0x1000), Some(0x1000));
    }

    proptest! {
        /// Both directions agree with a model that moves one byte at a time.
        #[test]
        fn both_directions_agree(
            changes in prop::collection::vec((0u64..24, 0u64..24, 1u64..8, any::<bool>()), 0..6),
        ) {
            let mut moves = Moves::default();
            // What was in the beginning at the place that now has this number.
            let mut model: Vec<Option<u64>> = (0..64).map(Some).collect();
            for (from, to, bytes, gone) in changes {
                let apart = from + bytes <= to || to + bytes <= from;
                if gone || !apart {
                    moves.gone(from, from + bytes);
                } else {
                    // As the kernel does: what was there is unmapped first.
                    moves.gone(to, to + bytes);
                    moves.moved(from, to, bytes);
                }
                for i in 0..bytes {
                    let taken = model[(from + i) as usize].take();
                    if !gone && apart {
                        model[(to + i) as usize] = taken;
                    }
                }
            }
            let mut now = vec![None; 64];
            for (origin, len, at) in moves.now(0, 64) {
                for i in 0..len {
                    now[(at + i) as usize] = Some(origin + i);
                }
            }
            prop_assert_eq!(&now, &model);
            for (at, origin) in model.iter().enumerate() {
                prop_assert_eq!(moves.origin(at as u64), *origin);
            }
        }
    }
}
