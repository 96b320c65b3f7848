//! The reference of a program's options as Markdown, made of what `--help` says: what
//! `docs/reference` has of it is never written by hand.

use clap::{Arg, Command};
use std::fmt::Write as _;

/// Most columns of a line.
const COLUMNS: usize = 118;

/// All commands that are shown, each with its usage, its options under their headings and its
/// examples.
pub fn page(mut command: Command) -> String {
    command = command.term_width(100);
    command.build();
    let name = command.get_name().to_string();
    let mut text = format!("# Options of {name}\n\n");
    let made = format!(
        "This page is made from the code (`scripts/reference`). It says what `{name} COMMAND \
         --help` says."
    );
    put(&mut text, "", &made);
    section(&mut text, &command, &name);
    text
}

fn section(text: &mut String, command: &Command, name: &str) {
    let shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    if command.get_arguments().any(|arg| !is_left_out(arg))
        || command.get_subcommands().count() == 0
    {
        one(text, command, name);
    }
    let mut all: Vec<&Command> = command.get_subcommands().filter(shown).collect();
    all.sort_by_key(|below| below.get_name().to_string());
    for below in all {
        section(text, below, &format!("{name} {}", below.get_name()));
    }
}

/// One command.
fn one(text: &mut String, command: &Command, name: &str) {
    let _ = writeln!(text, "\n## {name}\n");
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        put(text, "", &sentence(&about.to_string()));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_string();
    let _ = writeln!(text, "\n```text\n{usage}\n```");
    let mut headings: Vec<String> = Vec::new();
    let args: Vec<&Arg> = command.get_arguments().filter(|arg| !is_left_out(arg)).collect();
    for arg in &args {
        let heading = heading(arg);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for title in headings {
        let _ = writeln!(text, "\n{title}:\n");
        let mut under: Vec<&&Arg> = args.iter().filter(|arg| heading(arg) == title).collect();
        under.sort_by_key(|arg| arg.get_id().to_string());
        for arg in under {
            let told = match meaning(arg) {
                meaning if meaning.is_empty() => called(arg),
                meaning => format!("{}: {meaning}", called(arg)),
            };
            put(text, "- ", &told);
        }
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let lines = after.to_string();
        let lines: Vec<&str> = lines.trim().lines().map(str::trim_end).collect();
        let _ = writeln!(text, "\n```text\n{}\n```", lines.join("\n"));
    }
}

fn is_left_out(arg: &Arg) -> bool {
    arg.is_hide_set() || ["help", "version"].contains(&arg.get_id().as_str())
}

fn heading(arg: &Arg) -> String {
    match (arg.get_help_heading(), arg.is_positional()) {
        (Some(heading), _) => heading.to_string(),
        (None, true) => "Arguments".into(),
        (None, false) => "Options".into(),
    }
}

/// How it is typed: ``-n N`, `--np N``.
fn called(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default().iter().map(|n| n.as_str());
    let values = names.collect::<Vec<_>>().join(" ");
    let values = match values.is_empty() {
        true => arg.get_id().to_string().to_uppercase(),
        false => values,
    };
    if arg.is_positional() {
        return format!("`{values}`");
    }
    let takes = arg.get_action().takes_values();
    let optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    let value = match (takes, optional) {
        (false, _) => String::new(),
        (true, true) => format!("[={values}]"),
        (true, false) => format!(" {values}"),
    };
    let short = arg.get_short().map(|c| format!("`-{c}{value}`"));
    let long = arg.get_long().map(|long| format!("`--{long}{value}`"));
    let others = arg.get_visible_aliases().unwrap_or_default();
    let others = others.into_iter().map(|other| format!("`--{other}{value}`"));
    short.into_iter().chain(long).chain(others).collect::<Vec<_>>().join(", ")
}

/// What it means, its values, default and variable.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(|h| h.to_string()).unwrap_or_default();
    let mut text = sentence(&help);
    // A flag's two values are said by typing it or not.
    let takes = arg.get_action().takes_values();
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| takes && !value.is_hide_set()).collect();
    if !values.is_empty() {
        let told = values.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        });
        let _ = write!(text, " Values: {}.", told.collect::<Vec<_>>().join(", "));
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = defaults.collect::<Vec<_>>().join(" ");
    if takes && !default.is_empty() && !arg.is_hide_default_value_set() {
        let _ = write!(text, " Default: `{default}`.");
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " Variable: `{}`.", variable.to_string_lossy());
    }
    text
}

/// The text as one line that ends with a full stop, with what Markdown would take for its own
/// marked.
fn sentence(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    let mut code = false;
    for c in words.chars() {
        code ^= c == '`';
        if !code && ['<', '*', '[', '\\'].contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    if !out.is_empty() && !out.ends_with(['.', ':', '?']) {
        out.push('.');
    }
    out
}

/// Puts a paragraph, or an item of a list, in lines that are not too long.
fn put(text: &mut String, mark: &str, words: &str) {
    let indent = " ".repeat(mark.len());
    let mut line = mark.to_string();
    for word in words.split(' ') {
        if line.len() > indent.len() && line.trim() != mark.trim() && fits_not(&line, word) {
            let _ = writeln!(text, "{}", line.trim_end());
            line.clone_from(&indent);
        }
        line.push_str(word);
        line.push(' ');
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

fn fits_not(line: &str, word: &str) -> bool {
    line.chars().count() + word.chars().count() > COLUMNS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let ranks = Arg::new("np").short('n').long("np").value_name("N").default_value("1");
        let hidden = Arg::new("secret").long("secret").hide(true);
        let run = Command::new("run")
            .about("Run a program")
            .arg(ranks.help("Number of <ranks>, as in `a[0]`"))
            .arg(hidden)
            .arg(Arg::new("program").value_name("PROGRAM").required(true).help("What to run"));
        Command::new("prog").subcommand(run).subcommand(Command::new("__inner").hide(true))
    }

    #[test]
    fn what_is_shown_is_told_and_what_is_hidden_is_not() {
        let text = page(command());
        assert!(text.starts_with("# Options of prog\n"), "{text}");
        assert!(text.contains("\n## prog run\n\nRun a program.\n"), "{text}");
        let told = "- `-n N`, `--np N`: Number of \\<ranks>, as in `a[0]`. Default: `1`.\n";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("\nArguments:\n\n- `PROGRAM`: What to run.\n"), "{text}");
        assert!(!text.contains("secret") && !text.contains("__inner"), "{text}");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let mut text = String::new();
        put(&mut text, "- ", &"word ".repeat(60));
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.len() <= COLUMNS));
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
    }
}
