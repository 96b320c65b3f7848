//! Wrong arguments, told as one line with its remedy.

use crate::say;
use clap::error::ErrorKind;

/// Exit code of wrong arguments.
pub const USAGE: i32 = 2;

/// Help and version as they are; every mistake as one line. Returns the exit code.
pub fn usage(program: &str, error: &clap::Error) -> i32 {
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
            say(program, &line(program, &error.to_string()));
            USAGE
        }
    }
}

/// The parser's words up to its account of the usage.
fn line(program: &str, text: &str) -> String {
    let told: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"))
        .filter(|l| !l.is_empty())
        .collect();
    let told = told.join(" ");
    format!("{} (see `{program} --help`)", told.strip_prefix("error: ").unwrap_or(&told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    fn refusal(words: &[&str]) -> clap::Error {
        let ranks = Arg::new("n").short('n').value_parser(clap::value_parser!(u32));
        Command::new("prog").arg(ranks).try_get_matches_from(words).unwrap_err()
    }

    #[test]
    fn a_mistake_is_one_line_with_its_remedy() {
        let error = refusal(&["prog", "-n", "x"]);
        let told = line("prog", &error.to_string());
        assert!(!told.contains('\n') && !told.contains("Usage") && !told.starts_with("error"));
        assert!(told.contains("invalid value 'x'") && told.ends_with("(see `prog --help`)"));
        assert_eq!(usage("prog", &error), USAGE);
    }

    #[test]
    fn asking_for_help_is_no_mistake() {
        assert_eq!(usage("prog", &refusal(&["prog", "--help"])), 0);
    }
}
