//! A small daemon for `tests/image` and the benches: it starts or restores one program, and
//! freezes, kills or awaits it as its standard input says, one command a line, one line of answer
//! each.
//!
//!     image-driver start FOLDER -- PROGRAM ARGS     runs a program in FOLDER; output to FOLDER/out
//!     image-driver restore FOLDER IMAGE RESTORER HOW
//!     image-driver points                           lists the fault points
//!
//!     freeze HOW IMAGE DELAY_US   after a delay, freezes and writes an image: `twin`, `sync`,
//!                                 `stream`, or with changes tracked `snapshot:MODE`, rewritten as
//!                                 one file with `+`
//!     fault NUMBER ACTION         arms a fault point: fail, die, kill (the program), kill-others
//!     armed                       disarms; tells whether the point was not passed
//!     kill                        ends the program and all that came of it
//!     wait                        waits for the program's end
//!     left                        other children of this process that are still there
//!
//! Every program dies with this process.

#![allow(unsafe_code)] // signals, waiting for a child
#![allow(unsafe_code)]

use eyrie_image::fault::{self, Action};
use eyrie_image::{
    Ahead, CaptureError, FreezeError, Frozen, Image, ImageReport, Made, Mode, OwnPids,
    RestoreOptions, RestoreSpec, Tracker, Tracking, Watch, receive, restore_lazily,
};
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Answer = Result<String, String>;

fn main() -> ExitCode {
    eyrie_image::give_large_back();
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    if let Err(e) = have_numbers(&words) {
        println!("refused {e}");
        return ExitCode::FAILURE;
    }
    // SAFETY: numbers only. What a killed program leaves behind becomes our child: we see it.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let folder = Path::new(words.get(1).unwrap_or(&""));
    // What the program makes is noted beside the folder in which it works.
    let (made, aside) = (folder.with_extension("made"), folder.with_extension("ahead"));
    let watch = if words.len() > 1 { Watch::start() } else { None };
    watch.iter().for_each(|watch| watch.will_be_in(folder));
    let begun = match words.as_slice() {
        ["points"] => {
            fault::POINTS.iter().for_each(|p| println!("{} {}", p.number, p.what));
            return ExitCode::SUCCESS;
        }
        ["start", folder, "--", program, args @ ..] => {
            let begun = start(Path::new(folder), program, args);
            begun.map(|(pid, said)| (pid, said, vec![]))
        }
        ["restore", folder, image, restorer, how] => {
            let files = RestoreOptions {
                made: Made::read(&made),
                aside: Some(aside),
                ..RestoreOptions::default()
            };
            bring_back(Path::new(folder), Path::new(image), Path::new(restorer), (how, files))
        }
        _ => Err("usage: image-driver start|restore ... (see the source)".into()),
    };
    let (pid, first, touched) = match begun {
        Ok(begun) => begun,
        Err(e) => {
            println!("refused {e}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(watch) = &watch {
        if let Err(e) = watch.note(pid, &made) {
            eprintln!("{}: {e}", made.display());
        }
        watch.follow(pid, &touched);
    }
    println!("{first}");
    let mut tracker = Tracker::new(Tracking::from_env());
    tracker.follow_children();
    watch.iter().for_each(|watch| tracker.watch(Arc::clone(watch)));
    let mut driver = Driver { pid, status: None, tracker, watch };
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let answer = driver.obey(&words).unwrap_or_else(|e| format!("refused {e}"));
        println!("{answer}");
        if io::stdout().flush().is_err() {
            break;
        }
        driver.tracker.prepare();
    }
    driver.kill();
    ExitCode::SUCCESS
}

/// Of an ordinary user's driver: goes where the program can be given its numbers again.
fn have_numbers(words: &[&str]) -> Result<(), String> {
    if let ["restore", _, image, ..] = words {
        let taken = Image::open(Path::new(image)).map(|image| image.numbers());
        eyrie_image::enter_if(OwnPids::Auto, &taken.unwrap_or_default())?;
    }
    Ok(())
}

fn start(folder: &Path, program: &str, args: &[&str]) -> Result<(i32, String), String> {
    let said = |e: io::Error| format!("{program}: {e}");
    let output = |name: &str| -> io::Result<File> {
        File::options().append(true).create(true).open(folder.join(name))
    };
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EYRIE_") {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(folder).stdin(File::open("/dev/null").map_err(said)?);
    command.stdout(output("out").map_err(said)?).stderr(output("err").map_err(said)?);
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    let pid = command.spawn().map_err(said)?.id() as i32;
    Ok((pid, format!("started {pid}")))
}

fn bring_back(
    folder: &Path,
    image: &Path,
    restorer: &Path,
    (how, files): (&str, RestoreOptions),
) -> Result<(i32, String, Vec<PathBuf>), String> {
    // A fault in a restore is armed before it, as "NUMBER:ACTION".
    if let Some((number, action)) = how.split_once(':') {
        arm(number, action, 0)?;
    }
    std::env::set_current_dir(folder).map_err(|e| e.to_string())?;
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let stdio = || -> io::Result<[OwnedFd; 3]> { Ok([null()?, null()?, null()?]) };
    let begun = Instant::now();
    let spec = RestoreSpec {
        image,
        restorer,
        stdio: stdio().map_err(|e| e.to_string())?,
        segments: vec![],
        start_stopped: false,
        options: files,
    };
    let restored = restore_lazily(spec).map_err(|e| e.to_string())?;
    let (pid, took) = (restored.pid, begun.elapsed());
    let notes = restored.files.iter().map(|n| format!("{} {}\n", n.path.display(), n.what));
    let said = File::options().append(true).create(true).open(folder.with_extension("said"));
    let said = said.and_then(|mut file| file.write_all(notes.collect::<String>().as_bytes()));
    said.map_err(|e| e.to_string())?;
    let outer = eyrie_image::outer_pid(pid);
    Ok((pid, format!("restored {outer} us={}", took.as_micros()), restored.touched))
}

/// The program, and how it ended.
struct Driver {
    pid: i32,
    status: Option<i32>,
    /// What is known of its last image.
    tracker: Tracker,
    /// Sees which files it writes to, and makes.
    watch: Option<Arc<Watch>>,
}

impl Driver {
    fn obey(&mut self, words: &[&str]) -> Answer {
        match words {
            ["freeze", how, image, delay_us] => {
                let delay_us = delay_us.parse().map_err(|_| "what delay?")?;
                std::thread::sleep(Duration::from_micros(delay_us));
                self.freeze(how, &PathBuf::from(image))
            }
            ["fault", number, action] => arm(number, action, self.pid),
            ["armed"] => Ok(if fault::disarm() { "armed" } else { "struck" }.into()),
            ["kill"] => {
                self.kill();
                Ok("killed".into())
            }
            ["wait"] => Ok(self.wait()),
            ["left"] => {
                let left: Vec<String> = children().iter().map(i32::to_string).collect();
                Ok(format!("left {}", left.join(" ")))
            }
            _ => Err(format!("what is {words:?}?")),
        }
    }

    fn freeze(&mut self, how: &str, image: &Path) -> Answer {
        if self.status.is_some() {
            return Ok("gone".into());
        }
        let begun = Instant::now();
        let still = how.ends_with("sync");
        let report = match how {
            "twin" => twin(self.stop(), image, false),
            "sync" => twin(self.stop(), image, true),
            "stream" => stream(self.stop(), image),
            _ => match how.strip_prefix("shot:").and_then(mode) {
                Some(mode) => self.snapshot(image, mode, how.ends_with('+')),
                None => return Err(format!("no way to freeze is called {how}")),
            },
        };
        match report {
            Ok(r) => Ok(format!(
                "frozen bytes={} pages={} referred={} stood_us={} twin_us={} pull_us={} \
                 write_us={} us={}",
                r.bytes,
                r.pages,
                r.referred_pages,
                if still { begun.elapsed() } else { r.freeze }.as_micros(),
                r.twin.as_micros(),
                r.pull.as_micros(),
                r.write.as_micros(),
                begun.elapsed().as_micros(),
            )),
            Err(CaptureError::Gone) => Ok("gone".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn stop(&self) -> Result<Frozen, CaptureError> {
        let mut frozen = Frozen::stop(self.pid).map_err(frozen_error)?;
        self.watch.iter().for_each(|watch| frozen.was_watched(Arc::clone(watch)));
        Ok(frozen)
    }

    /// By whichever way, tracking changes; the file may refer to earlier ones, unless it is
    /// rewritten so that it needs none.
    fn snapshot(
        &mut self,
        image: &Path,
        mode: Mode,
        whole: bool,
    ) -> Result<ImageReport, CaptureError> {
        let ahead =
            Ahead::begin(self.pid, image, &mut self.tracker, mode, &mut None, &false.into());
        let mut frozen = Frozen::stop(self.pid).map_err(frozen_error)?;
        let snapshot = frozen.snapshot_after(ahead, image, &mut self.tracker, mode)?;
        let report = if snapshot.choice().mode == Mode::Sync {
            let report = snapshot.write_image(b"", &mut self.tracker)?;
            frozen.release().map_err(frozen_error)?;
            report
        } else {
            frozen.release().map_err(frozen_error)?;
            snapshot.write_image(b"", &mut self.tracker)?
        };
        if whole {
            let done = self.tracker.consolidate();
            done.map_err(|e| CaptureError::Unsupported(format!("has a chain of images: {e}")))?;
        }
        Ok(report)
    }

    /// Ends the program and whatever descends from this process: first all stand still, so that
    /// none reacts to the end of another.
    fn kill(&mut self) {
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            // Whose it was is known while it is there.
            self.watch.iter().for_each(|watch| watch.take(0));
            for pid in descendants() {
                // SAFETY: a descendant of ours, whose number is not given away before we collect it
                // or its parent, which stands still, does.
                unsafe { libc::kill(pid, signal) };
            }
        }
        self.wait();
        // What it made last is noted, too.
        self.watch.iter().for_each(|watch| watch.take(0));
        while !children().is_empty() {
            let mut status = 0;
            // SAFETY: a live integer; there are children to be waited for.
            unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        }
    }

    fn wait(&mut self) -> String {
        let status = match self.status {
            Some(status) => status,
            None => loop {
                let mut status = 0;
                // SAFETY: our own child and a live integer.
                let r = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
                if r < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                    continue;
                }
                if r != self.pid || !libc::WIFSTOPPED(status) {
                    break status;
                }
            },
        };
        self.status = Some(status);
        if libc::WIFEXITED(status) {
            format!("exited {}", libc::WEXITSTATUS(status))
        } else {
            format!("signalled {}", libc::WTERMSIG(status))
        }
    }
}

fn mode(name: &str) -> Option<Mode> {
    Some(match name.trim_end_matches('+') {
        "auto" => Mode::Auto,
        "copy" => Mode::Copy,
        "twin" => Mode::Twin,
        "sync" => Mode::Sync,
        _ => return None,
    })
}

fn frozen_error(e: FreezeError) -> CaptureError {
    match e {
        FreezeError::Gone => CaptureError::Gone,
        other => CaptureError::Unsupported(format!("could not be stopped: {other}")),
    }
}

/// By twin; `still` keeps the process frozen until the image is durable.
fn twin(
    frozen: Result<Frozen, CaptureError>,
    image: &Path,
    still: bool,
) -> Result<ImageReport, CaptureError> {
    let mut frozen = frozen?;
    let twin = frozen.twin()?;
    if still || twin.must_stand() {
        let report = twin.write_image(image, b"")?;
        frozen.release().map_err(frozen_error)?;
        return Ok(report);
    }
    frozen.release().map_err(frozen_error)?;
    twin.write_image(image, b"")
}

/// Sent while it is pulled, to a thread that stores it.
fn stream(frozen: Result<Frozen, CaptureError>, image: &Path) -> Result<ImageReport, CaptureError> {
    let mut frozen = frozen?;
    let twin = frozen.twin()?;
    let still = twin.must_stand();
    if !still {
        frozen.go_on().map_err(frozen_error)?;
    }
    let ends = UnixStream::pair();
    let (to, mut from) =
        ends.map_err(|source| CaptureError::Os { what: "make a pair of sockets", source })?;
    let report = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(&mut from, image));
        let report = twin.write_stream(to, b"")?;
        match receiver.join() {
            Ok(received) => Ok(received.map(|_| report)?),
            Err(_) => Err(CaptureError::Unsupported("was received by a thread that died".into())),
        }
    });
    if still {
        frozen.release().map_err(frozen_error)?;
    }
    report
}

fn arm(number: &str, action: &str, pid: i32) -> Answer {
    let number = number.parse().map_err(|_| "which fault point?")?;
    let action = match action {
        "fail" => Action::Fail,
        "die" => Action::Die,
        "kill" => Action::Kill(pid),
        "kill-others" => Action::KillChildrenBut(pid),
        _ => return Err(format!("no action is called {action}")),
    };
    fault::arm(number, action);
    Ok("armed".into())
}

/// Every process with its parent.
fn parents() -> Vec<(i32, i32)> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

fn children() -> Vec<i32> {
    let own = std::process::id() as i32;
    parents().into_iter().filter(|p| p.1 == own).map(|p| p.0).collect()
}

fn descendants() -> Vec<i32> {
    let all = parents();
    let mut found = vec![std::process::id() as i32];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(all.iter().filter(|p| p.1 == parent).map(|p| p.0));
        next += 1;
    }
    found.split_off(1)
}
