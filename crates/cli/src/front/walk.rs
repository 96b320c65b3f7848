//! Goes through the words of a command line up to the program's name, and through those of the
//! programs behind `:`.

use crate::front::parts::{self, PART, Part};
use crate::front::program_file;
use crate::front::table::{self, Means};
use clap::Command;
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Which options a subcommand has of its own: whether a value follows in the next word.
pub struct Known(HashMap<String, bool>);

impl Known {
    pub fn of(all: &Command, sub: &str) -> Known {
        let mut known: HashMap<_, _> =
            ["-h", "--help"].map(|name| (name.to_string(), false)).into_iter().collect();
        let found = all.find_subcommand(sub);
        for arg in found.into_iter().flat_map(Command::get_arguments) {
            let follows = arg.get_action().takes_values() && !arg.is_require_equals_set();
            let long = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
            known.extend(long.map(|name| (format!("--{name}"), follows)));
            known.extend(arg.get_short().map(|name| (format!("-{name}"), follows)));
        }
        Known(known)
    }

    /// Whether the next word is the value of this one; nothing if it is none of them.
    fn follows(&self, word: &str) -> Option<bool> {
        match word.split_once('=') {
            Some((name, _)) if name.starts_with("--") => self.0.get(name).map(|_| false),
            _ => self.0.get(word).copied(),
        }
    }

    /// The same for letters behind one dash, of which the last may have its value behind it.
    fn letters(&self, word: &str) -> Option<bool> {
        let letters = word.strip_prefix('-').filter(|l| !l.starts_with('-'))?;
        for (at, letter) in letters.char_indices() {
            if self.0.get(&format!("-{letter}")).copied()? {
                return Some(at + letter.len_utf8() == letters.len());
            }
        }
        // Several letters without a value: -lv; help is asked for alone.
        (!letters.is_empty() && !letters.contains('h')).then_some(false)
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Asked {
    Help,
    Version,
    Job(Job),
}

/// A job, in words of `eyrie run`.
#[derive(Debug, Default)]
pub struct Job {
    /// Options of the whole job.
    pub options: Vec<OsString>,
    /// Variables of all programs.
    env: Vec<(OsString, OsString)>,
    pub parts: Vec<Part>,
    /// What the user is told.
    pub notes: Vec<String>,
    /// Where Eyrie is on the hosts.
    pub prefix: Option<OsString>,
    /// The hosts that were named.
    hosts: Option<OsString>,
}

impl Job {
    /// What is to be parsed as a command of `eyrie`, which is at `own` where ranks run.
    pub fn words(&self, own: &OsStr, sub: &str) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["eyrie".into(), sub.into()];
        all.extend(self.options.iter().cloned());
        let of = |n: &OsString| [OsString::from("-n"), n.clone()];
        if let [part] = &self.parts[..]
            && part.folder.is_none()
            && part.env.is_empty()
            && self.env.is_empty()
        {
            all.extend(part.ranks.iter().flat_map(of));
            if !part.command.is_empty() {
                all.push("--".into());
                all.extend(part.command.iter().cloned());
            }
            return all;
        }
        match &self.parts[..] {
            [part] => all.extend(part.ranks.iter().flat_map(of)),
            parts => {
                let sum = parts.iter().map(|p| u64::from(p.count())).sum::<u64>();
                all.extend(of(&sum.to_string().into()));
            }
        }
        all.extend(["--".into(), own.into(), PART.into()]);
        for part in &self.parts {
            let env = self.env.iter().chain(&part.env).cloned().collect();
            all.extend(Part { env, ..part.clone() }.words());
        }
        all
    }
}

/// The words of one command line, as far as they are to be looked at.
struct Walk<'a> {
    left: VecDeque<OsString>,
    known: &'a Known,
    mode: Mode,
    job: Job,
    part: Part,
    /// The rest was left to the parser, which refuses it.
    left_alone: bool,
}

pub fn walk(all: &[OsString], known: &Known, mode: Mode) -> Result<Asked, String> {
    if mode == Mode::Mpiexec && all.is_empty() {
        return Ok(Asked::Help);
    }
    let left = all.iter().cloned().collect();
    let mut walk =
        Walk { left, known, mode, job: Job::default(), part: Part::default(), left_alone: false };
    while let Some(word) = walk.left.pop_front() {
        let text = word.to_string_lossy().into_owned();
        if text == ":" && mode != Mode::Own {
            walk.close()?;
            if walk.left.is_empty() {
                return Err(String::from("behind ':' there is no program"));
            }
        } else if text == "--" || !text.starts_with('-') || text == "-" {
            walk.program(word);
        } else if let Some(asked) = walk.option(word, &text)? {
            return Ok(asked);
        }
    }
    // A program that is missing is the parser's to say, where there is only one.
    if !walk.left_alone && (!walk.job.parts.is_empty() || mode == Mode::Mpiexec) {
        walk.close()?;
    } else {
        walk.job.parts.push(walk.part);
    }
    Ok(Asked::Job(walk.job))
}

impl Walk<'_> {
    /// The program, and its arguments up to `:`; behind `--` there is no `:`.
    fn program(&mut self, first: OsString) {
        let rest = std::mem::take(&mut self.left);
        let whole = first == "--";
        let mut words = Some(first).filter(|_| !whole).into_iter().chain(rest);
        for word in words.by_ref() {
            if word == ":" && !whole && self.mode != Mode::Own {
                self.left.push_back(word);
                break;
            }
            self.part.command.push(word);
        }
        self.left.extend(words);
    }

    /// A program is complete.
    fn close(&mut self) -> Result<(), String> {
        let part = std::mem::take(&mut self.part);
        if part.command.is_empty() {
            return Err(match self.job.parts.len() {
                0 => String::from("which program? write its name behind the options"),
                n => format!("program {} of those between ':' has no name", n + 1),
            });
        }
        self.job.parts.push(part);
        Ok(())
    }

    /// Passes an option on as it is.
    fn pass(&mut self, word: OsString, follows: bool) {
        let name = word.to_string_lossy().into_owned();
        let before = self.job.options.len();
        self.job.options.push(word);
        if follows {
            self.job.options.extend(self.left.pop_front());
        }
        let value = || match name.split_once('=') {
            Some((_, value)) => Some(OsString::from(value)),
            None => self.job.options.get(before + 1).cloned(),
        };
        match name.split('=').next() {
            Some("--prefix") => self.job.prefix = value(),
            Some("--hosts") => self.job.hosts = value(),
            _ => {}
        }
    }

    fn option(&mut self, word: OsString, text: &str) -> Result<Option<Asked>, String> {
        let found = table::find(text).filter(|_| self.mode != Mode::Own);
        let own = self.known.follows(text);
        match (found, own) {
            (Some((Means::Ranks, value)), _) => self.ranks(text, value)?,
            (Some((Means::Help, _)), _) if self.mode == Mode::Mpiexec => {
                return Ok(Some(Asked::Help));
            }
            (Some((Means::Help, _)), None) => self.pass("--help".into(), false),
            (Some((Means::Version, _)), _) => return Ok(Some(Asked::Version)),
            (Some((Means::IsWith("--prefix"), value)), _) if self.mode == Mode::Mpiexec => {
                self.prefix(text, value)?;
            }
            (_, Some(false)) => self.once(word),
            (_, Some(true)) => self.pass(word, true),
            (Some((means, value)), None) => self.means(means, text, value)?,
            (None, None) => self.unknown(word, text)?,
        }
        Ok(None)
    }

    fn unknown(&mut self, word: OsString, text: &str) -> Result<(), String> {
        if let Some(follows) = self.known.letters(text) {
            // The number of ranks of a program, with its letter: -n4. Other words with that letter
            // are options of somebody's: -nofork.
            match text.strip_prefix("-n").filter(|n| !n.is_empty() && self.mode != Mode::Own) {
                None => {
                    self.pass(word, follows);
                    return Ok(());
                }
                Some(rest) => {
                    let count = rest.strip_prefix('p').unwrap_or(rest);
                    if count.starts_with(|c: char| c.is_ascii_digit()) {
                        return self.ranks("-n", Some(count));
                    }
                }
            }
        }
        if text == "-help" && self.mode == Mode::Own {
            self.pass("--help".into(), false);
            return Ok(());
        }
        if text.starts_with("--") && !(self.mode == Mode::Mpiexec && table::like(text).is_some()) {
            // The parser knows which of its own is like it.
            self.job.options.push(word);
            self.job.options.extend(self.left.drain(..));
            self.left_alone = true;
            return Ok(());
        }
        let tip = match table::like(text).filter(|_| self.mode != Mode::Own) {
            Some(like) => format!("; is it {like}?"),
            None => String::new(),
        };
        Err(format!("unexpected argument '{text}'{tip}"))
    }

    fn value(&mut self, text: &str, value: Option<&str>) -> Result<OsString, String> {
        let own = value.map(OsString::from);
        own.or_else(|| self.left.pop_front()).ok_or_else(|| format!("{text}: a value is missing"))
    }

    fn ranks(&mut self, text: &str, value: Option<&str>) -> Result<(), String> {
        let count = self.value(text, value)?;
        if self.part.ranks.replace(count.clone()).is_some() {
            return Err(format!("{text} {}: the number of ranks is given twice", count.display()));
        }
        let several = !self.job.parts.is_empty();
        if (several || self.mode == Mode::Mpiexec) && parts::count_of(&count).is_none() {
            let count = count.display();
            return Err(format!("{text} {count}: write a number of ranks from 1 on"));
        }
        Ok(())
    }

    fn add(&mut self, option: &str, value: OsString) {
        let mut word = OsString::from(option);
        word.push("=");
        word.push(value);
        self.once(word);
    }

    /// An option that others let one write again, as behind each `:`.
    fn once(&mut self, word: OsString) {
        if !self.job.options.contains(&word) {
            self.pass(word, false);
        }
    }

    fn means(&mut self, means: Means, text: &str, value: Option<&str>) -> Result<(), String> {
        let name = text.split('=').next().unwrap_or(text);
        match means {
            Means::Ranks | Means::Help | Means::Version => {}
            Means::Hosts => {
                let list = self.value(text, value)?;
                self.hosts(name, list)?;
            }
            Means::HostFile => {
                let file = self.value(text, value)?;
                self.hosts(name, parts::as_file(file))?;
            }
            Means::PerNode => {
                let count = self.value(text, value)?;
                if parts::count_of(&count).is_none() {
                    return Err(format!("{name} {}: write a number from 1 on", count.display()));
                }
                self.add("--ppn", count);
            }
            Means::MapBy => {
                let how = self.value(text, value)?;
                self.map_by(name, &how.to_string_lossy())?;
            }
            Means::BindTo => {
                let what = self.value(text, value)?;
                self.bind_to(name, &what.to_string_lossy())?;
            }
            Means::EnvAll | Means::Env => {
                let variable = self.value(text, value)?;
                let whole = variable.to_str().and_then(|word| word.split_once('='));
                // NAME=VALUE in one word, as hydra takes it, too.
                let (variable, content) = match whole {
                    Some((variable, content)) => (variable.into(), content.into()),
                    None => (variable, self.value(text, None)?),
                };
                self.set(name, means == Means::EnvAll, variable, content)?;
            }
            Means::Export => {
                let word = self.value(text, value)?;
                self.export(name, &word.to_string_lossy())?;
            }
            Means::Folder => self.part.folder = Some(self.value(text, value)?),
            Means::Programs => {
                let file = self.value(text, value)?;
                let mut all: VecDeque<_> = program_file::of_file(name, Path::new(&file))?.into();
                all.extend(std::mem::take(&mut self.left));
                self.left = all;
            }
            // Where somebody has it; without it there is no such word to be silenced.
            Means::Is("--quiet") if self.known.follows("--quiet").is_none() => {}
            Means::Is(option) => self.once(option.into()),
            Means::Output => {
                let how = self.value(text, value)?;
                self.output(name, &how.to_string_lossy())?;
            }
            Means::WithFt => {
                let how = self.value(text, value)?;
                self.with_ft(name, &how.to_string_lossy())?;
            }
            Means::IsWith(option) => {
                let given = self.value(text, value)?;
                self.add(option, given);
            }
            Means::Harmless(count) => self.skip(text, value, count)?,
            Means::Ignored(count, why) => {
                self.skip(text, value, count)?;
                self.note(format!("{name} is ignored: {why}"));
            }
            Means::Refused(instead) => {
                return Err(format!("{name} is nothing that Eyrie does: {instead}"));
            }
        }
        Ok(())
    }

    fn note(&mut self, text: String) {
        if !self.job.notes.contains(&text) {
            self.job.notes.push(text);
        }
    }

    fn skip(&mut self, text: &str, value: Option<&str>, count: usize) -> Result<(), String> {
        (usize::from(value.is_some())..count).try_for_each(|_| self.value(text, None).map(drop))
    }

    fn set(
        &mut self,
        option: &str,
        all: bool,
        name: OsString,
        value: OsString,
    ) -> Result<(), String> {
        if name.is_empty() || name.to_string_lossy().contains('=') {
            return Err(format!("{option}: '{}' is no name of a variable", name.display()));
        }
        let env = if all { &mut self.job.env } else { &mut self.part.env };
        env.push((name, value));
        Ok(())
    }

    /// A variable with its value; without one it is passed on anyway.
    fn export(&mut self, option: &str, word: &str) -> Result<(), String> {
        match word.split_once('=') {
            Some((name, value)) => self.set(option, true, name.into(), value.into()),
            None => Ok(()),
        }
    }

    fn hosts(&mut self, option: &str, which: OsString) -> Result<(), String> {
        match &self.job.hosts {
            Some(before) if *before == which => Ok(()),
            Some(_) if self.job.parts.is_empty() => {
                Err(format!("{option}: the hosts are named twice: name all of them once"))
            }
            _ if !self.job.parts.is_empty() => Err(format!(
                "{option} of one of several programs is nothing that Eyrie does: name all hosts \
                 before the first one, and say with --rankfile where each rank runs"
            )),
            _ => {
                self.add("--hosts", which);
                Ok(())
            }
        }
    }

    fn map_by(&mut self, option: &str, how: &str) -> Result<(), String> {
        let mut words = how.split(':');
        let what = words.next().unwrap_or_default().to_ascii_lowercase();
        match what.as_str() {
            "" | "slot" | "core" | "hwthread" | "l1cache" | "l2cache" => {}
            "node" => self.once("--map=cyclic".into()),
            "socket" | "package" | "numa" | "l3cache" | "board" => self.note(format!(
                "{option} {how}: ranks of a node stand in their order; --rankfile says where each \
                 runs"
            )),
            "ppr" => match (words.next(), words.next()) {
                (Some(count), Some("node")) if parts::count_of(OsStr::new(count)).is_some() => {
                    self.add("--ppn", count.into());
                }
                _ => return Err(format!("{option} {how}: only ppr:N:node is known here")),
            },
            "rankfile" => {
                let file = words
                    .next()
                    .and_then(|w| w.to_ascii_lowercase().find("file=").map(|_| &w[5..]));
                let file = file.ok_or_else(|| format!("{option} {how}: write --rankfile FILE"))?;
                self.add("--rankfile", file.into());
            }
            _ => {
                return Err(format!(
                    "{option} {how}: slot, node and ppr:N:node are known here; \
                                     --rankfile says where each rank runs"
                ));
            }
        }
        for word in words {
            match word.to_ascii_lowercase().as_str() {
                "oversubscribe" => self.once("--oversubscribe".into()),
                "pe=1" | "nooversubscribe" | "hwtcpus" | "corecpus" | "inherit" | "noinherit" => {}
                _ => {
                    return Err(format!(
                        "{option} {how}: '{word}' is nothing that Eyrie does: --rankfile says on \
                         which processors each rank runs"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Where Eyrie is on the hosts; where another MPI is says nothing here.
    fn prefix(&mut self, text: &str, value: Option<&str>) -> Result<(), String> {
        let folder = self.value(text, value)?;
        let bin = Path::new(&folder).join("bin");
        let others = ["orted", "prted", "ompi_info", "hydra_pmi_proxy", "mpichversion"];
        if others.iter().any(|name| bin.join(name).exists()) && !bin.join("eyrie").exists() {
            let folder = folder.display();
            self.note(format!("--prefix is ignored: {folder} is where another MPI is"));
        } else {
            self.add("--prefix", folder);
        }
        Ok(())
    }

    /// Who handles it that a rank is lost.
    fn with_ft(&mut self, option: &str, how: &str) -> Result<(), String> {
        match how.to_ascii_lowercase().as_str() {
            "ulfm" | "mpi" | "yes" | "true" | "1" => self.add("--on-failure", "report".into()),
            "none" | "no" | "false" | "0" => {}
            _ => return Err(format!("{option} {how}: write ulfm or none")),
        }
        Ok(())
    }

    /// How output is marked: all of Open MPI's tags are the rank here.
    fn output(&mut self, option: &str, how: &str) -> Result<(), String> {
        for word in how.split([',', ':']) {
            match word.to_ascii_lowercase().as_str() {
                "tag" | "tag-detailed" | "tag-fullname" | "rank" => self.once("--label".into()),
                "" | "raw" | "nocopy" | "pattern" => {}
                _ => {
                    return Err(format!(
                        "{option} {how}: '{word}' is nothing that Eyrie does: --output tag marks \
                         lines with their rank; {}",
                        table::BY_RANK
                    ));
                }
            }
        }
        Ok(())
    }

    fn bind_to(&mut self, option: &str, what: &str) -> Result<(), String> {
        let (kind, more) = what.split_once(':').map_or((what, ""), |(k, m)| (k, m));
        let bind = match kind.to_ascii_lowercase().as_str() {
            "none" | "board" | "machine" => "none",
            "core" | "l1cache" | "l2cache" => "core",
            "hwthread" => "hwthread",
            "numa" => "numa",
            "socket" | "package" => "socket",
            _ => {
                return Err(format!(
                    "{option} {what}: none, hwthread, core, numa and socket are known here; \
                     --rankfile says on which processors each rank runs"
                ));
            }
        };
        if !["", "1", "overload-allowed", "if-supported", "no-overload"].contains(&more) {
            return Err(format!(
                "{option} {what}: '{more}' is nothing that Eyrie does: --rankfile says on which \
                 processors each rank runs"
            ));
        }
        self.add("--bind", bind.into());
        Ok(())
    }
}

/// By which name the command was called, which decides about its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `mpiexec` or `mpirun`.
    Mpiexec,
    /// `eyrie run`: options of its own go before those of others.
    Run,
    /// `eyrie join`, `eyrie verify`: only options of their own.
    Own,
}
