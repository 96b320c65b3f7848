//! What a checkpoint does must not grow with the number of mappings, but for what the kernel lists
//! at once: each system call in a process's name takes eight turns of the scheduler. Counted, not
//! timed.

use crate::capture::freeze::Frozen;
use crate::kernel::ptrace::CALLS;
use crate::kernel::stops::reap;

const PAGE: usize = 4096;
/// How many calls a checkpoint of a process with one thread may take.
const MOST_CALLS: u64 = 300;

/// A child with so many mappings, which stands still.
fn child(pieces: usize) -> libc::pid_t {
    // SAFETY: the child only makes system calls.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let bytes = pieces * PAGE;
            let at = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
            for i in (0..pieces).step_by(2) {
                let piece = at.byte_add(i * PAGE);
                libc::mprotect(piece, PAGE, libc::PROT_READ | libc::PROT_WRITE);
                *piece.cast::<u8>() = 1;
            }
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, libc::WUNTRACED);
        assert!(libc::WIFSTOPPED(status));
        pid
    }
}

/// Calls that an image of it takes.
fn calls(pieces: usize) -> u64 {
    let pid = child(pieces);
    let folder = tempfile::tempdir().unwrap();
    let before = CALLS.get();
    let mut frozen = Frozen::stop(pid).unwrap();
    let report = frozen.twin().unwrap().write_image(&folder.path().join("image"), b"").unwrap();
    drop(frozen);
    // SAFETY: our own child, not collected yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    reap(pid);
    assert!(report.pages >= pieces as u64 / 2);
    CALLS.get() - before
}

#[test]
fn many_mappings_take_no_more_calls_than_few() {
    let (few, many) = (calls(10), calls(6000));
    assert!(few <= MOST_CALLS + 2 * 256 && many <= MOST_CALLS, "{few} and {many} calls");
}
