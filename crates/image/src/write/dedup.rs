//! Finding the pages of a process that lie in the images of others.
//!
//! Of each stretch of pages that is to be stored one in sixteen is looked up by its hash. Where
//! enough is found, what lies around it is held against the other's file.
//!
//! Kept true: only what is the same byte by byte is referred to, in runs of 64 KiB at least; no
//! page of a file is referred to twice; a file of which little would be of use is left alone.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::write::page_sort::Sorted;
use crate::write::page_source::Source;
use crate::write::pool::{Lent, Member};
use crate::write::pull::is_zero;
use eyrie_image_format::bytes::layout::Extent;
use eyrie_image_format::read::blocks::Blocks;
use eyrie_image_format::read::chain::{self, STRIDE};
use eyrie_image_format::support::spans::{Span, Spans};
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const PAGE: usize = PAGE_BYTES as usize;
/// Pages that are compared at once.
const CHUNK: u64 = 64;

/// Bytes of a page that its hash is made of, at its beginning and in its middle.
const HASHED_BYTES: usize = 256;

/// What the tables of a pool are made with. Not of the whole page: that would take a quarter of the
/// time that storing it takes, and what is found is compared anyway.
pub fn hash(page: &[u8]) -> u64 {
    let middle = page.len() / 2;
    let [a, b] = [0, middle].map(|at| xxh3_64(&page[at..at + HASHED_BYTES]));
    a ^ b.rotate_left(32)
}

/// A page of the process that seems to lie in another's file.
struct Hit {
    share: usize,
    /// The stretch that it belongs to.
    span: Span,
    address: u64,
    lender: usize,
    page: u64,
}

/// A run that does.
struct Found {
    share: usize,
    lender: usize,
    extent: Extent,
}

/// Turns pages that are to be stored into references to files of other members where it pays;
/// returns how many.
pub fn borrow(
    member: &Member,
    folder: &Path,
    source: &Source,
    sorted: &mut Sorted,
) -> Result<u64, CaptureError> {
    let lenders = member.pool.lenders(member.number, folder);
    let all: u64 = sorted.take.iter().map(|s| s.spans.bytes() / PAGE_BYTES).sum();
    if lenders.is_empty() || all < STRIDE {
        return Ok(0);
    }
    let hits = look_up(&lenders, source, sorted)?;
    let share = (hits.len() as u64 * STRIDE) as f64 / all as f64;
    if !member.pool.pays(share) {
        return Ok(0);
    }
    let mut comparer = Comparer::new(source, &lenders);
    let mut found: Vec<Found> = Vec::new();
    for hit in &hits {
        let done = found.last().map_or(0, |f| f.extent.start + f.extent.pages * PAGE_BYTES);
        if hit.address >= done
            && let Some(extent) = comparer.run(hit, done)?
        {
            found.push(Found { share: hit.share, lender: hit.lender, extent });
        }
    }
    Ok(refer(&lenders, found, sorted))
}

fn look_up(
    lenders: &[Arc<Lent>],
    source: &Source,
    sorted: &Sorted,
) -> Result<Vec<Hit>, CaptureError> {
    let (mut hits, mut page) = (Vec::new(), vec![0; PAGE]);
    for (share, pages) in sorted.take.iter().enumerate() {
        let long = |s: &Span| s.end - s.start >= STRIDE * PAGE_BYTES;
        for span in pages.spans.iter().filter(long) {
            for address in (span.start..span.end).step_by(PAGE * STRIDE as usize) {
                if source.read(address, &mut page)? < PAGE || is_zero(&page) {
                    continue;
                }
                let hash = hash(&page);
                let find = |(i, l): (usize, &Arc<Lent>)| Some((i, l.find(hash)?));
                if let Some((lender, page)) = lenders.iter().enumerate().find_map(find) {
                    hits.push(Hit { share, span, address, lender, page });
                }
            }
        }
    }
    Ok(hits)
}

/// Holds memory against files.
struct Comparer<'a> {
    source: &'a Source,
    lenders: &'a [Arc<Lent>],
    blocks: Blocks,
    /// The block that was read last: lender, number, content.
    block: Option<(usize, usize, Vec<u8>)>,
    /// For each lender the pages that are referred to.
    used: Vec<Vec<bool>>,
    own: Vec<u8>,
}

impl<'a> Comparer<'a> {
    fn new(source: &'a Source, lenders: &'a [Arc<Lent>]) -> Comparer<'a> {
        let used = lenders.iter().map(|_| Vec::new()).collect();
        let own = vec![0; PAGE * CHUNK as usize];
        Comparer { source, lenders, blocks: Blocks::default(), block: None, used, own }
    }

    /// The longest run around a hit that begins at `from` at the earliest, if it is long enough.
    fn run(&mut self, hit: &Hit, from: u64) -> Result<Option<Extent>, CaptureError> {
        let Some(part) = self.lenders[hit.lender].part() else { return Ok(None) };
        let pages = part.pages();
        self.used[hit.lender].resize(pages as usize, false);
        let room = (hit.address - hit.span.start.max(from)) / PAGE_BYTES;
        // Further back is another page that was looked up, in vain.
        let most = room.min(STRIDE - 1).min(hit.page);
        let mut before = 0;
        while before < most {
            let back = before + 1;
            let same = self.same(hit, hit.address - back * PAGE_BYTES, hit.page - back, 1)?;
            if same == 0 {
                break;
            }
            before = back;
        }
        let most = ((hit.span.end - hit.address) / PAGE_BYTES).min(pages - hit.page);
        let mut after = 0;
        while after < most {
            let want = CHUNK.min(most - after);
            let same = self.same(hit, hit.address + after * PAGE_BYTES, hit.page + after, want)?;
            after += same;
            if same < want {
                break;
            }
        }
        let (first, pages) = (hit.page - before, before + after);
        // A hash alone proves nothing: the page itself may differ.
        if after == 0 || pages < STRIDE {
            return Ok(None);
        }
        self.used[hit.lender][first as usize..(first + pages) as usize].fill(true);
        let start = hit.address - before * PAGE_BYTES;
        Ok(Some(Extent { start, pages, home: 0, reserved: 0, first }))
    }

    /// How many of the `want` pages at `address` are those of the file from `page` on.
    fn same(&mut self, hit: &Hit, address: u64, page: u64, want: u64) -> Result<u64, CaptureError> {
        let bytes = PAGE * want as usize;
        let mut own = std::mem::take(&mut self.own);
        let read = self.source.read(address, &mut own[..bytes]);
        let mut same = 0;
        let legible = *read.as_ref().unwrap_or(&0) / PAGE;
        for (mine, page) in own.chunks_exact(PAGE).take(legible).zip(page..) {
            if self.used[hit.lender][page as usize] || self.page(hit.lender, page) != Some(mine) {
                break;
            }
            same += 1;
        }
        self.own = own;
        read.map(|_| same)
    }

    /// A page of a lender's file; `None` if it is damaged.
    fn page(&mut self, lender: usize, page: u64) -> Option<&[u8]> {
        let part = self.lenders[lender].part()?;
        let block = part.block_of(page);
        let there = |b: &(usize, usize, Vec<u8>)| (b.0, b.1) == (lender, block);
        if !self.block.as_ref().is_some_and(there) {
            let mut content = self.block.take().map(|b| b.2).unwrap_or_default();
            content.clear();
            content.extend_from_slice(self.blocks.pages(part, block).ok()?);
            self.block = Some((lender, block, content));
        }
        let at = (page - part.first_page(block)) as usize * PAGE;
        self.block.as_ref()?.2.get(at..at + PAGE)
    }
}

/// Refers to what was found in files of which enough is of use.
fn refer(lenders: &[Arc<Lent>], found: Vec<Found>, sorted: &mut Sorted) -> u64 {
    let mut used = vec![0; lenders.len()];
    found.iter().for_each(|f| used[f.lender] += f.extent.pages);
    let mut homes = vec![0; lenders.len()];
    let mut spans: Vec<Vec<Span>> = sorted.take.iter().map(|_| Vec::new()).collect();
    let mut pages = 0;
    for Found { share, lender, mut extent } in found {
        let known = &lenders[lender].known;
        if !chain::is_of_use(used[lender], known.pages) {
            continue;
        }
        if homes[lender] == 0 {
            sorted.ancestors.push(known.clone());
            homes[lender] = sorted.ancestors.len() as u32;
        }
        extent.home = homes[lender];
        pages += extent.pages;
        let end = extent.start + extent.pages * PAGE_BYTES;
        spans[share].push(Span { start: extent.start, end });
        sorted.extents.push(extent);
    }
    for (share, spans) in sorted.take.iter_mut().zip(spans) {
        share.spans = share.spans.without(&Spans::of(spans));
    }
    pages
}

#[cfg(test)]
#[path = "dedup_tests.rs"]
mod tests;
