//! Which parts of an image hold and which do not, where [`crate::Image::open`] stops at the first
//! that does not.

use crate::bytes::layout::{Ancestor, Extent, MAX_META_BYTES, MAX_TABLE_BYTES, section};
use crate::check;
use crate::error::ImageError;
use crate::read::blocks::{Blocks, Wants};
use crate::read::frame::Part;
use crate::read::image::{self, Image};
use crate::read::tree_images;
use std::path::Path;

/// What was found of one part of an image.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// Which part.
    pub part: String,
    /// What was looked at, in figures.
    pub detail: String,
    /// What is wrong with it.
    pub error: Option<ImageError>,
}

/// A list that grows with each part that is looked at.
#[derive(Default)]
struct Verdicts(Vec<Verdict>);

impl Verdicts {
    fn add<T>(
        &mut self,
        part: impl Into<String>,
        result: Result<T, ImageError>,
        detail: impl Fn(&T) -> String,
    ) -> Option<T> {
        let (value, detail, error) = match result {
            Ok(value) => {
                let detail = detail(&value);
                (Some(value), detail, None)
            }
            Err(error) => (None, String::new(), Some(error)),
        };
        self.0.push(Verdict { part: part.into(), detail, error });
        value
    }
}

impl Image {
    /// Looks at each part of an image on its own. It is whole if no part has an error.
    pub fn verify_parts(path: &Path) -> Vec<Verdict> {
        let mut all = Verdicts::default();
        let bytes = |n: usize| format!("{n} bytes");
        let opened = all.add("frame", Part::open(path), |p| format!("{} bytes", p.file_bytes));
        let Some(own) = opened else { return all.0 };
        let pages = pages_hold(&own);
        all.add("pages", pages, |blocks| format!("{} pages in {blocks} blocks", own.pages()));
        let ancestors =
            all.add("ancestors", image::ancestors(&own), |list| format!("{} files", list.len()));
        let parts = ancestors.and_then(|list| ancestors_hold(&mut all, path, own.again(), &list));
        let extents = own.list::<Extent>(section::RUNS, "run table", MAX_TABLE_BYTES);
        let extents = all.add("runs", extents, |list| format!("{} runs", list.len()));
        let state = all.add("state", own.state(), |s| {
            format!("{} threads, {} regions", s.threads.len(), s.regions.len())
        });
        if let Some(state) = state.as_ref().filter(|s| !s.tree_node.children.is_empty()) {
            let children =
                tree_images::open_children(path, &state.tree_node, crate::read::image::Check::All);
            all.add("child processes", children, |list| format!("{} images", list.len()));
        }
        let meta = own.section(section::META, "caller's part", MAX_META_BYTES);
        all.add("caller's part", meta, |m| bytes(m.len()));
        if let (Some(state), Some(extents), Some(parts)) = (state, extents, parts) {
            let homes: Vec<u64> = parts.iter().map(Part::pages).collect();
            let sense = check::check(&state, &extents, &homes).map_err(ImageError::Invalid);
            if all.add("content", sense, |()| "agrees with itself".into()).is_some() {
                let wants = Wants::new(&parts, &extents);
                let held = earlier_pages_hold(&parts, &wants);
                all.add("earlier pages", held, |n| format!("{n} blocks of other files"));
            }
        }
        all.0
    }
}

/// Every block of the file is read and decoded.
fn pages_hold(own: &Part) -> Result<usize, ImageError> {
    let mut blocks = Blocks::default();
    (0..own.blocks().len()).try_for_each(|i| blocks.pages(own, i).map(drop))?;
    Ok(own.blocks().len())
}

/// The blocks of earlier files that are needed.
fn earlier_pages_hold(parts: &[Part], wants: &Wants) -> Result<usize, ImageError> {
    let mut blocks = Blocks::default();
    let earlier = || wants.blocks.iter().filter(|w| w.part > 0);
    for wanted in earlier() {
        let part = &parts[wanted.part];
        blocks.pages(part, wanted.block).map(drop).map_err(|e| part.blame(e))?;
    }
    Ok(earlier().count())
}

/// Opens the earlier files; `None` if one of them does not hold.
fn ancestors_hold(
    all: &mut Verdicts,
    path: &Path,
    own: Result<Part, ImageError>,
    list: &[Ancestor],
) -> Option<Vec<Part>> {
    let mut parts = vec![own.ok()?];
    for ancestor in list {
        let name = format!("ancestor {}", String::from_utf8_lossy(&ancestor.name));
        let part = image::open_ancestor(path, ancestor);
        let part = all.add(name, part, |p| format!("{} bytes", p.file_bytes));
        parts.extend(part);
    }
    (parts.len() == list.len() + 1).then_some(parts)
}
