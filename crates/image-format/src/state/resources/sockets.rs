//! Sockets: those of one image, those that lead to another image of the same set, and those that
//! lead to one on another node.

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described, text};
use std::net::{Ipv4Addr, Ipv6Addr};

const MAX_ADDRESS_BYTES: usize = 128;
const MAX_OPTION_BYTES: usize = 256;

wire_struct! {
    /// An option of a socket, as `setsockopt` takes it.
    pub struct SocketOption {
        /// Level, such as `SOL_SOCKET`.
        pub level: u32,
        /// Its number.
        pub name: u32,
        /// Its value.
        pub value: Vec<u8>,
    }
}

wire_struct! {
    /// What a socket had received and the program not read.
    pub struct Message {
        /// Its bytes; of a stream, all of them.
        pub data: Vec<u8>,
        /// Address of the sender, as `recvfrom` returns it; empty if it has none.
        pub from: Vec<u8>,
    }
}

wire_struct! {
    /// A socket.
    pub struct Socket {
        /// Its number.
        pub id: u64,
        /// `AF_*`.
        pub family: u32,
        /// `SOCK_*`.
        pub kind: u32,
        /// Protocol.
        pub protocol: u32,
        /// Its address; empty if it has none.
        pub name: Vec<u8>,
        /// Length of the queue of a socket that listens.
        pub listens: Option<u32>,
        /// Number of the socket that it is connected to; 0 if that is closed or there is none.
        pub peer: u64,
        /// Address of that one; empty if it has none.
        pub peer_name: Vec<u8>,
        /// Whether it is connected, or was to one that is closed now.
        pub connected: bool,
        /// Which directions were shut: 1 receiving, 2 sending.
        pub shut: u32,
        /// Its options.
        pub options: Vec<SocketOption>,
        /// What has been received and not read.
        pub received: Vec<Message>,
    }
}

wire_struct! {
    /// A socket connected to one of a process whose image is another one of the same set. It comes
    /// back with that one only.
    pub struct Between {
        /// The socket.
        pub socket: Socket,
    }
}

wire_struct! {
    /// A socket of TCP connected to one of a process on another node, whose image is another one of
    /// the same set. It comes back with that one only.
    pub struct Apart {
        /// The socket.
        pub socket: Socket,
        /// Number of the connection in the set.
        pub link: u64,
        /// What had been sent and was not known to have arrived ...
        pub kept: Vec<u8>,
        /// ... and TCP's number of its first byte.
        pub kept_from: u32,
        /// TCP's number of the byte after those received, if the other end kept anything.
        pub arrived: u32,
    }
}

/// Where the other end of a socket is.
pub enum Reach<'a> {
    /// In the same image, outside of all, or nowhere.
    Here,
    /// In another image of the set.
    Between,
    /// In one of another node.
    Apart(&'a Apart),
}

impl Socket {
    fn is_sound(&self) -> bool {
        let options = self.options.iter().all(|o| o.value.len() <= MAX_OPTION_BYTES);
        let addresses = self.received.iter().map(|m| &m.from).chain([&self.name, &self.peer_name]);
        options && addresses.into_iter().all(|a| a.len() <= MAX_ADDRESS_BYTES)
    }

    fn shown(&self) -> String {
        let kind = match (self.family as i32, self.kind as i32) {
            (libc::AF_UNIX, _) => "Unix",
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM) => "TCP",
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM) => "UDP",
            _ => "of another kind",
        };
        let mut shown = format!("{kind} {}", address(&self.name));
        if self.listens.is_some() {
            shown.push_str(", listens");
        }
        if self.connected {
            shown = format!("{shown}, connected to {}", address(&self.peer_name));
        }
        match self.received.iter().map(|m| m.data.len()).sum::<usize>() {
            0 => shown,
            waiting => format!("{shown}, {waiting} bytes unread"),
        }
    }
}

impl Described for Socket {
    fn holds(&self, _: &Around<'_>) -> bool {
        self.is_sound()
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("socket", self.shown())
    }
}

impl Described for Between {
    fn holds(&self, _: &Around<'_>) -> bool {
        self.socket.connected && self.socket.peer != 0 && self.socket.is_sound()
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("socket", format!("{}, of another image", self.socket.shown()))
    }
}

impl Described for Apart {
    fn holds(&self, _: &Around<'_>) -> bool {
        let s = &self.socket;
        s.connected && s.peer == 0 && s.family as i32 != libc::AF_UNIX && s.is_sound()
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("socket", format!("{}, of an image of another node", self.socket.shown()))
    }
}

/// A socket address (`sockaddr`) as people write it.
fn address(raw: &[u8]) -> String {
    let port = |raw: &[u8]| u16::from_be_bytes([raw[2], raw[3]]);
    match raw.first_chunk::<2>().map(|f| i32::from(u16::from_le_bytes(*f))) {
        Some(libc::AF_INET) if raw.len() >= 8 => {
            let ip = Ipv4Addr::new(raw[4], raw[5], raw[6], raw[7]);
            format!("{ip}:{}", port(raw))
        }
        Some(libc::AF_INET6) if raw.len() >= 24 => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&raw[8..24]);
            format!("[{}]:{}", Ipv6Addr::from(ip), port(raw))
        }
        Some(libc::AF_UNIX) if raw.len() > 2 => {
            let path = raw[2..].split(|&b| b == 0).find(|part| !part.is_empty());
            text(path.unwrap_or(b""))
        }
        _ => "without an address".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_their_family() {
        let v4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address(&v4), "127.0.0.1:8080");
        let mut v6 = vec![10, 0, 0x1f, 0x90, 0, 0, 0, 0];
        v6.extend_from_slice(&[0; 15]);
        v6.push(1);
        assert_eq!(address(&v6), "[::1]:8080");
        assert_eq!(address(b"\x01\0/run/x\0\0"), "/run/x");
        assert_eq!(address(b"\x01\0\0hidden"), "hidden");
        for odd in [&b""[..], b"\x02", b"\x02\0\x01", b"\x0a\0\x01\x02"] {
            assert_eq!(address(odd), "without an address");
        }
    }
}
