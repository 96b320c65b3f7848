//! Connections between families of processes that stand still at one moment, each of which gets an
//! image of its own: what is known of them is read while all stand, so that each may go on as soon
//! as its own memory is kept.
//!
//! Kept true: of a connection that leads from one family to another, both directions are read
//! before any of the processes goes on. So what one has sent and the other not read is in the
//! images once, and nothing that is sent later is in one of them.

use crate::error::CaptureError;
use crate::kernel::remote_descriptors::RemoteDescriptors;
use crate::kernel::sockdiag;
use crate::kernel::starting;
use crate::resources::open::{self, Open, refused, refused_now};
use crate::resources::sockets;
use crate::resources::sockets::cross_node::{self, CrossNode, CrossNodeEnd};
use crate::resources::sockets::inet::{self, Patience};
use eyrie_image_format::state::Target;
use eyrie_image_format::state::resources::{self, Socket};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most bytes in flight that are kept for all connections of a look.
const MAX_HELD_BYTES: usize = 256 << 20;

/// Processes that are frozen together, by [`crate::Frozen::family`].
#[derive(Debug, Clone, Default)]
pub struct ProcessTree {
    pub(crate) pids: Vec<libc::pid_t>,
    pub(crate) left_out: Vec<u64>,
}

/// What was found between families that stand still.
#[derive(Default)]
pub struct Between {
    /// What is to become of each, or why it cannot come back.
    sockets: BTreeMap<u64, Result<Target, Refusal>>,
    /// Ends of connections that lead to other nodes, until all processes of all of them stand.
    pub(crate) far: BTreeMap<u64, CrossNode>,
    /// Bytes in flight that may still be kept.
    pub(crate) left: usize,
}

/// Why a socket cannot come back, and whether that is so only now.
#[derive(Clone)]
pub struct Refusal {
    what: String,
    lasts: bool,
}

impl From<CaptureError> for Refusal {
    fn from(error: CaptureError) -> Refusal {
        let lasts = error.is_lasting();
        Refusal { what: words(error), lasts }
    }
}

/// A socket, by who has it.
struct Held {
    open: Open,
    families: BTreeSet<usize>,
}

impl Between {
    /// Looks at families that stand still until this returns. A family that cannot be looked at
    /// counts as having no sockets: what leads to it is refused when the others are.
    pub fn look(families: &[ProcessTree]) -> Between {
        let mut between = Between { left: MAX_HELD_BYTES, ..Between::default() };
        let _held = starting::hold();
        let held = held(families);
        if several(&held) {
            between.look_within(&held, &partners(&held));
        }
        between
    }

    /// The same for the families of one node of several, which stand still until
    /// [`Between::join`], and with them those of all other nodes. Returns the ends of connections
    /// that lead out of them.
    pub fn look_over_nodes(families: &[ProcessTree]) -> (Between, Vec<CrossNodeEnd>) {
        let mut between = Between { left: MAX_HELD_BYTES, ..Between::default() };
        let _held = starting::hold();
        let held = held(families);
        let partners = partners(&held);
        if several(&held) {
            between.look_within(&held, &partners);
        }
        let mut left = between.left;
        let out = held.iter().filter(|(ino, _)| !partners.contains_key(ino));
        let out = out.map(|(&ino, this)| (ino, &this.open));
        let ends = cross_node::look(&mut between, out, &mut left);
        between.left = left;
        (between, ends)
    }

    fn look_within(&mut self, held: &BTreeMap<u64, Held>, partners: &BTreeMap<u64, u64>) {
        let (mut left, patience) = (self.left, Patience::default());
        for (&ino, this) in held {
            let partner = partners.get(&ino).and_then(|other| held.get(other));
            let found = match partner {
                Some(other) if this.families.union(&other.families).count() > 1 => {
                    connected(this, other, &patience, &mut left)
                }
                Some(_) => continue,
                None => match waiting(this, &patience, &mut left) {
                    Some(found) => found,
                    None => continue,
                },
            };
            self.sockets.insert(ino, found.map_err(Refusal::from));
        }
        self.left = left;
    }

    pub(crate) fn find(&mut self, ino: u64, target: Target) {
        self.sockets.insert(ino, Ok(target));
    }

    pub(crate) fn refuse(&mut self, ino: u64, why: Refusal) {
        self.sockets.insert(ino, Err(why));
    }

    /// What was found out about a socket.
    pub(crate) fn socket(&self, this: &Open) -> Option<Result<Target, CaptureError>> {
        let found = self.sockets.get(&this.inode())?;
        let refuse = |Refusal { what, lasts }: Refusal| match lasts {
            true => refused(this, what),
            false => refused_now(this, what),
        };
        Some(found.clone().map_err(refuse))
    }
}

fn words(error: CaptureError) -> String {
    match error {
        CaptureError::Passing(error) => words(*error),
        CaptureError::Descriptor { what, .. } => what,
        other => other.to_string(),
    }
}

/// Whether they are of more than one family.
fn several(held: &BTreeMap<u64, Held>) -> bool {
    held.values().flat_map(|h| &h.families).collect::<BTreeSet<_>>().len() > 1
}

/// All sockets of all families, by inode.
fn held(families: &[ProcessTree]) -> BTreeMap<u64, Held> {
    let mut all = BTreeMap::new();
    for (number, family) in families.iter().enumerate() {
        for &pid in &family.pids {
            let sockets = open::sockets_in(pid, &family.left_out);
            for open in sockets.into_iter().flatten() {
                let new = all.entry(open.inode());
                let held = new.or_insert_with(|| Held { open, families: BTreeSet::new() });
                held.families.insert(number);
            }
        }
    }
    all
}

/// Which socket is connected to which.
fn partners(held: &BTreeMap<u64, Held>) -> BTreeMap<u64, u64> {
    let mut partners = BTreeMap::new();
    let mut by_ends = HashMap::new();
    let mut ends = Vec::new();
    for (&ino, this) in held {
        let Ok(fd) = RemoteDescriptors::new(this.open.pid).and_then(|l| l.borrow(this.open.fd))
        else {
            continue;
        };
        if sockets::family(&fd) == libc::AF_UNIX as u32 {
            let peer = sockdiag::unix(ino).map_or(0, |info| u64::from(info.peer));
            partners.extend((peer != 0).then_some((ino, peer)));
        } else if let Some(own) = inet::Ends::of(&fd) {
            by_ends.insert(own.clone(), ino);
            ends.push((ino, own));
        }
    }
    for (ino, own) in ends {
        partners.extend(by_ends.get(&own.turned()).map(|&peer| (ino, peer)));
    }
    partners
}

/// One end of a connection between two families.
fn connected(
    this: &Held,
    other: &Held,
    patience: &Patience,
    left: &mut usize,
) -> Result<Target, CaptureError> {
    let ends = [this.open.clone(), other.open.clone()];
    let remote = RemoteDescriptors::new(this.open.pid)?;
    match sockets::capture(&this.open, &ends, &remote, patience)? {
        Some(socket) if socket.connected => {
            keep(&this.open, &socket, left)?;
            Ok(Target::Between(resources::Between { socket }))
        }
        _ => {
            let what = "a connection to another process that is ending";
            Err(refused_now(&this.open, what.into()))
        }
    }
}

/// A socket that is connected to nobody, but may have messages of other families.
fn waiting(
    this: &Held,
    patience: &Patience,
    left: &mut usize,
) -> Option<Result<Target, CaptureError>> {
    let mut look = || -> Result<Option<Target>, CaptureError> {
        let remote = RemoteDescriptors::new(this.open.pid)?;
        if !sockets::takes_messages(&remote.borrow(this.open.fd)?) {
            return Ok(None);
        }
        let alone = [this.open.clone()];
        let Some(socket) = sockets::capture(&this.open, &alone, &remote, patience)? else {
            return Ok(None);
        };
        keep(&this.open, &socket, left)?;
        Ok(Some(Target::Socket(socket)))
    };
    // One that leads elsewhere is refused, or not, when its process is looked at.
    look().unwrap_or_default().map(Ok)
}

/// Counts what is held of a socket.
fn keep(this: &Open, socket: &Socket, left: &mut usize) -> Result<(), CaptureError> {
    count(this, socket.received.iter().map(|m| m.data.len()).sum(), left)
}

/// So many bytes more are held.
pub fn count(this: &Open, bytes: usize, left: &mut usize) -> Result<(), CaptureError> {
    *left = left.checked_sub(bytes).ok_or_else(|| {
        let most = MAX_HELD_BYTES >> 20;
        let what = format!("one of connections between ranks with over {most} MiB in flight");
        refused_now(this, what)
    })?;
    Ok(())
}
