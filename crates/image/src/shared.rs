//! What an image stores of memory that processes share: pages that are not what they were in the
//! image before.
//!
//! A twin shares this memory with the process instead of having a copy, so what is to be stored of
//! it has to be found, and kept, while the process stands still. It is found by hashes, on every
//! kernel: the kernel notes writes for each address space alone, and to shared memory others write
//! too, by `write`, or from a child that has ended since. What has changed is copied into a buffer
//! that is bounded for all processes of a family, or, if that is too much, goes from where it lies
//! straight to the image. Most of it may have been stored before, while the process ran
//! ([`crate::ahead`]): its hash is that of what was stored, so it does not matter what it was then.
//!
//! Kept true: a page is only left out or referred to if it has the 128-bit hash, at the freeze, of
//! what an image holds of the same object at the same offset. The hashes that are kept are of what
//! was stored, not of another reading: others may write to what they have attached, too.

use crate::PAGE_BYTES;
use crate::chain::Index;
use crate::error::CaptureError;
use crate::format::Extent;
use crate::hashes::Hashes;
use crate::objects::Objects;
use crate::pull::{Kind, Puller};
use crate::sort::Sorted;
use crate::source::{Copied, Source};
use crate::spans::{Span, Spans};
use crate::state::{Run, orphan_at, orphan_of};
use crate::write::ImageWriter;
use std::sync::atomic::AtomicBool;

/// What shared objects held at one time, of which all is in an image.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Numbers of the objects, by index.
    ids: Vec<u64>,
    /// Of their pages, where the image has them.
    hashes: Hashes,
}

/// Pages that an image has at another address, if their object had another index.
#[derive(Debug, Clone, Copy)]
struct Moved {
    /// Where they are now.
    span: Span,
    /// Where they were.
    from: u64,
}

/// Pages that were stored while the process ran: what they were, and where they are.
pub struct Round {
    held: Held,
    index: Index,
}

/// What is kept of the shared memory of a process.
#[derive(Default)]
pub struct Kept {
    /// What lies in earlier images; a home is a number in the index of the last one.
    referred: Vec<Extent>,
    /// What is stored already.
    stored: Vec<Extent>,
    /// Pages of zeros.
    blank: Vec<Span>,
    rest: Rest,
    /// Much was stored while the process stood still.
    straight: bool,
    /// All of it, if that is to be known at the next image.
    pub held: Option<Held>,
    /// Hashes of the pages that were stored at the freeze, if these are wanted.
    pub page_hashes: Vec<u64>,
}

/// What is yet to be stored.
#[derive(Default)]
enum Rest {
    #[default]
    Nothing,
    Copied(Source, Spans),
    /// It was not kept: it is stored where it lies, as long as the process stands still.
    Live(Source, Spans),
}

/// Where an image begins that more than can be copied goes to; `None` if it cannot begin yet.
pub type Begin<'a, 'w> =
    &'a mut dyn FnMut() -> Result<Option<&'w ImageWriter<'static>>, CaptureError>;

/// How it is kept.
pub struct Means<'a, 'w> {
    /// The image before, if it may be referred to: what it holds, and where.
    pub base: Option<(&'a Held, &'a Index)>,
    /// What was stored while the process ran.
    pub rounds: &'a [Round],
    /// Whether the next image may refer to this one.
    pub tracks: bool,
    /// Most bytes to be copied; less by those that were.
    pub room: &'a mut u64,
    /// Called when there is more.
    pub begin: Begin<'a, 'w>,
    /// Whether hashes of the stored pages are wanted.
    pub page_hashes: bool,
    /// Once this is true, the process need not stand still for it any more: it fails.
    pub called_off: Option<&'a AtomicBool>,
}

impl Held {
    /// Where the page was that is at `address`, of the objects with these numbers.
    fn place(&self, ids: &[u64], address: u64) -> Option<u64> {
        let (i, offset) = orphan_of(address)?;
        let id = ids.get(i)?;
        let then = self.ids.iter().position(|known| known == id)?;
        Some(orphan_at(then) + offset)
    }

    /// The pages of `within` that are the same `now`, as far as `index` has them.
    fn same(&self, now: &Held, index: &Index, within: &Spans) -> Vec<Moved> {
        let place = |address| self.place(&now.ids, address);
        let same = now.hashes.same_at(&self.hashes, place).intersection(within);
        let mut all = Vec::new();
        for span in same.iter() {
            let Some(from) = place(span.start) else { continue };
            let to = from + (span.end - span.start);
            let extents = index.within(from, to);
            let has = extents.map(|e| Span { start: e.start, end: e.start + e.pages * PAGE_BYTES });
            let has = Spans::of(has.chain(index.blank().within(from, to)).collect());
            all.extend(has.iter().map(|there| {
                let start = span.start + (there.start - from);
                let span = Span { start, end: start + (there.end - there.start) };
                Moved { span, from: there.start }
            }));
        }
        all
    }
}

impl Moved {
    fn to(&self) -> u64 {
        self.from + (self.span.end - self.span.start)
    }

    /// The stretches of an image's pages, where they are now.
    fn extents<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = Extent> + 'a {
        let here = |e: Extent| Extent { start: self.span.start + (e.start - self.from), ..e };
        index.within(self.from, self.to()).map(here)
    }

    /// Its pages of zeros.
    fn blank<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = Span> + 'a {
        let here = |at: u64| self.span.start + (at - self.from);
        let zeros = index.blank().within(self.from, self.to());
        zeros.map(move |s| Span { start: here(s.start), end: here(s.end) })
    }
}

fn all(moved: &[Moved]) -> Spans {
    Spans::of(moved.iter().map(|moved| moved.span).collect())
}

/// What of `present` is not what the image before has, nor what was stored in a round.
pub fn changed(
    source: &Source,
    ids: &[u64],
    present: &Spans,
    base: Option<(&Held, &Index)>,
    rounds: &[Round],
    hurry: &AtomicBool,
) -> Result<Spans, CaptureError> {
    if base.is_none() && rounds.is_empty() {
        return Ok(present.clone());
    }
    let hashes = Hashes::unless(Some(hurry), source, present)?;
    let now = Held { ids: ids.to_vec(), hashes };
    let rounds = rounds.iter().map(|round| (&round.held, &round.index));
    let without = |left: Spans, (held, index): (&Held, &Index)| {
        let same = held.same(&now, index, &left);
        left.without(&all(&same))
    };
    Ok(base.into_iter().chain(rounds).fold(present.clone(), without))
}

/// Stores pages.
fn take(puller: &mut Puller<'_>, pages: &Spans) -> Result<(), CaptureError> {
    for span in pages.iter() {
        let run = Run { start: span.start, pages: (span.end - span.start) / PAGE_BYTES };
        puller.take(&run, Kind::Anon, true);
    }
    puller.pull()
}

impl Round {
    /// Stores pages of objects that may be written to meanwhile.
    pub fn store(
        source: &Source,
        ids: &[u64],
        pages: &Spans,
        writer: &ImageWriter<'_>,
        hurry: &AtomicBool,
    ) -> Result<Round, CaptureError> {
        let mut puller = Puller::new(source, None, writer);
        puller.hurry = Some(hurry);
        puller.seen = Some(Hashes::default());
        take(&mut puller, pages)?;
        let held = Held { ids: ids.to_vec(), hashes: puller.seen.unwrap_or_default() };
        Ok(Round { held, index: Index::new(Vec::new(), puller.extents, puller.blank) })
    }
}

impl Kept {
    /// Keeps what has changed of the objects of a process that stands still, as do all others that
    /// write to them.
    pub fn of(objects: Objects, means: Means<'_, '_>) -> Result<Kept, CaptureError> {
        let (ids, mut rest) = (objects.ids().to_vec(), objects.present()?);
        let source = Source::Shared(objects);
        let mut kept = Kept::default();
        // What is all stored is hashed on the way.
        let mut now = Held { ids, hashes: Hashes::default() };
        let known = means.base.is_some() || !means.rounds.is_empty();
        if known {
            now.hashes = Hashes::unless(means.called_off, &source, &rest)?;
            rest = kept.refer(&now, &means, rest);
        }
        let mut stored = None;
        let bytes = rest.bytes();
        if bytes <= *means.room {
            *means.room -= bytes;
            let copied = Source::Copied(Copied::of(&source, &rest)?);
            if means.tracks {
                stored = Some(Hashes::of(&copied, &rest)?);
            }
            kept.rest = if bytes > 0 { Rest::Copied(copied, rest) } else { Rest::Nothing };
        } else if let Some(writer) = (means.begin)()? {
            // The process does not stand still for those who take the image as well.
            writer.hold_tap(true)?;
            let mut puller = Puller::new(&source, None, writer);
            puller.hurry = means.called_off;
            puller.seen = means.tracks.then(Hashes::default);
            puller.hashes = means.page_hashes.then(Vec::new);
            take(&mut puller, &rest)?;
            kept.stored.append(&mut puller.extents);
            kept.blank.extend(puller.blank.iter());
            kept.page_hashes = puller.hashes.unwrap_or_default();
            (stored, kept.straight) = (puller.seen, true);
        } else {
            // Nothing refers to such an image.
            kept.rest = Rest::Live(source, rest);
            return Ok(kept);
        }
        match stored {
            Some(stored) if known => now.hashes.renew(&stored),
            Some(stored) => now.hashes = stored,
            None => {}
        }
        kept.held = means.tracks.then_some(now);
        Ok(kept)
    }

    /// Notes what images have already; returns what they have not.
    fn refer(&mut self, now: &Held, means: &Means<'_, '_>, mut left: Spans) -> Spans {
        for Round { held, index } in means.rounds {
            let same = held.same(now, index, &left);
            self.stored.extend(same.iter().flat_map(|moved| moved.extents(index)));
            self.blank.extend(same.iter().flat_map(|moved| moved.blank(index)));
            left = left.without(&all(&same));
        }
        if let Some((held, index)) = means.base {
            let same = held.same(now, index, &left);
            self.referred.extend(same.iter().flat_map(|moved| moved.extents(index)));
            self.blank.extend(same.iter().flat_map(|moved| moved.blank(index)));
            left = left.without(&all(&same));
        }
        left
    }

    /// How much of it was copied, if all was that is to be stored of it.
    pub fn copied_bytes(&self) -> Option<u64> {
        match &self.rest {
            Rest::Copied(_, pages) => Some(pages.bytes()),
            Rest::Nothing if !self.straight => Some(0),
            Rest::Nothing | Rest::Live(..) => None,
        }
    }

    /// Whether the process has to stand still until it is stored.
    pub fn must_stand(&self) -> bool {
        matches!(self.rest, Rest::Live(..))
    }

    /// Adds what earlier images have to what is referred to in them anyway. A file is kept for
    /// however little of it.
    pub fn refer_in(&mut self, sorted: &mut Sorted, index: Option<&Index>) {
        let Some(index) = index else { return };
        for extent in std::mem::take(&mut self.referred) {
            let known = &index.files()[extent.home as usize];
            let there = sorted.ancestors.iter().position(|a| a.file.name == known.file.name);
            let there = there.unwrap_or_else(|| {
                sorted.ancestors.push(known.clone());
                sorted.ancestors.len() - 1
            });
            sorted.extents.push(Extent { home: there as u32 + 1, ..extent });
        }
    }

    /// Stores the rest, with the hashes of its pages if these are wanted.
    pub fn store_rest(
        &mut self,
        writer: &ImageWriter<'_>,
        hashes: Option<Vec<u64>>,
    ) -> Result<Option<Vec<u64>>, CaptureError> {
        let (Rest::Copied(source, pages) | Rest::Live(source, pages)) =
            std::mem::take(&mut self.rest)
        else {
            return Ok(hashes);
        };
        let mut puller = Puller::new(&source, None, writer);
        puller.hashes = hashes;
        take(&mut puller, &pages)?;
        self.stored.append(&mut puller.extents);
        self.blank.extend(puller.blank.iter());
        Ok(puller.hashes)
    }

    /// Where all that is in the image itself lies, and the pages of zeros.
    pub fn finish(self) -> (Vec<Extent>, Spans) {
        (self.stored, Spans::of(self.blank))
    }
}
