//! Points of a protocol at which a test has a daemon wait, so that it can kill whomever it wants to
//! at that very step. `docs/internals/fault-points.md` lists them.
//!
//! `EYRIE_POINTS` names a folder. A point is armed by a file of its name there, and strikes once:
//! the daemon that passes it gives the file another name, writes its process number into it, and
//! waits until it is gone. Without the variable a point is nothing.

use std::path::PathBuf;
use std::time::Duration;

/// How often it is looked whether the test lets go.
const LOOK: Duration = Duration::from_millis(2);

/// Somebody waits at a point.
pub struct Held(PathBuf);

impl Held {
    /// Until the test lets go.
    pub fn lasts(&self) -> bool {
        self.0.exists()
    }
}

/// A point is passed.
pub fn reach(point: &str) {
    let Some(held) = strike(point) else { return };
    while held.lasts() {
        std::thread::sleep(LOOK);
    }
}

/// The same for who does other things while it waits. `None`: the point is not armed.
pub fn strike(point: &str) -> Option<Held> {
    let folder = PathBuf::from(std::env::var_os("EYRIE_POINTS")?);
    let (held, told) = (folder.join(format!("{point}.held")), folder.join(format!("{point}.pid")));
    std::fs::rename(folder.join(point), &held).ok()?;
    std::fs::write(&told, eyrie_image::own_outer_pid().to_string()).ok()?;
    Some(Held(held))
}
