//! System calls made in a stopped process's name, at a `syscall` instruction of its own code, with
//! a few bytes of its memory borrowed for answers and put back.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::memory;
use crate::kernel::procfs::Mapping;
use crate::kernel::ptrace::{Call, TraceError, Tracee, syscall_in_each};
use eyrie_image_format::bytes::registers::Regs;
use std::io;

/// Bytes borrowed for answers; no more than any mapping has.
const SCRATCH_BYTES: usize = 2048;
/// Most words of an answer that several threads give at once.
const EACH_WORDS: usize = 4;
/// Most threads that are asked at once.
pub(crate) const AT_ONCE: usize = SCRATCH_BYTES / 8 / EACH_WORDS;

/// System calls in another process's name.
pub(crate) struct Agent {
    tracee: Tracee,
    /// Address of a `syscall` instruction.
    site: u64,
    /// Memory for answers, and what was there.
    scratch: u64,
    saved: [u8; SCRATCH_BYTES],
    base: Regs,
}

impl Agent {
    /// Borrows memory of `tracee`, all of whose signals must be blocked.
    pub fn new(tracee: Tracee, base: Regs, maps: &[Mapping]) -> Result<Agent, CaptureError> {
        let site = syscall_site(tracee.0, maps)?;
        let scratch = scratch(maps)?;
        let mut saved = [0; SCRATCH_BYTES];
        memory::read_exact(tracee.0, scratch, &mut saved)?;
        Ok(Agent { tracee, site, scratch, saved, base })
    }

    /// Where the borrowed memory lies, and what was there.
    pub fn borrowed(&self) -> (u64, Vec<u8>) {
        (self.scratch, self.saved.to_vec())
    }

    /// The same for a twin of the process.
    pub fn of_twin(&self, twin: Tracee) -> Agent {
        Agent { tracee: twin, ..*self }
    }

    /// Number of the process.
    pub fn pid(&self) -> libc::pid_t {
        self.tracee.0
    }

    /// Makes a call; a negative result is the error.
    pub fn call(&self, nr: libc::c_long, args: &[u64]) -> Result<i64, CaptureError> {
        Ok(self.tracee.syscall(self.site, &self.base, nr, args, &mut None)?)
    }

    /// Makes a call that writes `N` words to the scratch memory, whose address is `args[slot]`.
    pub fn ask<const N: usize>(
        &self,
        nr: libc::c_long,
        args: &[u64],
        slot: usize,
    ) -> Result<Result<[u64; N], i64>, CaptureError> {
        const { assert!(N * 8 <= SCRATCH_BYTES) };
        let mut args = args.to_vec();
        args[slot] = self.scratch;
        memory::write_exact(self.tracee.0, self.scratch, &[[0u8; 8]; N].concat())?;
        let result = self.call(nr, &args)?;
        if result < 0 {
            return Ok(Err(result));
        }
        Ok(Ok(memory::read_words(self.tracee.0, self.scratch)?))
    }

    /// The same for another thread of the process.
    pub fn of_thread(&self, thread: &Borrowed) -> Agent {
        Agent { tracee: thread.tracee, base: thread.regs, ..*self }
    }

    /// Makes a call that writes `N` words to the scratch memory, whose address `args` gets.
    pub fn ask_at<const N: usize>(
        &self,
        nr: libc::c_long,
        args: impl FnOnce(u64) -> [u64; 5],
    ) -> Result<Result<[u64; N], i64>, CaptureError> {
        self.ask::<N>(nr, &args(self.scratch), 0)
    }

    /// Makes a call in the name of each of up to [`AT_ONCE`] threads of the process, all at once.
    pub fn call_each(
        &self,
        threads: &[Borrowed],
        nr: libc::c_long,
        args: [u64; 2],
    ) -> Result<Vec<i64>, CaptureError> {
        let calls: Vec<Call> = threads.iter().map(|t| (t.tracee, t.regs, args)).collect();
        Ok(syscall_in_each(self.site, nr, &calls)?)
    }

    /// The same with calls that write `N` words to where their second argument points, or the first
    /// and only one.
    pub fn ask_each<const N: usize>(
        &self,
        threads: &[Borrowed],
        nr: libc::c_long,
        first: Option<u64>,
    ) -> Result<Vec<Result<[u64; N], i64>>, CaptureError> {
        const { assert!(N <= EACH_WORDS) };
        let pid = self.tracee.0;
        let place = |i: usize| self.scratch + (i * N * 8) as u64;
        let args = |i| first.map_or([place(i), 0], |first| [first, place(i)]);
        let call = |(i, t): (usize, &Borrowed)| (t.tracee, t.regs, args(i));
        let calls: Vec<Call> = threads.iter().enumerate().map(call).collect();
        memory::write_exact(pid, self.scratch, &vec![0; threads.len() * N * 8])?;
        let results = syscall_in_each(self.site, nr, &calls)?;
        let answer = |(i, result)| match result {
            0.. => Ok(Ok(memory::read_words(pid, place(i))?)),
            error => Ok(Err(error)),
        };
        results.into_iter().enumerate().map(answer).collect()
    }

    /// Makes a process with these flags for `clone` and puts its number in `born`, also if the
    /// process dies meanwhile.
    pub fn fork(&self, flags: i32, born: &mut Option<libc::pid_t>) -> Result<(), CaptureError> {
        let args = [flags as u64, 0, 0, 0, 0];
        let result = self.tracee.syscall(self.site, &self.base, libc::SYS_clone, &args, born)?;
        if born.is_some() {
            return Ok(());
        }
        Err(CaptureError::Os {
            what: "make a twin of the process",
            source: io::Error::from_raw_os_error((-result) as i32),
        })
    }

    /// Maps memory for longer answers.
    pub fn map(&self, bytes: u64) -> Result<u64, CaptureError> {
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let at = self.call(libc::SYS_mmap, &[0, bytes, prot, flags, u64::MAX, 0])?;
        u64::try_from(at).map_err(|_| CaptureError::Os {
            what: "map memory for answers",
            source: io::Error::from_raw_os_error(at.unsigned_abs() as i32),
        })
    }

    /// Undoes [`Agent::map`].
    pub fn unmap(&self, at: u64, bytes: u64) -> Result<(), CaptureError> {
        self.call(libc::SYS_munmap, &[at, bytes]).map(drop)
    }

    /// Whether a page is in memory.
    pub fn is_resident(&self, page: u64) -> Result<bool, CaptureError> {
        let answer = self.ask::<1>(libc::SYS_mincore, &[page, PAGE_BYTES, 0], 2)?;
        Ok(answer.is_ok_and(|[word]| word & 1 != 0))
    }

    /// Which of some pages of a shared mapping are in memory, a byte each, by way of memory `room`
    /// of the twin. Of what cannot be told, all are.
    pub fn resident(&self, start: u64, pages: usize, room: u64) -> Result<Vec<u8>, CaptureError> {
        let args = [start, pages as u64 * PAGE_BYTES, room];
        if self.call(libc::SYS_mincore, &args)? < 0 {
            return Ok(vec![1; pages]);
        }
        let mut there = vec![0; pages];
        memory::read_exact(self.tracee.0, room, &mut there)?;
        Ok(there)
    }

    /// Puts the borrowed memory back.
    pub fn finish(&self) -> Result<(), CaptureError> {
        memory::write_exact(self.tracee.0, self.scratch, &self.saved)
    }
}

/// A `syscall` instruction of the process: in its vdso, or else anywhere in its code.
pub(crate) fn syscall_site(pid: libc::pid_t, maps: &[Mapping]) -> Result<u64, CaptureError> {
    const MAX_SEARCH_BYTES: u64 = 4 << 20;
    let code = |m: &&Mapping| m.prot & libc::PROT_EXEC as u32 != 0 && !m.is_vsyscall();
    let vdso = maps.iter().filter(|m| m.path == b"[vdso]");
    for m in vdso.chain(maps.iter().filter(code)) {
        let mut bytes = vec![0; (m.end - m.start).min(MAX_SEARCH_BYTES) as usize];
        if memory::read_exact(pid, m.start, &mut bytes).is_err() {
            continue;
        }
        if let Some(i) = bytes.windows(2).position(|w| w == [0x0f, 0x05]) {
            return Ok(m.start + i as u64);
        }
    }
    Err(CaptureError::Unsupported("has no system call instruction in its code".into()))
}

/// The end of the initial stack (the program's name stands there), or of another writable mapping.
fn scratch(maps: &[Mapping]) -> Result<u64, CaptureError> {
    let writable = |m: &&Mapping| m.is_anon() && m.prot & 3 == 3;
    maps.iter()
        .filter(writable)
        .max_by_key(|m| m.path == b"[stack]")
        .map(|m| m.end - SCRATCH_BYTES as u64)
        .ok_or_else(|| CaptureError::Unsupported("has no writable memory".into()))
}

/// State of a thread that was changed for the time of the freeze.
pub(crate) struct Borrowed {
    pub tracee: Tracee,
    pub regs: Regs,
    pub sigmask: u64,
}

impl Borrowed {
    pub fn put_back(&self) -> Result<(), TraceError> {
        self.tracee.set_options(libc::PTRACE_O_TRACESYSGOOD)?;
        self.tracee.set_regs(&self.regs)?;
        self.tracee.set_sigmask(self.sigmask)
    }
}
