//! Which chunks of a payload differ from those of an earlier one.

use crate::geometry::{CHUNK_BYTES, MAX_PAYLOAD_BYTES};
use crate::record::Manifest;

/// Runs of chunks: the first, and how many; ascending, apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs(Vec<(u64, u64)>);

impl Runs {
    /// `None`: they are not ascending, or of chunks that no payload has.
    pub fn checked(runs: Vec<(u64, u64)>) -> Option<Runs> {
        let mut end = None;
        for (first, count) in &runs {
            let last = first.checked_add(*count)?;
            let apart = end.is_none_or(|end| end < *first);
            if *count == 0 || !apart || last > MAX_PAYLOAD_BYTES / CHUNK_BYTES {
                return None;
            }
            end = Some(last);
        }
        Some(Runs(runs))
    }

    /// Adds a chunk behind those that there are.
    pub fn push(&mut self, chunk: u64) {
        match self.0.last_mut() {
            Some((first, count)) if *first + *count == chunk => *count += 1,
            _ => self.0.push((chunk, 1)),
        }
    }

    pub fn chunks(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|(first, count)| *first..*first + *count)
    }

    /// The runs as they are: the first chunk, and how many.
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

/// The chunks in which two payloads differ, by their checksums; of each its manifest and its
/// length. A chunk with bytes of a manifest always counts as one that does.
pub fn between(old: (&Manifest, u64), new: (&Manifest, u64)) -> Runs {
    let objects = old.0.bytes.min(new.0.bytes);
    let mut runs = Runs::default();
    for chunk in 0..old.1.max(new.1).div_ceil(CHUNK_BYTES) {
        let whole = (chunk + 1) * CHUNK_BYTES <= objects;
        let sums = |manifest: &Manifest| manifest.chunks.get(chunk as usize).copied();
        if !whole || sums(old.0) != sums(new.0) {
            runs.push(chunk);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_held_against_bounds() {
        let mut runs = Runs::default();
        [3, 4, 9, 11, 12].into_iter().for_each(|chunk| runs.push(chunk));
        assert_eq!(runs, Runs(vec![(3, 2), (9, 1), (11, 2)]));
        assert_eq!(runs.chunks().collect::<Vec<_>>(), [3, 4, 9, 11, 12]);
        assert_eq!((runs.count(), Runs::checked(runs.0.clone())), (5, Some(runs)));
        for bad in [vec![(3, 0)], vec![(3, 2), (5, 1)], vec![(9, 1), (2, 1)], vec![(1, u64::MAX)]] {
            assert_eq!(Runs::checked(bad), None);
        }
    }

    #[test]
    fn what_is_not_whole_in_both_counts_as_changed() {
        let manifest = |bytes: u64, sums: &[u8]| Manifest {
            generation: 1,
            bytes,
            chunks: sums.iter().map(|sum| [*sum; 16]).collect(),
            objects: Vec::new(),
            seal: None,
        };
        let old = manifest(3 * CHUNK_BYTES + 5, &[1, 2, 3, 4]);
        let new = manifest(4 * CHUNK_BYTES, &[1, 9, 3, 4]);
        let runs = between((&old, old.bytes + 90), (&new, new.bytes + 90));
        assert_eq!(runs.chunks().collect::<Vec<_>>(), [1, 3, 4]);
        let shorter = between((&new, 4 * CHUNK_BYTES + 90), (&old, 3 * CHUNK_BYTES + 95));
        assert_eq!(shorter, runs);
    }
}
