//! Points of a protocol at which a test has a daemon wait, so that it can kill whomever it wants to
//! at that very step. `docs/fault-points.md` lists them.
//!
//! `EYRIE_POINTS` names a folder. A point is armed by a file of its name there, and strikes once:
//! the daemon that passes it gives the file another name, writes its process number into it, and
//! waits until it is gone. Without the variable a point is nothing.

use std::path::Path;
use std::time::Duration;

/// How often it is looked whether the test lets go.
const LOOK: Duration = Duration::from_millis(2);

/// A point is passed.
pub(crate) fn reach(point: &str) {
    let Some(folder) = std::env::var_os("EYRIE_POINTS") else { return };
    let folder = Path::new(&folder);
    let (held, told) = (folder.join(format!("{point}.held")), folder.join(format!("{point}.pid")));
    if std::fs::rename(folder.join(point), &held).is_err() {
        return;
    }
    if std::fs::write(&told, std::process::id().to_string()).is_err() {
        return;
    }
    while held.exists() {
        std::thread::sleep(LOOK);
    }
}
