//! A port that another process's connection took meanwhile: the kernel gives connections ports of
//! its own choice, also one that a restored connection had. Both can have it, as they lead
//! elsewhere; only `bind` does not allow that, so the kernel is told to choose again, among this
//! port alone (ip(7): IP_LOCAL_PORT_RANGE, since Linux 6.3; where it is missing, the port stays
//! taken).

use crate::resources::sockets::inet::{bind, plain};
use crate::resources::sockets::set_option;
use std::io;
use std::os::fd::OwnedFd;

/// Not in libc yet.
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// Gives a socket that is to call this address; where others have its port, it gets that as it
/// calls.
pub fn bind_caller(fd: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match (bind(fd, name), plain(name)) {
        (Err(e), Some((_, port))) if e.kind() == io::ErrorKind::AddrInUse => {
            choose_later(fd, name, port).map_err(|_| e)
        }
        (result, _) => result,
    }
}

fn choose_later(fd: &OwnedFd, name: &[u8], port: u16) -> io::Result<()> {
    let only = u32::from(port) << 16 | u32::from(port);
    set_option(fd, libc::SOL_IP, IP_LOCAL_PORT_RANGE, &only.to_le_bytes())?;
    set_option(fd, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1i32.to_le_bytes())?;
    let mut any = name.to_vec();
    any[2..4].fill(0);
    bind(fd, &any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::sockets::inet::{End, link};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_port_that_another_connection_took_is_shared_with_it() {
        let (theirs, ours) = (TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
        let (theirs, ours) = (theirs.unwrap(), ours.unwrap());
        let other = TcpStream::connect(theirs.local_addr().unwrap()).unwrap();
        let address = |port: u16| {
            let mut name = vec![2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            name[2..4].copy_from_slice(&port.to_be_bytes());
            name
        };
        let port = other.local_addr().unwrap().port();
        let (from, to) = (address(port), address(ours.local_addr().unwrap().port()));
        let end = |at| End { family: libc::AF_INET as u32, at };
        let listener = OwnedFd::from(ours);
        match link(&listener, &end(&from), &end(&to)) {
            Ok((near, far)) => {
                assert_eq!(TcpStream::from(near).local_addr().unwrap().port(), port);
                assert_eq!(TcpStream::from(far).peer_addr().unwrap().port(), port);
            }
            Err(e) => {
                // Linux before 6.3.
                let probe = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
                let known = set_option(&probe, libc::SOL_IP, IP_LOCAL_PORT_RANGE, &[0; 4]);
                assert!(known.is_err() && e.kind() == io::ErrorKind::AddrInUse, "{e}");
            }
        }
    }
}
