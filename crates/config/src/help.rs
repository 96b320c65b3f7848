//! What is told instead of carrying out a command: its help, with the defaults of files, or what is
//! wrong.

use crate::typed::{Given, Typed};
use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use eyrie_terminal::Failure;

/// Why there is no command to be carried out.
pub enum Refusal {
    /// Help, or a mistake in what was typed.
    Parser(Box<clap::Error>, Vec<Given>),
    /// A mistake in a file.
    Files(Failure),
}

impl Refusal {
    /// Tells it of the command that was `called`; returns the exit code.
    pub fn tell(self, name: &str, called: &str) -> i32 {
        match self {
            Refusal::Files(failure) => failure.end(name),
            Refusal::Parser(error, given) => {
                let code = eyrie_terminal::usage(name, called, &error);
                if error.kind() == ErrorKind::DisplayHelp && !given.is_empty() {
                    eyrie_terminal::print(&section(name, &given));
                }
                code
            }
        }
    }
}

/// Refuses what the parser found wrong in the words alone, help included, unless it may be that
/// only the values of files are missing.
///
/// # Errors
/// What is to be told instead.
pub fn refuse_mistakes(
    all: &Command,
    typed: &Typed,
    given: &[Given],
    alone: Result<ArgMatches, clap::Error>,
) -> Result<(), Refusal> {
    let told = match alone {
        Ok(_) => return Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::MissingRequiredArgument => return Ok(()),
            ErrorKind::DisplayHelp => help(all, typed, given).unwrap_or(error),
            _ => error,
        },
    };
    Err(Refusal::Parser(Box::new(told), given.to_vec()))
}

/// What help adds: defaults that are others than it tells.
fn section(name: &str, given: &[Given]) -> String {
    let mut text = format!("\nFrom configuration files{}:\n", see(name));
    for Given { key, value, place, .. } in given {
        text.push_str(&format!("  --{key}: {value} ({place})\n"));
    }
    text
}

/// How to see more of them; who is no name of `eyrie` has no command for that.
fn see(name: &str) -> &'static str {
    if name == crate::IMAGE { "" } else { " (see eyrie config)" }
}

/// Help, with the defaults of files in the place of those that are built in.
fn help(all: &Command, typed: &Typed, given: &[Given]) -> Option<clap::Error> {
    let changed = with_defaults(all.clone(), &typed.path, given);
    changed.try_get_matches_from(&typed.words).err()
}

fn with_defaults(command: Command, path: &[String], given: &[Given]) -> Command {
    if let Some((name, rest)) = path.split_first() {
        return command.mut_subcommand(name, |inner| with_defaults(inner, rest, given));
    }
    command.mut_args(|arg| {
        let long = arg.get_long().map(str::to_string);
        let found = given.iter().find(|g| Some(&g.key) == long.as_ref());
        match found.filter(|_| !arg.get_default_values().is_empty()) {
            Some(given) if arg.get_action().takes_values() => {
                // The process ends when it has shown its help.
                let value: &'static str = Box::leak(given.value.clone().into_boxed_str());
                arg.default_value(value)
            }
            _ => arg,
        }
    })
}
