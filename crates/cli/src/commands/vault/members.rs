//! The folders that a vault is in, as they are named on the command line.

use anyhow::{Context, anyhow};
use eyrie_terminal::say;
use eyrie_vault::disk::{Disk, Folder};
use eyrie_vault::member::{Member, MemberError};
use eyrie_vault::vault::Opened;
use eyrie_vault::{LockError, Vault, files};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Takes a folder for this command alone.
pub fn hold(folder: &mut Folder, command: &str) -> anyhow::Result<()> {
    let held = folder.hold(&format!("`eyrie vault {command}`"));
    held.map_err(|error| match error {
        LockError::Held { .. } => anyhow!(
            "{error}: nothing was changed. Try again when that has ended; `eyrie vault ls`, \
             `verify` and `export` only read, and can be used meanwhile"
        ),
        LockError::Io { .. } => error.into(),
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
        say(crate::messages::NAME, &counts);
        members.damaged.push(path.clone());
    }
    Ok(members)
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
    say(crate::messages::NAME, &text);
}

pub fn look(folders: &[PathBuf]) -> anyhow::Result<Vault<Folder>> {
    let (vault, opened) = Vault::look(members(folders, None)?.good)?;
    tell(&opened, true);
    Ok(vault)
}

/// Slows a rebuild down to so many bytes a second.
pub fn pace(limit: Option<u64>) -> impl FnMut(u64) {
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
