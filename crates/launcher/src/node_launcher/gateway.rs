//! The gateway of a cluster, as the controller starts and holds it.
//!
//! Kept true: the job's key goes through its standard input, which stays open as long as it is
//! wanted; a gateway that is not held any more ends, and so does one whose controller does. It is
//! told again and again that the controller is there, and silence of a gateway that has listened is
//! told, once, after as long as that of a node or longer.

use super::{GatewayEvent, NodeLauncher};
use crate::netns::{self, Bridge};
use crate::remote_node;
use eyrie_control::Death;
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::gateway::{Begin, FromGateway, MARK, Ports, Silence, ToGateway};
use eyrie_control::{PROTOCOL, encode_within};
use eyrie_process::reap;
use eyrie_process::spawn;
use eyrie_protocol::failure_detector::Heartbeat;
use eyrie_protocol::failure_detector::Side;
use eyrie_protocol::timing::Detector;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Longest wait for one that is to end by itself.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often a gateway is told that the controller is there.
const BEAT: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 16 * 1024;

/// A gateway that was started.
pub struct Gateway {
    /// Of the process, or of the remote shell that it is under.
    pub pid: libc::pid_t,
    pub pidfd: Arc<OwnedFd>,
    pub host: Option<String>,
    orders: Sender<ToGateway>,
}

impl NodeLauncher {
    /// Starts the gateway of a cluster, on the host of a node of it, or on this machine; `inside`:
    /// the port at which the one before it listened there for nodes. What comes goes to `hear`.
    pub fn start_gateway(
        &self,
        (cluster, number): (u32, u64),
        (node, inside): (Option<u32>, Option<u16>),
        silence: Silence,
        hear: impl Fn(GatewayEvent) + Send + 'static,
    ) -> io::Result<Gateway> {
        let controller = match node {
            Some(node) => self.listens_at(self.faced_at(node), node)?,
            None => *self.addresses.first().ok_or_else(|| io::Error::other("nobody listens"))?,
        };
        let there = self.spec.placement.hosts.as_ref().zip(node);
        let mut command = match there {
            Some((hosts, node)) => remote_node::command(hosts, node as usize)?,
            None => Command::new(std::env::current_exe()?),
        };
        command.arg("__gateway").stdin(Stdio::piped());
        let (said, says) = io::pipe()?;
        if there.is_some() {
            command.stderr(says.try_clone()?);
        }
        command.stdout(says);
        let space = self.bridge.as_ref().map(Bridge::space);
        let lifeline = self.lifeline.as_raw_fd();
        let here = there.is_none();
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
        let host = there.and_then(|(hosts, node)| hosts.list.get(node as usize));
        let outer = host.and_then(|h| h.gateway);
        let ports = outer.and_then(|o| o.port).map(|port| Ports { first: port, last: port });
        let outside =
            (outside.or(outer.map(|o| o.at)), ports.or(self.spec.placement.clusters.ports));
        let towards = (controller, node, inside);
        let frames = self.begin_gateway((cluster, number), towards, outside, silence)?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        listen(said, self.spec.timing.intervals.detector, hear)?;
        let orders = feed(stdin, frames)?;
        Ok(Gateway { pid, pidfd, host: host.map(|h| h.name.clone()), orders })
    }

    /// Joins the network of a gateway's process to those of its cluster and of gateways, if they
    /// have some of their own. Returns its address there.
    fn join_gateway(&self, cluster: u32, pid: libc::pid_t) -> io::Result<Option<IpAddr>> {
        let Some(bridge) = &self.bridge else { return Ok(None) };
        bridge.join_gateway(cluster, pid).map(|address| Some(IpAddr::V4(address)))
    }

    /// The other hosts of a cluster whose nodes reach this machine through their gateway, which
    /// therefore need not reach that by the address that it has on the way here.
    fn beside(&self, cluster: u32, node: u32) -> Vec<String> {
        let clusters = &self.spec.placement.clusters;
        let Some(hosts) = self.spec.placement.hosts.as_ref().filter(|_| clusters.is_behind(node))
        else {
            return Vec::new();
        };
        let all = (0u32..).zip(&hosts.list);
        let others = all.filter(|(n, _)| *n != node && clusters.of(*n) == cluster);
        others.map(|(_, host)| host.name.clone()).collect()
    }

    fn begin_gateway(
        &self,
        (cluster, number): (u32, u64),
        (controller, node, inside): (SocketAddr, Option<u32>, Option<u16>),
        (outside, ports): (Option<IpAddr>, Option<Ports>),
        silence: Silence,
    ) -> io::Result<Vec<u8>> {
        let clusters = &self.spec.placement.clusters;
        let begin = Begin {
            job: self.job.clone(),
            key: self.secret.key().0,
            cluster,
            number,
            clusters: clusters.count(),
            controller,
            beside: node.map(|node| self.beside(cluster, node)).unwrap_or_default(),
            inside,
            outside,
            ports,
            plain: clusters.plain,
            tls: self.spec.security.tls,
            connections: clusters.connections,
            rate: clusters.rate,
            silence,
            intervals: self.spec.timing.intervals,
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
        loop {
            let order = match ordered.recv_timeout(BEAT) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => ToGateway::Beat,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Ok(frame) = encode_within(MAX_NODE_FRAME_BYTES, &order) else { continue };
            // One that has ended tells by that.
            written = written.and_then(|()| stdin.write_all(&frame));
        }
    };
    std::thread::Builder::new().name("eyrie-feed".into()).spawn(work)?;
    Ok(orders)
}

/// Listens to what it says; what else comes, of a remote shell for example, is for the log.
fn listen(
    said: PipeReader,
    detector: Detector,
    hear: impl Fn(GatewayEvent) + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        if let Err(error) = listen_to(said, detector, &hear) {
            tracing::warn!(%error, "a gateway is not heard any more");
        }
    };
    std::thread::Builder::new().name("eyrie-listen".into()).spawn(work)?;
    Ok(())
}

fn listen_to(
    mut said: PipeReader,
    detector: Detector,
    hear: &impl Fn(GatewayEvent),
) -> io::Result<()> {
    let begun = Instant::now();
    let now_ms = || begun.elapsed().as_millis() as u64;
    let mut words = Vec::new();
    let mut buffer = [0; READ_BYTES];
    // Since it listens.
    let mut tie: Option<Heartbeat> = None;
    loop {
        if is_readable(&said, detector.heartbeat_ms)? {
            let count = match said.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            tie.iter_mut().for_each(|tie| tie.heard(now_ms()));
            words.extend_from_slice(&buffer[..count]);
            for message in messages(&mut words) {
                if matches!(message, FromGateway::Ready { .. }) {
                    tie.get_or_insert_with(|| tie_at(detector, now_ms()));
                }
                hear(GatewayEvent::Said(message));
            }
        }
        if let Some(tie) = &mut tie
            && tie.over(now_ms())
        {
            hear(GatewayEvent::Silence { ms: tie.silent_ms(now_ms()) });
            return Ok(());
        }
    }
}

/// Silence of a gateway that is always borne: another one costs all that go through it a pause.
const fn borne_ms(detector: &Detector) -> u64 {
    2 * detector.silence_least_ms
}

fn tie_at(detector: Detector, now_ms: u64) -> Heartbeat {
    let mut tie = Heartbeat::new(detector, Side::Controller, now_ms);
    tie.told(borne_ms(&detector), None, now_ms);
    tie
}

/// Waits for something to be said, for a moment.
fn is_readable(said: &PipeReader, heartbeat_ms: u64) -> io::Result<bool> {
    let pause = Duration::from_millis(heartbeat_ms);
    let limit = Timespec {
        tv_sec: pause.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: pause.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(said, PollFlags::IN)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes the whole lines; what begins one stays.
fn messages(words: &mut Vec<u8>) -> Vec<FromGateway> {
    let whole = words.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<u8> = words.drain(..whole).collect();
    let mut messages = Vec::new();
    for line in String::from_utf8_lossy(&lines).lines() {
        match line.strip_prefix(MARK).map(serde_json::from_str) {
            Some(Ok(message)) => messages.push(message),
            Some(Err(error)) => tracing::warn!(%error, "a gateway: {line}"),
            None => tracing::info!("a gateway: {}", line.trim_end()),
        }
    }
    messages
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
                format!("it died of {}", eyrie_process::signals::signal_name(signal))
            }
            _ => String::from("it ended"),
        }
    }

    /// It is not wanted any more: waits until it has ended, for a while.
    pub fn dismiss(self) {
        let Gateway { pid, pidfd, orders, .. } = self;
        drop(orders);
        remote_node::poll_end(&pidfd, FAREWELL);
        // SAFETY: as above.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        remote_node::poll_end(&pidfd, FAREWELL);
        let _ = reap::collect(&pidfd);
        reap::forget(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETECTOR: Detector = Detector { silence_least_ms: 500, ..Detector::DEFAULT };
    const BORNE_MS: u64 = borne_ms(&DETECTOR);

    const READY: &str = r#"{"ready":{"pid":7,"inside":"127.0.0.1:1","outside":"127.0.0.1:2"}}"#;

    fn heard_of(said: PipeReader) -> Receiver<GatewayEvent> {
        let (tell, told) = mpsc::channel();
        listen(said, DETECTOR, move |heard| drop(tell.send(heard))).unwrap();
        told
    }

    #[test]
    fn words_of_a_remote_shell_are_told_from_those_of_the_gateway() {
        let mut words = format!("Welcome\n{MARK}{READY}\n{MARK}nonsense\n{MARK}\"be").into_bytes();
        let ready = messages(&mut words);
        assert!(matches!(ready[..], [FromGateway::Ready { pid: 7, .. }]), "{ready:?}");
        assert!(messages(&mut words).is_empty());
        words.extend_from_slice(b"at\"\n");
        assert_eq!(messages(&mut words), [FromGateway::Beat]);
        assert!(words.is_empty());
    }

    #[test]
    fn silence_is_told_once_and_only_of_one_that_has_listened() {
        let (said, mut says) = io::pipe().unwrap();
        let told = heard_of(said);
        let begun = Instant::now();
        says.write_all(format!("{MARK}{READY}\n").as_bytes()).unwrap();
        assert!(matches!(told.recv(), Ok(GatewayEvent::Said(FromGateway::Ready { .. }))));
        let silence = told.recv().unwrap();
        assert!(matches!(silence, GatewayEvent::Silence { ms } if ms > BORNE_MS), "{silence:?}");
        assert!(begun.elapsed() > Duration::from_millis(BORNE_MS));
        assert!(told.recv().is_err());
        let (said, says) = io::pipe().unwrap();
        let told = heard_of(said);
        let wait = told.recv_timeout(Duration::from_millis(BORNE_MS + 1_000));
        assert_eq!(wait, Err(RecvTimeoutError::Timeout));
        drop(says);
        assert!(told.recv().is_err());
    }
}
