//! Standard input of rank 0, kept so that it can be fed again.
//!
//! Kept true: what was read from the console is in the file at its position before any of it is
//! fed; how much the program has consumed is known exactly while it is stopped.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes the console may be ahead of the program.
pub const WINDOW_BYTES: u64 = 256 * 1024;

/// What became of an attempt to feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// The pipe is full.
    Blocked,
    /// All that is known was fed.
    Idle,
    /// There will be nothing more for this process.
    Over,
}

struct Pipe {
    write: Option<OwnedFd>,
    /// Held to ask how many bytes are still in the pipe.
    read: OwnedFd,
}

/// The input of a job.
pub struct Input {
    file: File,
    written: u64,
    fed: u64,
    over: bool,
    pipe: Option<Pipe>,
}

impl Input {
    pub fn create(path: &Path) -> io::Result<Input> {
        let file =
            OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)?;
        Ok(Input { file, written: 0, fed: 0, over: false, pipe: None })
    }

    /// Takes bytes from the console.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// The console's input is over.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// Furthest the console may go.
    pub fn limit(&self) -> u64 {
        self.fed.saturating_add(WINDOW_BYTES)
    }

    /// A process reads from `pipe` now, and stands at `position`. `write` must not block.
    pub fn attach(&mut self, read: OwnedFd, write: OwnedFd, position: u64) {
        self.pipe = Some(Pipe { write: Some(write), read });
        self.fed = position.min(self.written);
    }

    pub fn detach(&mut self) {
        self.pipe = None;
    }

    /// Feeds as much as fits.
    pub fn feed(&mut self) -> Fed {
        let Some(pipe) = &mut self.pipe else { return Fed::Over };
        let mut buffer = [0u8; 16 * 1024];
        while let Some(write) = &pipe.write {
            if self.fed == self.written {
                if self.over {
                    pipe.write = None;
                    return Fed::Over;
                }
                return Fed::Idle;
            }
            let wanted = (self.written - self.fed).min(buffer.len() as u64) as usize;
            let Ok(got) = self.file.read_at(&mut buffer[..wanted], self.fed) else {
                break;
            };
            match rustix::io::write(write, &buffer[..got]) {
                Ok(n) => self.fed += n as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Fed::Blocked,
                Err(_) => break,
            }
        }
        pipe.write = None;
        Fed::Over
    }

    /// Bytes the process has taken. Exact only while it is stopped.
    pub fn consumed(&self) -> u64 {
        let waiting = self.pipe.as_ref().map_or(0, |p| queued(p.read.as_fd()));
        self.fed.saturating_sub(waiting)
    }
}

/// Bytes that wait in a pipe.
pub fn queued(pipe: BorrowedFd<'_>) -> u64 {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD stores one int where it is told to.
    let rc = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut n) };
    if rc == 0 { u64::try_from(n).unwrap_or(0) } else { 0 }
}

/// A pipe. `ours` is the end that stays here: 0 to read from, 1 to write to; it does not
/// block.
pub fn pipe(ours: usize) -> io::Result<[OwnedFd; 2]> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let ends = [read, write];
    rustix::io::ioctl_fionbio(&ends[ours], true)?;
    Ok(ends)
}

/// A descriptor whose readiness tasks can wait for.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open until it is dropped,
    // which the `AsyncFd` does only after it has deregistered it.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_fed_again_from_where_the_program_stood() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = Input::create(&dir.path().join("stdin")).unwrap();
        input.push(b"one two three").unwrap();
        let [read, write] = pipe(1).unwrap();
        input.attach(read.try_clone().unwrap(), write, 0);
        assert_eq!(input.feed(), Fed::Idle);
        let mut four = [0; 4];
        rustix::io::read(&read, &mut four).unwrap();
        assert_eq!(input.consumed(), 4);
        let [read, write] = pipe(1).unwrap();
        input.attach(read.try_clone().unwrap(), write, 4);
        input.end();
        assert_eq!(input.feed(), Fed::Over);
        let mut rest = [0; 64];
        let n = rustix::io::read(&read, &mut rest).unwrap();
        assert_eq!(&rest[..n], b"two three");
        assert_eq!(rustix::io::read(&read, &mut rest), Ok(0));
        assert_eq!(input.consumed(), 13);
    }
}
