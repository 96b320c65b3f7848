//! What an image stores of memory that processes share: pages that are not what they were in the
//! image before.
//!
//! A twin shares this memory with the process instead of having a copy, so what is to be stored of
//! it has to be found, and kept, while the process stands still. It is found by hashes
//! ([`crate::write::object_hashes`]), on every kernel: the kernel notes writes for each address
//! space alone, and to shared memory others write too, by `write`, or from a child that has ended
//! since. What has changed is copied into a buffer that is bounded for all processes of a family,
//! or, if that is too much, goes from where it lies straight to the image, as long as some of it
//! gets there. Most of it may have been stored before, while the process ran
//! ([`crate::capture::image_precopy`]): its hash is that of what was stored, so it does not matter
//! what it was then.
//!
//! Kept true: a page is only left out or referred to if it has the 128-bit hash, at the freeze, of
//! what an image holds of the same object at the same offset. The hashes that are kept are of what
//! was stored, not of another reading: others may write to what they have attached, too.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::resources::shared_memory::content::Objects;
use crate::write::compare;
use crate::write::object_hashes::Held;
use crate::write::page_sort::Sorted;
use crate::write::page_source::{Copied, Source};
use crate::write::pull::{Kind, Puller};
use crate::write::time_limit::{Stand, Until};
use eyrie_image_format::bytes::layout::Extent;
use eyrie_image_format::read::chain::Index;
use eyrie_image_format::state::Run;
use eyrie_image_format::support::spans::{Span, Spans};
use eyrie_image_format::write::writer::ImageWriter;
use std::path::Path;
use std::sync::atomic::AtomicBool;

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
    /// Where the images are.
    pub folder: &'a Path,
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
    /// How long it stands still while nothing of what is more than can be copied is stored.
    pub stand: &'a Stand,
}

/// Where `index` has those of `same`, pages of objects with the numbers `ids` that are as in
/// `held`, as far as it has them.
fn found_in(held: &Held, index: &Index, ids: &[u64], same: &Spans) -> Vec<Moved> {
    let mut all = Vec::new();
    for span in same.iter() {
        let Some(from) = held.place(ids, span.start) else { continue };
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
    let known: Vec<_> = base.into_iter().chain(rounds.iter().map(Round::known)).collect();
    let until = Until::called_off(hurry);
    let found = look_up(source, ids, present, &known, None, until)?;
    Ok(found.iter().fold(present.clone(), |left, moved| left.without(&all(moved))))
}

/// For each of `known`, where it has pages as they are now. `now` gets their hashes.
fn look_up(
    source: &Source,
    ids: &[u64],
    pages: &Spans,
    known: &[(&Held, &Index)],
    now: Option<&Held>,
    until: Until<'_>,
) -> Result<Vec<Vec<Moved>>, CaptureError> {
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let held: Vec<&Held> = known.iter().map(|(held, _)| *held).collect();
    let same = compare::same_in(source, ids, pages, &held, now, until)?;
    let found = known.iter().zip(&same);
    Ok(found.map(|((held, index), same)| found_in(held, index, ids, same)).collect())
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
    /// Stores pages of objects that may be written to meanwhile, for an image in `folder`. `sizes`:
    /// [`Objects::sizes`].
    pub fn store(
        source: &Source,
        sizes: &[(u64, u64)],
        pages: &Spans,
        (writer, folder): (&ImageWriter<'_>, &Path),
        hurry: &AtomicBool,
    ) -> Result<Round, CaptureError> {
        let held = Held::new(folder, sizes);
        let mut puller = Puller::new(source, None, writer);
        puller.until = Until::called_off(hurry);
        puller.seen = Some(&held);
        take(&mut puller, pages)?;
        let index = Index::new(Vec::new(), puller.extents, puller.blank);
        Ok(Round { held, index })
    }

    fn known(&self) -> (&Held, &Index) {
        (&self.held, &self.index)
    }
}

impl Kept {
    /// Keeps what has changed of the objects of a process that stands still, as do all others that
    /// write to them.
    pub fn of(objects: Objects, means: Means<'_, '_>) -> Result<Kept, CaptureError> {
        let mut left = objects.present()?;
        let mut kept = Kept::default();
        if left == Spans::default() {
            return Ok(kept);
        }
        let (ids, sizes) = (objects.ids().to_vec(), objects.sizes());
        let source = Source::Shared(objects);
        let held = means.tracks.then(|| Held::new(means.folder, &sizes));
        let until = Until { called_off: means.called_off, stand: None };
        let rounds = means.rounds.iter().map(Round::known);
        let known: Vec<_> = rounds.chain(means.base).collect();
        let found = look_up(&source, &ids, &left, &known, held.as_ref(), until)?;
        for (i, moved) in found.iter().enumerate() {
            kept.refer(moved, known[i].1, i >= means.rounds.len());
            left = left.without(&all(moved));
        }
        let bytes = left.bytes();
        if bytes <= *means.room {
            *means.room -= bytes;
            let copied = Source::Copied(Copied::of(&source, &left)?);
            if let Some(held) = &held {
                compare::note(&copied, &left, held)?;
            }
            kept.rest = if bytes > 0 { Rest::Copied(copied, left) } else { Rest::Nothing };
        } else if let Some(writer) = (means.begin)()? {
            // The process does not stand still for those who take the image as well.
            writer.hold_tap(true)?;
            let mut puller = Puller::new(&source, None, writer);
            means.stand.begin();
            puller.until = Until { stand: Some(means.stand), ..until };
            puller.seen = held.as_ref();
            puller.hashes = means.page_hashes.then(Vec::new);
            take(&mut puller, &left)?;
            kept.stored.append(&mut puller.extents);
            kept.blank.extend(puller.blank.iter());
            kept.page_hashes = puller.hashes.unwrap_or_default();
            kept.straight = true;
        } else {
            // Nothing refers to such an image.
            kept.rest = Rest::Live(source, left);
            return Ok(kept);
        }
        kept.held = held;
        Ok(kept)
    }

    /// Notes what an image has already: an earlier one, or what is stored of this one.
    fn refer(&mut self, moved: &[Moved], index: &Index, earlier: bool) {
        let to = if earlier { &mut self.referred } else { &mut self.stored };
        to.extend(moved.iter().flat_map(|moved| moved.extents(index)));
        self.blank.extend(moved.iter().flat_map(|moved| moved.blank(index)));
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
