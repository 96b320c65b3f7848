//! Conversations with other nodes that end when those are members no more: who waits for an answer,
//! or to be rid of what he sends, hears at once that there will be none.
//!
//! Kept true: what is noted is ended when its node is no member any more, whenever that was heard
//! of; what is over is forgotten.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A node in one of its incarnations.
pub type Whom = (u32, u64);

/// The conversations of a node.
#[derive(Default)]
pub struct Calls(Mutex<All>);

#[derive(Default)]
struct All {
    open: BTreeMap<u64, (Whom, TcpStream)>,
    next: u64,
}

/// One of them, for as long as this is kept.
pub struct Call {
    calls: Arc<Calls>,
    number: u64,
}

impl Calls {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a conversation with a node.
    pub fn note(self: &Arc<Self>, with: Whom, socket: &TcpStream) -> io::Result<Call> {
        let socket = socket.try_clone()?;
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        all.open.insert(number, (with, socket));
        Ok(Call { calls: Arc::clone(self), number })
    }

    /// Ends those with nodes that are none of these.
    pub fn keep(&self, members: impl Fn(Whom) -> bool) {
        for (with, socket) in self.all().open.values() {
            if !members(*with) {
                // It may have ended by itself.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.all().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn who_waits_for_a_node_that_is_no_member_any_more_waits_no_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut first, mut second, third) = (connect(), connect(), connect());
        let mut there = [(); 3].map(|()| listener.accept().unwrap().0);
        let calls = Arc::new(Calls::default());
        let noted = [((1, 4), &first), ((2, 5), &second), ((1, 3), &third)];
        let [lost, stays, over] = noted.map(|(with, socket)| calls.note(with, socket).unwrap());
        drop(over);
        let waits = std::thread::spawn(move || first.read(&mut [0]).unwrap());
        calls.keep(|who| who == (2, 5));
        assert_eq!(waits.join().unwrap(), 0, "it ends");
        assert_eq!(there[0].read(&mut [0]).unwrap(), 0, "for both");
        there[1].write_all(b"x").unwrap();
        assert_eq!(second.read(&mut [0]).unwrap(), 1, "the other one goes on");
        there[2].write_all(b"x").unwrap();
        assert_eq!({ third }.read(&mut [0]).unwrap(), 1, "and what is not noted any more");
        drop((lost, stays));
        assert!(calls.all().open.is_empty());
    }
}
