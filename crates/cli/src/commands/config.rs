//! `eyrie config`: what holds, and which file says so.

use crate::config::files::Files;
use crate::config::{options, timing};
use crate::messages::say;
use crate::show::tables::table;
use crate::show::text::cut;
use anyhow::{anyhow, bail};
use clap::{Args, Command};
use eyrie_config::file::Entry;
use eyrie_config::places::{Candidate, candidates};
use eyrie_protocol::timing::{SETTINGS, Setting, seconds};
use eyrie_state::home;
use eyrie_state::local;
use eyrie_terminal::{Failure, USAGE, print, print_json};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie config                        what files and variables say\n  \
    eyrie config run                    all options of eyrie run, with what holds\n  \
    eyrie config run.ckpt-every\n  \
    eyrie config --json | jq '.values[] | select(.source == \"file\")'\n\n\
    Defaults of all options can be set in /etc/eyrie/config.toml (for a site) and in\n\
    ~/.config/eyrie/config.toml (for a user; $XDG_CONFIG_HOME), or in the one file that\n\
    EYRIE_CONFIG names. A table is a command, a key one of its long options:\n\n  \
    home = \"/scratch/me/eyrie\"           # EYRIE_HOME\n  \
    local = \"/local\"                     # EYRIE_LOCAL\n\n  \
    [timing]                            # durations of jobs (eyrie config timing)\n  \
    silence-most = 60\n\n  \
    [run]\n  \
    ckpt-every = 30\n  \
    tls = true\n\n\
    What is typed goes before an option's variable, that before the user's file, that before the\n\
    site's. `--label=false` switches off for once what a file switches on; EYRIE_CONFIG=/dev/null\n\
    is no file. A value that its option does not take is told, and the exit code is 2.")]
pub struct Config {
    /// A key (run.ckpt-every, home), or a command, of which all are shown
    #[arg(value_name = "KEY", conflicts_with = "all")]
    pub key: Option<String>,
    /// All options of all commands, also those that nobody has set
    #[arg(long)]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Most characters of a value in a table.
const MOST: usize = 48;

/// What holds of one key.
struct Row {
    key: String,
    value: Option<String>,
    source: Source,
}

enum Source {
    File(PathBuf, usize),
    Variable(String),
    BuiltIn,
}

impl Source {
    fn of(entry: &Entry) -> Source {
        Source::File(entry.place.file.to_path_buf(), entry.place.line)
    }

    fn text(&self) -> String {
        match self {
            Source::File(path, line) => format!("{}, line {line}", path.display()),
            Source::Variable(name) => format!("${name}"),
            Source::BuiltIn => String::from("built in"),
        }
    }
}

/// `all`: all commands with their options.
pub fn config(args: &Config, all: &Command) -> Result<i32, Failure> {
    let usage = |error: anyhow::Error| Failure::new(USAGE, error);
    let files = Files::load(all).map_err(usage)?;
    let wrong = files.refusals(all);
    wrong.iter().for_each(|error| say(&format!("{error:#}")));
    let code = if wrong.is_empty() { 0 } else { USAGE };
    if let Some(name) = &args.key {
        let (rows, is_one) = named(all, &files, name).map_err(usage)?;
        match (args.json, is_one) {
            (true, true) => print_json(&rows.iter().map(as_json).next().unwrap_or_default())?,
            (true, false) => print_json(&json!({ "values": as_jsons(&rows) }))?,
            (false, true) => {
                let values = rows.iter().filter_map(|row| row.value.as_ref());
                values.for_each(|value| print(&format!("{value}\n")));
            }
            (false, false) => print(&as_text(&rows)),
        }
        return Ok(code);
    }
    let mut rows = folders(&files).map_err(usage)?;
    rows.extend(durations(&files, args.all));
    let mut commands = Vec::new();
    collect(all, &mut Vec::new(), &mut commands);
    for path in &commands {
        rows.extend(of_command(all, &files, path, args.all));
    }
    if args.json {
        let files: Vec<_> = candidates().iter().map(file_json).collect();
        print_json(&json!({ "files": files, "values": as_jsons(&rows) }))?;
        return Ok(code);
    }
    print(&as_text(&rows));
    let list: Vec<Vec<String>> = candidates().iter().map(file_row).collect();
    print(&format!("\nFiles, those first that go before others:\n{}", table(&list)));
    Ok(code)
}

fn file_row(file: &Candidate) -> Vec<String> {
    let there = if file.path.exists() { "" } else { "not there" };
    vec![format!("  {}", file.path.display()), file.whose.into(), there.into()]
}

fn file_json(file: &Candidate) -> serde_json::Value {
    json!({ "path": file.path, "whose": file.whose, "there": file.path.exists() })
}

fn as_text(rows: &[Row]) -> String {
    let mut cells = vec![["KEY", "VALUE", "SOURCE"].map(String::from).to_vec()];
    cells.extend(rows.iter().map(|row| {
        let value = row.value.as_deref().unwrap_or("-");
        vec![row.key.clone(), cut(value, MOST), row.source.text()]
    }));
    table(&cells)
}

fn as_jsons(rows: &[Row]) -> Vec<serde_json::Value> {
    rows.iter().map(as_json).collect()
}

fn as_json(row: &Row) -> serde_json::Value {
    let (file, line, variable) = match &row.source {
        Source::File(path, line) => (Some(path), Some(line), None),
        Source::Variable(name) => (None, None, Some(name)),
        Source::BuiltIn => (None, None, None),
    };
    let source = match &row.source {
        Source::File(..) => "file",
        Source::Variable(_) => "environment",
        Source::BuiltIn => "built in",
    };
    json!({
        "key": row.key, "value": row.value, "source": source, "file": file, "line": line,
        "variable": variable,
    })
}

/// All commands that have options, each by its path.
fn collect(command: &Command, path: &mut Vec<String>, to: &mut Vec<Vec<String>>) {
    if !path.is_empty() && options::options(command).next().is_some() {
        to.push(path.clone());
    }
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        path.push(inner.get_name().to_string());
        collect(inner, path, to);
        path.pop();
    }
}

/// `home` and `local`.
fn folders(files: &Files) -> anyhow::Result<Vec<Row>> {
    let source = |key: &str, name: &str| {
        let variable = std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match files.top(key) {
            _ if variable => Source::Variable(name.into()),
            Some(entry) => Source::of(entry),
            None => Source::BuiltIn,
        }
    };
    let home = home::named().map_err(|e| anyhow!(e))?;
    let home_row = Row {
        key: "home".into(),
        value: Some(home.display().to_string()),
        source: source("home", home::HOME),
    };
    let (value, from) = match local::wanted() {
        Some(wish) if wish.explicit => {
            (wish.folder.display().to_string(), source("local", local::LOCAL))
        }
        Some(wish) => (wish.folder.display().to_string(), Source::Variable(wish.source.into())),
        None => (String::from("in home"), Source::BuiltIn),
    };
    Ok(vec![home_row, Row { key: "local".into(), value: Some(value), source: from }])
}

/// Durations; without `every` those that a file says.
fn durations(files: &Files, every: bool) -> Vec<Row> {
    let row = |setting: &Setting| {
        let entry = timing::entry(&files.files, setting.key);
        let default = || (seconds(setting.default_ms), Source::BuiltIn);
        let said = entry.map(|entry| (entry.value.to_string(), Source::of(entry)));
        let (value, source) = said.or_else(|| every.then(default))?;
        let key = format!("{}.{}", timing::TABLE, setting.key);
        Some(Row { key, value: Some(value), source })
    };
    SETTINGS.iter().filter_map(row).collect()
}

/// Options of a command; without `every` those that somebody has set for this very command.
fn of_command(all: &Command, files: &Files, path: &[String], every: bool) -> Vec<Row> {
    let Some(command) = options::command(all, path) else { return Vec::new() };
    let entries = files.of_command(all, path);
    let mut rows = Vec::new();
    for arg in options::options(command) {
        let Some(long) = arg.get_long() else { continue };
        let entry = entries.iter().find(|entry| entry.key == long);
        let (value, source) = match (options::variable(arg), entry) {
            (Some((name, value)), _) => (Some(value), Source::Variable(name)),
            (None, Some(entry)) if every || entry.table == path => {
                (Some(entry.value.to_string()), Source::of(entry))
            }
            (None, _) if every => (options::built_in(arg), Source::BuiltIn),
            (None, _) => continue,
        };
        // Said once, for eyrie run.
        let shared = path != ["run"] && matches!(source, Source::Variable(_));
        if every || !shared {
            rows.push(Row { key: format!("{}.{long}", path.join(".")), value, source });
        }
    }
    rows
}

/// What is called so: a key, or all of a command's. Whether it is one key.
fn named(all: &Command, files: &Files, name: &str) -> anyhow::Result<(Vec<Row>, bool)> {
    if options::TOP.contains(&name) {
        let rows = folders(files)?;
        return Ok((rows.into_iter().filter(|row| row.key == name).collect(), true));
    }
    let rows = durations(files, true);
    if name == timing::TABLE {
        return Ok((rows, false));
    }
    if let Some(row) = rows.into_iter().find(|row| row.key == name) {
        return Ok((vec![row], true));
    }
    let words: Vec<String> = name.split('.').map(String::from).collect();
    if options::command(all, &words).is_some() {
        let mut paths = Vec::new();
        let mut path = words.clone();
        if let Some(command) = options::command(all, &words) {
            collect(command, &mut path, &mut paths);
        }
        let rows = paths.iter().flat_map(|path| of_command(all, files, path, true)).collect();
        return Ok((rows, false));
    }
    if let Some((_, table)) = words.split_last().filter(|(_, table)| !table.is_empty()) {
        let rows = of_command(all, files, table, true);
        if let Some(row) = rows.into_iter().find(|row| row.key == name) {
            return Ok((vec![row], true));
        }
    }
    let mut commands = Vec::new();
    collect(all, &mut Vec::new(), &mut commands);
    let keys: Vec<String> = commands
        .iter()
        .flat_map(|path| of_command(all, files, path, true))
        .map(|row| row.key)
        .chain(options::TOP.map(String::from))
        .chain(durations(files, true).into_iter().map(|row| row.key))
        .chain([String::from(timing::TABLE)])
        .chain(commands.iter().map(|path| path.join(".")))
        .collect();
    let run = format!("run.{name}");
    if keys.contains(&run) {
        bail!("{name}: of which command? For example {run}");
    }
    match options::like(name, keys.iter().map(String::as_str)) {
        Some(like) => bail!("{name}: there is no such key; is it {like}?"),
        None => bail!("{name}: there is no such key; eyrie config --all shows them"),
    }
}
