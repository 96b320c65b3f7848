//! Under which headings `eyrie --help` tells the commands.

use clap::Command;
use std::fmt::Write as _;

/// A heading, and the commands under it.
pub type Group = (&'static str, &'static [&'static str]);

/// As wide as the list is at most.
const COLUMNS: usize = 80;

/// Lines of whole words, of so many columns at most where the words are not longer.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// The list of commands, by their groups.
pub fn grouped(command: Command, groups: &[Group]) -> Command {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let named = |name: &str| command.get_subcommands().find(|c| c.get_name() == name);
    let width = groups.iter().flat_map(|(_, names)| *names).map(|n| n.len()).max().unwrap_or(0);
    for (heading, names) in groups {
        let _ = write!(text, "\n{heading}:\n");
        for name in *names {
            let about = match named(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None if *name == "help" => "Print this, or the help of a command".into(),
                None => continue,
            };
            for (at, line) in wrapped(&about, COLUMNS - width - 4).iter().enumerate() {
                let name = if at == 0 { *name } else { "" };
                let _ = writeln!(text, "  {name:width$}  {line}");
            }
        }
    }
    command.help_template(text + "\nOptions:\n{options}{after-help}")
}
