//! What the images of several processes in one folder have in common is stored once.
//!
//! Each member of a pool lends the file of its last full image: a table says for the hash of each
//! page where it lies. What other members borrow is found in [`crate::write::dedup`].
//!
//! Kept true: a member never borrows from itself; no file is offered after it was withdrawn; the
//! tables take a bounded amount of memory; what has never paid is not tried every time.

use eyrie_image_format::read::chain::Known;
use eyrie_image_format::read::frame::Part;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Most pages in all tables: 16 MiB of memory, 4 GiB of content.
const MAX_ENTRIES: usize = 1 << 20;
/// With [`Sharing::Auto`] this share of an image must be borrowed for any of it to be.
const LEAST_SHARE: f64 = 0.1;
/// After so many images in a row that did not reach it only one of [`RETRY`] is tried.
const FRUITLESS: u32 = 8;
const RETRY: u32 = 16;

/// Whether images refer to those of other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Where a sample of the pages says that it saves a tenth of the image at least.
    #[default]
    Auto,
    /// Wherever something is the same.
    On,
}

/// Processes whose images lie in one folder, and that may refer to each other's files.
#[derive(Debug)]
pub struct Pool {
    sharing: Sharing,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// At most one for each member, newest last.
    lenders: Vec<Arc<Lent>>,
    /// Images in a row that borrowed too little.
    fruitless: u32,
}

/// A file that is lent.
#[derive(Debug)]
pub(crate) struct Lent {
    member: u32,
    folder: PathBuf,
    /// The file; one that is not of the borrower's own.
    pub known: Known,
    /// Hash and number of its pages, in order of hash.
    table: Vec<(u64, u32)>,
    part: OnceLock<Option<Part>>,
}

/// Membership in a pool.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub pool: Arc<Pool>,
    pub number: u32,
}

impl Pool {
    /// One without members.
    pub fn new(sharing: Sharing) -> Arc<Pool> {
        Arc::new(Pool { sharing, inner: Mutex::default() })
    }

    /// The file `name` is about to be removed: nobody begins to borrow from it any more. Images
    /// that are being written may have begun to.
    pub fn withdraw(&self, name: &OsStr) {
        self.inner().lenders.retain(|l| l.known.file.name != name.as_bytes());
    }

    /// All files are about to be removed.
    pub fn clear(&self) {
        self.inner().lenders.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing is half done where a thread could panic.
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether a full image is to be held against others, and offered to them: not where it was
    /// in vain often. Counts as a try.
    pub(crate) fn is_worth_it(&self) -> bool {
        let mut inner = self.inner();
        if self.sharing == Sharing::On || inner.fruitless < FRUITLESS {
            return true;
        }
        inner.fruitless += 1;
        inner.fruitless.is_multiple_of(RETRY)
    }

    /// Whether it may be worth it. Does not count as a try.
    pub(crate) fn may_pay(&self) -> bool {
        self.sharing == Sharing::On || self.inner().fruitless < FRUITLESS
    }

    /// Whether an image of which `share` could be borrowed borrows it.
    pub(crate) fn pays(&self, share: f64) -> bool {
        let enough = share >= LEAST_SHARE;
        let mut inner = self.inner();
        match enough {
            true => inner.fruitless = 0,
            false if inner.fruitless < FRUITLESS => inner.fruitless += 1,
            false => {}
        }
        share > 0.0 && (enough || self.sharing == Sharing::On)
    }

    /// The files that `member` may borrow from, newest first.
    pub(crate) fn lenders(&self, member: u32, folder: &Path) -> Vec<Arc<Lent>> {
        let inner = self.inner();
        let others = inner.lenders.iter().rev();
        others.filter(|l| l.member != member && l.folder == folder).cloned().collect()
    }

    /// Lends a file, in place of the one that its owner lent before.
    pub(crate) fn lend(&self, mut lender: Lent) {
        let mut inner = self.inner();
        inner.lenders.retain(|l| l.member != lender.member);
        let used: usize = inner.lenders.iter().map(|l| l.table.len()).sum();
        if lender.table.len() > MAX_ENTRIES.saturating_sub(used) {
            // What runs on behind a page in the table is found all the same.
            lender.table.retain(|(_, page)| {
                page.is_multiple_of(eyrie_image_format::read::chain::STRIDE as u32)
            });
        }
        if lender.table.len() <= MAX_ENTRIES.saturating_sub(used) {
            inner.lenders.push(Arc::new(lender));
        }
    }
}

impl Lent {
    /// The image `known` of `member`, whose pages have these hashes.
    pub fn new(member: u32, folder: &Path, known: Known, hashes: &[u64]) -> Lent {
        let mut table: Vec<(u64, u32)> = hashes.iter().copied().zip(0..).collect();
        table.sort_unstable();
        // Of pages that are the same one is enough: each is borrowed once.
        table.dedup_by_key(|(hash, _)| *hash);
        let known = Known { lent: true, ..known };
        Lent { member, folder: folder.to_path_buf(), known, table, part: OnceLock::new() }
    }

    /// The page that may be the one with this hash.
    pub fn find(&self, hash: u64) -> Option<u64> {
        let at = self.table.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        Some(u64::from(self.table[at].1))
    }

    /// The file; `None` if it is not the one that was lent any more.
    pub fn part(&self) -> Option<&Part> {
        let open = || {
            let path = self.folder.join(OsStr::from_bytes(&self.known.file.name));
            Part::open(&path).ok().filter(|part| part.identity == self.known.file.identity)
        };
        self.part.get_or_init(open).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image_format::bytes::layout::Ancestor;

    fn lender(member: u32, name: &str, hashes: &[u64]) -> Lent {
        let file = Ancestor { name: name.into(), identity: [0; 16] };
        let known = Known { file, pages: hashes.len() as u64, lent: false };
        Lent::new(member, Path::new("/x"), known, hashes)
    }

    fn names(pool: &Pool, member: u32) -> Vec<String> {
        let all = pool.lenders(member, Path::new("/x"));
        all.iter().map(|l| String::from_utf8_lossy(&l.known.file.name).into_owned()).collect()
    }

    #[test]
    fn a_member_lends_its_last_file_to_the_others() {
        let pool = Pool::new(Sharing::Auto);
        for (member, name) in [(0, "a"), (1, "b"), (0, "c")] {
            pool.lend(lender(member, name, &[1, 2]));
        }
        assert_eq!(names(&pool, 0), ["b"]);
        assert_eq!(names(&pool, 2), ["c", "b"]);
        assert!(pool.lenders(2, Path::new("/y")).is_empty());
        pool.withdraw(OsStr::new("c"));
        assert_eq!(names(&pool, 2), ["b"]);
    }

    #[test]
    fn pages_are_found_by_their_hash() {
        let one = lender(0, "a", &[70, 10, 30, 10]);
        assert_eq!([70, 10, 30].map(|hash| one.find(hash)), [Some(0), Some(1), Some(2)]);
        assert_eq!(one.find(11), None);
        assert!(one.known.lent && one.part().is_none());
    }

    #[test]
    fn tables_are_bounded() {
        let pool = Pool::new(Sharing::Auto);
        let many: Vec<u64> = (0..MAX_ENTRIES as u64 - 10).collect();
        pool.lend(lender(0, "a", &many));
        let more: Vec<u64> = (0..100).collect();
        pool.lend(lender(1, "b", &more));
        let [b, a] = &pool.lenders(2, Path::new("/x"))[..] else { panic!("two are lent") };
        assert_eq!((a.table.len(), b.table.len()), (MAX_ENTRIES - 10, 7));
        pool.lend(lender(3, "c", &more));
        assert_eq!(names(&pool, 2), ["b", "a"]);
    }

    #[test]
    fn what_never_pays_is_seldom_tried() {
        let pool = Pool::new(Sharing::Auto);
        for _ in 0..FRUITLESS {
            assert!(pool.is_worth_it() && !pool.pays(0.05));
        }
        let tried = (0..10 * RETRY).filter(|_| pool.is_worth_it()).count();
        assert_eq!(tried, 10);
        assert!(pool.pays(0.2) && pool.is_worth_it());
        let wanted = Pool::new(Sharing::On);
        assert!((0..99).all(|_| wanted.is_worth_it() && wanted.pays(0.01)) && !wanted.pays(0.0));
    }
}
