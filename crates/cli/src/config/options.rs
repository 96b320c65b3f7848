//! Which keys there are: the long options of each command, in the table of that command. Those of
//! `eyrie-image` are in tables of its own, which it checks.

use crate::config::timing;
use anyhow::bail;
use clap::{Arg, Command};
use eyrie_config::file::{Entry, File, Value};
pub use eyrie_config::keys::{built_in, command, like, option, options, variable, words};
use eyrie_config::{FOLDERS, IMAGE};

/// Keys that stand in no table.
pub const TOP: [&str; 2] = FOLDERS;

/// Other names of `eyrie run`.
const FRONTS: [&str; 2] = ["mpiexec", "mpirun"];

/// Commands that take what is said of `eyrie run` where they have the same option.
const LIKE_RUN: [&str; 2] = ["join", "verify"];
/// Others take of that what says nothing of the job itself, only how it is reached and shown.
const AFTER_RUN: [&str; 5] = ["restart", "resume", "grow", "standby", "doctor"];
const OF_THE_WAY: [&str; 11] = [
    "rsh",
    "prefix",
    "address",
    "join-limit",
    "oversubscribe",
    "tls",
    "label",
    "quiet",
    "verbose",
    "ignore-feature",
    "local",
];

/// Whether what is said of one command (`table`) holds for another one's option, too.
pub fn is_shared(table: &[String], path: &[String], key: &str) -> bool {
    let ([from], [to]) = (table, path) else { return false };
    from == "run"
        && (LIKE_RUN.contains(&to.as_str())
            || (AFTER_RUN.contains(&to.as_str()) && OF_THE_WAY.contains(&key)))
}

/// Refuses keys and tables that there are not, and values that no such option takes.
pub fn check(all: &Command, file: &File) -> anyhow::Result<()> {
    timing::check(file)?;
    let here = |table: &[String]| {
        table.first().is_none_or(|name| name != IMAGE) && !timing::is_table(table)
    };
    for (table, place) in file.tables.iter().filter(|t| here(&t.0)) {
        let front = table.first().is_some_and(|name| FRONTS.contains(&name.as_str()));
        if front || command(all, table).is_none() {
            bail!("{place}: {}", no_table(all, table));
        }
    }
    for entry in file.entries.iter().filter(|e| here(&e.table)) {
        let Entry { table, key, value, place } = entry;
        if table.is_empty() {
            match value {
                _ if !TOP.contains(&key.as_str()) => bail!("{place}: {}", no_key(all, entry)),
                Value::Word(_) => continue,
                _ => bail!("{place}: {key}: write a folder in quotation marks"),
            }
        }
        let found = command(all, table).and_then(|command| option(command, key));
        let Some(arg) = found else { bail!("{place}: {}", no_key(all, entry)) };
        if let Err(why) = words(arg, value) {
            bail!("{place}: {key}: {why}");
        }
    }
    Ok(())
}

fn no_table(all: &Command, table: &[String]) -> String {
    let (name, around) = match table.split_last() {
        Some((name, around)) => (name.as_str(), around),
        None => ("", &[][..]),
    };
    let shown = table.join(".");
    if FRONTS.contains(&name) {
        return format!("[{name}] has no options of its own: write them under [run]");
    }
    let names = command(all, around).into_iter().flat_map(Command::get_subcommands);
    let names = names.filter(|c| !c.is_hide_set()).map(Command::get_name);
    let others = around.is_empty().then_some(timing::TABLE);
    match like(name, names.chain(others)) {
        Some(like) => {
            let like: Vec<&str> = around.iter().map(String::as_str).chain([like]).collect();
            format!("[{shown}]: there is no such command; is it [{}]?", like.join("."))
        }
        None => format!("[{shown}]: there is no such command (see eyrie --help)"),
    }
}

fn no_key(all: &Command, entry: &Entry) -> String {
    let Entry { table, key, .. } = entry;
    let run = [String::from("run")];
    let in_run = command(all, &run).and_then(|command| option(command, key)).is_some();
    if table.is_empty() {
        return match like(key, TOP.into_iter()) {
            _ if in_run => format!("{key} stands in no table: write it under [run]"),
            Some(like) => format!("{key}: there is no such key; is it {like}?"),
            None => format!("{key}: there is no such key outside of a command's table"),
        };
    }
    let shown = table.join(".");
    let names = command(all, table).into_iter().flat_map(options).filter_map(Arg::get_long);
    match like(key, names) {
        Some(like) => format!("[{shown}] has no option {key}; is it {like}?"),
        None if in_run => format!("[{shown}] has no option {key}; [run] has"),
        None => format!("[{shown}] has no option {key} (see eyrie {} --help)", table.join(" ")),
    }
}
