//! Wrong arguments, told as one line with its remedy.

use crate::exit::{DONE, USAGE};
use crate::say_error;
use crate::standard_output::{tell_refused, write_out};
use clap::Command;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::io::IsTerminal;

/// The command that words begin with: `eyrie run`, `eyrie vault ls`.
pub fn called(all: &Command, words: &[OsString]) -> String {
    let (mut at, mut name) = (all, all.get_name().to_string());
    for word in words.iter().skip(1) {
        let Some(sub) = word.to_str().and_then(|word| at.find_subcommand(word)) else { break };
        at = sub;
        name.push(' ');
        name.push_str(sub.get_name());
    }
    name
}

/// Help and version as they are; every mistake as one line, with the help of the command that was
/// `called`. Returns the exit code.
pub fn usage(program: &str, called: &str, error: &clap::Error) -> i32 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => shown(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            USAGE
        }
        _ => {
            say_error(program, &line(program, called, &error.to_string()), None);
            USAGE
        }
    }
}

/// Help as it is on standard output; coloured in a terminal, where nothing can be lost.
fn shown(error: &clap::Error) -> i32 {
    if std::io::stdout().is_terminal() {
        let _ = error.print();
        return DONE;
    }
    let written = write_out(error.render().to_string().as_bytes());
    written.map_or_else(|error| tell_refused(&error), |()| DONE)
}

/// The parser's words up to its account of the usage, of which the command is kept. That a word may
/// stand behind `--` is no advice where it is a mistake.
fn line(program: &str, called: &str, text: &str) -> String {
    let told = text
        .lines()
        .map(str::trim)
        .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"))
        .filter(|l| !(l.is_empty() || l.starts_with("tip:") && l.contains("as a value, use")));
    let told = told.fold(String::new(), |all, line| match line.strip_prefix("tip: ") {
        Some(tip) => format!("{all}; {tip}"),
        None if all.is_empty() => line.into(),
        None => format!("{all} {line}"),
    });
    let usage = text.lines().find_map(|l| l.trim().strip_prefix("Usage: "));
    let is_name = |w: &&str| w.starts_with(|c: char| c.is_ascii_lowercase());
    let command: Vec<&str> =
        usage.unwrap_or(called).split_whitespace().take_while(is_name).collect();
    // Called by another name it has its own help.
    let command = match command.first() {
        Some(first) if *first == program => command.join(" "),
        _ => program.into(),
    };
    format!("{} (see `{command} --help`)", told.strip_prefix("error: ").unwrap_or(&told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn refusal(words: &[&str]) -> clap::Error {
        let ranks = Arg::new("n").short('n').value_parser(clap::value_parser!(u32));
        Command::new("prog").arg(ranks).try_get_matches_from(words).unwrap_err()
    }

    #[test]
    fn a_mistake_is_one_line_with_its_remedy() {
        let error = refusal(&["prog", "-n", "x"]);
        let told = line("prog", "prog", &error.to_string());
        assert!(!told.contains('\n') && !told.contains("Usage") && !told.starts_with("error"));
        assert!(told.contains("invalid value 'x'") && told.ends_with("(see `prog --help`)"));
        let told = line("prog", "prog run", &error.to_string());
        assert!(told.ends_with("(see `prog run --help`)"), "{told}");
        let told = line("mpiexec", "prog run", &error.to_string());
        assert!(told.ends_with("(see `mpiexec --help`)"), "{told}");
        assert_eq!(usage("prog", "prog", &error), USAGE);
    }

    #[test]
    fn an_unknown_option_is_told_with_what_is_like_it_and_with_the_commands_own_help() {
        let run = || {
            let all = [Arg::new("name").long("name"), Arg::new("word").num_args(0..)];
            Command::new("prog").subcommand(Command::new("run").args(all))
        };
        let told = |program, word| {
            let error = run().try_get_matches_from(["prog", "run", word]).unwrap_err();
            line(program, "prog run", &error.to_string())
        };
        let like = told("prog", "--nam");
        assert!(like.starts_with("unexpected argument '--nam' found; "), "{like}");
        assert!(like.contains("'--name'") && !like.contains("-- --"), "{like}");
        let unlike = "unexpected argument '--zz' found (see `prog run --help`)";
        assert_eq!(told("prog", "--zz"), unlike);
        assert!(told("mpiexec", "--zz").ends_with("(see `mpiexec --help`)"));
    }

    #[test]
    fn asking_for_help_is_no_mistake() {
        assert_eq!(usage("prog", "prog", &refusal(&["prog", "--help"])), 0);
    }

    #[test]
    fn a_command_is_named_by_the_words_that_lead_to_it() {
        let all = Command::new("prog")
            .subcommand(Command::new("vault").subcommand(Command::new("ls").arg(Arg::new("x"))));
        let named =
            |words: &[&str]| called(&all, &words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named(&["/bin/prog", "vault", "ls", "vault"]), "prog vault ls");
        assert_eq!(
            (named(&["prog"]), named(&["prog", "-x", "vault"])),
            ("prog".into(), "prog".into())
        );
    }
}
