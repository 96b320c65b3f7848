//! A job that is saved as a whole, in its folder: what its controller knew. What the ranks knew is
//! in their images, what they had said to each other in the segment's file beside these. Bytes in
//! `docs/formats/state.md`.
//!
//! Kept true: the file is there whole or not at all, and its content is under a checksum; it
//! appears when all that it names is on disk.

use crate::home;
use eyrie_control::{JobSpec, Older, Stored};
use eyrie_protocol::image_references::ImageReferences;
use eyrie_protocol::output::Tape;
use eyrie_protocol::retention::Retention;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Exit code of a job that is saved and has ended: that of a program which has checkpointed itself,
/// for HTCondor.
pub const EXIT_CODE: i32 = 85;

const MAGIC: [u8; 8] = *b"EYRIEJOB";
const VERSION: u32 = 18;
/// The one before, whose job knows no network; it is read as well.
const OLDER: u32 = 17;
const HEADER_BYTES: usize = 40;
/// A length that is not believed.
const MAX_BYTES: u64 = 1 << 36;

/// One rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedRank {
    /// It had ended.
    pub gone: bool,
    pub tapes: [Tape; 2],
    pub retention: Retention,
    pub recoveries: u64,
    /// Over nodes: all that was recorded of it, from this position on.
    pub words: Option<(u64, Vec<u64>)>,
}

/// A job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedJob {
    pub spec: JobSpec,
    /// Where and with which environment it was started.
    pub working_folder: Vec<u8>,
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// How often it was saved; the number in the name of the segment's file.
    pub number: u32,
    pub ranks: Vec<SavedRank>,
    pub loans: ImageReferences,
    /// Bytes of standard input that are known, and whether these are all.
    pub input: (u64, bool),
    pub input_hash: crate::stdin_file::Hash,
    pub elapsed_ms: u64,
    pub recoveries: u64,
    pub rollbacks: u64,
    /// JSON of its last status.
    pub status: Vec<u8>,
    /// Files of images that are in an object store, and not beside this.
    pub stored: Option<Stored>,
}

/// Why a saved job cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SavedJobError {
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    #[error("{0}: not a saved job")]
    NotAJob(PathBuf),
    #[error("{0}: saved by another release (format {1}, this one knows {VERSION})")]
    Version(PathBuf, u32),
    #[error("{0}: it is damaged, its checksum does not hold")]
    Damaged(PathBuf),
}

/// Beginning of the names of the segment's files among the images.
const SEGMENT: &str = "segment.";

/// Name of the segment's file among the images.
pub fn segment_name(number: u32) -> String {
    format!("{SEGMENT}{number}")
}

/// Whether a file is one of those.
pub fn is_segment(name: &str) -> bool {
    name.starts_with(SEGMENT)
}

impl SavedJob {
    /// Writes it into the folder of the job, in place of the one before.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let content = postcard::to_stdvec(self).map_err(io::Error::other)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&hash(&content));
        let unborn = folder.join(format!(".{}.part", home::SAVED));
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unborn)?;
        file.write_all(&bytes)?;
        file.write_all(&content)?;
        file.sync_all()?;
        std::fs::rename(&unborn, folder.join(home::SAVED))?;
        File::open(folder)?.sync_all()
    }

    /// Keeps a copy of what is saved in the folder of a job, if anything is, for `take_back`.
    pub fn set_aside(folder: &Path) -> io::Result<()> {
        let unborn = folder.join(format!(".{}.part", home::SAVED_BEFORE));
        match std::fs::copy(folder.join(home::SAVED), &unborn) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            copied => copied?,
        };
        File::open(&unborn)?.sync_all()?;
        std::fs::rename(&unborn, folder.join(home::SAVED_BEFORE))
    }

    /// What is saved cannot be used: what was set aside is put in its place, if it has this number.
    /// Else nothing is saved.
    pub fn take_back(folder: &Path, number: Option<u32>) -> io::Result<()> {
        let (saved, before) = (folder.join(home::SAVED), folder.join(home::SAVED_BEFORE));
        let kept = SavedJob::read_from(before.clone()).ok().map(|job| job.number);
        match kept.is_some() && kept == number {
            true => std::fs::rename(before, saved)?,
            false => std::fs::remove_file(saved)?,
        }
        File::open(folder)?.sync_all()
    }

    /// Reads what is saved in the folder of a job.
    pub fn read(folder: &Path) -> Result<SavedJob, SavedJobError> {
        SavedJob::read_from(folder.join(home::SAVED))
    }

    fn read_from(path: PathBuf) -> Result<SavedJob, SavedJobError> {
        let failed = |error| SavedJobError::Io(path.clone(), error);
        let mut file = eyrie_image::open_plain(&path).map_err(failed)?;
        let there = file.metadata().map_err(failed)?.len();
        let mut header = [0; HEADER_BYTES];
        let begun = file.read_exact(&mut header);
        if begun.is_err() || header[..8] != MAGIC {
            return Err(SavedJobError::NotAJob(path));
        }
        let number = |at: usize, n: usize| {
            header[at..at + n].iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b))
        };
        let version = number(8, 4) as u32;
        if ![OLDER, VERSION].contains(&version) {
            return Err(SavedJobError::Version(path, version));
        }
        let length = number(16, 8);
        let whole = length < MAX_BYTES && number(12, 4) == 0;
        // Nothing is read that is not as long as it says.
        if !whole || there != HEADER_BYTES as u64 + length {
            return Err(SavedJobError::Damaged(path));
        }
        let mut content = Vec::new();
        file.take(length).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 != length || header[24..] != hash(&content) {
            return Err(SavedJobError::Damaged(path));
        }
        if version == OLDER {
            content = renewed(&content).map_err(|_| SavedJobError::Damaged(path.clone()))?;
        }
        let job: SavedJob =
            postcard::from_bytes(&content).map_err(|_| SavedJobError::Damaged(path.clone()))?;
        if job.ranks.len() != job.spec.program.size as usize {
            return Err(SavedJobError::Damaged(path));
        }
        Ok(job)
    }

    /// Where what was saved of the segment lies.
    pub fn segment_file(&self, folder: &Path) -> PathBuf {
        folder.join(home::IMAGES).join(segment_name(self.number))
    }
}

/// A record of the older version as this one has it: the job is its first field.
fn renewed(content: &[u8]) -> postcard::Result<Vec<u8>> {
    let (Older(spec), rest) = postcard::take_from_bytes(content)?;
    Ok([&postcard::to_stdvec(&spec)?, rest].concat())
}

fn hash(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes()
}

/// What a job is made of in tests, here and in the crates above.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use eyrie_control::{
        Appended, CheckpointPolicy, Dedup, Fallback, Files, Freeze, Ft, JobSpec, Orphans,
        Placement, Program, Protection, Security, Storage, Timing, Wtime,
    };

    pub fn spec() -> JobSpec {
        JobSpec {
            program: Program {
                path: b"/bin/x".to_vec(),
                argv: vec![b"x".to_vec()],
                size: 1,
                name: None,
                input_is_file: false,
                verbose: false,
            },
            placement: Placement::default(),
            protection: Protection {
                ft: Ft::Logged,
                checkpoint_policy: CheckpointPolicy::Auto,
                incremental: true,
                freeze: Freeze::Auto,
                dedup: Dedup::Auto,
                log_limit_bytes: 1,
                log_replicas: 0,
                clocks: Wtime::Auto,
                strict_output: false,
                appended: Appended::Auto,
                orphans: Orphans::Refuse,
                files: Files::Auto,
                files_limit_bytes: 64 << 20,
                fallback: Fallback::Off,
            },
            storage: Storage::default(),
            security: Security::default(),
            timing: Timing { checkpoint_every_ms: 1, checkpoint_first_ms: 1, ..Timing::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::spec;
    use super::*;

    fn job() -> SavedJob {
        let spec = spec();
        let tapes = [Tape::new(10), Tape::new(10)];
        let retention = Retention::new(1);
        let words = Some((5, vec![6, 7]));
        let rank = SavedRank { gone: false, tapes, retention, recoveries: 3, words };
        SavedJob {
            spec,
            working_folder: b"/".to_vec(),
            environment: vec![(b"A".to_vec(), b"b".to_vec())],
            number: 7,
            ranks: vec![rank],
            loans: ImageReferences::default(),
            input: (5, true),
            input_hash: [9; 16],
            elapsed_ms: 9,
            recoveries: 0,
            rollbacks: 0,
            status: Vec::new(),
            stored: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        job().write(dir.path()).unwrap();
        let again = SavedJob::read(dir.path()).unwrap();
        assert_eq!(again.spec, job().spec);
        assert_eq!((again.number, again.input, again.ranks[0].recoveries), (7, (5, true), 3));
        assert!(again.segment_file(dir.path()).ends_with("images/segment.7"));
    }

    #[test]
    fn what_the_version_before_saved_is_read() {
        let dir = tempfile::tempdir().unwrap();
        job().write(dir.path()).unwrap();
        let path = dir.path().join(home::SAVED);
        let mut bytes = std::fs::read(&path).unwrap();
        // The end of the job's description, which says that no network is known.
        let last = HEADER_BYTES + postcard::to_stdvec(&spec()).unwrap().len() - 1;
        assert_eq!(bytes.remove(last), 0);
        let older = |version: u32, bytes: &[u8]| {
            let content = &bytes[HEADER_BYTES..];
            let mut file = [&MAGIC[..], &version.to_le_bytes(), &[0; 4]].concat();
            file.extend_from_slice(&(content.len() as u64).to_le_bytes());
            file.extend_from_slice(&hash(content));
            file.extend_from_slice(content);
            std::fs::write(&path, file).unwrap();
            SavedJob::read(dir.path())
        };
        let read = older(OLDER, &bytes).unwrap();
        assert_eq!(postcard::to_stdvec(&read).unwrap(), postcard::to_stdvec(&job()).unwrap());
        assert!(matches!(older(OLDER - 1, &bytes), Err(SavedJobError::Version(..))));
        assert!(matches!(older(OLDER, &bytes[..last]), Err(SavedJobError::Damaged(_))));
    }

    #[test]
    fn what_was_saved_before_comes_back_if_it_is_the_right_one() {
        let dir = tempfile::tempdir().unwrap();
        let numbered = |number| SavedJob { number, ..job() };
        let number = || SavedJob::read(dir.path()).ok().map(|job| job.number);
        SavedJob::set_aside(dir.path()).unwrap();
        for n in [7, 8, 9] {
            numbered(n).write(dir.path()).unwrap();
            if n < 9 {
                SavedJob::set_aside(dir.path()).unwrap();
            }
        }
        SavedJob::take_back(dir.path(), Some(8)).unwrap();
        assert_eq!(number(), Some(8));
        // Of another number, or none: nothing is named that is not there any more.
        SavedJob::set_aside(dir.path()).unwrap();
        SavedJob::take_back(dir.path(), Some(7)).unwrap();
        assert_eq!(number(), None);
        numbered(9).write(dir.path()).unwrap();
        SavedJob::take_back(dir.path(), None).unwrap();
        assert_eq!(number(), None);
    }

    #[test]
    fn damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        job().write(dir.path()).unwrap();
        let path = dir.path().join(home::SAVED);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            assert!(SavedJob::read(dir.path()).is_err(), "byte {at}");
        }
        for length in [0, 8, 39, 40, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(SavedJob::read(dir.path()).is_err(), "cut to {length}");
        }
    }
}
