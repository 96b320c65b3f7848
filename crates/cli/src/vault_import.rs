//! `eyrie vault import`: files as a generation, in the way that takes least.

use crate::vault::{key, members, tell};
use crate::vault_args::Import;
use anyhow::{Context, anyhow};
use eyrie_terminal::{Failure, print, say, units};
use eyrie_vault::cost::Measured;
use eyrie_vault::disk::{self, Disk, Folder};
use eyrie_vault::layout::Place;
use eyrie_vault::vault::Draft;
use eyrie_vault::ways::Way;
use eyrie_vault::{Scheme, Vault};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn create(scheme: Scheme, folders: &[PathBuf]) -> anyhow::Result<Vault<Folder>> {
    let mut disks = Vec::new();
    for path in folders {
        let disk = Folder::create(path);
        let disk = disk.with_context(|| format!("cannot make {}", path.display()))?;
        if !disk.names()?.is_empty() {
            return Err(anyhow!("{} is not empty", path.display()));
        }
        disks.push(disk);
    }
    let places = (0..).take(disks.len()).map(Place::of).collect();
    Ok(Vault::create(disk::random()?, scheme, places, disks)?)
}

/// The files of a node, by name.
fn files(from: &Path, node: u32) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let folder = from.join(format!("node-{node}"));
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(&folder).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    let mut entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(entries.iter().map(|entry| (named(entry), entry.path())).collect())
}

/// What is to be stored, of each node, with the files that it comes from.
type Drafts = (BTreeMap<u32, Vec<Draft>>, BTreeMap<(u32, String), PathBuf>);

fn drafts(vault: &mut Vault<Folder>, from: &Path, base: Option<u64>) -> anyhow::Result<Drafts> {
    let (mut drafts, mut paths) = (BTreeMap::new(), BTreeMap::new());
    for node in vault.nodes().collect::<Vec<u32>>() {
        let mut its = Vec::new();
        for (name, path) in files(from, node)? {
            let bad = || format!("cannot read {}", path.display());
            let mut file = File::open(&path).with_context(bad)?;
            its.push(vault.draft(base, (node, &name), &mut file).with_context(bad)?);
            paths.insert((node, name), path);
        }
        drafts.insert(node, its);
    }
    Ok((drafts, paths))
}

fn open(args: &Import) -> anyhow::Result<Vault<Folder>> {
    let mut vault = match args.vault {
        Some(scheme) => create(scheme, &args.look.members).context("cannot make a vault")?,
        None => {
            let (vault, opened) = Vault::open(members(&args.look.members)?.0)
                .context("cannot open the vault (--vault SCHEME makes a new one)")?;
            tell(&opened, false);
            vault
        }
    };
    vault.set_key(key(args.key.as_deref())?);
    if let Some(mbit) = args.link {
        vault.set_measured(Measured { link: mbit * 125e3, ..Measured::default() });
    }
    Ok(vault)
}

/// Begins a generation; in another way if what it is to be built on cannot be used for that.
fn begin(vault: &mut Vault<Folder>, way: Way, base: Option<u64>) -> anyhow::Result<Way> {
    match vault.begin_as(way, base) {
        Ok(_) => Ok(way),
        Err(error) if way == Way::Update => {
            say(crate::NAME, &format!("parity is made anew: {error}"));
            vault.begin().context("cannot store")?;
            Ok(Way::Whole)
        }
        Err(error) => Err(error).context("cannot store"),
    }
}

pub fn import(args: &Import) -> Result<i32, Failure> {
    let mut vault = open(args)?;
    let base = vault.generations().next_back().map(|commit| commit.generation);
    let base = base.filter(|_| args.by != Some(Way::Whole));
    let (drafts, paths) = drafts(&mut vault, &args.from, base)?;
    let choice = vault.weigh(base, &drafts, args.chain).context("cannot look")?;
    let wanted = args.by.unwrap_or(choice.way);
    if !choice.estimates.iter().any(|estimate| estimate.way == wanted) {
        let there: Vec<String> = choice.estimates.iter().map(|e| e.way.to_string()).collect();
        return Err(
            anyhow!("it cannot be stored as {wanted} now, but as {}", there.join(", ")).into()
        );
    }
    let way = begin(&mut vault, wanted, base)?;
    let given = args.by.map_or(String::new(), |way| format!("{way} by --by; auto would be "));
    vault.because(format!("{given}{choice}"));
    let (mut count, mut bytes) = (0, 0);
    for (node, drafts) in &drafts {
        for draft in drafts {
            let path = paths.get(&(*node, draft.name.clone())).cloned().unwrap_or_default();
            let bad = || format!("cannot store {}", path.display());
            let file = File::open(&path).with_context(bad)?;
            let mut content = |at: u64, to: &mut [u8]| file.read_exact_at(to, at);
            vault.add_draft(*node, way, draft, &mut content).with_context(bad)?;
            (count, bytes) = (count + 1, bytes + draft.bytes);
        }
    }
    let generation = vault.commit().context("cannot store")?;
    let commit = vault.generations().next_back().cloned();
    let why = commit.map_or(String::new(), |commit| commit.why);
    let sent = vault.sent_bytes();
    if args.look.json {
        let all = json!({
            "generation": generation, "files": count, "bytes": bytes, "way": way.to_string(),
            "sent_bytes": sent, "why": why,
        });
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
    } else {
        let (size, sent) = (units::bytes(bytes), units::bytes(sent));
        print(&format!("generation {generation}: {count} objects, {size}; {sent} between nodes\n"));
        print(&format!("{why}\n"));
    }
    Ok(0)
}
