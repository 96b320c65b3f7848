//! Files and folders that nobody but their owner may change.
//!
//! Kept true: what is made here is 0600 whatever the umask; what is trusted belongs to this user or
//! to root, and nobody else can write to it or put something else in its place (as sshd's
//! `StrictModes` has it).

use std::fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

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
    #[error(
        "{path} is {is}, where there should be {wants}: Eyrie made no such thing. Look what it is, \
         and take it away"
    )]
    Kind { path: PathBuf, is: &'static str, wants: &'static str },
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

/// Refuses what is there but no plain file: a pipe would keep its reader waiting.
pub fn check_plain(path: &Path) -> Result<(), Untrusted> {
    check_kind(path, "a plain file", FileType::is_file)
}

/// Refuses what is there but no folder.
pub fn check_folder(path: &Path) -> Result<(), Untrusted> {
    check_kind(path, "a folder", FileType::is_dir)
}

fn check_kind(
    path: &Path,
    wants: &'static str,
    fine: fn(&FileType) -> bool,
) -> Result<(), Untrusted> {
    match fs::metadata(path).map(|meta| meta.file_type()) {
        Ok(kind) if !fine(&kind) => {
            Err(Untrusted::Kind { path: path.into(), is: kind_of(kind), wants })
        }
        // Whoever uses it is told.
        _ => Ok(()),
    }
}

fn kind_of(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_file() => "a plain file",
        () => "a device",
    }
}

/// As `File::open`, for plain files only: never waits for somebody at the other end.
pub fn open_plain(path: &Path) -> io::Result<File> {
    // Of no effect on a plain file.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let text = format!("is {}, and no plain file", kind_of(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// As `fs::read`, for plain files of at most so many bytes.
pub fn read_plain(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_plain(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.len() <= most {
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
    }
    let text = format!("has more than the {most} bytes that Eyrie would have written there");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

/// The same of a folder, and that not everybody can put another one in its place.
pub fn check_private_home(path: &Path) -> Result<(), Untrusted> {
    check_private(path)?;
    match open_to_all(path) {
        Some((folder, mode)) => Err(Untrusted::Around { path: path.into(), folder, mode }),
        None => Ok(()),
    }
}

/// A folder around `path` in which everybody can replace what is there, and its mode.
pub fn open_to_all(path: &Path) -> Option<(PathBuf, u32)> {
    path.ancestors().skip(1).find_map(|folder| {
        let meta = fs::metadata(folder).ok()?;
        let mode = meta.mode() & 0o7777;
        let open = meta.is_dir() && mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0;
        open.then(|| (folder.to_path_buf(), mode))
    })
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

/// Who may not be mapped is shown as this user or group.
const OVERFLOW_ID: u32 = 65534;

/// Whether a user, as files show him here, may be root: who has entered cannot tell root from
/// others.
pub fn may_be_root(uid: u32) -> bool {
    uid == 0 || (uid == OVERFLOW_ID && INSIDE.load(Ordering::Relaxed))
}

/// Whether the other side of a socket in a folder of the user's own is the user or root. Nobody
/// else can open such a socket, so who cannot be told apart inside is root.
pub fn is_own_or_root(uid: u32) -> bool {
    // SAFETY: plain system call.
    uid == unsafe { libc::geteuid() } || may_be_root(uid)
}

/// Whether this process has entered a user namespace of its own.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// This process has entered a user namespace, where root outside is shown as nobody.
pub fn note_own_namespace() {
    INSIDE.store(true, Ordering::Relaxed);
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
    fn pipes_and_folders_are_not_taken_for_files_and_no_file_is_read_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.unwrap().success());
        fs::create_dir(at("dir")).unwrap();
        write_private(&at("file"), b"12345").unwrap();
        symlink(at("pipe"), at("link")).unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        for (name, is) in [("pipe", "a pipe"), ("dir", "a folder"), ("link", "a pipe")] {
            let told = check_plain(&at(name)).unwrap_err().to_string();
            assert!(told.contains(name) && told.contains(is), "{told}");
            let told = open_plain(&at(name)).unwrap_err().to_string();
            assert!(told.contains(is), "{told}");
        }
        assert!(check_plain(&at("file")).is_ok() && check_plain(&at("none")).is_ok());
        assert!(check_folder(&at("dir")).is_ok() && check_folder(&at("none")).is_ok());
        assert!(check_folder(&at("file")).is_err());
        assert_eq!(read_plain(&at("file"), 5).unwrap(), b"12345");
        assert!(read_plain(&at("file"), 4).is_err() && read_plain(&at("huge"), 1 << 20).is_err());
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
