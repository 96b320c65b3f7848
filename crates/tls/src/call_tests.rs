//! Calls that end while they wait, for whatever they wait just then.

use super::*;
use crate::route::CONTROLLER;
use eyrie_control::auth::Key;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread::{JoinHandle, spawn};

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Where nobody answers, as if a machine were gone, as long as this is kept.
fn gone() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let (listener, at) = listener();
    rustix::net::listen(&listener, 0).unwrap();
    let soon = Duration::from_millis(200);
    let calls = || TcpStream::connect_timeout(&at, soon).ok();
    let held = std::iter::from_fn(calls).take(64).collect();
    (at, listener, held)
}

/// Has a call made; its outcome.
fn calls(routes: &Routes, to: End, at: SocketAddr) -> JoinHandle<bool> {
    let (call, secret) = (routes.call(0, to), Secret::plain(Key([7; 32])));
    spawn(move || call.connect((&secret, "j"), (0, 1), at, PATIENCE).is_ok())
}

/// Node 1 is in another cluster, node 2 in the same.
fn routes(gateway: SocketAddr) -> Routes {
    let routes = Routes::default();
    routes.set(vec![0, 1, 0], Some(gateway));
    routes
}

fn ends(called: JoinHandle<bool>, end: impl FnOnce()) {
    let begun = Instant::now();
    assert!(!called.is_finished());
    end();
    assert!(!called.join().unwrap());
    assert!(begun.elapsed() < PATIENCE / 2, "it waited");
}

#[test]
fn a_call_ends_with_its_gateway_before_that_has_answered() {
    let (at, _listener, _held) = gone();
    let routes = routes(at);
    let called = calls(&routes, (1, 1), at);
    ends(called, || assert!(routes.set(vec![0, 1, 0], None)));
}

#[test]
fn a_call_ends_with_its_gateway_in_the_middle_of_the_greeting() {
    let (gateway, at) = listener();
    let routes = routes(at);
    let called = calls(&routes, (1, 1), at);
    let held = gateway.accept().unwrap();
    ends(called, || assert!(routes.set(vec![0, 1, 0], Some(([127, 0, 0, 1], 9).into()))));
    drop(held);
}

#[test]
fn a_call_ends_when_its_node_is_a_member_no_more() {
    let (at, _listener, _held) = gone();
    let routes = Routes::default();
    let called = calls(&routes, (1, 1), at);
    ends(called, || routes.keep(|member| member == (1, 2)));
}

#[test]
fn a_call_of_the_controller_ends_when_there_is_another_gateway() {
    let (at, _listener, _held) = gone();
    let routes = Routes::default();
    routes.set(vec![1, 1, 1], None);
    routes.set_home(0);
    routes.set_gateway(1, at);
    let called = calls(&routes, (CONTROLLER, 0), at);
    routes.keep(|_| false);
    ends(called, || routes.set_gateway(2, at));
}

/// Also what stands, and nothing else; what is over is forgotten.
#[test]
fn what_goes_elsewhere_goes_on() {
    let (there, at) = listener();
    let routes = routes(at);
    let stands = |to| {
        let call = routes.call(0, to);
        let socket = call.reach(at, PATIENCE).unwrap();
        (call, socket, there.accept().unwrap().0)
    };
    let [mut through, mut straight, mut over] = [(1, 1), (2, 1), (1, 1)].map(stands);
    assert_eq!(routes.calls(|calls| calls.count()), 3);
    drop(over.0);
    routes.set(vec![0, 1, 0], None);
    assert_eq!(through.1.read(&mut [0]).unwrap(), 0, "it ends");
    assert_eq!(through.2.read(&mut [0]).unwrap(), 0, "for both");
    for (mut from, to) in [(straight.2, &mut straight.1), (over.2, &mut over.1)] {
        from.write_all(b"x").unwrap();
        assert_eq!(to.read(&mut [0]).unwrap(), 1);
    }
    drop((through.0, straight.0));
    assert_eq!(routes.calls(|calls| calls.count()), 0);
}

/// However late it comes to it.
#[test]
fn a_call_that_has_ended_is_not_made() {
    let (there, at) = listener();
    let routes = routes(at);
    let call = routes.call(0, (2, 1));
    routes.keep(|_| false);
    assert!(call.reach(at, PATIENCE).is_err());
    drop((call, there));
    let (say, said) = mpsc::channel();
    let other = routes.clone();
    spawn(move || say.send(other.call(0, (2, 1)).reach(at, PATIENCE).is_err()));
    assert!(said.recv().unwrap(), "nobody listens");
}
