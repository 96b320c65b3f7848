//! How two ends come together: one listens and tells the other its address by another way (over
//! the leash); the other connects and shows the token that it was told with it.
//!
//! Kept true: an end that listens takes one connection, from who knows the token, and stops
//! listening when it stands. Who comes without it is refused and changes nothing.

use std::ffi::c_void;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use crate::endpoint::{Ends, Handle, Queue, event_queue, open_fabric};
use crate::info::Info;
use crate::library::Library;
use crate::pipe::Pipe;
use crate::slots::Slots;
use crate::sys::{
    EqCmEntry, EqErrEntry, FI_CONNECTED, FI_CONNREQ, FI_EAGAIN, FI_EAVAIL, Fid, FidEq, FidFabric,
    FidPep,
};
use crate::wait::{Wait, Woken};
use crate::{Error, Provider};

pub const TOKEN_BYTES: usize = 16;
/// What who connects has to show.
pub type Token = [u8; TOKEN_BYTES];

/// Longest address of an endpoint.
const ADDRESS_BYTES: usize = 255;
/// Bytes of an event, with the data of a request.
const EVENT_BYTES: usize = 512;

/// An end that waits for the other.
pub struct Listener {
    // In the order in which they are closed.
    pep: Handle<FidPep>,
    events: Queue<FidEq>,
    fabric: Handle<FidFabric>,
    library: &'static Library,
    register: bool,
    address: Vec<u8>,
    token: Token,
}

impl Listener {
    /// Listens at an address of this machine, at any port.
    ///
    /// # Errors
    /// When the provider cannot.
    pub fn new(provider: &Provider, here: IpAddr, token: Token) -> Result<Listener, Error> {
        let library = provider.library;
        let info = provider.info(here)?;
        let fabric = open_fabric(library, &info)?;
        let events = event_queue(library, &fabric)?;
        // SAFETY: what is open stays so; the answer's place outlives the call.
        let pep: Handle<FidPep> = Handle::open(library, "fi_passive_ep", |pep| unsafe {
            ((*(*fabric.at()).ops).passive_ep)(fabric.at(), info.first, pep, ptr::null_mut())
        })?;
        pep.bind(library, "fi_pep_bind", &events.handle, 0)?;
        // SAFETY: it is open and bound.
        library.check("fi_listen", unsafe { ((*(*pep.at()).cm).listen)(pep.at()) })?;
        let (mut address, mut bytes) = (vec![0; ADDRESS_BYTES], ADDRESS_BYTES);
        // SAFETY: there is as much room as is said.
        let returned = unsafe {
            let to = address.as_mut_ptr().cast();
            ((*(*pep.at()).cm).getname)(pep.fid(), to, &mut bytes)
        };
        library.check("fi_getname", returned)?;
        address.truncate(bytes);
        let register = provider.register;
        Ok(Listener { pep, events, fabric, library, register, address, token })
    }

    /// Where the other end reaches it, in the provider's own form.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Waits for the other end.
    ///
    /// # Errors
    /// When it does not come in time, or the leash ends.
    pub fn accept(self, leash: OwnedFd, patience: Duration) -> Result<Pipe, Error> {
        let end = Instant::now() + patience;
        let info = loop {
            let event = next(self.library, &self.fabric, &self.events, leash.as_fd(), end)?;
            let info = event.info.filter(|_| event.from == self.pep.fid());
            let Some(info) = info else { return Err(Error::Event("fi_listen")) };
            if event.shown.starts_with(&self.token) {
                break info;
            }
            refuse(&self.pep, &info);
        };
        let Listener { pep, events, fabric, library, register, .. } = self;
        let slots = Slots::new();
        let ends = Ends::open(library, &info, fabric, events, &slots, register)?;
        let pipe = Pipe::new(ends, slots, leash)?;
        let ep = pipe.ends.ep.at();
        // SAFETY: it is open, and has buffers for what may come.
        let returned = unsafe { ((*(*ep).cm).accept)(ep, ptr::null(), 0) };
        library.check("fi_accept", returned)?;
        pipe.connected("fi_accept", Some(&pep), end)?;
        drop(pep);
        Ok(pipe)
    }
}

/// Refuses a request that came to an end that listens.
fn refuse(pep: &Handle<FidPep>, info: &Info) {
    // SAFETY: it is open; the request is one of its own.
    unsafe { ((*(*pep.at()).cm).reject)(pep.at(), (*info.first).handle, ptr::null(), 0) };
}

/// Connects to an end that listens.
///
/// # Errors
/// When that is not possible in time, or the leash ends.
pub fn connect(
    provider: &Provider,
    here: IpAddr,
    (address, token): (&[u8], &Token),
    leash: OwnedFd,
    patience: Duration,
) -> Result<Pipe, Error> {
    let (library, end) = (provider.library, Instant::now() + patience);
    let info = provider.info(here)?;
    let fabric = open_fabric(library, &info)?;
    let events = event_queue(library, &fabric)?;
    let slots = Slots::new();
    let ends = Ends::open(library, &info, fabric, events, &slots, provider.register)?;
    let pipe = Pipe::new(ends, slots, leash)?;
    // Providers read as much of an address as it says itself that it has.
    let mut to = [0u64; ADDRESS_BYTES.div_ceil(8)];
    let bytes = address.len().min(ADDRESS_BYTES);
    // SAFETY: the array has more bytes than that.
    unsafe { ptr::copy_nonoverlapping(address.as_ptr(), to.as_mut_ptr().cast(), bytes) };
    let ep = pipe.ends.ep.at();
    // SAFETY: it is open, and has buffers for what may come.
    let returned = unsafe {
        let (to, shown) = (to.as_ptr().cast::<c_void>(), token.as_ptr().cast::<c_void>());
        ((*(*ep).cm).connect)(ep, to, shown, TOKEN_BYTES)
    };
    library.check("fi_connect", returned)?;
    pipe.connected("fi_connect", None, end)?;
    Ok(pipe)
}

impl Pipe {
    /// Waits until it stands. Others that come to where it was listened for are refused.
    fn connected(
        &self,
        call: &'static str,
        pep: Option<&Handle<FidPep>>,
        end: Instant,
    ) -> Result<(), Error> {
        let Ends { library, fabric, events, ep, .. } = &self.ends;
        loop {
            let event = next(library, fabric, events, self.leash(), end)?;
            match (event.info, pep) {
                (Some(info), Some(pep)) => refuse(pep, &info),
                _ if event.kind == FI_CONNECTED && event.from == ep.fid() => return Ok(()),
                _ => return Err(Error::Event(call)),
            }
        }
    }
}

struct Event {
    kind: u32,
    from: *mut Fid,
    /// With a request for a connection, what that is to be made with.
    info: Option<Info>,
    /// What who asks for it shows.
    shown: Vec<u8>,
}

/// Waits for the next event.
fn next(
    library: &'static Library,
    fabric: &Handle<FidFabric>,
    events: &Queue<FidEq>,
    leash: BorrowedFd<'_>,
    end: Instant,
) -> Result<Event, Error> {
    let mut room = [0u64; EVENT_BYTES / 8];
    let (eq, mut kind) = (events.handle.at(), 0);
    loop {
        // SAFETY: it is open; there is as much room as is said.
        let read =
            unsafe { ((*(*eq).ops).read)(eq, &mut kind, room.as_mut_ptr().cast(), EVENT_BYTES, 0) };
        if read >= size_of::<EqCmEntry>() as isize {
            return Ok(event(library, kind, &room, read as usize));
        } else if read >= 0 {
            return Err(Error::Event("fi_eq_read"));
        } else if read == -FI_EAVAIL {
            return Err(failure(library, events));
        } else if read != -FI_EAGAIN {
            library.check("fi_eq_read", read as i64)?;
        }
        let mut wait = Wait::new(library, fabric, leash).queue(events);
        match wait.until(end)? {
            Woken::Look => {}
            Woken::Ended => return Err(Error::Ended),
            Woken::Late => return Err(Error::Silent),
        }
    }
}

fn event(library: &'static Library, kind: u32, room: &[u64], read: usize) -> Event {
    // SAFETY: the library has written one there, and the room is aligned for it; what it points to
    // is its reader's.
    let entry = unsafe { room.as_ptr().cast::<EqCmEntry>().read() };
    let of_request = kind == FI_CONNREQ && !entry.info.is_null();
    let info = of_request.then(|| Info::own(library, entry.info));
    let bytes = room.iter().flat_map(|word| word.to_ne_bytes());
    let shown = bytes.take(read).skip(size_of::<EqCmEntry>()).collect();
    Event { kind, from: entry.fid, info, shown }
}

/// The error that stands in the queue.
fn failure(library: &Library, events: &Queue<FidEq>) -> Error {
    // SAFETY: for which zeros are valid.
    let mut entry: EqErrEntry = unsafe { std::mem::zeroed() };
    let eq = events.handle.at();
    // SAFETY: it is open; the entry outlives the call.
    let read = unsafe { ((*(*eq).ops).readerr)(eq, &mut entry, 0) };
    let code = if read > 0 { entry.err } else { libc::EIO };
    library.error("connecting", code)
}
