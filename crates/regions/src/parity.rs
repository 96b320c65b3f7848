//! Parts protected by parity over the nodes' folders: a vault, of which each checkpoint is a
//! generation and each part an object. One process writes it, when all have written their parts;
//! any process reads it. It sees all folders for that; where nodes do not, see `apart`.

use crate::config::Config;
use crate::error::{RegionsError, file, note};
use crate::fence::Fenced;
use crate::label::{Label, Stamp};
use crate::part::{create, publish, temporary};
use crate::store;
use eyrie_vault::disk::{self, Disk, Folder};
use eyrie_vault::files;
use eyrie_vault::layout::Place;
use eyrie_vault::member::Member;
use eyrie_vault::vault::Opened;
use eyrie_vault::{Vault, VaultError};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A part in the vault.
#[derive(Debug, Clone)]
pub struct Held {
    pub label: Label,
    pub generation: u64,
    pub node: u32,
}

/// Files of a member of which somebody died who was making it: it is as good as empty.
pub const TEMPORARY: [&str; 3] = [files::DROPPED, "dropped.part", "vault.part"];

/// The members that are there, each with the number of its folder, and empty folders.
type Members<D> = (Vec<(usize, Member<D>)>, Vec<(usize, D)>);

/// `open`: `None` if the folder is not to be spoken of.
fn members<D: Disk>(
    config: &Config,
    open: impl Fn(&Path) -> Option<io::Result<D>>,
) -> Result<Members<D>, RegionsError> {
    let (mut there, mut empty) = (Vec::new(), Vec::new());
    for (number, folder) in config.folders.iter().enumerate() {
        let path = store::member(folder);
        let disk = match open(&path) {
            Some(Ok(disk)) => disk,
            Some(Err(error)) => {
                note(0, &format!("{} cannot be used: {error}", path.display()));
                continue;
            }
            None => continue,
        };
        let names = disk.names().map_err(file("read", &path))?;
        if names.iter().all(|name| TEMPORARY.contains(&name.as_str())) {
            empty.push((number, disk));
            continue;
        }
        let bad = |why: String| RegionsError::Use(format!("{}: {why}", path.display()));
        match Member::open(disk) {
            Ok(Some(member)) => there.push((number, member)),
            Ok(None) => return Err(bad("it is no member of a vault, and not empty".into())),
            Err(error) => return Err(bad(error.to_string())),
        }
    }
    Ok((there, empty))
}

fn tell(opened: &Opened) {
    for (node, error) in &opened.unusable {
        note(0, &format!("the vault's node {node} cannot be used: {error}"));
    }
    for error in &opened.damaged {
        note(0, &format!("the vault: {error}"));
    }
}

/// Which node of the vault a folder is.
type Nodes = Vec<(usize, u32)>;

/// The vault to write to.
fn open(config: &Config) -> Result<(Vault<Fenced>, Nodes), RegionsError> {
    let (there, empty) = members(config, |path| Some(Fenced::create(path)))?;
    if there.is_empty() {
        if empty.len() != config.folders.len() {
            return Err(RegionsError::Use("a new vault takes all of its folders".into()));
        }
        let random = disk::random().map_err(file("read", Path::new("/dev/urandom")))?;
        let numbers: Vec<u32> = (0..).take(empty.len()).collect();
        let places = numbers.iter().map(|node| Place::of(*node)).collect();
        let disks = empty.into_iter().map(|(_, disk)| disk).collect();
        let vault = Vault::create(random, config.scheme, places, disks)?;
        return Ok((vault, numbers.into_iter().enumerate().collect()));
    }
    let mut nodes: Nodes = there.iter().map(|(f, m)| (*f, m.node())).collect();
    let (mut vault, opened) = Vault::open(there.into_iter().map(|(_, m)| m).collect())?;
    tell(&opened);
    let (scheme, places) = (vault.scheme, vault.places.len());
    if scheme != config.scheme || places != config.folders.len() {
        let (wanted, folders) = (config.scheme, config.folders.len());
        return Err(RegionsError::Use(format!(
            "the vault in these folders is {scheme} over {places} nodes, and {wanted} over \
             {folders} is wanted: use other folders, or what is there"
        )));
    }
    for (node, (number, disk)) in opened.missing.iter().zip(empty) {
        vault.replace(*node, disk)?;
        nodes.push((number, *node));
        note(0, &format!("{} is node {node} of the vault now", config.folders[number].display()));
    }
    Ok((vault, nodes))
}

/// The vault to read from, if there is one.
pub fn look(config: &Config) -> Result<Option<Vault<Folder>>, RegionsError> {
    let (there, _) = members(config, |path| Folder::open(path).ok().map(Ok))?;
    if there.is_empty() {
        return Ok(None);
    }
    let (vault, opened) = Vault::look(there.into_iter().map(|(_, member)| member).collect())?;
    tell(&opened);
    Ok(Some(vault))
}

/// All parts in the vault, as far as they can be known; and what cannot be known.
pub fn list<D: Disk>(vault: &mut Vault<D>) -> (Vec<Held>, Vec<VaultError>) {
    let commits: Vec<_> = vault.generations().cloned().collect();
    let (mut held, mut lost) = (Vec::new(), Vec::new());
    for commit in commits {
        let generation = commit.generation;
        for node in commit.groups.iter().flatten().map(|summary| summary.node) {
            match vault.manifest(generation, node) {
                Ok(manifest) => {
                    let names = manifest.objects.iter().map(|object| object.name.as_str());
                    let labels = names.filter_map(Label::parse);
                    held.extend(labels.map(|label| Held { label, generation, node }));
                }
                Err(error) => lost.push(error),
            }
        }
    }
    (held, lost)
}

/// Begins a generation, over the newest one of this name if that can be: parts that lie where those
/// before them lay differ in few chunks, and parity is updated by these alone.
/// Of what is encrypted all chunks differ.
fn begin(vault: &mut Vault<Fenced>, name: &str, sealed: bool) -> Result<(), RegionsError> {
    if sealed {
        vault.begin()?;
        return Ok(());
    }
    let held = list(vault).0;
    let before = held.iter().filter(|held| held.label.name == name).map(|held| held.generation);
    let built = before.max().map(|base| vault.begin_on(base));
    // What it cannot be built on (nodes were lost, or it is damaged) is no hindrance.
    if !matches!(built, Some(Ok(_))) {
        vault.begin()?;
    }
    Ok(())
}

/// Protects the parts of a checkpoint, and lets those go that are of its name and not among
/// `keep`.
pub fn protect(
    config: &Config,
    (label, ranks): (&Label, u32),
    keep: &[(i64, Stamp)],
) -> Result<(), RegionsError> {
    let (mut vault, nodes) = open(config)?;
    begin(&mut vault, &label.name, config.key.is_some())?;
    for rank in 0..ranks {
        let label = Label { rank, ..label.clone() };
        let added = add(&mut vault, config, &label, ranks, &nodes);
        if let Err(error) = added {
            vault.give_up();
            return Err(error);
        }
    }
    vault.commit()?;
    let mut wanted: BTreeSet<u64> = vault.generations().map(|c| c.generation).collect();
    let kept = |held: &Held| {
        let label = &held.label;
        keep.contains(&(label.version, label.stamp))
    };
    for held in list(&mut vault).0 {
        if held.label.name == label.name && !kept(&held) {
            wanted.remove(&held.generation);
        }
    }
    vault.collect(&wanted)?;
    Ok(())
}

/// Whether the vault has this checkpoint, or a later one of this run: the process was restored from
/// an image of itself then, and does again what it had done.
pub fn repeats(config: &Config, label: &Label) -> bool {
    // What cannot be known is as if it were not so.
    let mut vault = look(config).ok().flatten();
    let held = vault.as_mut().map(|vault| list(vault).0).unwrap_or_default();
    held.iter().any(|held| held.label.follows(label))
}

fn add(
    vault: &mut Vault<Fenced>,
    config: &Config,
    label: &Label,
    ranks: u32,
    nodes: &[(usize, u32)],
) -> Result<(), RegionsError> {
    let name = label.to_string();
    // Where it should be first; a process may have chosen another.
    let own = config.folder_of(label.rank, ranks);
    let all = std::iter::once(own).chain(0..config.folders.len());
    let path = |number: usize| Some(store::parts(config.folders.get(number)?).join(&name));
    let mut found = all.filter_map(|n| Some((n, path(n)?))).filter(|(_, path)| path.exists());
    let none = || RegionsError::Use(format!("process 0 does not see the part {name}"));
    let (number, path) = found.next().ok_or_else(none)?;
    let node = nodes.iter().find(|(folder, _)| *folder == number).map(|(_, node)| *node);
    let node = node.ok_or(VaultError::NoMember(u32::MAX))?;
    let mut from = fs::File::open(&path).map_err(file("read", &path))?;
    Ok(vault.add(node, &name, &mut from)?)
}

/// Writes a part of the vault to a file in this folder, from parity where that must be.
pub fn fetch<D: Disk>(
    vault: &mut Vault<D>,
    held: &Held,
    folder: &Path,
) -> Result<PathBuf, RegionsError> {
    let name = held.label.to_string();
    let path = folder.join(&name);
    let partial = temporary(&path);
    let mut to = create(&partial).map_err(file("write", &partial))?;
    let done = vault.read(held.generation, held.node, &name, &mut to);
    let done = done.map_err(RegionsError::from);
    let done = done.and_then(|_| publish(&to, &partial, &path).map_err(file("write", &path)));
    if done.is_err() {
        // What went wrong is what counts.
        let _ = fs::remove_file(&partial);
    }
    done.map(|()| path)
}
