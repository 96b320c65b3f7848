//! `eyrie-image`: checkpoints of programs that use no MPI. Arguments in, exit code out.
//!
//! A supervisor (`run`, `restart`) is the program's parent: the kernel lets it trace its child
//! without privileges, and it is the one who owns the program's frozen twins. The other commands
//! ask it over a socket.

#![allow(unsafe_code)] // signals, waiting for a child

mod args;
mod ask;
mod config;
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
use clap::CommandFactory;
use eyrie_terminal::Failure;
use std::process::ExitCode;

/// How the program is called in its messages.
const NAME: &str = "eyrie-image";

fn main() -> ExitCode {
    eyrie_image::give_large_back();
    // Without it programs with child processes cannot be restarted, and that is told.
    let _ = eyrie_image::pass_on_rights();
    let words: Vec<_> = std::env::args_os().collect();
    let all = Cli::command();
    eyrie_terminal::choose_json(&all, &words);
    let called = eyrie_terminal::called(&all, &words);
    match config::parse(words) {
        Ok(cli) => eyrie_terminal::finish(NAME, dispatch(cli.command)),
        Err(refusal) => ExitCode::from(refusal.tell(NAME, &called) as u8),
    }
}

fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Run(run) => program::run(&run),
        Command::Checkpoint(checkpoint) => ask::checkpoint(&checkpoint),
        Command::Restart(restart) => restart::restart(&restart),
        Command::List(list) => listing::list(&list),
        Command::Completions(args) => args.print(NAME, &mut Cli::command()),
        Command::Manual(args) => args.write(Cli::command()),
    }
}

fn say(text: &str) {
    eyrie_terminal::say(NAME, text);
}
