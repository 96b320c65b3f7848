//! `eyrie vault`: looking after vaults in folders; `vault_job` has those of jobs that run.

use crate::show;
use crate::vault_args::{Action, Export, Look, Ls, Mend, Vault as Args};
use crate::vault_import;
use crate::vault_job;
use crate::vault_store::{self, Objects};
use anyhow::{Context, anyhow};
use eyrie_objects::Place;
use eyrie_terminal::{FAILED, Failure, USAGE, print, say, units};
use eyrie_vault::disk::{Disk, Folder};
use eyrie_vault::files;
use eyrie_vault::member::{Member, MemberError};
use eyrie_vault::record::{Commit, Made};
use eyrie_vault::seal::Key;
use eyrie_vault::vault::{Mended, Opened, State};
use eyrie_vault::{HoldError, Vault, VaultError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub fn vault(args: &Args) -> Result<i32, Failure> {
    match &args.action {
        Action::Ls(ls) => match vault_job::named(&ls.look.members)? {
            Some(job) => vault_job::ls(&job, ls),
            None => self::ls(ls),
        },
        Action::Verify(look) => match vault_job::named(&look.members)? {
            Some(job) => vault_job::mend(&job, look, false, 0),
            None => mend(look, None),
        },
        Action::Scrub(mend) => match vault_job::named(&mend.look.members)? {
            Some(job) => vault_job::mend(&job, &mend.look, true, mend.limit.unwrap_or(0)),
            None => self::mend(&mend.look, Some((mend, false))),
        },
        Action::Repair(mend) => self::mend(&mend.look, Some((mend, true))),
        Action::Export(export) => self::export(export),
        Action::Import(import) => vault_import::import(import),
    }
}

/// Takes a folder for this command alone.
pub fn hold(folder: &mut Folder, command: &str) -> anyhow::Result<()> {
    let held = folder.hold(&format!("`eyrie vault {command}`"));
    held.map_err(|error| match error {
        HoldError::Held { .. } => anyhow!(
            "{error}: nothing was changed. Try again when that has ended; `eyrie vault ls`, \
             `verify` and `export` only read, and can be used meanwhile"
        ),
        HoldError::Io { .. } => error.into(),
    })
}

/// What folders are.
#[derive(Default)]
pub struct Members {
    pub good: Vec<Member<Folder>>,
    pub empty: Vec<Folder>,
    /// Members whose own records do not hold: they count as lost.
    pub damaged: Vec<PathBuf>,
}

/// What the folders are. `change`: the command that is going to change them.
pub fn members(folders: &[PathBuf], change: Option<&str>) -> anyhow::Result<Members> {
    let mut all = Vec::new();
    for path in folders {
        let folder = Folder::open(path);
        let mut folder = folder.with_context(|| format!("cannot use {}", path.display()))?;
        // Before anything of any of them is read.
        change.map_or(Ok(()), |command| hold(&mut folder, command))?;
        all.push(folder);
    }
    let mut members = Members::default();
    for (folder, path) in all.into_iter().zip(folders) {
        if folder.is_empty()? {
            members.empty.push(folder);
            continue;
        }
        let holds_data = folder.names()?.iter().any(|name| files::parse(name).is_some());
        let why = match Member::open(folder) {
            Ok(Some(member)) => {
                members.good.push(member);
                continue;
            }
            Err(error @ (MemberError::Record { .. } | MemberError::Io(_))) => error.to_string(),
            Ok(None) if holds_data => String::from("the file 'vault' is gone"),
            Ok(None) => {
                return Err(anyhow!("{} is no member of a vault, and not empty", path.display()));
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot use {}", path.display()));
            }
        };
        let counts = format!("{} counts as a member that is lost: {why}", path.display());
        say(crate::NAME, &counts);
        members.damaged.push(path.clone());
    }
    Ok(members)
}

/// Takes damaged members back, and empty folders in place of those that are lost.
fn replace(
    vault: &mut Vault<Folder>,
    missing: &[u32],
    damaged: &[PathBuf],
    empty: Vec<Folder>,
) -> anyhow::Result<()> {
    let mut missing: BTreeSet<u32> = missing.iter().copied().collect();
    for path in damaged {
        let bad = || format!("cannot use {}", path.display());
        let mut folder = Folder::open(path).with_context(bad)?;
        hold(&mut folder, "repair")?;
        let node = vault.readmit(folder, missing.first().copied()).with_context(bad)?;
        missing.remove(&node);
        say(crate::NAME, &format!("{} is node {node} again", path.display()));
    }
    for (node, folder) in missing.into_iter().zip(empty) {
        let place = folder.path().display().to_string();
        vault.replace(node, folder).with_context(|| format!("cannot use {place}"))?;
        say(crate::NAME, &format!("{place} is node {node} now"));
    }
    Ok(())
}

/// Says on standard error what opening found.
pub fn tell(opened: &Opened, looking: bool) {
    let mut text = String::new();
    if !opened.missing.is_empty() {
        text += &format!("nodes {:?} are missing\n", opened.missing);
    }
    for (node, error) in &opened.unusable {
        text += &format!("node {node} cannot be used: {error}\n");
    }
    for error in &opened.damaged {
        text += &format!("{error}\n");
    }
    if !opened.dropped.is_empty() && !looking {
        text += &format!("generations {:?} were begun and never whole: removed\n", opened.dropped);
    }
    if !opened.unknown.is_empty() {
        text += &format!(
            "whether generations {:?} exist cannot be known without the missing nodes\n",
            opened.unknown
        );
    }
    say(crate::NAME, &text);
}

fn look(folders: &[PathBuf]) -> anyhow::Result<Vault<Folder>> {
    let (vault, opened) = Vault::look(members(folders, None)?.good)?;
    tell(&opened, true);
    Ok(vault)
}

fn state_text(state: &State) -> String {
    match state {
        State::Whole => "whole".into(),
        State::Degraded(nodes) => format!("degraded (nodes {nodes:?})"),
        State::Lost(nodes) => format!("LOST (nodes {nodes:?})"),
    }
}

/// How the parity of a generation came to be.
fn made_text(made: Made) -> String {
    match made {
        Made::Anew => "made anew".into(),
        Made::Updated { base, bytes, .. } => {
            format!("of {base}, {} changed", units::bytes(bytes))
        }
    }
}

/// An object, as it is listed.
pub struct Held {
    pub node: u32,
    pub name: String,
    /// None: nobody was asked.
    pub bytes: Option<u64>,
}

/// Generations, as they are listed.
pub struct Listing {
    rows: Vec<Vec<String>>,
    objects: Vec<Vec<String>>,
    all: Vec<Value>,
    why: String,
}

impl Listing {
    pub fn new() -> Listing {
        let head = ["GENERATION", "SCHEME", "NODES", "STORED", "NEEDS", "PARITY", "STATE"];
        let objects = ["GENERATION", "NODE", "OBJECT", "SIZE"].map(String::from).to_vec();
        let rows = vec![head.map(String::from).to_vec()];
        Listing { rows, objects: vec![objects], all: Vec::new(), why: String::new() }
    }

    /// `held`: its objects, if they are to be listed, too.
    pub fn add(&mut self, commit: &Commit, state: &State, held: Option<Vec<Held>>) {
        let generation = commit.generation;
        let nodes: Vec<u32> = commit.groups.iter().flatten().map(|s| s.node).collect();
        let stored: u64 = commit.groups.iter().flatten().map(|s| s.payload).sum();
        let (needs, text) = (commit.needs(), state_text(state));
        self.rows.push(vec![
            generation.to_string(),
            commit.scheme.to_string(),
            nodes.len().to_string(),
            units::bytes(stored),
            if needs.is_empty() { "-".into() } else { format!("{needs:?}") },
            made_text(commit.made),
            text.clone(),
        ]);
        if !commit.why.is_empty() {
            self.why += &format!("\ngeneration {generation}: {}\n", commit.why);
        }
        let mut entry = json!({
            "generation": generation, "scheme": commit.scheme.to_string(), "nodes": nodes,
            "stored_bytes": stored, "needs": needs, "state": text,
            "parity": made_text(commit.made), "why": commit.why,
        });
        if let Some(held) = held {
            let object = |h: &Held| json!({"node": h.node, "name": h.name, "bytes": h.bytes});
            entry["objects"] = held.iter().map(object).collect();
            self.objects.extend(held.into_iter().map(|Held { node, name, bytes }| {
                let size = bytes.map_or_else(|| "-".into(), units::bytes);
                vec![generation.to_string(), node.to_string(), name, size]
            }));
        }
        self.all.push(entry);
    }

    pub fn print(&self, args: &Ls) -> anyhow::Result<()> {
        if args.look.json {
            print(&(serde_json::to_string_pretty(&self.all)? + "\n"));
            return Ok(());
        }
        print(&show::table(&self.rows));
        if args.why {
            print(&self.why);
        }
        if args.objects {
            print(&format!("\n{}", show::table(&self.objects)));
        }
        Ok(())
    }
}

fn ls(args: &Ls) -> Result<i32, Failure> {
    let mut vault = look(&args.look.members)?;
    let commits: Vec<_> = vault.generations().cloned().collect();
    let mut listing = Listing::new();
    for commit in &commits {
        let generation = commit.generation;
        let state = vault.state(generation).context("cannot look")?;
        let mut held = Vec::new();
        for node in commit.groups.iter().flatten().map(|s| s.node).filter(|_| args.objects) {
            match vault.manifest(generation, node) {
                Ok(manifest) => held.extend(manifest.objects.into_iter().map(|object| Held {
                    node,
                    name: object.name,
                    bytes: Some(object.bytes),
                })),
                Err(error) => say(crate::NAME, &error.to_string()),
            }
        }
        listing.add(commit, &state, args.objects.then_some(held));
    }
    listing.print(args)?;
    Ok(0)
}

/// Slows a rebuild down to so many bytes a second.
fn pace(limit: Option<u64>) -> impl FnMut(u64) {
    let begun = Instant::now();
    let mut written = 0u64;
    move |bytes| {
        written += bytes;
        let due = limit.map_or(0.0, |limit| written as f64 / limit.max(1) as f64);
        let due = begun + Duration::from_secs_f64(due);
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
    }
}

/// `write`: with what limit, and whether empty folders are taken.
fn mend(look: &Look, write: Option<(&Mend, bool)>) -> Result<i32, Failure> {
    let command = write.map(|(_, take)| if take { "repair" } else { "scrub" });
    let Members { good: members, empty, damaged } = members(&look.members, command)?;
    let (mut vault, opened) = match write {
        None => Vault::look(members).context("cannot open the vault")?,
        Some(_) => Vault::open(members).context("cannot open the vault")?,
    };
    tell(&opened, write.is_none());
    if write.is_some_and(|(_, take)| take) {
        replace(&mut vault, &opened.missing, &damaged, empty)?;
    }
    let mut pace = pace(write.and_then(|(mend, _)| mend.limit));
    let mended = vault.mend_all(write.is_some(), &mut pace).context("cannot go on")?;
    let states = states(&mut vault).context("cannot look")?;
    tell_mended(look, &mended, &states)?;
    all_sound(&mended, &states, command)
}

/// What can be had of each generation now.
fn states(vault: &mut Vault<Folder>) -> Result<Vec<(u64, State)>, VaultError> {
    let all: Vec<u64> = vault.generations().map(|commit| commit.generation).collect();
    all.into_iter().map(|generation| Ok((generation, vault.state(generation)?))).collect()
}

fn tell_mended(look: &Look, mended: &Mended, states: &[(u64, State)]) -> anyhow::Result<()> {
    let Mended { sound, damaged, repaired, lost, why } = mended;
    if look.json {
        let state = |of: &(u64, State)| json!({"generation": of.0, "state": state_text(&of.1)});
        let all = json!({
            "sound": sound, "damaged": damaged, "repaired": repaired, "lost": lost, "why": why,
            "generations": states.iter().map(state).collect::<Vec<Value>>(),
        });
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
        return Ok(());
    }
    print(&format!(
        "{sound} chunks are sound, {damaged} damaged or missing; {repaired} repaired, {lost} lost\n"
    ));
    Ok(())
}

/// An error if chunks are left that are not sound, or generations of which some nodes lack their
/// part. `command`: the one that was to mend that.
fn all_sound(
    mended: &Mended,
    states: &[(u64, State)],
    command: Option<&str>,
) -> Result<i32, Failure> {
    let left = if command.is_some() { mended.lost } else { mended.damaged };
    let mut wrong = Vec::new();
    if left > 0 {
        let why = mended.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        wrong.push(format!("{left} chunks are not sound{why}"));
    }
    let not_whole = states.iter().filter(|(_, state)| *state != State::Whole);
    wrong
        .extend(not_whole.map(|(generation, state)| {
            format!("generation {generation} is {}", state_text(state))
        }));
    if wrong.is_empty() {
        return Ok(0);
    }
    let lost = states.iter().any(|(_, state)| matches!(state, State::Lost(_)));
    let hint = match command {
        _ if lost => "what is lost comes back only with the folders that are missing, if they are",
        None => "see `eyrie vault scrub`, and `repair` for members that are missing",
        Some("repair") => "give an empty folder for each member that is missing",
        Some(_) => "`eyrie vault repair` with empty folders makes anew what is missing",
    };
    Err(Failure::new(FAILED, anyhow!("{}; {hint}", wrong.join("; "))))
}

/// The key that a file has, if one is named.
pub fn key(path: Option<&Path>) -> anyhow::Result<Option<Key>> {
    let read =
        |path: &Path| Key::read(path).with_context(|| format!("cannot use {}", path.display()));
    path.map(read).transpose()
}

fn export(args: &Export) -> Result<i32, Failure> {
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
    let (files, bytes) = match vault_store::place(&args.to)? {
        Some(place) => export_objects(&mut vault, args, generation, (&nodes, place))?,
        None if args.seal.is_some() || args.limit.is_some() => {
            let text = "--seal and --limit are for s3://BUCKET/PREFIX";
            return Err(Failure::new(USAGE, anyhow!(text)));
        }
        None => export_files(&mut vault, args, generation, &nodes)?,
    };
    if args.look.json {
        let all = json!({"generation": generation, "files": files, "bytes": bytes});
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
    } else {
        let (to, size) = (args.to.display(), units::bytes(bytes));
        print(&format!("generation {generation}: {files} objects, {size}, in {to}\n"));
    }
    Ok(0)
}

/// Brings the objects of nodes to an object store. Returns how many, and their bytes.
fn export_objects(
    vault: &mut Vault<Folder>,
    args: &Export,
    generation: u64,
    (nodes, place): (&[u32], Place),
) -> anyhow::Result<(u64, u64)> {
    let mut objects = Objects::open(place, args.limit, key(args.seal.as_deref())?)?;
    objects.must_be_empty()?;
    let (mut files, mut bytes) = (0, 0);
    for node in nodes {
        for object in vault.manifest(generation, *node).context("cannot export")?.objects {
            let mut file = vault_store::nameless()?;
            vault.read(generation, *node, &object.name, &mut file).context("cannot export")?;
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
) -> anyhow::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for node in nodes {
        let node = *node;
        let folder = args.to.join(format!("node-{node}"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for object in vault.manifest(generation, node).context("cannot export")?.objects {
            bytes += write_object(vault, (generation, node), &object.name, &folder)?;
            files += 1;
        }
    }
    Ok((files, bytes))
}

fn write_object(
    vault: &mut Vault<Folder>,
    (generation, node): (u64, u32),
    name: &str,
    folder: &Path,
) -> anyhow::Result<u64> {
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    let mut to = BufWriter::new(file);
    let done = vault.read(generation, node, name, &mut to).map_err(anyhow::Error::from);
    let done = done.and_then(|bytes| Ok(to.flush().map(|()| bytes)?));
    if done.is_err() {
        // Half a file is of no use; what went wrong is what counts.
        let _ = fs::remove_file(&path);
    }
    done.with_context(|| format!("cannot write {}", path.display()))
}
