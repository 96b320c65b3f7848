//! A gateway: a process that carries the connections between the nodes of its cluster and those of
//! others (`eyrie __gateway`).
//!
//! One thread (`relay`) carries bytes between sockets and the multiplexers (`eyrie_gateway`) and
//! waits for none of them; threads of their own introduce callers (`greet`) and call other gateways
//! (`call`). Kept true: it holds nothing that cannot be made again, so it may die at any time; only
//! who knows the job's key gets further than its hello; it ends when its standard input does, or
//! is silent for long; it is silent itself when its relay does not get on.

mod call;
mod greet;
mod herald;
mod latest;
mod leg;
#[cfg(test)]
mod next_tests;
mod relay;
#[cfg(test)]
mod tests;
mod tunnel;
mod watch;

use eyrie_connection::source_address::source_address;
use eyrie_connection::stdin_protocol::{StdinError, StdinReader};
use eyrie_control::auth::Key;
use eyrie_control::gateway::{
    Begin, Carried, FromGateway, MARK, Missed, Ports, Silence, ToGateway,
};
use eyrie_protocol::timing::Intervals;
use eyrie_tls::{Routes, Secret};
use relay::{Note, Notes, Relay};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// With every so many heartbeats it says that it is there, or what was carried, if that has
/// changed.
const TELLING: u32 = 2;
/// Without a word of the controller, which beats each second, for so many times the longest silence
/// that is borne it is cut off: another gateway has long been started elsewhere.
const CUT_OFF_TIMES: u64 = 3;
/// Longest wait for a port that is to be used: the gateway before this one may just be ending.
const PORT_WAIT: Duration = Duration::from_secs(5);
const PORT_PAUSE: Duration = Duration::from_millis(50);
/// The same for one that it is only good to have.
const SAME_PORT_WAIT: Duration = Duration::from_millis(500);
/// So many hosts are looked up to see on which network the nodes are.
const MOST_NAMES: usize = 3;

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("{what}: {source}")]
    Os { what: &'static str, source: io::Error },
    #[error(
        "no port of {0} (--gateway-port, or gateway= of the host file) is free: end what listens \
         there, or give others"
    )]
    Taken(Ports),
    #[error(transparent)]
    Stdin(#[from] StdinError),
}

fn os(what: &'static str) -> impl Fn(io::Error) -> GatewayError {
    move |source| GatewayError::Os { what, source }
}

/// What all threads of a gateway know.
struct Own {
    job: String,
    cluster: u32,
    number: u64,
    clusters: u32,
    connections: u32,
    rate: Option<u64>,
    /// Of other gateways, while hands are shaken.
    calls: Routes,
    intervals: Intervals,
    /// What is said to other gateways is encrypted with this; to nodes nothing is that would be.
    secret: Secret,
    counts: Counts,
    /// How many connections the gateway of each cluster has made to this one that stand.
    called: Vec<AtomicU64>,
    notes: Notes,
    /// How often the relay was seen to get on, and the controller was heard.
    turns: AtomicU64,
    heard: AtomicU64,
    /// With whom there is silence.
    silent: Mutex<Silence>,
    /// Nodes whose machines give no sign.
    missed: Mutex<Vec<Missed>>,
}

impl Own {
    /// After so long the kernel ends a connection whose other end has gone silent.
    fn link_silence(&self) -> Duration {
        Duration::from_millis(self.intervals.limits.link_silence_ms)
    }

    /// Connections that a cluster's gateway has made to this one.
    fn called_by(&self, cluster: u32) -> &AtomicU64 {
        static NOBODY: AtomicU64 = AtomicU64::new(0);
        self.called.get(cluster as usize).unwrap_or(&NOBODY)
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, Silence> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missed(&self) -> std::sync::MutexGuard<'_, Vec<Missed>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is told to the controller.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    streams: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    strangers: AtomicU64,
    malformed: AtomicU64,
}

impl Counts {
    fn now(&self) -> Carried {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Carried {
            connections: get(&self.connections),
            streams: get(&self.streams),
            bytes_sent: get(&self.sent),
            bytes_received: get(&self.received),
            strangers: get(&self.strangers),
            malformed: get(&self.malformed),
        }
    }
}

/// One more.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Runs a gateway until its standard input ends.
pub fn run() -> Result<(), GatewayError> {
    // SAFETY: sets a disposition before any other thread exists.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut told = StdinReader::begin()?;
    let begin: Begin = told.need()?;
    let door_secret = Secret::new(Key(begin.key), begin.tls).map_err(os("TLS"))?;
    let (own, inside, outside) = match open(begin) {
        Ok(opened) => opened,
        Err(error) => {
            tell(&FromGateway::Failed(error.to_string()));
            // The controller ends it when it has read that.
            while told.next_message::<ToGateway>()?.is_some() {}
            return Err(error);
        }
    };
    tell(&FromGateway::Ready { pid: std::process::id(), inside, outside });
    report(&own).map_err(os("thread"))?;
    let mut callers = call::Callers::default();
    let mut heralds = herald::Heralds::new((own.number, inside), &own.job, door_secret);
    while let Some(order) = told.next_message()? {
        count(&own.heard);
        match order {
            ToGateway::Gates(gates) => callers.know(&gates, &own).map_err(os("thread"))?,
            ToGateway::Silence(silence) => own.notes.send(Note::Silence(silence)),
            ToGateway::Nodes(nodes) => heralds.know(nodes).map_err(os("thread"))?,
            ToGateway::Beat => {}
        }
    }
    Ok(())
}

/// Starts the threads. Returns where nodes reach it, and other gateways.
fn open(begin: Begin) -> Result<(Arc<Own>, SocketAddr, SocketAddr), GatewayError> {
    let (inside, outside) = addresses(Some(begin.controller), &begin.beside, begin.outside)?;
    let (nodes, inside) = listen_inside(inside, begin.inside)?;
    let (gates, outside) = listen(outside, begin.ports, PORT_WAIT)?;
    let secret = Secret::new(Key(begin.key), !begin.plain).map_err(os("TLS"))?;
    let (relay, notes) = Relay::new(begin.intervals.detector).map_err(os("event loop"))?;
    let own = Arc::new(Own {
        job: begin.job,
        cluster: begin.cluster,
        number: begin.number,
        clusters: begin.clusters,
        connections: begin.connections.max(1),
        rate: begin.rate,
        calls: Routes::default(),
        intervals: begin.intervals,
        secret,
        counts: Counts::default(),
        called: (0..begin.clusters).map(|_| AtomicU64::new(0)).collect(),
        notes,
        turns: AtomicU64::new(0),
        heard: AtomicU64::new(0),
        silent: Mutex::default(),
        missed: Mutex::default(),
    });
    // Before anybody is heard.
    own.notes.send(Note::Silence(begin.silence));
    greet::nodes(nodes, &own).map_err(os("thread"))?;
    greet::gates(gates, &own).map_err(os("thread"))?;
    let for_relay = Arc::clone(&own);
    let work = move || {
        if let Err(error) = relay.run(&for_relay) {
            // Another gateway may do better.
            tracing::error!(%error, "gateway");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("eyrie-relay".into()).spawn(work).map_err(os("thread"))?;
    Ok((own, inside, outside))
}

/// Where nodes reach this machine, and where other gateways do.
fn addresses(
    controller: Option<SocketAddr>,
    names: &[String],
    outside: Option<IpAddr>,
) -> Result<(IpAddr, IpAddr), GatewayError> {
    let nowhere = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    let home = controller.map_or_else(|| Err(nowhere()), source_address);
    let inside = beside(names).map_or(home.as_ref().copied(), Ok);
    let inside = inside.map_err(|error| os("address")(io::Error::from(error.kind())))?;
    Ok((inside, outside.or(home.ok()).unwrap_or(inside)))
}

/// Listens as a gateway would for others, by whom it is near and what is said of where it is
/// reached.
///
/// # Errors
/// There is no such address, or no such port is free.
pub fn listen_outside(
    controller: Option<SocketAddr>,
    names: &[String],
    (outside, ports): (Option<IpAddr>, Option<Ports>),
) -> Result<(TcpListener, SocketAddr), GatewayError> {
    let (_, outside) = addresses(controller, names, outside)?;
    listen(outside, ports, PORT_WAIT)
}

/// The address of this machine on the way to one of these hosts, of the first ones.
fn beside(names: &[String]) -> Option<IpAddr> {
    names.iter().take(MOST_NAMES).find_map(|name| {
        let host = name.rsplit('@').next().unwrap_or(name);
        let mut places = (host, 1).to_socket_addrs().ok()?;
        places.find_map(|place| source_address(place).ok().filter(|own| !own.is_loopback()))
    })
}

/// Listens for nodes where the gateway before this one did, if it is known and free, or anywhere.
fn listen_inside(
    at: IpAddr,
    before: Option<u16>,
) -> Result<(TcpListener, SocketAddr), GatewayError> {
    let same = before.map(|port| Ports { first: port, last: port });
    match same.map(|port| listen(at, Some(port), SAME_PORT_WAIT)) {
        Some(Ok(listening)) => Ok(listening),
        Some(Err(_)) | None => listen(at, None, PORT_WAIT),
    }
}

/// Listens at the first of these ports that is free, or anywhere. Returns where others reach it.
fn listen(
    at: IpAddr,
    ports: Option<Ports>,
    wait: Duration,
) -> Result<(TcpListener, SocketAddr), GatewayError> {
    let end = Instant::now() + wait;
    loop {
        for port in ports.map_or(0..=0, |p| p.first..=p.last) {
            match bind(SocketAddr::new(at, port)) {
                Ok(listener) => {
                    let port = listener.local_addr().map_err(os("listener"))?.port();
                    return Ok((listener, SocketAddr::new(at, port)));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(os("listener")(error)),
            }
        }
        if Instant::now() >= end {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(ports.map_or_else(|| os("listener")(error), GatewayError::Taken));
        }
        std::thread::sleep(PORT_PAUSE);
    }
}

/// An address by which others know this machine need not be one of its own: then whoever has it
/// passes on what comes to the port.
fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let all: IpAddr = match at.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    match TcpListener::bind(at) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            TcpListener::bind((all, at.port()))
        }
        bound => bound,
    }
}

/// Says something to the controller. One that is gone ends the standard input, too.
fn tell(message: &FromGateway) {
    let Ok(json) = serde_json::to_string(message) else { return };
    let mut out = io::stdout().lock();
    let _ = out.write_all(format!("{MARK}{json}\n").as_bytes()).and_then(|()| out.flush());
}

/// Says that it is there, and what was carried, in a thread: standard output may be slow.
fn report(own: &Arc<Own>) -> io::Result<()> {
    let own = Arc::clone(own);
    // How often it is looked at nodes' machines, and whether the relay gets on.
    let detector = own.intervals.detector;
    let look = Duration::from_millis(detector.heartbeat_ms);
    let cut_off = Duration::from_millis(CUT_OFF_TIMES * detector.silence_most_ms);
    let work = move || {
        let (mut told, mut silent) = (Carried::default(), Silence::default());
        let (mut turns, mut heard, mut quiet) = (0, 0, Duration::ZERO);
        loop {
            for _ in 0..TELLING {
                own.notes.send(Note::Turn);
                std::thread::sleep(look);
            }
            let (now, turned) = (own.counts.now(), own.turns.load(Ordering::Relaxed));
            if std::mem::replace(&mut turns, turned) != turned {
                let changed = std::mem::replace(&mut told, now) != now;
                tell(&if changed { FromGateway::Carried(now) } else { FromGateway::Beat });
                let missed = own.missed().clone();
                if !missed.is_empty() {
                    tell(&FromGateway::Missed(missed));
                }
                let now = own.silent().clone();
                if now != silent {
                    silent = now;
                    tell(&FromGateway::Silent(silent.clone()));
                }
            }
            let words = own.heard.load(Ordering::Relaxed);
            let same = std::mem::replace(&mut heard, words) == words;
            // Not by the clock: while this machine stands still nothing comes either.
            quiet = if same { quiet + TELLING * look } else { Duration::ZERO };
            if quiet > cut_off {
                tracing::error!("nothing is heard of the controller: this gateway is cut off");
                std::process::exit(1);
            }
        }
    };
    std::thread::Builder::new().name("eyrie-report".into()).spawn(work)?;
    Ok(())
}
