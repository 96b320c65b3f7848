//! Sockets being made again: those of one family by its own restore, or those of all images of a
//! set before the first of their processes runs. In a set nobody can so call a socket that is not
//! listening yet, and what was in flight between two of them is there when either begins to read.

use crate::error::RestoreError;
use crate::resources::open::cannot;
use crate::resources::sockets;
use crate::resources::sockets::connections::{Connections, MadeSockets};
use crate::resources::sockets::inet;
use crate::restore::cross_node::{self, BackEnd, Call, CrossNodeSocket, Link};
use eyrie_image_format::read::image::{Check, Image};
use eyrie_image_format::read::tree_images::{self, Account};
use eyrie_image_format::state::Description;
use eyrie_image_format::state::resources::{Apart, Message, Reach, Socket};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Makes all sockets of images that were taken together, and sends what was in flight between them.
/// `addresses` as in [`crate::RestoreOptions`]. Returns those of each image, in order, to be
/// given to its restore.
pub fn make_sockets(
    images: &[&Path],
    addresses: &[(IpAddr, IpAddr)],
) -> Result<Vec<MadeSockets>, RestoreError> {
    SetConnections::begin(images, addresses, None)?.settle()
}

/// The sockets of the images of a set that come back on one node, while they are being made.
pub struct SetConnections {
    images: usize,
    all: Vec<(usize, Description, Socket)>,
    connections: Connections,
    made: HashMap<u64, Arc<OwnedFd>>,
    far: BTreeMap<Link, CrossNodeSocket>,
}

impl SetConnections {
    /// Makes those that are connected to each other. If the set comes back on several nodes, this
    /// one is reached at `here`, which takes the place of addresses that it does not have, and
    /// connections may lead to other nodes.
    pub fn begin(
        images: &[&Path],
        addresses: &[(IpAddr, IpAddr)],
        here: Option<IpAddr>,
    ) -> Result<SetConnections, RestoreError> {
        let mut all: Vec<(usize, Description, Socket)> = Vec::new();
        // One after the other: each has several files open.
        for (number, path) in (0..).zip(images) {
            let image = Image::open_tree(path, Check::Tables)?;
            all.extend(of_image(&image).map(|(d, socket)| (number, d.clone(), socket.clone())));
        }
        meet(&mut all);
        let known: BTreeSet<u64> = all.iter().map(|(.., socket)| socket.id).collect();
        let mut far = BTreeMap::new();
        for (_, description, socket) in &all {
            let Some(link) = leads_out(description, socket, &known) else { continue };
            if here.is_none() {
                return Err(cannot(sockets::AGAIN, sockets::alone(socket)));
            }
            if socket.family as i32 == libc::AF_UNIX {
                return Err(cannot(sockets::AGAIN, elsewhere(socket)));
            }
            let (kept, kept_from, arrived) = match apart(description) {
                Some(end) => (end.kept.clone(), end.kept_from, end.arrived),
                None => (Vec::new(), 0, 0),
            };
            let socket = socket.clone();
            far.insert(link, CrossNodeSocket { socket, kept, kept_from, arrived, made: None });
        }
        let mut addresses = addresses.to_vec();
        if let Some(here) = here {
            addresses.extend(missing(&all).into_iter().map(|ip| (ip, here)));
        }
        let connections = Connections::new(&addresses, all.iter().map(|(.., socket)| socket));
        let mut new =
            SetConnections { images: images.len(), all, connections, made: HashMap::new(), far };
        new.make(&[Turn::Named, Turn::Connected])?;
        Ok(new)
    }

    /// The ends of connections that lead to other nodes.
    pub fn ends(&self) -> Vec<BackEnd> {
        let end = |(link, far): (&Link, &CrossNodeSocket)| {
            let own = inet::socket_address(&far.socket.name)?;
            let peer = inet::socket_address(&far.socket.peer_name)?;
            Some(BackEnd { link: *link, own, peer, has: inet::is_here(own.ip()) })
        };
        self.far.iter().filter_map(end).collect()
    }

    /// Makes these of them, within a time; `patient`: also those whose addresses are taken at
    /// first. Returns those that could not be, and why.
    pub fn join(&mut self, calls: &[Call], limit: Duration, patient: bool) -> Vec<(Link, String)> {
        cross_node::join(&mut self.far, calls, limit, patient)
    }

    /// Makes all others, and sends what was in flight. Returns the sockets of each image, in order.
    pub fn settle(mut self) -> Result<Vec<MadeSockets>, RestoreError> {
        let far = std::mem::take(&mut self.far);
        for far in far.into_values() {
            if let Some(fd) = far.made {
                self.made.insert(far.socket.id, Arc::new(fd));
            }
        }
        self.make(&[Turn::Rest])?;
        self.connections.settle()?;
        let mut given = vec![MadeSockets::default(); self.images];
        for (image, _, socket) in &self.all {
            if let (Some(fd), Some(own)) = (self.made.get(&socket.id), given.get_mut(*image)) {
                own.0.insert(socket.id, Arc::clone(fd));
            }
        }
        Ok(given)
    }

    fn make(&mut self, turns: &[Turn]) -> Result<(), RestoreError> {
        let far: BTreeSet<u64> = self.far.values().map(|far| far.socket.id).collect();
        for turn in turns {
            let of_turn = |s: &Socket| Turn::of(s) == *turn && !far.contains(&s.id);
            for (.., socket) in self.all.iter().filter(|(.., s)| of_turn(s)) {
                if let Entry::Vacant(new) = self.made.entry(socket.id) {
                    let fd = sockets::restore(&mut self.connections, socket)?;
                    new.insert(Arc::new(fd));
                }
            }
        }
        Ok(())
    }
}

/// Two ends that were on different nodes and come back on one are a connection within it.
fn meet(all: &mut [(usize, Description, Socket)]) {
    let mut ends: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, (_, description, _)) in all.iter().enumerate() {
        if let Some(end) = apart(description) {
            ends.entry(end.link).or_default().push(at);
        }
    }
    let pairs: Vec<(usize, usize)> = ends.values().flat_map(|at| pairs(at, all)).collect();
    for (own, other) in pairs {
        let id = all[other].2.id;
        let more = match (apart(&all[other].1), apart(&all[own].1)) {
            (Some(Apart { kept, kept_from, .. }), Some(Apart { arrived, .. }))
                if !kept.is_empty() =>
            {
                let known = arrived.wrapping_sub(*kept_from) as usize;
                kept.get(known..).unwrap_or_default().to_vec()
            }
            _ => Vec::new(),
        };
        let socket = &mut all[own].2;
        socket.peer = id;
        match socket.received.first_mut() {
            Some(message) => message.data.extend(more),
            None if more.is_empty() => {}
            None => socket.received.push(Message { data: more, from: vec![] }),
        }
    }
}

/// Which of these are at opposite ends, in both orders. A socket may be in several images.
fn pairs(ends: &[usize], all: &[(usize, Description, Socket)]) -> Vec<(usize, usize)> {
    let other = |own: usize| ends.iter().copied().find(|e| all[*e].2.id != all[own].2.id);
    ends.iter().filter_map(|own| Some((*own, other(*own)?))).collect()
}

/// The end of a connection to another node that a description is.
fn apart(description: &Description) -> Option<&Apart> {
    match description.target.socket()?.1 {
        Reach::Apart(end) => Some(end),
        _ => None,
    }
}

/// What a connection is known by whose other end is in none of these images.
fn leads_out(description: &Description, socket: &Socket, known: &BTreeSet<u64>) -> Option<Link> {
    match description.target.socket()?.1 {
        Reach::Apart(end) if socket.peer == 0 => Some([0, end.link]),
        Reach::Between if !known.contains(&socket.peer) => {
            Some([socket.id.min(socket.peer), socket.id.max(socket.peer)])
        }
        _ => None,
    }
}

/// The IP addresses of these sockets that this node does not have.
fn missing(all: &[(usize, Description, Socket)]) -> BTreeSet<IpAddr> {
    let own = all.iter().filter_map(|(.., s)| Some(inet::socket_address(&s.name)?.ip()));
    let plain = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast();
    let own: BTreeSet<IpAddr> = own.filter(plain).collect();
    own.into_iter().filter(|ip| !inet::is_here(*ip)).collect()
}

fn elsewhere(socket: &Socket) -> io::Error {
    let (here, there) = sockets::shown(socket);
    io::Error::other(format!(
        "{here} was connected to {there}, of a rank that comes back on another node, where no Unix \
         socket leads"
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
    let alive = tree_images::accounts(image).into_iter().filter_map(|(_, account)| match account {
        Account::Alive(image) => Some(image),
        Account::Ended(_) => None,
    });
    alive.flat_map(sockets_of)
}

/// The sockets of an image alone.
pub fn sockets_of(image: &Image) -> impl Iterator<Item = (&Description, &Socket)> {
    image.state.descriptions.iter().filter_map(|d| Some((d, d.target.socket()?.0)))
}
