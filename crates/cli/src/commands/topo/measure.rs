//! `eyrie __measure`: what `eyrie topo probe` has a host do, through its remote shell: it listens,
//! and sends to others that do.
//!
//! On a connection: the token; then single bytes that come back, for the latency; then `BULK` and
//! for how many milliseconds, and bytes without end. Who receives those says how many came in how
//! many nanoseconds, once that time is over. After `PULL` and milliseconds it is the other way
//! round: who was called sends.
//!
//! Kept true: who does not know the token is hung up on; every wait has an end.

use crate::commands::doctor::look::{REACH, answer, reach};
use eyrie_control::gateway::Ports;
use eyrie_terminal::Failure;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many times `REACH` longer than asked for a slow network may take to bring the first bytes.
const LATE: u32 = 3;
/// Messages that go to and fro at most, in the time that is asked for.
const ROUNDS: usize = 200;
const ECHO: u8 = b'e';
const BULK: u8 = b'b';
const PULL: u8 = b'p';
const BLOCK_BYTES: usize = 256 * 1024;
/// What comes in this part of the time does not count: connections find their rate.
const START_PART: u32 = 4;

pub fn measure() -> Result<i32, Failure> {
    let mut orders = io::stdin().lock().lines();
    let mut next = || -> io::Result<Option<Value>> {
        let Some(line) = orders.next().transpose()? else { return Ok(None) };
        serde_json::from_str(&line).map(Some).map_err(io::Error::other)
    };
    let Some(order) = next()? else { return Ok(0) };
    let token: Arc<str> = Arc::from(order["token"].as_str().unwrap_or_default());
    let (listener, at, why) = listen(&order);
    if let Some(listener) = listener {
        let token = Arc::clone(&token);
        std::thread::spawn(move || serve(&listener, &token));
    }
    answer(&json!({ "at": at.map(|at| at.to_string()), "failed": why }))?;
    while let Some(order) = next()? {
        answer(&match pair(&order, &token) {
            Ok((latency_s, bytes_per_s)) => {
                let back = order["back"].as_bool().map(|_| pull(&order, &token).ok());
                json!({
                    "latency_s": latency_s, "bytes_per_s": bytes_per_s, "back_bytes_per_s": back,
                })
            }
            Err(error) => json!({ "failed": error.to_string() }),
        })?;
    }
    Ok(0)
}

/// Listens as a node does, or as a gateway, and says where.
fn listen(order: &Value) -> (Option<TcpListener>, Option<SocketAddr>, Option<String>) {
    let controller = order["controller"].as_str().unwrap_or_default();
    if order["gate"].is_null() {
        let (listener, reached) = reach(controller);
        let at = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let why = reached.err().map(|error| format!("does not reach this machine: {error}"));
        return (listener, at, why);
    }
    let gate = &order["gate"];
    let names = gate["beside"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<String> = names.map(String::from).collect();
    let outside: Option<IpAddr> = gate["outside"].as_str().and_then(|at| at.parse().ok());
    let port = |at: usize| gate["ports"][at].as_u64().and_then(|port| u16::try_from(port).ok());
    let ports = port(0).zip(port(1)).map(|(first, last)| Ports { first, last });
    let towards = controller.parse().ok();
    match eyrie_node::gateway::listen_outside(towards, &names, (outside, ports)) {
        Ok((listener, at)) => (Some(listener), Some(at), None),
        Err(error) => (None, None, Some(error.to_string())),
    }
}

/// Answers all who call.
fn serve(listener: &TcpListener, token: &Arc<str>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let token = Arc::clone(token);
        // Who calls hears by the end of the connection that it failed.
        std::thread::spawn(move || drop(receive(stream, &token)));
    }
}

fn receive(mut stream: TcpStream, token: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REACH))?;
    let mut said = vec![0; token.len()];
    stream.read_exact(&mut said)?;
    if token.is_empty() || said != token.as_bytes() {
        return Ok(());
    }
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        match byte[0] {
            ECHO => stream.write_all(&byte)?,
            BULK => break,
            PULL => return push(stream),
            _ => return Ok(()),
        }
    }
    let mut millis = [0; 4];
    stream.read_exact(&mut millis)?;
    let time = Duration::from_millis(u64::from(u32::from_le_bytes(millis)));
    stream.set_read_timeout(Some(time + REACH * LATE))?;
    let (bytes, took) = count(&mut stream, time)?;
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    stream.write_all(&[bytes.to_le_bytes(), nanos.to_le_bytes()].concat())?;
    // What is under way is awaited: whoever ends a connection with that loses what it said last.
    let mut block = vec![0; BLOCK_BYTES];
    let end = Instant::now() + REACH * LATE;
    while Instant::now() < end && stream.read(&mut block)? > 0 {}
    Ok(())
}

/// Sends until nobody takes it, or for far longer than was asked.
fn push(mut stream: TcpStream) -> io::Result<()> {
    let mut millis = [0; 4];
    stream.read_exact(&mut millis)?;
    let time = Duration::from_millis(u64::from(u32::from_le_bytes(millis)));
    stream.set_write_timeout(Some(time + REACH * LATE))?;
    let (block, end) = (vec![0; BLOCK_BYTES], Instant::now() + time + REACH * LATE);
    while Instant::now() < end && stream.write_all(&block).is_ok() {}
    hang_up(&stream);
    Ok(())
}

/// Bytes a second that come from another.
fn pull(order: &Value, token: &str) -> io::Result<f64> {
    let (mut stream, millis) = called(order, token)?;
    let time = Duration::from_millis(u64::from(millis));
    stream.write_all(&[PULL])?;
    stream.write_all(&millis.to_le_bytes())?;
    stream.set_read_timeout(Some(time + REACH * LATE))?;
    let counted = count(&mut stream, time);
    hang_up(&stream);
    counted.map(|(bytes, took)| bytes as f64 / took.as_secs_f64().max(1e-9))
}

/// How many bytes come, and in which time, without the first part of it.
fn count(stream: &mut impl Read, time: Duration) -> io::Result<(u64, Duration)> {
    let mut block = vec![0; BLOCK_BYTES];
    if stream.read(&mut block)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let begun = Instant::now();
    let mut started: Option<Instant> = None;
    let mut bytes = 0;
    loop {
        let got = stream.read(&mut block)?;
        let now = Instant::now();
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match started {
            Some(start) => {
                bytes += got as u64;
                if now >= begun + time {
                    return Ok((bytes, now - start));
                }
            }
            None if now >= begun + time / START_PART => started = Some(now),
            None => {}
        }
    }
}

/// Latency and bytes a second to another.
fn pair(order: &Value, token: &str) -> io::Result<(f64, f64)> {
    let (mut stream, millis) = called(order, token)?;
    let time = Duration::from_millis(u64::from(millis));
    let latency_s = latency(&mut stream, time)?;
    stream.write_all(&[BULK])?;
    stream.write_all(&millis.to_le_bytes())?;
    stream.set_read_timeout(Some(time + REACH * LATE))?;
    let mut answer = [0; 16];
    let heard = std::thread::scope(|scope| {
        let mut out = stream.try_clone()?;
        scope.spawn(move || {
            let block = vec![0; BLOCK_BYTES];
            while out.write_all(&block).is_ok() {}
        });
        let heard = stream.read_exact(&mut answer);
        hang_up(&stream);
        heard
    });
    heard?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| answer[at + byte]));
    Ok((latency_s, word(0) as f64 / (word(8).max(1) as f64 / 1e9)))
}

/// A connection to another, and for how many milliseconds it is to be measured.
fn called(order: &Value, token: &str) -> io::Result<(TcpStream, u32)> {
    let at: SocketAddr =
        order["to"].as_str().unwrap_or_default().parse().map_err(io::Error::other)?;
    let millis = order["millis"].as_u64().and_then(|ms| u32::try_from(ms).ok());
    let millis = millis.ok_or(io::ErrorKind::InvalidInput)?;
    let mut stream = TcpStream::connect_timeout(&at, REACH)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REACH))?;
    stream.write_all(token.as_bytes())?;
    Ok((stream, millis))
}

/// Half of the shortest way to and fro.
fn latency(stream: &mut (impl Read + Write), time: Duration) -> io::Result<f64> {
    let begun = Instant::now();
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        stream.write_all(&[ECHO])?;
        stream.read_exact(&mut [0])?;
        least = least.min(sent.elapsed());
        if begun.elapsed() >= time {
            break;
        }
    }
    Ok(least.as_secs_f64() / 2.0)
}

/// Ends a connection at once: what is queued is not sent, as it would be in the way of what is
/// measured next.
fn hang_up(stream: &TcpStream) {
    let none = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of_val(&none) as libc::socklen_t;
    // SAFETY: the value is a `linger`, as the option takes, and as long as stated.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const none).cast(),
            size,
        );
    }
    let _ = stream.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_measure_each_other_and_strangers_are_hung_up_on() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, &Arc::from("secret")));
        let order = json!({ "to": at.to_string(), "millis": 20 });
        let (latency_s, bytes_per_s) = pair(&order, "secret").unwrap();
        assert!(latency_s > 0.0 && bytes_per_s > 0.0, "{latency_s} {bytes_per_s}");
        assert!(pull(&order, "secret").unwrap() > 0.0 && pull(&order, "secre7").is_err());
        assert!(pair(&order, "secre7").is_err());
        assert!(pair(&json!({ "to": "nowhere", "millis": 20 }), "secret").is_err());
        assert!(pair(&json!({ "to": at.to_string() }), "secret").is_err());
    }
}
