//! Images that the vault has, and that are to be restored here; what the controller orders of it.

use super::Agent;
use super::elsewhere::{CONNECT, Elsewhere};
use crate::files;
use crate::pour;
use crate::vault::{Remote, Work};
use eyrie_control::VaultOrder;
use eyrie_control::node::Fetch;
use eyrie_control::vault::Vaulted;
use eyrie_image::Image;
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
        let remote = |node| {
            let remote = Remote::new(self.own.clone(), self.members.clone(), node, CONNECT);
            (node, remote.ahead())
        };
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
            // Each chunk was held against what was stored, and that before it went in: it is not
            // read again before it is restored, where each page is once more.
            if let Ok(identity) = Image::identity_of(&unborn) {
                pour::note_verified(identity);
            }
            Ok(std::fs::rename(&unborn, self.images.join(name))?)
        });
        if read.is_err() {
            let _ = std::fs::remove_file(&unborn);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Doors, Identity, Members, serve};
    use crate::vault::{Door, Setup};
    use eyrie_control::auth::Key;
    use eyrie_tls::{Routes, Secret};
    use eyrie_vault::disk::Folder;
    use eyrie_vault::layout::Place;
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// What three nodes stored over these folders, node 1 these files.
    fn stored(folder: &Path, files: &[(&str, &[u8])]) -> Vaulted {
        let places: Vec<Place> = (0..3).map(Place::of).collect();
        let disk = |node: u32| Folder::create(&folder.join(node.to_string())).unwrap();
        let disks = (0..3).map(disk).collect();
        let mut vault = Vault::create([7; 16], "rs:2+1".parse().unwrap(), places, disks).unwrap();
        vault.begin().unwrap();
        for (name, bytes) in files {
            vault.add(1, name, &mut &bytes[..]).unwrap();
        }
        vault.commit().unwrap();
        let commit = Box::new(vault.generations().next().unwrap().clone());
        Vaulted { file: 4, node: 1, commit }
    }

    fn own(node: u32) -> Identity {
        let secret = Secret::new(Key([5; 32]), false).unwrap();
        Identity { job: "j".into(), node, epoch: 1, secret, routes: Routes::default() }
    }

    fn serve_vault(node: u32, folder: &Path, members: &Members) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        members.lock().unwrap().push((node, 1, listener.local_addr().unwrap()));
        let folder = folder.join(node.to_string());
        let setup = Setup {
            folder: folder.clone(),
            images: folder.clone(),
            job: "j".into(),
            ranks: 4,
            members: Arc::clone(members),
            say: Arc::new(|_| ()),
        };
        let doors = Doors { vault: Some(Door::open(setup).unwrap()), ..Doors::default() };
        serve(listener, own(node), folder, Arc::clone(members), Arc::default(), doors).unwrap();
    }

    #[test]
    fn what_came_out_of_the_vault_is_not_read_again_before_it_is_restored() {
        let (folder, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let image = eyrie_image::fuzzing::sign(&[0; 200_000]).unwrap();
        let of = stored(folder.path(), &[("rank-2.gen-4", &image), ("rank-2.gen-4.log", b"log")]);
        let members = Members::default();
        members.lock().unwrap().push((3, 1, ([127, 0, 0, 1], 1).into()));
        // The node that stored it is gone.
        [0, 2].into_iter().for_each(|node| serve_vault(node, folder.path(), &members));
        let elsewhere = Elsewhere {
            own: own(3),
            members,
            images: images.path().into(),
            rank: 2,
            archive_gone: Duration::ZERO,
            over: Arc::default(),
        };
        let fetch = Fetch { files: vec![4], from: None, log: true, vault: vec![of] };
        assert!(elsewhere.unvault(&fetch).is_ok());
        let path = images.path().join("rank-2.gen-4");
        assert!(std::fs::read(&path).unwrap() == image);
        let identity = Image::identity_of(&path).unwrap();
        assert!(pour::was_verified(&identity), "each chunk was held against its checksum");
        assert!(!pour::was_verified(&identity), "what lies there longer is read again");
    }
}
