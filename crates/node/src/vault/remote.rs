//! The storage of a node's part of the vault, as another node reads it.
//!
//! Kept true: nothing is written; a node that cannot be reached once is not asked again; memory is
//! bounded.

use crate::store::{Client, Identity, Members, StoreError};
use crate::vault::MAX_RANGE_BYTES;
use eyrie_vault::disk::Looked;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Bytes that are fetched at once: what stands behind what is read is read next.
const WINDOW_BYTES: u64 = 512 << 10;
/// Windows that are kept: one for each place that is read along, of which each stripe has one.
const WINDOWS: usize = 16;

struct Window {
    name: String,
    at: u64,
    bytes: Vec<u8>,
}

/// A node's storage.
pub(crate) struct Remote {
    state: RefCell<State>,
}

struct State {
    own: Identity,
    members: Members,
    node: u32,
    client: Option<Client>,
    /// It could not be reached, or its connection broke.
    lost: bool,
    /// In which it is to be reached.
    limit: Duration,
    windows: VecDeque<Window>,
}

impl Remote {
    pub fn new(own: Identity, members: Members, node: u32, limit: Duration) -> Remote {
        let (client, windows) = (None, VecDeque::new());
        let lost = false;
        let state = State { own, members, node, client, lost, limit, windows };
        Remote { state: RefCell::new(state) }
    }

    /// Whether it could not be reached.
    pub fn is_lost(&self) -> bool {
        self.state.borrow().lost
    }
}

impl State {
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, StoreError>) -> io::Result<T> {
        if self.lost {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if self.client.is_none() {
            let client = Client::connect_within(&self.own, &self.members, self.node, self.limit);
            self.client = client.inspect_err(|_| self.lost = true).ok();
        }
        let client = self.client.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        ask(client).map_err(|error| {
            self.lost |= !matches!(error, StoreError::Refused(_));
            io::Error::other(error.to_string())
        })
    }

    /// What there is from `at` on, as far as one window has it.
    fn piece(&mut self, name: &str, at: u64, most: usize) -> io::Result<&[u8]> {
        let start = at / WINDOW_BYTES * WINDOW_BYTES;
        let known = self.windows.iter().position(|w| w.at == start && w.name == name);
        let window = match known.and_then(|number| self.windows.remove(number)) {
            Some(window) => window,
            None => {
                let length = WINDOW_BYTES.min(u64::from(MAX_RANGE_BYTES)) as u32;
                let bytes = self.ask(|client| client.range(name, start, length))?;
                Window { name: name.to_string(), at: start, bytes }
            }
        };
        if self.windows.len() >= WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(window);
        let bytes = self.windows.back().map_or(&[][..], |w| &w.bytes);
        let from = bytes.len().min((at - start) as usize);
        Ok(&bytes[from..bytes.len().min(from.saturating_add(most))])
    }
}

impl Looked for Remote {
    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let mut done = 0;
        while done < to.len() {
            let piece = state.piece(name, offset + done as u64, to.len() - done)?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        Ok(())
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        self.state.borrow_mut().ask(|client| client.length(name))
    }
}
