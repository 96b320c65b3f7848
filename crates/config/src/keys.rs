//! Which keys a command has: its long options; and what a key's value is on the command line.

use crate::file::{Position, Value};
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// Options that commands read from variables by themselves.
const VARIABLES: [(&str, &str); 3] =
    [("rsh", "EYRIE_RSH"), ("own-pids", "EYRIE_OWN_PIDS"), ("local", "EYRIE_LOCAL")];

/// The command of this name, and that of its subcommand.
pub fn command<'a>(all: &'a Command, path: &[String]) -> Option<&'a Command> {
    path.iter().try_fold(all, |command, name| {
        command.get_subcommands().find(|c| c.get_name() == name && !c.is_hide_set())
    })
}

/// The options of a command that a file may set.
pub fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        arg.get_long().is_some_and(|long| !["help", "version"].contains(&long))
            && !arg.is_hide_set()
    })
}

pub fn option<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    options(command).find(|arg| arg.get_long() == Some(key))
}

/// The variable that goes before files, if it is set.
pub fn variable(arg: &Arg) -> Option<(String, String)> {
    let by_hand = VARIABLES.iter().find(|(long, _)| arg.get_long() == Some(long));
    let name = match by_hand {
        Some((_, name)) => (*name).to_string(),
        None => arg.get_env()?.to_str()?.to_string(),
    };
    let value = std::env::var(&name).ok();
    // An empty one counts where the parser reads it.
    value.filter(|value| by_hand.is_none() || !value.is_empty()).map(|value| (name, value))
}

/// The words of the command line that say what an entry says.
pub fn words(arg: &Arg, value: &Value) -> Result<Vec<OsString>, String> {
    let long = arg.get_long().unwrap_or_default();
    let with = |word: &String| OsString::from(format!("--{long}={word}"));
    let alone = || vec![OsString::from(format!("--{long}"))];
    let hint = || {
        let names = arg.get_value_names().unwrap_or_default();
        let name = names.first().map_or_else(|| long.to_uppercase(), |name| name.to_string());
        format!("it takes a value ({name})")
    };
    // A value that may be left out.
    let bare = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    let flag = !arg.get_action().takes_values();
    match value {
        Value::Flag(true) if flag || bare => Ok(alone()),
        Value::Flag(false) if flag || bare => Ok(Vec::new()),
        Value::Flag(_) => Err(format!("{}, and not true or false", hint())),
        _ if flag => Err(String::from("write true or false")),
        Value::Word(word) => Ok(vec![with(word)]),
        Value::List(words) if matches!(arg.get_action(), ArgAction::Append) => {
            Ok(words.iter().map(with).collect())
        }
        Value::List(_) => Err(format!("{}, and not a list of them", hint())),
    }
}

/// The name that is most like this one, if one is.
pub fn like<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.replace('_', "-");
    let most = (name.len() / 3).clamp(1, 3);
    let near = all.map(|other| (distance(other, &name), other)).min()?;
    (near.0 <= most).then_some(near.1)
}

/// Letters to change, to add and to remove.
pub fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let cost = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// The default that help tells of: that of the parser, or what is written there.
pub fn built_in(arg: &Arg) -> Option<String> {
    if !arg.get_action().takes_values() {
        return Some(String::from("false"));
    }
    let values = arg.get_default_values();
    if !values.is_empty() {
        let values = values.iter().map(|value| value.to_string_lossy());
        return Some(values.collect::<Vec<_>>().join(", "));
    }
    let help = arg.get_long_help().or_else(|| arg.get_help())?.to_string();
    let (_, rest) = help.rsplit_once("[default: ")?;
    rest.split_once(']').map(|(text, _)| text.replace('\n', " "))
}

/// A place that a message can name.
pub fn at(place: &Position, key: &str, why: &str) -> anyhow::Error {
    anyhow::anyhow!("{place}: {key}: {why}")
}
