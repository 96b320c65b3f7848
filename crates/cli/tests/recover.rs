//! Kills and recoveries of plain programs: what is printed is what an undisturbed run prints.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;
use common::{World, texts, until};
use std::io::Write;
use std::process::Stdio;

const LINES: &str = "300";
const STOP: &str = "150";

/// What an undisturbed run of `count` prints, sorted by rank.
fn undisturbed(world: &World, program: &str) -> String {
    let go = world.path("undisturbed-go");
    std::fs::write(&go, "").unwrap();
    let go = go.to_str().unwrap();
    let output = world.run(&["run", "-n", "2", "-l", "--ft", "none", program, LINES, STOP, go]);
    assert!(output.status.success());
    sorted(&texts(&output).0)
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_by_key(|l| l.split(' ').next().unwrap_or("").to_string());
    lines.join("\n")
}

fn start<'w>(world: &'w World, program: &str, go: &str, every: &str) -> common::Job<'w> {
    start_with(world, program, go, &["--ckpt-every", every])
}

fn start_with<'w>(world: &'w World, program: &str, go: &str, options: &[&str]) -> common::Job<'w> {
    let args = [&["run", "-n", "2", "-l"], options, &[program, LINES, STOP, go]].concat();
    let job = world.start(&args, Stdio::null());
    job.wait_lines(&[&format!("[0] {STOP} "), &format!("[1] {STOP} ")]);
    job
}

#[test]
fn killed_ranks_come_back_from_their_checkpoints() {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    let job = start(&world, &program, go.to_str().unwrap(), "0");
    let told = job.command(&["checkpoint", "last"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    for round in 1..=3 {
        job.command(&["inject", "last", "kill-rank", "1"]);
        job.wait_events("restored", round);
    }
    job.command(&["inject", "last", "kill-rank", "0,1"]);
    job.wait_events("restored", 5);
    let events = job.events();
    let generations = events.iter().filter(|e| e["event"] == "restored");
    assert!(generations.into_iter().all(|e| e["generation"] == 1), "{events:?}");
    let status = job.status();
    assert_eq!((&status["recoveries"], &status["rollbacks"]), (&5.into(), &0.into()));
    // A restored rank can be checkpointed and restored again.
    job.command(&["checkpoint", "last"]);
    job.command(&["inject", "last", "kill-rank", "0"]);
    job.wait_events("restored", 6);
    std::fs::write(&go, "").unwrap();
    let (code, out, err) = job.end();
    assert_eq!((code, sorted(&out)), (0, undisturbed(&world, &program)), "{err}");
    world.assert_empty();
}

#[test]
fn before_the_first_checkpoint_a_rank_starts_from_the_beginning() {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    let job = start(&world, &program, go.to_str().unwrap(), "0");
    job.command(&["inject", "last", "kill-rank", "0"]);
    job.wait_events("restored", 1);
    let events = job.events();
    assert!(events.iter().any(|e| e["event"] == "restored" && e["generation"] == 0));
    std::fs::write(&go, "").unwrap();
    let (code, out, err) = job.end();
    assert_eq!((code, sorted(&out)), (0, undisturbed(&world, &program)), "{err}");
}

/// How many image files lie there after `checkpoints` of two ranks.
fn files_after(checkpoints: usize, options: &[&str]) -> usize {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    let options = [&["--ckpt-every", "20ms"], options].concat();
    let job = start_with(&world, &program, go.to_str().unwrap(), &options);
    job.wait_events("checkpointed", checkpoints);
    let images = world.home().join("jobs").join(job.status()["job"].as_str().unwrap());
    let files = std::fs::read_dir(images.join("images")).unwrap().count();
    std::fs::write(&go, "").unwrap();
    assert_eq!(job.end().0, 0);
    world.assert_empty();
    files
}

#[test]
fn checkpoints_are_taken_by_themselves_and_only_two_are_kept() {
    let files = files_after(10, &["--ckpt", "full", "--fallback-every", "off"]);
    // Two a rank, and at most one being written (with a temporary name beside it).
    assert!(files <= 6, "{files}");
    // Of two snapshots besides: an image a rank, and what was between the ranks.
    let files = files_after(10, &["--ckpt", "full", "--fallback-every", "2"]);
    assert!(files <= 6 + 2 * 3, "{files}");
}

#[test]
fn images_of_what_has_changed_keep_few_files() {
    let files = files_after(60, &[]);
    // For each rank at most nine that the newest needs and it, the one before it, and one being
    // written; without consolidation there would be 30.
    assert!(files <= 24, "{files}");
}

#[test]
fn a_damaged_image_is_refused_and_the_one_before_is_taken() {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    let job = start(&world, &program, go.to_str().unwrap(), "0");
    job.command(&["checkpoint", "last", "--rank", "1"]);
    job.command(&["checkpoint", "last", "--rank", "1"]);
    let folder = world.home().join("jobs").join(job.status()["job"].as_str().unwrap());
    let image = folder.join("images/rank-1.gen-2");
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&image, bytes).unwrap();
    job.command(&["inject", "last", "kill-rank", "1"]);
    job.wait_events("restored", 1);
    let events = job.events();
    let refused = events.iter().find(|e| e["event"] == "image-refused").unwrap();
    assert_eq!(refused["generation"], 2);
    let restored = events.iter().find(|e| e["event"] == "restored").unwrap();
    assert_eq!(restored["generation"], 1);
    assert!(!image.exists(), "the damaged image is removed");
    std::fs::write(&go, "").unwrap();
    let (code, out, err) = job.end();
    assert_eq!((code, sorted(&out)), (0, undisturbed(&world, &program)), "{err}");
}

#[test]
fn with_all_images_damaged_all_ranks_go_back_together() {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    let job = start(&world, &program, go.to_str().unwrap(), "0");
    for _ in 0..3 {
        job.command(&["checkpoint", "last", "--rank", "0"]);
    }
    let folder = world.home().join("jobs").join(job.status()["job"].as_str().unwrap());
    for generation in 2..=3 {
        let image = folder.join(format!("images/rank-0.gen-{generation}"));
        let bytes = std::fs::read(&image).unwrap();
        std::fs::write(&image, &bytes[..bytes.len() / 2]).unwrap();
    }
    job.command(&["inject", "last", "kill-rank", "0"]);
    job.wait_events("rolled-back", 1);
    std::fs::write(&go, "").unwrap();
    let (code, out, err) = job.end();
    assert_eq!((code, sorted(&out)), (0, undisturbed(&world, &program)), "{err}");
    assert!(err.contains("all ranks go back to the beginning together"), "{err}");
}

#[test]
fn input_is_fed_again_after_a_kill() {
    let world = World::new();
    let (program, go) = (world.program("echo"), world.path("go"));
    let text: String = (0..500).map(|i| format!("number {i}\n")).collect();
    let text = format!("{text}wait\n{text}");
    std::fs::write(world.path("input"), &text).unwrap();
    let input = || Stdio::from(std::fs::File::open(world.path("input")).unwrap());
    let plain = std::process::Command::new(&program).stdin(input()).output().unwrap();
    let mut job =
        world.start(&["run", "--ckpt-every", "0", &program, go.to_str().unwrap()], Stdio::piped());
    let mut stdin = job.child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    let last_line = String::from_utf8_lossy(&plain.stdout)
        .lines()
        .find(|l| l.ends_with(" wait"))
        .unwrap()
        .to_string();
    job.wait_line(&last_line);
    job.command(&["inject", "last", "kill-rank", "0"]);
    job.wait_events("restored", 1);
    job.command(&["checkpoint", "last"]);
    job.command(&["inject", "last", "kill-rank", "0"]);
    job.wait_events("restored", 2);
    drop(stdin);
    std::fs::write(&go, "").unwrap();
    let (code, out, err) = job.end();
    assert_eq!((code, out.as_str()), (0, &*String::from_utf8_lossy(&plain.stdout)), "{err}");
}

#[test]
fn a_program_that_cannot_be_checkpointed_is_told_why_and_goes_on() {
    let world = World::new();
    let (program, go) = (world.program("netlink"), world.path("go"));
    let args = ["run", "--ckpt-every", "0", &program, go.to_str().unwrap()];
    let job = world.start(&args, Stdio::null());
    job.wait_line("ready");
    let output = world.run(&["checkpoint", "last"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("a socket"), "{output:?}");
    let status = job.status();
    let reason = status["ranks"][0]["no_checkpoint_reason"].as_str().unwrap();
    assert!(reason.contains("a socket"), "{reason}");
    std::fs::write(&go, "").unwrap();
    assert_eq!(job.end().0, 0);
}

#[test]
fn without_space_for_images_the_job_goes_on_with_the_last_checkpoint() {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    // An image of what has changed might fit.
    let options = ["--ckpt-every", "0", "--ckpt", "full"];
    let job = start_with(&world, &program, go.to_str().unwrap(), &options);
    job.command(&["checkpoint", "last"]);
    let daemon = job.status()["daemon_pid"].as_u64().unwrap();
    let limit = |bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is valid for the call; the daemon is ours.
        let rc = unsafe {
            libc::prlimit(daemon as i32, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut())
        };
        assert_eq!(rc, 0);
    };
    limit(64 << 10);
    let output = world.run(&["checkpoint", "last", "--rank", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("no space"), "{output:?}");
    let status = job.status();
    assert_eq!(status["ranks"][1]["checkpoint"]["generation"], 1);
    assert!(status["ranks"][1]["no_checkpoint_reason"].as_str().unwrap().contains("no space"));
    job.command(&["inject", "last", "kill-rank", "1"]);
    job.wait_events("restored", 1);
    limit(libc::RLIM_INFINITY);
    job.command(&["checkpoint", "last", "--rank", "1"]);
    std::fs::write(&go, "").unwrap();
    let (code, out, err) = job.end();
    assert_eq!((code, sorted(&out)), (0, undisturbed(&world, &program)), "{err}");
}

#[test]
fn different_output_rolls_all_back_if_it_is_to_be_the_same() {
    let world = World::new();
    // Prints something new at every start.
    let script = "echo x >> starts-$EYRIE_RANK; wc -l < starts-$EYRIE_RANK; exec sleep 1000";
    // Files that ranks wrote to would be put back, and it would print the same.
    let options = ["--ckpt-every", "0", "--strict-output", "--files-limit", "0"];
    let job = world.start(
        &[&["run", "-n", "2", "-l"], &options[..], &["sh", "-c", script]].concat(),
        Stdio::null(),
    );
    job.wait_lines(&["[0] 1", "[1] 1"]);
    job.command(&["inject", "last", "kill-rank", "1"]);
    job.wait_events("rolled-back", 1);
    until("rank 1 printed its line again", || {
        std::fs::read_to_string(world.path("starts-1")).is_ok_and(|t| t.len() == 6)
    });
    let status = job.status();
    assert_eq!(status["rollbacks"], 1);
    job.signal(libc::SIGTERM);
    let (code, out, err) = job.end();
    assert_eq!(code, 128 + libc::SIGTERM, "{err}");
    assert!(err.contains("REPLAY DIVERGED in rank 1: standard output differs at byte 0"), "{err}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    assert_eq!(lines, ["[0] 1", "[1] 1"], "nothing is printed twice");
}
