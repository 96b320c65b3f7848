//! Whether an image that lies here can be restored: all that it needs is there and is what was
//! stored.
//!
//! Kept true: what only cannot be read on this node is not called bad.

use crate::image_files::image_path;
use crate::image_stream;
use eyrie_control::Meta;
use eyrie_control::node::Choice;
use eyrie_state::shortage;
use std::path::Path;

/// An image, or why it is none; what came here and was verified on its way is not read again.
pub fn check_image(images: &Path, job: &str, rank: u32, generation: u32, size: u32) -> Choice {
    check_image_knowing(images, job, (rank, generation), size, image_stream::was_verified)
}

/// The same; files that are `known` to be right are not read.
pub fn check_image_knowing(
    images: &Path,
    job: &str,
    (rank, generation): (u32, u32),
    size: u32,
    known: impl Fn(&[u8; 16]) -> bool,
) -> Choice {
    if generation == 0 {
        return Choice::Beginning;
    }
    let refused = |why: String| Choice::Refused { generation, why, fetched: false };
    let path = image_path(images, rank, generation);
    match eyrie_image::Image::open_knowing(&path, known) {
        Ok(image) => match Meta::decode(image.meta(), job, rank, generation, size) {
            Ok(meta) => Choice::Image(Box::new(meta)),
            Err(error) => refused(error.to_string()),
        },
        Err(error) if shortage::is_unread(&error) => Choice::Unfit(error.to_string()),
        Err(error) => refused(error.to_string()),
    }
}
