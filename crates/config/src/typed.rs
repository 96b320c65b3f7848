//! What was typed, with what files say put before it.

use crate::file::{Entry, Position};
use crate::keys;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::ffi::{OsStr, OsString};

/// A value of a file, as it would be typed.
#[derive(Debug, Clone)]
pub struct Given {
    pub key: String,
    pub words: Vec<OsString>,
    pub place: Position,
    /// For people.
    pub value: String,
}

/// Words of a command line, and where those of files are put.
#[derive(Debug, Clone)]
pub struct Typed {
    pub words: Vec<OsString>,
    /// The command, and its subcommand.
    pub path: Vec<String>,
    /// Where its options begin.
    pub at: usize,
    /// Flags that were switched off: `--label=false`.
    pub off: Vec<String>,
}

impl Typed {
    pub fn new(all: &Command, words: Vec<OsString>) -> Typed {
        let (path, at) = path_of(all, &words);
        let mut typed = Typed { words, path, at, off: Vec::new() };
        if let Some(command) = keys::command(all, &typed.path) {
            typed.switch(command);
        }
        typed
    }

    /// Takes `--flag=false` and `--flag=true`, which the parser does not know.
    fn switch(&mut self, command: &Command) {
        let end = self.words.iter().position(|w| w == "--").unwrap_or(self.words.len());
        let tail = self.words.split_off(end.max(self.at));
        let head = self.words.split_off(self.at);
        for word in head {
            let flag = word.to_str().and_then(|w| w.strip_prefix("--")?.split_once('='));
            let flag = flag.filter(|(name, value)| {
                let arg = keys::option(command, name);
                arg.is_some_and(|a| !a.get_action().takes_values())
                    && ["true", "false"].contains(value)
            });
            match flag {
                Some((name, "true")) => self.words.push(format!("--{name}").into()),
                Some((name, _)) => self.off.push(name.to_string()),
                None => self.words.push(word),
            }
        }
        self.words.extend(tail);
    }

    /// Variables that would switch on what was switched off.
    pub fn variables_off<'a>(&self, all: &'a Command) -> Vec<&'a OsStr> {
        let command = keys::command(all, &self.path);
        let off = self.off.iter().filter_map(|key| keys::option(command?, key));
        off.filter_map(clap::Arg::get_env).collect()
    }

    /// All words, with these before those that were typed.
    pub fn with<'a>(&self, given: impl IntoIterator<Item = &'a Given>) -> Vec<OsString> {
        let mut all = self.words.clone();
        let more: Vec<OsString> = given.into_iter().flat_map(|g| g.words.clone()).collect();
        all.splice(self.at..self.at, more);
        all
    }

    /// The long names of options that were typed, or that a variable sets.
    pub fn set(&self, all: &Command) -> Vec<String> {
        // Whatever is wrong there: all of the options are wanted.
        let lenient = all.clone().ignore_errors(true);
        let Ok(matches) = lenient.try_get_matches_from(&self.words) else { return Vec::new() };
        let Some(command) = keys::command(all, &self.path) else { return Vec::new() };
        let mut inner: &ArgMatches = &matches;
        for name in &self.path {
            match inner.subcommand_matches(name) {
                Some(next) => inner = next,
                None => return self.off.clone(),
            }
        }
        let is_set = |arg: &&clap::Arg| {
            let source = inner.value_source(arg.get_id().as_str());
            matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
                || keys::variable(arg).is_some()
        };
        let set = keys::options(command).filter(is_set).filter_map(|a| a.get_long());
        set.map(str::to_string).chain(self.off.iter().cloned()).collect()
    }

    /// The value of an option of the command that was typed, whatever else is wrong there.
    pub fn value(&self, all: &Command, id: &str) -> Option<OsString> {
        let lenient = all.clone().ignore_errors(true);
        let matches = lenient.try_get_matches_from(&self.words).ok()?;
        let mut inner: &ArgMatches = &matches;
        for name in &self.path {
            inner = inner.subcommand_matches(name)?;
        }
        let mut raw = inner.try_get_raw(id).ok()??;
        raw.next().map(OsStr::to_os_string)
    }

    /// What files give to this command, but for what was typed.
    pub fn given(&self, all: &Command, entries: &[Entry], set: &[String]) -> Vec<Given> {
        let Some(command) = keys::command(all, &self.path) else { return Vec::new() };
        let of = |entry: &Entry| {
            let arg = keys::option(command, &entry.key)?;
            let words = keys::words(arg, &entry.value).ok()?;
            let (key, place) = (entry.key.clone(), entry.place.clone());
            Some(Given { key, words, place, value: entry.value.to_string() })
        };
        let free = entries.iter().filter(|e| !set.contains(&e.key));
        free.filter_map(of).filter(|g| !g.words.is_empty()).collect()
    }

    /// Those that go with what was typed and with each other; those first that go before others.
    /// `lost`: is told of each that does not go with what was typed, and why.
    pub fn fitting(
        &self,
        all: &Command,
        given: Vec<Given>,
        lost: impl Fn(&Given, &str),
    ) -> anyhow::Result<Vec<Given>> {
        let tried = |with: &[&Given]| {
            all.clone().try_get_matches_from(self.with(with.iter().copied())).map(drop)
        };
        if tried(&given.iter().collect::<Vec<_>>()).is_ok() {
            return Ok(given);
        }
        let (mut used, mut left): (Vec<Given>, Vec<Given>) = (Vec::new(), given);
        loop {
            let before = left.len();
            for one in std::mem::take(&mut left) {
                match tried(&used.iter().chain([&one]).collect::<Vec<_>>()) {
                    Ok(()) => used.push(one),
                    Err(error) if is_of_several(error.kind()) => left.push(one),
                    Err(error) => {
                        return Err(keys::at(&one.place, &one.key, &why(&error, &one.key)));
                    }
                }
            }
            if left.len() == before {
                break;
            }
        }
        for one in &left {
            // Against what was typed it loses; so does the site's against the user's.
            if let Err(error) = tried(&[one]) {
                if error.kind() == ErrorKind::ArgumentConflict {
                    lost(one, &why(&error, &one.key));
                }
                continue;
            }
            let rivals = used.iter().filter(|u| u.place.file == one.place.file);
            if let Some(rival) = rivals.into_iter().find(|rival| tried(&[rival, one]).is_err()) {
                return Err(rivals_of(rival, one));
            }
        }
        Ok(used)
    }
}

/// Why the option of an entry does not take its value, whatever else is typed.
pub fn refusal(all: &Command, entry: &Entry) -> Option<anyhow::Error> {
    let Entry { table, key, value, place } = entry;
    let arg = keys::option(keys::command(all, table)?, key)?;
    let own = [OsString::from(all.get_name())].into_iter();
    let words = own.chain(table.iter().map(OsString::from));
    let words = words.chain(keys::words(arg, value).ok()?);
    let error = all.clone().try_get_matches_from(words).err()?;
    // Values are looked at first; a variable's may be wrong, too.
    let of_this = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => {
            option.split([' ', '=', '[']).next()?.strip_prefix("--")? == key
        }
        _ => false,
    };
    (of_this && !is_of_several(error.kind())).then(|| keys::at(place, key, &why(&error, key)))
}

/// Two values of one file that do not go together.
pub fn rivals_of(one: &Given, other: &Given) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: {} does not go with {} (line {}): leave one of them out",
        other.place,
        other.key,
        one.key,
        one.place.line
    )
}

/// Whether a mistake is in several options together, and in none alone.
fn is_of_several(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ArgumentConflict
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            // Not of ours: what was typed is told by the parser.
            | ErrorKind::UnknownArgument
            | ErrorKind::InvalidSubcommand
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
    )
}

/// What is wrong with a value.
fn why(error: &clap::Error, key: &str) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"));
    let told = lines.filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ");
    let told = told.replace(" tip: ", "; ");
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    // The key stands before it already.
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.clone(),
        _ => format!("--{key}"),
    };
    told.replace(&format!(" for '{option}'"), "")
}

/// The command that words ask for, and where its options begin.
fn path_of(all: &Command, words: &[OsString]) -> (Vec<String>, usize) {
    let (mut path, mut command) = (Vec::new(), all);
    for word in words.iter().skip(1).map(OsString::as_os_str).map(OsStr::to_str) {
        let found = command.get_subcommands().find(|c| Some(c.get_name()) == word);
        let Some(found) = found else { break };
        path.push(found.get_name().to_string());
        command = found;
    }
    let at = (1 + path.len()).min(words.len());
    (path, at)
}
