//! What the kernel tells of the other end's machine: when a connection's last packet came, and
//! whether one is due (`protocol::machine`).

use eyrie_protocol::machine::Sign;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Where these lie in `struct tcp_info`: segments that are not acknowledged; milliseconds since
/// data came, and since an acknowledgement did.
const UNACKED: usize = 24;
const LAST_DATA_RECEIVED: usize = 52;
const LAST_ACK_RECEIVED: usize = 56;
const INFO_BYTES: usize = 64;

/// None: it does not tell.
pub fn of(socket: &TcpStream) -> Option<Sign> {
    let mut info = [0u8; INFO_BYTES];
    let mut bytes = INFO_BYTES as libc::socklen_t;
    // SAFETY: a live buffer with its length.
    let done = unsafe {
        let at = info.as_mut_ptr().cast();
        let fd = socket.as_raw_fd();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut bytes)
    };
    if done < 0 {
        tracing::debug!("TCP_INFO: {}", io::Error::last_os_error());
        return None;
    }
    let info = info.get(..bytes as usize)?;
    let word = |at: usize| info.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    let age_ms = word(LAST_DATA_RECEIVED)?.min(word(LAST_ACK_RECEIVED)?);
    Some(Sign { due: word(UNACKED)? > 0, age_ms: age_ms.into() })
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
    }
}
