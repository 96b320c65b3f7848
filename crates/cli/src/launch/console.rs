//! The console of a job: terminal on one side, daemon on the other.
//!
//! Kept true: output comes out in the order that the daemon sends, parted by lines (`lines`);
//! signals that were ignored when we started stay ignored; nothing but `Exit` gives an exit code.

use crate::batch::system;
use crate::batch::time_left::{self, TimeLimit};
use crate::client::{self, Client};
use crate::launch::background;
use crate::launch::lines::{Lines, Shown};
use crate::launch::sender::Sender;
use crate::messages::say;
use crate::options::metrics::Metrics;
use crate::show::recoveries::{self, RecoveryReporter};
use crate::show::tables;
use anyhow::{Context, bail};
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::{
    ClientMsg, Decoder, Event, EventKind, JobStatus, NodeMsg, PROTOCOL, Stream, encode,
};
use eyrie_process::signals::signal_name;
use eyrie_state::history;
use eyrie_state::home;
use eyrie_state::printed_counts as printed;
use eyrie_state::saved_job::SavedJob;
use eyrie_terminal::{Progress, end_progress};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The signals that are passed on, and what stops a command in a terminal, and with it the job.
pub const HELD: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
];

/// The signals that are passed on.
pub const PASSED: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// How often it is looked whether what died is back, while something is away.
const LOOK: Duration = Duration::from_millis(250);

/// What of a job is shown.
#[derive(Debug)]
pub struct ConsoleOptions {
    /// The rank before each line.
    pub label: bool,
    /// Nothing of deaths that are recovered from.
    pub quiet: bool,
    /// To Prometheus.
    pub metrics: Metrics,
}

/// The console of one job.
pub struct Console {
    quiet: bool,
    /// Every event is shown as it comes.
    verbose: bool,
    recoveries: RecoveryReporter,
    since: Instant,
    /// Why a node was just lost: the daemon says that, too.
    lost: Option<String>,
    sender: Sender,
    lines: Lines,
    /// Which outputs are terminals.
    terminals: [bool; 2],
    /// Somebody may type, or write, what rank 0 reads.
    asks: Arc<AtomicBool>,
    /// The job's folder.
    folder: PathBuf,
    printed: Printed,
    exit: Option<i32>,
    /// Standard output takes no more.
    cut: bool,
    /// Another controller has the job.
    pub deposed: Option<String>,
    signals: Option<libc::sigset_t>,
    /// The batch system's, of a job that can be saved.
    limit: Option<TimeLimit>,
    /// Of a saved job that comes back: which ranks are there, until all are.
    restoring: Option<Restoring>,
}

/// Ranks of a saved job that are there again.
struct Restoring {
    size: u32,
    there: BTreeSet<u32>,
    progress: Progress,
}

/// What was printed, in a file that outlives the daemon and us.
struct Printed {
    file: Option<File>,
    bytes: HashMap<u64, u64>,
}

impl Printed {
    /// Goes on with the file if there is one.
    fn open(path: &Path) -> Printed {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).ok();
        Printed { file, bytes: HashMap::new() }
    }

    fn add(&mut self, rank: u32, stream: Stream, bytes: usize) {
        let Some(file) = &self.file else { return };
        let at = printed::place(rank, stream);
        let known = self.bytes.entry(at).or_insert_with(|| {
            let mut word = [0; printed::WORD_BYTES as usize];
            let read = file.read_exact_at(&mut word, at).ok();
            read.and_then(|()| printed::count(at, word)).unwrap_or(0)
        });
        *known += bytes as u64;
        let _ = file.write_all_at(&printed::word(at, *known), at);
    }
}

impl Restoring {
    /// Of those ranks that had not ended when the job was saved.
    fn of(saved: &SavedJob, quiet: bool) -> Option<Restoring> {
        let status: JobStatus = serde_json::from_slice(&saved.status).ok()?;
        let size = status.ranks.iter().filter(|rank| rank.state != "exited").count() as u32;
        let progress = Progress::counted("restoring", size.into(), "ranks", quiet);
        Some(Restoring { size, there: BTreeSet::new(), progress })
    }

    /// An event has come; whether nobody is missed any more.
    fn all_are_there(&mut self, event: &Event) -> bool {
        let comes = [EventKind::Started, EventKind::Restored, EventKind::Exited];
        self.there.extend(event.rank.filter(|_| comes.contains(&event.event)));
        self.progress.set(self.there.len() as u64);
        self.there.len() as u32 >= self.size || event.event == EventKind::Ended
    }
}

impl Console {
    /// `folder`: the job's, where what is printed is counted. `signals` are passed on.
    pub fn new(
        shows: &ConsoleOptions,
        (order, saved): (&ClientMsg, Option<&SavedJob>),
        folder: &Path,
        signals: libc::sigset_t,
    ) -> Console {
        let (verbose, limit) = match order {
            ClientMsg::Start(spec) | ClientMsg::Restart(spec) => {
                (spec.program.verbose, time_left::limit(spec))
            }
            ClientMsg::Resume { verbose } => (*verbose, None),
            _ => (false, None),
        };
        // SAFETY: only asks.
        let terminals = [1, 2].map(|fd| unsafe { libc::isatty(fd) } == 1);
        Console {
            quiet: shows.quiet,
            verbose,
            recoveries: RecoveryReporter::default(),
            since: Instant::now(),
            lost: None,
            sender: Sender::default(),
            lines: Lines::new(shows.label, terminals == [true; 2]),
            terminals,
            asks: Arc::new(AtomicBool::new(is_answered())),
            folder: folder.to_path_buf(),
            printed: Printed::open(&folder.join(home::PRINTED)),
            exit: None,
            cut: false,
            deposed: None,
            signals: Some(signals),
            limit,
            restoring: saved.and_then(|saved| Restoring::of(saved, shows.quiet || verbose)),
        }
    }

    /// Gives the order to start the job or to go on with it, and stays with the daemon. `None`: it
    /// went away without an exit code.
    pub fn converse(
        &mut self,
        mut socket: UnixStream,
        order: &ClientMsg,
    ) -> anyhow::Result<Option<i32>> {
        let frame = encode(order).context("the program's arguments are too long")?;
        // A daemon that is gone already is noticed below.
        let _ = socket.write_all(&encode(&ClientMsg::Hello { protocol: PROTOCOL })?);
        let _ = socket.write_all(&frame);
        let resumes = matches!(order, ClientMsg::Resume { .. });
        self.sender.attach(socket.try_clone().context("socket")?, !resumes);
        if let Some(signals) = self.signals.take() {
            pass_signals(signals, self.sender.clone(), self.folder.clone())?;
            pass_input(self.sender.clone(), Arc::clone(&self.asks))?;
            if let Some(limit) = self.limit {
                save_ahead(limit, self.sender.clone())?;
            }
        }
        let mut decoder = Decoder::new();
        let mut buffer = vec![0u8; 256 * 1024];
        loop {
            while let Some(message) = decoder.next_message::<NodeMsg>()? {
                self.take(message, &socket)?;
            }
            socket.set_read_timeout(self.recoveries.waits().then_some(LOOK)).context("socket")?;
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(self.exit),
                Ok(count) => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Who was away may be back for good.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let lines = self.recoveries.tick(self.since.elapsed());
                    self.tell(&lines);
                }
                Err(_) => return Ok(self.exit),
            }
        }
    }

    /// No daemon comes any more: what was kept is printed. The job's exit code, if it has one.
    pub fn close(&mut self) -> Option<i32> {
        self.restoring = None;
        for (rank, stream, shown) in self.lines.rest() {
            self.print(rank, stream, &shown, None);
        }
        self.sender.close();
        self.exit
    }

    /// What the job has been through, if anything died or all is to be told.
    pub fn sum_up(&mut self) {
        let of = |home: &Path| history::of(home, self.folder.file_name()?.to_str()?);
        let home = self.folder.parent().and_then(Path::parent);
        let Some(found) = home.and_then(of).filter(|_| !self.quiet) else { return };
        if self.verbose || found.record.account.is_eventful() {
            recoveries::summary(&found.record).iter().for_each(|line| self.say(line));
        }
    }

    /// Something happened.
    fn follow(&mut self, event: &Event) {
        self.restoring.take_if(|restoring| restoring.all_are_there(event));
        if event.event == EventKind::NodeLost {
            self.lost = Some(format!(" is lost: {}", event.text));
        }
        let lines = self.recoveries.take(event, self.since.elapsed());
        match self.verbose {
            true => self.say(&tables::event_line(event)),
            false => self.tell(&lines),
        }
    }

    fn tell(&mut self, lines: &[String]) {
        if !self.quiet && !self.verbose {
            lines.iter().for_each(|line| self.say(line));
        }
    }

    /// What the daemon says. That a node is lost is no news for who wants none, and is told with
    /// its ranks if it had any.
    fn pass_on(&mut self, text: &str) {
        let lost = self.lost.take_if(|lost| text.ends_with(lost.as_str())).is_some();
        if lost && (self.quiet || self.verbose || self.recoveries.takes(text)) {
            return;
        }
        let first: Vec<String> = self.recoveries.first().into_iter().collect();
        self.tell(&first);
        self.say(text);
    }

    /// A line of Eyrie's own.
    fn say(&mut self, text: &str) {
        if self.terminals[1] && self.lines.ends(Stream::Stderr) {
            let _ = io::stderr().write_all(b"\n");
        }
        say(text);
    }

    fn take(&mut self, message: NodeMsg, socket: &UnixStream) -> anyhow::Result<()> {
        match message {
            NodeMsg::Hello { protocol } if protocol != PROTOCOL => {
                bail!("the daemon speaks protocol {protocol}, not {PROTOCOL}")
            }
            NodeMsg::StdinCredit(bytes) => self.sender.credit(bytes),
            NodeMsg::StdinFrom { known, limit } => self.sender.input_from(known, limit),
            NodeMsg::Output { rank, stream, bytes } => self.output(rank, stream, &bytes, socket),
            NodeMsg::Say(text) => self.pass_on(&text),
            NodeMsg::Error(text) => self.pass_on(&text),
            NodeMsg::Event(event) => self.follow(&event),
            NodeMsg::Verdict { ok, text } => {
                let head = if ok == Some(false) { "NOT deterministic under replay: " } else { "" };
                let line = format!("eyrie verify: {head}{text}\n");
                self.write(Stream::Stdout, line.as_bytes(), Some(socket));
            }
            NodeMsg::Deposed { text } => self.deposed = Some(text),
            NodeMsg::Exit { code } => {
                self.exit.get_or_insert(code);
            }
            _ => {}
        }
        Ok(())
    }

    fn output(&mut self, rank: u32, stream: Stream, bytes: &[u8], socket: &UnixStream) {
        // A prompt; to a file or another program it goes only as somebody may answer.
        let asks = rank == 0 && self.asks.load(Ordering::Relaxed);
        let at_once = asks || self.terminals[stream as usize];
        let shown = self.lines.take(rank, stream, bytes, at_once);
        self.print(rank, stream, &shown, Some(socket));
    }

    fn print(&mut self, rank: u32, stream: Stream, shown: &Shown, socket: Option<&UnixStream>) {
        if !shown.text.is_empty() {
            self.write(stream, &shown.text, socket);
            self.printed.add(rank, stream, shown.bytes);
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8], socket: Option<&UnixStream>) {
        // From here on the terminal is the program's.
        self.restoring = None;
        if stream == Stream::Stderr {
            let _ = io::stderr().lock().write_all(bytes);
        } else if !self.cut
            && let Err(error) = eyrie_terminal::write_out(bytes)
        {
            self.cut_off(&error, socket);
        }
    }

    /// Standard output takes no more: the job ends by our hanging up, if it has not ended.
    fn cut_off(&mut self, error: &io::Error, socket: Option<&UnixStream>) {
        self.cut = true;
        let (code, why) = eyrie_terminal::refused(error);
        let ends = if self.exit.is_none() { "; the job ends" } else { "" };
        say(&format!("cannot write to standard output: {why}{ends}"));
        if self.exit.is_none_or(|code| code == eyrie_terminal::exit::DONE) {
            self.exit = Some(code);
        }
        socket.into_iter().for_each(|socket| drop(socket.shutdown(Shutdown::Write)));
    }
}

/// Whether our standard input may have an answer to what a program asks: it is no file, and not
/// `/dev/null`.
fn is_answered() -> bool {
    // SAFETY: stat is plain data for which zero is valid, and a valid place for the answer.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(0, &mut stat) != 0 {
            return false;
        }
        stat
    };
    match stat.st_mode & libc::S_IFMT {
        // SAFETY: only asks.
        libc::S_IFCHR => unsafe { libc::isatty(0) == 1 },
        kind => kind == libc::S_IFIFO || kind == libc::S_IFSOCK,
    }
}

/// Passes signals to the daemon.
fn pass_signals(set: libc::sigset_t, sender: Sender, folder: PathBuf) -> anyhow::Result<()> {
    let wait = move || {
        let mut asked = false;
        loop {
            let mut signal = 0;
            // SAFETY: both places are valid; the set was blocked before any thread began.
            if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
                return;
            }
            if signal == libc::SIGTSTP {
                stop_with_job(&folder);
                continue;
            }
            end_progress();
            if signal == libc::SIGINT && !asked {
                asked = true;
                say("ending the job; press Ctrl-C again to kill it");
            }
            match signal {
                _ if system::ends_by(signal) => {
                    say("SIGUSR2: the batch system ends the job");
                    signal = libc::SIGTERM;
                }
                libc::SIGUSR1 | libc::SIGUSR2 => {
                    say(&format!("{} is passed on to all ranks", signal_name(signal)));
                }
                libc::SIGHUP => say("SIGHUP: the job ends"),
                _ => {}
            }
            if !sender.send(&ClientMsg::Signal(signal)) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("thread")?;
    Ok(())
}

/// Has the job saved before the batch system ends it.
fn save_ahead(limit: TimeLimit, sender: Sender) -> anyhow::Result<()> {
    let wait = move || {
        let seconds = limit.wait().as_secs();
        say(&format!("the batch system ends the job in {seconds} s: it is saved before that"));
        sender.send(&ClientMsg::Signal(libc::SIGQUIT));
    };
    std::thread::Builder::new().name("limit".into()).spawn(wait).context("thread")?;
    Ok(())
}

/// Ctrl-Z: the job stands still as long as this command does.
fn stop_with_job(folder: &Path) {
    let job = home::entry(folder.to_path_buf());
    let ask = |message: &ClientMsg| -> anyhow::Result<()> {
        let job = job.as_ref().context("there is no job yet")?;
        client::await_done(Client::connect(job)?.send_unlimited(message)?)
    };
    let stands = ask(&ClientMsg::Suspend { swap: false });
    if let Err(error) = &stands {
        let why = eyrie_terminal::told(error);
        say(&format!("the job does not stand still with this command: {why}"));
    }
    // SAFETY: the disposition and mask are this process's and this thread's own; no other thread
    // lets the signal through. In a session that nobody could continue us in, it does nothing.
    unsafe {
        let mut stop: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut stop);
        libc::sigaddset(&mut stop, libc::SIGTSTP);
        libc::signal(libc::SIGTSTP, libc::SIG_DFL);
        libc::raise(libc::SIGTSTP);
        // Here we stand.
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &stop, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &stop, std::ptr::null_mut());
    }
    if stands.is_ok()
        && let Err(error) = ask(&ClientMsg::Continue)
    {
        say(&format!("the job does not go on: {}", eyrie_terminal::told(&error)));
    }
}

/// Passes standard input to the daemon, as much as it gives credit for.
fn pass_input(sender: Sender, asks: Arc<AtomicBool>) -> anyhow::Result<()> {
    // In the background of a terminal a read would stop us, and with us the output of the job;
    // ignored, it fails, and who reads waits until `fg`.
    // SAFETY: changes a disposition of this process only; daemons get the default.
    unsafe { libc::signal(libc::SIGTTIN, libc::SIG_IGN) };
    let pass = move || {
        let mut buffer = vec![0u8; MAX_DATA_BYTES.min(64 * 1024)];
        while let Some(room) = sender.room() {
            let most = room.min(buffer.len());
            match io::stdin().lock().read(&mut buffer[..most]) {
                Ok(0) => break,
                Ok(count) => sender.input(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if background::waits_for_terminal(&error) => {
                    std::thread::sleep(LOOK);
                }
                Err(_) => break,
            }
        }
        asks.store(false, Ordering::Relaxed);
        sender.end_input();
    };
    std::thread::Builder::new().name("stdin".into()).spawn(pass).context("thread")?;
    Ok(())
}
