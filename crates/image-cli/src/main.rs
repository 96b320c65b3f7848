//! `eyrie-image`: checkpoints of programs that use no MPI. Arguments in, exit code out.
//!
//! A supervisor (`run`, `restart`) is the program's parent: the kernel lets it trace its child
//! without privileges, and it is the one who owns the program's frozen twins. The other commands
//! ask it over a socket.

mod args;
mod ask;
mod find;
mod home;
mod listing;
mod program;
mod protocol;
mod restart;
mod serve;
mod signals;
mod supervise;
mod take;
mod units;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

/// Exit code of wrong arguments.
const USAGE: i32 = 2;
/// Exit code when we could not do our part.
const FAILED: i32 = 1;

/// An error with the exit code it ends the command with.
pub struct Failure {
    code: i32,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure { code: FAILED, error: error.into() }
    }
}

impl Failure {
    fn new(code: i32, error: impl Into<anyhow::Error>) -> Self {
        Failure { code, error: error.into() }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(usage(&error) as u8),
    };
    let result = match cli.command {
        Command::Run(run) => program::run(&run),
        Command::Checkpoint(checkpoint) => ask::checkpoint(&checkpoint),
        Command::Restart(restart) => restart::restart(&restart),
        Command::List(list) => listing::list(&list),
    };
    let code = result.unwrap_or_else(|failure| {
        say(&told(&failure.error));
        failure.code
    });
    ExitCode::from((code & 0xff) as u8)
}

/// An error with its causes, each told once: some tell theirs themselves.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.contains(&cause) => text,
        cause if text.is_empty() => cause,
        cause => format!("{text}: {cause}"),
    })
}

/// A message of ours; whether it can be written changes nothing.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "eyrie-image: {text}");
}

/// Writes to standard output; a reader that went away ends the command quietly.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(128 + libc::SIGPIPE);
    }
}

/// Help and version as they are; every mistake as one line with its remedy.
fn usage(error: &clap::Error) -> i32 {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            USAGE
        }
        _ => {
            let text = error.to_string();
            let told: Vec<&str> = text
                .lines()
                .map(str::trim)
                .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"))
                .filter(|l| !l.is_empty())
                .collect();
            let line = told.join(" ");
            say(&format!(
                "{} (see `eyrie-image --help`)",
                line.strip_prefix("error: ").unwrap_or(&line)
            ));
            USAGE
        }
    }
}
