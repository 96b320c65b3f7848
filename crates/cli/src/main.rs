//! `eyrie`: arguments in, exit code out. The work is done in the modules and in the node daemon.

#![allow(unsafe_code)] // signals, terminal

mod batch;
mod client;
mod command_line;
mod commands;
mod config;
mod file_system;
mod front;
mod hosts;
mod jobs;
mod launch;
mod messages;
mod options;
mod show;
mod users;

use crate::front::Typed;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(panic = "unwind")]
    abort_in_panics();
    // Without it programs with child processes are refused, and told why.
    let _ = eyrie_image::pass_on_rights();
    let words = std::env::args_os().collect::<Vec<_>>();
    if let Some(done) = command_line::of_rank(&words) {
        return eyrie_terminal::finish("eyrie", done);
    }
    let all = command_line::command();
    let (name, words) = match front::typed(words, &all) {
        (name, Typed::Words(words)) => (name, words),
        (_, Typed::Done(code)) => return ExitCode::from(code as u8),
    };
    eyrie_terminal::choose_json(&all, &words);
    let called = eyrie_terminal::called(&all, &words);
    match command_line::read(all, words) {
        Ok(command) => eyrie_terminal::finish(name, command.carry_out()),
        Err(refusal) => ExitCode::from(refusal.tell(name, &called) as u8),
    }
}

/// For tests all is compiled so that panics unwind; here they end the process all the same.
#[cfg(panic = "unwind")]
fn abort_in_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}
