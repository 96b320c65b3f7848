//! Gateways of two clusters in one process, and nodes that are sockets.

use super::*;
use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_control::gateway::{Gate, Ports, StoreAddress};
use eyrie_exchange::image_store::{self, StoreServices};
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_tls::{CONTROLLER, Routes};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const JOB: &str = "jobs";

pub(super) struct Pair {
    pub key: Key,
    pub own: [Arc<Own>; 2],
    inside: [SocketAddr; 2],
    pub outside: [SocketAddr; 2],
    pub routes: Routes,
    pub callers: [call::Callers; 2],
}

pub(super) fn begin(key: &Key, cluster: u32, number: u64, plain: bool) -> Begin {
    Begin {
        job: JOB.into(),
        key: key.0,
        cluster,
        number,
        clusters: 2,
        controller: ([127, 0, 0, 1], 9).into(),
        beside: Vec::new(),
        inside: None,
        outside: None,
        ports: None,
        plain,
        tls: false,
        connections: 2,
        rate: None,
        silence: Silence::default(),
        intervals: Intervals::default(),
    }
}

/// Nodes 0 and 1 are in different clusters.
pub(super) fn pair(plain: bool) -> Pair {
    let key = Key::new().unwrap();
    let [(a, here, near), (b, there, far)] =
        [0, 1].map(|cluster| open(begin(&key, cluster, 1, plain)).unwrap());
    let gates = [Gate { cluster: 0, number: 1, at: near }, Gate { cluster: 1, number: 1, at: far }];
    let own = [a, b];
    let mut callers: [call::Callers; 2] = Default::default();
    callers.iter_mut().zip(&own).for_each(|(c, o)| c.know(&gates, o).unwrap());
    let routes = Routes::default();
    routes.set(vec![0, 1], Some(here));
    Pair { key, own, inside: [here, there], outside: [near, far], routes, callers }
}

impl Pair {
    /// A connection of node 0 to an address of node 1, as soon as there is a way.
    pub fn reach(&self, at: SocketAddr) -> TcpStream {
        let (secret, end) = (Secret::plain(self.key.clone()), Instant::now() + PATIENCE);
        loop {
            match connect(&self.routes, &secret, at) {
                Ok(socket) => return socket,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::yield_now();
        }
    }
}

/// A connection of node 0 to an address of node 1.
fn connect(routes: &Routes, secret: &Secret, at: SocketAddr) -> Result<TcpStream, AuthError> {
    routes.call(0, (1, 1)).connect((secret, JOB), (0, 1), at, PATIENCE)
}

pub(super) fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// A node that says back what it hears.
pub(super) fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut from = socket.try_clone().unwrap();
                let _ = io::copy(&mut from, &mut socket);
                let _ = socket.shutdown(Shutdown::Write);
            });
        }
    });
    at
}

#[test]
fn what_goes_through_comes_back_and_so_does_the_end() {
    for plain in [false, true] {
        let pair = pair(plain);
        let at = echo();
        std::thread::scope(|scope| {
            for n in 0..8u32 {
                let pair = &pair;
                scope.spawn(move || {
                    let bytes: Vec<u8> = (0..700_000).map(|i| ((i * (n + 3)) >> 3) as u8).collect();
                    let mut socket = pair.reach(at);
                    let (mut out, sent) = (socket.try_clone().unwrap(), bytes.clone());
                    let writer = std::thread::spawn(move || {
                        out.write_all(&sent).unwrap();
                        out.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut back = Vec::new();
                    socket.read_to_end(&mut back).unwrap();
                    assert!(back == bytes, "{} bytes of {} came back", back.len(), bytes.len());
                    writer.join().unwrap();
                });
            }
        });
        for own in &pair.own {
            until("streams are left", || own.counts.now().streams == 0);
            let carried = own.counts.now();
            assert_eq!((carried.connections, carried.bytes_sent), (2, 8 * 700_000));
        }
    }
}

#[test]
fn a_node_that_does_not_read_holds_up_nobody() {
    let pair = pair(false);
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    // Both connections between the gateways have streams that stand still.
    let stuck: Vec<TcpStream> = (0..6).map(|_| pair.reach(deaf.local_addr().unwrap())).collect();
    for socket in &stuck {
        socket.set_nonblocking(true).unwrap();
        let (mut to, mut idle) = (socket, 0);
        // Until nothing more is taken, for good.
        while idle < 20_000 {
            match to.write(&[1; 4096]) {
                Ok(_) => idle = 0,
                Err(_) => idle += 1,
            }
            std::thread::yield_now();
        }
    }
    let mut socket = pair.reach(echo());
    for _ in 0..100 {
        socket.write_all(b"hello").unwrap();
        let mut back = [0; 5];
        socket.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    }
}

#[test]
fn nodes_that_are_not_there_are_told_of() {
    let pair = pair(true);
    drop(pair.reach(echo()));
    // At an address of its own: another test may get the number of a port that is free again.
    let gone = TcpListener::bind("127.86.1.2:0").unwrap().local_addr().unwrap();
    let secret = Secret::plain(pair.key.clone());
    let why = || connect(&pair.routes, &secret, gone).unwrap_err().to_string();
    assert!(why().contains("does not answer its gateway"));
    pair.routes.set(vec![0, 1], None);
    assert!(why().contains("no way"));
}

#[test]
fn strangers_are_closed_and_counted() {
    let pair = pair(false);
    let end = |at: SocketAddr, words: &[u8]| {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.write_all(words);
        let mut heard = Vec::new();
        // A close with what was not read is a reset.
        let _ = socket.read_to_end(&mut heard);
        heard
    };
    assert_eq!(end(pair.inside[0], &[b'x'; 200]), b"");
    let hello = Hello::new(Role::Passenger, JOB, (0, 1), (1, 0)).unwrap().encode();
    assert_eq!(end(pair.inside[0], &[&hello[..], &[0; 32]].concat()).len(), 80);
    let other = Hello::new(Role::Passenger, "other", (0, 1), (1, 0)).unwrap().encode();
    assert_eq!(end(pair.inside[0], &other), b"");
    until("three strangers", || pair.own[0].counts.now().strangers == 3);
    assert_eq!(pair.own[1].counts.now().strangers, 0);
    // Between gateways who does not encrypt gets no further than that.
    end(pair.outside[1], &[b'x'; 200]);
    until("a stranger", || pair.own[1].counts.now().strangers == 1);
    // One that knows the key and sends what is no frame.
    let secret = Secret::new(pair.key.clone(), true).unwrap();
    let hello = Hello::new(Role::TunnelCaller, JOB, (0, 9), (1, 1)).unwrap();
    let socket = TcpStream::connect(pair.outside[1]).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut stream, _) = secret.call(socket, &hello, Role::TunnelServer).unwrap();
    stream.write_all(&[0xff; 64]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    until("something malformed", || pair.own[1].counts.now().malformed == 1);
    // And all goes on.
    let mut socket = pair.reach(echo());
    socket.write_all(b"x").unwrap();
    socket.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_gateway_listens_at_the_first_free_port_where_it_was_told_to() {
    // An address of its own: the same test of another clone may run beside this one.
    let [.., high, low] = std::process::id().to_be_bytes();
    let here: IpAddr = [127, 86, high, low.clamp(1, 254)].into();
    let free = TcpListener::bind((here, 0)).unwrap().local_addr().unwrap().port();
    let first_port = free.min(65_534);
    let ports = Ports { first: first_port, last: first_port + 1 };
    let (first, a) = listen(here, Some(ports), PATIENCE).unwrap();
    let (_second, b) = listen(here, Some(ports), PATIENCE).unwrap();
    assert_eq!((a, b), ((here, ports.first).into(), (here, ports.last).into()));
    // One that is just ending holds its port for a moment.
    let ends = std::thread::spawn(move || {
        std::thread::sleep(3 * PORT_PAUSE);
        drop(first);
    });
    let (_third, c) = listen(here, Some(Ports { last: ports.first, ..ports }), PATIENCE).unwrap();
    assert_eq!(c, a);
    ends.join().unwrap();
    let error = listen(here, Some(ports), PORT_PAUSE).unwrap_err().to_string();
    assert!(error.contains(&format!("no port of {ports} ")), "{error}");
    // Nobody has this address, which is for documentation: what comes to the port counts.
    let elsewhere: IpAddr = [192, 0, 2, 7].into();
    let (listener, told) = listen(elsewhere, None, PATIENCE).unwrap();
    assert_eq!(told, (elsewhere, listener.local_addr().unwrap().port()).into());
    TcpStream::connect((here, told.port())).unwrap();
}

#[test]
fn what_is_blocked_is_silent_and_goes_on() {
    let pair = pair(false);
    let at = echo();
    let mut socket = pair.reach(at);
    let mut hear = [0; 5];
    let mut back = |mut socket: &TcpStream| {
        socket.read_exact(&mut hear).unwrap();
        hear
    };
    socket.write_all(b"first").unwrap();
    assert_eq!(&back(&socket), b"first");
    let ask = |number, clusters: [&[u32]; 2]| {
        for (own, clusters) in pair.own.iter().zip(clusters) {
            let clusters = clusters.iter().copied().collect();
            own.notes.send(Note::Silence(Silence { number, clusters }));
        }
    };
    ask(1, [&[1], &[0]]);
    let with = |own: &Arc<Own>| own.silent().clusters.first().copied();
    until("there is no silence", || pair.own.iter().map(with).eq([Some(1), Some(0)]));
    let carried = || pair.own.each_ref().map(|own| own.counts.now().bytes_sent);
    let before = carried();
    socket.write_all(b"later").unwrap();
    let secret = Secret::plain(pair.key.clone());
    for _ in 0..20 {
        let refused = connect(&pair.routes, &secret, at);
        assert!(refused.unwrap_err().to_string().contains("takes nothing"));
    }
    assert_eq!(carried(), before);
    ask(2, [&[], &[]]);
    assert_eq!(&back(&socket), b"later");
    until("it is still silent", || pair.own.iter().all(|own| with(own).is_none()));
    drop(pair.reach(at));
}

/// With encryption between nodes, and without.
#[test]
fn nodes_are_told_where_their_gateway_is_and_reach_the_controller_there() {
    for encrypted in [false, true] {
        let secret = Secret::new(Key::new().unwrap(), encrypted).unwrap();
        let (folder, routes) = (tempfile::tempdir().unwrap(), Routes::default());
        routes.set(vec![0, 1], None);
        routes.set_home(0);
        let (job, secret_of) = (JOB.into(), secret.clone());
        let own = Identity {
            job,
            node: 1,
            epoch: 1,
            secret: secret_of,
            routes: routes.clone(),
            silence: PATIENCE,
        };
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = door.local_addr().unwrap();
        let (images, members) = (folder.path().to_path_buf(), Members::default());
        image_store::serve(door, own, images, members, Arc::default(), StoreServices::default())
            .unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = gateway.local_addr().unwrap();
        let mut heralds = herald::Heralds::new((3, place), JOB, secret.clone());
        heralds.know(vec![StoreAddress { node: 1, epoch: 1, at }]).unwrap();
        let call = move || {
            let call = routes.call(1, (CONTROLLER, 0));
            call.connect((&secret, JOB), (1, 1), at, PATIENCE)
        };
        let called = std::thread::spawn(move || {
            loop {
                match call() {
                    // It has not been told.
                    Err(error) if error.to_string().contains("no way") => std::thread::yield_now(),
                    called => return called.is_ok(),
                }
            }
        });
        gateway.set_nonblocking(true).unwrap();
        until("a call", || gateway.accept().is_ok());
        assert!(!called.join().unwrap(), "nobody greeted");
    }
}

#[test]
fn the_next_gateway_listens_for_nodes_where_the_one_before_did_if_that_is_free() {
    let at = IpAddr::from([127, 0, 0, 1]);
    let before = TcpListener::bind((at, 0)).unwrap();
    let port = before.local_addr().unwrap().port();
    let (_other, inside) = listen_inside(at, Some(port)).unwrap();
    assert_ne!(inside.port(), port);
    drop(before);
    let (_same, inside) = listen_inside(at, Some(port)).unwrap();
    assert_eq!(inside, SocketAddr::new(at, port));
}
