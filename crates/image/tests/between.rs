//! Processes that are checkpointed together, each with an image of its own, and come back together:
//! connections between them are as they were, with what was in flight.

mod common;

use common::{Process, Random, appears, bring_back_with, compile};
use eyrie_image::{Between, CaptureError, Family, Frozen, MadeSockets, make_sockets};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ROLES: [&str; 2] = ["server", "client"];

/// Server and client, each in a folder of its own.
fn begin(folder: &Path, more: &[&str]) -> Vec<Process> {
    let program = compile(folder, "partners", &[]);
    let start = |role: &&str| {
        let own = folder.join(role);
        fs::create_dir_all(&own).unwrap();
        let process = Process::start(&program, &[&[*role][..], more].concat(), &own);
        appears(&own.join(if *role == "server" { "addresses" } else { "begun" }));
        process
    };
    let all = ROLES.iter().map(start).collect();
    appears(&folder.join("server/begun"));
    all
}

/// Freezes all, looks at what is between them, and lets each go on when it has its twin; the next
/// one's is made when the one before has run for a while.
fn take(all: &[Process], images: &[PathBuf]) -> Result<(), CaptureError> {
    let frozen: Vec<Frozen> = all.iter().map(|p| Frozen::stop(p.pid).unwrap()).collect();
    let families: Vec<Family> = frozen.iter().map(Frozen::family).collect();
    let between = Arc::new(Between::look(&families));
    for (mut frozen, image) in frozen.into_iter().zip(images) {
        frozen.stands_with(&between);
        let twin = frozen.twin()?;
        frozen.release().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        twin.write_image(image, b"meta")?;
    }
    Ok(())
}

fn survive(more: &[&str], cycles: usize) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut random = Random::new();
    let mut all = begin(folder, more);
    for cycle in 0..cycles {
        std::thread::sleep(Duration::from_millis(random.below(30)));
        let images: Vec<PathBuf> =
            ROLES.iter().map(|role| folder.join(role).join(format!("image{cycle}"))).collect();
        take(&all, &images).unwrap();
        all.iter_mut().for_each(Process::kill);
        let paths: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
        let made = make_sockets(&paths, &[]).unwrap();
        // Whichever comes first runs before the other one is there.
        let mut back: Vec<(usize, MadeSockets)> = made.into_iter().enumerate().collect();
        if random.below(2) == 1 {
            back.reverse();
        }
        let mut again: Vec<(usize, Process)> =
            back.into_iter().map(|(i, sockets)| (i, bring_back_with(paths[i], sockets))).collect();
        again.sort_by_key(|(i, _)| *i);
        all = again.into_iter().map(|(_, process)| process).collect();
    }
    File::create(folder.join("stop")).unwrap();
    all.iter_mut().for_each(Process::succeed);
    for role in ROLES {
        let out = fs::read_to_string(folder.join(role).join("out")).unwrap();
        let said = fs::read_to_string(folder.join(role).join("stdout")).unwrap();
        assert_eq!(out, "0 rounds 0 wrong\n", "{role}: {said}");
    }
}

#[test]
fn connections_between_images_come_back_with_what_was_in_flight() {
    survive(&[], 3);
}

/// What the sender still holds back takes `CAP_NET_ADMIN` to read.
#[test]
fn more_than_a_reader_in_another_image_has_room_for() {
    // SAFETY: a query.
    if unsafe { libc::geteuid() } != 0 {
        return println!("NOT RUN: not root");
    }
    survive(&["full"], 2);
}

#[test]
fn without_privileges() {
    common::as_nobody("between", &["connections_"], 1);
}

#[test]
fn alone_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut all = begin(folder, &[]);
    let images = ROLES.map(|role| folder.join(role).join("image"));
    // Nobody said that they stand together.
    for (process, role) in all.iter().zip(ROLES) {
        let refused = common::checkpoint(process.pid, &folder.join(role).join("alone"));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("file descriptor") && refused.contains("no process"), "{refused}");
    }
    take(&all, &images).unwrap();
    all.iter_mut().for_each(Process::kill);
    let missing = make_sockets(&[&images[0]], &[]).unwrap_err().to_string();
    assert!(missing.contains("come back together only"), "{missing}");
    let refused = common::try_restore(&images[1], MadeSockets::default());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("come back together only"), "{refused}");
}
