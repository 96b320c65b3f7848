//! `-h` fits a screen: of each option what it is in a clause, of the rest the examples. `--help`
//! has all of it, and so have manual pages and the reference.

use clap::{Arg, Command};

/// Columns that a clause has beside its option.
const ROOM: usize = 48;
/// Lines of examples, with their heading.
const EXAMPLES: usize = 4;

/// A command, and those below it.
pub fn shortened(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_string()).collect();
    let command = names.into_iter().fold(command, |all, name| all.mut_subcommand(name, shortened));
    let after = command.get_after_help().map(|text| text.to_string());
    let command = command.mut_args(short);
    match after {
        Some(text) if command.get_after_long_help().is_none() && examples(&text) != text => {
            command.after_help(examples(&text)).after_long_help(text)
        }
        _ => command,
    }
}

fn short(arg: Arg) -> Arg {
    let Some(text) = arg.get_help().map(|text| text.to_string()) else { return arg };
    let clause = clause(&text).to_string();
    match arg.get_long_help() {
        None if clause != text => arg.help(clause).long_help(text),
        Some(_) => arg.help(clause),
        None => arg,
    }
}

/// As much of a text from its beginning as there is room for and makes sense alone.
fn clause(text: &str) -> &str {
    let parts = [". ", ": ", "; ", ", ", " (", " [", "\n"];
    let ends = parts.iter().flat_map(|part| text.match_indices(part).map(|(at, _)| at));
    let mut ends: Vec<usize> = ends.chain([text.len()]).filter(|at| *at > 0).collect();
    ends.sort_unstable();
    let fits = ends.iter().rev().find(|at| **at <= ROOM).or(ends.first());
    fits.and_then(|at| text.get(..*at)).unwrap_or(text)
}

/// The first examples.
fn examples(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or(text);
    first.lines().take(EXAMPLES).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;

    #[test]
    fn a_clause_is_what_makes_sense_alone() {
        for (text, want) in [
            ("As JSON", "As JSON"),
            ("Number of ranks [default: 1; in an allocation more]", "Number of ranks"),
            (
                "Run on these machines, a node on each: a list",
                "Run on these machines, a node on each",
            ),
            (
                "Room for N ranks (spawned), and for names of ports that are long",
                "Room for N ranks (spawned)",
            ),
            ("The key of the job, or of others", "The key of the job, or of others"),
        ] {
            assert_eq!(clause(text), want);
        }
    }

    /// All commands, each with its help.
    fn all() -> Vec<(String, Command)> {
        fn below(name: &str, command: &Command, to: &mut Vec<(String, Command)>) {
            to.push((name.to_string(), command.clone()));
            for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
                below(&format!("{name} {}", inner.get_name()), inner, to);
            }
        }
        let mut all = Vec::new();
        below("eyrie", &command_line::command(), &mut all);
        all
    }

    #[test]
    fn the_short_help_of_each_command_is_a_screen() {
        for (name, mut command) in all() {
            // That lists the commands.
            let most = if name == "eyrie" { 96 } else { 48 };
            let text = command.render_help().to_string();
            let lines: usize = text.lines().map(|l| l.chars().count().div_ceil(80).max(1)).sum();
            assert!(lines <= most, "{name}: {lines} lines\n{text}");
        }
    }

    #[test]
    fn each_command_has_an_example_and_loses_nothing_of_its_long_help() {
        for (name, mut command) in all() {
            let (short, long) = (command.render_help(), command.render_long_help());
            assert!(long.to_string().contains("Example"), "{name}: {long}");
            assert!(short.to_string().contains("Example"), "{name}: {short}");
        }
        let long = |name: &str| {
            let mut all = command_line::command();
            all.find_subcommand_mut(name).unwrap().render_long_help().to_string()
        };
        assert!(long("run").contains("docs/reference/exit-codes.md"));
        assert!(long("run").contains("reached by other clusters at this address"));
    }
}
