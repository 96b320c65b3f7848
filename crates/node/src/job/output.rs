//! What goes in and out of the ranks' standard streams.

use super::{Job, Shared};
use crate::input::Fed;
use crate::monitor;
use crate::outlet::Outlet;
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::{NodeMsg, Stream};
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

const READ_BYTES: usize = 64 * 1024;

/// Reads one output pipe as long as its process lives; slower when the console is slow.
pub(super) async fn listen(
    job: Weak<RefCell<Job>>,
    console: Outlet,
    pipe: Rc<AsyncFd<OwnedFd>>,
    rank: u32,
    stream: Stream,
) {
    let mut buffer = vec![0u8; READ_BYTES];
    loop {
        console.room().await;
        let Ok(mut ready) = pipe.readable().await else { return };
        let got = ready.try_io(|fd| Ok(rustix::io::read(fd.as_fd(), &mut buffer)?));
        let count = match got {
            Ok(Ok(0)) => return,
            Ok(Ok(count)) => count,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(Err(_)) => return,
            Err(_would_block) => continue,
        };
        let Some(job) = job.upgrade() else { return };
        job.borrow_mut().output(rank, stream, &buffer[..count]);
        // Let the main loop hear of deaths and bells between two pieces.
        tokio::task::yield_now().await;
    }
}

/// Feeds rank 0 whenever there is something and its pipe has room.
pub(super) async fn feed(job: Weak<RefCell<Job>>, writer: AsyncFd<OwnedFd>, more: Rc<Notify>) {
    loop {
        let Ok(mut ready) = writer.writable().await else { return };
        let Some(shared) = job.upgrade() else { return };
        let fed = shared.borrow_mut().feed();
        drop(shared);
        match fed {
            Fed::Blocked => ready.clear_ready(),
            Fed::Idle => more.notified().await,
            Fed::Over => return,
        }
    }
}

/// Console bytes for rank 0.
pub fn take_input(job: &Shared, bytes: &[u8]) {
    let mut job = job.borrow_mut();
    if let Err(error) = job.input.push(bytes) {
        let text = format!("cannot keep standard input (it is needed after a fault): {error}");
        return job.step(monitor::Input::Fatal { text, code: 1 });
    }
    job.input_wake.notify_one();
}

/// The console's input is over.
pub fn end_input(job: &Shared) {
    let mut job = job.borrow_mut();
    job.input.end();
    job.input_wake.notify_one();
}

impl Job {
    fn feed(&mut self) -> Fed {
        let fed = self.input.feed();
        self.give_credit();
        fed
    }

    /// Tells the console how much more it may send.
    pub(super) fn give_credit(&mut self) {
        let limit = self.input.limit();
        if limit > self.input_credit {
            let more = u32::try_from(limit - self.input_credit).unwrap_or(u32::MAX);
            self.input_credit += u64::from(more);
            self.console.send(&NodeMsg::StdinCredit(more));
        }
    }

    /// Bytes a rank wrote.
    pub(super) fn output(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let r = &mut self.ranks[rank as usize];
        let Some(proc) = r.proc.as_mut().filter(|p| !p.mute) else { return };
        match r.tapes[stream as usize].feed(bytes) {
            Ok(Some(lines)) => self.forward(rank, stream, &lines),
            Ok(None) => {}
            Err(difference) => {
                proc.mute = true;
                let text = difference.describe(stream);
                if let Some(verify) = &mut self.verify {
                    return verify.output_differs(rank, stream, text);
                }
                self.step(monitor::Input::OutputDiffers { rank, text });
            }
        }
    }

    fn forward(&self, rank: u32, stream: Stream, bytes: &[u8]) {
        if self.verify.as_ref().is_some_and(|v| v.forcing()) {
            return;
        }
        for part in bytes.chunks(MAX_DATA_BYTES) {
            self.console.send(&NodeMsg::Output { rank, stream, bytes: part.to_vec() });
        }
    }

    /// Reads what is left in the pipes of a process that is dead: nothing more can come from it.
    pub(super) fn drain(&mut self, rank: u32) {
        let mut buffer = vec![0u8; READ_BYTES];
        for stream in [Stream::Stdout, Stream::Stderr] {
            let Some(proc) = &self.ranks[rank as usize].proc else { return };
            let pipe = Rc::clone(&proc.pipes[stream as usize]);
            // A pipe holds no more than this; a child of the rank may go on writing.
            let mut left = crate::input::queued(pipe.get_ref().as_fd()) as usize;
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

    /// The unfinished last lines of a rank.
    pub(super) fn flush_output(&mut self, rank: u32) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(rest) = self.rank(rank).tapes[stream as usize].flush() {
                self.forward(rank, stream, &rest);
            }
        }
    }
}

impl crate::output::Difference {
    fn describe(&self, stream: Stream) -> String {
        let name = match stream {
            Stream::Stdout => "standard output",
            Stream::Stderr => "standard error",
        };
        format!(
            "{name} differs at byte {}: it was {:?}, now it is {:?}",
            self.position, self.before, self.now
        )
    }
}
