//! Several programs in one job, or one with variables and a folder of its own: each rank starts as
//! `eyrie __part`, which becomes the program that this rank is to run.
//!
//! Kept true: the words say how long they are, so that a program's own may be anything.

use anyhow::{Context, anyhow};
use eyrie_core::dynamic::APPNUM_VARIABLE;
use eyrie_process::program;
use eyrie_process::spawn::Prefix;
use eyrie_terminal::{FAILED, Failure};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One program of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// How many ranks run it, as it was typed.
    pub ranks: Option<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub folder: Option<OsString>,
    pub command: Vec<OsString>,
}

/// A number from 1 on.
pub fn count_of(text: &OsStr) -> Option<u32> {
    text.to_str()?.parse().ok().filter(|n| *n > 0)
}

/// A file's name that is no list of hosts.
pub fn as_file(name: OsString) -> OsString {
    if name.as_encoded_bytes().contains(&b'/') {
        return name;
    }
    Path::new(".").join(name).into_os_string()
}

impl Part {
    pub fn count(&self) -> u32 {
        self.ranks.as_deref().and_then(count_of).unwrap_or(1)
    }

    /// The words by which `eyrie __part` knows it.
    pub fn words(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["-n".into(), self.count().to_string().into()];
        if let Some(folder) = &self.folder {
            all.extend(["-wdir".into(), folder.clone()]);
        }
        for (name, value) in &self.env {
            all.extend(["-env".into(), name.clone(), value.clone()]);
        }
        all.push(format!("-words={}", self.command.len()).into());
        all.extend(self.command.iter().cloned());
        all
    }

    /// Where a program's name leads from its folder.
    pub fn program(&self) -> OsString {
        let name = self.command.first().cloned().unwrap_or_default();
        let is_path = name.as_encoded_bytes().contains(&b'/');
        match &self.folder {
            Some(folder) if is_path => Path::new(folder).join(name).into_os_string(),
            _ => name,
        }
    }
}

/// The programs of a job's command, if it has several or one that is started in this way.
pub fn parts_of(command: &[OsString]) -> Option<Vec<Part>> {
    match command {
        [_, word, rest @ ..] if word == PART => read(rest),
        _ => None,
    }
}

fn read(words: &[OsString]) -> Option<Vec<Part>> {
    let (mut all, mut words) = (Vec::new(), words.iter());
    while let Some(word) = words.next() {
        if word != "-n" {
            return None;
        }
        let mut part = Part { ranks: words.next().cloned(), ..Part::default() };
        loop {
            let word = words.next()?.to_str()?;
            match word.split_once('=') {
                Some(("-words", count)) => {
                    part.command = words.by_ref().take(count.parse().ok()?).cloned().collect();
                    break;
                }
                None if word == "-wdir" => part.folder = words.next().cloned(),
                None if word == "-env" => {
                    part.env.push((words.next()?.clone(), words.next()?.clone()));
                }
                _ => return None,
            }
        }
        all.push(part);
    }
    Some(all)
}

/// Becomes the program that this rank is to run. Returns only if that fails.
pub fn become_part(words: &[OsString]) -> Result<i32, Failure> {
    let rank = std::env::var("EYRIE_RANK").ok().and_then(|r| r.parse::<u32>().ok());
    let parts = read(words).filter(|parts| !parts.is_empty());
    let (Some(rank), Some(parts)) = (rank, parts) else {
        return Err(anyhow!("{PART} is for the ranks of a job, by eyrie run").into());
    };
    let (number, part) = of_rank(&parts, rank);
    let about = || format!("rank {rank}");
    if let Some(folder) = &part.folder {
        let shown = folder.display();
        std::env::set_current_dir(folder)
            .with_context(|| format!("rank {rank}: cannot go to the folder {shown} (-wdir)"))?;
    }
    let own = std::env::current_exe().ok().and_then(|binary| Prefix::of(&binary).lib);
    for (name, value) in &part.env {
        let value = match own.as_deref().filter(|_| name == "LD_LIBRARY_PATH") {
            Some(lib) => behind(lib, value),
            None => value.clone(),
        };
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    // SAFETY: as before.
    unsafe { std::env::set_var(APPNUM_VARIABLE, number.to_string()) };
    let name = part.command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let found = program::find(name);
    let path: PathBuf = found.map_err(|e| {
        let code = e.exit_code();
        Failure::new(code, anyhow::Error::new(e).context(about()))
    })?;
    let error = Command::new(&path).arg0(name).args(&part.command[1..]).exec();
    let error = anyhow::Error::new(error).context(format!("rank {rank}: {}", path.display()));
    Err(Failure::new(FAILED, error))
}

/// Ranks are numbered through the programs; what one job has more is of the last. With the number
/// of the program.
fn of_rank(parts: &[Part], rank: u32) -> (usize, &Part) {
    let mut first = 0;
    let found = parts.iter().enumerate().find(|(_, part)| {
        first += part.count();
        rank < first
    });
    found.unwrap_or((parts.len() - 1, &parts[parts.len() - 1]))
}

/// Eyrie's own libraries come first, as in any rank.
fn behind(lib: &Path, value: &OsStr) -> OsString {
    let mut all = lib.as_os_str().to_os_string();
    if !value.is_empty() {
        all.push(":");
        all.push(value);
    }
    all
}

/// The hidden command that a rank starts with where programs differ.
pub const PART: &str = "__part";

#[cfg(test)]
mod tests {
    use super::*;

    fn part(ranks: &str, words: &[&str]) -> Part {
        let command = words.iter().map(OsString::from).collect();
        Part { ranks: Some(ranks.into()), command, ..Part::default() }
    }

    #[test]
    fn programs_are_read_as_they_were_written_whatever_their_words_are() {
        let one = Part {
            env: vec![("A".into(), "-words=2".into())],
            folder: Some("/tmp".into()),
            ..part("2", &["./a", "-n", ":", "-words=7"])
        };
        let other = part("1", &["b"]);
        let mut command: Vec<OsString> = vec!["/x/eyrie".into(), PART.into()];
        command.extend(one.words().into_iter().chain(other.words()));
        assert_eq!(parts_of(&command), Some(vec![one.clone(), other.clone()]));
        assert_eq!(one.program(), "/tmp/./a");
        let all = [one, other];
        let names = |rank| of_rank(&all, rank).1.command[0].clone();
        assert_eq!([0, 1, 2, 3].map(names), ["./a", "./a", "b", "b"]);
        assert_eq!(parts_of(&["eyrie".into(), PART.into(), "-x".into()]), None);
        assert_eq!(parts_of(&["./a".into(), "b".into()]), None);
    }

    #[test]
    fn eyries_libraries_stay_first() {
        assert_eq!(behind(Path::new("/e/lib"), OsStr::new("/o")), "/e/lib:/o");
        assert_eq!(behind(Path::new("/e/lib"), OsStr::new("")), "/e/lib");
    }
}
