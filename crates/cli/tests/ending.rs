//! How jobs end: signals, kills of every part, the program's own faults; nothing is left behind.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;
use common::{World, is_gone, texts, until};
use std::process::Stdio;

#[test]
fn the_programs_own_bug_is_reported_after_three_deaths() {
    let world = World::new();
    let program = world.program("crash");
    let output = world.run(&["run", "-n", "1", "-v", &program]);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(128 + libc::SIGSEGV), "{err}");
    assert_eq!(out, "before\n");
    assert!(err.contains("rank 0 died of SIGSEGV three times at the same point"), "{err}");
    assert_eq!(err.lines().filter(|l| l.contains("detected")).count(), 3, "{err}");
    world.assert_empty();
}

#[test]
fn without_protection_a_killed_rank_ends_the_job() {
    let world = World::new();
    let job = world.start(&["run", "-n", "2", "--ft", "none", "sleep", "1000"], Stdio::null());
    until("the job runs", || world.run(&["inject", "last", "kill-rank", "1"]).status.success());
    let (code, _, err) = job.end();
    assert_eq!(code, 128 + libc::SIGKILL);
    assert!(err.contains("rank 1 died of SIGKILL; the job runs without protection"), "{err}");
    world.assert_empty();
}

/// Starts a script in two ranks and waits until both have said "ready".
fn ready<'w>(world: &'w World, script: &str) -> (common::Job<'w>, Vec<u64>) {
    let job = world.start(&["run", "-n", "2", "-l", "sh", "-c", script], Stdio::null());
    let mut waiting = vec!["[0] ready", "[1] ready"];
    while let Some(line) = waiting.pop() {
        until(line, || {
            let text = std::fs::read_to_string(world.path(&format!("ready-{}", &line[1..2])));
            text.is_ok_and(|t| !t.is_empty())
        });
    }
    let mut pids = job.pids();
    for rank in 0..2 {
        let text = std::fs::read_to_string(world.path(&format!("ready-{rank}"))).unwrap();
        pids.push(text.trim().parse().unwrap());
    }
    pids.push(job.status()["daemon_pid"].as_u64().unwrap());
    (job, pids)
}

/// A child that leaves session and group, then a long wait.
const FAMILY: &str = "setsid sleep 1000 & echo $! > tmp-$EYRIE_RANK; \
                      mv tmp-$EYRIE_RANK ready-$EYRIE_RANK; wait";

#[test]
fn a_signal_ends_the_job_and_the_whole_family() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let world = World::new();
        let (job, pids) = ready(&world, FAMILY);
        job.signal(signal);
        let (code, _, err) = job.end();
        assert_eq!(code, 128 + signal, "{err}");
        assert!(pids.iter().all(|p| is_gone(*p)), "{pids:?}");
        world.assert_empty();
    }
}

#[test]
fn a_program_may_end_orderly_on_a_signal() {
    let world = World::new();
    let script = "trap 'echo bye; exit 0' INT; echo $$ > tmp-$EYRIE_RANK; \
                  mv tmp-$EYRIE_RANK ready-$EYRIE_RANK; while :; do sleep 0.01; done";
    let (job, _) = ready(&world, script);
    job.signal(libc::SIGINT);
    let (code, out, err) = job.end();
    assert_eq!((code, out.matches("bye").count()), (0, 2), "{out}{err}");
}

#[test]
fn a_second_signal_kills_what_ignores_the_first() {
    let world = World::new();
    let script = "trap '' INT; echo $$ > tmp-$EYRIE_RANK; mv tmp-$EYRIE_RANK ready-$EYRIE_RANK; \
                  while :; do sleep 0.01; done";
    let (job, pids) = ready(&world, script);
    job.signal(libc::SIGINT);
    until("the first one arrived", || job.status()["phase"] == "stopping");
    job.signal(libc::SIGINT);
    assert_eq!(job.end().0, 128 + libc::SIGINT);
    assert!(pids.iter().all(|p| is_gone(*p)), "{pids:?}");
    world.assert_empty();
}

#[test]
fn when_the_command_is_killed_the_job_goes_too() {
    let world = World::new();
    let (job, pids) = ready(&world, FAMILY);
    job.signal(libc::SIGKILL);
    assert_eq!(job.end().0, -libc::SIGKILL);
    until("all are gone", || pids.iter().all(|p| is_gone(*p)));
    world.assert_empty();
}

#[test]
fn when_the_daemon_is_killed_ranks_and_folder_go_too() {
    let world = World::new();
    let script = "echo $$ > tmp-$EYRIE_RANK; mv tmp-$EYRIE_RANK ready-$EYRIE_RANK; \
                  exec sleep 1000";
    let (job, pids) = ready(&world, script);
    let daemon = job.status()["daemon_pid"].as_u64().unwrap();
    // SAFETY: the daemon of our own job, alive as it just answered.
    assert_eq!(unsafe { libc::kill(daemon as i32, libc::SIGKILL) }, 0);
    let (code, _, err) = job.end();
    assert_eq!(code, 1);
    assert!(err.contains("the node daemon ended early"), "{err}");
    until("all are gone", || pids.iter().all(|p| is_gone(*p)));
    world.assert_empty();
}

#[test]
fn abort_ends_a_job_from_elsewhere() {
    let world = World::new();
    let (job, pids) = ready(&world, FAMILY);
    assert!(world.run(&["abort", "last"]).status.success());
    assert_eq!(job.end().0, 128 + libc::SIGTERM);
    assert!(pids.iter().all(|p| is_gone(*p)), "{pids:?}");
    world.assert_empty();
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let world = World::new();
    let mut child = world
        .eyrie(&["run", "-n", "2", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + libc::SIGPIPE));
    world.assert_empty();
}
