//! Files that ranks write to without keeping them open, and that they make; and what files were
//! before ranks began, for those that begin anew.

use super::state::launch_error::LaunchError;
use super::{Agent, Images, Place};
use eyrie_control::{Appended, AtRest, Files, JobSpec};
use eyrie_image::{Before, BeginAnew, Beginning, FileNote, Made, RecordedAppends, Watch};
use eyrie_ledger::door;
use eyrie_process::reap;
use eyrie_state::home::JOBS;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often it is looked whether what a dead rank has left behind is gone.
const MAX_LOOKS: u32 = 200;

/// The folder of all jobs, or what is known of it.
fn own(images: &Path) -> &Path {
    let jobs = images.ancestors().find(|at| at.ends_with(JOBS));
    jobs.or(images.parent()).unwrap_or(images)
}

/// Begins, where the kernel tells, and if ranks may come back.
pub(super) fn watch(spec: &JobSpec, images: &Path) -> Option<Arc<Watch>> {
    let wanted = spec.protection.ft.protects() && spec.protection.files_limit_bytes > 0;
    let watch = if wanted { Watch::start() } else { None }?;
    watch.leave_out(own(images));
    Some(watch)
}

/// Begins to look what files are there; not where ranks began earlier, as those of a saved job.
pub(super) fn beginning(spec: &JobSpec, place: &Place, watch: Option<&Watch>) -> Option<Beginning> {
    let watch = watch.filter(|_| place.segment.is_none())?;
    let folder = std::env::current_dir().ok()?;
    watch.will_be_in(&folder);
    // No copies in the clear.
    let limit = match spec.security.at_rest {
        AtRest::Plain => spec.protection.files_limit_bytes,
        _ => 0,
    };
    Some(Beginning::look(&folder, own(&place.images), &place.images, limit))
}

pub(super) fn appended(spec: &JobSpec) -> eyrie_image::Appended {
    match spec.protection.appended {
        Appended::Auto => eyrie_image::Appended::Auto,
        Appended::Cut => eyrie_image::Appended::Cut,
        Appended::Keep => eyrie_image::Appended::Keep,
    }
}

pub(super) fn files(spec: &JobSpec) -> eyrie_image::Files {
    match spec.protection.files {
        Files::Auto => eyrie_image::Files::Auto,
        Files::Warn => eyrie_image::Files::Warn,
        Files::Refuse => eyrie_image::Files::Refuse,
        Files::Restore => eyrie_image::Files::Restore,
    }
}

/// Files that a rank which came back did not find again as they were, in words.
pub(super) fn left(files: &[FileNote]) -> Vec<String> {
    let left = files.iter().filter(|note| note.left);
    left.map(|note| format!("{} {}", note.path.display(), note.what)).collect()
}

impl Agent {
    /// Files that not one rank alone has written to.
    pub(super) fn shared_files(&self) -> Vec<PathBuf> {
        self.images.watch.as_ref().map_or_else(Vec::new, |watch| watch.shared())
    }

    /// The files to which a rank that goes on at `det_pos` of its determinant log does not append
    /// again ([`door::file_number`]); none, if it has nothing to repeat.
    pub(super) fn recorded_appends(&self, rank: u32, det_pos: u64) -> RecordedAppends {
        let files = match self.segment.rank(rank).det_tail.load(Ordering::Acquire) > det_pos {
            true => door::appended(&self.segment, rank),
            false => BTreeSet::new(),
        };
        RecordedAppends::new(move |dev, ino| files.contains(&door::file_number(dev, ino)))
    }

    /// A rank begins: what it, or all ranks that begin anew with it, had done to files before is
    /// put back. Returns what it does not find as it was.
    pub(super) fn begin_files(
        &mut self,
        rank: u32,
        dead: Option<libc::pid_t>,
    ) -> Result<Vec<String>, LaunchError> {
        let together = !self.images.anew.is_empty();
        let mut programs = std::mem::take(&mut self.images.anew);
        programs.extend(dead);
        // Of ranks that begin anew together nobody has looked for what they left behind.
        let clear = if together { 0..self.spec.program.size } else { rank..rank + 1 };
        let looks = Cell::new(0);
        for rank in clear {
            reap::clear_left(&self.place.id, rank, || looks.replace(looks.get() + 1) < MAX_LOOKS);
        }
        let files = self.files_back(rank, (&programs, together));
        if files.is_err() && together {
            // It may be tried again.
            self.images.anew = programs;
        }
        files
    }

    /// The same of these processes, which begin anew `together`, or of a rank alone.
    fn files_back(
        &self,
        rank: u32,
        (programs, together): (&BTreeSet<libc::pid_t>, bool),
    ) -> Result<Vec<String>, LaunchError> {
        let Images { watch: Some(watch), beginning: Some(beginning), .. } = &self.images else {
            return Ok(vec![]);
        };
        if programs.is_empty() {
            beginning.close();
            return Ok(vec![]);
        }
        let anew = BeginAnew {
            programs,
            takes_made: together || self.all_go_back(),
            files: files(&self.spec),
            appended: appended(&self.spec),
            recorded: self.recorded_appends(rank, 0),
            aside: Some(self.ahead()),
            leave_out: own(&self.place.images),
        };
        let notes = beginning.put_back(watch, anew)?;
        for note in &notes {
            tracing::info!(rank, path = ?note.path, "{}", note.what);
        }
        Ok(left(&notes))
    }

    /// What a dead process of a rank changed of what was there when ranks began here.
    pub(super) fn files_before(&self, dead: Option<libc::pid_t>, r: &RecordedAppends) -> Before {
        let Images { watch: Some(watch), beginning: Some(beginning), .. } = &self.images else {
            return Before::default();
        };
        dead.map_or_else(Before::default, |dead| {
            beginning.before(watch, &BTreeSet::from([dead]), r)
        })
    }

    /// A rank that goes on from a checkpoint finds these as they were when ranks began.
    pub(super) fn files_are_back(&self, files: &[PathBuf]) {
        if let Images { watch: Some(watch), beginning: Some(beginning), .. } = &self.images {
            watch.undone(files);
            beginning.came_back(files);
        }
    }

    /// Whether no rank goes on that may be about to use what another one made.
    fn all_go_back(&self) -> bool {
        self.spec.protection.ft.all_go_back() || self.spec.program.size == 1
    }

    /// A rank's process has begun, or came back with files that it had written to. What its last
    /// one wrote and made counts as its own.
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

    /// What a dead process of a rank was seen making, and no other rank has used; where other ranks
    /// go on, which may be about to read it, as far as it is in the way, and nothing of the job's
    /// own.
    pub(super) fn made_files(&self, dead: Option<libc::pid_t>) -> Made {
        let made = |watch: &Arc<Watch>| Some(watch.made(dead?));
        let mut made = self.images.watch.as_ref().and_then(made).unwrap_or_default();
        if !self.all_go_back() {
            made.leave_what_is_not_in_the_way();
        }
        self.place.images.parent().into_iter().for_each(|folder| made.leave_out(folder));
        made
    }

    /// Where files are kept that ranks wrote after the checkpoint.
    pub(super) fn ahead(&self) -> PathBuf {
        self.place.images.with_file_name("ahead")
    }
}
