//! The node daemons of a job: started by the controller, which they call back.
//!
//! Kept true: the job's key goes to a daemon through its standard input; who calls without it is
//! turned away, counted and told in one line; of a daemon that is gone nothing is left, neither
//! processes nor storage.

use crate::job::Msg;
use crate::netns::{self, Bridge};
use crate::reap;
use crate::spawn;
use crate::wire::{self, Limits};
use eyrie_control::auth::{self, Hello, Key, Role};
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::node::Enlist;
use eyrie_control::{JobSpec, ToNode, encode_within};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Longest silence while a caller introduces itself.
const GREETING: Duration = Duration::from_secs(5);
/// Longest wait for a killed daemon to be gone.
const DEATH_LIMIT_MS: libc::c_int = 10_000;

/// One node daemon.
pub struct Daemon {
    pub pid: libc::pid_t,
    pub pidfd: Arc<OwnedFd>,
    pub epoch: u64,
    pub folder: PathBuf,
}

/// How daemons are started.
pub struct Crew {
    pub job: String,
    pub folder: PathBuf,
    pub spec: JobSpec,
    key: Key,
    address: SocketAddr,
    /// Held open in every daemon, so that whoever waits for its end waits for theirs.
    lifeline: OwnedFd,
    /// None: all are in one network.
    bridge: Option<Bridge>,
}

impl Crew {
    /// Makes the job's key and listens for daemons, in the network that they are to be in. To be
    /// called by the thread that starts all others.
    pub fn new(
        job: &str,
        folder: &Path,
        spec: &JobSpec,
        lifeline: OwnedFd,
        tell: UnboundedSender<Msg>,
    ) -> io::Result<Crew> {
        let bridge = spec.netns.then(|| Bridge::make(job)).transpose()?;
        let here = bridge.as_ref().map_or(Ipv4Addr::LOCALHOST, Bridge::address);
        let listener = TcpListener::bind((here, 0))?;
        let address = listener.local_addr()?;
        let key = Key::new()?;
        let (known, name) = (key.clone(), job.to_string());
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let (key, name, tell) = (known.clone(), name.clone(), tell.clone());
                let work = move || {
                    if let Err(error) = welcome(stream, &key, &name, &tell) {
                        let _ = tell.send(Msg::TurnedAway { why: error.to_string() });
                    }
                };
                let _ = std::thread::Builder::new().name("eyrie-greet".into()).spawn(work);
            }
        };
        std::thread::Builder::new().name("eyrie-accept".into()).spawn(accept)?;
        let (job, folder, spec) = (job.to_string(), folder.to_path_buf(), spec.clone());
        Ok(Crew { job, folder, spec, key, address, lifeline, bridge })
    }

    /// Starts the daemon of a node.
    pub fn start(&self, node: u32, epoch: u64) -> io::Result<Daemon> {
        let folder = self.folder.join(format!("node-{node}"));
        let enlist = Enlist {
            job: self.job.clone(),
            node,
            epoch,
            key: self.key.0,
            folder: folder.as_os_str().as_bytes().to_vec(),
            controller: self.address,
            spec: self.spec.clone(),
        };
        let frame = encode_within(MAX_NODE_FRAME_BYTES, &enlist).map_err(io::Error::other)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("__member").stdin(Stdio::piped());
        let lifeline = self.lifeline.as_raw_fd();
        let apart = self.bridge.is_some();
        // SAFETY: only async-signal-safe system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::setpgid(0, 0);
                spawn::shut_inherited();
                if libc::fcntl(lifeline, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
                if apart { netns::leave() } else { Ok(()) }
            });
        }
        let mut child = command.spawn()?;
        let pid = child.id() as libc::pid_t;
        let pidfd = Arc::new(spawn::pidfd(pid)?);
        // It waits for what it is told, and so finds its network ready.
        self.bridge.as_ref().map_or(Ok(()), |b| b.join(node, pid))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&frame)?;
        }
        Ok(Daemon { pid, pidfd, epoch, folder })
    }
}

/// Lets a daemon in that proves that it is one.
fn welcome(
    mut stream: TcpStream,
    key: &Key,
    job: &str,
    tell: &UnboundedSender<Msg>,
) -> Result<(), auth::AuthError> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    stream.set_write_timeout(Some(GREETING))?;
    let own =
        |caller: &Hello| Hello::new(Role::Controller, job, (0, 0), (caller.node, caller.epoch));
    let other = auth::answer(&mut stream, key, job, Role::Node, own)?;
    stream.set_write_timeout(None)?;
    let (node, epoch) = (other.node, other.epoch);
    let stream = Arc::new(stream);
    let limits = Arc::new(Limits::default());
    let known = Arc::clone(&limits);
    let beat = move || ToNode::Beat { patience_ms: known.own() };
    let sender = wire::write(Arc::clone(&stream), beat)?;
    let _ = tell.send(Msg::Connected { node, epoch, sender, stream: Arc::clone(&stream) });
    let tell = tell.clone();
    wire::read(stream, limits, move |message| {
        let _ = tell.send(match message {
            Ok(message) => Msg::Node { node, message },
            Err(why) => Msg::Gone { node, epoch, why },
        });
    })?;
    Ok(())
}

impl Daemon {
    /// Kills it, unless it is dead.
    pub fn kill(&self) {
        // SAFETY: plain system call on a descriptor that is open; no information is passed.
        unsafe {
            let none = std::ptr::null::<libc::siginfo_t>();
            let fd = self.pidfd.as_raw_fd();
            libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0);
        }
    }

    /// Ends it, and clears away its processes and its storage, in a thread. `others` are daemons
    /// that go on. Calls `done` with what is left, at the end.
    pub fn clear(
        &self,
        others: Vec<libc::pid_t>,
        done: impl FnOnce(usize) + Send + 'static,
    ) -> io::Result<()> {
        self.kill();
        let (pidfd, folder) = (Arc::clone(&self.pidfd), self.folder.clone());
        let work = move || {
            let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which is ours.
            unsafe { libc::poll(&mut poll, 1, DEATH_LIMIT_MS) };
            let _ = reap::collect(&pidfd);
            // What it leaves comes to us, generation after generation.
            let left = reap::clear_but(&others);
            let _ = std::fs::remove_dir_all(&folder);
            done(left);
        };
        std::thread::Builder::new().name("eyrie-clear".into()).spawn(work)?;
        Ok(())
    }
}
