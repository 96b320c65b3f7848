//! The datagram path between nodes: the rank itself sends a copy of a small message as a datagram,
//! and looks for those of others while it waits (`ledger::early`).
//!
//! What the links carry is what counts; this is only sooner. Hence it is done for one message at a
//! time and receiver: the next goes as a datagram when something has come back. If nothing comes
//! soon, the links are woken, and a receiver for whom that happens again and again (it sleeps, it
//! computes, no datagrams get there) is left alone for a while.

use std::io;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::atomic::Ordering::{Relaxed, Release};

use eyrie_ledger::datagram::{self, DATAGRAM_BYTES, PREFIX_BYTES, Prefix, Wish};
use eyrie_ledger::entry::entry_bytes;
use eyrie_ledger::reader::{Entry, Reader};
use eyrie_ledger::segment::Segment;
use eyrie_ledger::sendlog::Outgoing;
use eyrie_ledger::walk;

use crate::direct_connection::{self, DirectConnections, Given};
use crate::socket;

/// Fruitless looks after a datagram, at some 0.3 us each, before the links are woken.
const LOOKS: u32 = 150;
/// Most datagrams that are taken at once: whoever floods the socket must not hold the rank up.
const MOST_AT_ONCE: usize = 64;
/// How often that may happen in a row before a receiver is left alone.
const STRIKES: u32 = 3;
/// Most messages in a row that are then not sent as datagrams, as a power of two.
const MOST_SKIPPED_LOG2: u32 = 10;
/// Port numbers that are tried.
const PORT_TRIES: u32 = 64;

/// A message that came as a datagram.
struct Slot {
    /// The datagram. Entries are looked at as words.
    words: Vec<u64>,
    length: usize,
    /// Position that it has in its stream.
    from: u64,
}

impl Slot {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold more bytes than the datagram has, and any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }

    fn set(&mut self, datagram: &[u8]) {
        self.words.resize(datagram.len().div_ceil(8), 0);
        let words = self.words.as_mut_ptr().cast();
        // SAFETY: the words were just made to hold so many bytes, and any bytes are valid.
        unsafe { std::ptr::copy_nonoverlapping(datagram.as_ptr(), words, datagram.len()) };
        self.length = datagram.len();
    }
}

/// How messages of a kind fare with a receiver.
#[derive(Clone, Copy, Default)]
struct Trust {
    strikes: u32,
    /// Messages that are not sent as datagrams.
    skip: u32,
}

/// What is known of a receiver.
#[derive(Clone, Copy, Default)]
struct Receiver {
    /// A datagram was sent, and nothing has come back since.
    pending: bool,
    /// The links were woken for it.
    flushed: bool,
    /// That was of more than one packet: not every network lets those through.
    long: bool,
    /// Messages of one packet, and of more.
    trust: [Trust; 2],
}

/// A rank's end of the datagram path.
pub(crate) struct DatagramPath {
    /// Never closed on drop: after a restore the number may be another's.
    socket: ManuallyDrop<UdpSocket>,
    rank: u32,
    /// By source the newest two: who sends one has heard something that this rank sent, but not
    /// that it has taken the one before (it may do so next, having sent to many at once).
    slots: Vec<[Option<Slot>; 2]>,
    receivers: Vec<Receiver>,
    /// What comes or goes, and one byte more, so that what is too long is seen to be.
    buffer: Box<[u8]>,
    /// Looks until the socket is asked again: not for each source.
    turn: u32,
    /// Looks since a datagram was sent; `LOOKS`: the links know.
    looks: u32,
    /// For larger messages.
    connections: Option<DirectConnections>,
    /// Longest payload that goes as a datagram rather than over a direct connection.
    small: u64,
}

/// A rank's sockets and where they are.
type Sockets = (UdpSocket, SocketAddr, Option<DirectConnections>);

/// Opens the socket for datagrams, and that for direct connections at the same number, if there are
/// any in this job. Outer `None`: somebody has that number of TCP's, as a connection has that is
/// over for less than a minute, and another one may be free. Who calls would reach him.
fn sockets(seg: &Segment, rank: u32) -> Option<Option<Sockets>> {
    let bound = bind(SocketAddr::new(datagram::address(seg.rank(rank)), 0)).ok();
    let bound = bound.and_then(|socket| Some((socket.local_addr().ok()?, socket)));
    let Some((address, socket)) = bound else { return Some(None) };
    let connections = DirectConnections::open(seg, rank, address);
    if connections.is_none() && Wish::has_wires(seg) {
        return None;
    }
    Some(Some((socket, address, connections)))
}

impl DatagramPath {
    /// Opens the sockets of `rank`, and says where they are. `None`: not in this job, or not
    /// possible. `crowded`: ranks outnumber the cores. Then a receiver sleeps soon, and a direct
    /// connection wakes nobody.
    pub fn open(seg: &Segment, rank: u32, crowded: bool) -> Option<DatagramPath> {
        if !Wish::is_for(seg) {
            return None;
        }
        let ctl = seg.rank(rank);
        let (socket, address, connections) = (0..PORT_TRIES).find_map(|_| sockets(seg, rank))??;
        ctl.early_inode.store(socket::inode(socket.as_raw_fd())?, Relaxed);
        // Who knows the port may call at once.
        ctl.early_port.store(u32::from(address.port()), Release);
        let ranks = seg.geometry().ranks as usize;
        Some(DatagramPath {
            socket: ManuallyDrop::new(socket),
            rank,
            slots: (0..ranks).map(|_| [None, None]).collect(),
            receivers: vec![Receiver::default(); ranks],
            buffer: vec![0; DATAGRAM_BYTES + 1].into_boxed_slice(),
            turn: 0,
            looks: LOOKS,
            connections,
            small: if crowded { datagram::MOST_BYTES } else { datagram::PACKET_BYTES },
        })
    }

    /// Looks whether something came, now and then. False: the socket is not ours any more.
    #[inline]
    pub fn look(&mut self, seg: &Segment) -> bool {
        if self.looks < LOOKS {
            self.looks += 1;
            if self.looks == LOOKS {
                self.flush(seg);
            }
        }
        if self.turn > 0 {
            self.turn -= 1;
            return true;
        }
        self.turn = self.slots.len() as u32 - 1;
        if let Some(connections) = &mut self.connections {
            connections.look(seg);
        }
        self.receive(seg)
    }

    fn receive(&mut self, seg: &Segment) -> bool {
        for _ in 0..MOST_AT_ONCE {
            match self.socket.recv(&mut self.buffer) {
                Ok(length) => self.keep(seg, length),
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Keeps the datagram of so many bytes that is in the buffer, if it is one for this rank.
    fn keep(&mut self, seg: &Segment, length: usize) {
        let datagram = &self.buffer[..length];
        let Some((prefix, _)) = Prefix::decode(datagram) else { return };
        let ours = prefix.dst == self.rank && prefix.token == datagram::token(seg.rank(self.rank));
        let Some(pair) = self.slots.get_mut(prefix.src as usize).filter(|_| ours) else { return };
        if length > DATAGRAM_BYTES {
            return;
        }
        let ends =
            [0, 1].map(|i: usize| pair[i].as_ref().map_or(0, |slot| slot.from.saturating_add(1)));
        let slot = &mut pair[usize::from(ends[1] < ends[0])];
        let slot = slot.get_or_insert_with(|| Slot { words: Vec::new(), length: 0, from: 0 });
        slot.set(datagram);
        slot.from = prefix.from;
    }

    /// The entry at the position of `reader`, if it has come by now. Valid until the next `look`.
    pub fn entry(&mut self, seg: &Segment, reader: &mut Reader) -> Option<Entry> {
        let direct =
            self.connections.as_mut().and_then(|connections| connections.entry(seg, reader));
        if direct.is_some() {
            return direct;
        }
        let kept = self.slots[reader.src() as usize].iter().flatten();
        let slot = kept.into_iter().find(|s| s.from == reader.pos)?;
        reader.early(&slot.bytes()[PREFIX_BYTES..])
    }

    /// Something of `src` was received.
    #[inline]
    pub fn heard(&mut self, src: u32) {
        let receiver = &mut self.receivers[src as usize];
        if receiver.pending {
            if !receiver.flushed {
                receiver.trust[usize::from(receiver.long)].strikes = 0;
            }
            (receiver.pending, receiver.flushed) = (false, false);
        }
    }

    /// Sends a copy of what is new of `msg` in the log. Whether it went.
    pub fn send(&mut self, seg: &Segment, dst: u32, msg: &Outgoing, new: Given) -> bool {
        if msg.env.flags != 0 {
            return false;
        }
        if let Some(connections) = &mut self.connections
            && (msg.env.len > self.small || connections.runs(seg, dst))
            && connections.give(seg, dst, new)
        {
            seg.header().link_early.store(1, Relaxed);
            return true;
        }
        msg.env.len <= datagram::MOST_BYTES && self.send_datagram(seg, dst, msg)
    }

    /// Sends a copy of `msg`, which is whole in the log. Whether it went.
    fn send_datagram(&mut self, seg: &Segment, dst: u32, msg: &Outgoing) -> bool {
        let receiver = &mut self.receivers[dst as usize];
        if receiver.pending {
            return false;
        }
        let Some((address, token)) = datagram::door_of(seg.rank(dst)) else { return false };
        let long = msg.env.len > datagram::PACKET_BYTES;
        let trust = &mut receiver.trust[usize::from(long)];
        if trust.skip > 0 {
            trust.skip -= 1;
            return false;
        }
        let bytes = entry_bytes(msg.env.len);
        let chunk = u64::from(seg.geometry().chunk_bytes);
        if msg.start % chunk + bytes > chunk {
            // It was cut where its chunk ended.
            return false;
        }
        let at = walk::stretch(seg, self.rank, dst, msg.start, bytes);
        let Some(at) = at.filter(|_| datagram::may_leave(seg)) else { return false };
        let prefix = Prefix { src: self.rank, dst, token, from: msg.start };
        let length = PREFIX_BYTES + bytes as usize;
        self.buffer[..PREFIX_BYTES].copy_from_slice(&prefix.encode());
        // SAFETY: `stretch` vouches for `bytes` bytes of this rank's own log, which nobody else
        // writes but for the flag of an acknowledgement, and this message has none.
        unsafe {
            let to = self.buffer[PREFIX_BYTES..length].as_mut_ptr();
            std::ptr::copy_nonoverlapping(at, to, bytes as usize);
        }
        if self.socket.send_to(&self.buffer[..length], address).is_err() {
            return false;
        }
        (receiver.pending, receiver.long, self.looks) = (true, long, 0);
        seg.header().link_early.store(1, Relaxed);
        true
    }

    /// Whether connections have not taken all that they were given.
    #[inline]
    pub fn is_unsent(&self) -> bool {
        self.connections.as_ref().is_some_and(DirectConnections::is_unsent)
    }

    /// Has connections take what they do.
    #[cold]
    pub fn push(&mut self, seg: &Segment) {
        if let Some(connections) =
            self.connections.as_mut().filter(|connections| connections.is_unsent())
        {
            connections.push_all(seg);
        }
    }

    /// The rank leaves the library with that.
    pub fn settle(&mut self, seg: &Segment) {
        self.connections.iter_mut().for_each(|connections| connections.settle(seg));
    }

    /// Whether the rank has to look for something that no bell tells of.
    pub fn hears(&self) -> bool {
        self.connections.as_ref().is_some_and(DirectConnections::hears)
    }

    /// Whether `src` may send something over a direct connection.
    pub fn hears_from(&self, src: u32) -> bool {
        self.connections.as_ref().is_some_and(|connections| connections.hears_from(src))
    }

    /// What came ahead of the log at the position of `reader` cannot be taken yet: only the log can
    /// keep it.
    pub fn decline(&self, seg: &Segment, reader: &Reader) {
        if self.hears_from(reader.src()) {
            direct_connection::ask(seg, (reader.src(), self.rank), reader.pos);
        }
    }

    /// Has the links carry at once what was sent as datagrams and not answered.
    #[cold]
    pub fn flush(&mut self, seg: &Segment) {
        self.looks = LOOKS;
        let mut any = false;
        for receiver in self.receivers.iter_mut().filter(|r| r.pending && !r.flushed) {
            any = true;
            receiver.flushed = true;
            let trust = &mut receiver.trust[usize::from(receiver.long)];
            trust.strikes += 1;
            if trust.strikes >= STRIKES {
                trust.skip = 1 << trust.strikes.min(MOST_SKIPPED_LOG2);
            }
        }
        if any {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            seg.ring_if_asleep();
        }
    }
}

/// A socket that does not block, with a high number.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // SAFETY: the number is that of the socket, which has no other owner.
    Ok(unsafe { UdpSocket::from_raw_fd(socket::high(socket.into_raw_fd())) })
}
