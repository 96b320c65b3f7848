//! `eyrie vault`: looking after vaults in folders (`members`, `mend`, `export`, `import`), and
//! after those of jobs that run (`job`).

pub mod args;
mod export;
mod import;
mod job;
mod listing;
mod members;
mod mend;
mod objects;

use crate::commands::vault::args::{Action, Ls, Vault as Args};
use crate::commands::vault::listing::{Listing, StoredObject};
use crate::commands::vault::members::look;
use anyhow::Context;
use eyrie_terminal::{Failure, say};

pub fn vault(args: &Args) -> Result<i32, Failure> {
    match &args.action {
        Action::Ls(ls) => match job::named(&ls.look.members)? {
            Some(job) => job::ls(&job, ls),
            None => ls_of_folders(ls),
        },
        Action::Verify(look) => match job::named(&look.members)? {
            Some(job) => job::mend(&job, look, false, 0),
            None => mend::mend(look, None),
        },
        Action::Scrub(mend) => match job::named(&mend.look.members)? {
            Some(job) => job::mend(&job, &mend.look, true, mend.limit.unwrap_or(0)),
            None => mend::mend(&mend.look, Some((mend, false))),
        },
        Action::Repair(mend) => mend::mend(&mend.look, Some((mend, true))),
        Action::Export(export) => export::export(export),
        Action::Import(import) => import::import(import),
    }
}

fn ls_of_folders(args: &Ls) -> Result<i32, Failure> {
    let mut vault = look(&args.look.members)?;
    let commits: Vec<_> = vault.generations().cloned().collect();
    let mut listing = Listing::new();
    for commit in &commits {
        let generation = commit.generation;
        let state = vault.state(generation).context("cannot look")?;
        let mut held = Vec::new();
        for node in commit.groups.iter().flatten().map(|s| s.node).filter(|_| args.objects) {
            match vault.manifest(generation, node) {
                Ok(manifest) => held.extend(manifest.objects.into_iter().map(|object| {
                    StoredObject { node, name: object.name, bytes: Some(object.bytes) }
                })),
                Err(error) => say(crate::messages::NAME, &error.to_string()),
            }
        }
        listing.add(commit, &state, args.objects.then_some(held));
    }
    listing.print(args)?;
    Ok(0)
}
