//! Hashes of the pages of shared objects, made by all processors at once and held at once against
//! what is known: nobody runs who could use these processors, and no list of hashes is needed.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::write::object_hashes::Held;
use crate::write::page_source::Source;
use crate::write::time_limit::Until;
use eyrie_image_format::support::parallel;
use eyrie_image_format::support::spans::{Span, Spans};
use std::sync::Mutex;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes read at once.
const BLOCK_BYTES: u64 = 1 << 20;
/// A thread takes so much at a time at least, and so many times at most: what is found is kept
/// apart until all is.
const PART_BYTES: u64 = 1 << 20;
const MOST_PARTS: u64 = 4096;

/// Finds for each of `known` the pages that it has as they are now; those that several have go to
/// the first. `now` gets the hashes of all of these.
pub fn same_in(
    source: &Source,
    ids: &[u64],
    pages: &Spans,
    known: &[&Held],
    now: Option<&Held>,
    until: Until<'_>,
) -> Result<Vec<Spans>, CaptureError> {
    let places: Vec<_> = known.iter().map(|held| held.places(ids)).collect();
    let parts = parts(pages);
    let found: Vec<Mutex<Vec<Spans>>> = parts.iter().map(|_| Mutex::default()).collect();
    each_block(source, pages, &parts, until, |part, at, hashes| {
        let mut found = found[part].lock().unwrap_or_else(|e| e.into_inner());
        found.resize(known.len(), Spans::default());
        let mut taken = vec![false; hashes.len()];
        for ((held, places), found) in known.iter().zip(&places).zip(found.iter_mut()) {
            let same = held.same(places, at, hashes);
            for ((i, same), taken) in same.enumerate().zip(&mut taken) {
                if same && !*taken {
                    let start = at + i as u64 * PAGE_BYTES;
                    found.push(start, start + PAGE_BYTES);
                    *taken = true;
                }
            }
        }
        if let Some(now) = now {
            note_some(now, at, hashes, &taken);
        }
    })?;
    let mut all = vec![Spans::default(); known.len()];
    for part in found {
        let part = part.into_inner().unwrap_or_else(|e| e.into_inner());
        for (all, found) in all.iter_mut().zip(part) {
            found.iter().for_each(|span| all.push(span.start, span.end));
        }
    }
    Ok(all)
}

/// Notes what some pages are.
pub fn note(source: &Source, pages: &Spans, now: &Held) -> Result<(), CaptureError> {
    let parts = parts(pages);
    each_block(source, pages, &parts, Until::default(), |_, at, hashes| now.note(at, hashes))
}

/// Notes those of pages from `at` on that were taken.
fn note_some(now: &Held, at: u64, hashes: &[u128], taken: &[bool]) {
    let mut i = 0;
    for run in taken.chunk_by(|a, b| a == b) {
        if run[0] {
            now.note(at + i as u64 * PAGE_BYTES, &hashes[i..i + run.len()]);
        }
        i += run.len();
    }
}

/// From where to where each part of the pages lies.
fn parts(pages: &Spans) -> Vec<Span> {
    let most = PART_BYTES.max((pages.bytes() / MOST_PARTS).next_multiple_of(PAGE_BYTES));
    let (mut parts, mut begun, mut room) = (Vec::new(), None, most);
    for span in pages.iter() {
        let mut at = span.start;
        while at < span.end {
            let start = *begun.get_or_insert(at);
            let end = span.end.min(at + room);
            room -= end - at;
            at = end;
            if room == 0 {
                parts.push(Span { start, end });
                (begun, room) = (None, most);
            }
        }
    }
    if let (Some(start), Some(last)) = (begun, pages.iter().last()) {
        parts.push(Span { start, end: last.end });
    }
    parts
}

/// Calls `work` with the number of a part, an address and the hashes of the pages from there on.
fn each_block(
    source: &Source,
    pages: &Spans,
    parts: &[Span],
    until: Until<'_>,
    work: impl Fn(usize, u64, &[u128]) + Sync,
) -> Result<(), CaptureError> {
    let each = |(buffer, hashes): &mut (Vec<u8>, Vec<u128>), part: usize| {
        for span in pages.within(parts[part].start, parts[part].end) {
            let mut at = span.start;
            while at < span.end {
                until.check()?;
                let wanted = (span.end - at).min(BLOCK_BYTES) as usize;
                buffer.resize(wanted.max(buffer.len()), 0);
                let read = source.read(at, &mut buffer[..wanted])?;
                hashes.clear();
                hashes.extend(buffer[..read].chunks(PAGE_BYTES as usize).map(xxh3_128));
                work(part, at, hashes);
                // A page that cannot be read is not known.
                at += if read < wanted { read as u64 + PAGE_BYTES } else { read as u64 };
            }
        }
        Ok(())
    };
    let state = || (Vec::new(), Vec::new());
    parallel::for_each(parallel::threads(), parts.len(), state, each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::shared_memory::content::{Object, Objects};
    use eyrie_image_format::state::object_at;
    use std::fs::File;
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;

    const PAGES: u64 = 700;

    fn object() -> File {
        // SAFETY: a live C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"compare".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: just made, and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        for page in 0..PAGES {
            file.write_all_at(&[page as u8 | 1; 4096], page * PAGE_BYTES).unwrap();
        }
        file
    }

    fn source(file: &File) -> (Source, Spans) {
        let mut objects = Objects::default();
        let file = file.try_clone().unwrap();
        objects.push(5, Object::File { file, bytes: PAGES * PAGE_BYTES });
        let present = objects.present().unwrap();
        (Source::Shared(objects), present)
    }

    fn numbers(spans: &Spans) -> Vec<u64> {
        let number = |address: u64| (address - object_at(0)) / PAGE_BYTES;
        spans.iter().flat_map(|s| number(s.start)..number(s.end)).collect()
    }

    #[test]
    fn each_page_goes_to_the_first_that_has_it_and_a_changed_one_to_none() {
        let file = object();
        let (source, all) = source(&file);
        let new = || Held::new("/does/not/exist".as_ref(), &[(5, PAGES)]);
        let (first, second, now) = (new(), new(), new());
        note(&source, &all, &first).unwrap();
        file.write_all_at(&[0xee; 10], 300 * PAGE_BYTES + 4000).unwrap();
        file.write_all_at(&[0xee; 10], 699 * PAGE_BYTES).unwrap();
        note(&source, &all, &second).unwrap();
        file.write_all_at(&[0xef; 1], 699 * PAGE_BYTES).unwrap();
        let known = [&first, &second];
        let found = same_in(&source, &[5], &all, &known, Some(&now), Until::default()).unwrap();
        assert_eq!(numbers(&found[1]), [300]);
        let others: Vec<u64> = (0..PAGES).filter(|page| ![300, 699].contains(page)).collect();
        assert_eq!(numbers(&found[0]), others);
        // What is the same is known from now on, and the changed page is not.
        let again = same_in(&source, &[5], &all, &[&now], None, Until::default()).unwrap();
        assert_eq!(numbers(&again[0]), (0..699).collect::<Vec<_>>());
        let off = AtomicBool::new(true);
        let failure = same_in(&source, &[5], &all, &known, None, Until::called_off(&off));
        assert!(matches!(failure, Err(CaptureError::CalledOff)));
    }

    #[test]
    fn parts_have_all_pages_once() {
        let (kib, mib) = (1u64 << 10, 1u64 << 20);
        let large = [(mib, 9 * mib + 4 * kib), (20 * mib, 21 * mib)];
        let list = [(0, 4 * kib), (8 * kib, 16 * kib)].into_iter().chain(large);
        let spans = Spans::of(list.map(|(start, end)| Span { start, end }).collect());
        let parts = parts(&spans);
        let mut all = Vec::new();
        for part in &parts {
            let within: Vec<Span> = spans.within(part.start, part.end).collect();
            assert!(within.iter().map(|s| s.end - s.start).sum::<u64>() <= PART_BYTES);
            all.extend(within);
        }
        assert_eq!(Spans::of(all), spans);
        assert!(parts.len() > 9 && parts.windows(2).all(|w| w[0].end <= w[1].start));
    }
}
