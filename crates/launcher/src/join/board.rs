//! The first process of an `eyrie join`: all others call it, and it brings those together with the
//! controller that run a node's keeper.
//!
//! Kept true: a caller that does not prove to know the key is turned away and told of; a seat is
//! given to one helper, once.

use super::{Card, GREETING, Incoming, Order, Ticket, machine, send, settle};
use eyrie_control::auth::{AuthError, Hello, Key, Role};
use eyrie_process::cores;
use eyrie_state::home::short_path;
use eyrie_tls::{Caller, Callers, Secret, Stream, next_call};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Name of the socket for helpers, in the job's folder.
pub const SOCKET: &str = "join.sock";

/// Why not all processes are here.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    #[error(
        "of {size} processes that the launcher has started {missing} did not call within {seconds} \
         s, the first of them number {first}: does each of its machines reach this one at port \
         {port} ({addresses})?"
    )]
    Missing { size: u32, missing: usize, first: u32, seconds: u64, port: u16, addresses: String },
    #[error("the launcher has started more than one process as number {0}")]
    Twice(u32),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A process that has called.
pub struct Seat {
    pub card: Card,
    /// This machine's address, as that one reaches it.
    pub here: IpAddr,
    stream: Arc<Stream>,
}

/// Waits for the others.
pub struct Board {
    listener: TcpListener,
    pub ticket: Ticket,
}

impl Board {
    /// `addresses`: where this machine may be reached.
    pub fn open(job: &str, addresses: Vec<IpAddr>) -> io::Result<Board> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        let port = listener.local_addr()?.port();
        let (job, key, machine) = (job.to_string(), Key::new()?, machine());
        Ok(Board { listener, ticket: Ticket { job, key, port, machine, addresses } })
    }

    /// Waits until processes 0 to `size` have called; by number. `tell` hears of strangers.
    pub fn gather(
        self,
        size: u32,
        limit: Duration,
        tell: impl Fn(String),
    ) -> Result<Vec<Seat>, BoardError> {
        let (hand, handed) = mpsc::channel();
        let (ticket, port) = (Arc::new(self.ticket), self.listener.local_addr()?.port());
        let over = Arc::new(Mutex::new(false));
        let (listener, known, ended) = (self.listener, Arc::clone(&ticket), Arc::clone(&over));
        // What goes there holds the job's own key.
        let secret = Secret::new(ticket.key.clone(), true)?;
        let accept = move || accept(&listener, &known, &secret, &hand, &ended);
        let accepting = std::thread::Builder::new().name("eyrie-board".into()).spawn(accept)?;
        let gathered = collect(size, limit, &ticket, &handed, tell);
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // It waits for a caller.
        let _ = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), GREETING);
        let _ = accepting.join();
        gathered
    }
}

fn accept(
    listener: &TcpListener,
    ticket: &Arc<Ticket>,
    secret: &Secret,
    hand: &Sender<Result<Seat, String>>,
    over: &Mutex<bool>,
) {
    let callers = Callers::default();
    loop {
        let stream = next_call(listener);
        if *over.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Ok(caller) = callers.admit(&stream) else { continue };
        let (ticket, secret, hand) = (Arc::clone(ticket), secret.clone(), hand.clone());
        let work = move || {
            let from = stream.peer_addr();
            let seat = welcome((stream, caller), &ticket, &secret).map_err(|error| {
                let from = from.map_or_else(|_| String::from("?"), |a| a.ip().to_string());
                format!("a caller from {from} is turned away: {error}")
            });
            let _ = hand.send(seat);
        };
        let _ = std::thread::Builder::new().name("eyrie-greet".into()).spawn(work);
    }
}

fn welcome(
    (socket, unknown): (TcpStream, Caller),
    ticket: &Ticket,
    secret: &Secret,
) -> Result<Seat, AuthError> {
    socket.set_read_timeout(Some(GREETING))?;
    socket.set_write_timeout(Some(GREETING))?;
    let own = |caller: &Hello| Hello::new(Role::Board, &ticket.job, (0, 0), (caller.node, 0));
    let (stream, caller) = secret.answer(socket, &ticket.job, Role::Seat, own)?;
    drop(unknown);
    let card: Option<Card> = Incoming::new(&stream).next()?;
    let card = card.filter(|c| c.rank == caller.node).ok_or(AuthError::Malformed)?;
    settle(stream.socket())?;
    let here = stream.socket().local_addr()?.ip().to_canonical();
    Ok(Seat { card, here, stream: Arc::new(stream) })
}

fn collect(
    size: u32,
    limit: Duration,
    ticket: &Ticket,
    handed: &mpsc::Receiver<Result<Seat, String>>,
    tell: impl Fn(String),
) -> Result<Vec<Seat>, BoardError> {
    let mut seats: BTreeMap<u32, Seat> = BTreeMap::new();
    let end = Instant::now() + limit;
    while seats.len() < size as usize {
        match handed.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(seat)) if seat.card.rank >= size => {
                tell(format!("process {} is not one of {size}", seat.card.rank));
            }
            Ok(Ok(seat)) => {
                let rank = seat.card.rank;
                if seats.insert(rank, seat).is_some() {
                    return Err(BoardError::Twice(rank));
                }
            }
            Ok(Err(stranger)) => tell(stranger),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let missing = (0..size).filter(|r| !seats.contains_key(r));
                let list = ticket.addresses.iter().map(IpAddr::to_string);
                return Err(BoardError::Missing {
                    size,
                    missing: missing.clone().count(),
                    first: missing.min().unwrap_or(0),
                    seconds: limit.as_secs(),
                    port: ticket.port,
                    addresses: list.collect::<Vec<_>>().join(", "),
                });
            }
        }
    }
    Ok(seats.into_values().collect())
}

/// Seats that no helper has taken; they are hung up on when this is dropped.
pub struct Waiting(Arc<Mutex<BTreeMap<String, Seat>>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Lets this thread, and what it starts, use all processors that the launcher has given to the
/// processes of a node.
pub fn widen<'a>(cards: impl Iterator<Item = &'a Card>) {
    let all: Vec<usize> = cards.flat_map(|c| c.processors.iter().map(|n| *n as usize)).collect();
    // Where that is not permitted, less will do.
    let _ = cores::bind(0, &cores::mask(&all));
}

/// Serves helpers of the controller until this process ends: each takes the place of a remote
/// shell to the host that it names. `leaders` are the seats that run keepers, by the names of their
/// hosts, with the processors that each node may use.
pub fn serve(folder: &Path, leaders: Vec<(String, Seat, Vec<u32>)>) -> io::Result<Waiting> {
    let dir = File::open(folder)?;
    let listener = UnixListener::bind(short_path(&dir, SOCKET))?;
    let mut seats = BTreeMap::new();
    for (host, seat, processors) in leaders {
        send(&mut &*seat.stream, &Order::Use { processors })?;
        seats.insert(host, seat);
    }
    let seats = Arc::new(Mutex::new(seats));
    let waiting = Waiting(Arc::clone(&seats));
    let work = move || {
        for helper in listener.incoming().flatten() {
            let seats = Arc::clone(&seats);
            let join = move || {
                if let Err(error) = put_through(helper, &seats) {
                    tracing::debug!(%error, "a helper is hung up on");
                }
            };
            let _ = std::thread::Builder::new().name("eyrie-through".into()).spawn(join);
        }
    };
    std::thread::Builder::new().name("eyrie-board".into()).spawn(work)?;
    Ok(waiting)
}

fn put_through(helper: UnixStream, seats: &Mutex<BTreeMap<String, Seat>>) -> io::Result<()> {
    let mut incoming = Incoming::new(&helper);
    let Some(Order::Call { host }) = incoming.next()? else {
        return Err(io::Error::other("it names no host"));
    };
    let seat = seats.lock().unwrap_or_else(PoisonError::into_inner).remove(&host);
    let Some(Seat { stream, .. }) = seat else {
        return Err(io::Error::other(format!("there is no seat for {host}, or it was taken")));
    };
    let (back, mut to) = (Arc::clone(&stream), helper.try_clone()?);
    let work = move || {
        let mut from = &*back;
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    };
    std::thread::Builder::new().name("eyrie-back".into()).spawn(work)?;
    // Messages that came together with the first one.
    let mut to = &*stream;
    let passed = loop {
        match incoming.next::<Order>() {
            Ok(Some(order)) => {
                if let Err(error) = send(&mut to, &order) {
                    break Err(error);
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = stream.shutdown(Shutdown::Write);
    passed
}
