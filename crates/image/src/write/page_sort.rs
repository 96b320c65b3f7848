//! Which pages of a process an image has to store, and which it may refer to in earlier ones.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::pagemap::{Pagemap, Part};
use crate::resources::regions::{Content, Regions};
use eyrie_image_format::bytes::layout::Extent;
use eyrie_image_format::read::chain::{Index, Known, References};
use eyrie_image_format::state::{Backing, Region, region};
use eyrie_image_format::support::spans::{Span, Spans};

/// Pages of one region.
#[derive(Debug, Clone)]
pub struct Share {
    /// Number of the region.
    pub region: usize,
    /// The pages.
    pub spans: Spans,
}

/// Which files of an index are not to be referred to, once that is decided.
pub type Spared = Option<Vec<bool>>;

/// What becomes of the pages of a process.
#[derive(Debug, Default)]
pub struct Sorted {
    /// To be stored, in order.
    pub take: Vec<Share>,
    /// The earlier images that hold the others.
    pub ancestors: Vec<Known>,
    /// Where these are in them.
    pub extents: Vec<Extent>,
    /// Pages of zeros that need not be looked at again.
    pub blank: Spans,
}

/// The pages with content of their own in all regions of which such are stored, except those that
/// `skip` picks out.
pub fn own(
    pagemap: &mut Pagemap,
    regions: &Regions,
    skip: impl Fn(u64, u64) -> bool,
) -> Result<Vec<Share>, CaptureError> {
    let mut all = Vec::new();
    for (number, (r, content)) in regions.list.iter().enumerate() {
        if *content != Content::Own || skip(r.start, r.end) {
            continue;
        }
        let mut runs = Vec::new();
        pagemap.own_pages(part(r), u64::MAX, &mut runs)?;
        let mut spans = Spans::default();
        runs.iter().for_each(|run| spans.push(run.start, run.start + run.pages * PAGE_BYTES));
        all.push(Share { region: number, spans });
    }
    Ok(all)
}

/// A region as it is searched for pages.
pub(crate) fn part(r: &Region) -> Part {
    let huge = r.flags & (region::HUGE_2M | region::HUGE_1G) != 0;
    Part { start: r.start, end: r.end, anon: r.backing == (Backing::Anon {}) && !huge }
}

/// All pages of some shares.
pub fn all(shares: &[Share]) -> Spans {
    let mut all = Spans::default();
    shares.iter().flat_map(|s| s.spans.iter()).for_each(|s| all.push(s.start, s.end));
    all
}

/// Sorts the pages of a process. Without an earlier image, or not knowing what has changed, all are
/// to be stored.
pub fn sort(
    own: Vec<Share>,
    regions: &Regions,
    changed: Option<&Spans>,
    index: Option<&Index>,
) -> Sorted {
    sort_with(own, regions, changed, index, &mut None)
}

/// The same more than once for one image: to which files it is not worth referring is decided the
/// first time.
pub fn sort_with(
    own: Vec<Share>,
    regions: &Regions,
    changed: Option<&Spans>,
    index: Option<&Index>,
    spared: &mut Spared,
) -> Sorted {
    let (Some(changed), Some(index)) = (changed, index) else {
        return Sorted { take: own, ..Sorted::default() };
    };
    let mut references = References::new(index);
    references.spare_files(&all(&own).without(changed), spared);
    let mut take = Vec::new();
    for Share { region, spans } in own {
        let anon = regions.list[region].0.backing == (Backing::Anon {});
        let mut rest = Vec::new();
        for Span { start, end } in spans.without(changed).iter() {
            rest.extend(references.refer(Span { start, end }, anon).iter());
        }
        let spans = spans.intersection(changed).union(&Spans::of(rest));
        take.push(Share { region, spans });
    }
    let (ancestors, extents, blank) = references.finish();
    Sorted { take, ancestors, extents, blank }
}
