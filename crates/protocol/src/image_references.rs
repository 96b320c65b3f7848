//! Image files that ranks of a node need of each other.
//!
//! [`crate::retention`] tells which files a rank still needs for itself; a file that is not among
//! them any more stays as long as an image of another rank refers to it, or one that is being
//! written may.
//!
//! Kept true: a file is named for removal once, when its own rank has given it up and nobody else
//! refers to it.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An image file: rank and generation.
pub type File = (u32, u32);

/// Who needs what of others.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ImageReferences {
    /// For each file the files of other ranks that it refers to, or may.
    needs: BTreeMap<File, BTreeSet<File>>,
    /// Files that their own ranks have given up.
    given_up: BTreeSet<File>,
}

impl ImageReferences {
    /// The image `file` is written, and refers to `needs` of other ranks; of one that was not made
    /// after all, to none. Returns the files that are to be removed.
    pub fn written(&mut self, file: File, needs: impl IntoIterator<Item = File>) -> Vec<File> {
        self.needs.remove(&file);
        let needs: BTreeSet<File> = needs.into_iter().filter(|n| n.0 != file.0).collect();
        if !needs.is_empty() {
            self.needs.insert(file, needs);
        }
        self.sweep()
    }

    /// The rank of `file` does not need it any more. The images `unfinished` may refer to it.
    /// Returns the files that are to be removed.
    pub fn give_up(&mut self, file: File, unfinished: impl Iterator<Item = File>) -> Vec<File> {
        for other in unfinished.filter(|other| other.0 != file.0) {
            self.needs.entry(other).or_default().insert(file);
        }
        self.given_up.insert(file);
        self.sweep()
    }

    /// No image is of use any more. Returns the files that only others needed.
    pub fn clear(&mut self) -> Vec<File> {
        std::mem::take(self).given_up.into_iter().collect()
    }

    /// What a removed file needed may be free by that.
    fn sweep(&mut self) -> Vec<File> {
        let mut removed = Vec::new();
        loop {
            let needed: BTreeSet<File> = self.needs.values().flatten().copied().collect();
            let free: Vec<File> = self.given_up.difference(&needed).copied().collect();
            if free.is_empty() {
                return removed;
            }
            for file in &free {
                self.given_up.remove(file);
                self.needs.remove(file);
            }
            removed.extend(free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    const NOBODY: [File; 0] = [];

    fn no() -> impl Iterator<Item = File> {
        NOBODY.into_iter()
    }

    #[test]
    fn a_file_stays_as_long_as_another_rank_refers_to_it() {
        let mut loans = ImageReferences::default();
        assert_eq!(loans.written((0, 1), []), NOBODY);
        assert_eq!(loans.written((1, 1), [(0, 1)]), NOBODY);
        assert_eq!(loans.give_up((0, 1), no()), NOBODY, "(1, 1) refers to it");
        assert_eq!(loans.written((1, 2), [(0, 1), (1, 1)]), NOBODY);
        assert_eq!(loans.give_up((1, 1), no()), [(1, 1)]);
        assert_eq!(loans.give_up((1, 2), no()), [(1, 2), (0, 1)]);
    }

    #[test]
    fn an_image_being_written_may_need_it() {
        let mut loans = ImageReferences::default();
        assert_eq!(loans.give_up((0, 1), [(0, 2), (1, 5)].into_iter()), NOBODY);
        assert_eq!(loans.give_up((0, 2), [(1, 5)].into_iter()), NOBODY);
        assert_eq!(loans.written((1, 5), [(0, 2)]), [(0, 1)], "it needed the other one");
        assert_eq!(loans.written((1, 6), []), NOBODY);
        assert_eq!(loans.give_up((1, 5), no()), [(1, 5), (0, 2)]);
        // One that failed needs nothing.
        assert_eq!(loans.give_up((0, 3), [(1, 7)].into_iter()), NOBODY);
        assert_eq!(loans.written((1, 7), []), [(0, 3)]);
    }

    #[test]
    fn without_loans_files_go_at_once() {
        let mut loans = ImageReferences::default();
        loans.written((0, 1), [(0, 0)]);
        assert_eq!(loans.give_up((0, 1), [(0, 2)].into_iter()), [(0, 1)]);
        assert!(loans.needs.is_empty() && loans.given_up.is_empty());
    }

    /// Random histories of ranks that refer to files that are there: none goes while it is needed,
    /// none twice, and in the end none is left.
    #[test]
    fn needed_files_stay_and_others_go() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let mut loans = ImageReferences::default();
            let mut own: BTreeMap<File, BTreeSet<File>> = BTreeMap::new();
            let mut disk: BTreeSet<File> = BTreeSet::new();
            let mut writing: BTreeMap<File, BTreeSet<File>> = BTreeMap::new();
            let mut next = 1;
            let gone = |disk: &mut BTreeSet<File>, files: Vec<File>| {
                files.iter().for_each(|f| assert!(disk.remove(f), "seed {seed}: {f:?} twice"));
            };
            for _ in 0..60 {
                let rank = random.below(3) as u32;
                match random.below(3) {
                    0 => {
                        // It may refer to whatever its owners still have now.
                        let some = own.keys().filter(|_| random.below(2) == 0).copied();
                        let needs: BTreeSet<File> = some.filter(|f| f.0 != rank).collect();
                        writing.insert((rank, next), needs);
                        next += 1;
                    }
                    1 => {
                        let Some((file, needs)) = writing.pop_first() else { continue };
                        let fails = random.below(4) == 0;
                        let needs = if fails { BTreeSet::new() } else { needs };
                        let all = needs.iter().all(|n| disk.contains(n));
                        assert!(all, "seed {seed}: {file:?} refers to a file that is gone");
                        if !fails {
                            disk.insert(file);
                            own.insert(file, needs.clone());
                        }
                        gone(&mut disk, loans.written(file, needs));
                    }
                    _ => {
                        let nth = random.below(own.len().max(1) as u64) as usize;
                        let Some(file) = own.keys().nth(nth).copied() else { continue };
                        own.remove(&file);
                        gone(&mut disk, loans.give_up(file, writing.keys().copied()));
                    }
                }
                let lost = own.values().flatten().any(|n| !disk.contains(n));
                assert!(!lost && own.keys().all(|f| disk.contains(f)), "seed {seed}");
            }
            writing.keys().for_each(|f| gone(&mut disk, loans.written(*f, [])));
            own.keys().for_each(|f| gone(&mut disk, loans.give_up(*f, no())));
            assert!(disk.is_empty(), "seed {seed}: {disk:?} left");
        }
    }
}
