//! The storage of a node's part of the vault, as another node reads it.
//!
//! Kept true: nothing is written; a node that cannot be reached once is not asked again; memory is
//! bounded; no more is asked for than is wanted, unless what is read is read to its end.

use crate::store_client::Client;
use crate::store_protocol::{Identity, MAX_RANGE_BYTES, Members, StoreError};
use eyrie_vault::disk::Looked;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Bytes that are fetched at once: what stands behind what is read is read next.
const WINDOW_BYTES: u32 = 512 << 10;
const _: () = assert!(WINDOW_BYTES <= MAX_RANGE_BYTES);
/// Windows that are kept: one for each place that is read along, of which each stripe has one, and
/// the next one there.
const WINDOWS: usize = 32;

struct Window {
    name: String,
    at: u64,
    bytes: Vec<u8>,
}

/// A node's storage.
pub struct Remote {
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
    /// Whether the window behind the one that is read is asked for before it is wanted: it is on
    /// its way while what is here is checked and written.
    ahead: bool,
    /// A window that was asked for so, and not taken yet.
    asked: Option<(String, u64)>,
}

impl Remote {
    pub fn new(own: Identity, members: Members, node: u32, limit: Duration) -> Remote {
        let (client, windows, lost) = (None, VecDeque::new(), false);
        let (ahead, asked) = (false, None);
        let state = State { own, members, node, client, lost, limit, windows, ahead, asked };
        Remote { state: RefCell::new(state) }
    }

    /// The same for who reads on and on, and at no rate: what is asked for comes at once.
    pub fn ahead(self) -> Remote {
        self.state.borrow_mut().ahead = true;
        self
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
        let start = at - at % u64::from(WINDOW_BYTES);
        let window = match self.known(name, start) {
            Some(window) => window,
            None => {
                self.settle();
                match self.known(name, start) {
                    Some(window) => window,
                    None => {
                        let bytes = self.ask(|client| client.range(name, start, WINDOW_BYTES))?;
                        Window { name: name.to_string(), at: start, bytes }
                    }
                }
            }
        };
        let more = window.bytes.len() == WINDOW_BYTES as usize;
        self.keep(window);
        if more {
            self.ask_ahead(name, start + u64::from(WINDOW_BYTES));
        }
        let bytes = self.windows.back().map_or(&[][..], |w| &w.bytes);
        let from = bytes.len().min((at - start) as usize);
        Ok(&bytes[from..bytes.len().min(from.saturating_add(most))])
    }

    fn position(&self, name: &str, start: u64) -> Option<usize> {
        self.windows.iter().position(|w| w.at == start && w.name == name)
    }

    fn known(&mut self, name: &str, start: u64) -> Option<Window> {
        self.windows.remove(self.position(name, start)?)
    }

    fn keep(&mut self, window: Window) {
        if self.windows.len() >= WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(window);
    }

    fn ask_ahead(&mut self, name: &str, start: u64) {
        let idle = self.ahead && self.asked.is_none() && !self.lost;
        if idle && self.position(name, start).is_none() {
            let asked = self.ask(|client| client.ask_range(name, start, WINDOW_BYTES));
            self.asked = asked.ok().map(|()| (name.to_string(), start));
        }
    }

    /// Takes what was asked for: it comes before anything else.
    fn settle(&mut self) {
        let Some((name, at)) = self.asked.take() else { return };
        // What is not given is asked for again if it is wanted.
        if let Ok(bytes) = self.ask(|client| client.take_range(WINDOW_BYTES)) {
            self.keep(Window { name, at, bytes });
        }
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
        let mut state = self.state.borrow_mut();
        state.settle();
        state.ask(|client| client.length(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_store::{StoreServices, serve};
    use crate::vault::VaultHandle;
    use eyrie_control::auth::Key;
    use eyrie_tls::{Routes, Secret};
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc;

    /// Node 1, which has this part of the vault, as node 0 reaches it.
    fn served(folder: &Path) -> Remote {
        let secret = Secret::new(Key([3; 32]), false).unwrap();
        let of = |node| Identity {
            job: "j".into(),
            node,
            epoch: 1,
            secret: secret.clone(),
            routes: Routes::default(),
            silence: Duration::from_secs(20),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let members = Members::default();
        members.lock().unwrap().extend([(0, 1, address), (1, 1, address)]);
        let door = VaultHandle { folder: folder.into(), work: mpsc::channel().0 };
        let services = StoreServices { vault: Some(door), ..StoreServices::default() };
        let (images, theirs) = (folder.into(), Arc::clone(&members));
        serve(listener, of(1), images, theirs, Arc::default(), services).unwrap();
        Remote::new(of(0), members, 1, of(0).silence)
    }

    fn asked(remote: &Remote) -> Option<(String, u64)> {
        remote.state.borrow().asked.clone()
    }

    #[test]
    fn the_next_window_is_on_its_way_while_one_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let window = WINDOW_BYTES as usize;
        let data: Vec<u8> = (0..2 * window as u32 + 70_000).map(|n| (n >> 3) as u8).collect();
        std::fs::write(folder.path().join("gen-1.data"), &data).unwrap();
        std::fs::write(folder.path().join("gen-1.parity"), &data[window..]).unwrap();
        let remote = served(folder.path()).ahead();
        let read = |name: &str, at: usize, bytes: usize| {
            let mut found = vec![0; bytes];
            remote.read_at(name, at as u64, &mut found).map(|()| found)
        };
        assert_eq!(read("gen-1.data", 5, 9).unwrap(), data[5..14]);
        assert_eq!(asked(&remote), Some(("gen-1.data".into(), window as u64)));
        // Something else in between loses nothing of it, and gets what is its own.
        assert_eq!(remote.bytes("gen-1.parity").unwrap(), Some((data.len() - window) as u64));
        assert_eq!(read("gen-1.parity", 0, 70).unwrap(), data[window..window + 70]);
        assert!(read("gen-1.data", 0, data.len()).unwrap() == data);
        assert!(read("gen-1.parity", 0, data.len() - window).unwrap() == data[window..]);
        assert!(read("gen-1.parity", data.len() - window, 1).is_err(), "it ends there");
        assert!(!remote.is_lost());
        // Who reads at a rate asks for no more than that.
        let remote = served(folder.path());
        remote.read_at("gen-1.data", 0, &mut [0; 100]).unwrap();
        assert_eq!(asked(&remote), None);
    }
}
