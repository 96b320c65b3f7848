//! What a node says to its controller, and hears: the session, and the connection that serves it at
//! the time.
//!
//! Kept true: what is said while there is no connection, or is on one that ends, is said again on
//! the next (`eyrie_protocol::session`); a controller of an earlier term is not heard any more.

use crate::node_connection;
use eyrie_control::{FromNode, ToNode};
use eyrie_protocol::session::{Foreign, Numbered, Session};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Line = node_connection::Sender<Numbered<FromNode>>;

/// A node's end.
#[derive(Default)]
pub struct NodeSession(Mutex<State>);

#[derive(Default)]
struct State {
    session: Session<FromNode>,
    line: Option<Line>,
    /// Of the latest controller.
    term: u64,
    /// The last word was said.
    finished: bool,
}

impl NodeSession {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To the controller: now, or when there is one again.
    pub fn say(&self, message: FromNode) {
        let state = &mut *self.state();
        state.finished |= matches!(message, FromNode::Finished { .. });
        let frame = match message.is_fleeting() {
            true => Numbered::beside(state.session.heard(), message),
            false => state.session.number(message),
        };
        state.line.iter().for_each(|line| line.send(frame.clone()));
    }

    /// What is sent when there is nothing to say.
    pub fn beat(&self, says: node_connection::Beat) -> Numbered<FromNode> {
        let node_connection::Beat { timeout_ms, stamp_ms } = says;
        Numbered::beside(self.state().session.heard(), FromNode::Beat { timeout_ms, stamp_ms })
    }

    /// A controller of that term listens. Refused: a later one did already.
    pub fn connect(&self, line: Line, term: u64) -> bool {
        let state = &mut *self.state();
        if term < state.term {
            return false;
        }
        state.term = term;
        state.session.again().for_each(|frame| line.send(frame));
        state.line = Some(line);
        true
    }

    pub fn disconnect(&self) {
        self.state().line = None;
    }

    /// Has what the controller says taken, if it is new: in the order of its numbers, also where
    /// the last words of one connection and the first of the next are heard by two threads.
    pub fn hear<T>(
        &self,
        frame: Numbered<ToNode>,
        take: impl FnOnce(ToNode) -> T,
    ) -> Result<Option<T>, Foreign> {
        let state = &mut *self.state();
        let new = state.session.hear(frame.number, frame.heard)?;
        Ok(new.then(|| take(frame.message)))
    }

    /// Whether the last word was said.
    pub fn is_over(&self) -> bool {
        self.state().finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_taken_before_another_thread_can_hear_the_next_one() {
        let (session, mut taken) = (NodeSession::default(), Vec::new());
        for number in [1, 2, 2, 3] {
            let frame = Numbered { number, heard: 0, message: ToNode::EndHalt };
            let heard = session.hear(frame, |_| {
                assert!(session.0.try_lock().is_err(), "the next one could be taken before it");
                taken.push(number);
            });
            assert!(heard.is_ok());
        }
        assert_eq!(taken, [1, 2, 3]);
    }
}
