//! Files with a key, as options name them.

use anyhow::Context;
use eyrie_vault::seal::Key;
use std::path::Path;

/// The key that a file has, if one is named.
pub fn key(path: Option<&Path>) -> anyhow::Result<Option<Key>> {
    let read =
        |path: &Path| Key::read(path).with_context(|| format!("cannot use {}", path.display()));
    path.map(read).transpose()
}
