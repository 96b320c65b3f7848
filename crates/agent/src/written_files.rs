//! Files that ranks write to without keeping them open, and that they make.

use super::Agent;
use eyrie_control::JobSpec;
use eyrie_image::{FileNote, Made, Watch};
use eyrie_ledger::door;
use eyrie_state::home::JOBS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Begins, where the kernel tells, and if ranks may come back.
pub(super) fn watch(spec: &JobSpec, images: &Path) -> Option<Arc<Watch>> {
    let wanted = spec.protection.ft.protects() && spec.protection.files_limit_bytes > 0;
    let watch = if wanted { Watch::start() } else { None }?;
    let jobs = images.ancestors().find(|at| at.ends_with(JOBS));
    watch.leave_out(jobs.or(images.parent()).unwrap_or(images));
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
        let Some(watch) = &self.images.watch else { return Vec::new() };
        let shared = watch.shared();
        dead.into_iter().for_each(|pid| watch.leave(pid));
        shared
    }

    /// The files to which a rank that goes on at `det_pos` of its determinant log does not append
    /// again ([`door::file_number`]); none, if it has nothing to repeat.
    pub(super) fn appended_files(&self, rank: u32, det_pos: u64) -> BTreeSet<u64> {
        match self.segment.rank(rank).det_tail.load(Ordering::Acquire) > det_pos {
            true => door::appended(&self.segment, rank),
            false => BTreeSet::new(),
        }
    }

    /// A rank's process has begun, or came back with files that it had written to; it goes on from
    /// what its last one made.
    pub(super) fn follow_files(
        &self,
        pid: libc::pid_t,
        files: &[PathBuf],
        dead: Option<libc::pid_t>,
    ) {
        if let Some(watch) = &self.images.watch {
            dead.into_iter().for_each(|dead| watch.hand_on(dead, pid));
            watch.follow(pid, files);
        }
    }

    /// What a dead process of a rank was seen making, and no other rank has used; nothing where
    /// other ranks go on, which may be about to read it, and nothing of the job's own.
    pub(super) fn made_files(&self, dead: Option<libc::pid_t>) -> Made {
        let all_go_back = self.spec.protection.ft.all_go_back() || self.spec.program.size == 1;
        let made = |watch: &Arc<Watch>| Some(watch.made(dead.filter(|_| all_go_back)?));
        let mut made = self.images.watch.as_ref().and_then(made).unwrap_or_default();
        self.place.images.parent().into_iter().for_each(|folder| made.leave_out(folder));
        made
    }

    /// Where files are kept that ranks wrote after the checkpoint.
    pub(super) fn ahead(&self) -> PathBuf {
        self.place.images.with_file_name("ahead")
    }
}
