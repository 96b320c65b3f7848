//! Taking one image of a child.

use crate::args::Way;
use crate::protocol::Written;
use anyhow::Context;
use eyrie_image::{Ahead, CaptureError, FreezeError, Frozen, Mode, Tracker};
use std::path::Path;
use std::time::{Duration, Instant};

/// What stands in the caller's part of our images.
const META: &[u8] = b"eyrie-image 1\n";

/// Freezes `pid`, lets it go on as soon as may be, and writes its image to `path`: what has changed
/// since the last image that `tracker` knows of in that folder.
pub fn take(
    pid: libc::pid_t,
    path: &Path,
    way: Way,
    tracker: &mut Tracker,
) -> anyhow::Result<Written> {
    let begun = Instant::now();
    let ahead = Ahead::begin(pid, path, tracker, way.mode(), &mut None, &false.into());
    let before = ahead.as_ref().map_or(Duration::ZERO, Ahead::stood);
    let mut frozen = Frozen::stop(pid).context("no checkpoint")?;
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

/// Whether the program ended in the midst of it, which needs no report.
pub fn is_end(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FreezeError::Gone))
        || matches!(error.downcast_ref(), Some(CaptureError::Gone))
}
