//! The thread that reads what comes: what somebody waits for, then all else; and gives files their
//! names.
//!
//! Kept true: one piece is read at a time; connections to others are held for few files.

use super::{Growth, Inner, Source, State, Unread, feeds};
use crate::retries::{PAUSE, Retries};
use eyrie_process::stop_points::{self, Held};
use eyrie_vault::stream;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Files whose sources are kept open: that of which most is read now, and one that somebody waits
/// for.
const OPEN: usize = 2;
/// How soon a test that holds the thread is heeded again.
const LOOK: Duration = Duration::from_millis(2);

/// What the thread does next.
enum Step {
    Read(usize, u64, Box<dyn Source>),
    /// All of it is there.
    Whole(usize),
    Done,
}

impl State {
    fn read(&mut self, number: usize, at: u64) -> Option<Step> {
        Some(Step::Read(number, at, self.files[number].source.take()?))
    }

    /// What somebody waits for.
    fn urgent(&mut self) -> Option<Step> {
        while let Some((number, start, end)) = self.wanted.front().copied() {
            match self.files[number].missing.first(start, end) {
                Some(at) => return self.read(number, at),
                None => drop(self.wanted.pop_front()),
            }
        }
        None
    }

    fn whole(&self) -> Option<Step> {
        let whole = |f: &Growth| !f.over && f.missing.bytes() == 0;
        self.files.iter().position(whole).map(Step::Whole)
    }

    /// What nobody has asked for; the file that was added last has what changed last.
    fn other(&mut self) -> Option<Step> {
        let missing = |f: &Growth| f.missing.first(0, f.bytes).filter(|_| !f.is_idle());
        let numbered = self.files.iter().enumerate().rev();
        let (number, at) = numbered.filter_map(|(n, f)| Some((n, missing(f)?))).next()?;
        self.read(number, at)
    }

    fn is_over(&self) -> bool {
        self.closed && self.files.iter().all(Growth::is_idle)
    }

    /// Whether half of all is there.
    fn is_half(&self) -> bool {
        let missing: u64 = self.files.iter().map(|f| f.missing.bytes()).sum();
        missing <= self.files.iter().map(|f| f.bytes).sum::<u64>() / 2
    }
}

/// The thread that reads.
pub(super) struct Reads {
    inner: Arc<Inner>,
    tries: Retries,
    /// Files whose sources are open, the last used one first.
    open: [Option<usize>; OPEN],
}

impl Reads {
    pub fn of(inner: &Arc<Inner>, patience: Duration) -> Reads {
        Reads { inner: Arc::clone(inner), tries: Retries::new(patience), open: [None; OPEN] }
    }

    pub fn run(mut self) {
        let (mut held, mut halved): (Option<Option<Held>>, bool) = (None, false);
        loop {
            match self.next(&mut held) {
                Step::Read(number, at, source) => {
                    if let Err(why) = self.read(number, at, source) {
                        return self.fail(why);
                    }
                }
                Step::Whole(number) => {
                    if let Err(why) = self.name(number) {
                        return self.fail(why);
                    }
                }
                Step::Done => return,
            }
            let half = self.inner.lock().is_half();
            if half && !std::mem::replace(&mut halved, true) {
                stop_points::reach("feed-2");
            }
        }
    }

    fn next(&self, held: &mut Option<Option<Held>>) -> Step {
        let mut state = self.inner.lock();
        loop {
            if let Some(step) = state.urgent().or_else(|| state.whole()) {
                return step;
            }
            if !state.files.is_empty() {
                let held = held.get_or_insert_with(|| stop_points::strike("feed-1"));
                if held.as_ref().is_some_and(Held::lasts) {
                    let waited = self.inner.changed.wait_timeout(state, LOOK);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            }
            if let Some(step) = state.other() {
                return step;
            }
            if state.is_over() {
                return Step::Done;
            }
            state = self.inner.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&mut self, number: usize, at: u64, mut source: Box<dyn Source>) -> Result<(), Unread> {
        self.opens(number);
        let file = Arc::clone(&self.inner.lock().files[number].file);
        let read = source.read(at).and_then(|bytes| {
            let written = file.write_all_at(&bytes, at);
            written.map(|()| bytes.len() as u64).map_err(|e| Unread::Later(e.to_string()))
        });
        let mut state = self.inner.lock();
        let growth = &mut state.files[number];
        growth.source = Some(source);
        match read {
            Ok(bytes) => {
                growth.missing.fill(at, at + bytes);
                self.tries.anew();
                self.inner.changed.notify_all();
                Ok(())
            }
            Err(Unread::Later(why)) => {
                drop(state);
                self.tries.fails(false);
                if self.tries.are_over() {
                    return Err(Unread::Later(why));
                }
                tracing::warn!("the vault is not read yet: {why}");
                std::thread::sleep(PAUSE);
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    /// A file is read from; one that was not for a while rests.
    fn opens(&mut self, number: usize) {
        let place = self.open.iter().position(|open| *open == Some(number));
        let last = place.unwrap_or(OPEN - 1);
        if place.is_none()
            && let Some(idle) = self.open[last]
            && let Some(source) = &mut self.inner.lock().files[idle].source
        {
            source.rest();
        }
        self.open[..=last].rotate_right(1);
        self.open[0] = Some(number);
    }

    /// All of a file is there: it gets its name, if it is what was stored.
    fn name(&self, number: usize) -> Result<(), Unread> {
        stop_points::reach("feed-3");
        let (unborn, path, hash) = {
            let state = self.inner.lock();
            let file = &state.files[number];
            (file.unborn.clone(), file.path.clone(), file.hash.filter(|_| !file.unwanted))
        };
        let found = hash.map(|_| File::open(&unborn).and_then(|mut f| stream::hash_of(&mut f)));
        let mut state = self.inner.lock();
        let file = &mut state.files[number];
        if !file.unwanted {
            let found = found.transpose().map_err(|e| Unread::Later(e.to_string()))?;
            if found.is_some_and(|(found, _)| Some(found) != hash) {
                return Err(Unread::Never(format!("{} is not what was stored", path.display())));
            }
            std::fs::rename(&unborn, &path).map_err(|e| Unread::Later(e.to_string()))?;
            eyrie_image::withdraw(&path);
            feeds().remove(&path);
        }
        file.over = true;
        // Its connections are not needed any more.
        file.source = None;
        self.inner.changed.notify_all();
        Ok(())
    }

    /// Nobody waits any more.
    fn fail(&self, why: Unread) {
        tracing::warn!("images do not come out of the vault: {why}");
        let mut state = self.inner.lock();
        state.failed = Some(why);
        for file in state.files.iter().filter(|file| !file.over && !file.unwanted) {
            eyrie_image::withdraw(&file.path);
            let _ = std::fs::remove_file(&file.unborn);
            feeds().remove(&file.path);
        }
        self.inner.changed.notify_all();
    }
}
