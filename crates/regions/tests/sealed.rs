//! Encrypted checkpoints: nothing of them is on any disk in the clear, and without the key, or with
//! another one, nothing comes back.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;
#[path = "common/repeating.rs"]
mod repeating;
#[path = "common/world.rs"]
mod world;

use common::{brought_back, content, files, folders, opened, protect, restore, store};
use eyrie_regions::{RegionsError, Session};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A key in a file outside of the nodes' folders.
fn key(home: &Path, byte: u8) -> PathBuf {
    let path = home.join(format!("key.{byte}"));
    fs::write(&path, [byte; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn with(options: &str, key: &Path) -> String {
    format!("{options};key={}", key.display())
}

/// Files that have some numbers of a process as they are in memory.
fn in_the_clear(home: &Path, rank: usize, version: i64) -> Vec<PathBuf> {
    let numbers = content(rank, version);
    let word: Vec<u8> = numbers[5000..5002].iter().flat_map(|n| n.to_ne_bytes()).collect();
    let has = |path: &PathBuf| fs::read(path).unwrap().windows(word.len()).any(|w| w == word);
    files(home, "").into_iter().filter(has).collect()
}

#[test]
fn what_was_stored_comes_back_with_its_key_only_and_is_nowhere_in_the_clear() {
    for more in ["", ";vault=rs:2+1", ";vault=partner;mode=async"] {
        let home = tempfile::tempdir().unwrap();
        let far = home.path().join("far");
        let plain = format!("{}{more};persistent={}", folders(home.path(), 3), far.display());
        let (own, other) = (key(home.path(), 1), key(home.path(), 2));
        store(3, &plain, &[5]);
        assert!(!in_the_clear(home.path(), 1, 5).is_empty(), "it would be found");
        for folder in ["n0", "n1", "n2", "far"] {
            fs::remove_dir_all(home.path().join(folder)).unwrap();
        }
        store(3, &with(&plain, &own), &[10, 20]);
        for (rank, version) in [(0, 10), (1, 20), (2, 20)] {
            let found = in_the_clear(home.path(), rank, version);
            assert_eq!(found, Vec::<PathBuf>::new(), "{more}");
        }
        let nothing = |options: &str| {
            let why = restore(3, options).unwrap_err();
            assert!(why.contains("no checkpoint heat that all processes can have"), "{why}");
        };
        nothing(&plain);
        nothing(&with(&plain, &other));
        assert_eq!(restore(3, &with(&plain, &own)), Ok(Some(20)), "{more}");
        if more.contains("vault") {
            fs::remove_dir_all(home.path().join("n1")).unwrap();
            assert_eq!(restore(3, &with(&plain, &own)), Ok(Some(20)), "{more}, a folder lost");
        }
        store(3, &with(&plain, &own), &[30]);
        for node in ["n0", "n1", "n2"] {
            fs::remove_dir_all(home.path().join(node)).unwrap();
        }
        nothing(&with(&plain, &other));
        assert_eq!(restore(3, &with(&plain, &own)), Ok(Some(30)), "{more}, the second level");
    }
}

#[test]
fn a_bit_that_somebody_changed_is_answered_by_the_checkpoint_before() {
    let home = tempfile::tempdir().unwrap();
    let options = with(&folders(home.path(), 2), &key(home.path(), 1));
    store(2, &options, &[10, 20]);
    let path = &files(home.path(), "n0/parts/heat.20.")[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[70_000] ^= 4;
    fs::write(path, &bytes).unwrap();
    assert_eq!(restore(2, &options), Ok(Some(10)));
    // One that is not encrypted is none, whoever put it there.
    let plain = tempfile::tempdir().unwrap();
    store(2, &folders(plain.path(), 2), &[10, 20]);
    fs::copy(&files(plain.path(), "n0/parts/heat.20.")[0], path).unwrap();
    assert_eq!(restore(2, &options), Ok(Some(10)));
}

#[test]
fn a_key_that_is_missing_none_or_everybodys_is_refused_at_all_processes() {
    let home = tempfile::tempdir().unwrap();
    let (short, open) = (home.path().join("short"), key(home.path(), 1));
    fs::write(&short, [1; 31]).unwrap();
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    for (key, word) in [
        (home.path().join("missing"), "No such file"),
        (short, "there must be 32 bytes"),
        (open, "chmod 600"),
    ] {
        let options = with(&folders(home.path(), 2), &key);
        let why = opened(2, &options, |_, session| session.err().map(|e| e.to_string()));
        for why in why {
            let why = why.unwrap();
            let named = why.contains("cannot use the key in") && why.contains(word);
            assert!(named, "{why}");
        }
        assert!(files(home.path(), "n0/").is_empty(), "before anything is made");
    }
}

#[test]
fn processes_with_different_keys_do_not_begin() {
    let home = tempfile::tempdir().unwrap();
    let keys = [key(home.path(), 1), key(home.path(), 2)];
    let folder = |rank: usize| format!("folders={}/n{rank};vault=partner", home.path().display());
    let options: Vec<String> = (0..2).map(|rank| with(&folder(rank), &keys[rank])).collect();
    let work = |_: usize, session: Result<Session, RegionsError>, _: &world::Killer| {
        session.err().map(|error| error.to_string())
    };
    for why in world::apart(2, move |rank| options[rank].clone(), work) {
        let why = why.unwrap().unwrap();
        assert!(why.contains("different options, or keys"), "{why}");
    }
}

/// Where nodes do not see each other's folders: each process has its own, and is on another node
/// when it comes back.
#[test]
fn nodes_on_their_own_have_it_encrypted_too_and_bear_the_loss_of_two() {
    let home = tempfile::tempdir().unwrap();
    let own = key(home.path(), 1);
    let at = |turn: usize, key: &Path| {
        let (home, key) = (home.path().to_path_buf(), key.to_path_buf());
        move |rank: usize| {
            let folder = home.join(format!("n{}", (rank + turn) % 4));
            with(&format!("folders={};vault=rs:2+2", folder.display()), &key)
        }
    };
    world::apart(4, at(0, &own), |rank, session, _| {
        let mut session = session.unwrap();
        let mut numbers = content(rank, 0);
        protect(&mut session, 1, &mut numbers);
        for version in [10, 20, 30] {
            numbers.copy_from_slice(&content(rank, version));
            session.checkpoint("heat", version).unwrap();
        }
    });
    for rank in 0..4 {
        assert_eq!(in_the_clear(home.path(), rank, 30), Vec::<PathBuf>::new());
    }
    let back = |turn, key: &Path| {
        world::apart(4, at(turn, key), |rank, session, _| brought_back(rank, session.unwrap()))
    };
    for lost in ["n3", "n0"] {
        fs::remove_dir_all(home.path().join(lost)).unwrap();
    }
    assert!(back(1, &own).iter().all(|found| *found == Some(Ok(Some(30)))));
    for found in back(1, &key(home.path(), 2)) {
        assert!(found.unwrap().unwrap_err().contains("that all processes can have"));
    }
}

/// A process that repeats itself alone tells the others the same of what it has encrypted.
#[test]
fn killed_at_any_call_a_process_comes_to_the_same_bytes() {
    let (mut call, mut killed) = (1, true);
    while killed {
        let home = tempfile::tempdir().unwrap();
        let own = key(home.path(), 1);
        let folder = |rank: usize| home.path().join(format!("n{}", rank * 3 / 4));
        let option = |rank| format!("folders={};vault=rs:2+1", folder(rank).display());
        let options: Vec<String> = (0..4).map(|rank| with(&option(rank), &own)).collect();
        let victim = call as usize % 4;
        let lost = || {
            if victim > 1 {
                fs::remove_dir_all(folder(victim)).unwrap_or_default();
            }
        };
        let calls: &[u64] = &[call];
        let (done, count) = repeating::repeated(&options, (victim, calls), lost, |own, session| {
            let mut session = session.unwrap();
            let mut numbers = content(own.rank, 0);
            protect(&mut session, 1, &mut numbers);
            let mut done = Vec::new();
            for version in [10, 20] {
                numbers.copy_from_slice(&content(own.rank, version));
                done.push(session.checkpoint("heat", version).map_err(|e| e.to_string()));
            }
            done
        });
        assert!(done.iter().flatten().all(Result::is_ok), "{victim} at {call}: {done:?}");
        let back = world::apart(
            4,
            move |rank| options[rank].clone(),
            |rank, session, _| brought_back(rank, session.unwrap()),
        );
        assert!(back.iter().all(|f| *f == Some(Ok(Some(20)))), "{victim} at {call}: {back:?}");
        killed = count == 1;
        call += 11;
    }
    assert!(call > 100, "{call}");
}
