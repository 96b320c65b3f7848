//! `--json`: what a command says is for programs. Standard output has the result, standard error
//! one object a line: `{"error", "remedy"}` or `{"note"}`.

use clap::Command;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, Ordering};

static JSON: AtomicBool = AtomicBool::new(false);

/// Whether `--json` was given.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Finds out whether it is: also if something else on the command line is wrong.
pub fn choose_json(command: &Command, words: &[OsString]) {
    JSON.store(asks(command, words), Ordering::Relaxed);
}

fn asks(command: &Command, words: &[OsString]) -> bool {
    let takes = |command: &Command| command.get_arguments().any(|a| a.get_long() == Some("json"));
    let (mut at, mut takes_json) = (command, takes(command));
    for word in words.iter().skip(1).take_while(|word| *word != OsStr::new("--")) {
        if takes_json && word == OsStr::new("--json") {
            return true;
        }
        if let Some(sub) = word.to_str().and_then(|word| at.find_subcommand(word)) {
            at = sub;
            takes_json |= takes(at);
        }
    }
    false
}

/// Prints a result, over several lines.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    crate::print(&(serde_json::to_string_pretty(value)? + "\n"));
    Ok(())
}

/// Prints one of several results, each a line.
pub fn print_line(value: &impl Serialize) -> anyhow::Result<()> {
    crate::print(&(serde_json::to_string(value)? + "\n"));
    Ok(())
}

/// An error as it is told to programs.
pub(crate) fn error(text: &str, remedy: Option<&str>) -> String {
    let (what, then) = match remedy {
        Some(then) => (text, Some(then)),
        None => parted(text),
    };
    serde_json::json!({ "error": what, "remedy": then }).to_string()
}

pub(crate) fn note(text: &str) -> String {
    serde_json::json!({ "note": text }).to_string()
}

/// How sentences begin that say what to do.
const ADVICE: [&str; 16] = [
    "eyrie ", "`eyrie ", "see ", "set ", "give ", "use ", "leave ", "try ", "ask ", "name ",
    "write ", "install ", "start ", "run ", "add ", "sudo ",
];

/// What is wrong, and what to do if the text ends with that: in brackets, or behind a colon or a
/// semicolon.
fn parted(text: &str) -> (&str, Option<&str>) {
    let advises = |part: &str| ADVICE.iter().any(|start| part.starts_with(start));
    if let Some((what, then)) = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("))
        && advises(then)
    {
        return (what, Some(then));
    }
    for mark in ["; ", ": "] {
        if let Some((what, then)) = text.split_once(mark).filter(|(_, then)| advises(then)) {
            return (what, Some(then));
        }
        if let Some((what, then)) = text.rsplit_once(mark).filter(|(_, then)| advises(then)) {
            return (what, Some(then));
        }
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    fn asked(words: &[&str]) -> bool {
        let json = || Arg::new("json").long("json").action(ArgAction::SetTrue);
        let command = Command::new("p")
            .subcommand(Command::new("ps").arg(json()))
            .subcommand(Command::new("do").arg(json()).subcommand(Command::new("it")))
            .subcommand(Command::new("run").arg(Arg::new("words").num_args(0..)));
        asks(&command, &words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn json_is_asked_of_commands_that_have_it() {
        assert!(asked(&["p", "ps", "--json"]) && asked(&["p", "ps", "--wrong", "--json"]));
        assert!(asked(&["p", "do", "it", "--json"]) && asked(&["p", "do", "--json", "it"]));
        assert!(!asked(&["p", "ps"]) && !asked(&["p", "--json", "ps"]));
        assert!(!asked(&["p", "run", "prog", "--json"]) && !asked(&["p", "ps", "--", "--json"]));
    }

    #[test]
    fn what_to_do_is_told_apart() {
        let parts = |text| parted(text);
        assert_eq!(parts("no job 'x' (see `eyrie ps`)"), ("no job 'x'", Some("see `eyrie ps`")));
        assert_eq!(
            parts("job a is saved: eyrie abort a gives that up"),
            ("job a is saved", Some("eyrie abort a gives that up"))
        );
        assert_eq!(parts("a: b; use c: d"), ("a: b", Some("use c: d")));
        for whole in ["cannot reach job a: no such file", "x (2)", "", "a; b"] {
            assert_eq!(parts(whole), (whole, None));
        }
        let text = error("a \"b\"", Some("c"));
        assert_eq!(text, r#"{"error":"a \"b\"","remedy":"c"}"#);
        assert_eq!(error("a", None), r#"{"error":"a","remedy":null}"#);
    }
}
