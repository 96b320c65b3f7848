//! The machine's name, and its addresses.

use std::ffi::{c_char, c_int, c_long};
use std::mem::size_of;

use eyrie_ledger::door::What;
use libc::{sockaddr, utsname};

use super::real::{self, call};
use super::told::{fail, told};

/// Bytes of a `struct utsname` that the kernel fills.
const UTSNAME_BYTES: usize = size_of::<utsname>();
/// Longest name of a machine.
const NAME_BYTES: usize = size_of::<[c_char; 65]>();

unsafe fn plain(at: *mut utsname) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { libc::syscall(libc::SYS_uname, at) as c_int }
}

/// # Safety
/// `at` is a variable of the program.
pub(super) unsafe fn uname(at: *mut utsname) -> c_int {
    match own() {
        Some(own) => {
            // SAFETY: by the caller's word.
            unsafe { *at = own };
            0
        }
        // SAFETY: by the caller's word.
        None => unsafe { plain(at) },
    }
}

/// What `uname` says, if that is recorded.
fn own() -> Option<utsname> {
    // SAFETY: it consists of characters.
    let mut own: utsname = unsafe { std::mem::zeroed() };
    let find = |room: &mut [u8]| {
        // SAFETY: as above; it is filled, and read as bytes.
        unsafe {
            let mut found: utsname = std::mem::zeroed();
            plain(&mut found);
            let bytes = (&raw const found).cast::<u8>();
            room[..UTSNAME_BYTES].copy_from_slice(std::slice::from_raw_parts(bytes, UTSNAME_BYTES));
        }
        UTSNAME_BYTES
    };
    told(|m| {
        m.tell(What::Uname, find, |bytes| {
            let count = bytes.len().min(UTSNAME_BYTES);
            // SAFETY: so many bytes are there on both sides.
            unsafe {
                let to = (&raw mut own).cast::<u8>();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count);
            }
        });
    })?;
    Some(own)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gethostname(at: *mut c_char, room: usize) -> c_int {
    let Some(own) = own() else {
        let real = real::GETHOSTNAME.found();
        if real.is_null() {
            return fail(libc::ENOSYS);
        }
        // SAFETY: the program's own arguments.
        return unsafe { call!(real, fn(*mut c_char, usize) -> c_int, at, room) };
    };
    let length = own.nodename.iter().take(NAME_BYTES - 1).take_while(|c| **c != 0).count();
    // SAFETY: the program's variable has the room that it says. As in the C library, what there is
    // no room for is left out, and said.
    unsafe { std::ptr::copy_nonoverlapping(own.nodename.as_ptr(), at, room.min(length + 1)) };
    if room > length { 0 } else { fail(libc::ENAMETOOLONG) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getdomainname(at: *mut c_char, room: usize) -> c_int {
    let Some(own) = own() else {
        let real = real::GETDOMAINNAME.found();
        if real.is_null() {
            return fail(libc::ENOSYS);
        }
        // SAFETY: the program's own arguments.
        return unsafe { call!(real, fn(*mut c_char, usize) -> c_int, at, room) };
    };
    let length = own.domainname.iter().take(NAME_BYTES - 1).take_while(|c| **c != 0).count();
    // SAFETY: the program's variable has the room that it says.
    unsafe { std::ptr::copy_nonoverlapping(own.domainname.as_ptr(), at, room.min(length + 1)) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_gethostid() -> c_long {
    let plain = || {
        let real = real::GETHOSTID.found();
        if real.is_null() {
            return 0;
        }
        // SAFETY: it has no arguments.
        unsafe { call!(real, fn() -> c_long,) }
    };
    let find = |room: &mut [u8]| {
        room[..8].copy_from_slice(&plain().to_ne_bytes());
        8
    };
    let take = |bytes: &[u8]| bytes.try_into().map_or(0, c_long::from_ne_bytes);
    told(|m| m.tell(What::HostId, find, take)).unwrap_or_else(plain)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getifaddrs(to: *mut *mut libc::ifaddrs) -> c_int {
    let real = real::GETIFADDRS.found();
    if real.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: the C library's function, with a variable for its result.
    let plain = |to: *mut *mut libc::ifaddrs| unsafe {
        call!(real, fn(*mut *mut libc::ifaddrs) -> c_int, to)
    };
    let find = |room: &mut [u8]| {
        let mut all = std::ptr::null_mut();
        if plain(&mut all) != 0 {
            return 0;
        }
        // SAFETY: a list of the C library's, which is freed afterwards.
        unsafe {
            let count = write(room, all);
            libc::freeifaddrs(all);
            count
        }
    };
    match told(|m| m.tell(What::Addresses, find, <[u8]>::to_vec)) {
        None => plain(to),
        Some(bytes) => {
            let Some(all) = read(&bytes) else { return fail(libc::EIO) };
            // SAFETY: the program's variable.
            unsafe { *to = all };
            0
        }
    }
}

/// Writes a list of addresses: for each its name, flags and three addresses, each with its length
/// before it. What there is no room for is left out. How many bytes that are.
unsafe fn write(room: &mut [u8], all: *const libc::ifaddrs) -> usize {
    // The first byte says that there was no error.
    let mut bytes = vec![1];
    let mut at = all;
    // SAFETY: a list of the C library's.
    while let Some(one) = unsafe { at.as_ref() } {
        let mut own = Vec::new();
        // SAFETY: its name ends with 0.
        let name = unsafe { std::ffi::CStr::from_ptr(one.ifa_name) }.to_bytes();
        part(&mut own, name);
        own.extend(one.ifa_flags.to_ne_bytes());
        for address in [one.ifa_addr, one.ifa_netmask, one.ifa_ifu] {
            // SAFETY: an address of its family's length, or null.
            part(&mut own, unsafe { address_bytes(address) });
        }
        if bytes.len() + own.len() > room.len() {
            break;
        }
        bytes.extend(own);
        at = one.ifa_next;
    }
    room[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}

pub(super) fn part(bytes: &mut Vec<u8>, own: &[u8]) {
    bytes.extend((own.len() as u16).to_ne_bytes());
    bytes.extend(own);
}

unsafe fn address_bytes<'a>(at: *const sockaddr) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: by the caller's word; every address begins with its family.
    unsafe {
        let length = match i32::from((*at).sa_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            libc::AF_PACKET => size_of::<libc::sockaddr_ll>(),
            _ => size_of::<sockaddr>(),
        };
        std::slice::from_raw_parts(at.cast(), length)
    }
}

/// One entry of the list.
struct One<'a> {
    name: &'a [u8],
    flags: u32,
    addresses: [&'a [u8]; 3],
}

fn entries(bytes: &[u8]) -> Option<Vec<One<'_>>> {
    let (_, mut rest) = bytes.split_first()?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let name = next(&mut rest)?;
        let (flags, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        let addresses = [next(&mut rest)?, next(&mut rest)?, next(&mut rest)?];
        all.push(One { name, flags: u32::from_ne_bytes(*flags), addresses });
    }
    Some(all)
}

/// The next bytes that have their length before them.
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    let (own, behind) = behind.split_at_checked(u16::from_ne_bytes(*length).into())?;
    *rest = behind;
    Some(own)
}

/// The list in one block, which `freeifaddrs` of the C library frees.
fn read(bytes: &[u8]) -> Option<*mut libc::ifaddrs> {
    const ALIGN: usize = 16;
    let all = entries(bytes)?;
    let padded = |bytes: &[u8]| (bytes.len() + 1).next_multiple_of(ALIGN);
    let heads = (all.len() * size_of::<libc::ifaddrs>()).next_multiple_of(ALIGN);
    let each = all.iter().flat_map(|one| one.addresses.iter().chain([&one.name]));
    let parts: usize = each.map(|bytes| padded(bytes)).sum();
    if all.is_empty() {
        return Some(std::ptr::null_mut());
    }
    // SAFETY: the block has room for all heads, and behind them for all parts, each with a 0.
    unsafe {
        let block = libc::calloc(1, heads + parts).cast::<u8>();
        if block.is_null() {
            return None;
        }
        let mut free = block.add(heads);
        let mut place = |bytes: &[u8]| {
            let at = free;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            free = free.add(padded(bytes));
            at
        };
        let first = block.cast::<libc::ifaddrs>();
        for (n, one) in all.iter().enumerate() {
            let head = first.add(n);
            (*head).ifa_name = place(one.name).cast();
            (*head).ifa_flags = one.flags;
            let [own, mask, other] = one.addresses.map(|bytes| {
                if bytes.is_empty() { std::ptr::null_mut() } else { place(bytes).cast() }
            });
            ((*head).ifa_addr, (*head).ifa_netmask, (*head).ifa_ifu) = (own, mask, other);
            if n + 1 < all.len() {
                (*head).ifa_next = first.add(n + 1);
            }
        }
        Some(first)
    }
}
