//! What is looked at before images go into the vault.
//!
//! Kept true: no file goes in of which not every page was held against its checksum just before,
//! and no image counts of which a file is not there, or is another; what the vault has already is
//! not read again, or a round would cost as much as all that its images build on.

use crate::image_check::check_image_knowing;
use crate::image_files::{self, Part, image_path};
use crate::lazy_fetch;
use eyrie_control::node::Choice;
use eyrie_image::Image;
use eyrie_state::shortage::is_unread;
use std::path::Path;

/// Why these images do not go in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// This one is damaged.
    Damage { rank: u32, image: u32, why: String },
    /// This says nothing of them.
    Unread(String),
}

/// A rank, and a generation of its images.
type File = (u32, u32);

/// The names of all that goes in: `goes_in`, of what `images` consist of. The images are of ranks
/// of a job (its name, and how many it has).
pub(super) fn look_into(
    folder: &Path,
    (job, ranks): (&str, u32),
    images: &[File],
    goes_in: &[File],
) -> Result<Vec<String>, Flaw> {
    let check = |(rank, image): File, known: &dyn Fn(&[u8; 16]) -> bool| match check_image_knowing(
        folder,
        job,
        (rank, image),
        ranks,
        known,
    ) {
        Choice::Refused { why, .. } => Err(Flaw::Damage { rank, image, why }),
        Choice::Unfit(why) => Err(Flaw::Unread(why)),
        _ => Ok(()),
    };
    // What still comes out of an earlier generation is not taken for a file that is missing.
    images
        .iter()
        .chain(goes_in)
        .for_each(|(rank, file)| lazy_fetch::settle(folder, *rank, &[*file]));
    for image in images {
        check(*image, &|_| true)?;
    }
    let mut names = Vec::new();
    for (rank, file) in goes_in {
        let its = image_files::all(folder, *rank, *file);
        let unread = |e| Flaw::Unread(format!("checkpoint {file} of rank {rank}: {e}"));
        let its = its.map_err(unread)?;
        for name in its.iter().filter(|name| is_image(name)) {
            let path = folder.join(name);
            let Err(error) = Image::verify_own(&path, &|_| Ok(())) else { continue };
            if is_unread(&error) {
                return Err(Flaw::Unread(format!("{name}: {error}")));
            }
            let needing = images.iter().copied().filter(|it| needs(folder, *it, (*rank, *file)));
            let needing: Vec<File> = needing.collect();
            let damaged = Image::identity_of(&path).ok();
            // Rather one that cannot do with what is left of it.
            let broken = needing.iter().map(|it| check(*it, &|other| Some(*other) != damaged));
            broken.into_iter().collect::<Result<(), Flaw>>()?;
            let why = format!("{name}: {error}");
            return Err(match needing.first() {
                Some((rank, image)) => Flaw::Damage { rank: *rank, image: *image, why },
                None => Flaw::Unread(why),
            });
        }
        names.extend(its);
    }
    Ok(names)
}

fn is_image(name: &str) -> bool {
    image_files::parse(name).is_some_and(|named| named.part != Part::Log)
}

/// Whether an image is this file, or one of its processes has pages there.
fn needs(folder: &Path, (rank, image): File, file: File) -> bool {
    let earlier = |path: &Path| Image::needs(path).unwrap_or_default();
    let is_it = |name: &std::ffi::OsString| {
        image_files::parse_os(name).is_some_and(|named| (named.rank, named.generation) == file)
    };
    let own = Image::tree_files(&image_path(folder, rank, image)).unwrap_or_default();
    (rank, image) == file || own.iter().any(|path| earlier(path).iter().any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_named_and_what_cannot_be_read_is_not_called_damaged() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rank-2.gen-3"), b"no image").unwrap();
        let found = look_into(folder.path(), ("job", 4), &[(2, 3)], &[(2, 3)]).unwrap_err();
        assert!(matches!(found, Flaw::Damage { rank: 2, image: 3, .. }), "{found:?}");
        let found = look_into(folder.path(), ("job", 4), &[], &[(2, 3)]).unwrap_err();
        assert!(matches!(found, Flaw::Unread(_)), "{found:?}");
        assert_eq!(look_into(folder.path(), ("job", 4), &[], &[]), Ok(vec![]));
    }
}
