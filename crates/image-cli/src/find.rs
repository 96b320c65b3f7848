//! Which program or image the user means.

use crate::home::{self, Entry};
use anyhow::{anyhow, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A running program.
pub enum Running {
    /// Its supervisor is to be asked.
    Supervised(Entry),
    /// Somebody else's process.
    Foreign(libc::pid_t),
}

/// The running program called `target`: its process number, name, folder of images, or `last`.
pub fn running(home: &Path, target: &OsStr) -> anyhow::Result<Running> {
    let mut all = home::entries(home);
    all.retain(|e| e.alive);
    let shown = target.to_string_lossy().into_owned();
    let missing = || anyhow!("no program '{shown}' runs (see `eyrie-image list`)");
    if shown == "last" {
        return all.pop().map(Running::Supervised).ok_or_else(missing);
    }
    if let Ok(pid) = shown.parse::<i32>() {
        let ours =
            |e: &&Entry| e.record.as_ref().is_some_and(|r| r.pid == pid || r.supervisor == pid);
        return match all.iter().find(ours) {
            Some(entry) => Ok(Running::Supervised(entry.clone())),
            None if Path::new("/proc").join(&shown).exists() => Ok(Running::Foreign(pid)),
            None => bail!("there is no process {pid}"),
        };
    }
    let dir = std::fs::canonicalize(target).ok();
    let in_dir = |e: &&Entry| e.record.as_ref().is_some_and(|r| Some(&r.dir) == dir.as_ref());
    if let Some(entry) = all.iter().rev().find(in_dir) {
        return Ok(Running::Supervised(entry.clone()));
    }
    named(&all, &shown)?.map(Running::Supervised).ok_or_else(missing)
}

/// The folder of a program that was killed, by name or `last`.
pub fn dead(home: &Path, name: &str) -> anyhow::Result<Option<Entry>> {
    let mut all = home::entries(home);
    if let Some(entry) = all.iter().find(|e| e.alive && e.name == name) {
        bail!("{} runs already: see `eyrie-image list`", entry.name);
    }
    all.retain(|e| !e.alive);
    if name == "last" {
        return Ok(all.pop());
    }
    named(&all, name)
}

/// By its name or the beginning of it.
fn named(all: &[Entry], name: &str) -> anyhow::Result<Option<Entry>> {
    if let Some(exact) = all.iter().find(|e| e.name == name) {
        return Ok(Some(exact.clone()));
    }
    let fit: Vec<&Entry> =
        all.iter().filter(|e| !name.is_empty() && e.name.starts_with(name)).collect();
    match fit[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        _ => {
            let names: Vec<&str> = fit.iter().map(|e| e.name.as_str()).collect();
            bail!("'{name}' names more than one program: {}", names.join(", "))
        }
    }
}

/// The images that `what` stands for, newest first, and the folder of the killed program that they
/// belong to.
pub fn images(home: &Path, what: &OsStr) -> anyhow::Result<(Vec<PathBuf>, Option<Entry>)> {
    let path = Path::new(what);
    let shown = what.to_string_lossy();
    let (folder, entry) = if means_path(what, path.is_dir()) {
        (path.to_path_buf(), None)
    } else if means_path(what, path.exists()) {
        return Ok((vec![path.to_path_buf()], None));
    } else if shown.contains('/') {
        bail!("there is no image '{shown}'");
    } else {
        match dead(home, &shown)? {
            Some(entry) => (entry.path.clone(), Some(entry)),
            None => bail!(
                "'{shown}' is neither an image, nor a folder, nor a program that can be restarted \
                 (see `eyrie-image list`)"
            ),
        }
    };
    let mut images = home::images(&folder);
    images.reverse();
    if images.is_empty() {
        bail!("there is no image in {}", folder.display());
    }
    Ok((images, entry))
}

/// Whether a word means what is there under that name: a file of the program's may be called
/// `last`, which `./last` means then.
fn means_path(what: &OsStr, there: bool) -> bool {
    there && what != "last"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_is_no_file() {
        let means = |what: &str| means_path(OsStr::new(what), true);
        assert!(means("./last") && means("last.1.img") && !means("last"));
        assert!(!means_path(OsStr::new("other"), false));
    }
}
