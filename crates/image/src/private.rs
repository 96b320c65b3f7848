//! Files and folders that nobody but their owner may change.
//!
//! Kept true: what is made here is 0600 whatever the umask; what is trusted belongs to this user or
//! to root, and nobody else can write to it or put something else in its place (as sshd's
//! `StrictModes` has it).

use crate::own_pids::may_be_root;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Others may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Why a file or folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error(
        "{path} belongs to user {owner}, not to you (user {user}): what is in it is not trusted. \
         Use a folder of your own (EYRIE_HOME)"
    )]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "{path} can be written to by others (mode {mode:04o}): what is in it is not trusted. \
         Look whether it is yours, then: chmod go-w '{path}'"
    )]
    Mode { path: PathBuf, mode: u32 },
    #[error(
        "{path} lies in {folder}, where everybody can replace it (mode {mode:04o}): use another \
         place (EYRIE_HOME), or: chmod o-w '{folder}'"
    )]
    Around { path: PathBuf, folder: PathBuf, mode: u32 },
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Refuses what others could have put there. What is not there is fine.
pub fn check_private(path: &Path) -> Result<(), Untrusted> {
    // A link is trusted as far as its owner is: who may not write to the folder cannot change it.
    let not_there = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    for look in [fs::symlink_metadata, fs::metadata] {
        match look(path) {
            Ok(meta) => check_meta(path, &meta)?,
            Err(error) if not_there.contains(&error.kind()) => return Ok(()),
            Err(error) => return Err(Untrusted::Io(path.into(), error)),
        }
    }
    Ok(())
}

fn check_meta(path: &Path, meta: &Metadata) -> Result<(), Untrusted> {
    // SAFETY: plain system call.
    let user = unsafe { libc::geteuid() };
    let owner = meta.uid();
    if owner != user && !may_be_root(owner) {
        return Err(Untrusted::Owner { path: path.into(), owner, user });
    }
    let mode = meta.mode() & 0o7777;
    if !meta.is_symlink() && mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Untrusted::Mode { path: path.into(), mode });
    }
    Ok(())
}

/// The same of a folder, and that not everybody can put another one in its place.
pub fn check_private_home(path: &Path) -> Result<(), Untrusted> {
    check_private(path)?;
    for folder in path.ancestors().skip(1) {
        let Ok(meta) = fs::metadata(folder) else { continue };
        let mode = meta.mode() & 0o7777;
        if meta.is_dir() && mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0 {
            return Err(Untrusted::Around { path: path.into(), folder: folder.into(), mode });
        }
    }
    Ok(())
}

/// As `fs::create_dir`, for its owner alone.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// As `File::create`, for its owner alone.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// As `fs::write`, for its owner alone.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_private(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        assert!(check_private_home(&home).is_ok());
        fs::create_dir(&home).unwrap();
        for (mode, fine) in [(0o700, true), (0o755, true), (0o775, false), (0o1777, false)] {
            set(&home, mode);
            assert_eq!(check_private(&home).is_ok(), fine, "{mode:o}");
        }
        set(&home, 0o700);
        let file = home.join("saved");
        write_private(&file, b"x").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        set(&file, 0o606);
        assert!(matches!(check_private(&file), Err(Untrusted::Mode { mode: 0o606, .. })));
    }

    #[test]
    fn what_everybody_can_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (around, home) = (folder.path().join("all"), folder.path().join("all/home"));
        fs::create_dir_all(&home).unwrap();
        set(&home, 0o700);
        set(&around, 0o777);
        assert!(matches!(check_private_home(&home), Err(Untrusted::Around { .. })));
        set(&around, 0o1777);
        assert!(check_private_home(&home).is_ok());
    }

    #[test]
    fn a_link_is_trusted_as_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (to, link) = (folder.path().join("to"), folder.path().join("link"));
        symlink(&to, &link).unwrap();
        assert!(check_private(&link).is_ok());
        fs::create_dir(&to).unwrap();
        set(&to, 0o777);
        assert!(matches!(check_private(&link), Err(Untrusted::Mode { .. })));
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        // SAFETY: plain system call.
        if unsafe { libc::geteuid() } != 0 {
            assert!(check_private(Path::new("/")).is_ok());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("planted");
        write_private(&file, b"").unwrap();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert!(matches!(check_private(&file), Err(Untrusted::Owner { owner: 65534, .. })));
    }
}
