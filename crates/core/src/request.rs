//! Requests: what a pending operation needs to be driven on, and to be told of.

use std::rc::Rc;

use eyrie_ledger::reader::Reader;
use eyrie_ledger::sendlog::Outgoing;

use crate::coll::Plan;
use crate::comm::{Comm, Later};
use crate::datatype::Datatype;
use crate::error::Class;
use crate::generalized::Generalized;
use crate::handle::Handle;
use crate::p2p::SendMode;
use crate::partitioned::Partitioned;
use crate::status::Status;

/// The program's data of an operation: `count` elements of `dt` at `buf`.
#[derive(Clone)]
pub struct Data {
    pub buf: *mut u8,
    pub count: u64,
    pub dt: Rc<Datatype>,
    /// Packed size in bytes.
    pub bytes: u64,
    /// First byte when the data is one run without gaps.
    pub flat: Option<*mut u8>,
    /// Some of it means nothing, and is cleared on its way.
    padded: bool,
}

impl Data {
    pub fn new(buf: *mut u8, count: u64, dt: Rc<Datatype>) -> Self {
        let bytes = dt.size.saturating_mul(count);
        let run = if bytes == 0 { Some(0) } else { dt.contiguous_run(count) };
        let flat = run.map(|off| buf.wrapping_offset(off as isize));
        let padded = dt.is_padded();
        Data { buf, count, dt, bytes, flat, padded }
    }

    /// Whether the memory holds, in one run, just the bytes that are sent.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flat.is_some() && !self.padded
    }

    /// Copies packed bytes from `offset` on out of the program's memory.
    ///
    /// # Safety
    /// The program promised the memory with the operation; `offset + out.len()` is within `bytes`.
    #[inline]
    pub unsafe fn gather(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.flat {
                Some(at) => {
                    let from = at.add(offset as usize);
                    std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
                    if self.padded {
                        self.dt.clear_padding(offset, out);
                    }
                }
                None => self.dt.pack_range(self.buf, self.count, offset, out),
            }
        }
    }

    /// Copies `data` to the packed position `offset` of the program's memory, cutting off what
    /// does not fit.
    ///
    /// # Safety
    /// The program promised the memory with the operation.
    #[inline]
    pub unsafe fn scatter(&self, offset: u64, data: &[u8]) {
        let room = self.bytes.saturating_sub(offset).min(data.len() as u64) as usize;
        if room == 0 {
            return;
        }
        // SAFETY: the caller's promise; `room` keeps it within.
        unsafe {
            match self.flat {
                Some(at) => {
                    let to = at.add(offset as usize);
                    std::ptr::copy_nonoverlapping(data.as_ptr(), to, room);
                }
                None => self.dt.unpack_range(self.buf, self.count, offset, &data[..room]),
            }
        }
    }
}

/// A send on its way.
pub struct SendOp {
    pub data: Data,
    pub dst: u32,
    pub out: Outgoing,
    /// The payload is read by the receiver out of our memory.
    pub remote: bool,
    /// It may be read there while we log it.
    pub offered: bool,
    /// Complete only when the receiver has acknowledged.
    pub needs_ack: bool,
}

/// A receive on its way.
pub struct RecvOp {
    pub data: Data,
    /// World rank, or any.
    pub src: Option<u32>,
    pub tag: i32,
    pub ctx: u32,
    pub post: u64,
    /// The door said which source, or that it never matches: not to be asked again.
    pub forced: bool,
    /// Bytes received so far.
    pub got: u64,
    /// Bytes that were read out of the sender's memory, from the first on.
    pub viewed: u64,
    /// Bytes of the matched message.
    pub len: u64,
    /// Position in the channel at which it starts.
    pub start: u64,
    pub matched: bool,
    /// What comes may go to the program's buffer at once (`pending`).
    pub open: bool,
    pub payload: Payload,
}

/// Where the payload of a matched receive is.
pub enum Payload {
    /// In the program's buffer, as far as it has come.
    Placed,
    /// In the log: the program must not see it yet.
    Deferred(Unexpected),
    /// In memory of our own, packed, as far as it has come: the log could not keep it.
    Stashed(Vec<u8>),
}

pub enum Op {
    Send(SendOp),
    Recv(RecvOp),
    /// Sends and receives of its own, and what is done with what they bring.
    Parts(Parts),
    /// The program's own.
    Generalized(Generalized),
    /// To or from MPI_PROC_NULL, or already consumed.
    Nothing,
}

/// An operation of several messages, each of which is a request that goes when it is done.
pub struct Parts {
    /// Of those that are not done; one more while they are begun.
    pub left: u32,
    /// Its status is that of its receive.
    pub received: bool,
    /// What comes may go to the program's buffers at once.
    pub open: bool,
    /// Its receives that are there.
    pub receives: Vec<Handle>,
    pub keep: Keep,
}

/// What an operation of several messages needs until it is complete.
pub enum Keep {
    Nothing,
    /// What is sent.
    Bytes {
        _held: Vec<u8>,
    },
    Plan(Rc<Plan>),
    /// A communicator that is being made.
    Later(Later),
}

/// How a persistent request starts.
#[derive(Clone)]
pub enum Template {
    Plan(Rc<Plan>),
    Partitioned(Rc<Partitioned>),
    Send { mode: SendMode, data: Data, dest: i32, tag: i32 },
    Recv { data: Data, source: i32, tag: i32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Inactive,
    Active,
    Done,
}

/// One request.
pub struct Request {
    pub comm: Rc<Comm>,
    /// Handle for error reports.
    pub comm_handle: Handle,
    pub state: State,
    pub status: Status,
    pub error: Option<Class>,
    /// The program freed it while it was active: it goes when it is done.
    pub orphan: bool,
    /// It is one of the messages of this one.
    pub part_of: Option<Handle>,
    pub template: Option<Box<Template>>,
    pub op: Op,
}

impl Request {
    /// Its status, as the program gets it.
    pub(crate) fn told(&self) -> Status {
        match self.template.as_deref() {
            Some(Template::Partitioned(p)) => p.told(self.status),
            _ => self.status,
        }
    }
}

/// A message that no receive has matched yet (or that a matched probe took), in the log.
pub struct Unexpected {
    pub src: u32,
    pub ctx: u32,
    pub tag: i32,
    pub crank: u32,
    pub len: u64,
    /// Stands before its first entry.
    pub reader: Reader,
    /// All its entries have been passed by the channel's front.
    pub whole: bool,
    /// In memory of our own, packed: the log could not keep it.
    pub stashed: Option<Vec<u8>>,
}
