//! How far the ranks of a node are in their standard streams.
//!
//! Kept true: the position of a process in its input is known exactly while it stands still.
//! Reading and feeding are left to the outer `streams`.

use eyrie_control::node::OUTPUT_WINDOW_BYTES;
use eyrie_process::pipes::queued;
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use tokio::sync::Notify;

/// What became of an attempt to feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fed {
    /// The pipe is full.
    Blocked,
    /// All that is known was fed.
    Idle,
    /// There will be nothing more for this process.
    Over,
}

/// Output that the controller has not taken yet.
#[derive(Default)]
pub(crate) struct Flow {
    under_way: Cell<u64>,
    moved: Notify,
}

impl Flow {
    pub(crate) fn sent(&self, bytes: u64) {
        self.under_way.set(self.under_way.get() + bytes);
    }

    fn taken(&self, bytes: u64) {
        self.under_way.set(self.under_way.get().saturating_sub(bytes));
        self.moved.notify_waiters();
    }

    pub(crate) async fn room(&self) {
        loop {
            let moved = self.moved.notified();
            if self.under_way.get() < OUTPUT_WINDOW_BYTES {
                return;
            }
            moved.await;
        }
    }
}

/// Standard input that comes before the process of rank 0 whose it is: that waits for what other
/// nodes had for the rank.
pub(crate) struct Ahead {
    start: u64,
    bytes: VecDeque<u8>,
    over: bool,
}

impl Ahead {
    fn of(start: u64) -> Ahead {
        Ahead { start, bytes: VecDeque::new(), over: false }
    }
}

/// Standard input of the process of rank 0.
pub(crate) struct InputPipe {
    pub(crate) start: u64,
    /// Dropped when there will be nothing more.
    write: Option<OwnedFd>,
    /// Held to ask how many bytes are still in the pipe.
    pub(crate) read: OwnedFd,
    /// Bytes that do not fit into the pipe yet.
    pub(crate) waiting: VecDeque<u8>,
    pub(crate) over: bool,
    /// Position of the bytes in the pipe's end.
    pub(crate) fed: u64,
    more: Rc<Notify>,
}

impl InputPipe {
    fn new(start: u64, [read, write]: [OwnedFd; 2], position: u64) -> InputPipe {
        let (waiting, more) = (VecDeque::new(), Rc::new(Notify::new()));
        InputPipe { start, write: Some(write), read, waiting, over: false, fed: position, more }
    }

    /// What has come by now is fed first.
    fn take(&mut self, ahead: Ahead) {
        if ahead.start == self.start {
            (self.waiting, self.over) = (ahead.bytes, ahead.over);
        }
    }

    fn more(&self) -> Rc<Notify> {
        Rc::clone(&self.more)
    }

    /// Bytes the process has taken. Exact only while it is stopped.
    pub(crate) fn consumed(&self) -> u64 {
        self.fed.saturating_sub(queued(self.read.as_fd()))
    }

    /// Feeds as much as fits.
    pub(crate) fn feed(&mut self) -> Fed {
        while let Some(write) = &self.write {
            let (next, _) = self.waiting.as_slices();
            if next.is_empty() {
                if !self.over {
                    return Fed::Idle;
                }
                break;
            }
            match rustix::io::write(write, next) {
                Ok(n) => {
                    self.waiting.drain(..n);
                    self.fed += n as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Fed::Blocked,
                Err(_) => break,
            }
        }
        self.write = None;
        Fed::Over
    }
}

/// The standard streams of a node's ranks.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) flow: Rc<Flow>,
    /// Standard input of rank 0, if that has a process here.
    pub(crate) feed: Option<InputPipe>,
    /// What comes before it has.
    ahead: Option<Ahead>,
}

impl Streams {
    pub fn flow(&self) -> Rc<Flow> {
        Rc::clone(&self.flow)
    }

    /// The controller has taken so much output.
    pub fn output_taken(&self, bytes: u64) {
        self.flow.taken(bytes);
    }

    /// A process of rank 0 is to start, whose input may come before it does.
    pub fn begin_ahead(&mut self, start: u64) {
        self.ahead = Some(Ahead::of(start));
    }

    /// The process of rank 0 has this pipe for its input, which goes on from that position. Tells
    /// when there is more.
    pub fn begin_feed(&mut self, start: u64, pipe: [OwnedFd; 2], position: u64) -> Rc<Notify> {
        let mut feed = InputPipe::new(start, pipe, position);
        self.ahead.take().into_iter().for_each(|ahead| feed.take(ahead));
        let more = feed.more();
        self.feed = Some(feed);
        more
    }

    pub fn end_feed(&mut self) {
        self.feed = None;
    }

    pub fn take_input(&mut self, start: u64, bytes: Vec<u8>) {
        if let Some(feed) = self.feed.as_mut().filter(|f| f.start == start) {
            feed.waiting.extend(bytes);
            feed.more.notify_one();
        } else if let Some(ahead) = self.ahead.as_mut().filter(|a| a.start == start) {
            ahead.bytes.extend(bytes);
        }
    }

    pub fn end_input(&mut self, start: u64) {
        if let Some(feed) = self.feed.as_mut().filter(|f| f.start == start) {
            feed.over = true;
            feed.more.notify_one();
        } else if let Some(ahead) = self.ahead.as_mut().filter(|a| a.start == start) {
            ahead.over = true;
        }
    }

    /// The input of a rank's process, if it has any.
    pub(crate) fn feed_of(&self, rank: u32, start: u64) -> Option<&InputPipe> {
        self.feed.as_ref().filter(|f| f.start == start && rank == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_before_the_process_is_fed_to_it() {
        let pipe = eyrie_process::pipes::pipe(1).unwrap();
        let mut feed = InputPipe::new(7, pipe, 3);
        feed.take(Ahead { over: true, ..Ahead::of(6) });
        assert!(matches!(feed.feed(), Fed::Idle));
        feed.take(Ahead { start: 7, bytes: VecDeque::from(*b"words"), over: true });
        assert!(matches!(feed.feed(), Fed::Over));
        assert_eq!((feed.fed, feed.consumed()), (8, 3));
    }
}
