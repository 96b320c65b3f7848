//! `eyrie vault import`: files as a generation, in the way that takes least.

use crate::commands::vault::args::Import;
use crate::commands::vault::members::{hold, members, tell};
use crate::commands::vault::objects::{self, Fetched, Objects};
use crate::options::key_file::key;
use anyhow::{Context, anyhow};
use eyrie_terminal::{Counted, Failure, Progress, USAGE, print, say, units};
use eyrie_vault::cost::Measured;
use eyrie_vault::disk::{self, Folder};
use eyrie_vault::layout::{Place, lay_out};
use eyrie_vault::record::Commit;
use eyrie_vault::strategy::Strategy;
use eyrie_vault::vault::Draft;
use eyrie_vault::{Scheme, Vault};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn create(scheme: Scheme, folders: &[PathBuf]) -> anyhow::Result<Vault<Folder>> {
    let mut disks = Vec::new();
    for path in folders {
        let disk = Folder::create(path);
        let mut disk = disk.with_context(|| format!("cannot make {}", path.display()))?;
        hold(&mut disk, "import")?;
        if !disk.is_empty()? {
            return Err(anyhow!("{} is not empty", path.display()));
        }
        disks.push(disk);
    }
    let places = (0..).take(disks.len()).map(Place::of).collect();
    Ok(Vault::create(disk::random()?, scheme, places, disks)?)
}

/// The nodes that `from` has a folder of, and the files in it. Anything else there would silently
/// not be stored, and is refused.
fn listed(from: &Path) -> anyhow::Result<BTreeMap<u32, Vec<(String, PathBuf)>>> {
    let shown = from.display();
    let mut nodes = BTreeMap::new();
    for (name, path) in entries(from)? {
        let node = name.strip_prefix("node-").and_then(|number| number.parse::<u32>().ok());
        let node = node.filter(|node| name == format!("node-{node}") && path.is_dir());
        let node = node.ok_or_else(|| {
            anyhow!("{shown}/{name} is no folder of a node: files are {shown}/node-N/OBJECT")
        })?;
        let files = entries(&path)?;
        if let Some((name, _)) = files.iter().find(|(_, path)| !path.is_file()) {
            return Err(anyhow!("{shown}/node-{node}/{name} is no file"));
        }
        nodes.insert(node, files);
    }
    if nodes.values().all(Vec::is_empty) {
        return Err(anyhow!(
            "there is nothing to store: {shown} has no file (they are {shown}/node-N/OBJECT)"
        ));
    }
    Ok(nodes)
}

/// What is in a folder, by name.
fn entries(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(folder).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    let mut entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(entries.iter().map(|entry| (named(entry), entry.path())).collect())
}

/// A file that is to be stored.
enum Source {
    Path(PathBuf),
    Fetched(File),
}

impl Source {
    fn open(&self) -> anyhow::Result<File> {
        Ok(match self {
            Source::Path(path) => eyrie_image::open_plain(path)?,
            Source::Fetched(file) => {
                let mut file = file.try_clone()?;
                file.rewind()?;
                file
            }
        })
    }
}

/// What is to be stored, by node and name.
type Sources = BTreeMap<(u32, String), Source>;

/// What there is to store: looked at before anything is made or changed. Never empty.
fn sources(args: &Import) -> Result<Sources, Failure> {
    let mut sources = Sources::new();
    if let Some(place) = objects::place(&args.from)? {
        let fetched = Objects::open(place, None, key(args.seal.as_deref())?)?.fetch()?;
        for Fetched { node, name, file } in fetched {
            sources.insert((node, name), Source::Fetched(file));
        }
        if sources.is_empty() {
            return Err(anyhow!("there is nothing to store in {}", args.from.display()).into());
        }
    } else if args.seal.is_some() {
        let text = "--seal is for an object store (s3://BUCKET/PREFIX)";
        return Err(Failure::new(USAGE, anyhow!(text)));
    } else {
        for (node, files) in listed(&args.from)? {
            let files = files.into_iter();
            sources.extend(files.map(|(name, path)| ((node, name), Source::Path(path))));
        }
    }
    if let Some(scheme) = args.vault {
        let taken = |path: &&PathBuf| fs::read_dir(path).is_ok_and(|mut all| all.next().is_some());
        if let Some(path) = args.look.members.iter().find(taken) {
            return Err(anyhow!("{} is not empty", path.display()).into());
        }
        let places: Vec<Place> = (0..).take(args.look.members.len()).map(Place::of).collect();
        lay_out(scheme, &places).context("cannot make a vault")?;
        let members = u32::try_from(args.look.members.len()).unwrap_or(u32::MAX);
        known_nodes(&sources, |node| node < members)?;
    }
    Ok(sources)
}

/// Refuses files of nodes that the vault does not have.
fn known_nodes(sources: &Sources, has: impl Fn(u32) -> bool) -> anyhow::Result<()> {
    match sources.keys().find(|(node, _)| !has(*node)) {
        None => Ok(()),
        Some((node, name)) => {
            Err(anyhow!("{name} is of node {node}, which the vault does not have, or not here"))
        }
    }
}

/// With `--keep` older generations go. So nodes that had objects must not be left out by mistake: a
/// folder that is there and empty says that a node has none now.
fn all_nodes(
    args: &Import,
    vault: &mut Vault<Folder>,
    sources: &Sources,
    newest: Option<u64>,
) -> anyhow::Result<()> {
    let Some(newest) = newest.filter(|_| args.keep.is_some()) else { return Ok(()) };
    let nodes: Vec<u32> = vault.nodes().collect();
    for node in nodes {
        let named = args.from.join(format!("node-{node}")).is_dir();
        if named || sources.keys().any(|(of, _)| *of == node) {
            continue;
        }
        let had = vault.manifest(newest, node).is_ok_and(|manifest| !manifest.objects.is_empty());
        if had {
            return Err(anyhow!(
                "node {node} has objects in generation {newest}, and {} has none of it: with \
                 --keep they would be dropped. If it has none now, make an empty folder \
                 node-{node} there; else import without --keep",
                args.from.display()
            ));
        }
    }
    Ok(())
}

/// How much is to be read.
fn bytes_of(sources: &Sources) -> anyhow::Result<u64> {
    sources.values().map(|source| Ok(source.open()?.metadata()?.len())).sum()
}

type Drafts = BTreeMap<u32, Vec<Draft>>;

fn drafts(
    vault: &mut Vault<Folder>,
    sources: &Sources,
    base: Option<u64>,
    progress: &Progress,
) -> anyhow::Result<Drafts> {
    let mut drafts: Drafts = vault.nodes().map(|node| (node, Vec::new())).collect();
    for ((node, name), source) in sources {
        let bad = || format!("cannot read {name} of node {node}");
        let file = source.open().with_context(bad)?;
        let mut file = Counted::new(file, progress);
        let draft = vault.draft(base, (*node, name), &mut file).with_context(bad)?;
        drafts.entry(*node).or_default().push(draft);
    }
    Ok(drafts)
}

fn open(args: &Import) -> anyhow::Result<Vault<Folder>> {
    let mut vault = match args.vault {
        Some(scheme) => create(scheme, &args.look.members).context("cannot make a vault")?,
        None => {
            let (vault, opened) = Vault::open(members(&args.look.members, Some("import"))?.good)
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
fn begin(vault: &mut Vault<Folder>, way: Strategy, base: Option<u64>) -> anyhow::Result<Strategy> {
    match vault.begin_as(way, base) {
        Ok(_) => Ok(way),
        Err(error) if way == Strategy::Update => {
            say(crate::messages::NAME, &format!("parity is made anew: {error}"));
            vault.begin().context("cannot store")?;
            Ok(Strategy::Whole)
        }
        Err(error) => Err(error).context("cannot store"),
    }
}

pub fn import(args: &Import) -> Result<i32, Failure> {
    let sources = sources(args)?;
    let mut vault = open(args)?;
    let newest = vault.generations().next_back().map(|commit| commit.generation);
    let nodes: BTreeSet<u32> = vault.nodes().collect();
    known_nodes(&sources, |node| nodes.contains(&node))?;
    all_nodes(args, &mut vault, &sources, newest)?;
    let base = newest.filter(|_| args.by != Some(Strategy::Whole));
    let progress = Progress::bytes("reading", bytes_of(&sources)?, args.look.quiet);
    let (base, drafts) = match drafts(&mut vault, &sources, base, &progress) {
        // What cannot be read, as without its key, is nothing to build on.
        Err(error) if base.is_some() => {
            say(crate::messages::NAME, &format!("nothing is built on what is there: {error:#}"));
            progress.then("reading");
            (None, drafts(&mut vault, &sources, None, &progress)?)
        }
        made => (base, made?),
    };
    let choice = vault.weigh(base, &drafts, most_needed(args)).context("cannot look")?;
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
    progress.then("storing");
    for (node, drafts) in &drafts {
        for draft in drafts {
            let bad = || format!("cannot store {} of node {node}", draft.name);
            let source = sources.get(&(*node, draft.name.clone())).with_context(bad)?;
            let file = source.open().with_context(bad)?;
            let mut content = |at: u64, to: &mut [u8]| file.read_exact_at(to, at);
            vault.add_draft(*node, way, draft, &mut content).with_context(bad)?;
            (count, bytes) = (count + 1, bytes + draft.bytes);
            progress.set(bytes);
        }
    }
    progress.tell("making it whole");
    let generation = vault.commit().context("cannot store")?;
    let commit = vault.generations().next_back().cloned();
    let why = commit.map_or(String::new(), |commit| commit.why);
    let sent = vault.sent_bytes();
    let kept = args.keep.map(|keep| keep_newest(&mut vault, generation, keep)).transpose()?;
    drop(progress);
    if args.look.json {
        let (whole, dropped) = kept.map(|kept| (kept.whole, kept.dropped)).unwrap_or_default();
        let all = json!({
            "generation": generation, "files": count, "bytes": bytes, "way": way.to_string(),
            "sent_bytes": sent, "why": why, "whole": whole, "dropped": dropped,
        });
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
        return Ok(0);
    }
    let (size, sent) = (units::bytes(bytes), units::bytes(sent));
    print(&format!("generation {generation}: {count} objects, {size}; {sent} between nodes\n"));
    print(&format!("{why}\n"));
    if let Some(whole) = kept.as_ref().and_then(|kept| kept.whole) {
        print(&format!("generation {whole} is the same, whole\n"));
    }
    if let Some(kept) = kept.filter(|kept| !kept.dropped.is_empty()) {
        print(&format!("generations {:?} are dropped\n", kept.dropped));
    }
    Ok(0)
}

/// To how many generations a new one may refer: one that needs more than are kept would have to be
/// stored twice.
fn most_needed(args: &Import) -> usize {
    let kept = args.keep.filter(|_| args.by.is_none());
    let others = kept.map(|keep| usize::try_from(keep - 1).unwrap_or(usize::MAX));
    others.map_or(args.chain, |others| args.chain.min(others))
}

/// What was done so that only the newest generations stay.
struct Kept {
    /// The newest one, stored whole.
    whole: Option<u64>,
    dropped: Vec<u64>,
}

/// Drops all but so many of the newest generations, and what these refer to.
fn keep_newest(vault: &mut Vault<Folder>, newest: u64, keep: u64) -> anyhow::Result<Kept> {
    let all = vault.generations().rev().map(|commit| commit.generation);
    let mut kept: BTreeSet<u64> = all.take(usize::try_from(keep).unwrap_or(usize::MAX)).collect();
    let needs = vault.generations().next_back().map(Commit::needs).unwrap_or_default();
    let mut whole = None;
    if needs.iter().any(|needed| !kept.contains(needed)) {
        match vault.consolidate(newest) {
            Ok(generation) => {
                kept.remove(&newest);
                kept.insert(generation);
                whole = Some(generation);
            }
            // It is stored all the same.
            Err(error) => say(
                crate::messages::NAME,
                &format!(
                    "what generation {newest} refers to stays, as it is not made whole: {error}"
                ),
            ),
        }
    }
    let dropped = vault.collect(&kept).context("it is stored, but older ones are not dropped")?;
    Ok(Kept { whole, dropped })
}
