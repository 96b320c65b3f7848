//! Nodes that do not see each other's folders: each process knows its own one only.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;
#[path = "common/world.rs"]
mod world;

use common::{brought_back, content, files, folders, protect};
use eyrie_regions::{RegionsError, Session};
use eyrie_vault::Vault;
use eyrie_vault::disk::Folder;
use eyrie_vault::member::Member;
use eyrie_vault::record::{Commit, Made};
use std::fs;
use std::path::{Path, PathBuf};
use world::apart;

const PARITY: &str = "vault=rs:2+1";

/// The folder of each process; `turn`: how far processes have moved on since.
fn place(home: &Path, nodes: usize, ranks: usize, turn: usize) -> impl Fn(usize) -> PathBuf {
    let home = home.to_path_buf();
    move |rank| home.join(format!("n{}", (rank * nodes / ranks + turn) % nodes))
}

fn options(folder: impl Fn(usize) -> PathBuf, more: &str) -> impl Fn(usize) -> String {
    move |rank| format!("folders={};{more}", folder(rank).display())
}

/// Stores these versions; returns how the last one went at each process.
fn store(
    ranks: usize,
    options: impl Fn(usize) -> String,
    versions: &'static [i64],
) -> Vec<Result<(), String>> {
    let work = move |rank: usize, session: Result<Session, RegionsError>, _: &world::Killer| {
        let mut session = session.map_err(|error| error.to_string())?;
        let mut numbers = content(rank, 0);
        protect(&mut session, 1, &mut numbers);
        let mut last = Ok(());
        for version in versions {
            numbers.copy_from_slice(&content(rank, *version));
            last = session.checkpoint("heat", *version).map_err(|error| error.to_string());
        }
        session.wait().map_err(|error| error.to_string())?;
        last
    };
    apart(ranks, options, work).into_iter().map(Option::unwrap).collect()
}

fn stored(ranks: usize, options: impl Fn(usize) -> String, versions: &'static [i64]) {
    let done = store(ranks, options, versions);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
}

/// The newest version, which comes back as it was stored.
fn restore(ranks: usize, options: impl Fn(usize) -> String) -> Result<Option<i64>, String> {
    let work = |rank: usize, session: Result<Session, RegionsError>, _: &world::Killer| {
        brought_back(rank, session.map_err(|error| error.to_string())?)
    };
    let mut found: Vec<Result<Option<i64>, String>> =
        apart(ranks, options, work).into_iter().map(Option::unwrap).collect();
    assert!(found.iter().all(|f| *f == found[0]), "all agree: {found:?}");
    found.swap_remove(0)
}

fn commits(home: &Path, nodes: usize) -> Vec<Commit> {
    let open = |n: usize| Folder::open(&home.join(format!("n{n}/vault"))).unwrap();
    let members = (0..nodes).map(|n| Member::open(open(n)).unwrap().unwrap()).collect();
    Vault::look(members).unwrap().0.generations().cloned().collect()
}

fn lose(home: &Path, node: usize) {
    fs::remove_dir_all(home.join(format!("n{node}"))).unwrap();
}

#[test]
fn what_was_stored_comes_back_also_to_processes_on_other_nodes() {
    for (nodes, ranks, more) in [
        (3, 3, PARITY),
        (3, 7, PARITY),
        (2, 2, "vault=partner"),
        (5, 5, "vault=rs:3+2"),
        (4, 5, "vault=rs:1+1"),
        (3, 3, "vault=xor:2;mode=async"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let at = |turn| options(place(home.path(), nodes, ranks, turn), more);
        assert_eq!(restore(ranks, at(0)), Ok(None));
        stored(ranks, at(0), &[10, 20, 30]);
        assert_eq!(files(home.path(), "parts/heat."), Vec::<PathBuf>::new());
        assert_eq!(files(home.path(), "files/"), Vec::<PathBuf>::new());
        assert_eq!(commits(home.path(), nodes).len(), 2);
        assert_eq!(restore(ranks, at(0)), Ok(Some(30)), "{more}");
        assert_eq!(restore(ranks, at(1)), Ok(Some(30)), "{more}, moved");
        stored(ranks, at(1), &[40]);
        assert_eq!(restore(ranks, at(0)), Ok(Some(40)), "{more}, moved back");
    }
}

#[test]
fn as_many_lost_folders_as_may_be_are_borne_and_filled_again() {
    let home = tempfile::tempdir().unwrap();
    let at = |turn| options(place(home.path(), 5, 5, turn), "vault=rs:3+2");
    stored(5, at(0), &[10]);
    for (turn, (one, other)) in [(1, 2), (0, 4), (3, 1)].into_iter().enumerate() {
        lose(home.path(), one);
        lose(home.path(), other);
        assert_eq!(restore(5, at(turn)), Ok(Some(10)), "{one} and {other}");
        // One more is protected by all again.
        stored(5, at(turn), &[10]);
    }
}

#[test]
fn a_node_that_is_back_after_another_took_its_place_is_passed_over_and_told() {
    let home = tempfile::tempdir().unwrap();
    let at = || options(place(home.path(), 3, 3, 0), "vault=rs:2+1;keep=1");
    let folder = |name: &str| home.path().join(name);
    stored(3, at(), &[10]);
    fs::rename(folder("n2"), folder("away")).unwrap();
    // An empty folder becomes node 2.
    stored(3, at(), &[20]);
    lose(home.path(), 0);
    fs::rename(folder("away"), folder("n0")).unwrap();
    assert_eq!(restore(3, at()), Ok(Some(20)));
    for done in store(3, at(), &[30]) {
        let why = done.unwrap_err();
        assert!(why.contains("both node 2") && why.contains("that of process 0"), "{why}");
    }
    lose(home.path(), 0);
    stored(3, at(), &[40]);
    assert_eq!(restore(3, at()), Ok(Some(40)));
}

#[test]
fn groups_bear_a_loss_each() {
    let home = tempfile::tempdir().unwrap();
    let at = |turn| options(place(home.path(), 6, 6, turn), PARITY);
    stored(6, at(0), &[10]);
    let groups = &commits(home.path(), 6)[0].groups;
    assert_eq!(groups.len(), 2);
    for group in groups {
        lose(home.path(), group[1].node as usize);
    }
    assert_eq!(restore(6, at(2)), Ok(Some(10)));
}

#[test]
fn domains_are_spread_over_groups() {
    let home = tempfile::tempdir().unwrap();
    let folder = place(home.path(), 6, 6, 0);
    let at = move |rank: usize| {
        format!("folders={};{PARITY};domain=rack{}", folder(rank).display(), rank / 2)
    };
    stored(6, at, &[10]);
    for group in &commits(home.path(), 6)[0].groups {
        let racks: std::collections::BTreeSet<u32> = group.iter().map(|s| s.node / 2).collect();
        assert_eq!(racks.len(), 3);
    }
}

#[test]
fn too_many_lost_folders_leave_what_is_elsewhere_and_nothing_is_made_up() {
    let home = tempfile::tempdir().unwrap();
    let more = format!("{PARITY};every=2;persistent={}", home.path().join("far").display());
    let at = |more| options(place(home.path(), 3, 3, 0), more);
    stored(3, at(&more), &[10, 20, 30]);
    lose(home.path(), 1);
    lose(home.path(), 2);
    // What outlives the nodes is older.
    assert_eq!(restore(3, at(&more)), Ok(Some(20)));
    let why = restore(3, at(PARITY)).unwrap_err();
    assert!(why.contains("that all processes can have"), "{why}");
}

#[test]
fn what_one_process_made_of_folders_that_it_saw_is_read_and_the_other_way_round() {
    let home = tempfile::tempdir().unwrap();
    let seen = folders(home.path(), 3) + ";" + PARITY;
    let own = || options(place(home.path(), 3, 3, 0), PARITY);
    common::store(3, &seen, &[10]);
    assert_eq!(restore(3, own()), Ok(Some(10)));
    stored(3, own(), &[20]);
    lose(home.path(), 0);
    assert_eq!(common::restore(3, &seen), Ok(Some(20)));
    common::store(3, &seen, &[30]);
    lose(home.path(), 2);
    assert_eq!(restore(3, own()), Ok(Some(30)));
}

#[test]
fn parity_is_updated_where_little_changed_and_bears_a_lost_folder() {
    let home = tempfile::tempdir().unwrap();
    let cells = |rank: usize, version: i64| {
        let mut cells: Vec<f64> = (0..100_000).map(|n| f64::from(n) * 7.0 + rank as f64).collect();
        cells[50_000] = version as f64;
        cells
    };
    let at = |turn| options(place(home.path(), 3, 3, turn), PARITY);
    apart(3, at(0), move |rank, session, _| {
        let (mut session, mut numbers) = (session.unwrap(), cells(rank, 0));
        protect(&mut session, 1, &mut numbers);
        for version in 1..=3 {
            numbers.copy_from_slice(&cells(rank, version));
            session.checkpoint("heat", version).unwrap();
        }
    });
    let made: Vec<Made> = commits(home.path(), 3).iter().map(|commit| commit.made).collect();
    let all = |made: &Made| matches!(made, Made::Updated { bytes, .. } if *bytes < 1_500_000);
    assert!(made.len() == 2 && made.iter().all(all), "{made:?}");
    lose(home.path(), 1);
    apart(3, at(2), move |rank, session, _| {
        let (mut session, mut found) = (session.unwrap(), vec![0.0; 100_000]);
        protect(&mut session, 1, &mut found);
        assert_eq!(session.newest("heat", i64::MAX).unwrap(), Some(3));
        session.restore("heat", 3).unwrap();
        assert!(found == cells(rank, 3), "rank {rank}");
    });
}

#[test]
fn a_member_that_cannot_write_fails_the_parity_at_all_and_the_parts_stay() {
    let home = tempfile::tempdir().unwrap();
    let at = |turn| options(place(home.path(), 3, 3, turn), PARITY);
    let record = home.path().join("n1/vault/vault");
    let path = record.clone();
    let done = apart(3, at(0), move |rank, session, _| {
        let (mut session, mut numbers) = (session.unwrap(), content(rank, 10));
        protect(&mut session, 1, &mut numbers);
        session.checkpoint("heat", 10).unwrap();
        numbers.copy_from_slice(&content(rank, 20));
        let kept = fs::read(&path).unwrap();
        if rank == 1 {
            // It cannot be read from here on, and so not be trusted with more.
            fs::write(&path, b"no record").unwrap();
        }
        (kept, session.checkpoint("heat", 20).map_err(|error| error.to_string()))
    });
    let (kept, done): (Vec<_>, Vec<_>) = done.into_iter().map(Option::unwrap).unzip();
    let told = |r: &Result<(), String>| r.as_ref().unwrap_err().contains("on its nodes only");
    assert!(done.iter().all(told), "{done:?}");
    fs::write(&record, &kept[1]).unwrap();
    // Its part of 20 lies in its folder, where another process is now.
    assert_eq!(files(home.path(), "parts/heat.20.").len(), 3);
    assert_eq!(restore(3, at(1)), Ok(Some(20)));
    stored(3, at(1), &[30]);
    assert_eq!(files(home.path(), "parts/heat.").len(), 0);
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let home = tempfile::tempdir().unwrap();
    let why =
        |options: Box<dyn Fn(usize) -> String>| store(3, options, &[1])[0].clone().unwrap_err();
    let one = home.path().join("n0");
    let same = Box::new(move |_| format!("folders={};{PARITY}", one.display()));
    assert!(why(same).contains("rs:2+1 needs 2 folders, and there are 1"));
    stored(3, options(place(home.path(), 3, 3, 0), PARITY), &[1]);
    let other = Box::new(options(place(home.path(), 3, 3, 0), "vault=partner"));
    assert!(why(other).contains("is rs:2+1 over 3 nodes, and partner over 3 is wanted"));
    let more = store(4, options(place(home.path(), 4, 4, 0), PARITY), &[1]);
    let told = more[0].clone().unwrap_err();
    assert!(told.contains("over 3 nodes, and rs:2+1 over 4 is wanted"), "{told}");
}

/// As many files as the system lets have: those of processes that were killed stay open.
fn many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both are told of a record that is there.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(1 << 16);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

/// Stores 10; is killed in 20 at this call of a process to the others, if there are so many; loses
/// a folder, if it is to; goes on with what there is. Returns whether there were so many.
fn killed_at(call: u64, loses: bool) -> bool {
    let home = tempfile::tempdir().unwrap();
    let more = if loses { "vault=rs:2+1;keep=1" } else { PARITY };
    let at = |turn| options(place(home.path(), 3, 3, turn), more);
    let victim = call as usize % 3;
    stored(3, at(0), &[10]);
    let done = apart(3, at(0), move |rank, session, killer| {
        let (mut session, mut numbers) = (session.unwrap(), content(rank, 20));
        protect(&mut session, 1, &mut numbers);
        if rank == victim {
            killer.at(call);
        }
        session.checkpoint("heat", 20).unwrap();
    });
    let went_well = done.iter().any(Option::is_some);
    if loses {
        lose(home.path(), (call as usize / 3) % 3);
    }
    let found = restore(3, at(call as usize % 2));
    // What is reported as stored at any process is there.
    let wanted = |found: &Option<i64>| *found == Some(20) || (!went_well && *found == Some(10));
    assert!(found.as_ref().is_ok_and(wanted), "call {call}: {found:?}");
    stored(3, at(call as usize % 2), &[30]);
    assert_eq!(files(home.path(), "parts/heat."), Vec::<PathBuf>::new(), "call {call}");
    assert_eq!(restore(3, at(0)), Ok(Some(30)), "call {call}");
    done.iter().any(Option::is_none)
}

#[test]
fn killed_at_any_call_to_the_others_what_is_there_is_whole() {
    many_files();
    let mut call = 1;
    while killed_at(call, call % 2 == 1) {
        call += 1;
    }
    assert!(call > 30, "{call}");
}
