//! What the controller of a job and its nodes say to each other of the vault.
//!
//! Kept true: what concerns a generation bears its number, so that what is late is known as such.

use eyrie_vault::record::{Commit, Summary};
use eyrie_vault::{Encoder, Scheme};
use serde::{Deserialize, Serialize};

/// From the controller to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VaultOrder {
    /// Begin a generation with these files of images (rank and generation), which `images` consist
    /// of. The vault is that of these nodes. Answered by `Offered`.
    Begin {
        vault: [u8; 16],
        scheme: Scheme,
        nodes: Vec<u32>,
        generation: u64,
        term: u64,
        images: Vec<(u32, u32)>,
        files: Vec<(u32, u32)>,
    },
    /// Make the parity, with the other nodes of the group. Answered by `Prepared`.
    Encode { generation: u64, group: Vec<u32>, payloads: Vec<u64>, encoder: Encoder },
    /// The generation exists. Answered by `Committed`.
    Commit(Box<Commit>),
    /// It does not.
    Abort { generation: u64 },
    /// These are needed no more; controllers of earlier terms are not obeyed any more.
    Drop { generations: Vec<u64>, term: u64 },
}

/// From a node to the controller: how it stands with a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VaultStep {
    Offered(Summary),
    Prepared(Summary),
    Committed,
    Failed(String),
    /// This image cannot be used, and was removed.
    Damaged {
        rank: u32,
        generation: u32,
        why: String,
    },
}

/// Where the vault has a file of an image: the file's generation, the node whose object it is, and
/// the vault's generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vaulted {
    pub file: u32,
    pub node: u32,
    pub commit: Box<Commit>,
}
