//! Points at which a test has a rank wait, to kill it there (`docs/internals/fault-points.md`).
//!
//! Without `EYRIE_POINTS` a point is nothing. With it, a file of the point's name and the rank's
//! number arms it, once, as with the points of daemons.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const FOLDER: &str = "EYRIE_POINTS";
/// How often it is looked whether the test lets go.
const LOOK: Duration = Duration::from_millis(2);

static ARE_THERE: AtomicBool = AtomicBool::new(false);

/// From MPI_Init on.
pub(super) fn begin() {
    ARE_THERE.store(std::env::var_os(FOLDER).is_some(), Relaxed);
}

/// A point is passed.
#[inline]
pub(super) fn reach(point: &str, rank: u32) {
    if ARE_THERE.load(Relaxed) {
        stay(point, rank);
    }
}

#[cold]
fn stay(point: &str, rank: u32) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let name = format!("{point}.{rank}");
    let held = folder.join(format!("{name}.held"));
    if std::fs::rename(folder.join(&name), &held).is_err()
        || std::fs::write(folder.join(format!("{name}.pid")), std::process::id().to_string())
            .is_err()
    {
        return;
    }
    while held.exists() {
        std::thread::sleep(LOOK);
    }
}
