//! The command line.

use anyhow::{Context, anyhow};
use clap::Args;
use eyrie_agent::replay::{Progress, Replay as Rerun, Word};
use eyrie_process::spawn::{self, Prefix};
use eyrie_protocol::output::{Difference, Tape};
use eyrie_state::home;
use eyrie_terminal::{FAILED, Failure, print, units};
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie run --keep -n 4 ./farm 100\n  \
    eyrie replay ~/.eyrie/jobs/k7mq/images/rank-2.gen-3\n  \
    eyrie replay ~/.eyrie/jobs/k7mq/images/rank-2.gen-3 --gdb\n  \
    eyrie replay rank-2.gen-3 --gdb -- -batch -ex continue -ex backtrace\n\n\
    `eyrie run --keep` leaves images and logs in the job's folder. The rank gets the messages and\n\
    outcomes that it got then; what it sends is compared. Where it asks for what nobody recorded,\n\
    it stops, in gdb with the call at hand. Its output is compared and, in gdb or with --output,\n\
    shown.\n\n\
    Exit code: the program's own if it ends (128 + signal if one kills it), 0 at the end of its\n\
    log, 1 if what it did differs from what was recorded; with --gdb that of gdb.")]
pub struct Replay {
    /// The image of the rank
    pub image: PathBuf,
    /// Its log [default: rank-N.log beside the image]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Start it stopped, under gdb
    #[arg(long)]
    pub gdb: bool,
    /// Show what it writes
    #[arg(long)]
    pub output: bool,
    /// As JSON
    #[arg(long, conflicts_with = "gdb")]
    pub json: bool,
    /// More arguments for gdb
    #[arg(last = true, value_name = "GDB ARGS", requires = "gdb")]
    pub gdb_args: Vec<OsString>,
}

/// Longest sleep between two looks at the process.
const LOOK: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 64 * 1024;

/// How the rank ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Said(Word),
    Exited(i32),
    Killed(i32),
}

/// What came of a stream of its output.
#[derive(Debug, Default)]
struct Compared {
    bytes: u64,
    difference: Option<Difference>,
}

pub fn replay(args: &Replay) -> Result<i32, Failure> {
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let restorer = Prefix::of(&binary).restorer.ok_or_else(|| {
        anyhow!("the program eyrie-restorer is missing beside {} and in ../libexec: install it", {
            binary.display()
        })
    })?;
    let replay = Rerun::open(&args.image, args.log.as_deref()).map_err(anyhow::Error::from)?;
    let (out, out_theirs) = io::pipe().context("pipe")?;
    let (err, err_theirs) = io::pipe().context("pipe")?;
    let stdio = [input(&args.image, &replay)?, out_theirs.into(), err_theirs.into()];
    let sent = replay.sent();
    let begun = Instant::now();
    let pid = replay.start(&restorer, stdio, args.gdb).map_err(anyhow::Error::from)?;
    let pidfd = spawn::pidfd(pid).context("cannot watch the process");
    let pidfd = pidfd.inspect_err(|_| kill(pid))?;
    let shown = args.output || args.gdb;
    let listeners = [listen(&replay, 0, out, shown), listen(&replay, 1, err, shown)];
    let (end, debugger) = match args.gdb {
        false => (watch(&replay, &pidfd), None),
        true => {
            let code = debug(args, &replay, pid).inspect_err(|_| kill(pid))?;
            (finish(&replay, &pidfd, None), Some(code))
        }
    };
    kill(pid);
    let took = begun.elapsed();
    let output = listeners.map(|l| l.and_then(|l| l.join().ok()).unwrap_or_default());
    let report = Report { replay: &replay, progress: replay.progress(sent), took, end, output };
    if args.json {
        print(&(serde_json::to_string_pretty(&report.json())? + "\n"));
    } else {
        print(&report.text());
    }
    Ok(debugger.unwrap_or_else(|| report.code()))
}

/// Standard input as the rank had it: rank 0 reads on in what was kept of the job's.
fn input(image: &Path, replay: &Rerun) -> anyhow::Result<OwnedFd> {
    let kept = image.with_file_name(home::STDIN);
    match File::open(&kept) {
        Ok(mut file) if replay.meta.rank == 0 => {
            file.seek(SeekFrom::Start(replay.meta.input)).context("standard input")?;
            Ok(file.into())
        }
        _ => Ok(File::open("/dev/null")?.into()),
    }
}

/// Starts the thread that compares one stream with what was recorded.
fn listen(
    replay: &Rerun,
    stream: usize,
    mut pipe: PipeReader,
    shown: bool,
) -> Option<JoinHandle<Compared>> {
    let (first, bytes) = replay.recorded_output()[stream];
    let mut tape = Tape::recorded(first, bytes, replay.meta.output[stream]);
    let compare = move || {
        let mut compared = Compared::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let n = match pipe.read(&mut buffer) {
                Ok(0) => return compared,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return compared,
            };
            compared.bytes += n as u64;
            if compared.difference.is_none() {
                compared.difference = tape.feed(&buffer[..n]).err();
            }
            if shown {
                // Whether it can be shown changes nothing.
                let _ = match stream {
                    0 => io::stdout().write_all(&buffer[..n]).and_then(|()| io::stdout().flush()),
                    _ => io::stderr().write_all(&buffer[..n]),
                };
            }
        }
    };
    thread::Builder::new().name("output".into()).spawn(compare).ok()
}

/// Waits until the rank ends or says why it cannot go on.
fn watch(replay: &Rerun, pidfd: &OwnedFd) -> End {
    let mut seen = 0;
    loop {
        if let Some(word) = replay.word() {
            return finish(replay, pidfd, Some(word));
        }
        if let Some(end) = ended(pidfd) {
            // What it said with its last breath counts.
            return finish(replay, pidfd, replay.word()).or(end);
        }
        replay.listen(&mut seen, LOOK);
    }
}

fn finish(replay: &Rerun, pidfd: &OwnedFd, word: Option<Word>) -> End {
    match word.or_else(|| replay.word()) {
        Some(word) => End::Said(word),
        None => ended(pidfd).unwrap_or(End::Killed(libc::SIGKILL)),
    }
}

impl End {
    /// What it said, or else how it ended.
    fn or(self, other: End) -> End {
        if matches!(self, End::Said(_)) { self } else { other }
    }
}

/// How the process ended, if it has; it is left to be collected.
fn ended(pidfd: &OwnedFd) -> Option<End> {
    // SAFETY: siginfo_t is plain data for which zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let id = pidfd.as_raw_fd() as libc::id_t;
    // SAFETY: a valid place for the answer.
    if unsafe { libc::waitid(libc::P_PIDFD, id, &mut info, options) } != 0 {
        return None;
    }
    // SAFETY: these two fields are the ones that waitid sets.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    match (pid, info.si_code) {
        (0, _) => None,
        (_, libc::CLD_EXITED) => Some(End::Exited(status)),
        _ => Some(End::Killed(status)),
    }
}

/// Kills and collects the process.
fn kill(pid: libc::pid_t) {
    // SAFETY: our own child, not collected yet: the number is its own.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
    }
}

/// Runs gdb on the process and tells beside it when the log ends; returns gdb's exit code.
fn debug(args: &Replay, replay: &Rerun, pid: libc::pid_t) -> anyhow::Result<i32> {
    let mut command = Command::new("gdb");
    command.arg("-q");
    let own = std::fs::read_link(format!("/proc/{pid}/exe"));
    if own.is_ok_and(|path| path != Path::new(&replay.exe)) {
        // Without privileges the process goes on bearing the restorer's name.
        command.args(["-iex", "set exec-file-mismatch off"]);
    }
    command.arg(&replay.exe).args(["-p", &pid.to_string()]);
    // It waits for gdb in such a stop; the program has nothing to do with it.
    command.args(["-ex", "handle SIGSTOP nostop noprint nopass"]);
    command.args(&args.gdb_args);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
        // Ctrl-C is for gdb.
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
    let mut gdb = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => anyhow!("gdb is not installed"),
        _ => anyhow!("cannot start gdb: {e}"),
    })?;
    let over = AtomicBool::new(false);
    let status = thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            let mut told = None;
            while !over.load(Ordering::Acquire) {
                let word = replay.word();
                if let Some(word) = word.filter(|w| told.as_ref() != Some(w)) {
                    eprintln!("eyrie: {}", describe(&word));
                    told = Some(word);
                }
                replay.listen(&mut seen, LOOK);
            }
        });
        let status = gdb.wait();
        over.store(true, Ordering::Release);
        status
    });
    let status = status.context("gdb")?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn describe(word: &Word) -> String {
    match word {
        Word::LogEnded(why) => format!("the log ends here: {why}"),
        Word::Diverged(what) => format!("it differs from what was recorded: {what}"),
        Word::Aborted(why) => format!("it called MPI_Abort: {why}"),
    }
}

/// What there is to tell at the end.
struct Report<'a> {
    replay: &'a Rerun,
    progress: Progress,
    took: Duration,
    end: End,
    output: [Compared; 2],
}

impl Report<'_> {
    fn differs(&self) -> bool {
        let output = self.output.iter().any(|o| o.difference.is_some());
        output || matches!(self.end, End::Said(Word::Diverged(_)))
    }

    fn code(&self) -> i32 {
        match &self.end {
            _ if self.differs() => FAILED,
            End::Exited(code) => *code,
            End::Killed(signal) => 128 + signal,
            End::Said(_) => 0,
        }
    }

    fn end_text(&self) -> String {
        match &self.end {
            End::Said(word) => describe(word),
            End::Exited(code) => format!("it ended with exit code {code}"),
            End::Killed(signal) => format!("it was killed by signal {signal}"),
        }
    }

    fn text(&self) -> String {
        let (meta, progress) = (&self.replay.meta, &self.progress);
        let mut text = format!(
            "rank {} of job {} from checkpoint {}: {} events and sends reproduced, {} sent anew, \
             {} received since its start, {}\n",
            meta.rank,
            meta.job,
            meta.generation,
            progress.reproduced,
            progress.sent_anew,
            progress.received,
            units::millis(self.took.as_secs_f64() * 1e3)
        );
        for (name, output) in ["standard output", "standard error"].iter().zip(&self.output) {
            text += &match &output.difference {
                Some(d) => format!(
                    "{name} DIFFERS at byte {}: it was {:?}, now it is {:?}\n",
                    d.position, d.before, d.now
                ),
                None if output.bytes == 0 => continue,
                None => format!("{name}: {} bytes, as recorded\n", output.bytes),
            };
        }
        text + &self.end_text() + "\n"
    }

    fn json(&self) -> serde_json::Value {
        let (meta, progress) = (&self.replay.meta, &self.progress);
        let kind = match &self.end {
            End::Said(Word::LogEnded(_)) => "log-ended",
            End::Said(Word::Diverged(_)) => "diverged",
            End::Said(Word::Aborted(_)) => "aborted",
            End::Exited(_) => "exited",
            End::Killed(_) => "killed",
        };
        let output = self.output.iter().map(|o| {
            let difference = o.difference.as_ref();
            json!({
                "bytes": o.bytes,
                "differs_at": difference.map(|d| d.position),
                "before": difference.map(|d| &d.before),
                "now": difference.map(|d| &d.now),
            })
        });
        json!({
            "job": meta.job, "rank": meta.rank, "checkpoint": meta.generation,
            "reproduced": progress.reproduced, "sent_anew": progress.sent_anew,
            "received": progress.received, "took_ms": self.took.as_secs_f64() * 1e3,
            "end": kind, "text": self.end_text(), "code": self.code(),
            "output": output.collect::<Vec<_>>(),
        })
    }
}
