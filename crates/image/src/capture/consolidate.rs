//! Putting the last image of a tracked process into one file, or fewer, while it runs.

use crate::ImageReport;
use crate::capture::tracker::Tracker;
use eyrie_image_format::bytes::layout::Ancestor;
use eyrie_image_format::read::chain::{Index, Known};
use eyrie_image_format::tools::consolidate::{ConsolidateError, Rewritten, rewrite};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Tracker {
    /// Whether it is time for [`Tracker::tidy`]: the last image needs many earlier files, or more
    /// than half of what these hold is of no use to it.
    pub fn is_scattered(&self) -> bool {
        self.base().is_some_and(|base| base.index.is_scattered())
    }

    /// Rewrites the last image as one that needs no earlier one of its process, under the same
    /// name. To be called only while no image is being made. `None`: there is nothing to do.
    pub fn consolidate(&mut self) -> Result<Option<ImageReport>, ConsolidateError> {
        self.put_together(|index| index.files().iter().map(|known| known.lent).collect())
    }

    /// The same, but as one that still needs the earlier ones that are large and of use: what is
    /// written anew is about what has changed.
    pub fn tidy(&mut self) -> Result<Option<ImageReport>, ConsolidateError> {
        self.put_together(Index::staying)
    }

    fn put_together(
        &mut self,
        staying: impl Fn(&Index) -> Vec<bool>,
    ) -> Result<Option<ImageReport>, ConsolidateError> {
        let Some(base) = self.base().filter(|_| self.is_idle()).cloned() else { return Ok(None) };
        let staying = staying(&base.index);
        let stay: Vec<&Known> =
            base.index.files().iter().zip(staying).filter(|f| f.1).map(|f| f.0).collect();
        if stay.len() == base.index.ancestors().len() {
            return Ok(None);
        }
        let name = base.index.files()[0].file.name.clone();
        let path = base.folder.join(OsStr::from_bytes(&name));
        let stays = |a: &Ancestor| stay.iter().any(|known| known.file == *a);
        let Some(Rewritten { written, extents, pages, stay: left, report }) =
            rewrite(&path, stays)?
        else {
            return Ok(None);
        };
        let file = Ancestor { name, identity: written.identity };
        let mut files = vec![Known { file, pages, lent: false }];
        let is_lent = |a: &Ancestor| stay.iter().any(|known| known.lent && known.file == *a);
        files.extend(left.into_iter().map(|(file, pages)| {
            let lent = is_lent(&file);
            Known { file, pages, lent }
        }));
        let index = base.index.consolidated(files, extents);
        drop(base);
        self.rewritten(index);
        Ok(Some(ImageReport {
            bytes: report.bytes,
            identity: report.identity,
            pages: report.pages,
            ancestors: report.ancestors,
            write: report.took,
            ..ImageReport::default()
        }))
    }
}
