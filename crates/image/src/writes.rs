//! Which pages of a process have changed since its last image.
//!
//! Two ways, chosen at run time: the kernel notes writes ([`crate::uffd`], Linux 6.7, nothing to do
//! for the program), or the content of every page is hashed and held against the hashes of the last
//! image ([`crate::hashes`], any kernel). The tracker lives in the caller from one image to the
//! next.
//!
//! Kept true: what is not known to be unchanged counts as changed. So do all pages of a mapping
//! that is new or was moved, and all pages after an image that could not be written have changed
//! since the one before it.

use crate::PAGE_BYTES;
use crate::agent::Agent;
use crate::error::CaptureError;
use crate::procfs::{Mapping, Stat};
use crate::scan::Pagemap;
use crate::spans::{Span, Spans};
use crate::uffd::Uffd;
use std::io;

/// How changes are to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tracking {
    /// The first of the following that works here.
    #[default]
    Auto,
    /// The kernel notes writes.
    WriteProtect,
    /// Every page is hashed.
    Hash,
    /// Not at all: every image is full.
    Off,
}

impl Tracking {
    /// What `EYRIE_IMAGE_TRACKING` (`auto`, `wp`, `hash`, `off`) asks for, for tests; else `Auto`.
    pub fn from_env() -> Tracking {
        match std::env::var("EYRIE_IMAGE_TRACKING").as_deref() {
            Ok("wp") => Tracking::WriteProtect,
            Ok("hash") => Tracking::Hash,
            Ok("off") => Tracking::Off,
            _ => Tracking::Auto,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tracking::Auto => "undecided",
            Tracking::WriteProtect => "write protection",
            Tracking::Hash => "page hashes",
            Tracking::Off => "off",
        }
    }
}

/// What is known of a process's changes. One for each process; a restored one needs a new one, or
/// [`Tracker::restart`].
#[derive(Debug, Default)]
pub struct Tracker {
    wish: Tracking,
    /// Why the kernel's way is not taken although it was to be.
    obstacle: Option<String>,
    process: Option<(libc::pid_t, u64)>,
    uffd: Option<Uffd>,
    /// What was found to have changed at each freeze whose image is not complete, oldest first.
    changed: Vec<(u64, Spans)>,
    freezes: u64,
}

/// What has changed at one freeze.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    /// Number of the freeze, for [`Tracker::imaged`].
    pub freeze: u64,
    /// What has changed since the last complete image; `None`: to be found by hashing.
    pub pages: Option<Spans>,
}

impl Tracker {
    /// Nothing is known yet.
    pub fn new(wish: Tracking) -> Tracker {
        Tracker { wish, ..Tracker::default() }
    }

    /// How changes are found, as far as that is decided.
    pub fn method(&self) -> Tracking {
        match self.wish {
            Tracking::Auto if self.obstacle.is_some() => Tracking::Hash,
            Tracking::Auto if self.uffd.is_some() => Tracking::WriteProtect,
            wish => wish,
        }
    }

    /// Why pages are hashed although the kernel was to note writes.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// Forgets the process, not what was found out about the kernel. The next image is full.
    pub fn restart(&mut self) {
        self.process = None;
        self.uffd = None;
        self.changed.clear();
    }

    /// At a freeze: finds what has changed and begins anew.
    pub(crate) fn freeze(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
        agent: &Agent,
    ) -> Result<Changes, CaptureError> {
        let process = (pid, Stat::read(pid)?.field(22));
        if self.process != Some(process) {
            self.restart();
            self.process = Some(process);
        }
        self.freezes += 1;
        let freeze = self.freezes;
        if matches!(self.method(), Tracking::Hash | Tracking::Off) {
            return Ok(Changes { freeze, pages: None });
        }
        let found = match self.take(pid, maps, Some(agent))? {
            Ok(found) => found,
            Err(obstacle) => {
                self.uffd = None;
                self.changed.clear();
                self.obstacle = Some(obstacle);
                return Ok(Changes { freeze, pages: None });
            }
        };
        self.changed.push((freeze, found));
        let all = self.changed.iter().fold(Spans::default(), |all, (_, s)| all.union(s));
        Ok(Changes { freeze, pages: Some(all) })
    }

    /// The image of a freeze is complete: what had changed before is in it.
    pub(crate) fn imaged(&mut self, freeze: u64) {
        self.changed.retain(|(at, _)| *at > freeze);
    }

    /// Takes the pages written since the last time; the inner error says why that cannot be told.
    fn take(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
        agent: Option<&Agent>,
    ) -> Result<Result<Spans, String>, CaptureError> {
        let mut new = false;
        if self.uffd.is_none() {
            let Some(agent) = agent else { return Err(CaptureError::Gone) };
            match Uffd::open(pid, agent)? {
                Ok(uffd) => self.uffd = Some(uffd),
                Err((what, error)) => return Ok(Err(format!("{what}: {error}"))),
            }
            new = true;
        }
        let Some(uffd) = &self.uffd else { return Err(CaptureError::Gone) };
        let pagemap = Pagemap::open(pid)?;
        let mut found = Vec::new();
        for m in maps.iter().filter(|m| !m.shared && !m.is_special() && !m.is_vsyscall()) {
            let written = if new {
                Err(io::Error::from_raw_os_error(libc::EPERM))
            } else {
                pagemap.take_written(m.start, m.end, &mut found)
            };
            let Err(error) = written else { continue };
            found.push(Span { start: m.start, end: m.end });
            match error.raw_os_error() {
                Some(libc::EPERM) => {}
                Some(libc::ESRCH) => return Err(CaptureError::Gone),
                Some(libc::ENOTTY | libc::EINVAL) => {
                    return Ok(Err(format!("PAGEMAP_SCAN of Linux 6.7: {error}")));
                }
                _ => continue,
            }
            match uffd.register(m.start, m.end).map_err(|e| e.raw_os_error()) {
                Ok(()) => {
                    // Armed from here on; what is there counts as changed already.
                    if let Err(error) = pagemap.take_written(m.start, m.end, &mut Vec::new()) {
                        return Ok(Err(format!("PAGEMAP_SCAN of Linux 6.7: {error}")));
                    }
                }
                Err(Some(libc::EBUSY)) => {
                    let text = "another userfaultfd watches its memory";
                    return Ok(Err(text.into()));
                }
                // The address space that it belonged to is gone: the program was executed anew.
                Err(Some(libc::ESRCH)) if !new => {
                    self.uffd = None;
                    return self.take(pid, maps, agent);
                }
                // Such as cannot be watched, and always counts as changed.
                Err(_) => {}
            }
        }
        Ok(Ok(Spans::of(found)))
    }
}

/// Bytes of whole pages that lie between two addresses.
pub(crate) fn pages(span: &Span) -> u64 {
    (span.end - span.start) / PAGE_BYTES
}
