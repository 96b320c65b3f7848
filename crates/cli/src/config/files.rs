//! The files that there are, and what holds for a command.

use crate::config::{options, timing};
use clap::Command;
use eyrie_config::file::{Entry, File, Value, first_of_each, top};
use eyrie_config::places::{Candidate, absolute, candidates, read_all};
use eyrie_config::typed;
use std::path::PathBuf;

/// Reads and checks all files; returns how many there are.
pub fn check(all: &Command) -> anyhow::Result<usize> {
    Files::load(all).map(|files| files.files.len())
}

/// What the files say.
#[derive(Debug, Default)]
pub struct Files {
    /// Those that are there, those first that go before others.
    pub files: Vec<File>,
}

impl Files {
    /// Reads and checks all files.
    pub fn load(all: &Command) -> anyhow::Result<Files> {
        Files::of(all, &candidates())
    }

    pub fn of(all: &Command, candidates: &[Candidate]) -> anyhow::Result<Files> {
        let files = read_all(candidates, |file| options::check(all, file))?;
        timing::of(&files)?;
        Ok(Files { files })
    }

    /// What holds for a command: of each option the entry that goes before others.
    pub fn of_command<'a>(&'a self, all: &Command, path: &[String]) -> Vec<Entry> {
        let Some(command) = options::command(all, path) else { return Vec::new() };
        let has = |key: &str| options::option(command, key).is_some();
        let own = |e: &&Entry| !path.is_empty() && e.table == path;
        let shared = |e: &&Entry| options::is_shared(&e.table, path, &e.key) && has(&e.key);
        let of = |file: &'a File| {
            let all = || file.entries.iter();
            all().filter(own).chain(all().filter(shared))
        };
        let local = self.top("local").filter(|_| has("local"));
        first_of_each(self.files.iter().flat_map(of).chain(local))
    }

    /// What is wrong with values that their options do not take.
    pub fn refusals(&self, all: &Command) -> Vec<anyhow::Error> {
        let entries = self.files.iter().flat_map(|file| &file.entries);
        entries.filter_map(|entry| typed::refusal(all, entry)).collect()
    }

    /// A key that stands in no table.
    pub fn top(&self, key: &str) -> Option<&Entry> {
        top(&self.files, key)
    }

    /// A folder of such a key: by an absolute path.
    pub fn folder(&self, key: &str) -> anyhow::Result<Option<PathBuf>> {
        let Some(Entry { value: Value::Word(word), place, .. }) = self.top(key) else {
            return Ok(None);
        };
        absolute(word, place, key).map(Some)
    }
}
