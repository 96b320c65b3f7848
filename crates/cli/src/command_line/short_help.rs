//! `-h` fits a screen: of each option what it is in a clause, of the rest the examples. `--help`
//! has all of it, and so have manual pages and the reference.

use clap::{Arg, Command};

/// Columns that a clause has beside its option.
const ROOM: usize = 40;
/// Lines of examples, with their heading.
const EXAMPLES: usize = 4;

/// All commands.
pub fn shortened(command: Command) -> Command {
    below(command, None)
}

/// A command, and those below it; one without examples has those of the command above it.
fn below(command: Command, above: Option<&str>) -> Command {
    let own = command.get_after_help().map(|text| text.to_string());
    let after = own.or(above.map(String::from));
    // What is said of the whole program is not said again of each command.
    let handed = after.as_deref().filter(|_| command.get_name() != crate::messages::NAME);
    let handed = handed.map(examples);
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_string()).collect();
    let command = names.into_iter().fold(command, |all, name| {
        all.mut_subcommand(name, |inner| below(inner, handed.as_deref()))
    });
    // An option and its clause share a line, whatever the width of the terminal.
    let command = command.mut_args(short).term_width(0);
    match after {
        Some(text) => command.after_help(examples(&text)).after_long_help(text),
        None => command,
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
    let told = [" [default", " [env"].iter().filter_map(|part| text.find(part)).min();
    let text = told.and_then(|at| text.get(..at)).unwrap_or(text);
    let closed = |at: &usize| {
        let part = text.get(..*at).unwrap_or("(");
        part.matches('(').count() == part.matches(')').count()
    };
    let upto = |parts: &[&str], end: &[usize]| {
        let ends = parts.iter().flat_map(|part| text.match_indices(part).map(|(at, _)| at));
        let ends = ends.chain(end.iter().copied()).filter(|at| (1..=ROOM).contains(at));
        ends.filter(closed).max()
    };
    let end = upto(&[". ", ": ", "; ", "\n"], &[text.len()]);
    let first = || [", ", " (", ". ", ": ", "; "].iter().filter_map(|part| text.find(part)).min();
    let end = end.or_else(|| upto(&[", ", " ("], &[])).or_else(first);
    end.and_then(|at| text.get(..at)).unwrap_or(text)
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
            ("Begin every output line with [rank]", "Begin every output line with [rank]"),
            (
                "They are not to leave after all (nor: those of others)",
                "They are not to leave after all",
            ),
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
            ("The job: its id, its name, the beginning of its id, or `last`", "The job"),
            (
                "Nodes without ranks, which take those of nodes that are lost; more",
                "Nodes without ranks",
            ),
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
            let most = match name.as_str() {
                "eyrie run" => 34,
                // That lists the commands.
                "eyrie" => 96,
                _ => 56,
            };
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
