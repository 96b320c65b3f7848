//! Being a program's parent: images at intervals and on request, signals, its end.
//!
//! Kept true: at most one image is being taken at a time; the command ends only when the program
//! has ended and no thread touches it any more; images stay if it was ended by somebody else, and
//! it is said where.

use crate::args::{Keeping, Way};
use crate::home::{self, Held, RunRecord};
use crate::protocol::{Request, Written};
use crate::signals::{self, Seen};
use crate::take::Manner;
use crate::{orphans, say, serve, take};
use anyhow::{Context, bail};
use eyrie_image::{Image, Tracker, Tracking, Watch, collect_end, outer_pid};
use eyrie_terminal::{Failure, told, units};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether processes that the program has left behind have ended.
const LOOK_MS: libc::c_int = 1000;

/// A child that was just started, and what we know of it.
pub struct Started {
    pub pid: libc::pid_t,
    pub folder: Held,
    /// Images are named so.
    pub name: String,
    pub command: String,
    /// Files that it is known to write to without keeping them open.
    pub touched: Vec<PathBuf>,
    /// Sees which files it writes to, if that is wanted and can be seen.
    pub watch: Option<Arc<Watch>>,
    /// Signals that wait to be passed on.
    pub set: libc::sigset_t,
}

/// What the threads share.
pub struct Program {
    pid: libc::pid_t,
    dir: PathBuf,
    name: String,
    keep: usize,
    verbose: bool,
    manner: Manner,
    watch: Option<Arc<Watch>>,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    /// It has ended, or is about to be collected: not to be touched any more.
    over: bool,
    /// Number of the next image that is named by us.
    next: u64,
    /// Those there are, oldest first.
    images: Vec<PathBuf>,
    /// What is known of the last of them.
    tracker: Tracker,
    /// Why the last one that nobody asked for failed.
    complaint: String,
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
}

/// Stays with the program to its end; returns the exit code.
pub fn supervise(started: Started, keeping: &Keeping) -> Result<i32, Failure> {
    let Started { pid, folder, name, command, touched, watch, set } = started;
    let seen = Seen::default();
    if let Some(watch) = &watch {
        // Without it a restart finds in its way what the program makes from now on.
        let _ = watch.note(pid, &folder.path.join(home::MADE));
        watch.follow(pid, &touched);
    }
    let begun = begin((pid, watch), &folder, name.clone(), &command, set, keeping, seen.clone());
    let (program, pidfd) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            kill(pid);
            folder.close(true);
            return Err(error.into());
        }
    };
    let end = wait(&pidfd, || program.collect());
    // What it made last is noted, too.
    program.watch.iter().for_each(|watch| watch.take(0));
    program.close();
    tell_of_orphans(pid);
    let end = end.context("cannot wait for the program")?;
    let goes_on = goes_on(end, |signal| seen.has(signal));
    tell_of_images(&name, end, goes_on, (&folder, keeping.dir.as_deref()));
    folder.close(goes_on);
    match end {
        End::Exit(code) => Ok(code),
        End::Signal(signal) => Ok(128 + signal),
    }
}

/// Whether the program may be meant to go on from its images: not if it ended by itself, or was
/// ended at its terminal. `passed_on`: whether it got a signal through us.
fn goes_on(end: End, passed_on: impl Fn(i32) -> bool) -> bool {
    match end {
        End::Exit(0) => false,
        // It may have done so because it was told to end.
        End::Exit(_) => [libc::SIGTERM, libc::SIGHUP].into_iter().any(passed_on),
        End::Signal(signal @ (libc::SIGINT | libc::SIGQUIT)) => !passed_on(signal),
        End::Signal(_) => true,
    }
}

/// Says where the images are of a program that was ended, and how it goes on; or that they go.
fn tell_of_images(name: &str, end: End, goes_on: bool, (folder, dir): (&Held, Option<&Path>)) {
    let count = home::images(dir.unwrap_or(&folder.path)).len();
    let how = match end {
        End::Signal(signal) => format!("was ended by signal {signal}"),
        End::Exit(code) => format!("was told to end, and did with exit code {code}"),
    };
    match (count, dir) {
        (0, _) => {}
        (_, Some(dir)) if goes_on => say(&format!(
            "{name} {how}; `eyrie-image restart {}` goes on from its last checkpoint",
            dir.display()
        )),
        (_, None) if goes_on => say(&format!(
            "{name} {how}; its checkpoints are in {}: `eyrie-image restart {}` goes on from the \
             last one",
            folder.path.display(),
            folder.name
        )),
        (_, None) if matches!(end, End::Signal(_)) => {
            say(&format!("{name} {how}; its checkpoints are removed (--dir DIR keeps them)"));
        }
        _ => {}
    }
}

/// Says who the program has left behind. They may be meant to go on, so nobody ends them here.
fn tell_of_orphans(pid: libc::pid_t) {
    let left = orphans::alive(pid);
    if !left.is_empty() {
        say(&format!("the program has ended; {left}, started by it, goes on"));
    }
}

/// Everything that can fail before the program is just waited for.
fn begin(
    (pid, watch): (libc::pid_t, Option<Arc<Watch>>),
    folder: &Held,
    name: String,
    command: &str,
    set: libc::sigset_t,
    keeping: &Keeping,
    seen: Seen,
) -> anyhow::Result<(Arc<Program>, OwnedFd)> {
    let dir = match &keeping.dir {
        None => folder.path.clone(),
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            fs::canonicalize(dir).with_context(|| format!("cannot use {}", dir.display()))?
        }
    };
    let pidfd = pidfd(pid).context("cannot watch the program")?;
    let passed = pidfd.try_clone().context("descriptor")?;
    // SAFETY: plain system calls.
    let same_group = unsafe { libc::getpgid(pid) == libc::getpgrp() };
    let images: Vec<PathBuf> =
        home::images(&dir).into_iter().filter(|p| number(p, &name).is_some()).collect();
    let next = images.iter().filter_map(|p| number(p, &name)).max().map_or(1, |n| n + 1);
    let mut tracker = Tracker::new(Tracking::from_env());
    watch.iter().for_each(|watch| tracker.watch(Arc::clone(watch)));
    let state = State { over: false, next, images, tracker, complaint: String::new() };
    let program = Arc::new(Program {
        pid,
        dir: dir.clone(),
        name,
        keep: keeping.keep as usize,
        verbose: keeping.verbose,
        manner: Manner {
            orphans: keeping.orphans,
            files: keeping.files,
            files_limit: keeping.files_limit,
            own_pids: keeping.own_pids(),
        },
        watch,
        state: Mutex::new(state),
        ended: Condvar::new(),
    });
    signals::pass_on(set, passed, same_group, seen)?;
    serve::listen(folder, Arc::clone(&program))?;
    if let Some(every) = keeping.every {
        let (program, way) = (Arc::clone(&program), keeping.way);
        let run = move || program.at_intervals(Duration::from_millis(every), way);
        std::thread::Builder::new().name("interval".into()).spawn(run).context("thread")?;
    }
    // As those who look for them see them.
    let supervisor = eyrie_image::own_outer_pid() as i32;
    let record = RunRecord { pid: outer_pid(pid), supervisor, dir, command: command.into() };
    folder.announce(&record)?;
    Ok((program, pidfd))
}

/// Begins to look which files a program writes to that will work in a folder.
pub fn watch(folder: &Path, keeping: &Keeping) -> Option<Arc<Watch>> {
    let wanted = keeping.files_limit > 0;
    let watch = if wanted { Watch::start() } else { None }?;
    if let Ok(home) = home::home() {
        watch.leave_out(&home);
        watch.leave_out(&home::aside(&home, ""));
    }
    watch.will_be_in(folder);
    Some(watch)
}

/// The number in the name of an image of `program`.
fn number(path: &Path, program: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(program)?.strip_prefix('.')?.strip_suffix(home::SUFFIX)?.parse().ok()
}

impl Program {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left nothing half done here that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an image; waits while another one is being taken.
    pub fn checkpoint(&self, request: &Request) -> anyhow::Result<Written> {
        let mut state = self.state();
        if state.over {
            bail!("the program has ended");
        }
        self.watch.iter().for_each(|watch| watch.look(self.pid));
        let path = match &request.output {
            Some(path) => path.clone(),
            None => self.dir.join(format!("{}.{}{}", self.name, state.next, home::SUFFIX)),
        };
        // Only those that we keep an eye on are built upon.
        let written = if request.output.is_some() {
            let mut alone = Tracker::new(Tracking::Off);
            self.watch.iter().for_each(|watch| alone.watch(Arc::clone(watch)));
            take::take(self.pid, &path, request.way, self.manner, &mut alone)?
        } else {
            if request.way.full {
                state.tracker.restart();
            }
            let written =
                take::take(self.pid, &path, request.way, self.manner, &mut state.tracker)?;
            state.next += 1;
            state.images.push(path);
            state.tracker.prepare();
            self.tidy(&mut state);
            written
        };
        if self.verbose {
            say(&describe(&written));
        }
        Ok(written)
    }

    /// Removes images that are not to be kept, unless one that is needs them.
    fn tidy(&self, state: &mut State) {
        if state.tracker.is_scattered() {
            // If it does not work the images stay as they are.
            let _ = state.tracker.tidy();
        }
        let spare = state.images.len().saturating_sub(self.keep);
        let kept = state.images.split_off(spare);
        let needed: HashSet<OsString> =
            kept.iter().filter_map(|path| Image::needs(path).ok()).flatten().collect();
        let is_needed = |path: &PathBuf| path.file_name().is_some_and(|n| needed.contains(n));
        state.images.retain(|path| is_needed(path) || eyrie_image::remove_image(path).is_err());
        state.images.extend(kept);
    }

    fn at_intervals(&self, every: Duration, way: Way) {
        let mut due = Instant::now() + every;
        loop {
            let mut state = self.state();
            while !state.over {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.ended.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.over {
                return;
            }
            drop(state);
            let result = self.checkpoint(&Request { output: None, way });
            self.complain(result.err());
            // Time that a checkpoint took is not made up for.
            due = Instant::now() + every;
        }
    }

    /// A reason is told when it is new.
    fn complain(&self, error: Option<anyhow::Error>) {
        let mut state = self.state();
        let ended = state.over || error.as_ref().is_some_and(take::is_end);
        let text = error.map(|e| told(&e)).unwrap_or_default();
        if !ended && !text.is_empty() && text != state.complaint {
            say(&text);
        }
        state.complaint = text;
    }

    /// Collects what the program has left behind and has ended. While an image is being taken its
    /// twins are there, which are not to be touched.
    fn collect(&self) {
        if let Ok(_held) = self.state.try_lock() {
            orphans::collect(self.pid);
        }
    }

    /// Waits until no thread touches the program, and keeps them from it.
    fn close(&self) {
        self.state().over = true;
        self.ended.notify_all();
    }
}

/// An image as a line.
pub fn describe(written: &Written) -> String {
    format!(
        "{}: {}, {} % of its pages unchanged, stood still {}, took {}",
        written.image.display(),
        units::bytes(written.bytes),
        written.unchanged_pages * 100 / (written.pages + written.unchanged_pages).max(1),
        units::millis(written.pause_ms),
        units::millis(written.took_ms)
    )
}

fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the process is our child and not collected.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn kill(pid: libc::pid_t) {
    // SAFETY: our own child, not collected yet.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
    }
}

/// Waits for the end of the process, and collects it. Looks at others now and then.
fn wait(pidfd: &OwnedFd, look: impl Fn()) -> io::Result<End> {
    let fd = pidfd.as_raw_fd();
    loop {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry.
        let polled = unsafe { libc::poll(&mut poll, 1, LOOK_MS) };
        if polled == 0 {
            look();
            continue;
        }
        if polled < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        match collect_end(libc::P_PIDFD, fd as libc::id_t)? {
            // A thread that takes a checkpoint has yet to see that it is over.
            None => std::thread::sleep(Duration::from_millis(1)),
            Some((libc::CLD_EXITED, status)) => return Ok(End::Exit(status)),
            Some((_, signal)) => return Ok(End::Signal(signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn who_was_told_to_end_may_go_on() {
        let goes_on = |end, signal| goes_on(end, |other| other == signal);
        assert!(!goes_on(End::Exit(0), libc::SIGTERM) && !goes_on(End::Exit(1), libc::SIGINT));
        assert!(goes_on(End::Exit(143), libc::SIGTERM) && goes_on(End::Exit(1), libc::SIGHUP));
        assert!(goes_on(End::Signal(libc::SIGTERM), libc::SIGTERM));
        assert!(goes_on(End::Signal(libc::SIGKILL), 0));
        let ctrl_c = End::Signal(libc::SIGINT);
        assert!(!goes_on(ctrl_c, libc::SIGINT) && goes_on(ctrl_c, libc::SIGTERM));
    }

    #[test]
    fn images_are_told_by_their_names() {
        assert_eq!(number(Path::new("/x/heat.12.img"), "heat"), Some(12));
        for other in ["/x/heat.img", "/x/heat.a.img", "/x/heat2.1.img", "/x/heat.1.tmp"] {
            assert_eq!(number(Path::new(other), "heat"), None);
        }
    }
}
