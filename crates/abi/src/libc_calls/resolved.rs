//! What a resolver says, as bytes: addresses of a name, and the machine of a name or an address.
//!
//! Kept true: lists are laid out as the GNU C library does it, whose `freeaddrinfo` frees them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{align_of, size_of};
use std::ptr::null_mut;

use eyrie_ledger::door::MAX_TOLD_BYTES;
use libc::{addrinfo, hostent, sockaddr};

use super::names::{next, part};

/// What is before all that was filled: what was returned, `errno`, and `h_errno`.
const HEAD_BYTES: usize = 12;

/// What a function came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub result: c_int,
    pub error: c_int,
    pub host_error: c_int,
}

impl Head {
    pub fn bytes(self) -> Vec<u8> {
        [self.result, self.error, self.host_error].map(c_int::to_ne_bytes).concat()
    }

    /// What was returned, and what follows.
    pub fn of(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let n = |n: usize| head[4 * n..4 * n + 4].try_into().map_or(0, c_int::from_ne_bytes);
        Some((Head { result: n(0), error: n(1), host_error: n(2) }, rest))
    }
}

fn number(rest: &mut &[u8]) -> Option<c_int> {
    let (bytes, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    Some(c_int::from_ne_bytes(*bytes))
}

/// A text with its 0, or nothing.
///
/// # Safety
/// It is a text, or null.
pub(super) unsafe fn text<'a>(at: *const c_char) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: by the caller's word.
    unsafe { CStr::from_ptr(at) }.to_bytes_with_nul()
}

/// Writes a list of addresses; what there is no room for is left out.
///
/// # Safety
/// It is a list of the C library's.
pub(super) unsafe fn write_list(bytes: &mut Vec<u8>, mut at: *const addrinfo) {
    // SAFETY: by the caller's word.
    while let Some(one) = unsafe { at.as_ref() } {
        let mut own = Vec::new();
        for n in [one.ai_flags, one.ai_family, one.ai_socktype, one.ai_protocol] {
            own.extend(n.to_ne_bytes());
        }
        let count = if one.ai_addr.is_null() { 0 } else { one.ai_addrlen as usize };
        // SAFETY: the address has the length that it says.
        part(&mut own, unsafe { bytes_at(one.ai_addr.cast(), count) });
        // SAFETY: a text, or null.
        part(&mut own, unsafe { text(one.ai_canonname) });
        if bytes.len() + own.len() > MAX_TOLD_BYTES {
            return;
        }
        bytes.extend(own);
        at = one.ai_next;
    }
}

/// # Safety
/// So many bytes may be read there, if any.
unsafe fn bytes_at<'a>(at: *const u8, count: usize) -> &'a [u8] {
    // SAFETY: by the caller's word.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, count) } }
}

/// The list: each entry a block with its address, and its name in one of its own.
pub(super) fn read_list(mut rest: &[u8]) -> Option<*mut addrinfo> {
    let mut first = null_mut();
    let mut link = &raw mut first;
    while !rest.is_empty() {
        let numbers =
            [number(&mut rest)?, number(&mut rest)?, number(&mut rest)?, number(&mut rest)?];
        let (address, name) = (next(&mut rest)?, next(&mut rest)?);
        // SAFETY: the block has room for the entry, and behind it for the address; the name ends
        // with 0. `link` is the first pointer, or the last one of an entry of the list.
        unsafe {
            let one = libc::calloc(1, size_of::<addrinfo>() + address.len()).cast::<addrinfo>();
            if one.is_null() {
                return None;
            }
            let [flags, family, kind, protocol] = numbers;
            ((*one).ai_flags, (*one).ai_family) = (flags, family);
            ((*one).ai_socktype, (*one).ai_protocol) = (kind, protocol);
            (*one).ai_addrlen = address.len() as libc::socklen_t;
            if !address.is_empty() {
                let place = one.add(1).cast::<u8>();
                std::ptr::copy_nonoverlapping(address.as_ptr(), place, address.len());
                (*one).ai_addr = place.cast::<sockaddr>();
            }
            if name.last() == Some(&0) {
                (*one).ai_canonname = libc::strdup(name.as_ptr().cast());
            }
            *link = one;
            link = &raw mut (*one).ai_next;
        }
    }
    Some(first)
}

/// Writes what is said of a machine.
///
/// # Safety
/// It is an answer of the C library's.
pub(super) unsafe fn write_host(bytes: &mut Vec<u8>, host: &hostent) {
    /// Entries of a list that ends with null.
    unsafe fn each(list: *mut *mut c_char) -> Vec<*mut c_char> {
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: by the caller's word.
        let at = |n| unsafe { *list.add(n) };
        (0..).map(at).take_while(|one| !one.is_null()).take(64).collect()
    }
    bytes.extend(host.h_addrtype.to_ne_bytes());
    bytes.extend(host.h_length.to_ne_bytes());
    // SAFETY: by the caller's word.
    unsafe {
        part(bytes, text(host.h_name));
        let (names, addresses) = (each(host.h_aliases), each(host.h_addr_list));
        bytes.extend((names.len() as c_int).to_ne_bytes());
        names.iter().for_each(|name| part(bytes, text(*name)));
        let count = usize::try_from(host.h_length).unwrap_or(0);
        for address in addresses {
            part(bytes, bytes_at(address.cast(), count));
        }
    }
}

/// A machine as it was written.
pub(super) struct Host<'a> {
    kind: c_int,
    length: c_int,
    name: &'a [u8],
    aliases: Vec<&'a [u8]>,
    addresses: Vec<&'a [u8]>,
}

impl<'a> Host<'a> {
    pub fn read(mut rest: &'a [u8]) -> Option<Host<'a>> {
        let (kind, length) = (number(&mut rest)?, number(&mut rest)?);
        let name = next(&mut rest)?;
        let count = number(&mut rest)?;
        let aliases = (0..count).map(|_| next(&mut rest)).collect::<Option<_>>()?;
        let mut addresses = Vec::new();
        while !rest.is_empty() {
            addresses.push(next(&mut rest)?);
        }
        Some(Host { kind, length, name, aliases, addresses })
    }

    /// Bytes that it takes, wherever they begin.
    pub fn room(&self) -> usize {
        const ALIGN: usize = align_of::<*mut c_char>();
        let pointers = self.aliases.len() + self.addresses.len() + 2;
        let padded = |bytes: &&[u8]| bytes.len().next_multiple_of(ALIGN);
        let texts = self.aliases.iter().map(|text| text.len()).sum::<usize>() + self.name.len();
        ALIGN
            + pointers * size_of::<*mut c_char>()
            + self.addresses.iter().map(padded).sum::<usize>()
            + texts
            + 1
    }

    /// Puts it there.
    ///
    /// # Safety
    /// `at` has the room that it needs.
    pub unsafe fn put(&self, host: &mut hostent, at: *mut c_char) {
        const ALIGN: usize = align_of::<*mut c_char>();
        // SAFETY: by the caller's word: pointers first, then addresses, then texts.
        unsafe {
            let list = at.add(at.align_offset(ALIGN)).cast::<*mut c_char>();
            let aliases = self.aliases.len() + 1;
            let mut free = list.add(aliases + self.addresses.len() + 1).cast::<c_char>();
            let mut place = |bytes: &[u8], count: usize| {
                let to = free;
                std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
                free = free.add(count);
                to
            };
            (host.h_addrtype, host.h_length) = (self.kind, self.length);
            (host.h_aliases, host.h_addr_list) = (list, list.add(aliases));
            for (n, one) in self.addresses.iter().enumerate() {
                *host.h_addr_list.add(n) = place(one, one.len().next_multiple_of(ALIGN));
            }
            *host.h_addr_list.add(self.addresses.len()) = null_mut();
            for (n, one) in self.aliases.iter().enumerate() {
                *list.add(n) = place(one, one.len());
            }
            *list.add(aliases - 1) = null_mut();
            host.h_name = if self.name.is_empty() {
                place(b"\0", 1)
            } else {
                place(self.name, self.name.len())
            };
        }
    }

    /// A block with it, in place of the one before.
    pub fn in_block(&self, before: *mut c_void) -> *mut hostent {
        // SAFETY: the block before is one of these; the new one has room for both parts.
        unsafe {
            libc::free(before);
            let block = libc::calloc(1, size_of::<hostent>() + self.room()).cast::<hostent>();
            if let Some(host) = block.as_mut() {
                self.put(host, block.add(1).cast());
            }
            block
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(name: &CStr) -> (Vec<u8>, usize) {
        // SAFETY: it consists of numbers and of pointers that may be null.
        let mut hints: addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_flags = libc::AI_NUMERICHOST | libc::AI_CANONNAME;
        let (mut all, mut bytes) = (null_mut(), Vec::new());
        // SAFETY: our variables; the list is freed once.
        unsafe {
            assert_eq!(libc::getaddrinfo(name.as_ptr(), c"80".as_ptr(), &hints, &mut all), 0);
            write_list(&mut bytes, all);
            let count = std::iter::successors(all.as_ref(), |one| one.ai_next.as_ref()).count();
            libc::freeaddrinfo(all);
            (bytes, count)
        }
    }

    #[test]
    fn a_list_of_addresses_is_the_same_again_and_can_be_freed() {
        for name in [c"127.0.0.1", c"::1", c"10.1.2.3"] {
            let (bytes, count) = resolved(name);
            assert!(count >= 2, "streams and datagrams: {count}");
            let list = read_list(&bytes).unwrap();
            let mut again = Vec::new();
            // SAFETY: a list laid out as the C library's.
            unsafe {
                write_list(&mut again, list);
                let canonical = CStr::from_ptr((*list).ai_canonname);
                assert_eq!(canonical, name);
                libc::freeaddrinfo(list);
            }
            assert_eq!(again, bytes);
            // One that is cut is none, and nothing is read behind it.
            assert!((1..16).all(|cut| read_list(&bytes[..bytes.len() - cut]).is_none()));
        }
        assert_eq!(read_list(&[]), Some(null_mut()));
    }

    #[test]
    fn a_machine_is_the_same_again_wherever_it_is_put() {
        let mut aliases = [c"a".as_ptr().cast_mut(), c"bcd.e".as_ptr().cast_mut(), null_mut()];
        let mut own: [[c_char; 4]; 2] = [[127, 0, 0, 1], [10, 1, 2, 3]];
        let [one, two] = &mut own;
        let mut list = [one.as_mut_ptr(), two.as_mut_ptr(), null_mut()];
        let host = hostent {
            h_name: c"machine.example".as_ptr().cast_mut(),
            h_aliases: aliases.as_mut_ptr(),
            h_addrtype: libc::AF_INET,
            h_length: 4,
            h_addr_list: list.as_mut_ptr(),
        };
        let mut bytes = Vec::new();
        // SAFETY: a machine as the C library says it.
        unsafe { write_host(&mut bytes, &host) };
        let read = Host::read(&bytes).unwrap();
        for shift in 0..8 {
            let mut room: Vec<c_char> = vec![0x55; read.room() + 16];
            // SAFETY: as above.
            let mut other: hostent = unsafe { std::mem::zeroed() };
            let mut again = Vec::new();
            // SAFETY: there is so much room.
            unsafe {
                read.put(&mut other, room.as_mut_ptr().add(shift));
                write_host(&mut again, &other);
            }
            assert_eq!(again, bytes, "{shift}");
            assert!(room[shift + read.room()..].iter().all(|byte| *byte == 0x55), "{shift}");
        }
        assert!(Host::read(&bytes[..20]).is_none());
    }

    #[test]
    fn what_a_function_came_to_is_before_it() {
        let head = Head { result: -2, error: 5, host_error: 1 };
        let bytes = [head.bytes(), vec![7]].concat();
        assert_eq!(Head::of(&bytes), Some((head, &[7][..])));
        assert_eq!(Head::of(&bytes[..HEAD_BYTES - 1]), None);
    }
}
