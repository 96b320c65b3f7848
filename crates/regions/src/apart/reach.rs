//! Reading folders of other nodes: who wants something asks the process that sees it, and answers
//! what is asked of itself meanwhile.
//!
//! Kept true: nothing is written; only names of a member's files and of parts are opened; it ends
//! when all processes have what they want, and no packet is left.

use super::packet::{Area, MAX_READ_BYTES, Packet, hear, say};
use crate::error::RegionsError;
use crate::label::Label;
use crate::peers::Peers;
use crate::store;
use eyrie_vault::disk::{Disk, Folder, Looked};
use eyrie_vault::files;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;

/// A time in which processes read what others have. All begin it together, and end it together.
pub struct Exchange<'a> {
    peers: &'a Peers,
    vault: Option<Folder>,
    parts: Option<Folder>,
    /// Processes that have what they want, as far as process 0 knows.
    done: Cell<u32>,
    /// What ended the way to the others.
    broken: RefCell<Option<RegionsError>>,
}

fn error(why: &str) -> io::Error {
    io::Error::other(why.to_string())
}

impl<'a> Exchange<'a> {
    pub fn new(peers: &'a Peers, folder: &Path) -> Exchange<'a> {
        let vault = Folder::open(&store::member(folder)).ok();
        let parts = Folder::open(&store::parts(folder)).ok();
        Exchange { peers, vault, parts, done: Cell::new(0), broken: RefCell::new(None) }
    }

    fn folder(&self, area: Area, name: &str) -> Option<&Folder> {
        match area {
            Area::Vault => self.vault.as_ref().filter(|_| files::parse(name).is_some()),
            Area::Parts => self.parts.as_ref().filter(|_| Label::parse(name).is_some()),
        }
    }

    /// Answers what is asked, or counts; returns what else it is.
    fn serve(&self, from: u32, packet: Packet) -> Result<Option<Packet>, RegionsError> {
        match packet {
            Packet::Read { area, name, at, bytes } => {
                let mut content = vec![0; (bytes as usize).min(MAX_READ_BYTES)];
                let folder = self.folder(area, &name);
                let good = folder.is_some_and(|f| f.read_at(&name, at, &mut content).is_ok());
                let content = if good { &content[..] } else { &[] };
                say(self.peers, from, &Packet::Bytes { good }, content)?;
            }
            Packet::Length { area, name } => {
                let length = self.folder(area, &name).and_then(|f| f.bytes(&name).ok().flatten());
                say(self.peers, from, &Packet::Is(length), &[])?;
            }
            Packet::Done => self.done.set(self.done.get() + 1),
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// The answer of a process.
    fn ask(&self, rank: u32, packet: &Packet) -> io::Result<(Packet, Vec<u8>)> {
        if self.broken.borrow().is_some() {
            return Err(error("the way to other processes is broken"));
        }
        let wait = || -> Result<(Packet, Vec<u8>), RegionsError> {
            say(self.peers, rank, packet, &[])?;
            loop {
                let (from, packet, bytes) = hear(self.peers)?;
                match self.serve(from, packet)? {
                    None => {}
                    Some(answer) if from == rank => return Ok((answer, bytes)),
                    Some(_) => return Err(RegionsError::Use("nobody asked for that".into())),
                }
            }
        };
        wait().map_err(|why| {
            let told = error(&why.to_string());
            *self.broken.borrow_mut() = Some(why);
            told
        })
    }

    /// Answers the others until none wants anything any more.
    pub fn finish(self) -> Result<(), RegionsError> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let peers = self.peers;
        if peers.leads() {
            while self.done.get() + 1 < peers.ranks {
                let (from, packet, _) = hear(peers)?;
                self.serve(from, packet)?;
            }
            (1..peers.ranks).try_for_each(|rank| say(peers, rank, &Packet::Over, &[]))?;
        } else {
            say(peers, 0, &Packet::Done, &[])?;
            loop {
                let (from, packet, _) = hear(peers)?;
                if self.serve(from, packet)? == Some(Packet::Over) {
                    break;
                }
            }
        }
        peers.flush()?;
        // Nobody says anything more before all have heard that it is over.
        peers.most(&mut [0])
    }
}

/// A folder that is read, wherever it is.
pub enum Reach<'a> {
    Here(Folder),
    There { exchange: &'a Exchange<'a>, rank: u32, area: Area },
}

impl Looked for Reach<'_> {
    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let (exchange, rank, area) = match self {
            Reach::Here(folder) => return folder.read_at(name, offset, to),
            Reach::There { exchange, rank, area } => (exchange, *rank, *area),
        };
        let mut at = offset;
        for piece in to.chunks_mut(MAX_READ_BYTES) {
            let bytes = u32::try_from(piece.len()).unwrap_or(0);
            let (name, own) = (name.to_string(), piece.len());
            match exchange.ask(rank, &Packet::Read { area, name, at, bytes })? {
                (Packet::Bytes { good: true }, bytes) if bytes.len() == own => {
                    piece.copy_from_slice(&bytes);
                }
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            at += own as u64;
        }
        Ok(())
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        match self {
            Reach::Here(folder) => folder.bytes(name),
            Reach::There { exchange, rank, area } => {
                let name = name.to_string();
                match exchange.ask(*rank, &Packet::Length { area: *area, name })? {
                    (Packet::Is(length), _) => Ok(length),
                    _ => Err(error("that is no length")),
                }
            }
        }
    }
}
