//! Images that refer to earlier ones: where each page of memory lies, and when a chain of files has
//! become too long.
//!
//! Every file is a complete index of its process: a page that has not changed is referred to in the
//! file where it was written, whichever that was, so nobody ever walks a chain.
//!
//! Kept true: a file is an ancestor only if a page of it is referred to; extents are in order of
//! address and lie within the stretches that were asked for.

use crate::PAGE_BYTES;
use crate::bytes::layout::{Ancestor, Extent};
use crate::state::object_of;
use crate::support::spans::{Span, Spans};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Most ancestors that an image is left with.
const MAX_FILES: usize = 8;
/// Most that stay when a chain has become too long.
const STAYING_FILES: usize = MAX_FILES / 2;
/// A file stays then if it has more than so many times the pages that are written anew.
const STAYING_RATIO: u64 = 2;
/// A file of which less than this share is of use is not worth keeping: its pages are stored again.
const LEAST_USE: u64 = 16;

/// What is known of a complete image: where it has each of its pages.
#[derive(Debug, Clone)]
pub struct Index {
    /// Its file, and those that it needs.
    files: Vec<Known>,
    /// Where its pages lie; a home is a number in `files`.
    extents: Vec<Extent>,
    /// Pages in memory without a file that were touched and are all zeros.
    blank: Spans,
}

/// An image file that others may refer to.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its name in the folder, and identity.
    pub file: Ancestor,
    /// Pages stored in it.
    pub pages: u64,
    /// Whether it is the image of another process (`eyrie_image::Pool`): its owner keeps it
    /// anyway, and it is not part of this process's chain.
    pub lent: bool,
}

/// Whether a file of which `used` of `pages` pages would be needed is worth keeping for that.
pub fn is_of_use(used: u64, pages: u64) -> bool {
    used * LEAST_USE >= pages
}

/// References of an image being written to earlier ones.
#[derive(Debug)]
pub struct References<'a> {
    index: &'a Index,
    /// For each file of the index, its number among the ancestors.
    homes: Vec<u32>,
    /// For each, whether it is not to be referred to.
    spared: Vec<bool>,
    ancestors: Vec<Known>,
    extents: Vec<Extent>,
    blank: Spans,
}

impl Index {
    /// The index of an image whose own file is the first of `files`.
    pub fn new(files: Vec<Known>, extents: Vec<Extent>, blank: Spans) -> Index {
        Index { files, extents, blank }
    }

    /// The same content, now in one file and those that are lent.
    pub fn consolidated(&self, files: Vec<Known>, extents: Vec<Extent>) -> Index {
        Index { files, extents, blank: self.blank.clone() }
    }

    /// Its own file, then those that it needs besides.
    pub fn files(&self) -> &[Known] {
        &self.files
    }

    /// Names of the files that it needs beside its own.
    pub fn names(&self) -> Vec<OsString> {
        let name = |known: &Known| OsString::from_vec(known.file.name.clone());
        self.ancestors().iter().map(name).collect()
    }

    /// Pages stored in its own file.
    pub fn own_pages(&self) -> u64 {
        self.extents.iter().filter(|e| e.home == 0).map(|e| e.pages).sum()
    }

    /// The files that it needs beside its own.
    pub fn ancestors(&self) -> &[Known] {
        self.files.get(1..).unwrap_or_default()
    }

    /// Pages of its own process's files: those it refers to, and those of no use to it.
    fn chained_pages(&self) -> [u64; 2] {
        let held: u64 = self.files.iter().filter(|f| !f.lent).map(|f| f.pages).sum();
        let own = |e: &&Extent| !self.files[e.home as usize].lent;
        let used = self.extents.iter().filter(own).map(|e| e.pages).sum();
        [used, held.saturating_sub(used)]
    }

    /// Pages that it refers to, in its own file and in others.
    pub fn pages(&self) -> u64 {
        self.extents.iter().map(|e| e.pages).sum()
    }

    /// Whether it is time to put files together: it needs many, or more than half of what they hold
    /// is of no use to it.
    pub fn is_scattered(&self) -> bool {
        let [used, stale] = self.chained_pages();
        let earlier = self.ancestors().iter().filter(|known| !known.lent).count();
        earlier > MAX_FILES || earlier > 0 && stale > used
    }

    /// Pages in memory without a file that were touched and are all zeros.
    pub fn blank(&self) -> &Spans {
        &self.blank
    }

    /// Which of its files stay if what is of use in the others is put into one: those of other
    /// processes, and large ones of which half is of use. So a little that changes again and again
    /// is written anew, and the much that does not is not. Afterwards it is not scattered.
    pub fn staying(&self) -> Vec<bool> {
        let mut used = vec![0; self.files.len()];
        self.extents.iter().for_each(|e| used[e.home as usize] += e.pages);
        let mut stays: Vec<bool> = self.files.iter().map(|known| known.lent).collect();
        let mut earlier: Vec<usize> = (1..used.len()).filter(|i| !stays[*i]).collect();
        earlier.sort_by_key(|i| used[*i]);
        let few = earlier.len().saturating_sub(STAYING_FILES);
        let mut anew = used.first().copied().unwrap_or(0);
        for (rank, file) in earlier.into_iter().enumerate() {
            let half = self.files[file].pages <= 2 * used[file];
            stays[file] = rank >= few && half && used[file] > STAYING_RATIO * anew;
            anew += if stays[file] { 0 } else { used[file] };
        }
        stays
    }

    /// The extents that have pages between two addresses, cut to these.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = Extent> + '_ {
        let first = self.extents.partition_point(|e| e.start + e.pages * PAGE_BYTES <= start);
        let cut = move |e: &Extent| {
            let from = e.start.max(start);
            let to = (e.start + e.pages * PAGE_BYTES).min(end);
            Extent {
                start: from,
                pages: (to - from) / PAGE_BYTES,
                home: e.home,
                reserved: 0,
                first: e.first + (from - e.start) / PAGE_BYTES,
            }
        };
        self.extents[first..].iter().take_while(move |e| e.start < end).map(cut)
    }
}

impl<'a> References<'a> {
    /// None yet.
    pub fn new(index: &'a Index) -> References<'a> {
        References {
            index,
            homes: vec![0; index.files.len()],
            spared: vec![false; index.files.len()],
            ancestors: Vec::new(),
            extents: Vec::new(),
            blank: Spans::default(),
        }
    }

    /// Decides which files are worth referring to, given all pages that have not changed, unless
    /// that is `decided`.
    pub fn spare_files(&mut self, unchanged: &Spans, decided: &mut Option<Vec<bool>>) {
        if let Some(spared) = decided.as_ref().filter(|spared| spared.len() == self.spared.len()) {
            self.spared.clone_from(spared);
            return;
        }
        let mut used = vec![0; self.index.files.len()];
        for span in unchanged.iter() {
            let extents = self.index.within(span.start, span.end);
            extents.for_each(|e| used[e.home as usize] += e.pages);
        }
        // Files are kept for whatever of shared memory is in them: to spare them saves nothing.
        let shared = self.index.extents.iter().filter(|e| object_of(e.start).is_some());
        shared.for_each(|e| used[e.home as usize] += e.pages);
        let files = self.index.files.iter().zip(&used);
        self.spared = files.map(|(file, used)| !is_of_use(*used, file.pages)).collect();
        *decided = Some(self.spared.clone());
    }

    /// Refers to the unchanged pages of a stretch that lies within one region, and after all
    /// stretches before; what it returns has to be stored. `anon`: there is no file behind.
    pub fn refer(&mut self, stretch: Span, anon: bool) -> Spans {
        let (mut rest, mut at) = (Spans::default(), stretch.start);
        let index = self.index;
        for mut extent in index.within(stretch.start, stretch.end) {
            if self.spared[extent.home as usize] {
                continue;
            }
            rest.push(at, extent.start);
            at = extent.start + extent.pages * PAGE_BYTES;
            extent.home = self.home(extent.home as usize);
            self.extents.push(extent);
        }
        rest.push(at, stretch.end);
        if !anon {
            return rest;
        }
        index
            .blank
            .within(stretch.start, stretch.end)
            .for_each(|s| self.blank.push(s.start, s.end));
        rest.without(&self.blank)
    }

    fn home(&mut self, file: usize) -> u32 {
        if self.homes[file] == 0 {
            self.ancestors.push(self.index.files[file].clone());
            self.homes[file] = self.ancestors.len() as u32;
        }
        self.homes[file]
    }

    /// The ancestors, the extents in them, and the pages of zeros that need not be looked at.
    pub fn finish(self) -> (Vec<Known>, Vec<Extent>, Spans) {
        (self.ancestors, self.extents, self.blank)
    }
}

/// One of so many pages is looked up. A run that is referred to has as many at least, and so holds
/// one that was looked up.
pub const STRIDE: u64 = 16;

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
