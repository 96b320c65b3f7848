//! Images that the vault has, and that are to be restored here; what the controller orders of it.

use super::Agent;
use super::elsewhere::{CONNECT, Elsewhere};
use crate::files;
use crate::vault::{Remote, Work};
use eyrie_control::VaultOrder;
use eyrie_control::node::Fetch;
use eyrie_control::vault::Vaulted;
use eyrie_vault::{Vault, VaultError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

impl Agent {
    pub(super) fn order_vault(&self, order: VaultOrder) {
        if let Some(network) = &self.network
            && let Some(door) = &network.vault
        {
            door.tell(Work::Order(Box::new(order), network.own.clone()));
        }
    }
}

/// Why an image is not read out of the vault.
pub(super) enum Unread {
    /// More nodes are gone than the vault bears.
    Gone,
    /// Not now, but it may come.
    Later(String),
    /// What is there cannot be used.
    Never(String),
}

/// At what a file of the vault is not read.
enum Failed {
    ToOpen(Unread),
    ToRead(VaultError),
}

impl Elsewhere {
    /// Reads the files that are not here, of whoever has what it takes.
    pub(super) fn unvault(&self, fetch: &Fetch) -> Result<(), Unread> {
        fetch.vault.iter().try_for_each(|of| self.unvault_one(of))
    }

    fn unvault_one(&self, of: &Vaulted) -> Result<(), Unread> {
        let mut opened = None;
        let read = files::complete(&self.images, self.rank, of.file, |name| {
            let vault = match &mut opened {
                Some(vault) => vault,
                None => opened.insert(self.open_vault(of).map_err(Failed::ToOpen)?),
            };
            self.read_file(vault, of, name).map_err(Failed::ToRead)
        });
        let lost = opened.is_some_and(|v| v.into_disks().values().any(Remote::is_lost));
        read.map_err(|error| match error {
            Failed::ToOpen(unread) => unread,
            // Of its files some cannot be reached now, or this node has no room for it.
            Failed::ToRead(error @ VaultError::Io(_)) => Unread::Later(error.to_string()),
            Failed::ToRead(error) if lost => Unread::Later(error.to_string()),
            Failed::ToRead(error) => Unread::Never(error.to_string()),
        })
    }

    fn open_vault(&self, of: &Vaulted) -> Result<Vault<Remote>, Unread> {
        let Some((group, _)) = of.commit.place(of.node) else {
            return Err(Unread::Never(String::from("the vault's generation is without its node")));
        };
        let nodes: Vec<u32> = of.commit.groups[group].iter().map(|s| s.node).collect();
        let live: Vec<u32> = {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.iter().copied().filter(|n| members.iter().any(|m| m.0 == *n)).collect()
        };
        let tolerates = of.commit.scheme.tolerates();
        if nodes.len() - live.len() > tolerates {
            return Err(Unread::Gone);
        }
        let remote =
            |node| (node, Remote::new(self.own.clone(), self.members.clone(), node, CONNECT));
        let disks: BTreeMap<u32, Remote> = live.into_iter().map(remote).collect();
        Ok(Vault::of((*of.commit).clone(), disks))
    }

    fn read_file(
        &self,
        vault: &mut Vault<Remote>,
        of: &Vaulted,
        name: &str,
    ) -> Result<(), VaultError> {
        // The same file may be on its way twice.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unborn = self.images.join(format!(".{name}.{count}.vault.part"));
        let generation = of.commit.generation;
        let read = File::create(&unborn).map_err(VaultError::Io).and_then(|file| {
            let mut to = BufWriter::new(file);
            vault.read(generation, of.node, name, &mut to)?;
            to.flush()?;
            Ok(std::fs::rename(&unborn, self.images.join(name))?)
        });
        if read.is_err() {
            let _ = std::fs::remove_file(&unborn);
        }
        read
    }
}
