//! Chains of images held against a table of pages.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Where a page lies: number of the generation that stored it, and which page of its file.
type Table = BTreeMap<u64, (u64, u64)>;

fn known(generation: u64, pages: u64) -> Known {
    let identity = [generation as u8; 16];
    let file = Ancestor { name: generation.to_string().into_bytes(), identity };
    Known { file, pages, lent: false }
}

/// Takes the generation `generation` of a process that has the pages `own`, of which those in
/// `changed` are not as they were.
fn take(generation: u64, index: Option<&Index>, own: &Spans, changed: &Spans) -> Index {
    let (mut files, mut extents, mut store) = (Vec::new(), Vec::new(), own.clone());
    let mut blank = Spans::default();
    if let Some(index) = index {
        let mut references = References::new(index);
        let mut rest = Spans::default();
        for span in own.without(changed).iter() {
            rest = rest.union(&references.refer(span, true));
        }
        store = own.intersection(changed).union(&rest);
        (files, extents, blank) = references.finish();
    }
    let mut first = 0;
    for span in store.iter() {
        let pages = (span.end - span.start) / PAGE_BYTES;
        extents.push(Extent { start: span.start, pages, home: 0, reserved: 0, first });
        first += pages;
    }
    extents.sort_unstable_by_key(|e| e.start);
    files.insert(0, known(generation, first));
    Index::new(files, extents, blank)
}

fn table(index: &Index) -> Table {
    let mut all = Table::new();
    for e in &index.extents {
        let name = &index.files[e.home as usize].file.name;
        let generation: u64 = std::str::from_utf8(name).unwrap().parse().unwrap();
        for i in 0..e.pages {
            let old = all.insert(e.start + i * PAGE_BYTES, (generation, e.first + i));
            assert!(old.is_none(), "a page twice");
        }
    }
    all
}

fn spans() -> impl Strategy<Value = Spans> {
    let one = (0u64..40, 1u64..9)
        .prop_map(|(at, n)| Span { start: at * PAGE_BYTES, end: (at + n) * PAGE_BYTES });
    prop::collection::vec(one, 0..8).prop_map(Spans::of)
}

proptest! {
    #[test]
    fn unchanged_pages_lie_where_they_lay(
        generations in prop::collection::vec((spans(), spans()), 1..8)
    ) {
        let mut index: Option<Index> = None;
        let mut expected = Table::new();
        for (i, (own, changed)) in generations.iter().enumerate() {
            let generation = i as u64 + 1;
            let next = take(generation, index.as_ref(), own, changed);
            let mut now = Table::new();
            let mut stored = 0;
            for page in own.iter().flat_map(|s| (s.start..s.end).step_by(PAGE_BYTES as usize)) {
                let is_new = changed.within(page, page + 1).next().is_some();
                let place = match expected.get(&page).filter(|_| !is_new) {
                    Some(place) => *place,
                    None => {
                        stored += 1;
                        (generation, stored - 1)
                    }
                };
                now.insert(page, place);
            }
            prop_assert_eq!(table(&next), now.clone());
            prop_assert_eq!(next.files[0].pages, stored);
            for home in 1..next.files.len() {
                prop_assert!(next.extents.iter().any(|e| e.home as usize == home));
            }
            expected = now;
            index = Some(next);
        }
    }
}

#[test]
fn zeros_are_not_looked_at_again_unless_a_file_is_behind() {
    let blank = Spans::of(vec![Span { start: 0, end: 4 * PAGE_BYTES }]);
    let index = Index::new(vec![known(1, 0)], vec![], blank);
    let stretch = Span { start: 2 * PAGE_BYTES, end: 6 * PAGE_BYTES };
    let mut references = References::new(&index);
    assert_eq!(references.refer(stretch, true).bytes(), 2 * PAGE_BYTES);
    assert_eq!(references.finish().2.bytes(), 2 * PAGE_BYTES);
    assert_eq!(References::new(&index).refer(stretch, false).bytes(), 4 * PAGE_BYTES);
}

#[test]
fn a_file_that_is_hardly_of_use_is_not_kept_for_it() {
    let extent = Extent { start: 0, pages: 16, home: 0, reserved: 0, first: 0 };
    let index = Index::new(vec![known(1, 16)], vec![extent], Spans::default());
    let pages = |n: u64| Span { start: 0, end: n * PAGE_BYTES };
    for (held, unchanged, stored) in [(16, 1, 0), (17, 1, 1), (32, 2, 0), (33, 2, 2), (16, 16, 0)] {
        let index = Index { files: vec![known(1, held)], ..index.clone() };
        let mut references = References::new(&index);
        references.spare_files(&Spans::of(vec![pages(unchanged)]), &mut None);
        let rest = references.refer(pages(unchanged), true);
        assert_eq!(rest.bytes(), stored * PAGE_BYTES, "{unchanged} of {held}");
        assert_eq!(references.finish().0.is_empty(), stored > 0);
    }
}

#[test]
fn long_chains_and_such_with_much_that_is_stale_are_scattered() {
    let extent = |start: u64, pages: u64, home: u32| Extent {
        start: start * PAGE_BYTES,
        pages,
        home,
        reserved: 0,
        first: 0,
    };
    let full = Index::new(vec![known(1, 100)], vec![extent(0, 10, 0)], Spans::default());
    assert!(!full.is_scattered(), "nothing to gain from one file to one file");
    let two = |held| {
        let files = vec![known(2, 10), known(1, held)];
        Index::new(files, vec![extent(0, 10, 0), extent(10, 90, 1)], Spans::default())
    };
    assert!(!two(190).is_scattered());
    assert!(two(191).is_scattered());
    let chain = |n: u64| {
        let files = (0..=n).map(|i| known(n + 1 - i, 1)).collect();
        let extents = (0..=n).map(|i| extent(i, 1, i as u32)).collect();
        Index::new(files, extents, Spans::default())
    };
    assert!(!chain(MAX_FILES as u64).is_scattered());
    assert!(chain(MAX_FILES as u64 + 1).is_scattered());
}

/// An index of these files, its own first: pages held and of use.
fn of_files(files: &[(u64, u64)]) -> Index {
    let (mut extents, mut at) = (Vec::new(), 0);
    for (home, (_, used)) in (0u32..).zip(files) {
        let (start, pages) = (at * PAGE_BYTES, *used);
        extents.push(Extent { start, pages, home, reserved: 0, first: 0 });
        at += used;
    }
    let held = (0u64..).zip(files).map(|(n, file)| known(files.len() as u64 - n, file.0));
    Index::new(held.collect(), extents, Spans::default())
}

/// The index after what does not stay was put into its own file.
fn tidied(index: &Index, files: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let stays = index.staying();
    let anew = files.iter().zip(&stays).filter(|f| !f.1).map(|f| f.0.1).sum();
    let stay = files.iter().zip(&stays).filter(|f| *f.1).map(|f| *f.0);
    std::iter::once((anew, anew)).chain(stay).collect()
}

#[test]
fn what_changes_is_put_together_and_the_large_rest_stays() {
    let mut files = vec![(1, 1); MAX_FILES + 1];
    files.push((1000, 990));
    let left = tidied(&of_files(&files), &files);
    assert_eq!(left, [(9, 9), (1000, 990)]);
    // One that is stale by more than half does not stay, nor one that is hardly larger.
    for (last, stays) in [((1000, 500), true), ((1000, 499), false), ((18, 18), false)] {
        *files.last_mut().unwrap() = last;
        assert_eq!(*of_files(&files).staying().last().unwrap(), stays, "{last:?}");
    }
    let mut lent = of_files(&files);
    lent.files[3].lent = true;
    assert!(lent.staying()[3], "it is not of this chain");
}

proptest! {
    /// A process whose images each have some pages anew, of which it takes some from those before:
    /// what is put together is not scattered, and what is written for that is bounded by what
    /// changed.
    #[test]
    fn tidied_chains_are_not_scattered(
        full in 1u64..100_000,
        changes in prop::collection::vec((1u64..1000, 0usize..1000), 1..200),
    ) {
        let mut files = vec![(full, full)];
        for (anew, from) in changes {
            // As much of it was in one of the earlier files before, as far as that has it.
            let count = files.len();
            let file = &mut files[from % count];
            file.1 -= file.1.min(anew);
            files.insert(0, (anew, anew));
            files.retain(|file| file.1 > 0);
            let index = of_files(&files);
            if index.is_scattered() {
                files = tidied(&index, &files);
                let index = of_files(&files);
                prop_assert!(!index.is_scattered(), "{files:?}");
                prop_assert!(index.ancestors().len() <= STAYING_FILES);
            }
        }
    }
}
