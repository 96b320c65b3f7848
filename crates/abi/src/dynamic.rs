//! Ports, their names, and groups that meet by them or over a socket (MPI 5.0 sections 11.8 to
//! 11.10).

use std::ffi::{c_char, c_int};

use eyrie_core::dynamic::HELLO_BYTES;
use eyrie_core::error::{Res, class};

use crate::arg::{bytes, put, put_text};
use crate::repr::*;
use crate::shim::shims;

/// What programs have room for: `MPI_MAX_PORT_NAME`, of both ABIs the lesser.
const MAX_PORT_NAME_BYTES: usize = 256;

shims! {
    fn PMPI_Open_port (info: Info, port: *mut c_char); |m| {
        m.infos.get_optional(info.core())?;
        let name = m.open_port()?;
        put_text(port, MAX_PORT_NAME_BYTES, name.as_bytes())?;
    }
    fn PMPI_Close_port (port: *const c_char); |m| {
        m.close_port(bytes(port)?)?;
    }
    fn PMPI_Publish_name (service: *const c_char, info: Info, port: *const c_char); |m| {
        m.infos.get_optional(info.core())?;
        m.publish_name(bytes(service)?, bytes(port)?)?;
    }
    fn PMPI_Unpublish_name (service: *const c_char, info: Info, _port: *const c_char); |m| {
        m.infos.get_optional(info.core())?;
        m.unpublish_name(bytes(service)?)?;
    }
    fn PMPI_Lookup_name (service: *const c_char, info: Info, port: *mut c_char); |m| {
        m.infos.get_optional(info.core())?;
        let found = m.lookup_name(bytes(service)?)?;
        put_text(port, MAX_PORT_NAME_BYTES, &found)?;
    }
    // The port counts at the root only.
    fn PMPI_Comm_accept (port: *const c_char, info: Info, root: c_int, comm: Comm, new: *mut Comm)
        on comm; |m| {
        m.infos.get_optional(info.core())?;
        let port = bytes(port).unwrap_or_default();
        put(new, Comm::of(m.comm_accept(port, rank_in(root), comm.core())?))?;
    }
    fn PMPI_Comm_connect (port: *const c_char, info: Info, root: c_int, comm: Comm,
                          new: *mut Comm) on comm; |m| {
        m.infos.get_optional(info.core())?;
        let port = bytes(port).unwrap_or_default();
        put(new, Comm::of(m.comm_connect(port, rank_in(root), comm.core())?))?;
    }
    fn PMPI_Comm_join (fd: c_int, new: *mut Comm); |m| {
        let mut socket = Socket { fd, said: 0, heard: Vec::new() };
        put(new, Comm::of(m.comm_join(|hello| socket.swap(hello))?))?;
    }
    fn PMPI_Comm_get_parent (parent: *mut Comm); |m| {
        put(parent, Comm::of(m.comm_parent()))?;
    }
}

/// A connected socket of the program's; nobody waits in it.
struct Socket {
    fd: c_int,
    /// How much of the hello is out.
    said: usize,
    heard: Vec<u8>,
}

impl Socket {
    /// Says `hello`, as far as it is not said; what the other one says, if all of it is there.
    fn swap(&mut self, hello: &[u8]) -> Res<Option<Vec<u8>>> {
        while self.said < hello.len() {
            let rest = &hello[self.said..];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: `rest` is readable for its length.
            let n = unsafe { libc::send(self.fd, rest.as_ptr().cast(), rest.len(), flags) };
            match moved(n)? {
                Some(n) => self.said += n,
                None => return Ok(None),
            }
        }
        while self.heard.len() < HELLO_BYTES {
            let mut part = [0u8; HELLO_BYTES];
            let room = HELLO_BYTES - self.heard.len();
            // SAFETY: `part` is writable for `room` bytes.
            let n =
                unsafe { libc::recv(self.fd, part.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT) };
            match moved(n)? {
                Some(0) => return Err(class::OTHER),
                Some(n) => self.heard.extend_from_slice(&part[..n]),
                None => return Ok(None),
            }
        }
        Ok(Some(self.heard.clone()))
    }
}

/// How much was moved; nothing if that cannot be now.
fn moved(result: isize) -> Res<Option<usize>> {
    if let Ok(n) = usize::try_from(result) {
        return Ok(Some(n));
    }
    match std::io::Error::last_os_error().kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(None),
        _ => Err(class::OTHER),
    }
}
