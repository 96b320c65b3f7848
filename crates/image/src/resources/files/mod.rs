//! Files with a path: which of them belong to an image, and what becomes of them at a restore.

pub(crate) mod appends;
pub(crate) mod attribution;
pub(crate) mod before;
pub(crate) mod beginning;
pub(crate) mod created;
pub(crate) mod families;
pub(crate) mod fingerprint;
pub(crate) mod links;
pub(crate) mod mapped;
pub(crate) mod metadata;
pub(crate) mod open_files;
pub(crate) mod refill;
pub(crate) mod renamed_folders;
pub(crate) mod special;
pub(crate) mod stored;
pub(crate) mod touches;
pub(crate) mod undo;
pub(crate) mod watch;
