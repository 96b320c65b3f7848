//! A node on another host, as the controller sees it: the remote shell that `eyrie __host` runs
//! under there.
//!
//! Kept true: what the host is told, the job's key with it, goes through the shell's standard
//! input; that stays open as long as the node is wanted, and says at the end that it is not. The
//! shell and what it started here are gone at the end, however the host behaves. What it says goes
//! to a file, which outlives the controller: nobody is cut short who still speaks then.

use crate::host_supervisor::DISMISSED;
use eyrie_control::Death;
use eyrie_control::message::Hosts;
use eyrie_control::node::Lodge;
use eyrie_control::{PROTOCOL, encode_within, frame::MAX_NODE_FRAME_BYTES};
use eyrie_ha::CutOff;
use eyrie_process::reap;
use eyrie_process::spawn;
use eyrie_state::home;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The remote shell if none is named. It joins a connection that there is, but makes none that
/// others would depend on.
pub const DEFAULT_SHELL: &str = "ssh -o BatchMode=yes -o ControlMaster=no";
/// So much of what a remote shell said last is looked at.
const LAST_BYTES: u64 = 4096;
/// Longest wait for the end of a shell that is not wanted any more.
pub const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Exit codes from here on are not those of `eyrie __host`.
const FOREIGN_CODE: i32 = 126;

/// The remote shell of a node.
pub struct RemoteNode {
    pub host: String,
    /// How the shell is called, for people.
    shell: String,
    binary: String,
    pub pid: libc::pid_t,
    pub pidfd: Arc<OwnedFd>,
    /// Its standard input is open as long as this is.
    hold: Mutex<Option<Sender<()>>>,
    /// What it says.
    said: PathBuf,
    /// Its exit code is that of what it ran.
    tells: bool,
    /// It is collected.
    buried: Mutex<bool>,
}

/// Starts the remote shell for a host, by its number. What it says goes to a file in the folder.
pub fn start(hosts: &Hosts, number: u32, lodge: &Lodge, folder: &Path) -> io::Result<RemoteNode> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut command = command(hosts, number as usize)?;
    let host = hosts.list.get(number as usize).ok_or_else(homeless)?;
    let shell = match needs_no_shell(hosts, &host.name) {
        true => text(&hosts.binary),
        false => text(&hosts.rsh.join(&b' ')),
    };
    let mut frames = encode_within(MAX_NODE_FRAME_BYTES, &PROTOCOL).map_err(io::Error::other)?;
    let frame = encode_within(MAX_NODE_FRAME_BYTES, lodge).map_err(io::Error::other)?;
    frames.extend_from_slice(&frame);
    let said = folder.join(home::host_log(number));
    let says = File::options().append(true).create(true).mode(0o600).open(&said)?;
    // Slurm's ends the node when it is killed.
    let stays = lodge.enlist.spec.is_journaled() && !hosts.shell;
    command.arg("__host");
    command.stdin(Stdio::piped()).stdout(says.try_clone()?).stderr(says);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setpgid(0, 0);
            if !stays {
                // Whatever ends the controller, the host hears of it.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            }
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            spawn::shut_inherited();
            Ok(())
        });
    }
    let child = eyrie_image::while_starting(|| command.spawn()).map_err(|error| {
        io::Error::other(format!("cannot start '{shell}' for host {}: {error}", host.name))
    })?;
    let pid = child.id() as libc::pid_t;
    let pidfd = Arc::new(spawn::pidfd(pid)?);
    let hold = feed(child, frames)?;
    Ok(RemoteNode {
        host: host.name.clone(),
        shell,
        binary: text(&hosts.binary),
        pid,
        pidfd,
        hold: Mutex::new(Some(hold)),
        said,
        tells: hosts.shell,
        buried: Mutex::default(),
    })
}

/// The remote shell and what it is to run on a host, by its number: Eyrie, without arguments.
pub fn command(hosts: &Hosts, number: usize) -> io::Result<Command> {
    let (Some(host), Some((program, options))) = (hosts.list.get(number), hosts.rsh.split_first())
    else {
        return Err(homeless());
    };
    if needs_no_shell(hosts, &host.name) {
        return Ok(Command::new(OsStr::from_bytes(&hosts.binary)));
    }
    let mut command = Command::new(OsStr::from_bytes(program));
    command.args(options.iter().map(|o| OsStr::from_bytes(o))).arg(&host.name);
    command.arg(OsStr::from_bytes(&word(&hosts.binary, hosts.shell)));
    Ok(command)
}

/// Who has named no remote shell needs none for this machine.
fn needs_no_shell(hosts: &Hosts, host: &str) -> bool {
    hosts.rsh.join(&b' ') == DEFAULT_SHELL.as_bytes() && is_here(host)
}

/// Whether a name is one of this machine's: its own, or one by which each machine means itself.
pub fn is_here(host: &str) -> bool {
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    let of_all = ["localhost", "localhost.localdomain"].contains(&host);
    let address = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    of_all || address || !own.is_empty() && host.eq_ignore_ascii_case(&own)
}

fn homeless() -> io::Error {
    io::Error::other("there is no host for this node")
}

/// A word as the shell of a host is to read it.
fn word(bytes: &[u8], shell: bool) -> Vec<u8> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+,:@%".contains(b);
    if !shell || bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let parts: Vec<&[u8]> = bytes.split(|b| *b == b'\'').collect();
    [b"'", parts.join(&b"'\\''"[..]).as_slice(), b"'"].concat()
}

/// Writes the frames, and keeps the input open until the sender is dropped.
fn feed(mut child: Child, frames: Vec<u8>) -> io::Result<Sender<()>> {
    let (hold, held) = mpsc::channel::<()>();
    let stdin = child.stdin.take();
    let work = move || {
        let Some(mut stdin) = stdin else { return };
        // A shell that has ended tells by that.
        if stdin.write_all(&frames).is_ok() {
            let _ = held.recv();
            let _ = stdin.write_all(&[DISMISSED]);
        }
    };
    std::thread::Builder::new().name("eyrie-feed".into()).spawn(work)?;
    Ok(hold)
}

impl RemoteNode {
    /// It is not wanted any more: all that is there ends.
    pub fn dismiss(&self) {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The last thing it said, of Eyrie's own words if there are any.
    pub fn words(&self) -> Option<String> {
        let text = last_bytes(&self.said).unwrap_or_default();
        let mut lines = text.lines().map(str::trim_end).rev().filter(|l| !l.is_empty());
        let own = lines.clone().find_map(|l| l.strip_prefix("eyrie: "));
        own.or_else(|| lines.next()).map(str::to_string)
    }

    /// Why the shell has ended, and what to do about it.
    pub fn why(&self) -> String {
        let (host, shell, binary) = (&self.host, &self.shell, &self.binary);
        let words = self.words();
        let said = words.as_ref().map(|w| format!(" ({w})")).unwrap_or_default();
        match reap::peek(&self.pidfd) {
            Ok(Some(Death::Exit(127))) => format!(
                "{binary} was not found{said}: install Eyrie on {host} at the same place, or say \
                 with --prefix where it is on the hosts"
            ),
            Ok(Some(Death::Exit(126))) => {
                format!("{binary} cannot be executed{said}: check its permissions on {host}")
            }
            Ok(Some(Death::Exit(255))) => format!(
                "'{shell} {host}' failed{said}: see that it works without a question, or name \
                 another remote shell with --rsh"
            ),
            Ok(Some(Death::Signal(signal))) => {
                format!(
                    "'{shell} {host}' died of {}{said}",
                    eyrie_process::signals::signal_name(signal)
                )
            }
            Ok(Some(Death::Exit(code))) => {
                words.unwrap_or_else(|| format!("'{shell} {host}' ended with code {code}"))
            }
            _ => String::from("its remote shell ended"),
        }
    }

    /// Ends all that is there and waits until it is gone, or, if the host does not answer, for as
    /// long as its daemon may take to see that it is cut off.
    pub fn clear(&self, cut_off: &CutOff) {
        self.dismiss();
        poll_end(&self.pidfd, cut_off.left());
        match reap::peek(&self.pidfd) {
            // Nothing was there, or the host has cleared it away.
            Ok(Some(Death::Exit(0))) => {}
            Ok(Some(Death::Exit(code))) if self.tells && code <= FOREIGN_CODE + 1 => {}
            // The way there is gone.
            _ => cut_off.wait(),
        }
        self.bury();
    }

    /// Ends the shell and what it started here.
    fn bury(&self) {
        let mut buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *buried, true) {
            return;
        }
        // SAFETY: its group is its own, and its number is not given away before it is collected.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        poll_end(&self.pidfd, LAST_MOMENT);
        let _ = reap::collect(&self.pidfd);
    }
}

/// The end of a file.
fn last_bytes(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The job is over: waits, up to a limit, until nodes that were told to end (`true`) have done so,
/// then ends all that is left.
pub fn farewell(remotes: &[(Arc<RemoteNode>, bool)], limit: Duration) {
    let wait = |limit: Duration, told_only: bool| {
        let end = Instant::now() + limit;
        for (remote, told) in remotes {
            if *told || !told_only {
                poll_end(&remote.pidfd, end.saturating_duration_since(Instant::now()));
            }
        }
    };
    let unwanted = remotes.iter().filter(|(_, told)| !told);
    unwanted.for_each(|(remote, _)| remote.dismiss());
    wait(limit, true);
    remotes.iter().for_each(|(remote, _)| remote.dismiss());
    wait(LAST_MOMENT, false);
    remotes.iter().for_each(|(remote, _)| remote.bury());
}

/// Waits, up to a limit, until daemons that were told to end have done so.
pub fn await_ends(daemons: &[Arc<OwnedFd>], limit: Duration) {
    let end = Instant::now() + limit;
    let left = || end.saturating_duration_since(Instant::now());
    daemons.iter().for_each(|daemon| poll_end(daemon, left()));
}

/// Waits, up to a limit, until a process has ended.
pub fn poll_end(pidfd: &OwnedFd, limit: Duration) {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = limit.as_millis().min(i32::MAX as u128) as libc::c_int;
    // SAFETY: one entry, which is ours.
    unsafe { libc::poll(&mut poll, 1, limit) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell_where_they_have_to_be() {
        assert_eq!(word(b"/opt/eyrie-1.0/bin/eyrie", true), b"/opt/eyrie-1.0/bin/eyrie");
        assert_eq!(word(b"/a b/it's", true), b"'/a b/it'\\''s'");
        assert_eq!(word(b"/a b/it's", false), b"/a b/it's");
    }
}
