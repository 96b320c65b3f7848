//! Images that the vault has, and that are to be restored here; what the controller orders of it.

use super::Agent;
use super::remote_images::{CONNECT, Elsewhere};
use eyrie_control::VaultOrder;
use eyrie_control::node::Fetch;
use eyrie_control::vault::Vaulted;
use eyrie_exchange::image_files::{self, Part};
use eyrie_exchange::lazy_fetch::{Coming, LazyFetch, Source, Unread};
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_exchange::vault::{Remote, Work};
use eyrie_vault::record::Object;
use eyrie_vault::{Vault, VaultError};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

impl Agent {
    pub(super) fn order_vault(&self, order: VaultOrder) {
        if let Some(network) = &self.network
            && let Some(door) = &network.vault
        {
            door.tell(Work::Order(Box::new(order), network.own.clone()));
        }
    }
}

/// At what a file of the vault is not read.
enum Failed {
    ToOpen(Unread),
    ToRead(VaultError),
}

/// Why what was asked of a vault over these nodes fails; `lost`: one of them was not reached.
fn unread(error: &VaultError, lost: bool) -> Unread {
    let why = error.to_string();
    match error {
        // Some of its files cannot be reached now, or this node has no room for it.
        VaultError::Io(_) => Unread::Later(why),
        _ if lost => Unread::Later(why),
        _ => Unread::Never(why),
    }
}

fn is_lost(vault: Vault<Remote>) -> bool {
    vault.into_disks().values().any(Remote::is_lost)
}

/// The vault's generation that has a file, over those of its nodes that are there.
fn open_vault(own: &Identity, members: &Members, of: &Vaulted) -> Result<Vault<Remote>, Unread> {
    let Some((group, _)) = of.commit.place(of.node) else {
        return Err(Unread::Never(String::from("the vault's generation is without its node")));
    };
    let nodes: Vec<u32> = of.commit.groups[group].iter().map(|s| s.node).collect();
    let live: Vec<u32> = {
        let members = members.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().copied().filter(|n| members.iter().any(|m| m.0 == *n)).collect()
    };
    let tolerates = of.commit.scheme.tolerates();
    if nodes.len() - live.len() > tolerates {
        return Err(Unread::Gone);
    }
    let remote = |node| {
        let remote = Remote::new(own.clone(), members.clone(), node, CONNECT);
        (node, remote.ahead())
    };
    let disks: BTreeMap<u32, Remote> = live.into_iter().map(remote).collect();
    Ok(Vault::of((*of.commit).clone(), disks))
}

/// A file of the vault that is read piece by piece, over whoever is there.
struct Stored {
    own: Identity,
    members: Members,
    of: Vaulted,
    object: Object,
    vault: Option<Vault<Remote>>,
}

impl Source for Stored {
    fn read(&mut self, at: u64) -> Result<Vec<u8>, Unread> {
        let mut vault = match self.vault.take() {
            Some(vault) => vault,
            None => open_vault(&self.own, &self.members, &self.of)?,
        };
        let (generation, node) = (self.of.commit.generation, self.of.node);
        match vault.range(generation, node, &self.object, at) {
            Ok(bytes) => {
                self.vault = Some(vault);
                Ok(bytes)
            }
            Err(error) => Err(unread(&error, is_lost(vault))),
        }
    }

    fn rest(&mut self) {
        self.vault = None;
    }
}

impl Elsewhere {
    /// Has the files come that are not here, of whoever has what it takes. A log is read whole.
    pub(super) fn unvault(&self, fetch: &Fetch, feed: &mut LazyFetch) -> Result<(), Unread> {
        fetch.vault.iter().try_for_each(|of| self.unvault_one(of, feed))
    }

    fn unvault_one(&self, of: &Vaulted, feed: &mut LazyFetch) -> Result<(), Unread> {
        let mut opened = None;
        let read = image_files::complete(&self.images, self.rank, of.file, |name| {
            if feed.joins(&self.images.join(name)) {
                return Ok(());
            }
            let mut vault = match opened.take() {
                Some(vault) => vault,
                None => {
                    let vault = open_vault(&self.own, &self.members, of);
                    vault.map_err(Failed::ToOpen)?
                }
            };
            let log = image_files::parse(name).is_some_and(|named| named.part == Part::Log);
            let read = match log {
                true => self.read_file(&mut vault, of, name),
                false => {
                    let object = vault.object(of.commit.generation, of.node, name);
                    object.and_then(|object| self.feed_file(of, object, feed))
                }
            };
            opened = Some(vault);
            read.map_err(Failed::ToRead)
        });
        let lost = opened.is_some_and(is_lost);
        read.map_err(|error| match error {
            Failed::ToOpen(unread) => unread,
            Failed::ToRead(error) => unread(&error, lost),
        })
    }

    /// An image comes from now on. Each chunk is held against what was stored, and that was before
    /// it went in: it is not read once more before it is restored, where each page is.
    fn feed_file(
        &self,
        of: &Vaulted,
        object: Object,
        feed: &mut LazyFetch,
    ) -> Result<(), VaultError> {
        let path = self.images.join(&object.name);
        let (bytes, hash) = (object.bytes, object.hash);
        let (own, members, of) = (self.own.clone(), Arc::clone(&self.members), of.clone());
        let source = Box::new(Stored { own, members, of, object, vault: None });
        feed.add(Coming { path, bytes, hash, source })?;
        Ok(())
    }

    /// Reads a file whole.
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
        let read = eyrie_image::create_private(&unborn).map_err(VaultError::Io).and_then(|file| {
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

#[cfg(test)]
mod tests {
    use super::super::remote_images::Wait;
    use super::*;
    use eyrie_control::auth::Key;
    use eyrie_exchange::image_store::{StoreServices, serve};
    use eyrie_exchange::image_stream;
    use eyrie_exchange::vault::{Setup, VaultHandle};
    use eyrie_image::Image;
    use eyrie_tls::{Routes, Secret};
    use eyrie_vault::disk::Folder;
    use eyrie_vault::layout::Place;
    use std::net::TcpListener;
    use std::path::Path;
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
        let (routes, silence) = (Routes::default(), Duration::from_secs(20));
        Identity { job: "j".into(), node, epoch: 1, secret, routes, silence }
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
        let services = StoreServices {
            vault: Some(VaultHandle::open(setup).unwrap()),
            ..StoreServices::default()
        };
        serve(listener, own(node), folder, Arc::clone(members), Arc::default(), services).unwrap();
    }

    #[test]
    fn what_comes_out_of_the_vault_is_restored_from_before_it_has_its_name() {
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
            patience: Duration::from_secs(10),
            archive_gone: Duration::ZERO,
            over: Arc::default(),
            wait: Wait::All,
        };
        let fetch = Fetch { files: vec![4], from: None, log: true, vault: vec![of] };
        let Some(Ok(Some(feed))) = elsewhere.fetch_vaulted(&fetch) else { panic!("not read") };
        let path = images.path().join("rank-2.gen-4");
        let identity = Image::identity_of(&path).unwrap();
        assert!(image_stream::was_verified(&identity), "each chunk is held against its checksum");
        assert!(!image_stream::was_verified(&identity), "what lies there longer is read again");
        assert_eq!(std::fs::read(images.path().join("rank-2.gen-4.log")).unwrap(), b"log");
        feed.finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == image);
    }
}
