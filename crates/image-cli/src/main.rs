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
mod orphans;
mod program;
mod protocol;
mod restart;
mod serve;
mod signals;
mod supervise;
mod take;

use args::{Cli, Command};
use clap::Parser;
use eyrie_terminal::Failure;
use std::process::ExitCode;

/// How the program is called in its messages.
const NAME: &str = "eyrie-image";

fn main() -> ExitCode {
    eyrie_image::give_large_back();
    // Without it programs with child processes cannot be restarted, and that is told.
    let _ = eyrie_image::pass_on_rights();
    match Cli::try_parse() {
        Ok(cli) => eyrie_terminal::finish(NAME, dispatch(cli.command)),
        Err(error) => ExitCode::from(eyrie_terminal::usage(NAME, &error) as u8),
    }
}

fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Run(run) => program::run(&run),
        Command::Checkpoint(checkpoint) => ask::checkpoint(&checkpoint),
        Command::Restart(restart) => restart::restart(&restart),
        Command::List(list) => listing::list(&list),
    }
}

fn say(text: &str) {
    eyrie_terminal::say(NAME, text);
}
