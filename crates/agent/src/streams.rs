//! The standard streams of the ranks: output is read and passed on, input is fed.
//!
//! Kept true: the position of a rank in its streams is known exactly while it stands still; output
//! is not read faster than the controller takes it, except for what a dead process left.

use super::Agent;
use super::state::streams::{Fed, Flow, InputPipe};
use eyrie_control::Stream;
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::node::FromNode;
use eyrie_image::GivenStreams;
use eyrie_process::pipes::queued;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

const READ_BYTES: usize = 64 * 1024;
const _: () = assert!(READ_BYTES <= MAX_DATA_BYTES);

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
