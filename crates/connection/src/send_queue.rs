//! The sending side of a connection: frames queued here, written by a task.
//!
//! Kept true: what was queued is written in order; readers of rank output wait while the queue is
//! long, so that a slow console slows the ranks down instead of filling memory.

use eyrie_control::{NodeMsg, encode};
use std::cell::Cell;
use std::rc::Rc;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

/// Queued bytes from which on rank output is no longer read.
const FULL_BYTES: usize = 1 << 20;

/// Where messages to one client go.
#[derive(Clone)]
pub struct SendQueue {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    backlog: Rc<Cell<usize>>,
    moved: Rc<Notify>,
}

impl SendQueue {
    /// Starts the writing task on `sink`.
    pub fn new(mut sink: impl AsyncWrite + Unpin + 'static) -> SendQueue {
        let (queue, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
        let queued =
            SendQueue { queue, backlog: Rc::new(Cell::new(0)), moved: Rc::new(Notify::new()) };
        let (backlog, moved) = (Rc::clone(&queued.backlog), Rc::clone(&queued.moved));
        tokio::task::spawn_local(async move {
            let mut broken = false;
            while let Some(frame) = frames.recv().await {
                broken = broken || sink.write_all(&frame).await.is_err();
                backlog.set(backlog.get() - frame.len());
                moved.notify_waiters();
            }
        });
        queued
    }

    /// Queues a message. One that is too long for a frame is a bug of the caller and is dropped
    /// with a log line.
    pub fn send(&self, message: &NodeMsg) {
        match encode(message) {
            Ok(frame) => {
                let length = frame.len();
                self.backlog.set(self.backlog.get() + length);
                if self.queue.send(frame).is_err() {
                    self.backlog.set(self.backlog.get() - length);
                }
            }
            Err(error) => tracing::error!(%error, "message not sent"),
        }
    }

    /// Whether the other side went away.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Whether the queue is short enough to take rank output.
    pub fn has_room(&self) -> bool {
        self.backlog.get() < FULL_BYTES
    }

    /// Waits until the queue is short enough to take rank output.
    pub async fn room(&self) {
        self.shrunk_below(FULL_BYTES).await;
    }

    /// Waits until all that was queued is written (or the connection broke).
    pub async fn flushed(&self) {
        self.shrunk_below(1).await;
    }

    async fn shrunk_below(&self, bytes: usize) {
        loop {
            let moved = self.moved.notified();
            if self.backlog.get() < bytes {
                return;
            }
            moved.await;
        }
    }
}
