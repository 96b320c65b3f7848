//! Against the real library, with its `tcp` provider, over the loopback device.
//!
//! Where it is not installed that is printed and counted as a failure, unless `EYRIE_TESTS_WITHOUT`
//! names `libfabric`.

mod layout;
mod pipes;

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use crate::{Error, Listener, Pipe, Provider, TOKEN_BYTES, connect};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Against a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The provider, or `None` where the tests are to do without.
fn provider() -> Option<Provider> {
    match Provider::find(Some("tcp"), HERE) {
        Ok(provider) => Some(provider),
        Err(error) => {
            println!("NOT RUN: {error}");
            let without = std::env::var("EYRIE_TESTS_WITHOUT").unwrap_or_default();
            assert!(without.split(',').any(|name| name == "libfabric"), "{error}");
            None
        }
    }
}

fn leashes() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (there.into(), listener.accept().unwrap().0.into())
}

/// Two ends of a connection.
fn pair(provider: &Provider) -> (Pipe, Pipe) {
    let (there, here) = leashes();
    let token = [7; TOKEN_BYTES];
    let listener = Listener::new(provider, HERE, token).unwrap();
    let address = listener.address().to_vec();
    thread::scope(|scope| {
        let called = scope.spawn(move || listener.accept(here, TIMEOUT).unwrap());
        let calls = connect(provider, HERE, (&address, &token), there, TIMEOUT).unwrap();
        (calls, called.join().unwrap())
    })
}

#[test]
fn what_is_not_there_is_said() {
    let Some(_) = provider() else { return };
    let unknown = Provider::find(Some("carrier-pigeon"), HERE).unwrap_err();
    let Error::NoProvider { name, others } = unknown else { panic!("{unknown}") };
    assert_eq!(name, "carrier-pigeon");
    assert!(others.contains("tcp"), "{others}");
    // The loopback device has no better one.
    assert!(Provider::better_than_tcp(HERE).is_none());
    assert!(Provider::find(None, HERE).is_ok());
}
