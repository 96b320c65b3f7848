//! What is kept of a job's course besides its events: samples of its log and its messages while it
//! runs, and at its end how much each rank has sent to each.
//!
//! Kept true: both are bounded whatever the job does and however long it runs: of samples every
//! second one goes when there are many, and the pause between them doubles; of more than 64 ranks
//! neighbours are counted together. A file that cannot be written stops no job.

use crate::history::{self, Found, RecordError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One sample a line, in a job's folder and in its record.
pub const SAMPLES: &str = "samples.jsonl";
/// In its record.
pub const TRAFFIC: &str = "traffic.json";
const MOST_SAMPLES: usize = 512;
/// No list of samples is larger, and no account of what was sent.
pub const MOST_BYTES: u64 = 1 << 20;
/// Between two samples at first, and for each rank: to look at one takes some 50 microseconds.
const FIRST_MS: u64 = 500;
const RANK_MS: u64 = 10;
/// Most groups of ranks that are told apart.
const MOST_GROUPS: u32 = 64;

/// A job at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// As events count.
    pub ms: f64,
    /// In the logs of all ranks, and in that of the one which has most.
    pub log_bytes: u64,
    pub most_bytes: u64,
    /// Sent so far.
    pub messages: u64,
    pub message_bytes: u64,
}

/// What was sent from rank to rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// So many neighbouring ranks are counted as one.
    pub ranks_a_group: u32,
    /// From the group of the row to that of the column.
    pub messages: Vec<Vec<u64>>,
    pub bytes: Vec<Vec<u64>>,
}

/// How many of so many ranks are counted together.
pub fn ranks_a_group(size: u32) -> u32 {
    size.div_ceil(MOST_GROUPS).max(1)
}

impl Traffic {
    /// Of the rows of all ranks: messages and bytes to each group. None: one is missing.
    pub fn of<'a>(size: u32, rows: impl Iterator<Item = &'a [(u64, u64)]>) -> Option<Traffic> {
        let ranks_a_group = ranks_a_group(size);
        let groups = size.div_ceil(ranks_a_group) as usize;
        let none = || vec![vec![0u64; groups]; groups];
        let (mut messages, mut bytes, mut seen) = (none(), none(), 0);
        for (rank, row) in (0u32..).zip(rows) {
            if row.len() != groups {
                return None;
            }
            let group = (rank / ranks_a_group) as usize;
            let to = messages.get_mut(group)?.iter_mut().zip(bytes.get_mut(group)?.iter_mut());
            for ((messages, bytes), (more, size)) in to.zip(row) {
                *messages = messages.saturating_add(*more);
                *bytes = bytes.saturating_add(*size);
            }
            seen += 1;
        }
        (seen == size).then_some(Traffic { ranks_a_group, messages, bytes })
    }

    /// Whether it is a square of so many groups.
    fn is_whole(&self) -> bool {
        let groups = self.messages.len();
        let square =
            |all: &Vec<Vec<u64>>| all.len() == groups && all.iter().all(|r| r.len() == groups);
        groups <= MOST_GROUPS as usize && square(&self.messages) && square(&self.bytes)
    }
}

/// The samples that lie in a folder; what does not decode is left out.
pub fn read(folder: &Path) -> Vec<Sample> {
    parsed(&eyrie_image::read_plain(&folder.join(SAMPLES), MOST_BYTES).unwrap_or_default())
}

fn parsed(text: &[u8]) -> Vec<Sample> {
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| serde_json::from_slice(line).ok()).take(MOST_SAMPLES).collect()
}

/// Puts both into a job's record, from its folder.
pub fn keep(record: &Path, job: &Path, traffic: Option<&Traffic>) -> Result<(), RecordError> {
    let text: String = read(job).iter().map(line).collect();
    history::write(record, SAMPLES, text.as_bytes())?;
    match traffic {
        Some(traffic) => {
            let text = serde_json::to_vec(traffic).unwrap_or_default();
            history::write(record, TRAFFIC, &text)
        }
        None => Ok(()),
    }
}

impl Found {
    /// How its log grew. What is not there, or is not read, is not told.
    pub fn samples(&self) -> Vec<Sample> {
        let text = history::read(&self.folder.join(SAMPLES), MOST_BYTES);
        parsed(&text.unwrap_or_default())
    }

    /// What each rank has sent to each.
    pub fn traffic(&self) -> Option<Traffic> {
        let text = history::read(&self.folder.join(TRAFFIC), MOST_BYTES).ok()?;
        serde_json::from_slice(&text).ok().filter(Traffic::is_whole)
    }
}

/// Takes the samples of a job.
#[derive(Debug)]
pub struct Sampler {
    samples: Vec<Sample>,
    every_ms: u64,
    next_ms: u64,
    /// One was asked for.
    awaited: bool,
}

/// What becomes of the file of samples, in a job's folder.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// This is appended.
    Line(String),
    /// It is replaced by this.
    All(String),
}

impl Sampler {
    /// Goes on with those that a job of so many ranks has, by its file.
    pub fn new(file: &[u8], size: u32) -> Sampler {
        let samples = parsed(file);
        let last_ms = samples.last().map_or(0, |s| s.ms.max(0.0) as u64);
        let mut every_ms = FIRST_MS.max(RANK_MS * u64::from(size));
        while last_ms / every_ms > MOST_SAMPLES as u64 {
            every_ms *= 2;
        }
        Sampler { samples, every_ms, next_ms: 0, awaited: false }
    }

    /// When the next one is to be taken.
    pub fn due_ms(&self) -> u64 {
        self.next_ms
    }

    /// Whether one is to be asked for now.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let due = now_ms >= self.next_ms;
        if due {
            self.next_ms = now_ms + self.every_ms;
            self.awaited = true;
        }
        due
    }

    /// Whether what was asked for has not come.
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    pub fn take(&mut self, sample: Sample) -> Written {
        self.awaited = false;
        self.samples.push(sample);
        match self.samples.len() {
            MOST_SAMPLES.. => self.thin_out(),
            _ => Written::Line(line(&sample)),
        }
    }

    fn thin_out(&mut self) -> Written {
        self.every_ms *= 2;
        let mut at = 0;
        self.samples.retain(|_| {
            at += 1;
            at % 2 == 1
        });
        Written::All(self.samples.iter().map(line).collect())
    }
}

fn line(sample: &Sample) -> String {
    serde_json::to_string(sample).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ms: u64) -> Sample {
        let (log_bytes, most_bytes) = (ms * 2, ms);
        Sample { ms: ms as f64, log_bytes, most_bytes, messages: ms, message_bytes: 8 * ms }
    }

    #[test]
    fn samples_are_few_however_long_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = Vec::new();
        let mut sampler = Sampler::new(&file, 4);
        let (mut now, mut asked) = (0, 0);
        while now < 10_000_000 {
            assert!(sampler.is_due(now) && sampler.is_awaited());
            match sampler.take(sample(now)) {
                Written::Line(line) => file.extend_from_slice(line.as_bytes()),
                Written::All(all) => file = all.into_bytes(),
            }
            assert!(!sampler.is_awaited() && !sampler.is_due(now + 1));
            now = sampler.due_ms();
            asked += 1;
        }
        assert!((256..6000).contains(&asked), "{asked}");
        std::fs::write(folder.path().join(SAMPLES), &file).unwrap();
        let kept = read(folder.path());
        assert!((256..=MOST_SAMPLES).contains(&kept.len()), "{}", kept.len());
        assert_eq!((kept[0].ms, kept.last().map(|s| s.ms > 9e6)), (0.0, Some(true)));
        assert!(kept.windows(2).all(|two| two[0].ms < two[1].ms));
        // Another controller goes on at that pace.
        let next = Sampler::new(&file, 4);
        assert_eq!(next.samples.len(), kept.len());
        assert!(next.every_ms >= 10_000_000 / MOST_SAMPLES as u64, "{}", next.every_ms);
        assert_eq!(Sampler::new(b"", 1024).every_ms, 10_240);
    }

    #[test]
    fn what_is_torn_or_planted_is_left_out() {
        let good = line(&sample(7));
        let text = format!("{good}\n{{\"ms\":1}}\nx\n{good}{}", &good[..20]);
        assert_eq!(parsed(text.as_bytes()), [sample(7), sample(7)]);
    }

    #[test]
    fn what_each_sends_is_counted_in_groups() {
        let rows: Vec<Vec<(u64, u64)>> = vec![vec![(0, 0), (3, 30)], vec![(1, 8), (0, 0)]];
        let of = |size, rows: &[Vec<(u64, u64)>]| Traffic::of(size, rows.iter().map(Vec::as_slice));
        let small = of(2, &rows).unwrap();
        assert_eq!((small.ranks_a_group, small.messages[0][1], small.bytes[1][0]), (1, 3, 8));
        assert!(small.is_whole());
        assert_eq!(of(2, &rows[..1]), None, "of one it is not known");
        assert_eq!(of(2, &[rows[0].clone(), Vec::new()]), None);
        let many: Vec<Vec<(u64, u64)>> = (0..130).map(|_| vec![(1, 2); 44]).collect();
        let large = of(130, &many).unwrap();
        assert_eq!((large.ranks_a_group, large.messages.len()), (3, 44));
        assert_eq!((large.messages[0][5], large.bytes[43][0]), (3, 2));
    }
}
