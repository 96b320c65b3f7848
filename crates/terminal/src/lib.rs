//! What the commands have in common at the terminal: how an error ends a command and is told, how
//! sizes and times are read and written, which signals are held to be passed on.
//!
//! Kept true: standard output is for what was asked for, everything else goes to standard error
//! with the name of the program before it.

mod failure;
mod signals;
pub mod units;
mod usage;

pub use failure::{FAILED, Failure, finish, told};
pub use signals::{Held, hold};
pub use usage::{USAGE, usage};

use std::io::Write;

/// A message of `program` itself, every line marked; whether it can be written changes nothing.
pub fn say(program: &str, text: &str) {
    let mut err = std::io::stderr().lock();
    for line in text.lines() {
        let _ = writeln!(err, "{program}: {line}");
    }
}

/// Writes to standard output; a reader that went away ends the command quietly.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(128 + libc::SIGPIPE);
    }
}
