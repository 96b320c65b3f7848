//! What is said of images that nodes bring to where a whole job is restarted from: the job's
//! folder, or an object store.

use crate::node::Determinants;
use serde::{Deserialize, Serialize};

/// One file of a saved job in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its path in the job's folder.
    pub name: String,
    /// The object that has it, below the job's place.
    pub object: String,
    pub bytes: u64,
    /// XXH3 (128 bits) of the plain file, in hexadecimal digits.
    pub hash: String,
}

/// Where the files of images are in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// `s3://BUCKET/PREFIX/JOB`, or the like.
    pub place: String,
    pub files: Vec<StoredFile>,
}

/// How what a node has got there, the one that is to be avoided most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// Through the controller.
    Controller,
    /// The node sees the job's folder, and wrote into it.
    Folder,
    /// The node sent it to the object store.
    Store,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Way::Controller => "controller",
            Way::Folder => "folder",
            Way::Store => "store",
        })
    }
}

/// What a node has brought of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    pub determinants: Determinants,
    pub way: Way,
    /// Why no way past the controller was taken that was offered.
    pub why: Option<String>,
    /// In the object store: all files of its images there, and how many bytes had to be sent.
    pub files: Vec<StoredFile>,
    pub sent_bytes: u64,
}
