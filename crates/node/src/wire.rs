//! The connection between controller and node: frames over TCP, by two threads at each end.
//!
//! Kept true: what is sent arrives in order or not at all; an end that has nothing to say sends
//! beats, so that silence means something; the reader tells the end of the connection once, last.

use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::{Decoder, encode_within};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often an end that has nothing to say says so.
pub const BEAT: Duration = Duration::from_millis(100);
/// Silence that is always borne.
const LEAST_SILENCE: Duration = Duration::from_secs(2);
/// Silence that is never borne.
const MOST_SILENCE: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 64 * 1024;

/// How long the other end may be silent, by what it was used to.
#[derive(Debug)]
pub struct Patience {
    /// Longest gap seen, slowly forgotten.
    longest: Duration,
}

impl Patience {
    pub fn new() -> Patience {
        Patience { longest: Duration::ZERO }
    }

    /// Something came after so long a time.
    pub fn heard(&mut self, gap: Duration) {
        self.longest = gap.max(self.longest * 31 / 32);
    }

    pub fn limit(&self) -> Duration {
        (self.longest * 8).clamp(LEAST_SILENCE, MOST_SILENCE)
    }
}

/// The sending side. When the last clone is dropped, the connection is closed for writing.
pub struct Sender<T>(mpsc::Sender<T>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T> Sender<T> {
    /// What is sent to a connection that is over is lost; its reader tells of that.
    pub fn send(&self, message: T) {
        let _ = self.0.send(message);
    }
}

/// Starts the thread that writes.
pub fn write<T: Serialize + Send + 'static>(
    stream: Arc<TcpStream>,
    beat: fn() -> T,
) -> io::Result<Sender<T>> {
    let (sender, queue) = mpsc::channel::<T>();
    let work = move || {
        loop {
            let message = match queue.recv_timeout(BEAT) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => beat(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let sent = encode_within(MAX_NODE_FRAME_BYTES, &message)
                .map_err(io::Error::other)
                .and_then(|frame| (&*stream).write_all(&frame));
            if let Err(error) = sent {
                tracing::debug!(%error, "a connection broke");
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new().name("eyrie-write".into()).spawn(work)?;
    Ok(Sender(sender))
}

/// Starts the thread that reads: `take` gets every message, then why there are no more.
pub fn read<T: DeserializeOwned>(
    stream: Arc<TcpStream>,
    mut take: impl FnMut(Result<T, String>) + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        let why = read_all(&stream, &mut |message| take(Ok(message)));
        let _ = stream.shutdown(Shutdown::Both);
        take(Err(why));
    };
    std::thread::Builder::new().name("eyrie-read".into()).spawn(work)?;
    Ok(())
}

fn read_all<T: DeserializeOwned>(stream: &TcpStream, take: &mut impl FnMut(T)) -> String {
    let mut decoder = Decoder::within(MAX_NODE_FRAME_BYTES);
    let mut buffer = vec![0; READ_BYTES];
    let mut patience = Patience::new();
    let mut last = Instant::now();
    loop {
        if stream.set_read_timeout(Some(patience.limit())).is_err() {
            return String::from("its connection cannot be used");
        }
        let mut from = stream;
        match from.read(&mut buffer) {
            Ok(0) => return String::from("its connection ended"),
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) =>
            {
                return format!(
                    "nothing was heard of it for {:.1} s",
                    last.elapsed().as_secs_f64()
                );
            }
            Err(error) => return format!("its connection broke: {error}"),
        }
        patience.heard(last.elapsed());
        last = Instant::now();
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => take(message),
                Ok(None) => break,
                Err(error) => return format!("what it sends is malformed: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::ToNode;
    use std::net::TcpListener;

    #[test]
    fn messages_come_in_order_then_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let sender = write(Arc::new(there), || ToNode::Beat).unwrap();
        let (tell, told) = mpsc::channel();
        read(Arc::new(here), move |m: Result<ToNode, String>| drop(tell.send(m))).unwrap();
        (0..5).for_each(|ask| sender.send(ToNode::Look { ask }));
        drop(sender);
        let all: Vec<_> = told.iter().filter(|m| *m != Ok(ToNode::Beat)).collect();
        let looks: Vec<_> = (0..5).map(|ask| Ok(ToNode::Look { ask })).collect();
        assert_eq!(all[..5], looks);
        assert_eq!(all[5..], [Err(String::from("its connection ended"))]);
    }

    #[test]
    fn patience_grows_with_what_it_was_used_to() {
        let mut patience = Patience::new();
        assert_eq!(patience.limit(), LEAST_SILENCE);
        patience.heard(Duration::from_secs(1));
        assert_eq!(patience.limit(), Duration::from_secs(8));
        (0..200).for_each(|_| patience.heard(BEAT));
        assert_eq!(patience.limit(), LEAST_SILENCE);
    }
}
