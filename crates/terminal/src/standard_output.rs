//! Standard output, and what it means that it takes no more.
//!
//! Kept true: nothing that was to be written there is lost without a word, but for a reader that
//! went away: that one ends the command quietly.

use crate::exit::{FAILED, READER_GONE};
use crate::{end_progress, progress, say_error};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// It was closed when the process began. Rust opens `/dev/null` in its place before `main`.
static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_closed() {
    // SAFETY: asks of a number whether it is open.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    CLOSED.store(closed, Ordering::Relaxed);
}

// SAFETY: called once by the C library before `main`; it only asks and sets a word of its own.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_CLOSED: extern "C" fn() = note_closed;

/// Whether this process was started without it.
pub fn lacks_output() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Writes to standard output, all of it and at once.
pub fn write_out(bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    if lacks_output() {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    progress::aside(|| {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    })
}

/// The exit code of what could not write there, and why it could not.
pub fn refused(error: &io::Error) -> (i32, String) {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::BrokenPipe, _) => (READER_GONE, "nobody reads it any more".into()),
        (_, Some(libc::EBADF)) => (FAILED, "it is closed".into()),
        _ => (FAILED, error.to_string()),
    }
}

/// Writes to standard output, or ends the command.
pub fn print(text: &str) {
    let Err(error) = write_out(text.as_bytes()) else { return };
    std::process::exit(tell_refused(&error));
}

/// A command cannot write what it was asked for; its exit code.
pub(crate) fn tell_refused(error: &io::Error) -> i32 {
    end_progress();
    let (code, why) = refused(error);
    if code != READER_GONE {
        let name = std::env::args_os().next().unwrap_or_default();
        let name = std::path::Path::new(&name).file_name().unwrap_or_default();
        say_error(
            &name.to_string_lossy(),
            &format!("cannot write to standard output: {why}"),
            None,
        );
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_code_and_reason() {
        let of = |number| refused(&io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::EPIPE).0, READER_GONE);
        assert_eq!(of(libc::EBADF), (FAILED, "it is closed".into()));
        let (code, why) = of(libc::ENOSPC);
        assert!(code == FAILED && why.starts_with("No space left on device"), "{why}");
    }
}
