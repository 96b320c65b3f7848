//! The file for node_exporter's textfile collector.
//!
//! Kept true: who reads it finds it whole; it can be read by others than its owner, as
//! node_exporter runs as a user of its own; a link is never followed.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MODE: u32 = 0o644;

/// Where it is written before it has its name. The collector reads `*.prom` only.
fn part(path: &Path) -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
    let name = path.file_name().ok_or_else(missing)?;
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(".new");
    Ok(path.with_file_name(part))
}

/// Writes nothing of it, and takes that away.
pub fn try_part(path: &Path) -> io::Result<()> {
    let part = part(path)?;
    fill(&part, "").and_then(|()| fs::remove_file(&part))
}

pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let part = part(path)?;
    let written = fill(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn fill(part: &Path, text: &str) -> io::Result<()> {
    // One that was left by a controller that died.
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(part)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_readable_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.prom");
        // What a writer that died has left, as a link to something else.
        let other = folder.path().join("other");
        fs::write(&other, "mine").unwrap();
        std::os::unix::fs::symlink(&other, part(&path).unwrap()).unwrap();
        for text in ["one\n", "two\n"] {
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let missing = folder.path().join("no/job.prom");
        assert_eq!(write(&missing, "x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(write(Path::new("/"), "x").is_err());
    }
}
