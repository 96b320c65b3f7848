//! Connections of TCP that lead to processes on other nodes, all of which stand still at the same
//! moment: what is known of them is read in two steps, as no node sees both ends.
//!
//! Kept true: what an end has sent is with the other one, or is kept here, before anybody hears
//! that its processes stand; what an end has received is read when all processes of all nodes
//! stand, and before any of them goes on. So what is in flight is in the images once, and nothing
//! that is sent later is in one of them.

use crate::error::CaptureError;
use crate::kernel::remote_descriptors::RemoteDescriptors;
use crate::resources::open::{Open, refused_now};
use crate::resources::sockets;
use crate::resources::sockets::between_images::Between;
use crate::resources::sockets::inet::{self, Patience};
use eyrie_image_format::state::Target;
use eyrie_image_format::state::resources::Apart;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// An end of a connection whose other end is in none of the processes looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossNodeEnd {
    /// Number of the socket on this machine.
    pub socket: u64,
    /// Its address.
    pub own: SocketAddr,
    /// That of the other end.
    pub peer: SocketAddr,
    /// What tells the network that it is in from others on this and other machines.
    pub network: Vec<u8>,
    /// Not all that it has sent has arrived: the rest is kept here.
    pub behind: bool,
}

/// A connection both of whose ends were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossNodeConnection {
    /// Number of the socket on this machine.
    pub socket: u64,
    /// Number of the connection in the set.
    pub link: u64,
    /// The other end keeps what has not arrived.
    pub behind: bool,
}

/// What is known of an end until all processes stand.
pub struct CrossNode {
    open: Open,
    /// What was sent and has not arrived, and the number of its first byte.
    kept: (u32, Vec<u8>),
}

/// Looks at sockets that lead to none of the processes looked at.
pub fn look<'a>(
    between: &mut Between,
    sockets: impl Iterator<Item = (u64, &'a Open)>,
    left: &mut usize,
) -> Vec<CrossNodeEnd> {
    let (mut ends, patience) = (Vec::new(), Patience::far());
    for (ino, open) in sockets {
        let Ok(fd) = RemoteDescriptors::new(open.pid).and_then(|l| l.borrow(open.fd)) else {
            continue;
        };
        let Some((own, peer)) = inet::both_ends(&fd) else { continue };
        match held_back(open, &fd, &patience, left) {
            Ok(kept) => {
                let (behind, network) = (!kept.1.is_empty(), inet::network(&fd));
                ends.push(CrossNodeEnd { socket: ino, own, peer, network, behind });
                between.far.insert(ino, CrossNode { open: open.clone(), kept });
            }
            Err(error) => between.refuse(ino, error.into()),
        }
    }
    ends
}

fn held_back(
    this: &Open,
    fd: &OwnedFd,
    patience: &Patience,
    left: &mut usize,
) -> Result<(u32, Vec<u8>), CaptureError> {
    let kept = inet::held_back(this, fd, patience)?;
    crate::resources::sockets::between_images::count(this, kept.1.len(), left)?;
    Ok(kept)
}

impl Between {
    /// When all processes of all nodes stand: reads what has come over these connections. One that
    /// is not among them is refused with its process.
    pub fn join(&mut self, joints: &[CrossNodeConnection]) {
        let mut left = self.left;
        for joint in joints {
            let Some(far) = self.far.remove(&joint.socket) else { continue };
            match joined(far, joint, &mut left) {
                Ok(target) => self.find(joint.socket, target),
                Err(error) => self.refuse(joint.socket, error.into()),
            }
        }
        self.far = BTreeMap::new();
    }
}

fn joined(
    far: CrossNode,
    joint: &CrossNodeConnection,
    left: &mut usize,
) -> Result<Target, CaptureError> {
    let CrossNode { open, kept: (kept_from, kept) } = far;
    let fd = RemoteDescriptors::new(open.pid)?.borrow(open.fd)?;
    let mut socket = sockets::described(&open, &fd);
    socket.id = sockets::unique(socket.id);
    let arrived = inet::far(&open, &fd, joint.behind, &mut socket)?;
    let bytes = socket.received.iter().map(|m| m.data.len()).sum();
    crate::resources::sockets::between_images::count(&open, bytes, left)?;
    if !socket.connected {
        return Err(refused_now(&open, "a connection to another node that is ending".into()));
    }
    Ok(Target::Apart(Apart { socket, link: joint.link, kept, kept_from, arrived }))
}
