//! What is behind a descriptor or a mapping, in plain words.

use crate::state::{FileId, Orphan, OrphanKind, Pipe, Socket, State, Target};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its kind, in a word, and what tells it from others.
pub fn target(state: &State, target: &Target) -> (&'static str, String) {
    match target {
        Target::Stdio { which } => {
            let which = ["input", "output", "error"].get(*which as usize).unwrap_or(&"stream");
            ("stream", format!("standard {which}"))
        }
        Target::File { id, dir } => (if *dir { "folder" } else { "file" }, text(&id.path)),
        Target::Device { path, .. } => ("device", text(path)),
        Target::Segment { name } => ("segment", text(name)),
        Target::Pipe { pipe } => ("pipe", self::pipe(pipe)),
        Target::Socket { socket } => ("socket", self::socket(socket)),
        Target::Between { socket } => {
            ("socket", format!("{}, of another image", self::socket(socket)))
        }
        Target::Apart { socket, .. } => {
            ("socket", format!("{}, of an image of another node", self::socket(socket)))
        }
        Target::Event { count, semaphore } => {
            let kind = if *semaphore { "semaphore" } else { "counter" };
            ("event", format!("{kind} {count}"))
        }
        Target::Timer { timer } if timer.left_ns == 0 => ("timer", "not armed".into()),
        Target::Timer { timer } => {
            let (left, every) = (timer.left_ns / MS_NS, timer.interval_ns / MS_NS);
            ("timer", format!("expires in {left} ms, then every {every} ms"))
        }
        Target::Signals { mask } => ("signals", format!("{mask:#x}")),
        Target::Poll { items } => ("epoll", format!("watches {} files", items.len())),
        Target::Orphan { orphan } => ("memory", self::orphan_name(state, *orphan)),
        Target::Inotify { watches } => ("inotify", format!("watches {} paths", watches.len())),
        Target::Relative { pid: 0 } => ("process", "collected".into()),
        Target::Process { pid } | Target::Relative { pid } => ("process", pid.to_string()),
        #[allow(unreachable_patterns, reason = "formats to come may know more")]
        _ => ("other", String::new()),
    }
}

fn pipe(pipe: &Pipe) -> String {
    let waiting: usize = pipe.content.iter().map(Vec::len).sum();
    let name = if pipe.path.is_empty() { format!("pipe {:x}", pipe.id) } else { text(&pipe.path) };
    if waiting == 0 { name } else { format!("{name}, {waiting} bytes in it") }
}

fn socket(socket: &Socket) -> String {
    let kind = match (socket.family as i32, socket.kind as i32) {
        (libc::AF_UNIX, _) => "Unix",
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM) => "TCP",
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM) => "UDP",
        _ => "of another kind",
    };
    let mut shown = format!("{kind} {}", address(&socket.name));
    if socket.listens.is_some() {
        shown.push_str(", listens");
    }
    if socket.connected {
        shown = format!("{shown}, connected to {}", address(&socket.peer_name));
    }
    match socket.received.iter().map(|m| m.data.len()).sum::<usize>() {
        0 => shown,
        waiting => format!("{shown}, {waiting} bytes unread"),
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

/// The shared object with an index.
pub fn orphan_name(state: &State, index: u32) -> String {
    state.orphans.get(index as usize).map(orphan).unwrap_or_default()
}

/// A shared object without a path.
pub fn orphan(orphan: &Orphan) -> String {
    match &orphan.kind {
        OrphanKind::Memory { name, .. } => format!("/memfd:{}", text(name)),
        OrphanKind::Deleted { path } => format!("{} (deleted)", text(path)),
        OrphanKind::Anonymous {} => "[shared]".into(),
        OrphanKind::Named { path } | OrphanKind::Kept { file: FileId { path, .. }, .. } => {
            text(path)
        }
        OrphanKind::SystemV { number, .. } => format!("[shm {number}]"),
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
