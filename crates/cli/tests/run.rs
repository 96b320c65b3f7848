//! `eyrie run` without faults: output, input, exit codes, bad input; and the other commands.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;
use common::{World, texts, until};
use std::process::Stdio;

#[test]
fn output_comes_in_whole_lines_with_labels() {
    let world = World::new();
    let program = world.program("count");
    let output = world.run(&["run", "-n", "3", "-l", &program, "200"]);
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    for rank in 0..3 {
        let head = format!("[{rank}] ");
        let lines: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix(&*head)).collect();
        assert_eq!(lines.len(), 200);
        for (i, line) in lines.iter().enumerate() {
            assert!(line.starts_with(&format!("{i} ")), "{line}");
        }
    }
    assert_eq!(err, "");
    world.assert_empty();
}

#[test]
fn a_last_line_without_end_is_not_lost() {
    let world = World::new();
    let output = world.run(&["run", "-n", "1", "printf", "no end"]);
    assert_eq!(texts(&output), ("no end".into(), "".into()));
}

#[test]
fn standard_input_goes_to_rank_0_however_long_it_is() {
    let world = World::new();
    let text: String = (0..200_000).map(|i| format!("line {i}\n")).collect();
    std::fs::write(world.path("input"), &text).unwrap();
    let file = std::fs::File::open(world.path("input")).unwrap();
    let mut command = world.eyrie(&["run", "-n", "2", "-l", "sh", "-c", "cksum"]);
    let output = command.stdin(file).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    assert!(lines[0].starts_with("[0] ") && lines[0].ends_with(&format!(" {}", text.len())));
    assert!(lines[1].ends_with(" 0"), "rank 1 has no input: {}", lines[1]);
}

#[test]
fn exit_codes_are_passed_on() {
    let world = World::new();
    assert_eq!(world.run(&["run", "true"]).status.code(), Some(0));
    let output = world.run(&["run", "-n", "2", "sh", "-c", "exit $((EYRIE_RANK * 7))"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(texts(&output).1, "eyrie: rank 1 exited with code 7\n");
    world.assert_empty();
}

#[test]
fn one_failing_rank_ends_the_others() {
    let world = World::new();
    let script = "if [ $EYRIE_RANK = 0 ]; then exit 5; fi; exec sleep 1000";
    let output = world.run(&["run", "-n", "3", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(5));
    world.assert_empty();
}

#[test]
fn bad_input_gives_one_clear_line() {
    let world = World::new();
    std::fs::write(world.path("plain"), "text").unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["run", "no-such-program"], 127, "not found"),
        (&["run", "./none"], 127, "not found"),
        (&["run", "./plain"], 126, "not executable"),
        (&["run", "/"], 126, "is a folder"),
        (&["run", "-n", "0", "true"], 2, "from 1 to"),
        (&["run", "-n", "-4", "true"], 2, "from 1 to"),
        (&["run"], 2, "PROGRAM"),
        (&["run", "--log-limit", "5X", "true"], 2, "no size"),
        (&["status", "zzzz"], 1, "no job 'zzzz'"),
    ];
    for (args, code, part) in cases {
        let output = world.run(args);
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.starts_with("eyrie: ") && err.contains(part), "{args:?}: {err}");
        assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    }
    world.assert_empty();
}

#[test]
fn a_program_linked_to_another_library_of_open_mpi_is_refused() {
    let world = World::new();
    std::fs::write(world.path("lib.c"), "int MPI_Init(void) { return 0; }").unwrap();
    std::fs::write(world.path("main.c"), "int MPI_Init(void); int main(void){return MPI_Init();}")
        .unwrap();
    world.cc(&[
        "-shared",
        "-fPIC",
        "-Wl,-soname,liboshmem.so.40",
        "-o",
        "liboshmem.so.40",
        "lib.c",
    ]);
    world.cc(&["-o", "foreign", "main.c", "./liboshmem.so.40"]);
    let output = world.run(&["run", "-n", "2", "./foreign"]);
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(126));
    assert!(err.contains("liboshmem.so.40") && err.contains("Open MPI"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn a_file_that_cannot_be_executed_after_all_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::write(world.path("odd"), "#!/no/such/interpreter\n").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path("odd"), mode).unwrap();
    let output = world.run(&["run", "-n", "2", "./odd"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(texts(&output).1.contains("cannot start './odd'"), "{output:?}");
    world.assert_empty();
}

#[test]
fn ps_and_status_show_a_running_job_and_kept_jobs_stay() {
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    // No images, however long this takes: they would be kept.
    let kept = ["--name", "mine", "--keep", "--ckpt-every", "0"];
    let args = [&["run", "-n", "2"], &kept[..], &[&program, "9", "5", go.to_str().unwrap()]];
    let job = world.start(&args.concat(), Stdio::null());
    until("the job is listed", || texts(&world.run(&["ps"])).0.contains("mine"));
    let status = job.status();
    assert_eq!((&status["size"], &status["phase"]), (&2.into(), &"running".into()));
    assert!(texts(&world.run(&["status", "last"])).0.contains("RANK"));
    std::fs::write(&go, "").unwrap();
    assert_eq!(job.end().0, 0);
    let output = world.run(&["status", "last", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["exit_code"], 0);
    assert!(texts(&world.run(&["events", "last"])).0.contains("ended"));
    let job = world.home().join("jobs").join(status["job"].as_str().unwrap());
    assert!(!job.join("images").exists() && !job.join("node.sock").exists());
}

#[test]
fn the_folder_of_a_dead_job_is_removed() {
    let world = World::new();
    let dead = world.home().join("jobs/dead");
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(dead.join("lock"), "").unwrap();
    assert!(world.run(&["ps"]).status.success());
    assert!(!dead.exists());
}

#[test]
fn malformed_frames_close_a_connection_and_are_counted() {
    use std::io::{Read, Write};
    let world = World::new();
    let (program, go) = (world.program("count"), world.path("go"));
    let job = world.start(&["run", &program, "3", "1", go.to_str().unwrap()], Stdio::null());
    job.wait_line("0 ");
    let id = job.status()["job"].as_str().unwrap().to_string();
    let socket = world.home().join("jobs").join(id).join("node.sock");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\0", b"\x02\0\0\0\xff\xff"] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
    }
    assert_eq!(job.status()["malformed_frames"], 3);
    std::fs::write(&go, "").unwrap();
    assert_eq!(job.end().0, 0);
}

#[test]
fn verify_tells_whether_a_program_repeats_itself() {
    let world = World::new();
    let program = world.program("count");
    let output = world.run(&["verify", "-n", "2", "--", &program, "20"]);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.contains("deterministic under replay: 0 messages on 0 channels"), "{out}");
    assert_eq!(out.lines().filter(|l| l.starts_with("19 ")).count(), 2, "printed once: {out}");
    let script = "if [ -e second ]; then echo two; else echo one; : > second; fi";
    let output = world.run(&["verify", "--", "sh", "-c", script]);
    let (out, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("NOT deterministic") && out.contains("\"one\""), "{out}");
    world.assert_empty();
}
