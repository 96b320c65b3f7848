//! What a connection is made of, and the order in which that is opened and closed.
//!
//! Kept true: an object is closed once, by its handle, after all that was opened with it.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use crate::Error;
use crate::info::Info;
use crate::library::Library;
use crate::slots::{RECEIVES, SENDS, SLOT_BYTES, SLOTS, Slots};
use crate::sys::{
    CqAttr, EqAttr, FI_CQ_FORMAT_MSG, FI_ENABLE, FI_GETWAIT, FI_LOCAL_MR, FI_MR_LOCAL, FI_RECV,
    FI_SEND, FI_TRANSMIT, FI_WAIT_FD, Fid, FidCq, FidDomain, FidEp, FidEq, FidFabric, FidMr,
};

/// Most pieces of memory in one message.
pub(crate) const MOST_PIECES: usize = 8;

/// An open object of the library; each begins with a `Fid`.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: all objects are asked for as safe with threads (`FI_THREAD_SAFE`).
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// Opens with a call that stores what it opened.
    pub fn open(
        library: &Library,
        call: &'static str,
        open: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Handle<T>, Error> {
        let mut at = ptr::null_mut();
        let returned = open(&mut at);
        library.check(call, returned)?;
        NonNull::new(at).map(Handle).ok_or_else(|| library.error(call, libc::EIO))
    }

    pub fn at(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub fn fid(&self) -> *mut Fid {
        self.at().cast()
    }

    /// Binds another object to it.
    pub fn bind<U>(
        &self,
        library: &Library,
        call: &'static str,
        to: &Handle<U>,
        flags: u64,
    ) -> Result<(), Error> {
        // SAFETY: both are open.
        let returned = unsafe { ((*(*self.fid()).ops).bind)(self.fid(), to.fid(), flags) };
        library.check(call, returned)
    }

    fn control(
        &self,
        library: &Library,
        call: &'static str,
        command: c_int,
        to: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: it is open; what the command wants stands at `to`.
        let returned = unsafe { ((*(*self.fid()).ops).control)(self.fid(), command, to) };
        library.check(call, returned)
    }

    /// The descriptor of a queue that becomes readable when there is something to do.
    pub fn descriptor(&self, library: &Library) -> Result<RawFd, Error> {
        let mut fd: RawFd = -1;
        self.control(library, "FI_GETWAIT", FI_GETWAIT, (&raw mut fd).cast())?;
        Ok(fd)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: it is open, and what was opened with it is closed.
        unsafe { ((*(*self.fid()).ops).close)(self.fid()) };
    }
}

/// A queue and its descriptor.
pub(crate) struct Queue<T> {
    pub handle: Handle<T>,
    pub fd: RawFd,
}

/// Queues of connections' events.
pub(crate) fn event_queue(
    library: &Library,
    fabric: &Handle<FidFabric>,
) -> Result<Queue<FidEq>, Error> {
    let wait_set = ptr::null_mut();
    let mut attr =
        EqAttr { size: 0, flags: 0, wait_obj: FI_WAIT_FD, signaling_vector: 0, wait_set };
    // SAFETY: it is open; the attributes and the place for the answer outlive the call.
    let handle = Handle::open(library, "fi_eq_open", |eq| unsafe {
        ((*(*fabric.at()).ops).eq_open)(fabric.at(), &mut attr, eq, ptr::null_mut())
    })?;
    let fd = handle.descriptor(library)?;
    Ok(Queue { handle, fd })
}

pub(crate) fn open_fabric(library: &Library, info: &Info) -> Result<Handle<FidFabric>, Error> {
    // SAFETY: an answer of the library has its parts; the place for the answer outlives the call.
    Handle::open(library, "fi_fabric", |fabric| unsafe {
        (library.fabric)((*info.first).fabric_attr, fabric, ptr::null_mut())
    })
}

/// The objects of one connection, in the order in which they are closed.
pub(crate) struct Ends {
    pub ep: Handle<FidEp>,
    memory: Option<Handle<FidMr>>,
    pub received: Queue<FidCq>,
    pub sent: Queue<FidCq>,
    _domain: Handle<FidDomain>,
    pub events: Queue<FidEq>,
    pub fabric: Handle<FidFabric>,
    pub library: &'static Library,
    pub limits: Limits,
}

/// What the provider takes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub pieces: usize,
    pub inject_bytes: usize,
}

impl Ends {
    /// Opens all that a connection needs besides fabric and events, with messages received into
    /// `slots`. Not connected yet.
    pub fn open(
        library: &'static Library,
        info: &Info,
        fabric: Handle<FidFabric>,
        events: Queue<FidEq>,
        slots: &Slots,
        register: bool,
    ) -> Result<Ends, Error> {
        // SAFETY: an answer of the library has its parts.
        let (limits, most, register) = unsafe {
            let top = &*info.first;
            let (tx, domain) = (&*top.tx_attr, &*top.domain_attr);
            let pieces = tx.iov_limit.clamp(1, MOST_PIECES);
            let inject_bytes = tx.inject_size.min(SLOT_BYTES);
            let wanted = domain.mr_mode & FI_MR_LOCAL != 0 || top.mode & FI_LOCAL_MR != 0;
            let limits = Limits { pieces, inject_bytes };
            (limits, (*top.ep_attr).max_msg_size, wanted || register)
        };
        if most < SLOT_BYTES {
            return Err(library.error("its messages are too short", libc::EMSGSIZE));
        }
        // SAFETY: what is open stays so; answers' places outlive the calls.
        let domain = Handle::open(library, "fi_domain", |domain| unsafe {
            ((*(*fabric.at()).ops).domain)(fabric.at(), info.first, domain, ptr::null_mut())
        })?;
        let received = completion_queue(library, &domain, RECEIVES)?;
        let sent = completion_queue(library, &domain, SENDS)?;
        let memory = register.then(|| self::register(library, &domain, slots)).transpose()?;
        // SAFETY: as above.
        let ep: Handle<FidEp> = Handle::open(library, "fi_endpoint", |ep| unsafe {
            ((*(*domain.at()).ops).endpoint)(domain.at(), info.first, ep, ptr::null_mut())
        })?;
        ep.bind(library, "fi_ep_bind", &events.handle, 0)?;
        ep.bind(library, "fi_ep_bind", &received.handle, FI_RECV)?;
        ep.bind(library, "fi_ep_bind", &sent.handle, FI_TRANSMIT)?;
        ep.control(library, "fi_enable", FI_ENABLE, ptr::null_mut())?;
        let _domain = domain;
        Ok(Ends { ep, memory, received, sent, _domain, events, fabric, library, limits })
    }

    /// Whether all that is sent and received must lie in the slots.
    pub fn is_registered(&self) -> bool {
        self.memory.is_some()
    }

    /// What operations with memory of the slots bear.
    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: it is open.
        self.memory.as_ref().map_or(ptr::null_mut(), |m| unsafe { (*m.at()).mem_desc })
    }
}

fn completion_queue(
    library: &Library,
    domain: &Handle<FidDomain>,
    size: usize,
) -> Result<Queue<FidCq>, Error> {
    let mut attr = CqAttr {
        size,
        flags: 0,
        format: FI_CQ_FORMAT_MSG,
        wait_obj: FI_WAIT_FD,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: ptr::null_mut(),
    };
    // SAFETY: it is open; the attributes and the place for the answer outlive the call.
    let handle = Handle::open(library, "fi_cq_open", |cq| unsafe {
        ((*(*domain.at()).ops).cq_open)(domain.at(), &mut attr, cq, ptr::null_mut())
    })?;
    let fd = handle.descriptor(library)?;
    Ok(Queue { handle, fd })
}

/// Some devices reach only memory that was shown to them.
fn register(
    library: &Library,
    domain: &Handle<FidDomain>,
    slots: &Slots,
) -> Result<Handle<FidMr>, Error> {
    let (at, bytes) = slots.memory();
    debug_assert_eq!(bytes, SLOTS * SLOT_BYTES);
    // SAFETY: the domain is open, and closed after the slots' registration; the memory outlives
    // both.
    Handle::open(library, "fi_mr_reg", |mr| unsafe {
        let (access, none) = (FI_SEND | FI_RECV, ptr::null_mut());
        ((*(*domain.at()).mr).reg)(domain.fid(), at, bytes, access, 0, 0, 0, mr, none)
    })
}
