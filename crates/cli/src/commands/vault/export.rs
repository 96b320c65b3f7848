//! `eyrie vault export`: a generation as files, or into an object store.

use crate::commands::vault::args::Export;
use crate::commands::vault::members::look;
use crate::commands::vault::objects::{self, Objects};
use crate::options::key_file::key;
use anyhow::{Context, anyhow};
use eyrie_objects::StoreUrl;
use eyrie_terminal::{Counted, Failure, Progress, USAGE, print, units};
use eyrie_vault::Vault;
use eyrie_vault::disk::Folder;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub fn export(args: &Export) -> Result<i32, Failure> {
    let mut vault = look(&args.look.members)?;
    vault.set_key(key(args.key.as_deref())?);
    let generation = match args.generation {
        Some(generation) => generation,
        None => {
            let newest = vault.newest().context("cannot look")?;
            newest.ok_or_else(|| anyhow!("no generation can be had"))?
        }
    };
    let commit = vault.generations().find(|c| c.generation == generation).cloned();
    let commit = commit.ok_or_else(|| anyhow!("generation {generation} does not exist"))?;
    let nodes = commit.groups.iter().flatten().map(|summary| summary.node);
    let nodes: Vec<u32> =
        nodes.filter(|node| args.node.is_none_or(|wanted| wanted == *node)).collect();
    let place = objects::place(&args.to)?;
    let progress = whole(&mut vault, (generation, &nodes), args.look.quiet);
    let (files, bytes) = match place {
        Some(place) => export_objects(&mut vault, args, generation, (&nodes, place), &progress)?,
        None if args.seal.is_some() || args.limit.is_some() => {
            let text = "--seal and --limit are for an object store (s3://BUCKET/PREFIX)";
            return Err(Failure::new(USAGE, anyhow!(text)));
        }
        None => export_files(&mut vault, args, generation, &nodes, &progress)?,
    };
    drop(progress);
    if args.look.json {
        let all = json!({"generation": generation, "files": files, "bytes": bytes});
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
    } else {
        let (to, size) = (args.to.display(), units::bytes(bytes));
        print(&format!("generation {generation}: {files} objects, {size}, in {to}\n"));
    }
    Ok(0)
}

/// What the objects of these nodes hold in all; what cannot be known is told when it is read.
fn whole(vault: &mut Vault<Folder>, of: (u64, &[u32]), quiet: bool) -> Progress {
    let manifests = of.1.iter().filter_map(|node| vault.manifest(of.0, *node).ok());
    let objects = manifests.flat_map(|manifest| manifest.objects);
    Progress::bytes("export", objects.map(|object| object.bytes).sum(), quiet)
}

/// Brings the objects of nodes to an object store. Returns how many, and their bytes.
fn export_objects(
    vault: &mut Vault<Folder>,
    args: &Export,
    generation: u64,
    (nodes, place): (&[u32], StoreUrl),
    progress: &Progress,
) -> anyhow::Result<(u64, u64)> {
    let mut objects = Objects::open(place, args.limit, key(args.seal.as_deref())?)?;
    objects.must_be_empty()?;
    let (mut files, mut bytes) = (0, 0);
    for node in nodes {
        for object in vault.manifest(generation, *node).context("cannot export")?.objects {
            let file = objects::nameless()?;
            let mut to = Counted::new(&file, progress);
            vault.read(generation, *node, &object.name, &mut to).context("cannot export")?;
            bytes += objects.bring(*node, &object.name, file)?;
            files += 1;
        }
    }
    objects.finish(generation)?;
    Ok((files, bytes))
}

fn export_files(
    vault: &mut Vault<Folder>,
    args: &Export,
    generation: u64,
    nodes: &[u32],
    progress: &Progress,
) -> anyhow::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for node in nodes {
        let node = *node;
        let folder = args.to.join(format!("node-{node}"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for object in vault.manifest(generation, node).context("cannot export")?.objects {
            let object = (&*object.name, progress);
            bytes += write_object(vault, (generation, node), object, &folder)?;
            files += 1;
        }
    }
    Ok((files, bytes))
}

fn write_object(
    vault: &mut Vault<Folder>,
    (generation, node): (u64, u32),
    (name, progress): (&str, &Progress),
    folder: &Path,
) -> anyhow::Result<u64> {
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    let mut to = Counted::new(BufWriter::new(file), progress);
    let done = vault.read(generation, node, name, &mut to).map_err(anyhow::Error::from);
    let done = done.and_then(|bytes| Ok(to.flush().map(|()| bytes)?));
    if done.is_err() {
        // Half a file is of no use; what went wrong is what counts.
        let _ = fs::remove_file(&path);
    }
    done.with_context(|| format!("cannot write {}", path.display()))
}
