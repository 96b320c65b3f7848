//! `eyrie __call FOLDER HOST ...`: takes the place of a remote shell for the controller of an
//! `eyrie join`. What it reads goes to the keeper on that host, what that writes is written here.
//!
//! Kept true: it ends with 0 when the host has cleared away what was there, however the node ended.

use super::board::SOCKET;
use super::{Incoming, News, Order, PIECE_BYTES, send};
use eyrie_state::home::short_path;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Why a host cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the `eyrie join` that its launcher had started there is gone")]
    Gone,
}

/// Speaks for `host` until its keeper has ended.
pub fn run(folder: &Path, host: &str) -> Result<(), CallError> {
    let dir = File::open(folder)?;
    let mut board = UnixStream::connect(short_path(&dir, SOCKET))?;
    send(&mut board, &Order::Call { host: host.to_string() })?;
    let input = board.try_clone()?;
    let pass = move || {
        let mut input = input;
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            match io::stdin().read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count @ 1..) => {
                    if send(&mut input, &Order::Input(buffer[..count].to_vec())).is_err() {
                        return;
                    }
                }
                _ => break,
            }
        }
        let _ = input.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new().name("eyrie-stdin".into()).spawn(pass)?;
    let mut incoming = Incoming::new(&board);
    loop {
        match incoming.next()? {
            Some(News::Said(bytes)) => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes).and_then(|()| out.flush())?;
            }
            Some(News::Ended { .. }) => return Ok(()),
            None => return Err(CallError::Gone),
        }
    }
}
