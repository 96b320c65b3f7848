//! A process's part of a checkpoint: writing it, and reading it.
//!
//! Kept true: a part appears under its name only when all of it is durable; and memory is written
//! to only when all that goes there was read, holds, and can be converted.

use crate::convert::{Conversion, ConvertError};
use crate::format::{Entry, Head, MAX_REGIONS, PREFACE_BYTES, PartError, Source, head, preface};
use crate::kind::{Kind, Order};
use crate::label::Label;
use crate::sealed::{Lock, Put, Sealing, Stored};
use eyrie_vault::record;
use eyrie_vault::seal::Key;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read, or hashed, at a time.
const STEP_BYTES: usize = 1 << 20;

/// A part that is being written: into a file, or into memory first.
pub struct Writer {
    to: To,
    sealing: Option<Sealing>,
    temporary: PathBuf,
    path: PathBuf,
    entries: Vec<Entry>,
    at: u64,
    finished: bool,
}

enum To {
    File(File),
    Memory(Vec<u8>),
}

impl Put for To {
    fn put(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let memory = match self {
            To::File(file) => return file.write_all_at(bytes, at),
            To::Memory(memory) => memory,
        };
        let long = || io::Error::from(io::ErrorKind::FileTooLarge);
        let at = usize::try_from(at).map_err(|_| long())?;
        let end = at.checked_add(bytes.len()).ok_or_else(long)?;
        if memory.len() < at {
            memory.resize(at, 0);
        }
        let known = (memory.len() - at).min(bytes.len());
        let (over, new) = bytes.split_at(known);
        memory[at..end - new.len()].copy_from_slice(over);
        memory.extend_from_slice(new);
        Ok(())
    }
}

/// Where a part is written before it is whole.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

/// Makes a file for its owner only.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Gives a file that is whole its name, durably.
pub fn publish(file: &File, temporary: &Path, path: &Path) -> io::Result<()> {
    file.sync_data()?;
    fs::rename(temporary, path)?;
    let durable = File::open(path.parent().unwrap_or(Path::new("."))).and_then(|f| f.sync_all());
    if durable.is_err() {
        // A name that may not last is none.
        let _ = fs::remove_file(path);
    }
    durable
}

impl Writer {
    pub fn create(folder: &Path, label: &Label, lock: Option<Lock>) -> io::Result<Writer> {
        let mut writer = Writer::hold(folder, label, lock);
        writer.to = To::File(create(&writer.temporary)?);
        Ok(writer)
    }

    /// One that is in memory until it is whole, and afterwards.
    pub fn hold(folder: &Path, label: &Label, lock: Option<Lock>) -> Writer {
        let path = folder.join(label.to_string());
        let temporary = temporary(&path);
        let sealing = lock.map(|lock| Sealing::new(lock, label));
        let (to, entries, at) = (To::Memory(Vec::new()), Vec::new(), PREFACE_BYTES as u64);
        Writer { to, sealing, temporary, path, entries, at, finished: false }
    }

    /// Writes what comes next.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sealing {
            Some(sealing) => sealing.write(bytes, &mut self.to)?,
            None => self.to.put(self.at, bytes)?,
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds a region: `entry` but for its checksum, and as many bytes as it says.
    pub fn add(&mut self, mut entry: Entry, bytes: &[u8]) -> io::Result<()> {
        let known = self.entries.iter().any(|e| e.kind != Kind::File && e.id == entry.id);
        if known || self.entries.len() >= MAX_REGIONS || bytes.len() as u64 != entry.bytes() {
            return Err(io::Error::other("a region twice, or too many of them"));
        }
        if let To::Memory(memory) = &mut self.to {
            memory.reserve_exact(bytes.len());
        }
        let mut sum = Xxh3::new();
        for step in bytes.chunks(STEP_BYTES) {
            sum.update(step);
            self.put(step)?;
        }
        entry.hash = sum.digest128().to_le_bytes();
        self.entries.push(entry);
        Ok(())
    }

    /// Adds a file's content.
    pub fn add_file(&mut self, name: &str, from: &Path) -> io::Result<()> {
        let (mut file, mut sum, mut count) = (File::open(from)?, Xxh3::new(), 0u64);
        let mut buffer = vec![0; STEP_BYTES];
        loop {
            let read = match file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let Some(step) = buffer.get(..read).filter(|step| !step.is_empty()) else { break };
            sum.update(step);
            self.put(step)?;
            count += step.len() as u64;
        }
        let hash = sum.digest128().to_le_bytes();
        let (kind, file) = (Kind::File, name.to_string());
        self.entries.push(Entry { id: 0, kind, size: 1, count, file, hash });
        Ok(())
    }

    /// Makes it whole, and durable unless it is in memory.
    pub fn finish(&mut self, label: &Label, ranks: u32) -> Result<PathBuf, PartError> {
        let head = Head {
            name: label.name.clone(),
            version: label.version,
            order: label.stamp.order,
            run: label.stamp.run,
            rank: label.rank,
            ranks,
            bytes: Order::OWN,
            entries: std::mem::take(&mut self.entries),
        };
        record::Record::check(&head).map_err(record::RecordError::Contradiction)?;
        let raw = record::encode(&head)?;
        let preface = preface(self.at, raw.len() as u64);
        self.put(&raw)?;
        match &mut self.sealing {
            Some(sealing) => sealing.finish(&preface, &mut self.to)?,
            None => self.to.put(0, &preface)?,
        }
        if let To::File(file) = &self.to {
            publish(file, &self.temporary, &self.path)?;
            self.finished = true;
        }
        Ok(self.path.clone())
    }

    /// The bytes of one that is in memory.
    pub fn held(&mut self) -> Option<Vec<u8>> {
        match &mut self.to {
            To::File(_) => None,
            To::Memory(memory) => Some(std::mem::take(memory)),
        }
    }
}

/// Writes a part that is whole to its place, durably.
pub fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = temporary(path);
    let mut file = create(&partial)?;
    let done = file.write_all(bytes).and_then(|()| publish(&file, &partial, path));
    if done.is_err() {
        // What went wrong is what counts.
        let _ = fs::remove_file(&partial);
    }
    done
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished && matches!(self.to, To::File(_)) {
            // What stays is removed when the next process opens the folder.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A part that is there.
pub struct Part<S = Stored> {
    source: S,
    pub head: Head,
}

/// Is told of converted bytes, in order.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]);

/// Is told of whole elements as they were stored, and the number of the first.
type Step<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), ConvertError>;

/// Why a region cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Part(#[from] PartError),
    #[error("region {0}: {1}")]
    Convert(i32, ConvertError),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Part(error.into())
    }
}

impl Part {
    /// Opens a part of a checkpoint of so many processes, with the key of what is encrypted.
    pub fn open(
        path: &Path,
        label: &Label,
        ranks: u32,
        key: Option<&Key>,
    ) -> Result<Part, PartError> {
        let part = Part::of(Stored::open(File::open(path)?, key, label)?)?;
        let (have, want) = (part.head.label(), label);
        if have != *want {
            return Err(PartError::Label { have: have.to_string(), want: want.to_string() });
        }
        match part.head.ranks {
            have if have != ranks => Err(PartError::Ranks { have, want: ranks }),
            _ => Ok(part),
        }
    }
}

impl<S: Source> Part<S> {
    pub fn of(source: S) -> Result<Part<S>, PartError> {
        Ok(Part { head: head(&source)?, source })
    }

    /// Reads all of it once, and holds it against its checksums.
    pub fn verify(&self) -> Result<(), PartError> {
        for (number, entry) in self.head.entries.iter().enumerate() {
            self.raw(number, entry, 1, &mut |_, _| Ok(())).map_err(|error| match error {
                ReadError::Part(error) => error,
                ReadError::Convert(id, _) => PartError::Region(id),
            })?;
        }
        Ok(())
    }

    /// Reads a region, as elements of the type that the conversion gives.
    pub fn read(
        &self,
        number: usize,
        conversion: &Conversion,
        sink: Sink<'_>,
    ) -> Result<(), ReadError> {
        let Some(entry) = self.head.entries.get(number) else { return Ok(()) };
        let mut out = Vec::new();
        let unit = conversion.from_bytes();
        self.raw(number, entry, unit, &mut |first, bytes| {
            if conversion.nothing() {
                sink(bytes);
                return Ok(());
            }
            conversion.run(first, bytes, &mut out)?;
            sink(&out);
            Ok(())
        })
    }

    /// Reads the content of a file.
    pub fn read_file(&self, number: usize, to: &mut dyn Write) -> Result<(), ReadError> {
        let Some(entry) = self.head.entries.get(number) else { return Ok(()) };
        let mut written = Ok(());
        self.raw(number, entry, 1, &mut |_, bytes| {
            if written.is_ok() {
                written = to.write_all(bytes);
            }
            Ok(())
        })?;
        Ok(written?)
    }

    /// Reads a region in steps of whole units, each with the number of its first element.
    fn raw(
        &self,
        number: usize,
        entry: &Entry,
        unit: usize,
        step: Step<'_>,
    ) -> Result<(), ReadError> {
        let unit = unit.max(1);
        let most = (STEP_BYTES / unit).max(1).saturating_mul(unit);
        let (start, bytes) = (self.head.place(number), entry.bytes());
        let most = most.min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut buffer = vec![0; most];
        let (mut at, mut sum) = (0u64, Xxh3::new());
        while at < bytes {
            let now = most.min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            let Some(buffer) = buffer.get_mut(..now) else { break };
            self.source.fill(start + at, buffer)?;
            sum.update(buffer);
            let done = step(at / unit as u64, buffer);
            done.map_err(|error| ReadError::Convert(entry.id, error))?;
            at += now as u64;
        }
        if sum.digest128().to_le_bytes() != entry.hash {
            return Err(PartError::Region(entry.id).into());
        }
        Ok(())
    }
}
