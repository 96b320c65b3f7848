//! The commands that ask a running job's daemon.

use crate::args::{Abort, Checkpoint, Events, Fault, Grow, Inject, Ps, Status};
use crate::hosts;
use crate::show;
use anyhow::{Context, anyhow, bail};
use eyrie_control::{ClientMsg, Decoder, Event, JobStatus, NodeMsg, PROTOCOL, encode};
use eyrie_node::home::{self, JobEntry};
use eyrie_node::saved::SavedJob;
use eyrie_terminal::{FAILED, Failure, USAGE, print, units};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest wait for an answer that needs no work.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Between two attempts to reach a new controller.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to a job's daemon.
pub(crate) struct Remote {
    socket: UnixStream,
    decoder: Decoder,
    /// The other side has hung up.
    over: bool,
}

impl Remote {
    pub fn connect(job: &JobEntry) -> anyhow::Result<Remote> {
        let gone = || format!("cannot reach job {}", job.id);
        let folder = File::open(&job.path).with_context(gone)?;
        let (remote, greeting) = Remote::reach(job, &folder).with_context(gone)?;
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
    fn reach(job: &JobEntry, folder: &File) -> anyhow::Result<(Remote, NodeMsg)> {
        let end = Instant::now() + ANSWER_LIMIT;
        loop {
            let reached = Remote::greet(folder);
            let others = job.path.join(home::JOURNAL).exists() && Instant::now() < end;
            // Who has another one started holds the lock.
            if reached.is_ok() || !others || !home::is_alive(&job.path) {
                return reached;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn greet(folder: &File) -> anyhow::Result<(Remote, NodeMsg)> {
        let socket = UnixStream::connect(home::short_path(folder, home::SOCKET))?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut remote = Remote { socket, decoder: Decoder::new(), over: false };
        remote.send(&ClientMsg::Hello { protocol: PROTOCOL })?;
        let greeting = remote.next()?;
        Ok((remote, greeting))
    }

    /// A connection to who plays a job.
    #[cfg(test)]
    pub fn to(socket: UnixStream) -> Remote {
        Remote { socket, decoder: Decoder::new(), over: false }
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
        let mut remote = Remote::connect(job)?;
        remote.send(message)?;
        remote.next()
    }

    /// For answers that take as long as they take.
    pub fn patient(mut self, message: &ClientMsg) -> anyhow::Result<Remote> {
        self.socket.set_read_timeout(None)?;
        self.send(message)?;
        Ok(self)
    }
}

fn find(name: &str) -> Result<JobEntry, Failure> {
    Ok(home::resolve(&home::home()?, name)?)
}

pub(crate) fn find_running(name: &str) -> Result<JobEntry, Failure> {
    let job = find(name)?;
    if !job.alive {
        return Err(Failure::new(FAILED, anyhow!("job {} has ended", job.id)));
    }
    Ok(job)
}

pub(crate) fn job_status(job: &JobEntry) -> anyhow::Result<JobStatus> {
    if !job.alive {
        let ended = std::fs::read(job.path.join(home::ENDED)).ok();
        let text = match ended.filter(|_| !job.saved) {
            Some(text) => text,
            None => SavedJob::read(&job.path).context("its status is gone")?.status,
        };
        return serde_json::from_slice(&text).context("its status does not decode");
    }
    match Remote::ask(job, &ClientMsg::Status)? {
        NodeMsg::Status(status) => Ok(*status),
        other => bail!("unexpected answer: {other:?}"),
    }
}

pub fn ps(ps: &Ps) -> Result<i32, Failure> {
    // A job that ends while we ask is just not listed.
    let all: Vec<JobStatus> =
        home::jobs(&home::home()?).iter().filter_map(|j| job_status(j).ok()).collect();
    if ps.json {
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
    } else {
        print(&show::jobs(&all));
    }
    Ok(0)
}

pub fn status(args: &Status) -> Result<i32, Failure> {
    let status = job_status(&find(&args.job)?)?;
    if args.json {
        print(&(serde_json::to_string_pretty(&status)? + "\n"));
    } else {
        print(&show::status(&status));
    }
    Ok(0)
}

pub fn checkpoint(args: &Checkpoint) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = match args.end {
        true => ClientMsg::CheckpointAndEnd,
        false => ClientMsg::Checkpoint { rank: args.rank },
    };
    let mut remote = Remote::connect(&job)?.patient(&ask)?;
    let mut failed = 0;
    loop {
        match remote.next()? {
            NodeMsg::Checkpointed { rank, generation, bytes, took_ms, frozen_ms } => {
                print(&format!(
                    "rank {rank}: checkpoint {generation}, {}, {}, stood still {}\n",
                    units::bytes(bytes),
                    units::millis(took_ms),
                    units::millis(frozen_ms)
                ));
            }
            NodeMsg::CheckpointFailed { rank, reason } => {
                failed += 1;
                eprintln!("eyrie: no checkpoint of rank {rank}: {reason}");
            }
            NodeMsg::Done => return Ok(if failed > 0 { FAILED } else { 0 }),
            other => return Err(anyhow!("unexpected answer: {other:?}").into()),
        }
    }
}

pub fn grow(args: &Grow) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = match args.hosts.is_empty() {
        true => ClientMsg::Grow { nodes: args.nodes, cluster: args.cluster.clone() },
        false => {
            let named = hosts::named(&args.hosts, args.address.as_deref());
            let joining = named.map_err(|e| Failure::new(USAGE, e))?;
            let hosts::Joining { hosts, clusters, domains } = joining;
            ClientMsg::GrowHosts { hosts, clusters, domains }
        }
    };
    let mut remote = Remote::connect(&job)?.patient(&ask)?;
    let mut code = 0;
    loop {
        match remote.next()? {
            NodeMsg::NodeJoined { node } => print(&format!("node {node} has joined\n")),
            NodeMsg::NotJoined { node, reason } => {
                eprintln!("eyrie: node {node} has not joined: {reason}");
                code = FAILED;
            }
            NodeMsg::Done => return Ok(code),
            other => return Err(anyhow!("unexpected answer: {other:?}").into()),
        }
    }
}

pub fn inject(args: &Inject) -> Result<i32, Failure> {
    let job = find_running(&args.job)?;
    let ask = match &args.fault {
        Fault::Rank { ranks } => ClientMsg::Kill { ranks: ranks.clone() },
        Fault::Gateway { clusters } => ClientMsg::KillGateways { clusters: clusters.clone() },
        Fault::Controller => ClientMsg::KillController,
        Fault::Node { nodes } => ClientMsg::KillNodes { nodes: nodes.clone() },
    };
    Remote::ask(&job, &ask)?;
    Ok(0)
}

pub fn abort(args: &Abort) -> Result<i32, Failure> {
    let job = find(&args.job)?;
    if !job.alive && job.saved {
        // It goes on no more.
        let folder = home::claim(&job)?;
        let gone = home::remove_folder(&folder.path);
        gone.with_context(|| format!("cannot remove {}", folder.path.display()))?;
        return Ok(0);
    }
    let job = find_running(&args.job)?;
    Remote::ask(&job, &ClientMsg::Abort)?;
    Ok(0)
}

pub fn events(args: &Events) -> Result<i32, Failure> {
    let job = find(&args.job)?;
    let tell = |event: &Event| -> anyhow::Result<()> {
        let line = if args.json { serde_json::to_string(event)? } else { show::event_line(event) };
        print(&(line + "\n"));
        Ok(())
    };
    if !job.alive {
        let text = std::fs::read_to_string(job.path.join(home::EVENTS)).context("no events")?;
        for line in text.lines() {
            tell(&serde_json::from_str(line).context("an event does not decode")?)?;
        }
        return Ok(0);
    }
    let ask = |from| ClientMsg::Events { from, follow: args.follow };
    let mut remote = Remote::connect(&job)?.patient(&ask(0))?;
    let mut told = 0;
    loop {
        match remote.next() {
            Ok(NodeMsg::Event(event)) => {
                told += 1;
                tell(&event)?;
            }
            Ok(NodeMsg::Done) => return Ok(0),
            Ok(other) => return Err(anyhow!("unexpected answer: {other:?}").into()),
            // The controller died, and another one knows what it had told.
            Err(_) if args.follow && job.path.join(home::JOURNAL).exists() => {
                match Remote::connect(&job).and_then(|r| r.patient(&ask(told))) {
                    Ok(next) => remote = next,
                    Err(_) => return Ok(0),
                }
            }
            // The job ended: that is where following ends.
            Err(_) if args.follow => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}
