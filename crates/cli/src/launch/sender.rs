//! What the console sends to the job's daemon: signals and standard input, also to the next daemon
//! when one dies.
//!
//! Kept true: standard input arrives once and in order; what a daemon had not written down when it
//! died is kept here and sent again.

use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::{ClientMsg, encode};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Input that is kept: more than a daemon lets us be ahead of what it has written down.
const KEPT_BYTES: usize = 1 << 20;

/// The sending side, shared by the threads.
#[derive(Clone, Default)]
pub struct Sender(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// None: there is no daemon at the time.
    socket: Option<UnixStream>,
    /// None will come any more.
    over: bool,
    input: Input,
}

#[derive(Default)]
struct Input {
    /// The daemon is ready for more: it has said where it is.
    open: bool,
    /// Bytes that were read, and up to where they may be.
    read: u64,
    limit: u64,
    ended: bool,
    /// The newest of them.
    kept: VecDeque<u8>,
}

impl State {
    /// A daemon that is gone gets nothing.
    fn write(&mut self, message: &ClientMsg) -> bool {
        let Ok(frame) = encode(message) else { return true };
        let written = self.socket.as_mut().is_some_and(|s| s.write_all(&frame).is_ok());
        if !written {
            self.socket = None;
        }
        written
    }
}

impl Sender {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// A daemon is there; `fresh`: it knows nothing of the input yet, as there was none.
    pub fn attach(&self, socket: UnixStream, fresh: bool) {
        let mut state = self.state();
        state.socket = Some(socket);
        state.input.open = fresh;
        self.0.changed.notify_all();
    }

    /// The last daemon is gone.
    pub fn close(&self) {
        self.state().over = true;
        self.0.changed.notify_all();
    }

    /// To the daemon, or to the next one. False: there is none any more.
    pub fn send(&self, message: &ClientMsg) -> bool {
        let mut state = self.state();
        loop {
            if state.over {
                return false;
            }
            if state.socket.is_some() && state.write(message) {
                return true;
            }
            state = self.wait(state);
        }
    }

    /// So many more bytes may be sent.
    pub fn credit(&self, bytes: u32) {
        self.state().input.limit += u64::from(bytes);
        self.0.changed.notify_all();
    }

    /// Waits until input may be sent, and tells how much. None: none any more.
    pub fn room(&self) -> Option<usize> {
        let mut state = self.state();
        loop {
            if state.over {
                return None;
            }
            let Input { read, limit, .. } = state.input;
            if limit > read {
                return Some(usize::try_from(limit - read).unwrap_or(usize::MAX));
            }
            state = self.wait(state);
        }
    }

    /// Input was read.
    pub fn input(&self, bytes: &[u8]) {
        let state = &mut *self.state();
        let input = &mut state.input;
        input.read += bytes.len() as u64;
        input.kept.extend(bytes);
        let surplus = input.kept.len().saturating_sub(KEPT_BYTES);
        input.kept.drain(..surplus);
        if input.open {
            state.write(&ClientMsg::Stdin(bytes.to_vec()));
        }
    }

    /// It is over.
    pub fn end_input(&self) {
        let state = &mut *self.state();
        state.input.ended = true;
        if state.input.open {
            state.write(&ClientMsg::StdinEof);
        }
    }

    /// The daemon knows so much of the input, and may get more up to `limit`.
    pub fn input_from(&self, known: u64, limit: u64) {
        let state = &mut *self.state();
        let input = &mut state.input;
        // Of a job that others had fed, what is read here comes behind that.
        if input.read == 0 {
            input.read = known;
        }
        (input.open, input.limit) = (true, limit);
        let first = input.read - input.kept.len() as u64;
        let skip = known.saturating_sub(first) as usize;
        let rest: Vec<u8> = input.kept.iter().skip(skip).copied().collect();
        let ended = input.ended;
        for part in rest.chunks(MAX_DATA_BYTES) {
            state.write(&ClientMsg::Stdin(part.to_vec()));
        }
        if ended {
            state.write(&ClientMsg::StdinEof);
        }
        self.0.changed.notify_all();
    }
}
