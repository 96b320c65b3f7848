//! `--encrypt-at-rest`: storage of a node whose files the kernel encrypts (fscrypt), with a key of
//! its own that only the kernel has.
//!
//! Nobody but the node's processes reads its storage: others are given what is there by its
//! daemon. So the key need not be known to anybody, and is gone with the machine's power, or with
//! the storage; images, logs, payload and parity need not know of it.
//!
//! Kept true: the key is in no file and leaves the machine on no wire; a folder that cannot be
//! encrypted is not used; who removes the folder has the kernel forget the key, and no other's: one
//! that the folder above has, too, is the user's.

use crate::home;
use crate::local;
use eyrie_vault::disk::random;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// AES-256 in XTS mode takes two keys of 32 bytes.
const KEY_BYTES: usize = 64;
const IDENTIFIER_BYTES: usize = 16;
/// `FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER`
const BY_IDENTIFIER: u32 = 2;

// Numbers of linux/fscrypt.h.
const SET_POLICY: libc::c_ulong = 0x800c_6613;
const GET_POLICY: libc::c_ulong = 0xc009_6616;
const ADD_KEY: libc::c_ulong = 0xc050_6617;
const REMOVE_KEY: libc::c_ulong = 0xc040_6618;

type Identifier = [u8; IDENTIFIER_BYTES];

/// `struct fscrypt_policy_v2`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Policy {
    version: u8,
    contents: u8,
    names: u8,
    flags: u8,
    log2_data_unit: u8,
    reserved: [u8; 3],
    identifier: Identifier,
}

/// AES-256-XTS, AES-256-CTS, names padded to 32 bytes.
const MODES: Policy = Policy {
    version: 2,
    contents: 1,
    names: 4,
    flags: 3,
    log2_data_unit: 0,
    reserved: [0; 3],
    identifier: [0; IDENTIFIER_BYTES],
};

/// `struct fscrypt_get_policy_ex_arg`
#[repr(C)]
struct Asked {
    bytes: u64,
    policy: Policy,
}

/// `struct fscrypt_key_specifier`
#[repr(C)]
#[derive(Default)]
struct Which {
    kind: u32,
    reserved: u32,
    identifier: Identifier,
    rest: [u8; 16],
}

/// `struct fscrypt_add_key_arg` with the key behind it.
#[repr(C)]
struct Added {
    which: Which,
    bytes: u32,
    reserved: [u32; 9],
    key: [u8; KEY_BYTES],
}

/// `struct fscrypt_remove_key_arg`
#[repr(C)]
#[derive(Default)]
struct Removed {
    which: Which,
    flags: u32,
    reserved: [u32; 5],
}

/// Hands the kernel a structure that `number` is for.
fn control<T>(file: &File, number: libc::c_ulong, about: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open; `about` lives for the call, and each number is used with the
    // structure that the kernel reads and writes for it, by this module only.
    match unsafe { libc::ioctl(file.as_raw_fd(), number, std::ptr::from_mut(about)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why a folder cannot be encrypted.
#[derive(Debug, thiserror::Error)]
#[error(
    "{folder} cannot be encrypted: {what}: {source} (--encrypt-at-rest takes a file system with \
     the feature 'encrypt', as ext4 after `tune2fs -O encrypt DEVICE`, or f2fs; let EYRIE_HOME \
     lie on one, or leave the option out)"
)]
pub struct AtRestError {
    folder: PathBuf,
    what: &'static str,
    source: io::Error,
}

/// Has all that will be in an empty folder encrypted.
pub fn encrypt(folder: &Path) -> Result<(), AtRestError> {
    let failed = |what| {
        let folder = folder.to_path_buf();
        move |source| AtRestError { folder, what, source }
    };
    let file = File::open(folder).map_err(failed("open"))?;
    let key = random().map_err(failed("a key"))?;
    let mut added = Added {
        which: Which { kind: BY_IDENTIFIER, ..Which::default() },
        bytes: KEY_BYTES as u32,
        reserved: [0; 9],
        key,
    };
    let done = control(&file, ADD_KEY, &mut added);
    wipe(&mut added.key);
    done.map_err(failed("the kernel takes no key for it"))?;
    let identifier = added.which.identifier;
    let mut policy = Policy { identifier, ..MODES };
    let set = control(&file, SET_POLICY, &mut policy);
    if set.is_err() {
        forget(&file, identifier);
    }
    set.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => {
            failed("it is already, with the key of the folder around it")(source)
        }
        _ => failed("its file system does not")(source),
    })
}

/// Whether folders in this one can be encrypted.
pub fn check(home: &Path) -> Result<(), AtRestError> {
    let folder = home.join(format!(".at-rest-{}", std::process::id()));
    let failed = |source| AtRestError { folder: home.to_path_buf(), what: "a folder", source };
    home::private_dir(&folder).map_err(|e| failed(io::Error::other(e)))?;
    let encrypted = encrypt(&folder);
    let removed = remove_dir_all(&folder);
    encrypted.map_err(|error| AtRestError { folder: home.to_path_buf(), ..error })?;
    removed.map_err(failed)
}

fn wipe(key: &mut [u8]) {
    for byte in key {
        // SAFETY: a byte that is borrowed; that it is not read again must not make it needless.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
}

/// The key of a folder, if it is encrypted.
fn key_of(folder: &Path) -> Option<Identifier> {
    let file = File::open(folder).ok()?;
    let mut asked = Asked { bytes: size_of::<Policy>() as u64, policy: Policy::default() };
    control(&file, GET_POLICY, &mut asked).ok()?;
    (asked.policy.version == MODES.version).then_some(asked.policy.identifier)
}

fn forget(file: &File, identifier: Identifier) {
    let which = Which { kind: BY_IDENTIFIER, identifier, ..Which::default() };
    let mut removed = Removed { which, ..Removed::default() };
    match control(file, REMOVE_KEY, &mut removed) {
        // It was forgotten when not all could be removed yet.
        Err(error) if error.raw_os_error() == Some(libc::ENOKEY) => {}
        // The kernel keeps it until it forgets the file system.
        Err(error) => tracing::warn!("a key is not forgotten: {error}"),
        Ok(()) => {}
    }
}

/// Removes a folder with all that is in it, as the library does; and the keys that it, or one right
/// in it, was encrypted with: also if not all can be removed, as nobody needs it any more, and who
/// tries again does not find those that are gone. (What is locked can be removed.) What it, or a
/// link in it, leads to as storage of a node goes, too.
pub fn remove_dir_all(folder: &Path) -> io::Result<()> {
    if fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_symlink()) {
        local::clear(folder)?;
        return fs::remove_file(folder);
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut links = entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.try_for_each(|link| local::clear(&link.path()))?;
    let around = folder.parent().and_then(|around| Some((File::open(around).ok()?, around)));
    let Some((file, around)) = around else { return fs::remove_dir_all(folder) };
    let inner = fs::read_dir(folder).into_iter().flatten().flatten();
    let dirs = inner.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
    let mut keys: Vec<Identifier> =
        dirs.chain([folder.to_path_buf()]).filter_map(|dir| key_of(&dir)).collect();
    keys.sort_unstable();
    keys.dedup();
    if let Some(users) = key_of(around).filter(|_| !keys.is_empty()) {
        keys.retain(|key| *key != users);
    }
    let removed = fs::remove_dir_all(folder);
    keys.into_iter().for_each(|key| forget(&file, key));
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        let of = |number: libc::c_ulong| (number >> 16 & 0x3fff) as usize;
        assert_eq!(of(ADD_KEY), size_of::<Added>() - KEY_BYTES);
        assert_eq!(of(REMOVE_KEY), size_of::<Removed>());
        // These two are numbered by what they took first.
        assert_eq!((of(SET_POLICY), size_of::<Policy>()), (12, 24));
        assert_eq!((of(GET_POLICY), size_of::<Asked>()), (9, 32));
    }

    #[test]
    fn a_file_system_that_cannot_is_told_and_what_is_plain_is_removed_as_ever() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = dir.path().join("node");
        fs::create_dir_all(folder.join("images")).unwrap();
        let why = encrypt(&folder).unwrap_err().to_string();
        assert!(why.contains("cannot be encrypted") && why.contains("tune2fs"), "{why}");
        fs::write(folder.join("images/x"), "x").unwrap();
        remove_dir_all(&folder).unwrap();
        assert!(!folder.exists());
        assert!(remove_dir_all(&folder).is_err());
    }
}
