//! Configuration files: defaults of options, in the tables `[eyrie-image.run]`,
//! `[eyrie-image.restart]` and so on; and `home`, which holds for both commands.
//!
//! Kept true: as in `eyrie` (its page is docs/reference/configuration.md): what is typed goes
//! before files, the user's before the site's; a value that does not go with what was typed is left
//! out without a word; mistakes end the command. Tables of `eyrie` are for that to check.

use crate::args::Cli;
use crate::home;
use anyhow::bail;
use clap::{Command, CommandFactory, FromArgMatches};
use eyrie_config::IMAGE;
use eyrie_config::file::{Entry, File, Value, first_of_each, top};
use eyrie_config::help::{Refusal, refuse_mistakes};
use eyrie_config::keys;
use eyrie_config::places::{absolute, candidates, read_all};
use eyrie_config::typed::Typed;
use eyrie_terminal::{Failure, USAGE};
use std::ffi::OsString;
use std::path::PathBuf;

/// Commands that have no use for files.
const WITHOUT: [&str; 3] = ["completions", "manual", "help"];

/// The command that was asked for, with what files say where nothing else was typed.
pub fn parse(words: Vec<OsString>) -> Result<Cli, Refusal> {
    let all = Cli::command();
    let of_parser = |error: clap::Error| Refusal::Parser(Box::new(error), Vec::new());
    let broken = |error: anyhow::Error| Refusal::Files(Failure::new(USAGE, error));
    let typed = Typed::new(&all, words);
    let alone = all.clone().try_get_matches_from(&typed.words);
    let needless = typed.path.first().is_none_or(|name| WITHOUT.contains(&name.as_str()));
    let files = match read_all(&candidates(), |file| check(&all, file)) {
        Ok(files) => files,
        Err(_) if needless || alone.as_ref().is_err_and(|e| e.exit_code() == 0) => Vec::new(),
        Err(error) => return Err(broken(error)),
    };
    home_of(&files).map_err(broken)?.into_iter().for_each(home::say_home);
    let entries = of_command(&files, &typed.path);
    if entries.is_empty() {
        return alone.and_then(|found| Cli::from_arg_matches(&found)).map_err(of_parser);
    }
    let given = typed.given(&all, &entries, &typed.set(&all));
    refuse_mistakes(&all, &typed, &given, alone)?;
    let used = typed.fitting(&all, given, |_, _| {}).map_err(broken)?;
    let matches = all.try_get_matches_from(typed.with(&used));
    matches.and_then(|found| Cli::from_arg_matches(&found)).map_err(of_parser)
}

/// The command that a table is of.
fn command_of(table: &[String]) -> Option<&[String]> {
    table.split_first().filter(|(first, _)| *first == IMAGE).map(|(_, path)| path)
}

/// Refuses tables and keys of this program that there are not, and values that no option takes.
fn check(all: &Command, file: &File) -> anyhow::Result<()> {
    for (table, place) in &file.tables {
        if command_of(table).is_some_and(|path| keys::command(all, path).is_none()) {
            bail!("{place}: [{}]: there is no such command (see {IMAGE} --help)", table.join("."));
        }
    }
    for Entry { table, key, value, place } in &file.entries {
        let Some(path) = command_of(table) else { continue };
        let shown = table.join(".");
        let Some(command) = keys::command(all, path).filter(|_| !path.is_empty()) else {
            bail!("{place}: {key} stands in no command's table: write it under [{IMAGE}.run]");
        };
        let Some(arg) = keys::option(command, key) else {
            let names = keys::options(command).filter_map(clap::Arg::get_long);
            match keys::like(key, names) {
                Some(like) => bail!("{place}: [{shown}] has no option {key}; is it {like}?"),
                None => bail!("{place}: [{shown}] has no option {key}"),
            }
        };
        keys::words(arg, value).map_err(|why| keys::at(place, key, &why))?;
    }
    Ok(())
}

/// What holds for a command: of each option the entry that goes before others.
fn of_command(files: &[File], path: &[String]) -> Vec<Entry> {
    let all = files.iter().flat_map(|file| &file.entries);
    first_of_each(all.filter(|e| !path.is_empty() && command_of(&e.table) == Some(path)))
}

/// The folder that files say all state lies under.
fn home_of(files: &[File]) -> anyhow::Result<Option<PathBuf>> {
    match top(files, "home") {
        Some(Entry { value: Value::Word(word), place, .. }) => {
            absolute(word, place, "home").map(Some)
        }
        Some(Entry { place, .. }) => {
            Err(keys::at(place, "home", "write a folder in quotation marks"))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn file(text: &str) -> anyhow::Result<File> {
        let file = File::parse(Path::new("f"), text)?;
        check(&Cli::command(), &file).map(|()| file)
    }

    #[test]
    fn tables_of_this_program_are_checked_and_no_others() {
        assert!(file("local = 'x'\n[run]\nno-such = 1\n[eyrie-image.run]\nevery = 60").is_ok());
        for (text, told) in [
            (
                "[eyrie-image.run]\nevry = 60",
                "line 2: [eyrie-image.run] has no option evry; is it every?",
            ),
            ("[eyrie-image.rum]\nkeep = 1", "there is no such command"),
            ("[eyrie-image]\nkeep = 1", "line 2: keep stands in no command's table"),
            ("[eyrie-image.run]\nkeep = true", "line 2: keep: it takes a value"),
        ] {
            let why = file(text).unwrap_err().to_string();
            assert!(why.contains(told), "{why}");
        }
    }

    #[test]
    fn the_first_file_goes_before_others() {
        let files = [
            file("[eyrie-image.run]\nkeep = 5").unwrap(),
            file("home = '/h'\n[eyrie-image.run]\nkeep = 7\nevery = 60").unwrap(),
        ];
        let path = [String::from("run")];
        let found = of_command(&files, &path);
        let values: Vec<String> = found.iter().map(|e| format!("{} {}", e.key, e.value)).collect();
        assert_eq!(values, ["keep 5", "every 60"]);
        assert_eq!(home_of(&files).unwrap(), Some("/h".into()));
        assert!(of_command(&files, &[]).is_empty());
        assert!(home_of(&[file("home = 'h'").unwrap()]).is_err());
    }
}
