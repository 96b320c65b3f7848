//! `eyrie-image restart`: an image becomes our child, with our standard streams.

use crate::args::{AppendedMode, FilesMode, Keeping, Restart, parse_mapping};
use crate::supervise::{self, Started};
use crate::{find, home, orphans, program, say, signals, take};
use anyhow::{Context, anyhow};
use eyrie_image::{
    Appended, FileNote, Files, Image, Made, OwnPids, RestoreError, RestoreOptions, RestoreSpec,
    Summary, Untrusted, check_private,
};
use eyrie_terminal::{Failure, Progress, end_progress, told, units};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Descriptors of ours that are handed over have numbers from here on.
const HIGH_FD: libc::c_int = 200;
/// Longest wait for killed processes to be gone, and how long at a time.
const GOING_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// A smaller image is there before anybody asks how far it is.
const SHOWN_BYTES: u64 = 64 << 20;

pub fn restart(args: &Restart) -> Result<i32, Failure> {
    let restorer = restorer()?;
    let rules = rules()?;
    let home = home::home()?;
    let (images, entry) = find::images(&home, &args.image)?;
    let Found { path: image, summary, files, numbers, family } = newest_whole(&images)?;
    let Summary { comm, cwd, .. } = summary;
    let files = args.keeping.files.or(files);
    have_numbers(args.keeping.own_pids(), &numbers, family)
        .with_context(|| format!("cannot restart {}", image.display()))?;
    let held = signals::hold();
    orphans::adopt();
    let name = image_name(&image).unwrap_or_else(|| program::short_name(OsStr::new(&comm)));
    let folder = match &entry {
        Some(entry) => home::adopt(entry)?,
        None => home::create(&home, &name)?,
    };
    let keeping = Keeping { files, ..args.keeping.clone() };
    let watch = supervise::watch(&cwd, &keeping);
    let made = entry.as_ref().map_or(image.parent().unwrap_or(Path::new("/")), |e| &e.path);
    let seen_made = Made::read(&made.join(home::MADE));
    let size = std::fs::metadata(&image).map_or(0, |meta| meta.len());
    let what = format!("restoring {}", units::bytes(size));
    let progress = Progress::working(&what, size < SHOWN_BYTES);
    let options = RestoreOptions {
        files: files.map_or(Files::Auto, FilesMode::mode),
        aside: Some(home::aside(&home, &folder.name)),
        made: seen_made,
        // From then on the terminal is the program's.
        ready: Some(end_progress),
        ..options(args, rules)
    };
    let made = eyrie_image::restore_lazily(RestoreSpec {
        image: &image,
        restorer: &restorer,
        stdio: stdio()?,
        segments: Vec::new(),
        start_stopped: false,
        options,
    });
    drop(progress);
    let (pid, touched) = match made {
        Ok(restored) => {
            for what in &restored.left_out {
                say(&format!("restored without its {what}"));
            }
            restored.files.iter().for_each(tell_of_file);
            if let Some(why) = restored.why_not_lazy.filter(|_| args.keeping.verbose) {
                say(&format!("all memory was read before the program runs: {why}"));
            }
            (restored.pid, restored.touched)
        }
        Err(error) => {
            if let Some(record) = entry.as_ref().and_then(|e| e.record.as_ref()) {
                folder.announce(record)?;
            }
            folder.close(true);
            return Err(refusal(&image, error).into());
        }
    };
    let command = match entry.and_then(|e| e.record) {
        Some(record) => record.command,
        None => format!("{comm} (from {})", image.display()),
    };
    let started = Started { pid, folder, name, command, touched, watch, set: held.set };
    supervise::supervise(started, &keeping)
}

/// Names a file of rules that change addresses of sockets.
const RULES: &str = "EYRIE_IMAGE_RULES";

/// The rules of that file, one a line; `#` begins a comment.
fn rules() -> anyhow::Result<Vec<(IpAddr, IpAddr)>> {
    let Some(path) = std::env::var_os(RULES).filter(|path| !path.is_empty()) else {
        return Ok(Vec::new());
    };
    let shown = || format!("{RULES}={}", Path::new(&path).display());
    let text = std::fs::read_to_string(&path).with_context(shown)?;
    read_rules(&text).with_context(shown)
}

fn read_rules(text: &str) -> anyhow::Result<Vec<(IpAddr, IpAddr)>> {
    let lines = (1..).zip(text.lines().map(|line| line.split('#').next().unwrap_or("").trim()));
    let rules = lines.filter(|(_, line)| !line.is_empty());
    let rule = |(number, line)| parse_mapping(line).map_err(|why| anyhow!("line {number}: {why}"));
    rules.map(rule).collect()
}

/// What the command line says of it; what is typed goes before `rules` of a file.
fn options(args: &Restart, rules: Vec<(IpAddr, IpAddr)>) -> RestoreOptions {
    RestoreOptions {
        ignore_features: args.ignore_feature.clone(),
        lazy: args.lazy.map(Duration::from_millis),
        addresses: args.map_address.iter().copied().chain(rules).collect(),
        appended: match args.appended {
            AppendedMode::Auto => Appended::Auto,
            AppendedMode::Cut => Appended::Cut,
            AppendedMode::Keep => Appended::Keep,
        },
        ..RestoreOptions::default()
    }
}

/// The program that turns itself into the process, installed beside us or in `../libexec`.
pub fn restorer() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe().context("cannot find the eyrie-image binary itself")?;
    let bin = binary.parent().unwrap_or(Path::new("/"));
    let root = bin.parent().unwrap_or(Path::new("/"));
    let places = [root.join("libexec/eyrie-restorer"), bin.join("eyrie-restorer")];
    places.into_iter().find(|p| p.is_file()).ok_or_else(|| {
        anyhow!(
            "the program eyrie-restorer is missing beside {} and in ../libexec: install it",
            binary.display()
        )
    })
}

/// An image that is whole.
struct Found {
    path: PathBuf,
    /// What it is of.
    summary: Summary,
    /// What was said of files.
    files: Option<FilesMode>,
    /// Those of its processes and threads.
    numbers: Vec<i32>,
    /// Whether it has several processes.
    family: bool,
}

/// The first image that is whole.
fn newest_whole(images: &[PathBuf]) -> anyhow::Result<Found> {
    let mut refused = None;
    for path in images {
        match trusted(path).and_then(|()| Ok(Image::open(path)?)) {
            Ok(image) => {
                return Ok(Found {
                    path: path.clone(),
                    summary: image.summary(),
                    files: take::files_of(image.meta()),
                    numbers: image.numbers(),
                    family: !image.children().is_empty(),
                });
            }
            Err(error) => {
                let error = error.context(format!("cannot use {}", path.display()));
                if let Some(earlier) = refused.replace(error) {
                    say(&format!("{}; the one before is taken", told(&earlier)));
                }
            }
        }
    }
    Err(refused.unwrap_or_else(|| anyhow!("there is no image")))
}

/// What an image holds runs as whoever restarts it: it must not be another user's.
fn trusted(image: &Path) -> anyhow::Result<()> {
    check_private(image).map_err(|why| match why {
        Untrusted::Owner { owner, .. } => anyhow!(
            "it belongs to user {owner}, and what it holds would run as you: copy it, if you trust \
             that user"
        ),
        Untrusted::Mode { path, mode } => anyhow!(
            "it can be written to by others (mode {mode:04o}), and what it holds would run as you: \
             look whether it is yours, then: chmod go-w '{}'",
            path.display()
        ),
        other => other.into(),
    })
}

/// Goes where the processes can be given their numbers. Without that a program with children is
/// refused, before anything is done.
fn have_numbers(own: OwnPids, numbers: &[i32], family: bool) -> anyhow::Result<()> {
    // What was killed just now, with all that it had started, may not be gone yet.
    let end = Instant::now() + GOING_LIMIT;
    while numbers.iter().any(|pid| is_going(*pid)) && Instant::now() < end {
        std::thread::sleep(PAUSE);
    }
    let entered = eyrie_image::enter_if(own, numbers).map_err(|why| anyhow!(why))?;
    if !entered && family {
        eyrie_image::may_bring_numbers_back(own).map_err(|why| {
            anyhow!("it has child processes, which have to get their numbers again: {why}")
        })?;
    }
    Ok(())
}

/// Whether a process has been killed, or has ended, and has its number still.
fn is_going(pid: i32) -> bool {
    /// The kernel's `PF_EXITING`.
    const EXITING: u64 = 0x4;
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (status, stat) = (read("status"), read("stat"));
    let is_pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        set.is_some_and(|set| u64::from_str_radix(set.trim(), 16).unwrap_or(0) & KILL != 0)
    };
    // The name before may hold anything; the flags are the 9th of proc_pid_stat(5).
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
    let exits = flags.and_then(|word| word.parse::<u64>().ok()).is_some_and(|f| f & EXITING != 0);
    exits || status.lines().any(is_pending)
}

/// Says what became of a file that was not as it was.
fn tell_of_file(note: &FileNote) {
    say(&format!("{} {}", note.path.display(), note.what));
}

/// What an image of ours is named after.
fn image_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(home::SUFFIX)?;
    let (name, number) = name.rsplit_once('.')?;
    number.parse::<u64>().ok().filter(|_| !name.is_empty()).map(|_| name.to_string())
}

fn refusal(image: &Path, error: RestoreError) -> anyhow::Error {
    let image = image.display();
    match error {
        RestoreError::Segment(_) => {
            anyhow!("{image} is of a rank of an MPI job, which only its job can restore")
        }
        error if is_foreign_address(&error) => anyhow!(error).context(format!(
            "cannot restart {image} (an address of its sockets is not one of this machine: \
             --map-address OLD=NEW names another)"
        )),
        error => anyhow!(error).context(format!("cannot restart {image}")),
    }
}

/// Whether a socket could not get its address because this machine does not have it.
fn is_foreign_address(error: &RestoreError) -> bool {
    let kind = io::ErrorKind::AddrNotAvailable;
    matches!(error, RestoreError::Os { source, .. } if source.kind() == kind)
}

/// Our standard streams, out of the way of the program's own descriptors.
fn stdio() -> anyhow::Result<[OwnedFd; 3]> {
    let one = |fd: libc::c_int| -> io::Result<OwnedFd> {
        // SAFETY: duplicates a descriptor; the result is checked.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH_FD) };
        if copy >= 0 {
            // SAFETY: just made, and nobody else's.
            return Ok(unsafe { OwnedFd::from_raw_fd(copy) });
        }
        Ok(File::options().read(true).write(true).open("/dev/null")?.into())
    };
    Ok([one(0)?, one(1)?, one(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_killed_is_going_until_it_is_collected() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        assert!(!is_going(pid));
        child.kill().unwrap();
        while !is_going(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_going(pid));
    }

    #[test]
    fn images_keep_their_name() {
        assert_eq!(image_name(Path::new("/x/a.b.3.img")), Some("a.b".into()));
        for other in ["/x/a.img", "/x/.3.img", "/x/a.3"] {
            assert_eq!(image_name(Path::new(other)), None, "{other}");
        }
    }
}
