//! Buffers of buffered sends (MPI 5.0 section 3.6): of the process, a communicator, a session.

use eyrie_core::bsend::{Buffer, BufferOf};
use eyrie_core::error::Res;
use eyrie_core::machine::Machine;

use crate::arg::{put, put_num};
use crate::repr::*;
use crate::shim::shims;

fn attach(m: &mut Machine, of: BufferOf, at: Buf, bytes: i64) -> Res<()> {
    let at = at.expose_provenance();
    let automatic = at == BUFFER_AUTOMATIC;
    m.buffer_attach(of, if automatic { Buffer::Automatic } else { Buffer::Given(at, bytes) })
}

/// # Safety
/// `at` points to a pointer and `size` to a number, by MPI's contract.
unsafe fn detach<N: Num>(m: &mut Machine, of: BufferOf, at: Buf, size: *mut N) -> Res<()> {
    let (address, bytes) = match m.buffer_detach(of)? {
        Some(Buffer::Given(at, bytes)) => (at, bytes),
        Some(Buffer::Automatic) => (BUFFER_AUTOMATIC, 0),
        None => (0, 0),
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(at.cast::<Buf>(), std::ptr::with_exposed_provenance_mut(address))?;
        put_num(size, bytes)
    }
}

shims! {
    fn PMPI_Buffer_attach | PMPI_Buffer_attach_c (buffer: Buf, size: Count); |m| {
        attach(m, BufferOf::Process, buffer, size.wide())?;
    }
    fn PMPI_Buffer_detach | PMPI_Buffer_detach_c (buffer: Buf, size: *mut Count); |m| {
        detach(m, BufferOf::Process, buffer, size)?;
    }
    fn PMPI_Buffer_flush (); |m| {
        m.buffer_flush(BufferOf::Process)?;
    }
    fn PMPI_Buffer_iflush (request: *mut Request); |m| {
        put(request, Request::of(m.buffer_iflush(BufferOf::Process)?))?;
    }
}

/// The same for an object.
macro_rules! buffers_of {
    ($kind:ident: $attach:ident $attach_c:ident $detach:ident $detach_c:ident $flush:ident
     $iflush:ident) => {
        shims! {
            fn $attach | $attach_c (object: $kind, buffer: Buf, size: Count) on object; |m| {
                attach(m, BufferOf::$kind(object.core()), buffer, size.wide())?;
            }
            fn $detach | $detach_c (object: $kind, buffer: Buf, size: *mut Count) on object; |m| {
                detach(m, BufferOf::$kind(object.core()), buffer, size)?;
            }
            fn $flush (object: $kind) on object; |m| {
                m.buffer_flush(BufferOf::$kind(object.core()))?;
            }
            fn $iflush (object: $kind, request: *mut Request) on object; |m| {
                put(request, Request::of(m.buffer_iflush(BufferOf::$kind(object.core()))?))?;
            }
        }
    };
}

buffers_of!(Comm: PMPI_Comm_attach_buffer PMPI_Comm_attach_buffer_c PMPI_Comm_detach_buffer
            PMPI_Comm_detach_buffer_c PMPI_Comm_flush_buffer PMPI_Comm_iflush_buffer);
buffers_of!(Session: PMPI_Session_attach_buffer PMPI_Session_attach_buffer_c
            PMPI_Session_detach_buffer PMPI_Session_detach_buffer_c PMPI_Session_flush_buffer
            PMPI_Session_iflush_buffer);
