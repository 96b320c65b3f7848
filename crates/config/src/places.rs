//! Where configuration files are.

use crate::file::{File, Position};
use crate::keys::at;
use anyhow::bail;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The site's file.
const SITE: &str = "/etc/eyrie/config.toml";
/// The only file that counts, where it is set.
const NAMED: &str = "EYRIE_CONFIG";

/// The user's own file, for people.
const YOURS: &str = "yours";

/// A file that there may be.
pub struct Candidate {
    pub path: PathBuf,
    /// For people.
    pub whose: &'static str,
    /// It must be there.
    pub named: bool,
}

/// Files that count, those first that go before others.
pub fn candidates() -> Vec<Candidate> {
    let variable = |name| std::env::var_os(name).filter(|v: &OsString| !v.is_empty());
    if let Some(path) = variable(NAMED) {
        return vec![Candidate { path: path.into(), whose: NAMED, named: true }];
    }
    let own = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let own = own.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
    let own = own.map(|folder| folder.join("eyrie/config.toml"));
    let user = own.map(|path| Candidate { path, whose: YOURS, named: false });
    let site = Candidate { path: SITE.into(), whose: "the site's", named: false };
    user.into_iter().chain([site]).collect()
}

/// Reads those that are there, those first that go before others; each is checked.
pub fn read_all(
    candidates: &[Candidate],
    check: impl Fn(&File) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    for Candidate { path, named, whose } in candidates {
        if *whose == YOURS && out_of_reach(path) {
            continue;
        }
        match File::read(path)? {
            Some(file) => {
                check(&file)?;
                files.push(file);
            }
            None if *named => bail!("{NAMED}={}: there is no such file", path.display()),
            None => {}
        }
    }
    Ok(files)
}

/// A home that is no folder (`/dev/null`), or another user's, as after `su` and in containers, has
/// no file that could be this user's.
fn out_of_reach(path: &Path) -> bool {
    let missing = [io::ErrorKind::NotADirectory, io::ErrorKind::PermissionDenied];
    std::fs::symlink_metadata(path).is_err_and(|error| missing.contains(&error.kind()))
}

/// `~/` is the user's home.
pub fn absolute(word: &str, place: &Position, key: &str) -> anyhow::Result<PathBuf> {
    let path = match (word.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(word),
    };
    match path.is_absolute() {
        true => Ok(path),
        false => Err(at(place, key, "write a path that begins with / or ~/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_is_no_folder_has_no_file() {
        let of = |whose, named| {
            let path = PathBuf::from("/dev/null/.config/eyrie/config.toml");
            read_all(&[Candidate { path, whose, named }], |_| Ok(()))
        };
        assert!(of(YOURS, false).unwrap().is_empty());
        assert!(of(NAMED, true).is_err() && of("the site's", false).is_err());
    }
}
