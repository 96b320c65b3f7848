//! Rings of `io_uring` at rest: all that the program has handed in is answered.
//!
//! Such a ring is memory that the program and the kernel share, and two counts that the kernel
//! keeps for itself: how many requests it has taken, and how many answers it has given. Where all
//! is answered they are the same. So the memory is copied; at restore a new ring is handed as many
//! requests that do nothing, until its counts are those, and then its memory is put in. Answers
//! that were not read, and requests that were not handed in yet, are in that memory.
//!
//! What the kernel does not show it is asked for. A ring that it does more for is refused, and so
//! is one of which it cannot be told. What only says how answers are come by (`IOPOLL`,
//! `COOP_TASKRUN`, `SUBMIT_ALL`) is not told, and not kept.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::inode::device;
use crate::kernel::procfs;
use crate::kernel::remote_descriptors::made;
use crate::kernel::script::Plan;
use crate::resources::open::{Open, cannot, refused, refused_now, unclear};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::PAGE_BYTES;
use eyrie_image_format::state::resources::Ring;
use eyrie_image_format::state::resources::rings::{
    ANSWER_BYTES, ANSWERED_AT, MAX_MAPS, MAX_TAKEN, REQUEST_BYTES, RingMap, TAKEN_AT,
};
use eyrie_image_format::state::{Description, Target};
use eyrie_restorer::plan::AREA_BYTES;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const SETUP_CQSIZE: u32 = 1 << 3;
const SETUP_NO_SQARRAY: u32 = 1 << 16;
const REGISTER_EVENTFD: u32 = 4;
const UNREGISTER_EVENTFD: u32 = 5;
const REGISTER_PBUF_STATUS: u32 = 26;
/// Groups of buffers have numbers below.
const GROUPS: u32 = 1 << 16;
/// Where `mmap` finds the shared memory, and the requests.
const SHARED_OFFSET: i64 = 0;
const ENTRIES_OFFSET: i64 = 0x1000_0000;
/// Where in the shared memory the program counts, and the kernel notes what it needs.
const HANDED_IN_AT: usize = 4;
const READ_AT: usize = 8;
const FLAGS_AT: usize = 36;
/// Words of `struct io_uring_params`, and which is what.
const PARAMETERS: usize = 30;
const HEADS_AND_TAILS: [(usize, usize); 5] =
    [(10, TAKEN_AT), (11, HANDED_IN_AT), (14, FLAGS_AT), (20, READ_AT), (21, ANSWERED_AT)];
const NUMBERS: usize = 16;
const ANSWERS: usize = 25;
/// `IORING_CQE_F_MORE`: the request has further answers.
const MORE: u32 = 1 << 1;
/// Where a process can map.
const FIRST_ADDRESS: u64 = 1 << 16;
const LAST_ADDRESS: u64 = 0x7fff_ffff_f000;
const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
/// More than there are gaps of one size where the restorer works.
const HOLES: u32 = 16;
const PATH: &[u8] = b"anon_inode:[io_uring]";

impl Resource for Ring {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.anonymous_inode() != Some(b"[io_uring]") {
            return Ok(None);
        }
        let fd = look.remote.borrow(this.fd)?;
        let refuse = |Reason { text, passes }: Reason| {
            let what = format!("a ring of io_uring ({}) {text}", this.shown());
            if passes { refused_now(this, what) } else { refused(this, what) }
        };
        let found = read(this, &fd)?.map_err(refuse)?;
        let maps = maps(this)?.map_err(|text| refuse(text.into()))?;
        Ok(Some(Target::Ring(Ring { maps, ..found })))
    }

    fn restore(&self, _: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        make(self).map_err(|e| cannot("make its ring of io_uring again", e)).map(Made::New)
    }

    fn map(&self, plan: &mut Plan, own: u64, taken: &mut Vec<(u64, u64)>) {
        if !self.maps.is_empty() {
            map_again(plan, &self.maps, own, taken);
        }
    }
}

/// Maps a ring where it was. The kernel lets nobody choose the place, and takes one that is free:
/// so all others are taken for the moment.
fn map_again(plan: &mut Plan, maps: &[RingMap], fd: u64, taken: &mut Vec<(u64, u64)>) {
    let reserve = |plan: &mut Plan, start: u64, end: u64| {
        let flags = RESERVED | libc::MAP_FIXED_NOREPLACE;
        let args = [start, end - start, libc::PROT_NONE as u64, flags as u64, u64::MAX, 0];
        plan.exact("make room for its ring", libc::SYS_mmap, &args, start);
    };
    let release = |plan: &mut Plan, start: u64, end: u64| {
        plan.step("make room for its ring", libc::SYS_munmap, &[start, end - start]);
    };
    taken.extend(maps.iter().map(|map| (map.start, map.end)));
    taken.sort_unstable();
    let ends = std::iter::once(FIRST_ADDRESS).chain(taken.iter().map(|range| range.1));
    let starts = taken.iter().map(|range| range.0).chain([LAST_ADDRESS]);
    let gaps: Vec<(u64, u64)> = ends.zip(starts).filter(|(start, end)| start < end).collect();
    gaps.iter().for_each(|&(start, end)| reserve(plan, start, end));
    maps.iter().for_each(|map| reserve(plan, map.start, map.end));
    // What is free where the restorer works goes with that.
    for size in (PAGE_BYTES.ilog2()..=AREA_BYTES.ilog2()).rev() {
        for _ in 0..HOLES {
            let args = [0, 1 << size, libc::PROT_NONE as u64, RESERVED as u64, u64::MAX, 0];
            plan.tolerant("make room for its ring", libc::SYS_mmap, &args);
        }
    }
    for map in maps {
        let (start, bytes) = (map.start, map.end - map.start);
        release(plan, start, map.end);
        let args = [0, bytes, u64::from(map.prot), libc::MAP_SHARED as u64, fd, map.offset];
        plan.exact(format!("map its ring at {start:#x}"), libc::SYS_mmap, &args, start);
        if map.dont_fork {
            let args = [start, bytes, libc::MADV_DONTFORK as u64];
            plan.step(format!("advise on {start:#x}"), libc::SYS_madvise, &args);
        }
    }
    gaps.iter().for_each(|&(start, end)| release(plan, start, end));
}

/// Why a ring cannot be brought back.
struct Reason {
    text: String,
    /// It is so now, and otherwise when the program has gone on.
    passes: bool,
}

impl Reason {
    fn for_now(text: &str) -> Reason {
        Reason { text: text.into(), passes: true }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason { text, passes: false }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Reason {
        String::from(text).into()
    }
}

/// What a ring is, without its mappings, or why it cannot be brought back.
fn read(this: &Open, fd: &OwnedFd) -> Result<Result<Ring, Reason>, CaptureError> {
    let counts = Counts::read(this)?;
    let found = counts.at_rest().and_then(|()| settings(fd)).and_then(|()| {
        let fresh = |flags| Fresh::new(counts.requests, counts.answers, flags);
        // Which of both it is its content tells.
        let (plain, in_order) = match (fresh(0), fresh(SETUP_NO_SQARRAY)) {
            (Ok(plain), in_order) => (plain, in_order.ok()),
            (Err(e), _) => return Err(format!("that cannot be made again: {e}").into()),
        };
        plain.is_of_its_layout(fd)?;
        let of = |like: &Fresh| like.content(fd, counts.taken).map_err(|e| e.to_string());
        let with_numbers = of(&plain)?;
        let ring = match with_numbers.as_ref().map_or(Some(true), is_in_order) {
            Some(true) => in_order.map(|in_order| of(&in_order)).transpose()?.flatten(),
            Some(false) => with_numbers,
            None => {
                return Err(Reason::for_now(
                    "that has taken too little to tell its layout by; try again when it has taken \
                     two requests",
                ));
            }
        };
        let ring = ring.ok_or("whose memory is not laid out in a way that is known")?;
        waits_for_more(&ring).map_or(Ok(ring), |why| Err(Reason::for_now(why)))
    });
    Ok(found)
}

/// What the kernel shows of a ring.
struct Counts {
    requests: u32,
    answers: u32,
    taken: u32,
    answered: u32,
    /// What it has that cannot be brought back.
    more: Option<&'static str>,
    /// Requests that are not answered yet.
    waits: bool,
}

impl Counts {
    fn read(this: &Open) -> Result<Counts, CaptureError> {
        let text = procfs::read(this.pid, &format!("fdinfo/{}", this.fd))?;
        Counts::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| unclear(this))
    }

    fn parse(text: &str) -> Option<Counts> {
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
            let word = line.trim();
            match word.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => word.parse::<i64>().ok().map(|n| n as u32),
            }
        };
        let (_, lists) = text.split_once("PollList:\n")?;
        let (waiting, overflown) = lists.split_once("CqOverflowList:\n")?;
        let overflown = overflown.lines().any(|l| l.trim_start().starts_with("user_data="));
        let (taken, answered) = (field("CachedSqHead")?, field("CachedCqTail")?);
        let shown = (field("SqHead")?, field("CqTail")?);
        let more = if field("SqThread")? as i32 != -1 {
            Some("with a thread of the kernel; make it without IORING_SETUP_SQPOLL")
        } else if field("UserFiles")? > 0 || field("UserBufs")? > 0 {
            Some("with registered files or buffers; unregister them before")
        } else if text.contains("Personalities:") {
            Some("with registered personalities; unregister them before")
        } else {
            None
        };
        let waits = !waiting.trim().is_empty() || overflown || shown != (taken, answered);
        let entries = |mask: u32| mask.checked_add(1);
        let (requests, answers) = (entries(field("SqMask")?)?, entries(field("CqMask")?)?);
        Some(Counts { requests, answers, taken, answered, more, waits })
    }

    fn at_rest(&self) -> Result<(), Reason> {
        if let Some(more) = self.more {
            return Err(more.into());
        }
        if self.waits {
            let text = "with requests that are not answered yet; try again when they are";
            return Err(Reason::for_now(text));
        }
        if self.taken != self.answered {
            // Also one whose requests do not all have one answer: nobody can tell.
            return Err(Reason::for_now(
                "that has answered another number of requests than it has taken; try again when \
                 all are answered, each once",
            ));
        }
        if self.taken > MAX_TAKEN {
            let text = format!("that has taken more than {MAX_TAKEN} requests; make a new one");
            return Err(text.into());
        }
        Ok(())
    }
}

fn call(nr: libc::c_long, fd: &OwnedFd, args: [u64; 3]) -> io::Result<u32> {
    // SAFETY: each caller says which memory it has the kernel read or write.
    let r = unsafe { libc::syscall(nr, fd.as_raw_fd(), args[0], args[1], args[2], 0u64, 0u64) };
    u32::try_from(r).map_err(|_| io::Error::last_os_error())
}

/// Asks a ring for what the kernel does not show; leaves it as it was.
fn settings(fd: &OwnedFd) -> Result<(), Reason> {
    // No memory is looked at: nothing is handed in or waited for.
    if call(libc::SYS_io_uring_enter, fd, [0; 3]).is_err() {
        return Err(Reason::for_now("that is not enabled yet; try again when it is"));
    }
    // SAFETY: numbers only.
    let event = made(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }.into());
    let event = event.map_err(|e| Reason::from(e.to_string()))?;
    let number = event.as_raw_fd();
    // A live number, which is read.
    let args = [u64::from(REGISTER_EVENTFD), (&raw const number) as u64, 1];
    match call(libc::SYS_io_uring_register, fd, args).map_err(|e| e.raw_os_error()) {
        Ok(_) => {
            let none = [u64::from(UNREGISTER_EVENTFD), 0, 0];
            call(libc::SYS_io_uring_register, fd, none).map_err(|e| Reason::from(e.to_string()))?;
        }
        Err(Some(libc::EBUSY)) => {
            return Err("with a registered eventfd; unregister it before".into());
        }
        Err(Some(libc::EEXIST)) => {
            return Err("for one thread; make it without IORING_SETUP_SINGLE_ISSUER".into());
        }
        Err(_) => return Err("with restrictions; make it without".into()),
    }
    for group in 0..GROUPS {
        let mut status = [0u32; 10];
        status[0] = group;
        // A live `struct io_uring_buf_status`, which is filled.
        let at = status.as_mut_ptr() as u64;
        let args = [u64::from(REGISTER_PBUF_STATUS), at, 1];
        match call(libc::SYS_io_uring_register, fd, args).map_err(|e| e.raw_os_error()) {
            Err(Some(libc::ENOENT)) => {}
            // Kernels before 6.8 do not tell.
            _ => return Err("with provided buffers, or on a kernel that does not tell".into()),
        }
    }
    Ok(())
}

/// Whether the requests of a ring, read as one that has numbers of them, are taken in order
/// instead; `None` if that cannot be told.
fn is_in_order(ring: &Ring) -> Option<bool> {
    let zero = |bytes: &[u8]| bytes.iter().all(|&b| b == 0);
    if !zero(&ring.shared[ring.numbers_at as usize..]) {
        return Some(false);
    }
    // With numbers, the first request would have been the only one ever used.
    (ring.taken >= 2 && !zero(&ring.entries[REQUEST_BYTES..])).then_some(true)
}

/// Words of refusal if the last answer that a request got says that there are more to come.
fn waits_for_more(ring: &Ring) -> Option<&'static str> {
    let mut open = BTreeSet::new();
    for number in ring.taken - ring.taken.min(ring.answers)..ring.taken {
        let at = ring.answers_at as usize + (number % ring.answers) as usize * ANSWER_BYTES;
        let answer = ring.shared.get(at..)?.first_chunk::<ANSWER_BYTES>()?;
        let [whose, rest] = [&answer[..8], &answer[8..]];
        let flags = u32::from_le_bytes(*rest[4..].first_chunk::<4>()?);
        match flags & MORE {
            0 => open.remove(whose),
            _ => open.insert(whose.to_vec()),
        };
    }
    let what = "with a request that has several answers; try again when it has ended";
    (!open.is_empty()).then_some(what)
}

/// The mappings of a ring, or why they cannot be brought back.
fn maps(this: &Open) -> Result<Result<Vec<RingMap>, &'static str>, CaptureError> {
    use std::os::unix::fs::MetadataExt;
    let is_it = |m: &&procfs::Mapping| {
        m.path == PATH && m.ino == this.inode() && m.dev == device(this.meta.dev())
    };
    let all = procfs::parse_maps(&procfs::smaps(this.pid)?)?;
    let mut found = Vec::new();
    for m in all.iter().filter(is_it) {
        if !m.shared || m.prot & libc::PROT_EXEC as u32 != 0 || found.len() >= MAX_MAPS {
            return Ok(Err("that is mapped in an unusual way"));
        }
        let (start, end, prot, offset) = (m.start, m.end, m.prot, m.offset);
        found.push(RingMap { start, end, prot, offset, dont_fork: m.has(b"dc") });
    }
    Ok(Ok(found))
}

/// A part of a ring, mapped.
struct Part {
    at: *mut u8,
    bytes: usize,
}

impl Part {
    fn map(fd: &OwnedFd, offset: i64, bytes: usize) -> io::Result<Part> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, fd) = (libc::MAP_SHARED, fd.as_raw_fd());
        // SAFETY: a new mapping wherever there is room; its result is checked.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Part { at: at.cast(), bytes })
    }

    fn read(&self, bytes: usize) -> Vec<u8> {
        let bytes = bytes.min(self.bytes);
        // SAFETY: within the mapping; whoever else has it stands still, or does not know of it.
        unsafe { std::slice::from_raw_parts(self.at, bytes) }.to_vec()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.bytes - at.min(self.bytes))];
        // SAFETY: within the mapping, which nobody else knows of.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at), bytes.len()) };
    }

    /// A word that the kernel looks at, too; `at`: one of those at the beginning.
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: aligned, and within the first page of the mapping, which lives as long.
        unsafe { AtomicU32::from_ptr(self.at.add(at).cast()) }
    }

    /// Whether there is memory at its last byte. A longer mapping has none behind the end of what
    /// is mapped.
    fn has_its_end(&self) -> bool {
        let mut byte = 0u8;
        let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let from = self.at.wrapping_add(self.bytes - 1).cast();
        let from = libc::iovec { iov_base: from, iov_len: 1 };
        // SAFETY: fills a live byte, from memory of our own of which the kernel tells if it is
        // there.
        unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) == 1 }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: a mapping of our own, which nobody has any more.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES as usize)
}

/// A new ring.
struct Fresh {
    fd: OwnedFd,
    requests: u32,
    answers: u32,
    answers_at: u32,
    /// 0 if they are taken in order.
    numbers_at: u32,
    shared: Part,
    entries: Part,
}

/// Makes a ring; also returns `struct io_uring_params`.
fn set_up(requests: u32, answers: u32, flags: u32) -> io::Result<(OwnedFd, [u32; PARAMETERS])> {
    let mut words = [0u32; PARAMETERS];
    (words[1], words[2]) = (answers, SETUP_CQSIZE | flags);
    // SAFETY: a live `struct io_uring_params`, which is read and filled.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, requests, words.as_mut_ptr()) };
    Ok((made(fd)?, words))
}

impl Fresh {
    fn new(requests: u32, answers: u32, flags: u32) -> io::Result<Fresh> {
        let (fd, words) = set_up(requests, answers, flags)?;
        let as_known = HEADS_AND_TAILS.iter().all(|&(word, at)| words[word] as usize == at);
        if words[..2] != [requests, answers] || !as_known {
            return Err(io::Error::other("this kernel makes it in another way"));
        }
        let (answers_at, numbers_at) = (words[ANSWERS], words[NUMBERS]);
        let shared = Part::map(&fd, SHARED_OFFSET, shared_bytes(requests, answers, &words))?;
        let entries = Part::map(&fd, ENTRIES_OFFSET, requests as usize * REQUEST_BYTES)?;
        Ok(Fresh { fd, requests, answers, answers_at, numbers_at, shared, entries })
    }

    /// An error if the ring `fd`, with as many entries, does not have those of this one: what is
    /// larger takes more pages, or is refused, if it does not.
    fn is_of_its_layout(&self, fd: &OwnedFd) -> Result<(), String> {
        let large = self.shared.bytes + self.answers as usize * ANSWER_BYTES;
        let parts = [
            (SHARED_OFFSET, self.shared.bytes, large),
            (ENTRIES_OFFSET, self.entries.bytes, self.entries.bytes * 2),
        ];
        for (offset, bytes, large) in parts {
            if pages(bytes) == pages(large) {
                return Err("of so few entries that their size cannot be told; make it of 64 \
                            requests and 128 answers at least"
                    .into());
            }
            let whole = (pages(bytes) + 1) * PAGE_BYTES as usize;
            let large = match Part::map(fd, offset, whole) {
                Ok(part) => part.has_its_end(),
                // Some kernels do not map more than there is, others not less.
                Err(e) => e.raw_os_error() != Some(libc::EINVAL),
            };
            if large {
                return Err("with large entries (IORING_SETUP_SQE128, IORING_SETUP_CQE32)".into());
            }
        }
        Ok(())
    }

    /// The content of the ring `fd`, as that of one with the layout of this one; `None` if it has
    /// less memory.
    fn content(&self, fd: &OwnedFd, taken: u32) -> io::Result<Option<Ring>> {
        let shared = Part::map(fd, SHARED_OFFSET, self.shared.bytes)?;
        let entries = Part::map(fd, ENTRIES_OFFSET, self.entries.bytes)?;
        if !shared.has_its_end() || !entries.has_its_end() {
            return Ok(None);
        }
        Ok(Some(Ring {
            requests: self.requests,
            answers: self.answers,
            answers_at: self.answers_at,
            numbers_at: self.numbers_at,
            taken,
            shared: shared.read(shared.bytes),
            entries: entries.read(entries.bytes),
            maps: Vec::new(),
        }))
    }

    /// Takes so many requests that do nothing, and answers them.
    fn take(&self, count: u32) -> io::Result<()> {
        for number in 0..if self.numbers_at == 0 { 0 } else { self.requests } {
            let at = self.numbers_at as usize + number as usize * 4;
            self.shared.write(at, &number.to_le_bytes());
        }
        let mut taken = 0;
        while taken < count {
            // A request of zeros does nothing.
            let some = (count - taken).min(self.requests).min(self.answers);
            taken += some;
            self.shared.word(HANDED_IN_AT).store(taken, Ordering::Release);
            // No memory is looked at but the ring's.
            if call(libc::SYS_io_uring_enter, &self.fd, [u64::from(some), 0, 0])? != some {
                return Err(io::Error::other("it does not take requests"));
            }
            self.shared.word(READ_AT).store(taken, Ordering::Release);
        }
        let is = |at: usize| self.shared.word(at).load(Ordering::Acquire) == count;
        match is(TAKEN_AT) && is(ANSWERED_AT) {
            true => Ok(()),
            false => Err(io::Error::other("it does not answer requests at once")),
        }
    }
}

fn shared_bytes(requests: u32, answers: u32, words: &[u32; PARAMETERS]) -> usize {
    match words[NUMBERS] as usize {
        0 => words[ANSWERS] as usize + answers as usize * ANSWER_BYTES,
        at => at + requests as usize * 4,
    }
}

/// Makes a ring that has taken as much, and has the same content.
fn make(ring: &Ring) -> io::Result<OwnedFd> {
    let flags = if ring.numbers_at == 0 { SETUP_NO_SQARRAY } else { 0 };
    let fresh = Fresh::new(ring.requests, ring.answers, flags)?;
    if (fresh.answers_at, fresh.numbers_at) != (ring.answers_at, ring.numbers_at) {
        return Err(io::Error::other("this kernel lays it out in another way"));
    }
    fresh.take(ring.taken)?;
    fresh.shared.write(0, &ring.shared);
    fresh.entries.write(0, &ring.entries);
    Ok(fresh.fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NOP: u8 = 0;
    const READ: u8 = 22;

    /// A ring of this process as a descriptor of it is found.
    fn found(fd: &OwnedFd) -> Open {
        let (pid, number) = (std::process::id() as libc::pid_t, fd.as_raw_fd() as u32);
        let link = procfs::link(pid, &format!("fd/{number}")).unwrap();
        let meta = fs::metadata(format!("/proc/self/fd/{number}")).unwrap();
        Open { pid, fd: number, link, meta, info: procfs::fdinfo(pid, number).unwrap(), id: 1 }
    }

    /// Whether this kernel lets this process have rings.
    fn may_have_rings() -> bool {
        let may = Fresh::new(64, 128, 0).is_ok();
        if !may {
            println!("NOT RUN: no io_uring here");
        }
        may
    }

    impl Fresh {
        /// Puts a request where the one after `count` others stands.
        fn prepare(&self, count: u32, code: u8, file: i32, user_data: u64, to: &mut [u8]) {
            let mut request = [0u8; REQUEST_BYTES];
            request[0] = code;
            request[4..8].copy_from_slice(&file.to_le_bytes());
            request[16..24].copy_from_slice(&(to.as_mut_ptr() as u64).to_le_bytes());
            request[24..28].copy_from_slice(&(to.len() as u32).to_le_bytes());
            request[32..40].copy_from_slice(&user_data.to_le_bytes());
            self.entries.write((count % self.requests) as usize * REQUEST_BYTES, &request);
        }

        fn hand_in(&self, fd: &OwnedFd, count: u32) {
            self.shared.word(HANDED_IN_AT).store(count, Ordering::Release);
            assert_eq!(call(libc::SYS_io_uring_enter, fd, [1, 0, 0]).unwrap(), 1);
        }
    }

    /// The program's word in an answer.
    fn answer(ring: &Ring, number: u32) -> u64 {
        let at = ring.answers_at as usize + (number % ring.answers) as usize * ANSWER_BYTES;
        u64::from_le_bytes(*ring.shared[at..].first_chunk().unwrap())
    }

    #[test]
    fn one_at_rest_comes_back_with_what_was_not_read_and_not_handed_in() {
        if !may_have_rings() {
            return;
        }
        for flags in [0, SETUP_NO_SQARRAY] {
            let Ok(fresh) = Fresh::new(64, 128, flags) else { continue };
            fresh.take(1000).unwrap();
            fresh.prepare(1000, NOP, 0, 77, &mut []);
            fresh.hand_in(&fresh.fd, 1001);
            fresh.prepare(1001, NOP, 0, 78, &mut []);
            let ring = read(&found(&fresh.fd), &fresh.fd).unwrap().unwrap();
            assert_eq!((ring.taken, ring.numbers_at == 0), (1001, flags != 0));
            let again = make(&ring).unwrap();
            let content = |fd: &OwnedFd, taken| fresh.content(fd, taken).unwrap().unwrap();
            assert_eq!(content(&again, 1001), ring);
            assert_eq!(answer(&ring, 1000), 77);
            // It goes on: what was prepared is handed in.
            let shared = Part::map(&again, SHARED_OFFSET, fresh.shared.bytes).unwrap();
            assert_eq!(shared.word(READ_AT).load(Ordering::Acquire), 1000);
            shared.word(HANDED_IN_AT).store(1002, Ordering::Release);
            assert_eq!(call(libc::SYS_io_uring_enter, &again, [1, 0, 0]).unwrap(), 1);
            let after = content(&again, 1002);
            assert_eq!((after.word(TAKEN_AT), after.word(ANSWERED_AT)), (Some(1002), Some(1002)));
            assert_eq!(answer(&after, 1001), 78);
        }
    }

    #[test]
    fn one_that_cannot_come_back_is_refused_with_the_remedy() {
        if !may_have_rings() {
            return;
        }
        let refusal = |fd: &OwnedFd| read(&found(fd), fd).unwrap().unwrap_err();
        let small = Fresh::new(8, 16, 0).unwrap();
        assert!(refusal(&small.fd).contains("make it of 64 requests"));
        let unused = Fresh::new(64, 128, SETUP_NO_SQARRAY).unwrap();
        assert!(refusal(&unused.fd).contains("when it has taken two requests"));
        // IORING_SETUP_SQE128.
        for requests in [64, 1024] {
            let (large, _) = set_up(requests, 2 * requests, 1 << 10).unwrap();
            assert!(refusal(&large).contains("large entries"));
        }

        let told = Fresh::new(64, 128, 0).unwrap();
        told.take(3).unwrap();
        // SAFETY: numbers only.
        let event = made(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }.into()).unwrap();
        let number = event.as_raw_fd();
        let args = [u64::from(REGISTER_EVENTFD), (&raw const number) as u64, 1];
        call(libc::SYS_io_uring_register, &told.fd, args).unwrap();
        assert!(refusal(&told.fd).contains("unregister it before"));

        let busy = Fresh::new(64, 128, 0).unwrap();
        busy.take(3).unwrap();
        let (reads, _writes) = crate::kernel::remote_descriptors::pipe(0).unwrap();
        let mut room = vec![0; 8];
        busy.prepare(3, READ, reads.as_raw_fd(), 1, &mut room);
        busy.hand_in(&busy.fd, 4);
        assert!(refusal(&busy.fd).contains("try again when"));
    }

    #[test]
    fn what_the_kernel_shows_of_one_is_understood() {
        let text = |lists: &str| {
            format!(
                "pos:\t0\nSqMask:\t0x3f\nSqHead:\t7\nSqTail:\t8\nCachedSqHead:\t7\nCqMask:\t0x7f\n\
                 CqHead:\t6\nCqTail:\t7\nCachedCqTail:\t7\nSQEs:\t1\nCQEs:\t1\nSqThread:\t-1\n\
                 UserFiles:\t0\nUserBufs:\t0\n{lists}"
            )
        };
        let counts = Counts::parse(&text("PollList:\nCqOverflowList:\nNAPI:\tdisabled\n")).unwrap();
        assert_eq!((counts.requests, counts.answers), (64, 128));
        assert_eq!((counts.taken, counts.more), (7, None));
        assert!(counts.at_rest().is_ok());
        for lists in [
            "PollList:\n  op=6, task_works=0\nCqOverflowList:\n",
            "PollList:\nCqOverflowList:\n  user_data=1, res=0, flags=0\n",
        ] {
            assert!(Counts::parse(&text(lists)).unwrap().at_rest().is_err(), "{lists}");
        }
        assert!(Counts::parse("pos:\t0\n").is_none());
    }
}
