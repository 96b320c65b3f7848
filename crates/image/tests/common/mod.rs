//! Real processes for the tests: small C programs compiled on the spot, frozen, killed and
//! restored.
//!
//! Each test process uses its own folder, and every process it starts dies with the thread that
//! started it.

#![allow(unsafe_code)]
#![allow(dead_code)]

use eyrie_image::{
    CaptureError, FreezeError, Frozen, Image, ImageReport, MadeSockets, RestoreError,
    RestoreOptions, RestoreSpec, restore, while_starting,
};
use std::fs::{self, File};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Longest that anything here may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Path of the restorer, built once for this run.
pub fn restorer() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        // Set where this test binary runs itself as a user who cannot build.
        if let Some(built) = std::env::var_os("EYRIE_TEST_RESTORER") {
            return built.into();
        }
        let exe = std::env::current_exe().unwrap();
        // TARGET/debug/deps/test
        let profile = exe.parent().unwrap().parent().unwrap();
        let target = profile.parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "eyrie-restorer", "--target-dir"]).arg(target);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        // It cannot be built to unwind, as `tests/run` has all else built.
        cargo.env_remove("CARGO_PROFILE_DEV_PANIC");
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(status.success(), "cannot build the restorer");
        profile.join("eyrie-restorer")
    })
}

/// A small generator, seeded by the clock and printed, so that a failure can be looked into.
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seed = now.as_nanos() as u64 | 1;
        println!("seed {seed}");
        Random(seed)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Compiles `tests/programs/NAME.c`.
pub fn compile(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    compile_as(folder, name, name, flags)
}

/// The same under another name, by which `/proc` tells it from those of other tests.
pub fn compile_as(folder: &Path, name: &str, program: &str, flags: &[&str]) -> PathBuf {
    compile_with("cc", folder, name, program, flags)
}

/// The same with another compiler.
pub fn compile_with(
    compiler: &str,
    folder: &Path,
    name: &str,
    program: &str,
    flags: &[&str],
) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = folder.join(program);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-o"]).arg(&program).arg(&source).args(flags);
    command.args(["-lm", "-lpthread"]);
    let status = while_starting(|| command.spawn()).unwrap().wait().unwrap();
    assert!(status.success(), "cannot compile {name}");
    program
}

/// Whether there is this compiler.
pub fn compiler(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        println!("NOT RUN: there is no {name}");
    }
    found
}

/// A running program.
pub struct Process {
    pub pid: libc::pid_t,
    reaped: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
        }
    }
}

pub fn null() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/null").unwrap().into()
}

pub fn output(folder: &Path) -> OwnedFd {
    let path = folder.join("stdout");
    File::options().append(true).create(true).open(path).unwrap().into()
}

impl Process {
    /// Starts a program; its output goes nowhere, results are written to files.
    pub fn start(program: &Path, args: &[&str], folder: &Path) -> Process {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output(folder));
        Process::spawn(&mut command)
    }

    pub fn spawn(command: &mut Command) -> Process {
        Process::spawn_with(command, -1).0
    }

    /// The same with the standard streams; the descriptor `keep` is inherited if there is one.
    pub fn spawn_with(command: &mut Command, keep: RawFd) -> (Process, Child) {
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // What the test itself was born with is not the program's.
                libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                libc::fcntl(keep, libc::F_SETFD, 0);
                Ok(())
            });
        }
        let child = while_starting(|| command.spawn()).unwrap();
        (Process { pid: child.id() as libc::pid_t, reaped: false }, child)
    }

    pub fn of(pid: libc::pid_t) -> Process {
        Process { pid, reaped: false }
    }

    /// Stops it and its descendants, or sees that it has ended.
    pub fn stop(&self) {
        halt(self.pid);
    }

    /// Lets it go on after [`Process::stop`].
    pub fn go_on(&self) {
        // SAFETY: our own child.
        unsafe { libc::kill(self.pid, libc::SIGCONT) };
    }

    /// Kills it and all its descendants.
    pub fn kill(&mut self) {
        self.kill_with(Vec::new());
    }

    /// The same with those that were its descendants, should it have ended before them.
    pub fn kill_with(&mut self, mut all: Vec<libc::pid_t>) {
        halt(self.pid);
        all.extend(descendants(self.pid));
        // SAFETY: our own child.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.wait();
        // Each comes to us when its parent is gone.
        while !all.is_empty() {
            all.retain(|&pid| {
                // SAFETY: a descendant that only its parent or we can collect; a live integer.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &mut 0, libc::WNOHANG);
                }
                fs::exists(format!("/proc/{pid}")).unwrap()
            });
        }
    }

    /// Waits for its end and returns the raw status.
    pub fn wait(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: a live integer.
            let r = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) };
            assert!(r >= 0, "waitpid: {}", io::Error::last_os_error());
            if r == self.pid && !libc::WIFSTOPPED(status) {
                self.reaped = true;
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "process {} hangs", self.pid);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What became of it, for the message of a test that fails.
    pub fn fate(&self) -> String {
        // SAFETY: all zeros is a siginfo; our own child, which is left to be collected.
        let (r, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let r = libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, look);
            (r, (info.si_pid(), info.si_code, info.si_status()))
        };
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        format!("waitid {r} {info:?}, stat {stat:?}")
    }

    /// Waits and expects a clean exit.
    pub fn succeed(&mut self) {
        let status = self.wait();
        assert!(libc::WIFEXITED(status), "killed by signal {}", libc::WTERMSIG(status));
        assert_eq!(libc::WEXITSTATUS(status), 0, "exit status");
    }
}

/// Waits for a file by which a program tells how far it is.
pub fn appears(file: &Path) {
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < PATIENCE, "{} does not appear", file.display());
        std::thread::yield_now();
    }
}

/// Stops a process and its descendants, so that none starts another.
fn halt(pid: libc::pid_t) {
    // SAFETY: a process of this test.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    let begun = Instant::now();
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        state.is_some_and(|state| !"TtZX".contains(state))
    };
    while runs() {
        assert!(begun.elapsed() < PATIENCE, "process {pid} does not stop");
        std::thread::yield_now();
    }
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(entry.path().join("children")).unwrap_or_default();
        list.split_whitespace().for_each(|child| halt(child.parse().unwrap()));
    }
}

/// Makes this process the parent of orphans among its descendants.
pub fn adopt_orphans() {
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
}

/// Has threads start processes, which take long to execute their programs, until it is dropped.
pub struct Starts(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Drop for Starts {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The same.
pub fn starts_all_the_time() -> Starts {
    const SLOW: Duration = Duration::from_millis(40);
    let over = Arc::new(AtomicBool::new(false));
    let start = |over: Arc<AtomicBool>| {
        while !over.load(Ordering::Relaxed) {
            let mut command = Command::new("true");
            // SAFETY: a system call only.
            unsafe {
                command.pre_exec(|| {
                    let rest =
                        libc::timespec { tv_sec: 0, tv_nsec: i64::from(SLOW.subsec_nanos()) };
                    libc::nanosleep(&rest, std::ptr::null_mut());
                    Ok(())
                })
            };
            while_starting(|| command.spawn()).unwrap().wait().unwrap();
        }
    };
    let threads = (0..4).map(|_| {
        let over = Arc::clone(&over);
        std::thread::spawn(move || start(over))
    });
    let threads = threads.collect();
    Starts(over, threads)
}

/// Children of a process, whichever of its threads made them.
pub fn children(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(entry.path().join("children")).unwrap_or_default();
        all.extend(list.split_whitespace().map(|n| n.parse::<libc::pid_t>().unwrap()));
    }
    all
}

/// Descendants of a process.
pub fn descendants(pid: libc::pid_t) -> Vec<libc::pid_t> {
    children(pid).into_iter().flat_map(|c| [vec![c], descendants(c)].concat()).collect()
}

/// Freezes, writes an image, lets the process go on.
pub fn checkpoint(pid: libc::pid_t, image: &Path) -> Result<ImageReport, CaptureError> {
    let freeze = |e| match e {
        FreezeError::Gone => CaptureError::Gone,
        other => panic!("{other}"),
    };
    let mut frozen = Frozen::stop(pid).map_err(freeze)?;
    let twin = frozen.twin()?;
    frozen.release().map_err(freeze)?;
    twin.write_image(image, b"meta")
}

pub fn bring_back(image: &Path) -> Process {
    bring_back_with(image, MadeSockets::default())
}

/// The same with sockets that were made together with those of others.
pub fn bring_back_with(image: &Path, sockets: MadeSockets) -> Process {
    Process::of(try_restore(image, sockets).unwrap_or_else(|e| panic!("{e}")))
}

pub fn try_restore(image: &Path, sockets: MadeSockets) -> Result<libc::pid_t, RestoreError> {
    restore(RestoreSpec {
        image,
        restorer: restorer(),
        stdio: [null(), null(), output(image.parent().unwrap())],
        segments: vec![],
        start_stopped: false,
        options: RestoreOptions { sockets, ..Default::default() },
    })
}

/// Runs a program that writes its result to the file `out`, once undisturbed and once frozen,
/// killed and restored `cycles` times at random instants, and compares the results byte for byte.
pub fn survives(name: &str, flags: &[&str], args: &[&str], cycles: usize) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), name, flags);
    program_survives(folder.path(), &program, args, cycles);
}

/// The same with a program that is there.
pub fn program_survives(folder: &Path, program: &Path, args: &[&str], cycles: usize) {
    let name = program.display();
    let result = |which: &str| {
        let sub = folder.join(which);
        fs::create_dir_all(&sub).unwrap();
        sub
    };
    let plain = result("undisturbed");
    let begun = Instant::now();
    Process::start(program, args, &plain).succeed();
    let whole = begun.elapsed().as_micros() as u64;
    let expected = fs::read(plain.join("out")).unwrap();
    assert!(!expected.is_empty());
    let mut random = Random::new();
    // A program that is over too soon is tried again with shorter waits.
    for attempt in 0..8 {
        let sub = result(&format!("run{attempt}"));
        let longest = (whole >> attempt) / (2 * cycles as u64) + 1;
        let mut process = Process::start(program, args, &sub);
        // Some make files that have a name for a moment only. A process that was frozen in that
        // moment cannot come back when the name is gone.
        if plain.join("begun").exists() {
            appears(&sub.join("begun"));
        }
        if !run_cycles(&mut process, &sub, cycles, longest, &mut random) {
            continue;
        }
        let found = fs::read(sub.join("out")).unwrap();
        let mut said = fs::read_to_string(sub.join("stdout")).unwrap_or_default();
        said.truncate(said.floor_char_boundary(8000));
        let out = sub.join("out");
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).into_owned();
        let both = format!("{}\ninstead of\n{}", text(&found), text(&expected));
        assert!(found == expected, "{name}: {}: {both}\n{said}", out.display());
        return;
    }
    panic!("{name} is over before it can be frozen {cycles} times");
}

fn run_cycles(
    process: &mut Process,
    folder: &Path,
    cycles: usize,
    longest_us: u64,
    random: &mut Random,
) -> bool {
    for cycle in 0..cycles {
        std::thread::sleep(Duration::from_micros(random.below(longest_us)));
        let image = folder.join(format!("image{cycle}"));
        let mut family = descendants(process.pid);
        loop {
            match checkpoint(process.pid, &image) {
                Ok(report) => println!("{report:?}"),
                Err(CaptureError::Gone) => return false,
                Err(e) if e.to_string().contains("try again") => {
                    std::thread::yield_now();
                    continue;
                }
                Err(e) => panic!("{e}"),
            }
            break;
        }
        family.extend(descendants(process.pid));
        std::thread::sleep(Duration::from_micros(random.below(longest_us)));
        process.kill_with(family);
        assert_eq!(Image::open(&image).unwrap().meta(), b"meta");
        let begun = Instant::now();
        *process = bring_back(&image);
        println!("restored in {:?}", begun.elapsed());
    }
    let status = process.wait();
    if status != 0 {
        println!("{}", fs::read_to_string(folder.join("stdout")).unwrap_or_default());
    }
    assert_eq!(status, 0, "how it ended");
    true
}

/// Names in a folder.
pub fn files_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Children of this process that run under the name of `comm`, and what they are doing.
pub fn children_named(comm: &str) -> Vec<libc::pid_t> {
    let own = format!("PPid:\t{}", std::process::id());
    let name = format!("Name:\t{comm}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|l| l == own) && status.lines().any(|l| l == name) {
            found.push(entry.file_name().to_str().unwrap().parse().unwrap());
        }
    }
    found
}

/// Runs some tests of this test program once more with these variables set; `count` of them must
/// pass.
pub fn again(tests: &[&str], count: usize, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--nocapture").args(tests).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains(&format!("{count} passed")), "{text}");
}

/// Reads until the program has said that it is there.
pub fn wait_for_line(folder: &Path) {
    while !fs::read_to_string(folder.join("ready")).is_ok_and(|t| t.contains("ready")) {
        std::thread::yield_now();
    }
}

/// Starts `waiting.c` and waits until it is ready. `name` is the test's own, of at most 15 bytes.
pub fn start_waiting(folder: &Path, name: &str, args: &[&str]) -> Process {
    let program = compile_as(folder, "waiting", name, &[]);
    let process = Process::start(&program, args, folder);
    wait_for_line(folder);
    process
}

/// Freezes a program again and again without ever killing it; its result is the undisturbed one.
pub fn does_not_notice(name: &str, args: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), name, &[]);
    let (plain, frozen) = (folder.path().join("undisturbed"), folder.path().join("frozen"));
    fs::create_dir(&plain).unwrap();
    fs::create_dir(&frozen).unwrap();
    Process::start(&program, args, &plain).succeed();
    let expected = fs::read(plain.join("out")).unwrap();
    let mut random = Random::new();
    // On a busy machine it may be over before it was frozen once.
    for _ in 0..8 {
        let mut process = Process::start(&program, args, &frozen);
        let mut images = 0;
        loop {
            match checkpoint(process.pid, &frozen.join("image")) {
                Ok(_) => images += 1,
                Err(CaptureError::Gone) => break,
                Err(e) => panic!("{e}"),
            }
            std::thread::sleep(Duration::from_micros(random.below(5000)));
        }
        process.succeed();
        println!("{images} images");
        assert_eq!(expected, fs::read(frozen.join("out")).unwrap(), "{name}");
        if images > 0 {
            return;
        }
    }
    panic!("{name} is over before it can be frozen");
}

/// Copies a program that is to be run then. Not in this process: what another thread forks would
/// have the new file open for writing until its exec, and such a file cannot be run.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--preserve=mode").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// Runs some tests of this test program once more, without privileges and with the page tables read
/// in the old way; `count` of them must pass.
pub fn as_nobody(name: &str, tests: &[&str], count: usize) {
    as_nobody_with(name, tests, count, &[]);
}

/// The same with copies of files, the paths of which are in variables.
pub fn as_nobody_with(name: &str, tests: &[&str], count: usize, files: &[(&str, &Path)]) {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("all tests of this file already run without privileges");
        return;
    }
    let nobody = 65534;
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(nobody), Some(nobody)).unwrap();
    let exe = folder.path().join(name);
    let built = folder.path().join("eyrie-restorer");
    copy(&std::env::current_exe().unwrap(), &exe);
    copy(restorer(), &built);
    let copied = |&(variable, path): &(&str, &Path)| {
        let to = folder.path().join(variable);
        copy(path, &to);
        (variable.to_string(), to)
    };
    let output = Command::new(&exe)
        .arg("--nocapture")
        .args(tests)
        .envs(files.iter().map(copied))
        .env("EYRIE_TEST_RESTORER", &built)
        .env("EYRIE_IMAGE_NO_PAGEMAP_SCAN", "1")
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .uid(nobody)
        .gid(nobody)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains(&format!("{count} passed")), "{text}");
}

/// Runs some tests of this test program once more, with a variable set; `count` of them must pass.
pub fn again_with(variable: &str, value: &str, tests: &[&str], count: usize) {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("--nocapture")
        .args(tests)
        .env("EYRIE_TEST_RESTORER", restorer())
        .env(variable, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains(&format!("{count} passed")), "{text}");
}
