//! What the tests of the command share: a home of their own, programs, and running jobs.
//!
//! Kept true: no test depends on speed; `PATIENCE` only turns a hang into a failure. Every test
//! leaves its home empty of processes.
#![allow(unsafe_code)]
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// After this long something hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The eyrie to test: the one of the staged prefix, or the one just built with its restorer.
pub fn eyrie() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        if let Some(prefix) = std::env::var_os("EYRIE_PREFIX") {
            let binary = PathBuf::from(prefix).join("bin/eyrie");
            assert!(binary.exists(), "EYRIE_PREFIX is set, but {} is missing", binary.display());
            return binary;
        }
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_eyrie"));
        let profile = binary.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "eyrie-restorer", "--target-dir"]);
        build.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        // It cannot be built to unwind, as `tests/run` has all else built.
        build.env_remove("CARGO_PROFILE_DEV_PANIC");
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(built.success(), "eyrie-restorer could not be built");
        binary
    })
}

/// A home folder, and a folder for programs and files.
pub struct World {
    pub dir: tempfile::TempDir,
}

impl World {
    pub fn new() -> World {
        World { dir: tempfile::tempdir().unwrap() }
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn eyrie(&self, args: &[&str]) -> Command {
        let mut command = Command::new(eyrie());
        command.args(args).env("EYRIE_HOME", self.home()).current_dir(self.dir.path());
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.eyrie(args).output().unwrap()
    }

    /// Compiles `tests/programs/NAME.c` and returns its path.
    pub fn program(&self, name: &str) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let out = self.path(name);
        let source = source.join(format!("{name}.c"));
        self.cc(&["-O1", "-pthread", "-o", out.to_str().unwrap(), source.to_str().unwrap()]);
        out.to_str().unwrap().to_string()
    }

    pub fn cc(&self, args: &[&str]) {
        let done = Command::new("cc").args(args).current_dir(self.dir.path()).status();
        assert!(done.expect("a C compiler (cc) is needed").success(), "cc {args:?}");
    }

    /// Starts a job in the background; standard input is what `stdin` says.
    pub fn start(&self, args: &[&str], stdin: Stdio) -> Job<'_> {
        use std::os::unix::process::CommandExt;
        let mut command = self.eyrie(args);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: only async-signal-safe calls; a test run in the background of a shell, or by
        // nohup, has signals ignored, and eyrie rightly keeps that.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        Job::new(self, command.spawn().unwrap())
    }

    /// No job is left under the home.
    pub fn assert_empty(&self) {
        let left: Vec<_> = std::fs::read_dir(self.home().join("jobs"))
            .map(|list| list.flatten().map(|e| e.file_name()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// Standard output and error of a command as text.
pub fn texts(output: &Output) -> (String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Waits for something that must come about.
pub fn until(what: &str, mut come: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !come() {
        assert!(Instant::now() < end, "does not come about: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A job in the background.
pub struct Job<'w> {
    world: &'w World,
    pub child: Child,
    out: Option<std::thread::JoinHandle<String>>,
    err: Option<std::thread::JoinHandle<String>>,
    seen: std::sync::mpsc::Receiver<String>,
}

fn collect(
    pipe: impl Read + Send + 'static,
    seen: Option<std::sync::mpsc::Sender<String>>,
) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut all = String::new();
        for line in BufReader::new(pipe).lines() {
            let line = line.unwrap();
            all.push_str(&line);
            all.push('\n');
            if let Some(seen) = &seen {
                let _ = seen.send(line);
            }
        }
        all
    })
}

impl<'w> Job<'w> {
    fn new(world: &'w World, mut child: Child) -> Job<'w> {
        let (tell, seen) = std::sync::mpsc::channel();
        let out = Some(collect(child.stdout.take().unwrap(), Some(tell)));
        let err = Some(collect(child.stderr.take().unwrap(), None));
        Job { world, child, out, err, seen }
    }

    /// Waits for a line of output that begins like this.
    pub fn wait_line(&self, start: &str) {
        self.wait_lines(&[start]);
    }

    /// Waits for lines that begin like these, in any order.
    pub fn wait_lines(&self, starts: &[&str]) {
        let mut open = starts.to_vec();
        while !open.is_empty() {
            let line = self.seen.recv_timeout(PATIENCE).expect("no such line");
            open.retain(|start| !line.starts_with(start));
        }
    }

    pub fn status(&self) -> serde_json::Value {
        let output = self.world.run(&["status", "last", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    pub fn events(&self) -> Vec<serde_json::Value> {
        let output = self.world.run(&["events", "last", "--json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    pub fn count_events(&self, kind: &str) -> usize {
        self.events().iter().filter(|e| e["event"] == kind).count()
    }

    /// Waits until this many events of a kind are there.
    pub fn wait_events(&self, kind: &str, count: usize) {
        until(&format!("{count} {kind}"), || self.count_events(kind) >= count);
    }

    /// Runs an eyrie command on this job and expects success.
    pub fn command(&self, args: &[&str]) -> String {
        let output = self.world.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, which was not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Process numbers of all ranks.
    pub fn pids(&self) -> Vec<u64> {
        let status = self.status();
        let ranks = status["ranks"].as_array().unwrap();
        ranks.iter().filter_map(|r| r["pid"].as_u64()).collect()
    }

    /// Waits for the end: exit code, standard output, standard error.
    pub fn end(mut self) -> (i32, String, String) {
        use std::os::unix::process::ExitStatusExt;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "the job does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        let out = self.out.take().unwrap().join().unwrap();
        let err = self.err.take().unwrap().join().unwrap();
        (status.code().unwrap_or_else(|| -status.signal().unwrap()), out, err)
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        // A failed test leaves no job running: the daemon ends it when its console is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process is gone (or only its remains are).
pub fn is_gone(pid: u64) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|s| s.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}
