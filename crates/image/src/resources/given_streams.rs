//! The standard streams that a program was given when it was started. A shell moves them to other
//! descriptors as long as it redirects its own: they stay what is given anew at a restore.

use std::fs::{File, Metadata};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;

/// A file as far as it tells a stream from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    dev: u64,
    ino: u64,
    rdev: u64,
}

impl Stream {
    pub fn of(meta: &Metadata) -> Stream {
        Stream { dev: meta.dev(), ino: meta.ino(), rdev: meta.rdev() }
    }
}

/// Standard input, output and error: what whoever started the program knows of them.
#[derive(Clone, Copy, Default, Debug)]
pub struct GivenStreams([Option<Stream>; 3]);

impl GivenStreams {
    /// By a descriptor of each, of either end if it is a pipe.
    pub fn of(streams: [Option<BorrowedFd<'_>>; 3]) -> GivenStreams {
        GivenStreams(streams.map(|fd| {
            // `File` asks for what is needed; it is a copy, which is closed again.
            let meta = File::from(fd?.try_clone_to_owned().ok()?).metadata().ok()?;
            Some(Stream::of(&meta))
        }))
    }

    /// This process's own, where the program was given those.
    pub fn own() -> GivenStreams {
        use std::os::fd::AsFd;
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        GivenStreams::of([Some(input.as_fd()), Some(output.as_fd()), Some(error.as_fd())])
    }

    /// Which of them this is, the one of the same number first: output and error may be one pipe.
    pub(crate) fn which(&self, stream: Stream, fd: u32) -> Option<u32> {
        let mut same = (0..3).filter(|n| self.0[*n as usize] == Some(stream));
        let first = same.next();
        same.find(|n| *n == fd).or(first)
    }
}
