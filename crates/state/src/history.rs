//! `$EYRIE_HOME/history`: what is known of jobs when their folders are gone.
//!
//! Kept true: a record is written by its job's controller alone, when it begins and when it ends;
//! nothing in it is needed to run a job, so a record that cannot be written or read never stops
//! one. What another user could have put there is neither read nor removed, and files are read up
//! to a size. All records together are bounded, in number, bytes and age.

use crate::home::{self, HomeError};
use crate::samples::{self, Traffic};
use crate::wall_clock::now_unix_ms;
use eyrie_control::{Account, Event, EventKind, JobSpec, JobStatus};
use eyrie_image::{Untrusted, check_private};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folders of records, one a job.
const HISTORY: &str = "history";
const RECORD: &str = "record.json";
const STATUS: &str = "status.json";
const FORMAT: u32 = 1;

/// How long records are kept.
pub const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How many are, and how large they are together.
const MOST_RECORDS: usize = 1000;
const MOST_BYTES: u64 = 256 << 20;
/// Most bytes of a record, of a last status, of events.
const RECORD_BYTES: u64 = 64 << 10;
const STATUS_BYTES: u64 = 16 << 20;
const EVENTS_BYTES: usize = 4 << 20;
/// Most bytes of the arguments that are noted.
const ARGS_BYTES: usize = 8 << 10;

/// Clocks that differ by less are one.
const SAME_MS: u64 = 1000;
/// Most times that a job goes on of which the times are known.
const MOST_CLOCKS: usize = 100;

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub format: u32,
    pub job: String,
    pub name: Option<String>,
    pub program: String,
    /// Cut off where they are long.
    pub args: Vec<String>,
    pub size: u32,
    pub ft: String,
    /// 0: the controller was the only one.
    pub nodes: u32,
    pub begun_unix_ms: u64,
    /// When it began, and each time that it went on: how far it was, and when it would have begun
    /// if it had run all the while.
    pub clocks: Vec<Clock>,
    /// None: it runs, or nobody could write down how it ended.
    pub ended_unix_ms: Option<u64>,
    pub exit_code: Option<i32>,
    /// How long it ran.
    pub took_ms: u64,
    /// Messages that ranks sent, and their bytes, and whether they were logged.
    pub messages: u64,
    pub message_bytes: u64,
    pub logged: bool,
    /// Of its events, so many are not in the record.
    pub events_left_out: u64,
    pub account: Account,
    /// What ranks are told of clusters, and of the order of reductions (`EYRIE_RANK_CLUSTERS`,
    /// `EYRIE_REDUCE_ORDER`); empty: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rank_clusters: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reduce_order: String,
}

/// From when on which wall clock holds for the times of events.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    pub from_ms: u64,
    pub zero_unix_ms: u64,
}

impl Record {
    /// When that was, by the wall clock.
    pub fn unix_ms(&self, ms: f64) -> u64 {
        let holds = self.clocks.iter().rev().find(|clock| clock.from_ms as f64 <= ms);
        holds.map_or(self.begun_unix_ms, |clock| clock.zero_unix_ms) + ms.max(0.0) as u64
    }
}

/// A record that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub record: Record,
    pub folder: PathBuf,
}

/// Why a record is not read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    #[error("{0} is no regular file")]
    Kind(PathBuf),
    #[error("{0} is larger than a record can be ({1} bytes)")]
    Large(PathBuf, u64),
    #[error("{0} does not decode: {1}")]
    Malformed(PathBuf, String),
}

/// The record's folder of the job with this folder.
fn beside(job: &Path) -> Option<PathBuf> {
    Some(job.parent()?.parent()?.join(HISTORY).join(job.file_name()?))
}

fn bounded(args: &[Vec<u8>]) -> Vec<String> {
    let mut left = ARGS_BYTES;
    let mut words = Vec::new();
    for word in args {
        let word = String::from_utf8_lossy(word);
        if word.len() > left {
            words.push(String::from("..."));
            break;
        }
        left -= word.len();
        words.push(word.into_owned());
    }
    words
}

/// Reads a file of a record, if nobody else can have written it.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, RecordError> {
    check_private(path)?;
    let io = |error| RecordError::Io(path.into(), error);
    // Neither a link, nor what blocks who opens it.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    if !meta.is_file() {
        return Err(RecordError::Kind(path.into()));
    }
    if meta.len() > most {
        return Err(RecordError::Large(path.into(), most));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

fn read_record(folder: &Path) -> Result<Record, RecordError> {
    check_private(folder)?;
    let path = folder.join(RECORD);
    let bytes = read(&path, RECORD_BYTES)?;
    let malformed = |why: String| RecordError::Malformed(path.clone(), why);
    let record: Record = serde_json::from_slice(&bytes).map_err(|e| malformed(e.to_string()))?;
    if record.format != FORMAT {
        return Err(malformed(format!("it has format {}, not {FORMAT}", record.format)));
    }
    if folder.file_name().is_none_or(|name| name != record.job.as_str()) {
        return Err(malformed(format!("it is of job {}", record.job)));
    }
    Ok(record)
}

impl Found {
    /// How the job was when it ended.
    pub fn status(&self) -> Result<JobStatus, RecordError> {
        let path = self.folder.join(STATUS);
        let bytes = read(&path, STATUS_BYTES)?;
        serde_json::from_slice(&bytes).map_err(|e| RecordError::Malformed(path, e.to_string()))
    }

    /// What happened in it.
    pub fn events(&self) -> Result<Vec<Event>, RecordError> {
        let path = self.folder.join(home::EVENTS);
        let bytes = read(&path, EVENTS_BYTES as u64)?;
        let text = String::from_utf8_lossy(&bytes);
        let event = |line: &str| serde_json::from_str(line);
        let events: Result<Vec<Event>, _> = text.lines().map(event).collect();
        events.map_err(|e| RecordError::Malformed(path, e.to_string()))
    }
}

/// All records, oldest first, and those that are not read, with the reason.
pub fn all(home: &Path) -> (Vec<Found>, Vec<RecordError>) {
    let history = home.join(HISTORY);
    if let Err(why) = check_private(&history) {
        return (Vec::new(), vec![why.into()]);
    }
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(history).into_iter().flatten().flatten() {
        let folder = entry.path();
        // One that is being written.
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match read_record(&folder) {
            Ok(record) => found.push(Found { record, folder }),
            Err(why) => refused.push(why),
        }
    }
    found.sort_by_key(|it| (it.record.begun_unix_ms, it.record.job.clone()));
    (found, refused)
}

/// The record of the job with this id.
pub fn of(home: &Path, id: &str) -> Option<Found> {
    let plain = Path::new(id).file_name().is_some_and(|last| last == id);
    let folder = home.join(HISTORY).join(id);
    if !plain || check_private(&home.join(HISTORY)).is_err() {
        return None;
    }
    let record = read_record(&folder).ok()?;
    Some(Found { record, folder })
}

/// The name that was given to a job.
pub fn name_of(home: &Path, id: &str) -> Option<String> {
    of(home, id)?.record.name
}

/// The job that has ended and is called `name`: an id, a name (the newest that has it), the
/// beginning of an id, or `last`.
pub fn find(home: &Path, name: &str) -> Result<Found, HomeError> {
    let (mut all, refused) = all(home);
    let missing = || HomeError::NoJob(name.to_string());
    // Whoever asks for one by its name is told why it is not read.
    let meant = |why: &&RecordError| why.to_string().contains(&format!("/{HISTORY}/{name}"));
    if let Some(why) = refused.iter().find(meant) {
        return Err(HomeError::Record(why.to_string()));
    }
    if name == "last" {
        return all.pop().ok_or_else(missing);
    }
    let exact = all.iter().position(|it| it.record.job == name);
    let named = || all.iter().rposition(|it| it.record.name.as_deref() == Some(name));
    if let Some(at) = exact.or_else(named) {
        return Ok(all.swap_remove(at));
    }
    all.retain(|it| !name.is_empty() && it.record.job.starts_with(name));
    if all.len() > 1 {
        let names: Vec<&str> = all.iter().map(|it| it.record.job.as_str()).collect();
        return Err(HomeError::Ambiguous(name.to_string(), names.join(", ")));
    }
    all.pop().ok_or_else(missing)
}

/// Whether a new job may not have this id: an old one is known by it.
pub fn has(home: &Path, id: &str) -> bool {
    home.join(HISTORY).join(id).symlink_metadata().is_ok()
}

/// Notes that a job begins, or goes on.
pub fn begin(job: &Path, id: &str, spec: &JobSpec, begun_unix_ms: u64) -> Result<(), RecordError> {
    let Some(folder) = beside(job) else { return Ok(()) };
    prepare(&folder)?;
    let before = read_record(&folder).ok();
    let mut clocks = before.as_ref().map(|r| r.clocks.clone()).unwrap_or_default();
    let clock =
        Clock { from_ms: now_unix_ms().saturating_sub(begun_unix_ms), zero_unix_ms: begun_unix_ms };
    let known = clocks.last().map(|last| last.zero_unix_ms.abs_diff(begun_unix_ms));
    match known {
        None => clocks.push(Clock { from_ms: 0, ..clock }),
        Some(off) if off > SAME_MS && clocks.len() < MOST_CLOCKS => clocks.push(clock),
        // Another controller of the same run.
        Some(_) => {}
    }
    // The environment of the job is this daemon's; that of one that takes over may lack them.
    let told = |name: &str, known: fn(&Record) -> &String| {
        let before = before.as_ref().map(|r| known(r).clone()).unwrap_or_default();
        std::env::var(name).unwrap_or(before)
    };
    let rank_clusters = told("EYRIE_RANK_CLUSTERS", |r| &r.rank_clusters);
    let reduce_order = told("EYRIE_REDUCE_ORDER", |r| &r.reduce_order);
    let record = Record {
        format: FORMAT,
        job: id.to_string(),
        name: spec.program.name.clone(),
        program: String::from_utf8_lossy(&spec.program.path).into_owned(),
        args: bounded(spec.program.argv.get(1..).unwrap_or_default()),
        size: spec.program.size,
        ft: spec.mode().to_string(),
        nodes: spec.placement.nodes + spec.placement.spares,
        begun_unix_ms: before.as_ref().map_or(begun_unix_ms, |r| r.begun_unix_ms),
        clocks,
        ended_unix_ms: None,
        exit_code: None,
        took_ms: 0,
        messages: 0,
        message_bytes: 0,
        logged: spec.protection.ft.logs(),
        events_left_out: 0,
        account: before.map(|r| r.account).unwrap_or_default(),
        rank_clusters,
        reduce_order,
    };
    write_record(&folder, &record)
}

/// Notes how it ended.
pub fn end(
    job: &Path,
    status: &JobStatus,
    account: &Account,
    traffic: Option<&Traffic>,
) -> Result<(), RecordError> {
    let Some(folder) = beside(job) else { return Ok(()) };
    prepare(&folder)?;
    let Ok(mut record) = read_record(&folder) else { return Ok(()) };
    record.ended_unix_ms = Some(now_unix_ms());
    record.exit_code = status.exit_code;
    record.took_ms = status.uptime_ms;
    record.messages = status.ranks.iter().map(|r| r.messages_sent).sum();
    record.message_bytes = status.ranks.iter().map(|r| r.bytes_sent).sum();
    record.account = account.clone();
    let (events, left_out) = short_events(&job.join(home::EVENTS));
    record.events_left_out = left_out;
    write(&folder, home::EVENTS, &events)?;
    let text = serde_json::to_vec(status).unwrap_or_default();
    write(&folder, STATUS, &text)?;
    samples::keep(&folder, job, traffic)?;
    // The last: with it the others count.
    write_record(&folder, &record)?;
    if let Some(home) = folder.parent().and_then(Path::parent) {
        prune(home, KEPT, &mut |_| {});
    }
    Ok(())
}

/// What fits of a job's events, and how many do not: first those of checkpoints, then the oldest.
fn short_events(path: &Path) -> (Vec<u8>, u64) {
    let text = fs::read(path).unwrap_or_default();
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<&[u8]> = text[..whole].split_inclusive(|b| *b == b'\n').collect();
    if whole <= EVENTS_BYTES {
        return (text[..whole].to_vec(), 0);
    }
    let often = [EventKind::Checkpointing, EventKind::Checkpointed, EventKind::Copied];
    let rare = |line: &&&[u8]| {
        serde_json::from_slice::<Event>(line).is_ok_and(|event| !often.contains(&event.event))
    };
    let mut room = EVENTS_BYTES;
    let newest = lines.iter().filter(rare).rev();
    let mut kept: Vec<&[u8]> = newest
        .copied()
        .take_while(|line| {
            let fits = line.len() <= room;
            room = room.saturating_sub(line.len());
            fits
        })
        .collect();
    kept.reverse();
    (kept.concat(), (lines.len() - kept.len()) as u64)
}

/// The folder of a record, which nobody else may write to.
fn prepare(folder: &Path) -> Result<(), RecordError> {
    let history = folder.parent().unwrap_or(folder);
    for path in [history, folder] {
        check_private(path)?;
        home::private_dir(path).map_err(|error| match error {
            HomeError::Io(path, error) => RecordError::Io(path, error),
            other => RecordError::Malformed(path.into(), other.to_string()),
        })?;
    }
    Ok(())
}

fn write_record(folder: &Path, record: &Record) -> Result<(), RecordError> {
    let text = serde_json::to_vec_pretty(record).unwrap_or_default();
    write(folder, RECORD, &text)
}

/// A file of the record is there whole, or as it was before.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
    let (path, part) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = create(&part).and_then(|mut file| file.write_all(bytes));
    let moved = written.and_then(|()| fs::rename(&part, &path));
    moved.map_err(|error| RecordError::Io(path, error))
}

/// A file for its owner alone.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Removes one. Not what somebody else could have put there.
pub fn remove(folder: &Path) -> Result<(), RecordError> {
    check_private(folder)?;
    fs::remove_dir_all(folder).map_err(|error| RecordError::Io(folder.into(), error))
}

fn bytes_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.size())).sum()
}

/// Removes records that are older, and the oldest where there are too many; never those of jobs
/// that have a folder. Tells which.
pub fn prune(home: &Path, older: Duration, tell: &mut dyn FnMut(&Found)) {
    let oldest = now_unix_ms().saturating_sub(older.as_millis() as u64);
    let there = |it: &Found| home.join(home::JOBS).join(&it.record.job).exists();
    let (mut count, mut bytes) = (0, 0);
    for it in all(home).0.into_iter().rev().filter(|it| !there(it)) {
        count += 1;
        bytes += bytes_of(&it.folder);
        let at = it.record.ended_unix_ms.unwrap_or(it.record.begun_unix_ms);
        let surplus = at < oldest || count > MOST_RECORDS || bytes > MOST_BYTES;
        if surplus && remove(&it.folder).is_ok() {
            tell(&it);
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
