//! The files that an image of a rank consists of: `rank-R.gen-G`, those of its child processes (the
//! same with `.1`, `.2` ... for each generation of them), and over nodes the log beside it. Whoever
//! brings, fetches, keeps or removes an image asks here what that is.
//!
//! Kept true: nothing is taken for a file of an image but names that are made here; an image is
//! listed only where all of it lies.

use crate::lazy_fetch;
use eyrie_image::{Image, ImageError};
use eyrie_state::image_names::MAX_PROCESSES;
pub use eyrie_state::image_names::{Named, Part, is_name, parse, parse_os};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The file of a rank's image.
pub fn image_path(images: &Path, rank: u32, generation: u32) -> PathBuf {
    images.join(image_name(rank, generation))
}

/// Its name.
pub fn image_name(rank: u32, generation: u32) -> OsString {
    own_name(rank, generation).into()
}

/// The same as text.
pub fn own_name(rank: u32, generation: u32) -> String {
    format!("rank-{rank}.gen-{generation}")
}

fn log_name(rank: u32, generation: u32) -> String {
    format!("rank-{rank}.gen-{generation}.log")
}

/// The log beside an image.
pub fn log_of(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_os_string();
    name.push(".log");
    PathBuf::from(name)
}

/// The name of a file of an image, if it may be brought elsewhere under it.
fn name_of(path: &Path) -> Result<String, ImageError> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    match parse(name) {
        Some(_) => Ok(name.to_string()),
        None => Err(ImageError::Invalid(format!("'{name}' is no name of an image"))),
    }
}

/// Names of the files of an image that lies here, with its log; an error unless those of all its
/// processes are here and belong together.
pub fn all(images: &Path, rank: u32, generation: u32) -> Result<Vec<String>, ImageError> {
    let family = Image::tree_files(&image_path(images, rank, generation))?;
    let mut names: Vec<String> = family.iter().map(|p| name_of(p)).collect::<Result<_, _>>()?;
    names.push(log_name(rank, generation));
    Ok(names)
}

/// Has what is not here of an image come: `get` brings the file of a name. What has come damaged
/// is found when the image is checked.
pub fn complete<E>(
    images: &Path,
    rank: u32,
    generation: u32,
    mut get: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut wanted = |name: &str| match images.join(name).exists() {
        true => Ok(()),
        false => get(name),
    };
    let own = own_name(rank, generation);
    wanted(&own)?;
    wanted(&log_name(rank, generation))?;
    let mut parents = vec![images.join(own)];
    let mut left = MAX_PROCESSES;
    while let Some(parent) = parents.pop() {
        for child in Image::child_files(&parent).unwrap_or_default() {
            let (Ok(name), Some(rest)) = (name_of(&child.path), left.checked_sub(1)) else {
                return Ok(());
            };
            left = rest;
            if !child.is_there() {
                // It may be one of another time.
                let _ = std::fs::remove_file(&child.path);
                get(&name)?;
            }
            parents.push(child.path);
        }
    }
    Ok(())
}

/// The images of processes that lie here of an image, whatever they say of each other.
pub fn lying(images: &Path, rank: u32, generation: u32) -> Vec<PathBuf> {
    let its = |name: &OsStr| {
        let named = parse_os(name)?;
        let same = (named.rank, named.generation) == (rank, generation);
        (same && named.part != Part::Log).then_some(())
    };
    let entries = std::fs::read_dir(images).into_iter().flatten().flatten();
    entries.filter(|e| its(&e.file_name()).is_some()).map(|e| e.path()).collect()
}

/// The same with the log, if that is there.
pub fn lying_with_log(images: &Path, rank: u32, generation: u32) -> Vec<PathBuf> {
    let log = images.join(log_name(rank, generation));
    let log = Some(log).filter(|log| log.exists());
    lying(images, rank, generation).into_iter().chain(log).collect()
}

/// Removes images.
pub fn remove(images: &Path, rank: u32, generations: &[u32]) {
    for generation in generations {
        let path = image_path(images, rank, *generation);
        lazy_fetch::give_up(images, rank, *generation);
        let _ = eyrie_image::remove_image(&path);
        let _ = std::fs::remove_file(log_of(&path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_state::image_names::MAX_NAME_BYTES;

    fn of(name: &str) -> Option<(u32, u32, Part)> {
        parse(name).map(|n| (n.rank, n.generation, n.part))
    }

    #[test]
    fn rank_generation_and_part_of_a_file_are_in_its_name() {
        let path = image_path(Path::new("/images"), 3, 17);
        let named = parse_os(path.file_name().unwrap()).unwrap();
        assert_eq!(named, Named { rank: 3, generation: 17, part: Part::Own });
        assert_eq!(of("rank-3.gen-17.1"), Some((3, 17, Part::Child)));
        assert_eq!(of("rank-0.gen-17.1.256.3"), Some((0, 17, Part::Child)));
        let log = log_of(&path);
        assert_eq!(log.file_name().unwrap().to_str().unwrap(), log_name(3, 17));
        assert_eq!(of(&log_name(3, 17)), Some((3, 17, Part::Log)));
    }

    #[test]
    fn names_of_others_are_no_names_of_images() {
        let long = format!("rank-1.gen-2{}", ".1".repeat(100));
        assert!(parse(&long[..MAX_NAME_BYTES]).is_some());
        let hostile = [
            "",
            "x",
            "rank-3",
            "rank-.gen-1",
            "rank-1.gen-",
            "rank-0.gen-1/../y",
            "../rank-0.gen-1",
            "/rank-0.gen-1",
            ".rank-0.gen-1",
            "rank-0.gen-1.",
            "rank-0.gen-1..1",
            "rank-0.gen-1.1.",
            "rank-0.gen-1.0",
            "rank-0.gen-1.01",
            "rank-0.gen-1.257",
            "rank-0.gen-1.-1",
            "rank-0.gen-1.+1",
            "rank-+0.gen-1",
            "rank-00.gen-1",
            "rank-0.gen-01",
            "rank-4294967296.gen-1",
            "rank-0.gen-4294967296",
            "rank-0.gen-1.log.1",
            "rank-0.gen-1.1.log",
            "rank-0.gen-1.log.log",
            "rank-0.gen-1.text",
            "rank-0.gen-1.1 ",
            "rank-0.gen-1.1/2",
            "rank-0.gen-1.1\0",
            "rank-0.gen-1.\u{661}",
            long.as_str(),
        ];
        hostile.iter().for_each(|name| assert_eq!(parse(name), None, "{name:?}"));
    }

    #[test]
    fn what_is_no_image_is_fetched_and_left_to_its_check() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rank-1.gen-4.log"), b"log").unwrap();
        assert!(all(folder.path(), 1, 4).is_err());
        let mut asked = Vec::new();
        let get = |name: &str| {
            asked.push(name.to_string());
            std::fs::write(folder.path().join(name), b"no image")
        };
        complete(folder.path(), 1, 4, get).unwrap();
        assert_eq!(asked, ["rank-1.gen-4"]);
        assert!(all(folder.path(), 1, 4).is_err());
        std::fs::write(folder.path().join("rank-1.gen-4.1"), b"of a child").unwrap();
        std::fs::write(folder.path().join("rank-1.gen-40"), b"another").unwrap();
        remove(folder.path(), 1, &[4]);
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "rank-1.gen-40");
    }
}
