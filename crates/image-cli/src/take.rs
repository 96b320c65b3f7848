//! Taking one image of a child.

use crate::args::{FilesMode, OrphansMode, Way};
use crate::orphans;
use crate::protocol::Written;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use eyrie_image::{Ahead, CaptureError, FreezeError, Frozen, GivenStreams, Mode, OwnPids, Tracker};
use std::path::Path;
use std::time::{Duration, Instant};

/// What stands in the caller's part of our images; behind it what `--files` says, if anything.
const META: &str = "eyrie-image 1\n";
const META_FILES: &str = "files ";

/// What is the same for all images of a program.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// What is made of processes that it has left behind, if we adopt them.
    pub orphans: OrphansMode,
    /// What a restart makes of files that are not as they were.
    pub files: Option<FilesMode>,
    /// Most bytes stored of a file.
    pub files_limit: u64,
    /// Whether a restart can give the program numbers of its own.
    pub own_pids: OwnPids,
}

fn meta(manner: Manner) -> Vec<u8> {
    let files = manner.files.and_then(|files| files.to_possible_value());
    let files = files.map(|value| format!("{META_FILES}{}\n", value.get_name()));
    format!("{META}{}", files.unwrap_or_default()).into_bytes()
}

/// What was said of files when an image was taken.
pub fn files_of(meta: &[u8]) -> Option<FilesMode> {
    let text = std::str::from_utf8(meta).ok()?.strip_prefix(META)?;
    let value = text.lines().find_map(|line| line.strip_prefix(META_FILES))?;
    FilesMode::from_str(value, false).ok()
}

/// Freezes `pid`, lets it go on as soon as may be, and writes its image to `path`: what has changed
/// since the last image that `tracker` knows of in that folder.
pub fn take(
    pid: libc::pid_t,
    path: &Path,
    way: Way,
    manner: Manner,
    tracker: &mut Tracker,
) -> anyhow::Result<Written> {
    // In a thread of its own: a thread of the program that does not stop in time is let go by the
    // kernel when the one that traces it ends.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("checkpoint".into());
        let taking = thread.spawn_scoped(scope, || take_here(pid, path, way, manner, tracker));
        let taken = taking.context("cannot start a thread")?.join();
        taken.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn take_here(
    pid: libc::pid_t,
    path: &Path,
    way: Way,
    manner: Manner,
    tracker: &mut Tracker,
) -> anyhow::Result<Written> {
    tracker.keep_files(manner.files_limit);
    let meta = meta(manner);
    let begun = Instant::now();
    // Tried once, and not while the program stands still.
    let _ = eyrie_image::may_bring_numbers_back(manner.own_pids);
    let ahead = Ahead::begin(pid, path, tracker, way.mode(), &mut None, &false.into());
    let before = ahead.as_ref().map_or(Duration::ZERO, Ahead::stood);
    let mut frozen = Frozen::stop(pid).context("no checkpoint")?;
    if manner.orphans == OrphansMode::Refuse {
        refuse_orphans(pid)?;
    }
    frozen.was_given(GivenStreams::own());
    refuse_family(&frozen, manner.own_pids)?;
    let stopped = Instant::now();
    let snapshot =
        frozen.snapshot_after(ahead, path, tracker, way.mode()).context("no checkpoint")?;
    let mode = snapshot.choice().mode;
    let (report, pause) = if mode == Mode::Sync {
        let report = snapshot.write_image(&meta, tracker).context("no checkpoint")?;
        let released = frozen.release();
        (report, released.map(|()| stopped.elapsed()))
    } else {
        let released = frozen.release();
        let pause = before + stopped.elapsed();
        let report = snapshot.write_image(&meta, tracker).context("no checkpoint")?;
        (report, released.map(|()| pause))
    };
    let pause = match pause {
        Ok(pause) => pause,
        // The image is whole even if the program was killed a moment later.
        Err(FreezeError::Gone) => stopped.elapsed(),
        Err(error) => return Err(error).context("the program does not go on"),
    };
    Ok(Written {
        image: path.to_path_buf(),
        bytes: report.bytes,
        pages: report.pages,
        unchanged_pages: report.referred_pages,
        mode: mode.name().into(),
        pause_ms: pause.as_secs_f64() * 1e3,
        took_ms: begun.elapsed().as_secs_f64() * 1e3,
    })
}

/// Refuses a program that has left processes behind. It stands still, so there are no new ones.
fn refuse_orphans(pid: libc::pid_t) -> anyhow::Result<()> {
    let left = orphans::alive(pid);
    if left.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "the program has left {left} behind, which nobody waits for, so that no checkpoint can \
         bring it back: let the program wait for what it starts, or have such processes left out \
         (--orphans leave)"
    ))
    .context("no checkpoint")
}

/// Refuses a program with child processes that could not be given their numbers again.
fn refuse_family(frozen: &Frozen, own_pids: OwnPids) -> anyhow::Result<()> {
    if frozen.pids().len() > 1
        && let Err(why) = eyrie_image::may_bring_numbers_back(own_pids)
    {
        return Err(anyhow!(
            "the program has child processes, which know each other by number, and no restart \
             could give them their numbers again: {why}; or let a script start the program with \
             exec"
        ))
        .context("no checkpoint");
    }
    Ok(())
}

/// Whether the program ended in the midst of it, which needs no report.
pub fn is_end(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FreezeError::Gone))
        || matches!(error.downcast_ref(), Some(CaptureError::Gone))
}
