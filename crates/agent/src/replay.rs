//! Running one rank of a job again from its image, with its log and no other rank: what `eyrie
//! replay` does with processes and segments.
//!
//! Kept true: the segment is a copy of its own; nothing of the job's folder is changed.

use eyrie_control::meta::{Meta, MetaError};
use eyrie_image::{Image, ImageError, RestoreError, RestoreSpec};
use eyrie_ledger::clock::{self, Which};
use eyrie_ledger::saved::{self, Loaded, SavedError};
use eyrie_ledger::segment::{NAME_PREFIX, RankCtl, STATE_LOG_ENDED, Segment};
use eyrie_ledger::walk;
use eyrie_process::futex;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why a rank cannot be run again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("cannot use {}: {source}", path.display())]
    Image { path: PathBuf, source: ImageError },
    #[error("{} is no image of a rank of an MPI job: {source}", path.display())]
    NotARank { path: PathBuf, source: MetaError },
    #[error("cannot open the log {}: {source} (is it beside the image?)", path.display())]
    NoLog { path: PathBuf, source: io::Error },
    #[error("cannot use the log {}: {source}", path.display())]
    Log { path: PathBuf, source: SavedError },
    #[error("the log {} is of rank {found}, the image of rank {wanted}", path.display())]
    OtherRank { path: PathBuf, found: u32, wanted: u32 },
    #[error("the log begins after {}: replay one of the rank's two newest images", path.display())]
    TooOld { path: PathBuf },
    #[error("cannot bring rank {rank} back: {source}")]
    Restore { rank: u32, source: RestoreError },
    #[error("{0}")]
    Os(#[from] io::Error),
}

/// The log of a rank among the images of its job.
pub fn log_path(images: &Path, rank: u32) -> PathBuf {
    images.join(format!("rank-{rank}.log"))
}

/// Puts a control block and the positions of its rank back to where an image stood. No incarnation
/// of the rank lives.
pub(crate) fn reset_control(segment: &Segment, rank: u32, from: &Meta) {
    let ctl = segment.rank(rank);
    let ranks = segment.geometry().ranks;
    let now = clock::read(Which::RealtimeCoarse.id());
    ctl.begun.store(now, Ordering::Relaxed);
    ctl.state.store(from.state, Ordering::Relaxed);
    ctl.lib.store(from.lib, Ordering::Relaxed);
    ctl.det_pos.store(from.det_pos, Ordering::Relaxed);
    for word in [&ctl.alive, &ctl.freeze_req, &ctl.sleeping, &ctl.pressure, &ctl.shares] {
        word.store(0, Ordering::Relaxed);
    }
    let repeats = repeats(segment, rank, from);
    ctl.replaying.store(u32::from(repeats), Ordering::Relaxed);
    ctl.exit_code.store(0, Ordering::Relaxed);
    ctl.replayed.store(0, Ordering::Relaxed);
    ctl.checkpoint.fetch_max(u64::from(from.generation), Ordering::Relaxed);
    for (source, need) in (0..ranks).zip(&from.need) {
        segment.channel(source, rank).need.store(*need, Ordering::Relaxed);
    }
    for (source, front) in (0..ranks).zip(&from.front) {
        segment.channel(source, rank).front.store(*front, Ordering::Relaxed);
    }
    ctl.world.store(from.world, Ordering::Relaxed);
    ctl.told_alone.store(from.told_alone, Ordering::Relaxed);
    for other in 0..ranks {
        // What a program in MPI knows of its streams is in its memory.
        let next = from.next.get(other as usize).copied().unwrap_or_default();
        let (source, to) = (segment.channel(other, rank), segment.channel(rank, other));
        let words = [&source.rx_pos, &source.rx_seq].into_iter();
        let words = words.chain([&to.tx_pos, &to.tx_seq, &to.tx_chain, &to.tx_msgs]);
        words.zip(next).for_each(|(word, next)| word.store(next, Ordering::Relaxed));
    }
    for (to, [pos, messages]) in from.sent.iter().filter(|(to, _)| *to < ranks) {
        // Until it calls MPI again that is known from here only.
        let ctl = segment.channel(rank, *to);
        ctl.tx_pos.store(*pos, Ordering::Relaxed);
        ctl.tx_msgs.store(*messages, Ordering::Relaxed);
    }
    ctl.incarnation.fetch_add(1, Ordering::Release);
    if ctl.incarnation.load(Ordering::Relaxed) > 1 {
        // A rank restored inside its sleep finds its doorbell changed; the others look at
        // what changed for them.
        (0..ranks).for_each(|r| futex::ring(&segment.rank(r).doorbell));
    }
}

/// Whether anything is recorded of a rank, or in its logs, beyond where an image stood: that it
/// will repeat, however late it calls MPI.
fn repeats(segment: &Segment, rank: u32, from: &Meta) -> bool {
    let ctl = segment.rank(rank);
    let told = match ctl.det_tail.load(Ordering::Acquire).saturating_sub(from.det_pos) {
        0 => false,
        1 => from.run == 0 || segment.det(rank, from.det_pos).load(Ordering::Acquire) != from.run,
        _ => true,
    };
    told || (0..segment.geometry().ranks).any(|to| {
        let known = from.sent.binary_search_by_key(&to, |(other, _)| *other);
        let [pos, messages] = known.map_or([0; 2], |at| from.sent[at].1);
        let sent = segment.channel(rank, to).msgs.load(Ordering::Acquire);
        sent > messages || walk::end(segment, rank, to).is_some_and(|end| end > pos)
    })
}

/// An image and its log, ready to be run.
pub struct Replay {
    pub meta: Meta,
    /// Path of the program.
    pub exe: String,
    image: PathBuf,
    loaded: Loaded,
}

/// How far a rank has come.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Outcomes and sends that were reproduced.
    pub reproduced: u64,
    /// Messages received since the start of the program.
    pub received: u64,
    /// Messages sent that were not in the log.
    pub sent_anew: u64,
}

/// What the rank said about its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// It asks for what is not in the log.
    LogEnded(String),
    /// What it did differs from what was recorded.
    Diverged(String),
    /// It called `MPI_Abort`.
    Aborted(String),
}

impl Replay {
    /// Opens the image and its log, which lies beside it unless `log` says where.
    pub fn open(image: &Path, log: Option<&Path>) -> Result<Replay, ReplayError> {
        let path = image.to_path_buf();
        let opened = Image::open(image)
            .map_err(|source| ReplayError::Image { path: path.clone(), source })?;
        let meta = Meta::read(opened.meta())
            .map_err(|source| ReplayError::NotARank { path: path.clone(), source })?;
        let beside = log_path(image.parent().unwrap_or(Path::new("")), meta.rank);
        let log = log.map_or(beside, Path::to_path_buf);
        let file =
            File::open(&log).map_err(|source| ReplayError::NoLog { path: log.clone(), source })?;
        let loaded = saved::load(&file, &meta.job)
            .map_err(|source| ReplayError::Log { path: log.clone(), source })?;
        let same_size = loaded.segment.geometry().ranks as usize == meta.need.len();
        if loaded.rank != meta.rank || !same_size {
            let (found, wanted) = (loaded.rank, meta.rank);
            return Err(ReplayError::OtherRank { path: log, found, wanted });
        }
        let segment = &loaded.segment;
        // Older images are kept for the pages that newer ones refer to; their log is released.
        let released = |s: u32| segment.channel(s, meta.rank).trim.load(Ordering::Relaxed);
        let trimmed = segment.rank(meta.rank).det_trim.load(Ordering::Relaxed);
        if meta.det_pos < trimmed || (0..).zip(&meta.need).any(|(s, need)| *need < released(s)) {
            return Err(ReplayError::TooOld { path });
        }
        segment.header().becomes_replay();
        for other in 0..segment.geometry().ranks {
            for channel in [segment.channel(other, meta.rank), segment.channel(meta.rank, other)] {
                // What was shown lay in the memory of a process that is gone.
                channel.shown.store(0, Ordering::Relaxed);
                channel.viewing.store(0, Ordering::Relaxed);
            }
        }
        reset_control(segment, meta.rank, &meta);
        let exe = opened.inspect().exe;
        Ok(Replay { meta, exe, image: path, loaded })
    }

    /// The rank's control block.
    fn ctl(&self) -> &RankCtl {
        self.loaded.segment.rank(self.meta.rank)
    }

    /// What the rank had written: position of the first byte that is known, and the bytes.
    pub fn recorded_output(&self) -> [(u64, &[u8]); 2] {
        [0, 1].map(|i| {
            let recorded = &self.loaded.output[i];
            (recorded.first, recorded.bytes.as_slice())
        })
    }

    /// Starts it, stopped if wanted. To be called from the main thread, with which it dies.
    pub fn start(
        &self,
        restorer: &Path,
        stdio: [OwnedFd; 3],
        stopped: bool,
    ) -> Result<libc::pid_t, ReplayError> {
        let rank = self.meta.rank;
        let segment = self.loaded.fd.try_clone()?;
        let pid = eyrie_image::restore(RestoreSpec {
            image: &self.image,
            restorer,
            stdio,
            segments: vec![(format!("{NAME_PREFIX}{}", self.meta.job), segment)],
            start_stopped: stopped,
            options: Default::default(),
        })
        .map_err(|source| ReplayError::Restore { rank, source })?;
        self.ctl().pid.store(pid as u32, Ordering::Release);
        Ok(pid)
    }

    /// What it has said so far, if anything.
    pub fn word(&self) -> Option<Word> {
        let ctl = self.ctl();
        use eyrie_ledger::segment::{STATE_ABORTED, STATE_DIVERGED};
        match ctl.state.load(Ordering::Acquire) {
            STATE_LOG_ENDED => Some(Word::LogEnded(ctl.text())),
            STATE_DIVERGED => Some(Word::Diverged(ctl.text())),
            STATE_ABORTED => Some(Word::Aborted(ctl.text())),
            _ => None,
        }
    }

    /// Waits until its bell rings, at most `limit`; `seen` is the value of the last time.
    pub fn listen(&self, seen: &mut u32, limit: Duration) {
        let bell = &self.loaded.segment.header().bell;
        futex::wait(bell, *seen, limit);
        *seen = bell.load(Ordering::Acquire);
    }

    /// How far it has come; `sent` is the number of messages sent of an earlier look, if any.
    pub fn progress(&self, sent: u64) -> Progress {
        let ctl = self.ctl();
        Progress {
            reproduced: ctl.replayed.load(Ordering::Acquire),
            received: ctl.msgs_received.load(Ordering::Acquire),
            sent_anew: self.sent().saturating_sub(sent),
        }
    }

    /// Messages that are in its part of the log.
    pub fn sent(&self) -> u64 {
        self.ctl().msgs_sent.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_ledger::door::{Call, Door, Outcome};
    use eyrie_ledger::segment::{FT_LOGGED, Geometry};

    fn fresh() -> &'static Segment {
        let (_, seg) = Segment::create("r", Geometry::new(2, 1 << 20), FT_LOGGED, 1).unwrap();
        Box::leak(Box::new(seg))
    }

    /// What the control block says of a rank that comes back.
    fn back(seg: &Segment, from: &Meta) -> u32 {
        reset_control(seg, 0, from);
        seg.rank(0).replaying.load(Ordering::Relaxed)
    }

    #[test]
    fn who_has_nothing_to_repeat_need_not_look() {
        let (seg, mut from) = (fresh(), Meta::start("r", 0, 2));
        assert_eq!(back(seg, &from), 0);
        let mut door = Door::new(seg, 0);
        door.record(Call::Waitany, &Outcome::One(1));
        assert_eq!(back(seg, &from), 1);
        from.det_pos = 1;
        assert_eq!(back(seg, &from), 0);
        // Calls that came to nothing are one word, which grows.
        door.fruitless();
        from.run = seg.det(0, 1).load(Ordering::Relaxed);
        assert_eq!(back(seg, &from), 0);
        assert_eq!(back(seg, &Meta { run: 0, ..from.clone() }), 1, "it was repeating them");
        door.fruitless();
        assert_eq!(back(seg, &from), 1);
    }

    #[test]
    fn who_has_sent_since_will_send_again() {
        let (seg, mut from) = (fresh(), Meta::start("r", 0, 2));
        seg.channel(0, 1).msgs.store(3, Ordering::Relaxed);
        assert_eq!(back(seg, &from), 1);
        from.sent = vec![(1, [640, 3])];
        assert_eq!(back(seg, &from), 0);
        // An image that is taken before it calls MPI again says the same.
        let to = seg.channel(0, 1);
        let known = [&to.tx_pos, &to.tx_msgs].map(|word| word.load(Ordering::Relaxed));
        assert_eq!(known, [640, 3]);
    }
}
