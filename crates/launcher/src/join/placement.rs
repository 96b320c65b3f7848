//! A process of an `eyrie join`: it calls the first one, and, if it is asked to, runs the keeper of
//! the node that it is on.
//!
//! Kept true: the keeper's input ends when the connection does, so that nothing outlives the first
//! process; nothing of the launcher's own (descriptors, variables, signals held back) reaches the
//! keeper.

use super::{Card, GREETING, Incoming, News, Order, PIECE_BYTES, Ticket, machine, send, settle};
use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_process::cores;
use eyrie_process::spawn;
use eyrie_tls::{Secret, Stream};
use std::io::{self, PipeReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for one of the addresses to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Why a process has no seat.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    #[error("the first process cannot be reached at port {port}: {why}")]
    Unreachable { port: u16, why: String },
    #[error("the connection to the first process: {0}")]
    Io(#[from] io::Error),
}

/// Where hydra up to 4.0 tells processes their host, each its own.
pub(super) const OLDER_HYDRAS: &str = "MPIR_CVAR_CH3_INTERFACE_HOSTNAME";

/// A variable that a launcher sets for the processes that it starts itself.
pub fn is_launchers(name: &str) -> bool {
    const STARTS: [&str; 4] = ["PMI_", "PMIX_", "HYDI_", "HYDRA_"];
    const NAMES: [&str; 4] = ["MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PRTE_LAUNCHED", OLDER_HYDRAS];
    STARTS.iter().any(|s| name.starts_with(s)) || NAMES.contains(&name)
}

/// Calls the first process.
pub fn take(ticket: &Ticket, card: &Card) -> Result<Stream, SeatError> {
    let near = (machine() == ticket.machine).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut why = String::from("no address of it is known");
    for address in near.iter().chain(&ticket.addresses) {
        match call((*address, ticket.port).into(), ticket, card) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(SeatError::Unreachable { port: ticket.port, why })
}

fn call(address: SocketAddr, ticket: &Ticket, card: &Card) -> Result<Stream, AuthError> {
    let socket = TcpStream::connect_timeout(&address, ANSWER)?;
    socket.set_read_timeout(Some(GREETING))?;
    socket.set_write_timeout(Some(GREETING))?;
    let hello = Hello::new(Role::Seat, &ticket.job, (card.rank, 0), (0, 0))?;
    let secret = Secret::new(ticket.key.clone(), true)?;
    let (mut stream, _) = secret.call(socket, &hello, Role::Board)?;
    send(&mut stream, card)?;
    settle(stream.socket())?;
    Ok(stream)
}

/// Stays until the first process hangs up, and runs the keeper of this node if it is asked to.
/// `mask`: the signals that the keeper is to hold back. To be called by a thread that lives as long
/// as this process.
pub fn stay(stream: Stream, mask: libc::sigset_t) -> Result<(), SeatError> {
    let stream = Arc::new(stream);
    let mut incoming = Incoming::new(&*stream);
    let mut processors = Vec::new();
    let mut keeper: Option<Keeper> = None;
    let over = loop {
        match incoming.next::<Order>() {
            Ok(Some(Order::Use { processors: list })) => {
                processors = list.into_iter().map(|n| n as usize).collect();
            }
            Ok(Some(Order::Input(bytes))) => {
                if keeper.is_none() {
                    keeper = Some(Keeper::start(&processors, mask, Arc::clone(&stream))?);
                }
                // One that has ended says so itself.
                keeper.iter_mut().for_each(|k| k.feed(&bytes));
            }
            Ok(Some(Order::Call { .. })) => break Err(io::Error::other("it calls back").into()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    if let Some(keeper) = keeper {
        keeper.end();
    }
    over
}

/// A keeper that runs here.
struct Keeper {
    stdin: Option<std::process::ChildStdin>,
    listener: JoinHandle<()>,
}

impl Keeper {
    fn start(set: &[usize], mask: libc::sigset_t, news: Arc<Stream>) -> io::Result<Keeper> {
        let processors = cores::mask(set);
        let (said, says) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("__host").stdin(Stdio::piped());
        command.stdout(says.try_clone()?).stderr(says);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in names.filter(|n| is_launchers(n)) {
            command.env_remove(name);
        }
        // SAFETY: only async-signal-safe system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                // Where that is not permitted it has what this process has.
                let _ = cores::bind(0, &processors);
                spawn::shut_inherited();
                Ok(())
            });
        }
        let mut child = eyrie_image::while_starting(|| command.spawn())?;
        // With it our own end of the pipe goes.
        drop(command);
        let stdin = child.stdin.take();
        let listen = move || listen(child, said, news);
        let listener = std::thread::Builder::new().name("eyrie-listen".into()).spawn(listen)?;
        Ok(Keeper { stdin, listener })
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.stdin.as_mut().is_some_and(|stdin| stdin.write_all(bytes).is_err()) {
            self.stdin = None;
        }
    }

    /// Lets it clear away what is here.
    fn end(mut self) {
        self.stdin = None;
        let _ = self.listener.join();
    }
}

/// Tells what the keeper says, and its end.
fn listen(mut child: Child, mut said: PipeReader, news: Arc<Stream>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = said.read(&mut buffer) {
        // Nobody may listen any more; it is waited for all the same.
        let _ = send(&mut &*news, &News::Said(buffer[..count].to_vec()));
    }
    let code = match child.wait() {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => 1,
    };
    let _ = send(&mut &*news, &News::Ended { code });
}
