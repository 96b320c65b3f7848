//! The standard streams of the ranks: output is read and passed on, input is fed.
//!
//! Kept true: the position of a rank in its streams is known exactly while it stands still; output
//! is not read faster than the controller takes it, except for what a dead process left.

use super::Agent;
use eyrie_control::Stream;
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::node::{FromNode, OUTPUT_WINDOW_BYTES};
use eyrie_image::GivenStreams;
use eyrie_process::pipes::queued;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

const READ_BYTES: usize = 64 * 1024;
const _: () = assert!(READ_BYTES <= MAX_DATA_BYTES);

/// What became of an attempt to feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fed {
    /// The pipe is full.
    Blocked,
    /// All that is known was fed.
    Idle,
    /// There will be nothing more for this process.
    Over,
}

/// Output that the controller has not taken yet.
#[derive(Default)]
pub(super) struct Flow {
    under_way: Cell<u64>,
    moved: Notify,
}

impl Flow {
    fn sent(&self, bytes: u64) {
        self.under_way.set(self.under_way.get() + bytes);
    }

    fn taken(&self, bytes: u64) {
        self.under_way.set(self.under_way.get().saturating_sub(bytes));
        self.moved.notify_waiters();
    }

    async fn room(&self) {
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
struct Ahead {
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
struct InputPipe {
    start: u64,
    /// Dropped when there will be nothing more.
    write: Option<OwnedFd>,
    /// Held to ask how many bytes are still in the pipe.
    read: OwnedFd,
    /// Bytes that do not fit into the pipe yet.
    waiting: VecDeque<u8>,
    over: bool,
    /// Position of the bytes in the pipe's end.
    fed: u64,
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
    fn consumed(&self) -> u64 {
        self.fed.saturating_sub(queued(self.read.as_fd()))
    }

    /// Feeds as much as fits.
    fn feed(&mut self) -> Fed {
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
pub(super) struct Streams {
    flow: Rc<Flow>,
    /// Standard input of rank 0, if that has a process here.
    feed: Option<InputPipe>,
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
    fn feed_of(&self, rank: u32, start: u64) -> Option<&InputPipe> {
        self.feed.as_ref().filter(|f| f.start == start && rank == 0)
    }
}

/// Reads one output pipe as long as its process lives; slower when the console is slow.
pub(super) async fn listen(
    agent: Weak<RefCell<Agent>>,
    flow: Rc<Flow>,
    pipe: Rc<AsyncFd<OwnedFd>>,
    rank: u32,
    stream: Stream,
) {
    let mut buffer = vec![0u8; READ_BYTES];
    loop {
        flow.room().await;
        let Ok(mut ready) = pipe.readable().await else { return };
        let got = ready.try_io(|fd| Ok(rustix::io::read(fd.as_fd(), &mut buffer)?));
        let count = match got {
            Ok(Ok(0)) => return,
            Ok(Ok(count)) => count,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(Err(_)) => return,
            Err(_would_block) => continue,
        };
        let Some(agent) = agent.upgrade() else { return };
        agent.borrow_mut().output(rank, stream, &buffer[..count]);
        // Let the main loop hear of deaths and bells between two pieces.
        tokio::task::yield_now().await;
    }
}

/// Feeds rank 0 whenever there is something and its pipe has room.
pub(super) async fn feed(
    agent: Weak<RefCell<Agent>>,
    writer: AsyncFd<OwnedFd>,
    start: u64,
    more: Rc<Notify>,
) {
    loop {
        let Ok(mut ready) = writer.writable().await else { return };
        let Some(shared) = agent.upgrade() else { return };
        let fed = shared.borrow_mut().feed(start);
        drop(shared);
        match fed {
            Fed::Blocked => ready.clear_ready(),
            Fed::Idle => more.notified().await,
            Fed::Over => return,
        }
    }
}

impl Agent {
    fn feed(&mut self, start: u64) -> Fed {
        let Some(feed) = self.streams.feed.as_mut().filter(|f| f.start == start) else {
            return Fed::Over;
        };
        let before = feed.fed;
        let fed = feed.feed();
        let position = feed.fed;
        if position > before {
            self.say(FromNode::InputFed { start, position });
        }
        fed
    }

    /// Where a rank that stands still is in its standard streams.
    pub(super) fn pipes(&mut self, rank: u32, start: u64) -> Option<crate::checkpoint::Pipes> {
        let input = self.streams.feed_of(rank, start).map_or(0, InputPipe::consumed);
        let proc = self.proc(rank, start)?;
        let written = |i: usize| proc.written[i] + queued(proc.pipes[i].get_ref().as_fd());
        Some(crate::checkpoint::Pipes { output: [written(0), written(1)], input })
    }

    /// The standard streams that the process of a rank was given.
    pub(super) fn given(&mut self, rank: u32, start: u64) -> GivenStreams {
        let fed = self.streams.feed_of(rank, start);
        let input = fed.and_then(|feed| feed.read.try_clone().ok());
        let outputs = self.proc(rank, start).map(|proc| proc.pipes.clone());
        let output = |i: usize| outputs.as_ref().map(|pipes| pipes[i].get_ref().as_fd());
        GivenStreams::of([input.as_ref().map(|fd| fd.as_fd()), output(0), output(1)])
    }

    /// Bytes a rank wrote.
    fn output(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let Some(proc) = &mut self.ranks[rank as usize].proc else { return };
        proc.written[stream as usize] += bytes.len() as u64;
        let start = proc.start;
        self.streams.flow.sent(bytes.len() as u64);
        self.let_out(FromNode::Output { rank, start, stream, bytes: bytes.to_vec() });
    }

    /// Reads what is left in the pipes of a process that is dead: nothing more can come from it.
    pub(super) fn drain(&mut self, rank: u32) {
        let mut buffer = vec![0u8; READ_BYTES];
        for stream in [Stream::Stdout, Stream::Stderr] {
            let Some(proc) = &self.ranks[rank as usize].proc else { return };
            let pipe = Rc::clone(&proc.pipes[stream as usize]);
            // A pipe holds no more than this; a child of the rank may go on writing.
            let mut left = queued(pipe.get_ref().as_fd()) as usize;
            while left > 0 {
                let want = left.min(READ_BYTES);
                match rustix::io::read(pipe.get_ref(), &mut buffer[..want]) {
                    Ok(0) => break,
                    Ok(count) => {
                        left -= count;
                        self.output(rank, stream, &buffer[..count]);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
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
