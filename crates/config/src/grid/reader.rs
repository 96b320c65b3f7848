//! Tables of a grid file, read key by key, with the line of each.

use crate::file::{File, Lines, Position, Value, value_of};
use crate::keys::like;
use anyhow::{anyhow, bail};
use eyrie_terminal::units::parse_millis;
use std::path::Path;
use toml_edit::{Document, Item, TableLike};

/// What a table of the file is read with.
pub struct Tables<'a> {
    lines: Lines<'a>,
}

/// A table, and where it is.
pub struct Fields<'a> {
    lines: &'a Lines<'a>,
    table: &'a dyn TableLike,
    /// As it is written between brackets.
    pub path: String,
    pub place: Position,
}

/// Reads the text as TOML.
pub fn document<'a>(path: &Path, text: &'a str) -> anyhow::Result<Document<&'a str>> {
    Document::parse(text).map_err(|error| {
        let place = Lines::new(path, text).at(error.span());
        let message = error.message();
        match message.contains("duplicate key") {
            true => anyhow!("{place}: {message}: two clusters, or two keys, have one name"),
            false => anyhow!("{place}: {message}"),
        }
    })
}

impl<'a> Tables<'a> {
    pub fn new(path: &Path, text: &'a str) -> Tables<'a> {
        Tables { lines: Lines::new(path, text) }
    }

    /// The whole file.
    pub fn top(&'a self, table: &'a dyn TableLike) -> Fields<'a> {
        Fields { lines: &self.lines, table, path: String::new(), place: self.lines.at(None) }
    }
}

impl<'a> Fields<'a> {
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Where a key stands.
    pub fn at(&self, key: &str) -> Position {
        let found = self.table.get_key_value(key);
        let span = found.and_then(|(key, item)| key.span().or_else(|| item.span()));
        span.map_or_else(|| self.place.clone(), |span| self.lines.at(Some(span)))
    }

    pub fn keys(&self) -> Vec<String> {
        self.table.iter().map(|(key, _)| key.to_string()).collect()
    }

    /// Refuses other keys than these.
    pub fn known(&self, names: &[&str]) -> anyhow::Result<()> {
        let keys = self.keys();
        let Some(key) = keys.iter().find(|key| !names.contains(&key.as_str())) else {
            return Ok(());
        };
        let place = self.at(key);
        let whose = match self.path.as_str() {
            "" => String::from("the file"),
            path => format!("[{path}]"),
        };
        match like(key, names.iter().copied()) {
            Some(like) => bail!("{place}: {whose} has no key {key}; is it {like}?"),
            None => bail!("{place}: {whose} has no key {key}: it has {}", names.join(", ")),
        }
    }

    /// The last part of its path.
    pub fn name(&self) -> anyhow::Result<String> {
        let name = self.path.rsplit('.').next().unwrap_or_default();
        let odd = |c: char| !(c.is_alphanumeric() || "-_".contains(c));
        if name.is_empty() || name.contains(odd) {
            bail!("{}: '{name}' is no name: write letters, digits, - and _", self.place);
        }
        Ok(name.to_string())
    }

    fn value(&self, key: &str) -> anyhow::Result<Option<Value>> {
        let Some(item) = self.table.get(key) else { return Ok(None) };
        let place = self.at(key);
        let Item::Value(value) = item else {
            bail!("{place}: {key}: write a value, not a table");
        };
        value_of(value).map(Some).map_err(|why| anyhow!("{place}: {key}: {why}"))
    }

    /// A text; a number counts as one.
    pub fn word(&self, key: &str) -> anyhow::Result<Option<String>> {
        match self.value(key)? {
            None => Ok(None),
            Some(Value::Word(word)) if !word.is_empty() || self.path == "environment" => {
                Ok(Some(word))
            }
            Some(_) => bail!("{}: {key}: write a text in quotation marks", self.at(key)),
        }
    }

    /// Several of them, or one.
    pub fn words(&self, key: &str) -> anyhow::Result<Option<Vec<String>>> {
        let place = self.at(key);
        match self.value(key)? {
            None => Ok(None),
            Some(Value::Word(word)) => Ok(Some(vec![word])),
            Some(Value::List(words)) => Ok(Some(words)),
            Some(Value::Flag(_)) => bail!("{place}: {key}: write a list: [\"a\", \"b\"]"),
        }
    }

    /// A number from 1 on.
    pub fn number(&self, key: &str) -> anyhow::Result<Option<u32>> {
        let Some(word) = self.word(key)? else { return Ok(None) };
        match word.parse::<u32>() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => bail!("{}: {key} = {word}: write a number from 1 on", self.at(key)),
        }
    }

    pub fn real(&self, key: &str) -> anyhow::Result<Option<f64>> {
        let Some(word) = self.word(key)? else { return Ok(None) };
        match word.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => bail!("{}: {key} = {word}: write a number", self.at(key)),
        }
    }

    /// Milliseconds of a time with a unit.
    pub fn millis(&self, key: &str) -> anyhow::Result<Option<f64>> {
        let Some(word) = self.word(key)? else { return Ok(None) };
        let micros = word.strip_suffix("us").and_then(|word| word.parse::<f64>().ok());
        if let Some(micros) = micros.filter(|micros| *micros >= 0.0) {
            return Ok(Some(micros / 1e3));
        }
        let parsed = match word.ends_with("ms") {
            true => word[..word.len() - 2].parse::<f64>().ok().filter(|ms| *ms >= 0.0),
            false if word.ends_with(|c: char| c.is_ascii_digit()) => None,
            false => parse_millis(&word).ok().map(|ms| ms as f64),
        };
        let place = self.at(key);
        parsed.map(Some).ok_or_else(|| {
            anyhow!("{place}: {key} = {word}: write a time with its unit, as \"10ms\"")
        })
    }

    fn inner(&self, key: &str, item: &'a Item) -> anyhow::Result<Fields<'a>> {
        let place = self.at(key);
        let Some(table) = item.as_table_like() else {
            bail!("{place}: {key}: write [{}]", self.path_of(key));
        };
        Ok(Fields { lines: self.lines, table, path: self.path_of(key), place })
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_string(),
            path => format!("{path}.{key}"),
        }
    }

    pub fn table(&self, key: &str) -> anyhow::Result<Option<Fields<'a>>> {
        self.table.get(key).map(|item| self.inner(key, item)).transpose()
    }

    /// The tables in a table.
    pub fn tables(&self, key: &str) -> anyhow::Result<Vec<Fields<'a>>> {
        let Some(around) = self.table(key)? else { return Ok(Vec::new()) };
        around.table.iter().map(|(key, item)| around.inner(key, item)).collect()
    }

    /// The tables of `[[key]]`.
    pub fn array(&self, key: &str) -> anyhow::Result<Vec<Fields<'a>>> {
        let Some(item) = self.table.get(key) else { return Ok(Vec::new()) };
        let Some(all) = item.as_array_of_tables() else {
            bail!("{}: {key}: write [[{key}]], with two pairs of brackets", self.at(key));
        };
        let of = |table: &'a toml_edit::Table| {
            let place = self.lines.at(table.span());
            Fields { lines: self.lines, table, path: key.to_string(), place }
        };
        Ok(all.iter().map(of).collect())
    }

    /// A table as one of a configuration file, alone.
    pub fn file(&self, key: &str) -> anyhow::Result<File> {
        let mut file = File::default();
        if let Some(fields) = self.table(key)? {
            file.tables.push((vec![key.to_string()], fields.place.clone()));
            self.lines.table(&[key.to_string()], fields.table, &mut file)?;
        }
        Ok(file)
    }
}
