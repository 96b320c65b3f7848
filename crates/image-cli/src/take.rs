//! Taking one image of a child.

use crate::args::{OrphansMode, Way};
use crate::orphans;
use crate::protocol::Written;
use anyhow::{Context, anyhow};
use eyrie_image::{Ahead, CaptureError, FreezeError, Frozen, Mode, Tracker};
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

/// What stands in the caller's part of our images.
const META: &[u8] = b"eyrie-image 1\n";

/// Freezes `pid`, lets it go on as soon as may be, and writes its image to `path`: what has changed
/// since the last image that `tracker` knows of in that folder. `orphans`: what is made of
/// processes that it has left behind, if we adopt them.
pub fn take(
    pid: libc::pid_t,
    path: &Path,
    way: Way,
    orphans: OrphansMode,
    tracker: &mut Tracker,
) -> anyhow::Result<Written> {
    // In a thread of its own: a thread of the program that does not stop in time is let go by the
    // kernel when the one that traces it ends.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("checkpoint".into());
        let taking = thread.spawn_scoped(scope, || take_here(pid, path, way, orphans, tracker));
        let taken = taking.context("cannot start a thread")?.join();
        taken.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn take_here(
    pid: libc::pid_t,
    path: &Path,
    way: Way,
    orphans: OrphansMode,
    tracker: &mut Tracker,
) -> anyhow::Result<Written> {
    let begun = Instant::now();
    let ahead = Ahead::begin(pid, path, tracker, way.mode(), &mut None, &false.into());
    let before = ahead.as_ref().map_or(Duration::ZERO, Ahead::stood);
    let mut frozen = Frozen::stop(pid).context("no checkpoint")?;
    if orphans == OrphansMode::Refuse {
        refuse_orphans(pid)?;
    }
    warn_of_family(&frozen);
    let stopped = Instant::now();
    let shot = frozen.shot_after(ahead, path, tracker, way.mode()).context("no checkpoint")?;
    let mode = shot.choice().mode;
    let (report, pause) = if mode == Mode::Sync {
        let report = shot.write_image(META, tracker).context("no checkpoint")?;
        let released = frozen.release();
        (report, released.map(|()| stopped.elapsed()))
    } else {
        let released = frozen.release();
        let pause = before + stopped.elapsed();
        let report = shot.write_image(META, tracker).context("no checkpoint")?;
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

/// Says, once, that what is taken of a program with child processes cannot be restarted.
fn warn_of_family(frozen: &Frozen) {
    static SAID: Once = Once::new();
    if frozen.pids().len() > 1 && !eyrie_image::may_choose_numbers() {
        SAID.call_once(|| {
            crate::say(
                "the program has child processes, and restarting such a one takes \
                 CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, which this user lacks: its images cannot \
                 be restarted as things are; let a script start the program with exec, or run \
                 eyrie-image with the capability (setcap cap_checkpoint_restore+ep, or setpriv \
                 --inh-caps +checkpoint_restore --ambient-caps +checkpoint_restore)",
            );
        });
    }
}

/// Whether the program ended in the midst of it, which needs no report.
pub fn is_end(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FreezeError::Gone))
        || matches!(error.downcast_ref(), Some(CaptureError::Gone))
}
