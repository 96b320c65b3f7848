//! `eyrie vault verify`, `scrub` and `repair` of folders.

use crate::commands::vault::args::{Look, Mend};
use crate::commands::vault::listing::state_text;
use crate::commands::vault::members::{Members, hold, members, pace, tell};
use anyhow::{Context, anyhow};
use eyrie_terminal::{FAILED, Failure, Progress, print, say};
use eyrie_vault::disk::Folder;
use eyrie_vault::vault::{Mended, State};
use eyrie_vault::{Vault, VaultError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

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
        say(crate::messages::NAME, &format!("{} is node {node} again", path.display()));
    }
    for (node, folder) in missing.into_iter().zip(empty) {
        let place = folder.path().display().to_string();
        vault.replace(node, folder).with_context(|| format!("cannot use {place}"))?;
        say(crate::messages::NAME, &format!("{place} is node {node} now"));
    }
    Ok(())
}

/// `write`: with what limit, and whether empty folders are taken.
pub fn mend(look: &Look, write: Option<(&Mend, bool)>) -> Result<i32, Failure> {
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
    let progress = Progress::bytes(command.unwrap_or("verify"), vault.payload_bytes(), look.quiet);
    let mended = vault.mend_all_told(write.is_some(), &mut pace, &mut |read| progress.add(read));
    let mended = mended.context("cannot go on")?;
    drop(progress);
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
    Err(Failure::new(FAILED, anyhow!(wrong.join("; "))).remedy(hint))
}
