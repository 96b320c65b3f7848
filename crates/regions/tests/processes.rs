//! Checkpoints of several processes: what comes back, after which losses, and what stays on disk.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{content, files, folders, opened, protect, restore, run, store};
use eyrie_regions::RegionsError;
use eyrie_regions::session::Which;
use eyrie_vault::Vault;
use eyrie_vault::disk::Folder;
use eyrie_vault::member::Member;
use eyrie_vault::record::Made;
use std::fs;

const PLAIN: &str = "";
const PARITY: &str = ";vault=rs:2+1";

#[test]
fn what_was_stored_comes_back_with_and_without_parity() {
    for (more, ranks) in [(PLAIN, 1), (PLAIN, 4), (PARITY, 3), (PARITY, 5), (";vault=partner", 2)] {
        let home = tempfile::tempdir().unwrap();
        let options = folders(home.path(), 3) + more;
        assert_eq!(restore(ranks, &options), Ok(None));
        store(ranks, &options, &[10, 20, 30]);
        assert_eq!(restore(ranks, &options), Ok(Some(30)), "{options}");
        // It goes on from there, more than once.
        store(ranks, &options, &[40]);
        assert_eq!(restore(ranks, &options), Ok(Some(40)), "{options}");
    }
}

#[test]
fn as_many_are_kept_as_are_wanted() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 2);
    store(2, &options, &[1, 2, 3, 4]);
    assert_eq!(files(home.path(), "parts/heat.").len(), 4);
    store(2, &(options.clone() + ";keep=1"), &[5]);
    let left = files(home.path(), "parts/heat.");
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|path| path.to_string_lossy().contains("heat.5.")), "{left:?}");
    assert_eq!(files(home.path(), ".part").iter().filter(|p| p.ends_with(".part")).count(), 0);
}

#[test]
fn parts_are_in_the_vault_only_and_old_generations_go() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY;
    store(3, &options, &[1, 2, 3, 4]);
    assert_eq!(files(home.path(), "parts/heat."), Vec::<std::path::PathBuf>::new());
    assert_eq!(files(home.path(), ".commit").len(), 2 * 3);
}

/// How the parity of the generations in the vault came to be, oldest first.
fn made(home: &std::path::Path) -> Vec<Made> {
    let open = |n: u32| Folder::open(&home.join(format!("n{n}/vault"))).unwrap();
    let members = (0..3).map(|n| Member::open(open(n)).unwrap().unwrap()).collect();
    let vault = Vault::look(members).unwrap().0;
    vault.generations().map(|commit| commit.made).collect()
}

#[test]
fn parity_is_updated_where_little_changed_and_bears_a_lost_folder() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY;
    let cells = |rank: usize, version: i64| {
        let mut cells: Vec<f64> = (0..100_000).map(|n| f64::from(n) * 7.0 + rank as f64).collect();
        cells[50_000] = version as f64;
        cells
    };
    run(3, &options, |rank, mut session| {
        let mut numbers = cells(rank, 0);
        protect(&mut session, 1, &mut numbers);
        for version in 1..=3 {
            numbers.copy_from_slice(&cells(rank, version));
            session.checkpoint("heat", version).unwrap();
        }
    });
    let made = made(home.path());
    let all = |made: &Made| matches!(made, Made::Updated { bytes, .. } if *bytes < 1_500_000);
    assert!(made.len() == 2 && made.iter().all(all), "{made:?}");
    fs::remove_dir_all(home.path().join("n1")).unwrap();
    run(3, &options, |rank, mut session| {
        let mut found = vec![0.0; 100_000];
        protect(&mut session, 1, &mut found);
        assert_eq!(session.newest("heat", i64::MAX).unwrap(), Some(3));
        session.restore("heat", 3).unwrap();
        assert!(found == cells(rank, 3), "rank {rank}");
    });
}

#[test]
fn a_lost_folder_is_borne_with_parity_and_filled_again() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY;
    store(6, &options, &[10, 20]);
    for lost in ["n1", "n0", "n2"] {
        fs::remove_dir_all(home.path().join(lost)).unwrap();
        assert_eq!(restore(6, &options), Ok(Some(20)), "{lost}");
        run(6, &options, |rank, mut session| {
            let mut numbers = content(rank, 20);
            protect(&mut session, 1, &mut numbers);
            session.checkpoint("heat", 20).unwrap();
        });
    }
}

#[test]
fn a_vault_that_was_made_by_half_is_made() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY;
    for (node, name) in [("n0", "dropped"), ("n2", "vault.part")] {
        let folder = home.path().join(node).join("vault");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), b"ha").unwrap();
    }
    store(3, &options, &[10]);
    assert_eq!(restore(3, &options), Ok(Some(10)));
    // Of a folder that was lost, too.
    fs::remove_dir_all(home.path().join("n1/vault")).unwrap();
    fs::create_dir_all(home.path().join("n1/vault")).unwrap();
    fs::write(home.path().join("n1/vault/dropped"), b"ha").unwrap();
    store(3, &options, &[20]);
    fs::remove_dir_all(home.path().join("n0")).unwrap();
    assert_eq!(restore(3, &options), Ok(Some(20)));
}

#[test]
fn two_lost_folders_are_too_many_and_nothing_is_made_up() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY;
    store(3, &options, &[10]);
    fs::remove_dir_all(home.path().join("n1")).unwrap();
    fs::remove_dir_all(home.path().join("n2")).unwrap();
    assert!(restore(3, &options).unwrap_err().contains("that all processes can have"));
}

#[test]
fn one_that_not_all_processes_have_is_passed_over() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 2);
    store(2, &options, &[10, 20]);
    // As if process 1 had died before it wrote its part.
    fs::remove_file(&files(home.path(), "n1/parts/heat.20.")[0]).unwrap();
    assert_eq!(restore(2, &options), Ok(Some(10)));
    fs::remove_file(&files(home.path(), "n1/parts/heat.10.")[0]).unwrap();
    assert_eq!(restore(2, &options), Ok(None));
}

#[test]
fn parts_of_two_runs_are_never_put_together() {
    let home = tempfile::tempdir().unwrap();
    let (options, other) = (folders(home.path(), 2), tempfile::tempdir().unwrap());
    store(2, &options, &[10, 20]);
    let old = files(home.path(), "n1/parts/heat.20.")[0].clone();
    let kept = other.path().join(old.file_name().unwrap());
    fs::copy(&old, &kept).unwrap();
    store(2, &options, &[20]);
    fs::remove_file(&files(home.path(), "n1/parts/heat.20.")[0]).unwrap();
    fs::copy(&kept, &old).unwrap();
    assert_eq!(restore(2, &options), Ok(None));
}

#[test]
fn a_damaged_part_is_answered_by_the_one_before() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 2);
    store(2, &options, &[10, 20]);
    for (version, left) in [(20, Ok(Some(10))), (10, Err(()))] {
        let path = &files(home.path(), &format!("n0/parts/heat.{version}."))[0];
        let mut bytes = fs::read(path).unwrap();
        bytes[5000] ^= 4;
        fs::write(path, bytes).unwrap();
        let found = restore(2, &options);
        match left {
            Ok(version) => assert_eq!(found, Ok(version)),
            // All know that there was something.
            Err(()) => assert!(found.unwrap_err().contains("that all processes can have")),
        }
    }
}

#[test]
fn another_number_of_processes_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 1);
    store(3, &options, &[10]);
    assert!(restore(2, &options).unwrap_err().contains("that all processes can have"));
    assert_eq!(restore(3, &options), Ok(Some(10)));
}

#[test]
fn a_failure_of_one_is_a_failure_of_all_and_leaves_the_last_one() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 2);
    store(2, &options, &[10]);
    let told = run(2, &options, |rank, mut session| {
        let mut numbers = content(rank, 20);
        protect(&mut session, 1, &mut numbers);
        session.begin("heat", 20).unwrap();
        session.save(&Which::All).unwrap();
        session.end(rank == 0).unwrap_err().to_string()
    });
    assert_eq!(told[0], "process 1 could not; it says why");
    assert!(told[1].contains("the program says"), "{told:?}");
    assert_eq!(restore(2, &options), Ok(Some(10)));
}

#[test]
fn a_folder_that_is_gone_in_mid_run_fails_the_checkpoint_at_all() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 2);
    let told = run(2, &options, |rank, mut session| {
        let mut numbers = content(rank, 10);
        protect(&mut session, 1, &mut numbers);
        session.checkpoint("heat", 10).unwrap();
        if rank == 1 {
            fs::remove_dir_all(home.path().join("n1")).unwrap();
        }
        session.checkpoint("heat", 20).unwrap_err().to_string()
    });
    assert_eq!(told[0], "process 1 could not; it says why");
    assert!(told[1].contains("cannot write into"), "{told:?}");
}

#[test]
fn files_of_the_program_are_part_of_it() {
    for more in [PLAIN, PARITY] {
        let home = tempfile::tempdir().unwrap();
        let options = folders(home.path(), 3) + more;
        run(3, &options, |rank, mut session| {
            session.begin("heat", 5).unwrap();
            let path = session.route("out.dat").unwrap();
            fs::write(path, format!("of {rank}")).unwrap();
            session.end(true).unwrap();
        });
        run(3, &options, |rank, mut session| {
            assert_eq!(session.newest("heat", 100).unwrap(), Some(5));
            session.begin_restore("heat", 5).unwrap();
            assert!(session.route("other").is_err());
            let path = session.route("out.dat").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("of {rank}"));
            session.end_restore(true).unwrap();
            assert!(!path.exists());
        });
    }
}

#[test]
fn what_is_protected_must_be_what_was_stored() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 1);
    store(1, &options, &[10]);
    let told = |ids: &[(i32, usize)]| {
        let mut told = run(1, &options, |_, mut session| {
            let mut all: Vec<Vec<f64>> = ids.iter().map(|(_, count)| vec![7.0; *count]).collect();
            for ((id, _), numbers) in ids.iter().zip(&mut all) {
                protect(&mut session, *id, numbers);
            }
            let error = session.restore("heat", 10).unwrap_err().to_string();
            assert!(all.iter().flatten().all(|number| *number == 7.0), "memory is as it was");
            error
        });
        told.swap_remove(0)
    };
    assert!(told(&[(2, 5)]).contains("region 1: it is in the checkpoint, and not protected"));
    assert!(told(&[(1, 5)]).contains("20000 elements of 8 bytes were stored, and 5 of 8"));
    assert!(told(&[(1, 20_000), (2, 5)]).contains("region 2: it is not in the checkpoint"));
}

#[test]
fn left_to_a_thread_it_is_the_same() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY + ";mode=async";
    store(4, &options, &[10, 20, 30]);
    assert_eq!(files(home.path(), "parts/heat."), Vec::<std::path::PathBuf>::new());
    fs::remove_dir_all(home.path().join("n2")).unwrap();
    assert_eq!(restore(4, &options), Ok(Some(30)));
}

#[test]
fn the_second_level_outlives_all_nodes() {
    for more in ["", ";mode=async", PARITY] {
        let home = tempfile::tempdir().unwrap();
        let second = format!(";every=2;persistent={}{more}", home.path().join("far").display());
        store(4, &(folders(home.path(), 3) + &second), &[10, 20, 30]);
        assert_eq!(
            files(home.path(), "far/").len(),
            4,
            "every second one, and the newest of these"
        );
        for node in ["n0", "n1", "n2"] {
            fs::remove_dir_all(home.path().join(node)).unwrap();
        }
        // On another number of nodes.
        let options = folders(home.path(), 2) + &second.replace(PARITY, "");
        assert_eq!(restore(4, &options), Ok(Some(20)), "{more}");
    }
}

#[test]
fn options_that_differ_and_folders_of_others_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let options = folders(home.path(), 3) + PARITY;
    store(3, &options, &[10]);
    let told = run(3, &(folders(home.path(), 3) + ";vault=xor:2"), |rank, mut session| {
        let mut numbers = content(rank, 20);
        protect(&mut session, 1, &mut numbers);
        session.checkpoint("heat", 20).unwrap_err().to_string()
    });
    assert!(told[0].contains("is rs:2+1 over 3 nodes, and xor:2 over 3 is wanted"), "{told:?}");
    fs::write(home.path().join("n0/vault/vault"), b"something else").unwrap();
    let told = opened(3, &options, |_, session| session.err().map(|error| error.to_string()));
    assert!(told[0].as_ref().unwrap().contains("cannot be used"), "{told:?}");
    assert!(matches!(&told[1], Some(text) if text.contains("process 0 could not")), "{told:?}");
}

#[test]
fn what_is_called_in_the_wrong_order_says_so() {
    let home = tempfile::tempdir().unwrap();
    run(1, &folders(home.path(), 1), |_, mut session| {
        let wrong = |done: Result<(), RegionsError>, word: &str| {
            let error = done.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        wrong(session.end(true), "no checkpoint was begun");
        wrong(session.save(&Which::All), "no checkpoint was begun");
        wrong(session.end_restore(true), "no restore was begun");
        wrong(session.restore("heat", 3), "there is no checkpoint heat 3");
        wrong(session.checkpoint("he/at", 3), "letters, digits");
        wrong(session.checkpoint("heat", -3), "a version from 0 on");
        session.begin("heat", 3).unwrap();
        wrong(session.begin("heat", 4), "is not ended");
        session.end(true).unwrap();
        assert_eq!(session.newest("heat", 10).unwrap(), Some(3));
        assert_eq!(session.newest("heat", 2).unwrap(), None);
    });
}
