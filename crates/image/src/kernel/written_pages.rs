//! Which pages of a process were written since its last image, as the kernel notes it
//! ([`crate::kernel::userfaultfd`]).
//!
//! Kept true: what is not known to be unchanged counts as changed. So do all pages of a mapping
//! that is new or was moved; and after an image that could not be written all pages count that have
//! changed since the one before it.
//!
//! Kept true, too: mappings are watched from a moment on at which the process stands still. Of one
//! that runs the list is out of date: in the place of a mapping there may be another, of which only
//! a part would be watched. The kernel splits that in two, and the program's `mremap` fails.

use crate::error::CaptureError;
use crate::kernel::pagemap::Pagemap;
use crate::kernel::procfs::{Mapping, Stat};
use crate::kernel::remote_calls::Agent;
use crate::kernel::userfaultfd::Uffd;
use eyrie_image_format::support::spans::{Span, Spans};
use std::io;

/// Writes to the private memory of one process.
#[derive(Debug, Default)]
pub struct Writes {
    /// Process number and start time.
    process: Option<(libc::pid_t, u64)>,
    uffd: Option<Uffd>,
    /// What was found to have changed at each freeze whose image is not complete, oldest first.
    changed: Vec<(u64, Spans)>,
    /// Mappings that a look at the running process found not watched.
    unwatched: Vec<Span>,
}

/// What the process does while its writes are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum It {
    /// Stands still, and none of its mappings is watched yet.
    StandsNew,
    Stands,
    Runs,
}

/// Why the kernel cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle(pub String);

type Taken = Result<Result<Spans, Obstacle>, CaptureError>;

impl Writes {
    /// Whether they are noted.
    pub fn is_on(&self) -> bool {
        self.uffd.is_some()
    }

    /// Finds what has changed up to the freeze of this number since the last complete image.
    pub fn freeze(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
        agent: &Agent,
        freeze: u64,
    ) -> Taken {
        let process = process(pid)?;
        if self.process != Some(process) {
            *self = Writes { process: Some(process), ..Writes::default() };
        }
        let first = self.uffd.is_none();
        if first {
            match Uffd::open(pid, agent)? {
                Ok(uffd) => self.uffd = Some(uffd),
                Err((what, error)) => return Ok(Err(Obstacle(format!("{what}: {error}")))),
            }
        }
        self.unwatched.clear();
        let it = if first { It::StandsNew } else { It::Stands };
        let mut found = self.take(pid, maps, it)?;
        if matches!(&found, Ok(None)) {
            // Its memory is not what it was: the program was executed anew.
            *self = Writes { process: Some(process), ..Writes::default() };
            match Uffd::open(pid, agent)? {
                Ok(uffd) => self.uffd = Some(uffd),
                Err((what, error)) => return Ok(Err(Obstacle(format!("{what}: {error}")))),
            }
            found = self.take(pid, maps, It::StandsNew)?;
        }
        match found {
            Ok(Some(spans)) => self.changed.push((freeze, spans)),
            Ok(None) => return Err(CaptureError::Gone),
            Err(obstacle) => {
                *self = Writes::default();
                return Ok(Err(obstacle));
            }
        }
        Ok(Ok(self.changed()))
    }

    /// Begins to note them, of a process that stands still, and takes none yet.
    pub fn begin(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
        agent: &Agent,
    ) -> Result<Result<(), Obstacle>, CaptureError> {
        *self = Writes { process: Some(process(pid)?), ..Writes::default() };
        let uffd = match Uffd::open(pid, agent)? {
            Ok(uffd) => self.uffd.insert(uffd),
            Err((what, error)) => return Ok(Err(Obstacle(format!("{what}: {error}")))),
        };
        let pagemap = Pagemap::open(pid)?;
        for m in maps.iter().filter(|m| m.is_private()) {
            // What fails here is tried again when they are taken.
            let _ = register(uffd, &pagemap, m);
        }
        Ok(Ok(()))
    }

    /// Whether they are noted of this process, or were.
    pub fn is_of(&self, pid: libc::pid_t) -> bool {
        self.process.is_some() && process(pid).ok() == self.process
    }

    /// All that was found to have changed since the last complete image.
    pub fn changed(&self) -> Spans {
        self.changed.iter().fold(Spans::default(), |all, (_, s)| all.union(s))
    }

    /// What was found last.
    pub fn newest(&self) -> Option<&Spans> {
        self.changed.last().map(|(_, spans)| spans)
    }

    /// Counts what was found while the process ran to the freeze of this number.
    pub fn note(&mut self, freeze: u64, found: Spans) {
        self.changed.push((freeze, found));
    }

    /// What was written since the last time, of a process that may be running. Only where
    /// [`Writes::freeze`] was successful before. Mappings that are new count as written until they
    /// are watched.
    pub fn running(&mut self, pid: libc::pid_t, maps: &[Mapping]) -> Result<Spans, CaptureError> {
        self.unwatched.clear();
        match self.take(pid, maps, It::Runs)? {
            Ok(Some(spans)) => Ok(spans),
            Ok(None) => {
                let what = "was executed anew meanwhile".into();
                Err(CaptureError::Unsupported(what).for_now())
            }
            Err(obstacle) => {
                let what = format!("does not tell any more what it writes: {}", obstacle.0);
                Err(CaptureError::Unsupported(what))
            }
        }
    }

    /// How many bytes of mappings the last look at the running process found not watched.
    pub fn unwatched_bytes(&self) -> u64 {
        self.unwatched.iter().map(|span| span.end - span.start).sum()
    }

    /// Watches these as well, of a process that stands still. What is there counts as written.
    pub fn watch_new(&mut self, pid: libc::pid_t, maps: &[Mapping]) -> Result<(), CaptureError> {
        let Some(uffd) = &self.uffd else { return Ok(()) };
        let pagemap = Pagemap::open(pid)?;
        let new = Spans::of(std::mem::take(&mut self.unwatched));
        let is_new = |m: &&Mapping| m.is_private() && new.within(m.start, m.end).next().is_some();
        for m in maps.iter().filter(is_new) {
            // What cannot be watched counts as written.
            let _ = register(uffd, &pagemap, m);
        }
        Ok(())
    }

    /// The image of a freeze is complete: what had changed before is in it.
    pub fn imaged(&mut self, freeze: u64) {
        self.changed.retain(|(at, _)| *at > freeze);
    }

    /// Takes the pages written since the last time. `None`: the address space is another one.
    fn take(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
        it: It,
    ) -> Result<Result<Option<Spans>, Obstacle>, CaptureError> {
        let Some(uffd) = &self.uffd else { return Ok(Ok(None)) };
        let pagemap = Pagemap::open(pid)?;
        let mut found = Vec::new();
        for m in maps.iter().filter(|m| m.is_private()) {
            let written = match it {
                It::StandsNew => Err(io::Error::from_raw_os_error(libc::EPERM)),
                It::Stands | It::Runs => pagemap.take_written(m.into(), &mut found),
            };
            let Err(error) = written else { continue };
            found.push(Span { start: m.start, end: m.end });
            match error.raw_os_error() {
                Some(libc::EPERM) => {}
                Some(libc::ESRCH) => return Err(CaptureError::Gone),
                _ => return Ok(Err(no_scan(&error))),
            }
            if it == It::Runs {
                self.unwatched.push(Span { start: m.start, end: m.end });
                continue;
            }
            match register(uffd, &pagemap, m).map_err(|e| e.raw_os_error()) {
                // Noted from here on; what is there counts as changed already.
                Ok(()) => match pagemap.take_written(m.into(), &mut Vec::new()) {
                    Err(e) if e.raw_os_error() != Some(libc::EPERM) => {
                        return Ok(Err(no_scan(&e)));
                    }
                    _ => {}
                },
                Err(Some(libc::EBUSY)) => {
                    let text = "another userfaultfd watches its memory";
                    return Ok(Err(Obstacle(text.into())));
                }
                Err(Some(libc::ESRCH)) => return Ok(Ok(None)),
                // Such as cannot be watched: it always counts as changed.
                Err(_) => {}
            }
        }
        Ok(Ok(Some(Spans::of(found))))
    }
}

/// Process number and start time.
pub fn process(pid: libc::pid_t) -> Result<(libc::pid_t, u64), CaptureError> {
    Ok((pid, Stat::read(pid)?.field(22)))
}

/// Has writes to a mapping noted from now on.
fn register(uffd: &Uffd, pagemap: &Pagemap, m: &Mapping) -> io::Result<()> {
    uffd.register(m.start, m.end)?;
    // Memory that was moved here may come with marks that its former place had left on it; writes
    // to such pages are not noted. To look for them is much faster than to take them away.
    match pagemap.is_marked(m.start, m.end) {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => uffd.unmark(m.start, m.end),
    }
}

fn no_scan(error: &io::Error) -> Obstacle {
    Obstacle(format!("PAGEMAP_SCAN (Linux 6.7): {error}"))
}

#[cfg(test)]
#[path = "written_pages_tests.rs"]
mod tests;
