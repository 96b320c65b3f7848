//! Files that ranks write to without keeping them open: a thread takes what the kernel tells.

use super::Agent;
use eyrie_control::JobSpec;
use eyrie_image::{FileNote, Watch};
use std::path::PathBuf;
use std::sync::Arc;

/// For how long it is waited for word of files at a time.
const WAIT_MS: i32 = 1000;

/// Begins, where the kernel tells, and if ranks may come back.
pub(super) fn watch(spec: &JobSpec) -> Option<Arc<Watch>> {
    let wanted = spec.ft.protects() && spec.files_limit_bytes > 0;
    let watch = Arc::new(Watch::begin().filter(|_| wanted)?);
    let weak = Arc::downgrade(&watch);
    let run = move || {
        while let Some(watch) = weak.upgrade() {
            watch.take(WAIT_MS);
        }
    };
    std::thread::Builder::new().name("eyrie-files".into()).spawn(run).ok()?;
    Some(watch)
}

/// Files that a rank which came back did not find again as they were, in words.
pub(super) fn left(files: &[FileNote]) -> Vec<String> {
    let left = files.iter().filter(|note| note.left);
    left.map(|note| format!("{} {}", note.path.display(), note.what)).collect()
}

impl Agent {
    /// Files that not one rank alone has written to. What a dead process of a rank wrote counts as
    /// written by the next one.
    pub(super) fn shared_files(&self, dead: Option<libc::pid_t>) -> Vec<PathBuf> {
        let Some(watch) = &self.watch else { return Vec::new() };
        let shared = watch.shared();
        dead.into_iter().for_each(|pid| watch.leave(pid));
        shared
    }

    /// A rank's process has begun, or came back with files that it had written to.
    pub(super) fn follow_files(&self, pid: libc::pid_t, files: &[PathBuf]) {
        self.watch.iter().for_each(|watch| watch.follow(pid, files));
    }
}
