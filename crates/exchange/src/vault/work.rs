//! What the thread of a node's part of the vault is told, and what it needs for it.

use crate::store_protocol::{Identity, Members};
use eyrie_control::VaultOrder;
use eyrie_control::node::FromNode;
use eyrie_vault::disk::Disk;
use eyrie_vault::encoding::Message;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// What is to be done.
pub enum Work {
    /// What the controller orders, as this member.
    Order(Box<VaultOrder>, Identity),
    /// Another node says its part of a sum.
    Said { from: u32, generation: u64, message: Message },
    /// What it was saying broke off.
    Broken { from: u32, generation: u64 },
    /// What this node was saying does not get through.
    Stuck { generation: u64, why: String },
    /// What a pass over a generation finds damaged is made anew so.
    Change { generation: u64, change: Change, done: Sender<io::Result<()>> },
}

/// What the thread needs.
pub struct Setup {
    /// Where its part of the vault is to lie, and where images are.
    pub folder: PathBuf,
    pub images: PathBuf,
    pub job: String,
    pub ranks: u32,
    pub members: Members,
    pub say: Arc<dyn Fn(FromNode) + Send + Sync>,
}

/// What is to be done to the files of a generation.
pub enum Change {
    Write { name: String, at: u64, bytes: Vec<u8> },
    Sync(String),
    Rename(String, String),
    Remove(String),
    SyncNames,
}

impl Change {
    pub fn carry_out(&self, disk: &mut impl Disk) -> io::Result<()> {
        match self {
            Change::Write { name, at, bytes } => disk.write_at(name, *at, bytes),
            Change::Sync(name) => disk.sync(name),
            Change::Rename(from, to) => disk.rename(from, to),
            Change::Remove(name) => disk.remove(name),
            Change::SyncNames => disk.sync_names(),
        }
    }
}
