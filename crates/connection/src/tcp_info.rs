//! What the kernel tells of the other end's machine: when a connection's last packet came, and
//! whether one is due (`protocol::machine`); and of the way there, how long a round trip takes.

use eyrie_protocol::machine::Sign;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Where these lie in `struct tcp_info`: segments that are not acknowledged; milliseconds since
/// data came, and since an acknowledgement did; microseconds of a round trip, smoothed.
const UNACKED: usize = 24;
const LAST_DATA_RECEIVED: usize = 52;
const LAST_ACK_RECEIVED: usize = 56;
const ROUND_TRIP: usize = 68;
const INFO_BYTES: usize = 72;

/// None: it does not tell.
pub fn of(socket: &TcpStream) -> Option<Sign> {
    let info = Info::of(socket)?;
    let age_ms = info.word(LAST_DATA_RECEIVED)?.min(info.word(LAST_ACK_RECEIVED)?);
    Some(Sign { due: info.word(UNACKED)? > 0, age_ms: age_ms.into() })
}

/// How long a round trip takes, to the end of the connection itself: of one through a gateway, to
/// that. None: it does not tell.
pub fn round_trip(socket: &TcpStream) -> Option<Duration> {
    Some(Duration::from_micros(Info::of(socket)?.word(ROUND_TRIP)?.into()))
}

/// As much of `struct tcp_info` as is looked at.
struct Info {
    bytes: [u8; INFO_BYTES],
    /// So much is told.
    told: usize,
}

impl Info {
    fn of(socket: &TcpStream) -> Option<Info> {
        let mut bytes = [0u8; INFO_BYTES];
        let mut told = INFO_BYTES as libc::socklen_t;
        // SAFETY: a live buffer with its length.
        let done = unsafe {
            let at = bytes.as_mut_ptr().cast();
            let fd = socket.as_raw_fd();
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut told)
        };
        if done < 0 {
            tracing::debug!("TCP_INFO: {}", io::Error::last_os_error());
            return None;
        }
        Some(Info { bytes, told: told as usize })
    }

    fn word(&self, at: usize) -> Option<u32> {
        let word = self.bytes.get(..self.told)?.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    #[test]
    fn a_machine_acknowledges_what_nobody_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let idle = of(&here).unwrap();
        assert!(!idle.due && idle.age_ms >= 200, "{idle:?}");
        here.write_all(b"x").unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        let sign = loop {
            let sign = of(&here).unwrap();
            if !sign.due || Instant::now() > end {
                break sign;
            }
        };
        assert!(!sign.due && sign.age_ms < 10_000, "{sign:?}");
        there.write_all(b"y").unwrap();
        here.read_exact(&mut [0]).unwrap();
        assert!(of(&here).unwrap().age_ms < 10_000);
        let trip = round_trip(&here).unwrap();
        assert!(!trip.is_zero() && trip < Duration::from_secs(10), "{trip:?}");
    }
}
