//! Reads the command line, with what files say where nothing else was typed.
//!
//! Knows no command: it is given them all, and gives back what the parser found.

use crate::config::defaults::{self, FileDefaults};
use crate::config::files::Files;
use crate::config::{folders, options};
use clap::{ArgMatches, Command};
use eyrie_config::file::File;
use eyrie_config::grid::Grid;
use eyrie_config::help::{Refusal, refuse_mistakes};
use eyrie_config::typed::{Typed, refusal};
use eyrie_terminal::{Failure, USAGE};
use std::ffi::OsString;
use std::path::Path;

/// Commands that are for looking at what is wrong, and go on without files.
const WITHOUT: [&str; 5] = ["config", "doctor", "completions", "manual", "help"];

/// What the parser finds in these words and in the files, and which values the latter gave.
/// `all`: all commands with their options, which `commands` makes anew.
pub fn parse(
    all: Command,
    commands: fn() -> Command,
    words: Vec<OsString>,
) -> Result<(ArgMatches, FileDefaults), Refusal> {
    let of_parser = |error: clap::Error| Refusal::Parser(Box::new(error), Vec::new());
    let sub = words.get(1).and_then(|word| word.to_str()).unwrap_or("").to_string();
    let mut typed = match sub.starts_with("__") {
        // Words of Eyrie's own, to which files give nothing.
        true => {
            let found = all.try_get_matches_from(words).map_err(of_parser)?;
            return Ok((found, FileDefaults::default()));
        }
        false => Typed::new(&all, words),
    };
    for name in typed.variables_off(&all) {
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    let grid = of_grid(&all, &mut typed).map_err(Refusal::Files)?;
    let alone = all.clone().try_get_matches_from(&typed.words);
    let mut files = match Files::load(&all) {
        Ok(files) => files,
        Err(_) if WITHOUT.contains(&sub.as_str()) => Files::default(),
        // Help is given whatever files say.
        Err(_) if alone.as_ref().is_err_and(|e| e.exit_code() == 0) => Files::default(),
        Err(error) => return Err(Refusal::Files(Failure::new(USAGE, error))),
    };
    let broken = |error: anyhow::Error| Refusal::Files(Failure::new(USAGE, error));
    files.files.splice(0..0, grid);
    folders::put_folders(&files).map_err(broken)?;
    let entries = files.of_command(&all, &typed.path);
    if entries.is_empty() {
        return alone.map(|found| (found, FileDefaults::default())).map_err(of_parser);
    }
    let set = typed.set(&all);
    let given = typed.given(&all, &entries, &set);
    refuse_mistakes(&all, &typed, &given, alone)?;
    let used = typed.fitting(&all, given, defaults::say_lost_guard).map_err(broken)?;
    defaults::read(commands, typed, set, used).map_err(of_parser)
}

/// What the file of a grid job says of options (`eyrie run --config FILE`), which goes before other
/// files; its program is as if it were typed, where none is.
fn of_grid(all: &Command, typed: &mut Typed) -> Result<Option<File>, Failure> {
    if typed.path != ["run"] {
        return Ok(None);
    }
    let Some(path) = typed.value(all, "config") else { return Ok(None) };
    let usage = |error| Failure::new(USAGE, error);
    let grid = Grid::read(Path::new(&path)).map_err(usage)?;
    options::check(all, &grid.run).map_err(usage)?;
    if let Some(refusal) = grid.run.entries.iter().find_map(|entry| refusal(all, entry)) {
        return Err(usage(refusal));
    }
    if !grid.program.is_empty() && !typed.words.iter().any(|word| word == "--") {
        typed.words.push("--".into());
        typed.words.extend(grid.program.iter().map(OsString::from));
    }
    Ok(Some(grid.run))
}
