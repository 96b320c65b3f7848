//! Values of files that do not go with the rest of a job: what the parser does not know of.
//!
//! Kept true: only what files gave is dropped, one value at a time, and never what was typed; that
//! something is not encrypted is told.

use clap::{ArgMatches, Command, FromArgMatches};
use eyrie_config::typed::{Given, Typed, rivals_of};
use eyrie_terminal::Failure;
use std::fmt;
use std::rc::Rc;

/// Options without which others can read more.
const GUARDS: [&str; 3] = ["tls", "encrypt-at-rest", "save-key"];

/// A value of a file that does not hold for this job.
fn say_lost(given: &Given, why: &dyn fmt::Display) {
    let Given { key, value, place, .. } = given;
    crate::messages::say(&format!("{key} = {value} does not hold ({place}): {why}"));
}

/// The same, if others can read more for that.
pub fn say_lost_guard(given: &Given, why: &str) {
    if GUARDS.contains(&given.key.as_str()) {
        say_lost(given, &why);
    }
}

/// Options that do not go together, or that have nothing to work on.
#[derive(Debug)]
pub struct OptionConflict {
    pub text: String,
    /// It is for jobs of another kind, which is no surprise.
    pub elsewhere: bool,
}

impl fmt::Display for OptionConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OptionConflict {}

impl OptionConflict {
    /// Options that do not go together.
    pub fn new(text: impl fmt::Display) -> OptionConflict {
        OptionConflict { text: text.to_string(), elsewhere: false }
    }
}

/// What files gave to a command that was read.
#[derive(Debug, Clone, Default)]
pub struct FileDefaults(Option<Rc<Mixed>>);

#[derive(Debug)]
struct Mixed {
    /// Makes all commands with their options.
    commands: fn() -> Command,
    typed: Typed,
    set: Vec<String>,
    used: Vec<Given>,
}

/// Arguments of a command that a file may give more to.
pub trait TakesDefaults: FromArgMatches {
    /// The commands that have these arguments.
    const COMMANDS: &'static [&'static str];
    fn defaults(&self) -> &FileDefaults;
    fn defaults_mut(&mut self) -> &mut FileDefaults;
}

/// The arguments of the command that the parser has found, if they are of this kind.
fn of<T: TakesDefaults>(found: &ArgMatches, defaults: FileDefaults) -> Option<T> {
    let (_, inner) = found.subcommand().filter(|(name, _)| T::COMMANDS.contains(name))?;
    let mut args = T::from_arg_matches(inner).ok()?;
    *args.defaults_mut() = defaults;
    Some(args)
}

/// Reads what was typed with these values of files; `set`: the options that were typed.
pub fn read(
    commands: fn() -> Command,
    typed: Typed,
    set: Vec<String>,
    used: Vec<Given>,
) -> Result<(ArgMatches, FileDefaults), clap::Error> {
    // Made anew: options take their variables as they are now, without those that are switched off.
    let found = commands().try_get_matches_from(typed.with(&used))?;
    let defaults = match used.is_empty() {
        true => FileDefaults::default(),
        false => FileDefaults(Some(Rc::new(Mixed { commands, typed, set, used }))),
    };
    Ok((found, defaults))
}

impl FileDefaults {
    /// The command without the value of a file that this failure is about.
    pub fn retreat<T: TakesDefaults>(&self, failure: Failure) -> Result<T, Failure> {
        let (Some(mixed), Some(conflict)) = (&self.0, failure.cause::<OptionConflict>()) else {
            return Err(failure);
        };
        let mut named =
            mixed.used.iter().enumerate().filter(|(_, g)| names(&conflict.text, &g.key));
        let Some((mut at, first)) = named.next() else { return Err(failure) };
        if let Some((second, other)) = named.next() {
            if first.place.file == other.place.file {
                return Err(Failure::new(eyrie_terminal::USAGE, rivals_of(first, other)));
            }
            at = second;
        }
        let left_out = &mixed.used[at];
        let typed = mixed.set.iter().any(|key| names(&conflict.text, key));
        let expected = conflict.elsewhere || (typed && left_out.key != "vault");
        if !expected || GUARDS.contains(&left_out.key.as_str()) {
            say_lost(left_out, conflict);
        }
        let mut used = mixed.used.clone();
        used.remove(at);
        let next = read(mixed.commands, mixed.typed.clone(), mixed.set.clone(), used);
        next.ok().and_then(|(found, defaults)| of(&found, defaults)).ok_or(failure)
    }
}

/// Whether a text names an option.
fn names(text: &str, key: &str) -> bool {
    let option = format!("--{key}");
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    let named = text.match_indices(&option).any(|(at, _)| !goes_on(&text[at + option.len()..]));
    named || (key == "np" && text.starts_with("-n "))
}

/// The arguments without values of files that `check` refuses, where there are such. What is
/// typed and refused is left to who checks again.
pub fn relaxed<T: TakesDefaults>(
    args: &T,
    check: impl Fn(&T) -> Result<(), Failure>,
) -> Result<Option<T>, Failure> {
    let mut now: Option<T> = None;
    loop {
        let current = now.as_ref().unwrap_or(args);
        if current.defaults().0.is_none() {
            return Ok(now);
        }
        let Err(failure) = check(current) else { return Ok(now) };
        if failure.cause::<OptionConflict>().is_none() {
            return Ok(now);
        }
        match current.defaults().retreat(failure) {
            Ok(next) => now = Some(next),
            Err(other) if other.cause::<OptionConflict>().is_some() => return Ok(now),
            Err(rivals) => return Err(rivals),
        }
    }
}
