//! A configuration file: its values, each with the line that it stands in.
//!
//! Kept true: a file that another user could have written is not read; nothing of it is passed over
//! in silence.

use anyhow::{anyhow, bail};
use eyrie_image::{Untrusted, check_private_home, read_plain};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use toml_edit::{Document, Item, TableLike, Value as Toml};

/// Most bytes of a file.
const MAX_BYTES: u64 = 1 << 20;

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub file: Rc<Path>,
    pub line: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file.display(), self.line)
    }
}

/// What stands behind a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Flag(bool),
    Word(String),
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Word(word) => f.write_str(word),
            Value::List(words) => f.write_str(&words.join(", ")),
        }
    }
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The tables around it: those of a command and its subcommand; empty: at the top.
    pub table: Vec<String>,
    pub key: String,
    pub value: Value,
    pub place: Position,
}

/// A file, and the tables that it has.
#[derive(Debug, Default)]
pub struct File {
    pub entries: Vec<Entry>,
    /// All tables, also empty ones.
    pub tables: Vec<(Vec<String>, Position)>,
}

/// Of each key the entry that comes first.
pub fn first_of_each<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    for entry in entries {
        if !found.iter().any(|f| f.key == entry.key) {
            found.push(entry.clone());
        }
    }
    found
}

/// A key that stands in no table, of the file that goes before others.
pub fn top<'a>(files: &'a [File], key: &str) -> Option<&'a Entry> {
    let mut all = files.iter().flat_map(|file| &file.entries);
    all.find(|entry| entry.table.is_empty() && entry.key == key)
}

impl File {
    /// Reads a file. None: there is none.
    pub fn read(path: &Path) -> anyhow::Result<Option<File>> {
        if path == Path::new("/dev/null") {
            return Ok(Some(File::default()));
        }
        File::text(path)?.map(|text| File::parse(path, &text)).transpose()
    }

    /// The text of a file that nobody else could have written. None: there is none.
    pub fn text(path: &Path) -> anyhow::Result<Option<String>> {
        let named = |why: String| anyhow!("{}: {why}", path.display());
        if !path.try_exists().map_err(|e| named(e.to_string()))? {
            return Ok(None);
        }
        check_private_home(path).map_err(untrusted)?;
        let bytes = read_plain(path, MAX_BYTES).map_err(|e| named(e.to_string()))?;
        String::from_utf8(bytes).map(Some).map_err(|_| named("is no text (UTF-8)".into()))
    }

    /// Adds a value.
    pub fn put(&mut self, table: &str, key: &str, word: String, place: Position) {
        let (table, key, value) = (vec![table.into()], key.into(), Value::Word(word));
        self.entries.push(Entry { table, key, value, place });
    }

    /// Switches something on.
    pub fn put_flag(&mut self, table: &str, key: &str, place: Position) {
        let (table, key, value) = (vec![table.into()], key.into(), Value::Flag(true));
        self.entries.push(Entry { table, key, value, place });
    }

    /// The content of a file.
    pub fn parse(path: &Path, text: &str) -> anyhow::Result<File> {
        let lines = Lines::new(path, text);
        let document = Document::parse(text).map_err(|error| {
            let place = lines.at(error.span());
            anyhow!("{place}: {}", error.message())
        })?;
        let mut file = File::default();
        lines.table(&[], document.as_table(), &mut file)?;
        Ok(file)
    }
}

fn untrusted(why: Untrusted) -> anyhow::Error {
    match why {
        Untrusted::Owner { path, owner, .. } => anyhow!(
            "{} belongs to user {owner}, neither to you nor to root: it is not read. Have a file \
             of your own (EYRIE_CONFIG=FILE)",
            path.display()
        ),
        Untrusted::Mode { path, mode } => anyhow!(
            "{path} can be written to by others (mode {mode:04o}): it is not read. Look whether it \
             says what it should, then: chmod go-w '{path}'",
            path = path.display()
        ),
        Untrusted::Around { path, folder, mode } => anyhow!(
            "{} lies in {folder}, where everybody can replace it (mode {mode:04o}): it is not \
             read. Put it elsewhere (EYRIE_CONFIG=FILE), or: chmod o-w '{folder}'",
            path.display(),
            folder = folder.display()
        ),
        other => other.into(),
    }
}

/// A text, and the file that it is of.
pub(crate) struct Lines<'a> {
    file: Rc<Path>,
    text: &'a str,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(path: &Path, text: &'a str) -> Lines<'a> {
        Lines { file: Rc::from(path), text }
    }

    pub(crate) fn at(&self, span: Option<Range<usize>>) -> Position {
        let start = span.map_or(0, |span| span.start).min(self.text.len());
        let before = self.text.as_bytes().iter().take(start);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        Position { file: Rc::clone(&self.file), line }
    }

    pub(crate) fn table(
        &self,
        path: &[String],
        table: &dyn TableLike,
        to: &mut File,
    ) -> anyhow::Result<()> {
        for (key, item) in table.iter() {
            let span = table.get_key_value(key).and_then(|(key, _)| key.span());
            let place = self.at(span.or_else(|| item.span()));
            if let Some(inner) = item.as_table_like() {
                let inner_path: Vec<String> = path.iter().cloned().chain([key.into()]).collect();
                to.tables.push((inner_path.clone(), place));
                self.table(&inner_path, inner, to)?;
                continue;
            }
            let Item::Value(value) = item else {
                bail!("{place}: {key}: write [{key}], with one pair of brackets");
            };
            let value = value_of(value).map_err(|why| anyhow!("{place}: {key}: {why}"))?;
            to.entries.push(Entry { table: path.to_vec(), key: key.into(), value, place });
        }
        Ok(())
    }
}

pub(crate) fn value_of(value: &Toml) -> Result<Value, String> {
    match value {
        Toml::Boolean(flag) => Ok(Value::Flag(*flag.value())),
        Toml::Array(all) => all.iter().map(word_of).collect::<Result<_, _>>().map(Value::List),
        one => word_of(one).map(Value::Word),
    }
}

fn word_of(value: &Toml) -> Result<String, String> {
    match value {
        Toml::String(text) => Ok(text.value().clone()),
        Toml::Integer(number) => Ok(number.value().to_string()),
        Toml::Float(number) => Ok(number.value().to_string()),
        other => Err(format!(
            "{} is nothing that an option takes: write a text in quotation marks, or a number",
            other.type_name()
        )),
    }
}
