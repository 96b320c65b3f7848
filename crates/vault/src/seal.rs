//! Encryption at rest: a payload is sealed before there is parity of it, so that whoever has the
//! disks learns names and lengths and nothing else, and what was changed there is found.
//!
//! XChaCha20-Poly1305, chunk by chunk; checksums of the ciphertext stay what they are, so a scrub
//! or a rebuild takes no key. Kept true: no two chunks are sealed with the same key and nonce: each
//! payload has a random salt, and each chunk of it a number.

use crate::record::{Manifest, RecordError};
use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// What tells that bytes are those that were sealed.
pub type Tag = [u8; 16];

pub const KEY_BYTES: usize = 32;
/// The number of what is sealed besides chunks: the manifest.
const MANIFEST_NUMBER: u64 = u64::MAX;
/// Whose a fingerprint is; no payload and no file.
const FINGERPRINT: &[u8] = b"fingerprint";

/// A key. It is wiped from memory when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

impl Key {
    /// 32 bytes, or 64 hexadecimal digits.
    pub fn new(bytes: &[u8]) -> Option<Key> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if bytes.len() == KEY_BYTES {
            key.copy_from_slice(bytes);
            return Some(Key(key));
        }
        let digits = bytes.trim_ascii();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        for (to, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *to = digit(*pair.first()?)? << 4 | digit(*pair.last()?)?;
        }
        Some(Key(key))
    }

    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The key that a file has.
    pub fn read(path: &Path) -> io::Result<Key> {
        let bytes = Zeroizing::new(fs::read(path)?);
        let bad = "no key: there must be 32 bytes, or 64 hexadecimal digits, in it";
        Key::new(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, bad))
    }

    /// The same, of a file that nobody but its owner can read.
    pub fn read_private(path: &Path) -> io::Result<Key> {
        let others = fs::metadata(path)?.permissions().mode() & 0o077;
        if others != 0 {
            let open = "others than its owner may use this key: chmod 600";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, open));
        }
        Key::read(path)
    }

    /// What tells keys apart, and nothing else of them.
    pub fn fingerprint(&self) -> Tag {
        let sealer = Sealer { owner: FINGERPRINT.to_vec(), ..Sealer::of_file(self, [0; 16], "") };
        // There is nothing that could be too long.
        sealer.close(0, &mut []).unwrap_or_default()
    }
}

/// How a payload is sealed, in its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    pub salt: [u8; 16],
    /// Of each chunk of what lies before the manifest.
    pub tags: Vec<Tag>,
    /// Of the manifest, this being zero.
    pub tag: Tag,
}

/// Whose payload it is: what is sealed for one is nothing to another.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub vault: [u8; 16],
    pub node: u32,
    pub generation: u64,
}

/// A key at work on one payload.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    salt: [u8; 16],
    owner: Vec<u8>,
}

impl Sealer {
    pub fn new(key: &Key, salt: [u8; 16], owner: Owner) -> Sealer {
        let mut bytes = owner.vault.to_vec();
        bytes.extend(owner.node.to_le_bytes());
        bytes.extend(owner.generation.to_le_bytes());
        Sealer { cipher: XChaCha20Poly1305::new((&*key.0).into()), salt, owner: bytes }
    }

    /// For a file outside of vaults.
    pub fn of_file(key: &Key, salt: [u8; 16], name: &str) -> Sealer {
        let owner = [b"file ", name.as_bytes()].concat();
        Sealer { cipher: XChaCha20Poly1305::new((&*key.0).into()), salt, owner }
    }

    pub fn salt(&self) -> [u8; 16] {
        self.salt
    }

    fn nonce(&self, number: u64) -> XNonce {
        let mut nonce = XNonce::default();
        let bytes = self.salt.into_iter().chain(number.to_le_bytes());
        nonce.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        nonce
    }

    /// Seals a chunk in place. Fails only for lengths that no chunk has.
    pub fn close(&self, chunk: u64, bytes: &mut [u8]) -> Result<Tag, RecordError> {
        let sealed = self.cipher.encrypt_in_place_detached(&self.nonce(chunk), &self.owner, bytes);
        sealed.map(Into::into).map_err(|_| RecordError::Length)
    }

    /// Opens a chunk in place; `false`: it is not what was sealed with this key.
    pub fn open(&self, chunk: u64, bytes: &mut [u8], tag: &Tag) -> bool {
        let nonce = self.nonce(chunk);
        self.cipher.decrypt_in_place_detached(&nonce, &self.owner, bytes, tag.into()).is_ok()
    }

    /// What a manifest is signed with.
    pub fn sign(&self, manifest: &Manifest) -> Result<Tag, RecordError> {
        let mut plain = manifest.clone();
        plain.seal.iter_mut().for_each(|seal| seal.tag = Tag::default());
        let mut about = self.owner.clone();
        about.extend(postcard::to_stdvec(&plain).map_err(|_| RecordError::Encoding)?);
        let nonce = self.nonce(MANIFEST_NUMBER);
        let tag = self.cipher.encrypt_in_place_detached(&nonce, &about, &mut []);
        tag.map(Into::into).map_err(|_| RecordError::Length)
    }

    /// Whether a manifest is the one that was signed with this key.
    pub fn signed(&self, manifest: &Manifest) -> bool {
        let Some(seal) = &manifest.seal else { return false };
        let mut plain = manifest.clone();
        plain.seal.iter_mut().for_each(|seal| seal.tag = Tag::default());
        let mut about = self.owner.clone();
        let Ok(body) = postcard::to_stdvec(&plain) else { return false };
        about.extend(body);
        let (nonce, tag) = (self.nonce(MANIFEST_NUMBER), (&seal.tag).into());
        self.cipher.decrypt_in_place_detached(&nonce, &about, &mut [], tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { vault: [9; 16], node: 2, generation: 7 };

    fn key(byte: u8) -> Key {
        Key::new(&[byte; KEY_BYTES]).unwrap()
    }

    fn sealer(key: &Key) -> Sealer {
        Sealer::new(key, [5; 16], OWNER)
    }

    #[test]
    fn keys_are_bytes_or_digits() {
        let digits = "0123456789abcdefABCDEF".repeat(3);
        let key = Key::new(format!("{}\n", &digits[..64]).as_bytes()).unwrap();
        assert_eq!(key.0[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(format!("{key:?}"), "Key(..)");
        for bad in [&digits[..63], &digits[..62], "", &"x".repeat(64)] {
            assert_eq!(Key::new(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_private_key_is_its_owners_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, [1; KEY_BYTES]).unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = Key::read_private(&path);
            assert_eq!(read.is_ok(), good, "{mode:o}");
            assert!(good || read.unwrap_err().to_string().contains("chmod 600"));
        }
        assert_eq!(key(1).fingerprint(), key(1).fingerprint());
        assert_ne!(key(1).fingerprint(), key(2).fingerprint());
    }

    #[test]
    fn what_is_sealed_is_opened_by_its_key_in_its_place_only() {
        let plain = *b"some bytes of a payload";
        let mut bytes = plain;
        let tag = sealer(&key(1)).close(3, &mut bytes).unwrap();
        assert_ne!(bytes, plain);
        let opens = |sealer: &Sealer, chunk, mut bytes: [u8; 23], tag: &Tag| {
            sealer.open(chunk, &mut bytes, tag) && bytes == plain
        };
        assert!(opens(&sealer(&key(1)), 3, bytes, &tag));
        assert!(!opens(&sealer(&key(2)), 3, bytes, &tag), "another key");
        assert!(!opens(&sealer(&key(1)), 4, bytes, &tag), "another chunk");
        let other = Sealer::new(&key(1), [5; 16], Owner { node: 3, ..OWNER });
        assert!(!opens(&other, 3, bytes, &tag), "another node");
        let other = Sealer::new(&key(1), [6; 16], OWNER);
        assert!(!opens(&other, 3, bytes, &tag), "another salt");
        let mut bad = bytes;
        bad[0] ^= 1;
        assert!(!opens(&sealer(&key(1)), 3, bad, &tag), "other bytes");
        let mut bad = tag;
        bad[15] ^= 1;
        assert!(!opens(&sealer(&key(1)), 3, bytes, &bad), "another tag");
    }

    #[test]
    fn a_manifest_is_signed_as_a_whole() {
        let seal = Seal { salt: [5; 16], tags: vec![[1; 16]], tag: [0; 16] };
        let (chunks, objects) = (vec![[2; 16]], Vec::new());
        let mut manifest = Manifest { generation: 7, bytes: 3, chunks, objects, seal: Some(seal) };
        let tag = sealer(&key(1)).sign(&manifest).unwrap();
        manifest.seal.as_mut().unwrap().tag = tag;
        assert!(sealer(&key(1)).signed(&manifest));
        assert!(!sealer(&key(2)).signed(&manifest));
        let changed = Manifest { bytes: 4, ..manifest.clone() };
        assert!(!sealer(&key(1)).signed(&changed));
        let mut changed = manifest.clone();
        changed.seal.as_mut().unwrap().tags[0][0] ^= 1;
        assert!(!sealer(&key(1)).signed(&changed));
        manifest.seal = None;
        assert!(!sealer(&key(1)).signed(&manifest));
    }
}
