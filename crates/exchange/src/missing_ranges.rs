//! What of a file is not there yet.

use std::collections::BTreeMap;

/// Stretches of a file: where each begins, and where it ends.
#[derive(Debug, Clone, Default)]
pub struct MissingRanges(BTreeMap<u64, u64>);

impl MissingRanges {
    /// All of a file of so many bytes.
    pub fn of(bytes: u64) -> MissingRanges {
        MissingRanges((bytes > 0).then_some((0, bytes)).into_iter().collect())
    }

    /// These bytes have come.
    pub fn fill(&mut self, start: u64, end: u64) {
        let hit: Vec<(u64, u64)> =
            self.0.range(..end).filter(|gap| *gap.1 > start).map(|(s, e)| (*s, *e)).collect();
        for (from, to) in hit {
            self.0.remove(&from);
            self.0.extend((from < start).then_some((from, start)));
            self.0.extend((end < to).then_some((end, to)));
        }
    }

    /// The first byte of these that is not there.
    pub fn first(&self, start: u64, end: u64) -> Option<u64> {
        let gap = self.0.range(..end).find(|gap| *gap.1 > start)?;
        (start < end).then_some(start.max(*gap.0))
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_a_list_of_bytes_says() {
        let mut seed = 1u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        for _ in 0..2000 {
            let bytes = below(60);
            let (mut gaps, mut missing) = (MissingRanges::of(bytes), vec![true; bytes as usize]);
            for _ in 0..below(12) {
                let (at, length) = (below(60), below(20));
                gaps.fill(at, at + length);
                missing.iter_mut().skip(at as usize).take(length as usize).for_each(|m| *m = false);
            }
            assert_eq!(gaps.bytes(), missing.iter().filter(|m| **m).count() as u64);
            for _ in 0..8 {
                let (at, length) = (below(70), below(30));
                let all = (at..at + length).find(|n| missing.get(*n as usize) == Some(&true));
                assert_eq!(gaps.first(at, at + length), all, "{gaps:?} {at} {length}");
            }
        }
    }
}
