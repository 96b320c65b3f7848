//! A connection to the daemon of a job, and the questions that several commands ask it.

use anyhow::{Context, anyhow, bail};
use eyrie_control::{ClientMsg, Decoder, Event, JobStatus, NodeMsg, PROTOCOL, encode};
use eyrie_state::home::{self, JobEntry};
use eyrie_state::saved_job::SavedJob;
use eyrie_terminal::{FAILED, Failure};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest wait for an answer that needs no work.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Between two attempts to reach a new controller.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to a job's daemon.
pub struct Client {
    socket: UnixStream,
    decoder: Decoder,
    /// The other side has hung up.
    over: bool,
}

impl Client {
    pub fn connect(job: &JobEntry) -> anyhow::Result<Client> {
        let gone = || format!("cannot reach job {}", job.id);
        let folder = File::open(&job.path).with_context(gone)?;
        let (remote, greeting) = Client::reach(job, &folder).with_context(gone)?;
        match greeting {
            NodeMsg::Hello { protocol: PROTOCOL } => Ok(remote),
            NodeMsg::Hello { protocol } => bail!(
                "job {} speaks protocol {protocol}, this eyrie {PROTOCOL}: use the one that \
                 started it",
                job.id
            ),
            other => bail!("unexpected greeting: {other:?}"),
        }
    }

    /// Waits for the next controller, if the job has a journal by which one goes on.
    fn reach(job: &JobEntry, folder: &File) -> anyhow::Result<(Client, NodeMsg)> {
        let end = Instant::now() + ANSWER_LIMIT;
        loop {
            let reached = Client::greet(folder);
            let others = job.path.join(home::JOURNAL).exists() && Instant::now() < end;
            // Who has another one started holds the lock.
            if reached.is_ok() || !others || !home::is_alive(&job.path) {
                return reached;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn greet(folder: &File) -> anyhow::Result<(Client, NodeMsg)> {
        let socket = UnixStream::connect(home::short_path(folder, home::SOCKET))?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut remote = Client { socket, decoder: Decoder::new(), over: false };
        remote.send(&ClientMsg::Hello { protocol: PROTOCOL })?;
        let greeting = remote.next()?;
        Ok((remote, greeting))
    }

    /// A connection to who plays a job.
    #[cfg(test)]
    pub fn to(socket: UnixStream) -> Client {
        Client { socket, decoder: Decoder::new(), over: false }
    }

    pub fn send(&mut self, message: &ClientMsg) -> anyhow::Result<()> {
        let written = self.socket.write_all(&encode(message)?);
        self.over |= written.is_err();
        Ok(written?)
    }

    /// How long answers may take.
    pub fn limit(&mut self, limit: Duration) -> anyhow::Result<()> {
        Ok(self.socket.set_read_timeout(Some(limit))?)
    }

    /// Whether the other side has hung up.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Waits for that, so long; nothing else is expected.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut buffer = [0u8; 1024];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.limit(left).is_err() {
                return false;
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => self.over = true,
                Ok(count) => self.decoder.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.over = true,
            }
            if self.over {
                return true;
            }
        }
    }

    /// The next message; an error answer is an error.
    pub fn next(&mut self) -> anyhow::Result<NodeMsg> {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            match self.decoder.next_message()? {
                Some(NodeMsg::Error(text)) => bail!(text),
                Some(message) => return Ok(message),
                None => {}
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    self.over = true;
                    bail!("the job has ended")
                }
                Ok(count) => self.decoder.push(&buffer[..count]),
                // This process was stopped (Ctrl-Z) and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // A daemon that died with our question unread resets the connection.
                    self.over |= error.kind() == ErrorKind::ConnectionReset;
                    return Err(error).context("no answer from the job's daemon");
                }
            }
        }
    }

    /// The same, if it comes within so long.
    pub fn next_within(&mut self, limit: Duration) -> anyhow::Result<Option<NodeMsg>> {
        self.limit(limit)?;
        let late = |error: &anyhow::Error| {
            let cause = error.root_cause().downcast_ref::<std::io::Error>();
            cause.is_some_and(|e| [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()))
        };
        match self.next() {
            Err(error) if late(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub fn ask(job: &JobEntry, message: &ClientMsg) -> anyhow::Result<NodeMsg> {
        let mut remote = Client::connect(job)?;
        remote.send(message)?;
        remote.next()
    }

    /// For answers that take as long as they take.
    pub fn send_unlimited(mut self, message: &ClientMsg) -> anyhow::Result<Client> {
        self.socket.set_read_timeout(None)?;
        self.send(message)?;
        Ok(self)
    }
}

pub fn find(name: &str) -> Result<JobEntry, Failure> {
    Ok(home::resolve(&home::home()?, name)?)
}

/// The job that a name means, which has a daemon.
pub fn find_running(name: &str) -> Result<JobEntry, Failure> {
    let job = find(name)?;
    if job.alive {
        return Ok(job);
    }
    let id = &job.id;
    let (what, then) = match (job.saved, job.resumable) {
        (_, true) => ("waits for a controller", format!("eyrie resume {id} goes on with it")),
        (true, _) => ("is saved, and does not run", format!("eyrie restart {id} goes on with it")),
        (false, false) => ("has ended", format!("eyrie status {id} shows how it was")),
    };
    Err(Failure::new(FAILED, anyhow!("job {id} {what}")).remedy(then))
}

/// No job's last status is longer.
const MAX_STATUS_BYTES: u64 = 1 << 30;

/// How a job is, or was at its last: when it was saved, or when it ended and was kept.
pub fn job_status(job: &JobEntry) -> anyhow::Result<JobStatus> {
    if !job.alive {
        let ended = eyrie_image::read_plain(&job.path.join(home::ENDED), MAX_STATUS_BYTES).ok();
        let text = match ended.filter(|_| !job.saved) {
            Some(text) => text,
            None => SavedJob::read(&job.path).context("its status is gone")?.status,
        };
        return serde_json::from_slice(&text).context("its status does not decode");
    }
    match Client::ask(job, &ClientMsg::Status)? {
        NodeMsg::Status(status) => Ok(*status),
        other => bail!("unexpected answer: {other:?}"),
    }
}

/// The events of a job that runs, from number `from` on.
pub fn events_from(job: &JobEntry, from: u64) -> anyhow::Result<Vec<Event>> {
    let mut remote = Client::connect(job)?;
    remote.send(&ClientMsg::Events { from, follow: false })?;
    let mut all = Vec::new();
    loop {
        match remote.next()? {
            NodeMsg::Event(event) => all.push(*event),
            NodeMsg::Done => return Ok(all),
            other => bail!("unexpected answer: {other:?}"),
        }
    }
}

/// Whether the job goes on when its controller dies, and has not ended.
pub fn outlives(job: &JobEntry) -> bool {
    job.path.join(home::JOURNAL).exists() && home::is_alive(&job.path)
}

/// Gives an order that is answered by `Done` alone.
pub fn order(job: &JobEntry, ask: &ClientMsg) -> anyhow::Result<()> {
    match Client::ask(job, ask)? {
        NodeMsg::Done => Ok(()),
        other => bail!("unexpected answer: {other:?}"),
    }
}

/// Waits until an order that was sent is carried out.
pub fn await_done(mut remote: Client) -> anyhow::Result<()> {
    match remote.next()? {
        NodeMsg::Done => Ok(()),
        other => bail!("unexpected answer: {other:?}"),
    }
}
