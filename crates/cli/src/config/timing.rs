//! Durations of jobs that files set: the table `[timing]`, whose keys are those of
//! `protocol::timing`. No command line has them: they are a site's, and not a job's.
//!
//! Kept true: what a file says is checked as it is read, by its line; each value alone, then those
//! that hold together, whichever file they come from.

use anyhow::{anyhow, bail};
use eyrie_config::file::{Entry, File, Value};
use eyrie_config::keys::like;
use eyrie_config::places::{candidates, read_all};
use eyrie_protocol::timing::{Intervals, SETTINGS, Setting, TimingError, seconds, setting};
use eyrie_terminal::units;

pub const TABLE: &str = "timing";

/// Whether it is the table of durations, or one in it.
pub fn is_table(table: &[String]) -> bool {
    table.first().is_some_and(|name| name == TABLE)
}

fn entries(files: &[File]) -> impl Iterator<Item = &Entry> {
    files.iter().flat_map(|file| &file.entries).filter(|entry| is_table(&entry.table))
}

fn value_ms(entry: &Entry) -> anyhow::Result<u64> {
    let Entry { key, value, place, .. } = entry;
    let Some(Setting { least_ms, most_ms, .. }) = setting(key) else {
        match like(key, SETTINGS.iter().map(|setting| setting.key)) {
            Some(like) => bail!("{place}: [{TABLE}] has no {key}; is it {like}?"),
            None => bail!("{place}: [{TABLE}] has no {key} (see eyrie config {TABLE})"),
        }
    };
    let Value::Word(word) = value else { bail!("{place}: {key}: write seconds, as a number") };
    let ms = units::parse_millis(word).map_err(|why| anyhow!("{place}: {key}: {why}"))?;
    if ms < *least_ms || ms > *most_ms {
        let (least, most) = (seconds(*least_ms), seconds(*most_ms));
        bail!("{place}: {key} = {word}: it takes {least} to {most} seconds");
    }
    Ok(ms)
}

/// Refuses keys that there are not, and values that none of them has.
pub fn check(file: &File) -> anyhow::Result<()> {
    if let Some((table, place)) = file.tables.iter().find(|(t, _)| is_table(t) && t.len() > 1) {
        bail!("{place}: [{}]: there is no such table", table.join("."));
    }
    entries(std::slice::from_ref(file)).try_for_each(|entry| value_ms(entry).map(|_| ()))
}

/// What says how long something is, if a file does.
pub fn entry<'a>(files: &'a [File], key: &str) -> Option<&'a Entry> {
    entries(files).find(|entry| entry.key == key)
}

/// What holds, files first that go before others.
pub fn of(files: &[File]) -> anyhow::Result<Intervals> {
    let mut intervals = Intervals::default();
    for Setting { key, .. } in SETTINGS {
        if let Some(entry) = entry(files, key) {
            intervals.set(key, value_ms(entry)?)?;
        }
    }
    let place_of = |error: &TimingError| {
        let said = error.keys().into_iter().find_map(|key| entry(files, key));
        said.map_or_else(|| format!("[{TABLE}]"), |entry| entry.place.to_string())
    };
    intervals.check().map_err(|error| anyhow!("{}: {error}", place_of(&error)))?;
    Ok(intervals)
}

/// The same of the files that there are now, which were checked when the command line was read.
pub fn read() -> anyhow::Result<Intervals> {
    of(&read_all(&candidates(), check)?)
}

/// The table of the documentation.
pub fn reference() -> String {
    let mut text =
        String::from("| key | default (s) | may be (s) | what it is |\n|---|---|---|---|\n");
    for Setting { key, about, default_ms, least_ms, most_ms, .. } in SETTINGS {
        let [default, least, most] = [default_ms, least_ms, most_ms].map(|ms| seconds(*ms));
        text.push_str(&format!("| `{key}` | {default} | {least} to {most} | {about} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn files(texts: &[&str]) -> anyhow::Result<Vec<File>> {
        let read = |text: &&str| {
            let file = File::parse(Path::new("/c.toml"), text)?;
            check(&file).map(|()| file)
        };
        texts.iter().map(read).collect()
    }

    fn said(texts: &[&str]) -> Result<Intervals, String> {
        files(texts).and_then(|files| of(&files)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_that_goes_before_others_says_how_long_something_is() {
        let own = "[timing]\nend = 3\nlease = \"4s\"\n";
        let site = "[timing]\nend = 9\nheartbeat = 0.05\n[run]\ntls = true\n";
        let held = said(&[own, site]).unwrap();
        assert_eq!(
            (held.grace.end_ms, held.lease.lease_ms, held.detector.heartbeat_ms),
            (3_000, 4_000, 50)
        );
        assert_eq!(said(&[]), Ok(Intervals::default()));
    }

    #[test]
    fn nonsense_is_refused_by_its_line() {
        for (text, why) in [
            ("[timing]\nend = 0", "/c.toml, line 2: end = 0: it takes 0.1 to 3600 seconds"),
            ("[timing]\nend = -1", "/c.toml, line 2: end: '-1' is no time"),
            ("[timing]\nend = true", "/c.toml, line 2: end: write seconds, as a number"),
            (
                "[timing]\n\nheartbeats = 1",
                "/c.toml, line 3: [timing] has no heartbeats; is it heartbeat?",
            ),
            ("[timing]\nzebra = 1", "see eyrie config timing"),
            (
                "[timing.detector]\nheartbeat = 1",
                "/c.toml, line 1: [timing.detector]: there is no such table",
            ),
            (
                "[timing]\nheartbeat = 1",
                "/c.toml, line 2: heartbeat = 1 is too long for silence-least = 2",
            ),
            ("[timing]\nlease = 2.5", "/c.toml, line 2: lease = 2.5: write whole seconds"),
        ] {
            let told = said(&[text]).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        // Of two files, the one that can be mended.
        let told = said(&["[timing]\nend = 1\nsilence-least = 0.5", "[timing]\nheartbeat = 0.1"]);
        assert!(told.unwrap_err().starts_with("/c.toml, line 2: heartbeat = 0.1"));
    }
}
