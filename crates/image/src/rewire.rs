//! Sockets being made again: those of one family by its own restore, or those of all images of a
//! set before the first of their processes runs. In a set nobody can so call a socket that is not
//! listening yet, and what was in flight between two of them is there when either begins to read.

use crate::brood::{self, Account};
use crate::error::RestoreError;
use crate::image::{Check, Image};
use crate::inet;
use crate::reopen::cannot;
use crate::sockets;
use crate::state::{Description, Socket, Target};
use crate::unix;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Sockets that are being made, until all of them are there.
#[derive(Default)]
pub struct Wiring {
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

impl Wiring {
    /// For all these, with a rule for addresses.
    pub fn new<'a>(
        addresses: &[(IpAddr, IpAddr)],
        sockets: impl Iterator<Item = &'a Socket>,
    ) -> Wiring {
        let families = sockets.map(|socket| (socket.id, socket.family)).collect();
        Wiring { addresses: addresses.to_vec(), families, ..Wiring::default() }
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

/// Sockets of an image that are there already, by their numbers in it ([`make_sockets`]).
#[derive(Debug, Clone, Default)]
pub struct MadeSockets(pub(crate) HashMap<u64, Arc<OwnedFd>>);

/// Makes all sockets of images that were taken together, and sends what was in flight between them.
/// `addresses` as in [`crate::RestoreOptions`]. Returns those of each image, in order, to be
/// given to its restore.
pub fn make_sockets(
    images: &[&Path],
    addresses: &[(IpAddr, IpAddr)],
) -> Result<Vec<MadeSockets>, RestoreError> {
    let mut all: Vec<(usize, Description, Socket)> = Vec::new();
    // One after the other: each has several files open.
    for (number, path) in (0..).zip(images) {
        let image = Image::open_family(path, Check::Tables)?;
        all.extend(of_image(&image).map(|(d, socket)| (number, d.clone(), socket.clone())));
    }
    let known: BTreeSet<u64> = all.iter().map(|(.., socket)| socket.id).collect();
    let mut wiring = Wiring::new(addresses, all.iter().map(|(.., socket)| socket));
    let mut made: HashMap<u64, Arc<OwnedFd>> = HashMap::new();
    for turn in [Turn::Named, Turn::Connected, Turn::Rest] {
        for (_, description, socket) in all.iter().filter(|(.., s)| Turn::of(s) == turn) {
            let between = matches!(description.target, Target::Between { .. });
            if between && !known.contains(&socket.peer) {
                return Err(cannot(description, alone(socket)));
            }
            if let Entry::Vacant(new) = made.entry(socket.id) {
                new.insert(Arc::new(sockets::restore(&mut wiring, description, socket)?));
            }
        }
    }
    wiring.settle()?;
    let mut given = vec![MadeSockets::default(); images.len()];
    for (image, _, socket) in &all {
        if let (Some(fd), Some(own)) = (made.get(&socket.id), given.get_mut(*image)) {
            own.0.insert(socket.id, Arc::clone(fd));
        }
    }
    Ok(given)
}

/// Why a connection between images cannot be made for one of them.
pub fn alone(socket: &Socket) -> io::Error {
    let (here, there) = sockets::shown(socket);
    io::Error::other(format!(
        "{here} was connected to {there}, of a process whose image is another one of the same set: \
         they come back together only"
    ))
}

/// The order in which sockets are made.
#[derive(PartialEq, Eq)]
enum Turn {
    /// Unix sockets that listen: connections through them have their names.
    Named,
    /// Connections.
    Connected,
    /// All else. Sockets of TCP that listen come after the connections through them, each end of
    /// which can so be the one that calls.
    Rest,
}

impl Turn {
    fn of(socket: &Socket) -> Turn {
        match socket.family as i32 {
            libc::AF_UNIX if socket.listens.is_some() => Turn::Named,
            _ if socket.connected => Turn::Connected,
            _ => Turn::Rest,
        }
    }
}

/// The sockets of an image and of its children's.
fn of_image(image: &Image) -> impl Iterator<Item = (&Description, &Socket)> {
    let alive = brood::accounts(image).into_iter().filter_map(|(_, account)| match account {
        Account::Alive(image) => Some(image),
        Account::Ended(_) => None,
    });
    alive.flat_map(sockets_of)
}

/// The sockets of an image alone.
pub fn sockets_of(image: &Image) -> impl Iterator<Item = (&Description, &Socket)> {
    image.state.descriptions.iter().filter_map(|d| match &d.target {
        Target::Socket { socket } | Target::Between { socket } => Some((d, socket)),
        _ => None,
    })
}
