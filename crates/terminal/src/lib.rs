//! What the commands have in common at the terminal: how an error ends a command and is told, how
//! sizes and times are read and written, which signals are held to be passed on, how far long work
//! is.
//!
//! Kept true: standard output is for what was asked for, everything else goes to standard error
//! with the name of the program before it.

#![allow(unsafe_code)] // signals, descriptors

pub mod exit;
mod failure;
mod json;
mod pages;
mod progress;
mod reference;
mod signals;
mod standard_output;
pub mod units;
mod usage;

pub use exit::{FAILED, USAGE};
pub use failure::{Failure, finish, told};
pub use json::{choose_json, is_json, print_json, print_line};
pub use pages::{Completions, Manual};
pub use progress::{Counted, Progress, end_progress};
pub use signals::{Held, hold};
pub use standard_output::{lacks_output, print, refused, write_out};
pub use usage::{called, usage};

use std::io::Write;

/// A message of `program` itself, every line marked, or an object with `--json`; whether it can be
/// written changes nothing.
pub fn say(program: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    match is_json() {
        true => write_err(&(json::note(text.trim_end()) + "\n")),
        false => {
            let lines = text.lines().map(|line| format!("{program}: {line}\n"));
            write_err(&lines.collect::<String>());
        }
    }
}

/// An error that ends `program`, or that it goes on after.
pub(crate) fn say_error(program: &str, text: &str, remedy: Option<&str>) {
    match (is_json(), remedy) {
        (true, _) => write_err(&(json::error(text, remedy) + "\n")),
        (false, Some(remedy)) => say(program, &format!("{text}: {remedy}")),
        (false, None) => say(program, text),
    }
}

fn write_err(text: &str) {
    progress::aside(|| {
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    });
}
