//! The gateway of a cluster, as the controller starts and holds it.
//!
//! Kept true: the job's key goes through its standard input, which stays open as long as it is
//! wanted; a gateway that is not held any more ends, and so does one whose controller does.

use super::Crew;
use crate::monitor::Death;
use crate::netns::{self, Bridge};
use crate::{guest, reap, spawn};
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::gateway::{Begin, FromGateway, MARK, ToGateway};
use eyrie_control::{PROTOCOL, encode_within};
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Longest wait for one that is to end by itself.
const FAREWELL: Duration = Duration::from_secs(2);

/// A gateway that was started.
pub struct Gateway {
    /// Of the process, or of the remote shell that it is under.
    pub pid: libc::pid_t,
    pub pidfd: Arc<OwnedFd>,
    pub host: Option<String>,
    orders: Sender<ToGateway>,
}

impl Crew {
    /// Starts the gateway of a cluster, on the host of a node of it. What it says goes to `hear`.
    pub fn start_gateway(
        &self,
        (cluster, number): (u32, u64),
        node: u32,
        hear: impl Fn(FromGateway) + Send + 'static,
    ) -> io::Result<Gateway> {
        let controller = self.listens_for(node)?;
        let mut command = match &self.spec.hosts {
            Some(hosts) => guest::command(hosts, node as usize)?,
            None => Command::new(std::env::current_exe()?),
        };
        command.arg("__gateway").stdin(Stdio::piped());
        let (said, says) = io::pipe()?;
        if self.spec.hosts.is_some() {
            command.stderr(says.try_clone()?);
        }
        command.stdout(says);
        let space = self.bridge.as_ref().map(Bridge::space);
        let lifeline = self.lifeline.as_raw_fd();
        let here = self.spec.hosts.is_none();
        // SAFETY: only async-signal-safe system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                spawn::shut_inherited();
                if here && libc::fcntl(lifeline, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
                if space.is_some() { netns::leave() } else { Ok(()) }
            });
        }
        let mut child = reap::start(&mut command)?;
        // With it our own end of the pipe goes.
        drop(command);
        let pid = child.id() as libc::pid_t;
        let pidfd = Arc::new(spawn::pidfd(pid)?);
        let outside = self.join_gateway(cluster, pid)?;
        let frames = self.begin_gateway((cluster, number), controller, outside)?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        let host = self.spec.hosts.as_ref().and_then(|h| h.list.get(node as usize));
        listen(said, hear)?;
        let orders = feed(stdin, frames)?;
        Ok(Gateway { pid, pidfd, host: host.map(|h| h.name.clone()), orders })
    }

    /// Joins the network of a gateway's process to those of its cluster and of gateways, if they
    /// have some of their own. Returns its address there.
    fn join_gateway(&self, cluster: u32, pid: libc::pid_t) -> io::Result<Option<IpAddr>> {
        let Some(bridge) = &self.bridge else { return Ok(None) };
        bridge.join_gateway(cluster, pid).map(|address| Some(IpAddr::V4(address)))
    }

    fn begin_gateway(
        &self,
        (cluster, number): (u32, u64),
        controller: SocketAddr,
        outside: Option<IpAddr>,
    ) -> io::Result<Vec<u8>> {
        let clusters = &self.spec.clusters;
        let begin = Begin {
            job: self.job.clone(),
            key: self.secret.key().0,
            cluster,
            number,
            clusters: clusters.count(),
            controller,
            outside,
            plain: clusters.plain,
            connections: clusters.connections,
            rate: clusters.rate,
        };
        let protocol = encode_within(MAX_NODE_FRAME_BYTES, &PROTOCOL).map_err(io::Error::other)?;
        let begin = encode_within(MAX_NODE_FRAME_BYTES, &begin).map_err(io::Error::other)?;
        Ok([protocol, begin].concat())
    }
}

/// Writes what it is told, in a thread; the input ends when the sender is dropped.
fn feed(mut stdin: ChildStdin, frames: Vec<u8>) -> io::Result<Sender<ToGateway>> {
    let (orders, ordered): (_, Receiver<ToGateway>) = mpsc::channel();
    let work = move || {
        let mut written = stdin.write_all(&frames);
        for order in ordered {
            let Ok(frame) = encode_within(MAX_NODE_FRAME_BYTES, &order) else { continue };
            // One that has ended tells by that.
            written = written.and_then(|()| stdin.write_all(&frame));
        }
    };
    std::thread::Builder::new().name("eyrie-feed".into()).spawn(work)?;
    Ok(orders)
}

/// Listens to what it says; what else comes, of a remote shell for example, is for the log.
fn listen(said: PipeReader, hear: impl Fn(FromGateway) + Send + 'static) -> io::Result<()> {
    let work = move || {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            match line.strip_prefix(MARK).map(serde_json::from_str) {
                Some(Ok(message)) => hear(message),
                Some(Err(error)) => tracing::warn!(%error, "a gateway: {line}"),
                None => tracing::info!("a gateway: {}", line.trim_end()),
            }
        }
    };
    std::thread::Builder::new().name("eyrie-listen".into()).spawn(work)?;
    Ok(())
}

impl Gateway {
    pub fn tell(&self, order: ToGateway) {
        let _ = self.orders.send(order);
    }

    /// Kills it, with what is around it here.
    pub fn kill(&self) {
        // SAFETY: its group is its own, and its number is not given away before it is collected.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
    }

    /// How it ended, for people. It is gone afterwards.
    pub fn bury(self) -> String {
        self.kill();
        let ended = reap::collect(&self.pidfd);
        reap::forget(self.pid);
        match ended {
            Ok(Some(Death::Exit(code))) => format!("it ended with code {code}"),
            Ok(Some(Death::Signal(signal))) => {
                format!("it died of {}", crate::monitor::signal_name(signal))
            }
            _ => String::from("it ended"),
        }
    }

    /// It is not wanted any more: waits until it has ended, for a while.
    pub fn dismiss(self) {
        let Gateway { pid, pidfd, orders, .. } = self;
        drop(orders);
        guest::poll_end(&pidfd, FAREWELL);
        // SAFETY: as above.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        guest::poll_end(&pidfd, FAREWELL);
        let _ = reap::collect(&pidfd);
        reap::forget(pid);
    }
}
