//! The console of a job: terminal on one side, daemon on the other.
//!
//! Kept true: output comes out in the order and in the pieces the daemon sends (whole lines);
//! signals that were ignored when we started stay ignored; nothing but `Exit` gives an exit code.

use crate::sender::Sender;
use crate::show;
use anyhow::{Context, bail};
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::{ClientMsg, Decoder, NodeMsg, PROTOCOL, Stream, encode};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Exit code when our standard output was closed, as for a program killed by SIGPIPE.
const BROKEN_PIPE: i32 = 128 + libc::SIGPIPE;

/// The signals that are passed on.
pub const PASSED: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// The console of one job.
pub struct Console {
    sender: Sender,
    label: bool,
    printed: Printed,
    exit: Option<i32>,
    /// Another controller has the job.
    pub deposed: Option<String>,
    signals: Option<libc::sigset_t>,
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
        let at = (u64::from(rank) * 2 + stream as u64) * 8;
        let known = self.bytes.entry(at).or_insert_with(|| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at).map_or(0, |()| u64::from_le_bytes(word))
        });
        *known += bytes as u64;
        let _ = file.write_all_at(&known.to_le_bytes(), at);
    }
}

impl Console {
    /// `printed`: where what is printed is counted. `signals` are passed on.
    pub fn new(label: bool, printed: &Path, signals: libc::sigset_t) -> Console {
        let (sender, printed) = (Sender::default(), Printed::open(printed));
        Console { sender, label, printed, exit: None, deposed: None, signals: Some(signals) }
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
            pass_signals(signals, self.sender.clone())?;
            pass_input(self.sender.clone())?;
        }
        let mut decoder = Decoder::new();
        let mut buffer = vec![0u8; 256 * 1024];
        loop {
            while let Some(message) = decoder.next_message::<NodeMsg>()? {
                self.take(message, &socket)?;
            }
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(self.exit),
                Ok(count) => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(self.exit),
            }
        }
    }

    /// No daemon comes any more.
    pub fn close(&self) {
        self.sender.close();
    }

    fn take(&mut self, message: NodeMsg, socket: &UnixStream) -> anyhow::Result<()> {
        match message {
            NodeMsg::Hello { protocol } if protocol != PROTOCOL => {
                bail!("the daemon speaks protocol {protocol}, not {PROTOCOL}")
            }
            NodeMsg::StdinCredit(bytes) => self.sender.credit(bytes),
            NodeMsg::StdinFrom { known, limit } => self.sender.input_from(known, limit),
            NodeMsg::Output { rank, stream, bytes } => self.output(rank, stream, &bytes, socket),
            NodeMsg::Say(text) => say(&text),
            NodeMsg::Error(text) => say(&text),
            NodeMsg::Event(event) => say(&show::event_line(&event)),
            NodeMsg::Verdict { ok, text } => {
                let head = if ok == Some(false) { "NOT deterministic under replay: " } else { "" };
                let line = format!("eyrie verify: {head}{text}\n");
                self.write(Stream::Stdout, line.as_bytes(), socket);
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
        if !self.label {
            self.write(stream, bytes, socket);
            return self.printed.add(rank, stream, bytes.len());
        }
        let mut labelled = Vec::with_capacity(bytes.len() + 64);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            labelled.extend_from_slice(format!("[{rank}] ").as_bytes());
            labelled.extend_from_slice(line);
        }
        if labelled.last() != Some(&b'\n') {
            labelled.push(b'\n');
        }
        self.write(stream, &labelled, socket);
        self.printed.add(rank, stream, bytes.len());
    }

    fn write(&mut self, stream: Stream, bytes: &[u8], socket: &UnixStream) {
        let result = match stream {
            Stream::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        };
        if result.is_err() && stream == Stream::Stdout && self.exit.is_none() {
            // Nobody reads on: end the job by hanging up.
            self.exit = Some(BROKEN_PIPE);
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

pub fn say(text: &str) {
    eyrie_terminal::say(crate::NAME, text);
}

/// Passes signals to the daemon.
fn pass_signals(set: libc::sigset_t, sender: Sender) -> anyhow::Result<()> {
    let wait = move || {
        let mut asked = false;
        loop {
            let mut signal = 0;
            // SAFETY: both places are valid; the set was blocked before any thread began.
            if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
                return;
            }
            if signal == libc::SIGINT && !asked {
                asked = true;
                say("ending the job; press Ctrl-C again to kill it");
            }
            if !sender.send(&ClientMsg::Signal(signal)) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("thread")?;
    Ok(())
}

/// Passes standard input to the daemon, as much as it gives credit for.
fn pass_input(sender: Sender) -> anyhow::Result<()> {
    // In the background of a terminal a read would stop us; ignored, it ends the input instead.
    // SAFETY: changes a disposition of this process only; daemons get the default.
    unsafe { libc::signal(libc::SIGTTIN, libc::SIG_IGN) };
    let pass = move || {
        let mut buffer = vec![0u8; MAX_DATA_BYTES.min(64 * 1024)];
        while let Some(room) = sender.room() {
            let most = room.min(buffer.len());
            match io::stdin().lock().read(&mut buffer[..most]) {
                Ok(0) => return sender.end_input(),
                Ok(count) => sender.input(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return sender.end_input(),
            }
        }
    };
    std::thread::Builder::new().name("stdin".into()).spawn(pass).context("thread")?;
    Ok(())
}
