//! Sockets that are being made again, until all of them are there.

use crate::error::RestoreError;
use crate::resources::sockets::{inet, unix};
use eyrie_image_format::state::resources::Socket;
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Sockets of an image that are there already, by their numbers in it
/// ([`crate::make_sockets`]).
#[derive(Debug, Clone, Default)]
pub struct MadeSockets(pub(crate) HashMap<u64, Arc<OwnedFd>>);

/// Sockets that are being made, until all of them are there.
#[derive(Default)]
pub struct Connections {
    /// Which IP address stands for which other one here.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// Ends whose other end was made.
    pub ends: HashMap<u64, unix::Ends>,
    /// What is to be sent on a socket.
    pub in_flight: Vec<(OwnedFd, Vec<u8>)>,
    /// Sockets that listen, by their addresses.
    pub listeners: Vec<(Vec<u8>, OwnedFd)>,
    /// Those that are not settled yet.
    pub made: Vec<(OwnedFd, Socket)>,
    /// The `AF_*` of those to be made, which is not the same at both ends of every connection.
    pub families: HashMap<u64, u32>,
}

impl Connections {
    /// For all these, with a rule for addresses.
    pub fn new<'a>(
        addresses: &[(IpAddr, IpAddr)],
        sockets: impl Iterator<Item = &'a Socket>,
    ) -> Connections {
        let families = sockets.map(|socket| (socket.id, socket.family)).collect();
        Connections { addresses: addresses.to_vec(), families, ..Connections::default() }
    }

    /// To be called when all are there: sends what was in flight, and shuts what was shut.
    pub fn settle(&mut self) -> Result<(), RestoreError> {
        inet::settle(&self.made, &self.in_flight)
            .map_err(|source| RestoreError::Os { what: "send again what was in flight", source })?;
        self.in_flight.clear();
        for (fd, socket) in self.made.drain(..) {
            if socket.family as i32 == libc::AF_UNIX {
                unix::settle(&fd, &socket);
            }
        }
        self.ends.clear();
        self.listeners.clear();
        Ok(())
    }
}
