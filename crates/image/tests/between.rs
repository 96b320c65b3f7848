//! Processes that are checkpointed together, each with an image of its own, and come back together:
//! connections between them are as they were, with what was in flight.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, Random, appears, bring_back_with, compile};
use eyrie_image::{
    BackEnd, Between, Call, CaptureError, CrossNodeConnection, CrossNodeEnd, Frozen, MadeSockets,
    ProcessTree, SetConnections, make_sockets,
};
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
    let families: Vec<ProcessTree> = frozen.iter().map(Frozen::process_tree).collect();
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

/// The same where each is on a node of its own.
fn take_apart(all: &[Process], images: &[PathBuf]) -> Result<(), CaptureError> {
    let frozen: Vec<Frozen> = all.iter().map(|p| Frozen::stop(p.pid).unwrap()).collect();
    let (mut between, ends): (Vec<Between>, Vec<Vec<CrossNodeEnd>>) =
        frozen.iter().map(|f| Between::look_over_nodes(&[f.process_tree()])).unzip();
    let mut joints = [Vec::new(), Vec::new()];
    for (link, own) in (1..).zip(&ends[0]) {
        let turned =
            |e: &&CrossNodeEnd| (e.own, e.peer, &e.network) == (own.peer, own.own, &own.network);
        let Some(other) = ends[1].iter().find(turned) else { continue };
        joints[0].push(CrossNodeConnection { socket: own.socket, link, behind: other.behind });
        joints[1].push(CrossNodeConnection { socket: other.socket, link, behind: own.behind });
    }
    for (between, joints) in between.iter_mut().zip(&joints) {
        between.join(joints);
    }
    for ((mut frozen, between), image) in frozen.into_iter().zip(between).zip(images) {
        frozen.stands_with(&Arc::new(between));
        let twin = frozen.twin()?;
        frozen.release().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        twin.write_image(image, b"meta")?;
    }
    Ok(())
}

/// Makes the sockets of both, each by itself. Who calls changes until all are there.
fn make_apart(paths: &[&Path]) -> Vec<MadeSockets> {
    let here = Some("127.0.0.1".parse().unwrap());
    let begin = |path: &&Path| SetConnections::begin(&[path], &[], here).unwrap();
    let mut both: Vec<SetConnections> = paths.iter().map(begin).collect();
    let mut left: Vec<_> = both[0].ends().iter().map(|e| e.link).collect();
    for turn in 0..100 {
        let work = |(number, rewiring): (usize, &mut SetConnections)| {
            let calls = turn % 2 == number;
            let ends = rewiring.ends().into_iter().filter(|e| left.contains(&e.link));
            let call = |e: BackEnd| Call {
                link: e.link,
                own: e.own,
                peer: e.peer,
                calls,
                token: [turn as u8; 32],
            };
            rewiring.join(&ends.map(call).collect::<Vec<_>>(), Duration::from_secs(5), turn > 2)
        };
        let failed: Vec<_> = std::thread::scope(|scope| {
            let each = both.iter_mut().enumerate();
            let threads: Vec<_> = each.map(|one| scope.spawn(|| work(one))).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        left.retain(|link| failed.iter().any(|f| f.0 == *link));
        if left.is_empty() {
            let made = |r: SetConnections| r.settle().unwrap().remove(0);
            return both.into_iter().map(made).collect();
        }
    }
    panic!("connections that cannot be made: {left:?}");
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
        let paths: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
        let far = more.contains(&"far");
        // In between both were on one node, and come back apart.
        let apart = far && cycle % 2 == 0;
        loop {
            match if apart { take_apart(&all, &images) } else { take(&all, &images) } {
                // Without privileges: what a reader has no room for just now.
                Err(e) if e.to_string().contains("try again") => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => break result.unwrap(),
            }
        }
        all.iter_mut().for_each(Process::kill);
        let met = || make_sockets(&paths, &[]).unwrap();
        // The last time both come back on one node.
        let made = if far && cycle + 1 < cycles { make_apart(&paths) } else { met() };
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

#[test]
fn connections_between_nodes_come_back_with_what_was_in_flight() {
    survive(&["far"], 3);
}

#[test]
fn more_than_a_reader_on_another_node_has_room_for() {
    // SAFETY: a query.
    if unsafe { libc::geteuid() } != 0 {
        return println!("NOT RUN: not root");
    }
    survive(&["far", "full"], 3);
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
    common::as_nobody("between", &["connections_"], 2);
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
    // The other one is on another node, where only TCP leads.
    let here = Some("127.0.0.1".parse().unwrap());
    let apart = SetConnections::begin(&[&images[0]], &[], here).err().unwrap().to_string();
    assert!(apart.contains("no Unix socket leads"), "{apart}");
    let refused = common::try_restore(&images[1], MadeSockets::default());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("come back together only"), "{refused}");
}
