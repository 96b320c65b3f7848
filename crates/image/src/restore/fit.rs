//! Whether an image could be restored on this machine, by what it says and what is here.

use crate::error::RestoreError;
use crate::resources::files::mapped;
use crate::resources::processor;
use crate::restore::descriptors;
use eyrie_image_format::bytes::layout::{MAX_META_BYTES, MAX_TABLE_BYTES, section};
use eyrie_image_format::check;
use eyrie_image_format::error::ImageError;
use eyrie_image_format::read::frame::Part;
use eyrie_image_format::read::image::{Image, ancestors};
use eyrie_image_format::tools::core_file::{CoreError, CoreReport};
use std::fs::File;
use std::path::Path;

/// An error if the process in this file cannot run here: the processor lacks what it uses, or a
/// file that it has open or mapped is not here, or is another; or if the file is damaged, but
/// for its pages, which are not looked at.
/// `ignored`: see [`crate::RestoreOptions::ignore_features`].
pub fn fits_here(path: &Path, ignored: &[String]) -> Result<(), RestoreError> {
    let part = Part::open(path)?;
    part.section(section::RUNS, "run table", MAX_TABLE_BYTES)?;
    part.section(section::META, "caller's part", MAX_META_BYTES)?;
    ancestors(&part)?;
    let state = part.state()?;
    // Nobody has looked at it yet.
    check::check(&state, &[], &[]).map_err(ImageError::Invalid)?;
    processor::check(&state, &processor::here(), ignored)?;
    descriptors::are_here(&state)?;
    mapped::are_here(&state)
}

/// The same as [`fits_here`] for a process with its descendants.
pub fn tree_fits_here(path: &Path, ignored: &[String]) -> Result<(), RestoreError> {
    Image::tree_files(path)?.iter().try_for_each(|path| fits_here(path, ignored))
}

/// Writes an image to an empty file, as an ELF core file. Mapped files are completed from those
/// that are here, where they are what they were.
pub fn write_core(image: &Image, to: &File) -> Result<CoreReport, CoreError> {
    image.write_core_with(to, mapped::unchanged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image_format::state::Backing;
    use eyrie_image_format::testing::{PAGE, extents, state, write};

    /// Whoever asks whether an image would fit has not opened it.
    #[test]
    fn what_nobody_has_looked_at_is_checked_before_it_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut hostile = state();
        hostile.processor.features = vec![b"none".to_vec()];
        hostile.regions[1].prot = libc::PROT_EXEC as u32;
        write(&path, &hostile, &extents());
        assert!(matches!(fits_here(&path, &[]), Err(RestoreError::Machine(_))));
        hostile.regions[1].backing = Backing::File { file: 1, offset: PAGE };
        write(&path, &hostile, &extents());
        let refused = fits_here(&path, &[]);
        assert!(matches!(refused, Err(RestoreError::Image(ImageError::Invalid(_)))), "{refused:?}");
    }
}
