//! Nodes that do not see each other's folders, and processes that are killed and repeat alone what
//! they did, as under `eyrie run --ft logged`: with their folder, with none, and on another node.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;
#[path = "common/repeating.rs"]
mod repeating;
#[path = "common/world.rs"]
mod world;

use common::{brought_back, content, files, protect};
use eyrie_regions::{RegionsError, Session};
use eyrie_vault::Vault;
use eyrie_vault::disk::Folder;
use eyrie_vault::member::Member;
use repeating::{Own, repeated};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Two of the processes share a folder.
const RANKS: usize = 4;
const NODES: usize = 3;
const VERSIONS: [i64; 3] = [10, 20, 30];

/// What happens to the folder of a process that is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Stays,
    /// The node is lost, and the process on one that has no such folder yet.
    Lost,
    /// The process is on a node that has one of its own.
    Other,
}

fn folder(home: &Path, rank: usize) -> PathBuf {
    home.join(format!("n{}", rank * NODES / RANKS))
}

fn options(home: &Path) -> Vec<String> {
    let option = |rank| format!("folders={};vault=rs:2+1", folder(home, rank).display());
    (0..RANKS).map(option).collect()
}

/// How each checkpoint went; the last one is taken when nobody is killed any more.
fn work(own: &Own, session: Result<Session, RegionsError>) -> Vec<Result<(), String>> {
    let mut session = session.unwrap();
    let mut numbers = content(own.rank, 0);
    protect(&mut session, 1, &mut numbers);
    assert_eq!(session.newest("heat", i64::MAX).unwrap(), None);
    let mut done = Vec::new();
    for version in VERSIONS.into_iter().chain([40]) {
        if version == 40 {
            own.lives();
        }
        numbers.copy_from_slice(&content(own.rank, version));
        done.push(session.checkpoint("heat", version).map_err(|error| error.to_string()));
    }
    session.wait().unwrap();
    done
}

/// How many generations there are; all of each can be read from these folders.
fn whole(home: &Path, folders: &[usize], case: &str) -> usize {
    let open = |n: &usize| Folder::open(&home.join(format!("n{n}/vault"))).unwrap();
    let members: Vec<_> = folders.iter().map(|n| Member::open(open(n)).unwrap().unwrap()).collect();
    let nodes: Vec<u32> = members.iter().map(Member::node).collect();
    let (mut vault, opened) = Vault::look(members).unwrap();
    assert!(opened.unusable.is_empty() && opened.damaged.is_empty());
    let generations: Vec<u64> = vault.generations().map(|c| c.generation).collect();
    for generation in &generations {
        for node in &nodes {
            let manifest = vault.manifest(*generation, *node);
            for object in manifest.unwrap_or_else(|why| panic!("{case}: {why}")).objects {
                vault.read(*generation, *node, &object.name, &mut std::io::sink()).unwrap();
            }
        }
    }
    generations.len()
}

fn restore(home: &Path) -> Vec<Option<Result<Option<i64>, String>>> {
    let options = options(home);
    world::apart(
        RANKS,
        move |rank| options[rank].clone(),
        |rank, session, _| brought_back(rank, session.map_err(|error| error.to_string())?),
    )
}

/// Kills a process at these calls. Returns whether there were so many.
fn killed_at(calls: &[u64], victim: usize, fate: Fate) -> bool {
    let home = tempfile::tempdir().unwrap();
    let (own, other) = (folder(home.path(), victim), home.path().join("n1"));
    let mut fates = vec![fate];
    let lost = || match fates.pop() {
        None | Some(Fate::Stays) => {}
        Some(Fate::Lost) => fs::remove_dir_all(&own).unwrap_or_default(),
        Some(Fate::Other) => {
            fs::remove_dir_all(&own).unwrap_or_default();
            fs::create_dir_all(&other).unwrap();
            symlink(&other, &own).unwrap();
        }
    };
    let case = format!("process {victim} at {calls:?}, {fate:?}");
    let (done, killed) = repeated(&options(home.path()), (victim, calls), lost, work);
    for of in &done {
        // Where it was killed while parity was made, and is elsewhere, that one may come to
        // nothing; all say so.
        let bad = of.iter().filter(|done| done.is_err()).count();
        assert!(bad <= usize::from(fate == Fate::Other), "{case}: {done:?}");
        assert_eq!(of.last(), Some(&Ok(())), "{case}: {done:?}");
        for (one, all) in of.iter().zip(&done[0]) {
            assert_eq!(one.is_ok(), all.is_ok(), "{case}: {done:?}");
        }
    }
    let folders: &[usize] = if fate == Fate::Other { &[0, 1] } else { &[0, 1, 2] };
    let generations = whole(home.path(), folders, &case);
    assert!(generations == 2 || fate == Fate::Other && generations >= 1, "{case}: {generations}");
    assert_eq!(files(home.path(), "files/"), Vec::<PathBuf>::new(), "{case}");
    let left = files(home.path(), "parts/heat.40");
    assert_eq!(left, Vec::<PathBuf>::new(), "{case}");
    assert!(restore(home.path()).iter().all(|f| *f == Some(Ok(Some(40)))), "{case}");
    killed == calls.len()
}

#[test]
fn nobody_is_killed() {
    killed_at(&[], 0, Fate::Stays);
}

#[test]
fn killed_at_any_call_a_process_repeats_what_it_did() {
    let mut call = 1;
    while killed_at(&[call], call as usize % RANKS, Fate::Stays) {
        call += 5;
    }
    assert!(call > 200, "{call}");
}

#[test]
fn killed_and_its_folder_lost() {
    let mut call = 2;
    // The folder of process 0 and 1 is lost to both; the others have theirs for themselves.
    while killed_at(&[call], 2 + call as usize % 2, Fate::Lost) {
        call += 13;
    }
    assert!(call > 200, "{call}");
}

#[test]
fn killed_and_its_folder_lost_where_nobody_makes_parity() {
    for call in (2..60).step_by(3) {
        let home = tempfile::tempdir().unwrap();
        let own = folder(home.path(), 2);
        let option = |rank| format!("folders={};vault=local", folder(home.path(), rank).display());
        let options: Vec<String> = (0..RANKS).map(option).collect();
        let lost = || fs::remove_dir_all(&own).unwrap_or_default();
        let calls: &[u64] = &[call];
        let (done, _) = repeated(&options, (2, calls), lost, work);
        assert!(done.iter().flatten().all(Result::is_ok), "at {call}: {done:?}");
    }
}

#[test]
fn killed_and_on_a_node_that_has_a_folder_of_its_own() {
    let mut call = 3;
    while killed_at(&[call], 3, Fate::Other) {
        call += 13;
    }
    assert!(call > 200, "{call}");
}

#[test]
fn killed_again_while_it_repeats() {
    for call in (50..350).step_by(50) {
        killed_at(&[call, call / 2, call + 5], call as usize % RANKS, Fate::Stays);
        killed_at(&[call, call - 7, call + 40], 3, Fate::Lost);
    }
}
