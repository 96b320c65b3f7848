//! A forked process that writes, moves and drops memory on command is watched from outside.

use super::*;
use crate::capture::freeze::Frozen;
use crate::capture::process_state;
use crate::capture::survey::Survey;
use crate::kernel::procfs;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const WRITE: u64 = 1;
const DROP: u64 = 2;
const READ_IN: u64 = 3;
const MOVE: u64 = 4;
const REPLACE: u64 = 5;

/// Shared with the process.
struct Slate {
    command: AtomicU64,
    page: AtomicU64,
    done: AtomicU64,
}

struct Puppet {
    pid: libc::pid_t,
    slate: &'static Slate,
    memory: u64,
    spare: u64,
}

fn map(bytes: u64, kind: i32) -> u64 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of our own.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes as usize, prot, kind | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

impl Puppet {
    fn new() -> Puppet {
        let slate = map(PAGE, libc::MAP_SHARED) as *const Slate;
        // SAFETY: zeroed memory that is never unmapped.
        let slate = unsafe { &*slate };
        let memory = map(PAGES * PAGE, libc::MAP_PRIVATE);
        let spare = map(PAGES * PAGE, libc::MAP_PRIVATE);
        // SAFETY: touches our own new memory.
        unsafe { std::ptr::write_bytes(memory as *mut u8, 1, (PAGES * PAGE) as usize) };
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; it dies with the test.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // What the test was born with is not the puppet's.
                libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
            }
            play(slate, memory, spare);
        }
        while slate.done.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        Puppet { pid, slate, memory, spare }
    }

    fn command(&self, command: u64, page: u64) {
        let before = self.slate.done.load(Ordering::Acquire);
        self.slate.page.store(page, Ordering::Release);
        self.slate.command.store(command, Ordering::Release);
        while self.slate.done.load(Ordering::Acquire) == before {
            std::thread::yield_now();
        }
    }

    /// Freezes it and returns which of its pages have changed.
    fn changed(&self, writes: &mut Writes, freeze: u64) -> Vec<u64> {
        let mut frozen = Frozen::stop(self.pid).unwrap();
        let mut survey = Survey::of(&[self.pid], &[], &Default::default()).unwrap();
        let (frozen_state, agent) = process_state::freeze_state(&mut frozen, &mut survey).unwrap();
        let found = writes.freeze(self.pid, &frozen_state.maps, &agent, freeze).unwrap().unwrap();
        agent.finish().unwrap();
        frozen.release().unwrap();
        let end = self.memory + PAGES * PAGE;
        let within = found.within(self.memory, end);
        within
            .flat_map(|s| (s.start..s.end).step_by(4096))
            .map(|a| (a - self.memory) / PAGE)
            .collect()
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // SAFETY: our own child.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

fn play(slate: &Slate, memory: u64, spare: u64) -> ! {
    slate.done.store(1, Ordering::Release);
    loop {
        let command = slate.command.swap(0, Ordering::AcqRel);
        let at = memory + slate.page.load(Ordering::Acquire) * PAGE;
        // SAFETY: the test names pages of memory that is this process's own.
        unsafe {
            match command {
                0 => {
                    libc::sched_yield();
                    continue;
                }
                WRITE => *(at as *mut u8) = 7,
                DROP => {
                    libc::madvise(at as *mut _, PAGE as usize, libc::MADV_DONTNEED);
                }
                READ_IN => {
                    let mut pipe = [0; 2];
                    libc::pipe(pipe.as_mut_ptr());
                    libc::write(pipe[1], b"x".as_ptr().cast(), 1);
                    libc::read(pipe[0], at as *mut _, 1);
                    libc::close(pipe[0]);
                    libc::close(pipe[1]);
                }
                MOVE => {
                    // The whole of it away and back again.
                    let bytes = (PAGES * PAGE) as usize;
                    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    libc::mremap(memory as *mut _, bytes, bytes, how, spare as *mut libc::c_void);
                    libc::mremap(spare as *mut _, bytes, bytes, how, memory as *mut libc::c_void);
                }
                _ => {
                    let prot = libc::PROT_READ | libc::PROT_WRITE;
                    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                    libc::mmap(at as *mut _, PAGE as usize, prot, how, -1, 0);
                    *(at as *mut u8) = 9;
                }
            }
        }
        slate.done.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether this kernel notes writes; the fallback has its own tests.
fn noted(writes: &mut Writes, puppet: &Puppet) -> bool {
    let mut frozen = Frozen::stop(puppet.pid).unwrap();
    let mut survey = Survey::of(&[puppet.pid], &[], &Default::default()).unwrap();
    let (frozen_state, agent) = process_state::freeze_state(&mut frozen, &mut survey).unwrap();
    let found = writes.freeze(puppet.pid, &frozen_state.maps, &agent, 1).unwrap();
    agent.finish().unwrap();
    if let Err(obstacle) = &found {
        println!("NOT RUN: {}", obstacle.0);
    }
    found.is_ok()
}

#[test]
fn exactly_what_was_written_is_found() {
    let puppet = Puppet::new();
    let mut writes = Writes::default();
    if !noted(&mut writes, &puppet) {
        return;
    }
    assert_eq!(puppet.spare % PAGE, 0);
    assert_eq!(procfs::numbers(puppet.pid, "fd").unwrap(), [], "a descriptor was left behind");
    assert_eq!(puppet.changed(&mut writes, 2).len() as u64, PAGES, "not imaged yet");
    writes.imaged(2);
    assert_eq!(puppet.changed(&mut writes, 3), [0u64; 0]);
    writes.imaged(3);
    puppet.command(WRITE, 3);
    puppet.command(READ_IN, 9);
    puppet.command(DROP, 20);
    puppet.command(DROP, 30);
    puppet.command(WRITE, 30);
    assert_eq!(puppet.changed(&mut writes, 4), [3, 9, 30], "written, by the kernel too, or anew");
    puppet.command(WRITE, 4);
    assert_eq!(puppet.changed(&mut writes, 5), [3, 4, 9, 30], "the image of 4 failed");
    writes.imaged(4);
    assert_eq!(puppet.changed(&mut writes, 6), [4], "5 is still being written");
    writes.imaged(6);
    puppet.command(REPLACE, 40);
    assert_eq!(puppet.changed(&mut writes, 7), [40], "another mapping in the same place");
    writes.imaged(7);
    puppet.command(WRITE, 40);
    puppet.command(WRITE, 41);
    assert_eq!(puppet.changed(&mut writes, 8), [40, 41]);
    writes.imaged(8);
    puppet.command(REPLACE, 41);
    puppet.command(WRITE, 63);
    puppet.command(WRITE, 0);
    assert_eq!(puppet.changed(&mut writes, 9), [0, 41, 63]);
}

#[test]
fn moved_memory_counts_as_changed() {
    let puppet = Puppet::new();
    let mut writes = Writes::default();
    if !noted(&mut writes, &puppet) {
        return;
    }
    writes.imaged(1);
    puppet.command(MOVE, 0);
    assert_eq!(puppet.changed(&mut writes, 2).len() as u64, PAGES);
    writes.imaged(2);
    puppet.command(WRITE, 5);
    assert_eq!(puppet.changed(&mut writes, 3), [5]);
}

#[test]
fn what_another_watches_is_left_alone() {
    let puppet = Puppet::new();
    let (mut one, mut two) = (Writes::default(), Writes::default());
    if !noted(&mut one, &puppet) {
        return;
    }
    assert!(!noted(&mut two, &puppet));
    drop(two);
    one.imaged(1);
    puppet.command(WRITE, 5);
    assert_eq!(puppet.changed(&mut one, 2), [5]);
}

#[test]
fn a_list_that_is_out_of_date_does_not_split_a_mapping() {
    let puppet = Puppet::new();
    let mut writes = Writes::default();
    if !noted(&mut writes, &puppet) {
        return;
    }
    let list = || procfs::maps(puppet.pid).unwrap();
    let end = puppet.memory + PAGES * PAGE;
    let whole = |m: &Mapping| m.start <= puppet.memory && end <= m.end;
    let mut half = list().into_iter().find(whole).unwrap();
    (half.start, half.end) = (puppet.memory, puppet.memory + PAGES / 2 * PAGE);
    puppet.command(MOVE, 0);
    let found = writes.running(puppet.pid, &[half]).unwrap();
    assert_eq!(found.bytes(), PAGES / 2 * PAGE, "not watched: counts as written");
    assert!(list().iter().any(whole), "it was watched in part");

    let ours = || list().into_iter().filter(whole).collect::<Vec<_>>();
    let frozen = Frozen::alone(puppet.pid).unwrap();
    writes.watch_new(puppet.pid, &ours()).unwrap();
    frozen.release().unwrap();
    assert!(list().iter().any(whole));
    let within = |found: Spans| {
        let pages = found.within(puppet.memory, end).map(|s| (s.start - puppet.memory) / PAGE);
        (pages.collect::<Vec<_>>(), found.bytes())
    };
    assert_eq!(within(writes.running(puppet.pid, &ours()).unwrap()).0, [0], "all of it");
    puppet.command(WRITE, 5);
    assert_eq!(within(writes.running(puppet.pid, &ours()).unwrap()), (vec![5], PAGE));
}
