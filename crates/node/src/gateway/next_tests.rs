//! The next gateway of a cluster, where nobody tells of the end of the one before: its machine went
//! with it. Here that one lives on, which says as little.

use super::tests::{JOB, PATIENCE, Pair, begin, echo, pair, until};
use super::*;
use eyrie_control::auth::{Hello, Role};
use eyrie_control::gateway::Gate;
use eyrie_tls::Routes;
use std::io::Read;
use std::net::TcpStream;

fn connections(own: &Own) -> u64 {
    own.counts.now().connections
}

/// The next gateway of a cluster, which all but the one before hear of, and where nodes reach it.
fn next(pair: &mut Pair, cluster: u32) -> (Arc<Own>, SocketAddr) {
    let (own, inside, at) = open(begin(&pair.key, cluster, 2, true)).unwrap();
    let other = 1 - cluster;
    let stays = Gate { cluster: other, number: 1, at: pair.outside[other as usize] };
    let gates = [stays, Gate { cluster, number: 2, at }];
    pair.callers[other as usize].know(&gates, &pair.own[other as usize]).unwrap();
    call::Callers::default().know(&gates, &own).unwrap();
    (own, inside)
}

/// What stands through the one before ends at both ends, and is made again through this one.
fn goes_on(pair: &Pair, next: &Own, mut socket: TcpStream, at: SocketAddr) {
    until("connections to the next one", || connections(next) == 2);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended = socket.read(&mut [0]).map_err(|e| e.kind());
    assert!(matches!(ended, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{ended:?}");
    let _again = pair.reach(at);
    assert_eq!(next.counts.now().streams, 1);
}

#[test]
fn who_calls_leaves_the_gateway_that_has_a_successor() {
    let mut pair = pair(true);
    let at = echo();
    let socket = pair.reach(at);
    let (next, _) = next(&mut pair, 1);
    goes_on(&pair, &next, socket, at);
    assert_eq!(connections(&pair.own[0]), 2);
}

/// The one before calls on, and is not heard.
#[test]
fn who_is_called_leaves_the_gateway_that_has_a_successor() {
    let mut pair = pair(true);
    let at = echo();
    let socket = pair.reach(at);
    let (next, inside) = next(&mut pair, 0);
    pair.routes.set(vec![0, 1], Some(inside));
    goes_on(&pair, &next, socket, at);
    assert_eq!(pair.own[0].counts.now().streams, 0);
}

#[test]
fn who_is_gone_without_a_successor_is_left() {
    let mut pair = pair(true);
    let socket = pair.reach(echo());
    let gates = [Gate { cluster: 0, number: 1, at: pair.outside[0] }];
    pair.callers[0].know(&gates, &pair.own[0]).unwrap();
    until("connections are left", || connections(&pair.own[0]) == 0);
    assert!(pair.callers[0].called(1).is_none(), "it is called");
    drop(socket);
}

/// Of one whose other end is gone without a word a new connection tells, for a while.
#[test]
fn of_connections_with_as_many_streams_the_newest_is_used() {
    let key = Key::new().unwrap();
    let (own, inside, at) = open(begin(&key, 1, 1, true)).unwrap();
    let secret = Secret::new(key.clone(), false).unwrap();
    let call = |count| {
        let hello = Hello::new(Role::TunnelCaller, JOB, (0, 9), (1, 1)).unwrap();
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let (stream, _) = secret.call(socket, &hello, Role::TunnelServer).unwrap();
        until("a connection", || connections(&own) == count);
        stream
    };
    let mut all = [call(1), call(2)];
    let routes = Routes::default();
    routes.set(vec![0, 1], Some(inside));
    let wanted = std::thread::spawn(move || {
        let call = routes.call(1, (0, 1));
        call.connect((&Secret::plain(key), JOB), (1, 1), at, PATIENCE).is_ok()
    });
    assert!(all[1].read(&mut [0; 64]).unwrap() > 0);
    drop(all);
    assert!(!wanted.join().unwrap());
}
