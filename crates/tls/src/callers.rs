//! Callers that have not shown yet who they are. Anybody can be one, and any number of times.
//!
//! Kept true: of those that call at one place at most [`MOST_CALLERS`] are listened to at a time.
//! When one more comes, the one that has been listened to for longest is hung up on, but not before
//! it had its time; until then the new one waits. Who knows the key needs a few round trips, so it
//! is one that says nothing, or little at a time: also when all of a large job call at once.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most callers that are listened to at a time.
pub const MOST_CALLERS: usize = 128;
/// Who has been listened to for no longer than this is not hung up on.
const GRACE: Duration = Duration::from_secs(1);
/// Until something is looked for again that the system has none of.
const PAUSE: Duration = Duration::from_millis(50);

/// The callers at one place.
#[derive(Clone, Debug)]
pub struct Callers {
    /// And what tells that somebody is not in it any more.
    line: Arc<(Mutex<Line>, Condvar)>,
    grace: Duration,
}

#[derive(Debug, Default)]
struct Line {
    /// Number of the next one.
    next: u64,
    /// Who is listened to, and since when, for longest first.
    callers: VecDeque<(u64, Instant, TcpStream)>,
}

/// One that is listened to. To be dropped when it is known who it is, or that it is nobody.
#[derive(Debug)]
pub struct Caller {
    callers: Callers,
    number: u64,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers::with_grace(GRACE)
    }
}

impl Callers {
    fn with_grace(grace: Duration) -> Callers {
        Callers { line: Arc::default(), grace }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next one that calls, and listens to it as soon as there is a place.
    ///
    /// # Errors
    /// As of [`next_call`] and [`Callers::admit`].
    pub fn next(&self, listener: &TcpListener) -> io::Result<(TcpStream, Caller)> {
        let socket = next_call(listener)?;
        let caller = self.admit(&socket)?;
        Ok((socket, caller))
    }

    /// Listens to one more, as soon as there is a place.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn admit(&self, socket: &TcpStream) -> io::Result<Caller> {
        let copy = socket.try_clone()?;
        let mut line = self.line();
        while line.callers.len() >= MOST_CALLERS {
            let since = line.callers.front().map(|(_, since, _)| since.elapsed());
            let left = since.map_or(Duration::ZERO, |since| self.grace.saturating_sub(since));
            if !left.is_zero() {
                let waited = self.line.1.wait_timeout(line, left);
                line = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else if let Some((_, _, oldest)) = line.callers.pop_front() {
                // If it is gone already there is nobody to hang up on.
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let number = line.next;
        line.next += 1;
        line.callers.push_back((number, Instant::now(), copy));
        Ok(Caller { callers: self.clone(), number })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.callers.line().callers.retain(|(number, ..)| *number != self.number);
        self.callers.line.1.notify_one();
    }
}

/// Waits for the next one that calls. After an error that will not pass at once it waits a while.
///
/// # Errors
/// What the system says. Others may call all the same.
pub fn next_call(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.accept().map(|(socket, _)| socket).inspect_err(|error| {
        let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        if lacks.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error())) {
            std::thread::sleep(PAUSE);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_one_that_said_nothing_for_longest_is_hung_up_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let callers = Callers::with_grace(Duration::ZERO);
        let mut calls = Vec::new();
        let mut call = || {
            let mut far = TcpStream::connect(address).unwrap();
            let here = next_call(&listener).unwrap();
            calls.push((callers.admit(&here).unwrap(), here));
            far.set_nonblocking(true).unwrap();
            move || matches!(far.read(&mut [0]), Ok(0))
        };
        let mut first: Vec<_> = (0..MOST_CALLERS).map(|_| call()).collect();
        assert!(first.iter_mut().all(|is_over| !is_over()));
        let mut last = call();
        assert!(first[0]() && !first[1]() && !last());
        // Who has shown who it is keeps its connection, and makes room.
        let (known, socket) = calls.remove(1);
        drop(known);
        let mut call = || {
            let far = TcpStream::connect(address).unwrap();
            let here = next_call(&listener).unwrap();
            calls.push((callers.admit(&here).unwrap(), here));
            far
        };
        let _far = call();
        assert!(!first[1]() && !first[2]() && !last());
        let _another = call();
        assert!(!first[1]() && first[2]() && !last());
        drop((calls, socket));
        assert!(callers.line().callers.is_empty());
    }

    #[test]
    fn nobody_is_hung_up_on_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let callers = Callers::with_grace(Duration::from_secs(3600));
        let call = || {
            let far = TcpStream::connect(address).unwrap();
            far.set_nonblocking(true).unwrap();
            (far, next_call(&listener).unwrap())
        };
        let mut first = VecDeque::new();
        for _ in 0..MOST_CALLERS {
            let (far, here) = call();
            first.push_back((callers.admit(&here).unwrap(), far, here));
        }
        // One more waits until somebody has shown who it is.
        let (_far, here) = call();
        let line = callers.clone();
        let waiting = std::thread::spawn(move || (line.admit(&here).unwrap(), here));
        let (known, _known_far, _known_here) = first.pop_front().unwrap();
        drop(known);
        let last = waiting.join().unwrap();
        let is_over = |far: &mut TcpStream| matches!(far.read(&mut [0]), Ok(0));
        assert!(first.iter_mut().all(|(_, far, _)| !is_over(far)));
        assert_eq!(callers.line().callers.len(), MOST_CALLERS);
        drop((first, last));
        assert!(callers.line().callers.is_empty());
    }
}
