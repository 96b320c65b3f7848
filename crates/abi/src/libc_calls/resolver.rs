//! Names and addresses by a resolver: `getaddrinfo` and its elders.
//!
//! What is recorded is laid out from the bytes of the record in runs and replays alike, so that
//! whether it fits into the program's room is the same in both.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_ledger::door::{MAX_TOLD_BYTES, What};
use libc::{addrinfo, hostent, size_t, sockaddr, socklen_t};

use super::names;
use super::real::{self, call};
use super::resolved::{Head, Host, read_list, text, write_host, write_list};
use super::told::{errno, fail, teller, told};

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

fn host_error() -> c_int {
    // SAFETY: it is this thread's own.
    unsafe { *__h_errno_location() }
}

/// Asks outside of this library, as a resolver may take its time; a replay asks nobody.
fn resolved(ask: impl FnOnce() -> Vec<u8>) -> Option<Vec<u8>> {
    let repeats = teller()?.repeats();
    let mut ask = Some(ask);
    let early = if repeats { None } else { ask.take().map(|ask| ask()) };
    let find = |room: &mut [u8]| {
        let bytes = early.or_else(|| ask.map(|ask| ask())).unwrap_or_default();
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        count
    };
    told(|m| m.tell(What::Resolved, find, <[u8]>::to_vec))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    to: *mut *mut addrinfo,
) -> c_int {
    let real = real::GETADDRINFO.found();
    if real.is_null() {
        return libc::EAI_SYSTEM;
    }
    // SAFETY: the program's own arguments.
    let plain = |to: *mut *mut addrinfo| unsafe {
        call!(
            real,
            fn(*const c_char, *const c_char, *const addrinfo, *mut *mut addrinfo) -> c_int,
            node,
            service,
            hints,
            to
        )
    };
    let ask = || {
        let mut all = null_mut();
        let result = plain(&mut all);
        let mut bytes = Head { result, error: errno(), host_error: 0 }.bytes();
        if result == 0 {
            // SAFETY: a list of the C library's, which is freed once.
            unsafe {
                write_list(&mut bytes, all);
                libc::freeaddrinfo(all);
            }
        }
        bytes
    };
    let Some(bytes) = resolved(ask) else { return plain(to) };
    let Some((head, rest)) = Head::of(&bytes) else { return libc::EAI_FAIL };
    match head.result {
        0 => {
            let Some(all) = read_list(rest) else { return libc::EAI_MEMORY };
            // SAFETY: the program's variable.
            unsafe { *to = all };
        }
        libc::EAI_SYSTEM => drop(fail(head.error)),
        _ => {}
    }
    head.result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getnameinfo(
    address: *const sockaddr,
    length: socklen_t,
    host: *mut c_char,
    host_room: socklen_t,
    service: *mut c_char,
    service_room: socklen_t,
    flags: c_int,
) -> c_int {
    type Of = unsafe extern "C" fn(
        *const sockaddr,
        socklen_t,
        *mut c_char,
        socklen_t,
        *mut c_char,
        socklen_t,
        c_int,
    ) -> c_int;
    let real = real::GETNAMEINFO.found();
    if real.is_null() {
        return libc::EAI_SYSTEM;
    }
    // SAFETY: so it is declared; the program's own arguments.
    let plain = || unsafe {
        let real = std::mem::transmute::<*mut c_void, Of>(real);
        real(address, length, host, host_room, service, service_room, flags)
    };
    let (has_host, has_service) =
        (!host.is_null() && host_room > 0, !service.is_null() && service_room > 0);
    let ask = || {
        let result = plain();
        let mut bytes = Head { result, error: errno(), host_error: 0 }.bytes();
        // SAFETY: texts that were filled.
        unsafe {
            for (has, at) in [(has_host, host), (has_service, service)] {
                names::part(&mut bytes, if has && result == 0 { text(at) } else { &[] });
            }
        }
        bytes
    };
    let Some(bytes) = resolved(ask) else { return plain() };
    let Some((head, mut rest)) = Head::of(&bytes) else { return libc::EAI_FAIL };
    for (has, at, room) in [(has_host, host, host_room), (has_service, service, service_room)] {
        let Some(text) = names::next(&mut rest) else { return libc::EAI_FAIL };
        if has && head.result == 0 {
            let count = text.len().min(room as usize);
            // SAFETY: the program's variable has the room that it says.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, count) };
        }
    }
    if head.result == libc::EAI_SYSTEM {
        fail(head.error);
    }
    head.result
}

/// Bytes of what is said of a machine, or that nothing is.
unsafe fn bytes_of(host: *const hostent, result: c_int, host_error: c_int) -> Vec<u8> {
    let mut bytes = Head { result, error: errno(), host_error }.bytes();
    // SAFETY: by the caller's word.
    if let Some(host) = unsafe { host.as_ref() } {
        // SAFETY: as above.
        unsafe { write_host(&mut bytes, host) };
    }
    bytes.truncate(MAX_TOLD_BYTES);
    bytes
}

/// What the last of these functions gave, as they have it: until the next call.
static LAST: AtomicPtr<hostent> = AtomicPtr::new(null_mut());

/// One without room of the program's; `plain` is the C library's.
fn last(plain: impl Fn() -> *mut hostent) -> *mut hostent {
    // SAFETY: what the C library gives.
    let ask = || unsafe { bytes_of(plain(), 0, host_error()) };
    let Some(bytes) = resolved(ask) else { return plain() };
    let Some((head, rest)) = Head::of(&bytes) else { return null_mut() };
    let Some(host) = Host::read(rest) else {
        // SAFETY: it is this thread's own.
        unsafe { *__h_errno_location() = head.host_error };
        fail(head.error);
        return null_mut();
    };
    let block = host.in_block(LAST.swap(null_mut(), Relaxed).cast());
    LAST.store(block, Relaxed);
    block
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostbyname(name: *const c_char) -> *mut hostent {
    let real = real::GETHOSTBYNAME.found();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the program's own argument.
    last(|| unsafe { call!(real, fn(*const c_char) -> *mut hostent, name) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostbyname2(
    name: *const c_char,
    family: c_int,
) -> *mut hostent {
    let real = real::GETHOSTBYNAME2.found();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the program's own arguments.
    last(|| unsafe { call!(real, fn(*const c_char, c_int) -> *mut hostent, name, family) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostbyaddr(
    address: *const c_void,
    length: socklen_t,
    family: c_int,
) -> *mut hostent {
    let real = real::GETHOSTBYADDR.found();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the program's own arguments.
    last(|| unsafe {
        call!(real, fn(*const c_void, socklen_t, c_int) -> *mut hostent, address, length, family)
    })
}

/// Where a function with room of the program's puts what it says.
struct Room {
    host: *mut hostent,
    at: *mut c_char,
    bytes: size_t,
    result: *mut *mut hostent,
    host_error: *mut c_int,
}

impl Room {
    /// Fills it; `plain` is the C library's function with this room.
    unsafe fn fill(&self, plain: impl Fn() -> c_int) -> c_int {
        // SAFETY: the program's variables, filled by the C library.
        let ask = || unsafe {
            let result = plain();
            let host = if result == 0 { *self.result } else { null_mut() };
            bytes_of(host, result, *self.host_error)
        };
        let Some(bytes) = resolved(ask) else { return plain() };
        let Some((head, rest)) = Head::of(&bytes) else { return libc::EAGAIN };
        // SAFETY: the program's variables; there is enough room.
        unsafe {
            *self.host_error = head.host_error;
            *self.result = null_mut();
            let Some(host) = Host::read(rest) else { return head.result };
            if host.room() > self.bytes {
                *self.host_error = -1; // NETDB_INTERNAL
                return libc::ERANGE;
            }
            host.put(&mut *self.host, self.at);
            *self.result = self.host;
        }
        0
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostbyname_r(
    name: *const c_char,
    host: *mut hostent,
    at: *mut c_char,
    bytes: size_t,
    result: *mut *mut hostent,
    host_error: *mut c_int,
) -> c_int {
    type Of = unsafe extern "C" fn(
        *const c_char,
        *mut hostent,
        *mut c_char,
        size_t,
        *mut *mut hostent,
        *mut c_int,
    ) -> c_int;
    let real = real::GETHOSTBYNAME_R.found();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: so it is declared; the program's own arguments.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Of>(real);
        let room = Room { host, at, bytes, result, host_error };
        room.fill(|| real(name, host, at, bytes, result, host_error))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    host: *mut hostent,
    at: *mut c_char,
    bytes: size_t,
    result: *mut *mut hostent,
    host_error: *mut c_int,
) -> c_int {
    type Of = unsafe extern "C" fn(
        *const c_char,
        c_int,
        *mut hostent,
        *mut c_char,
        size_t,
        *mut *mut hostent,
        *mut c_int,
    ) -> c_int;
    let real = real::GETHOSTBYNAME2_R.found();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: so it is declared; the program's own arguments.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Of>(real);
        let room = Room { host, at, bytes, result, host_error };
        room.fill(|| real(name, family, host, at, bytes, result, host_error))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostbyaddr_r(
    address: *const c_void,
    length: socklen_t,
    family: c_int,
    host: *mut hostent,
    at: *mut c_char,
    bytes: size_t,
    result: *mut *mut hostent,
    host_error: *mut c_int,
) -> c_int {
    type Of = unsafe extern "C" fn(
        *const c_void,
        socklen_t,
        c_int,
        *mut hostent,
        *mut c_char,
        size_t,
        *mut *mut hostent,
        *mut c_int,
    ) -> c_int;
    let real = real::GETHOSTBYADDR_R.found();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: so it is declared; the program's own arguments.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Of>(real);
        let room = Room { host, at, bytes, result, host_error };
        room.fill(|| real(address, length, family, host, at, bytes, result, host_error))
    }
}
