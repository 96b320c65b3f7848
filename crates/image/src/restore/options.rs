//! What a restore is told.

use crate::resources::files::appends::{Appended, RecordedAppends};
use crate::resources::files::undo::Files;
use crate::resources::sockets::connections::MadeSockets;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to restore, and with what.
pub struct RestoreSpec<'a> {
    /// The image.
    pub image: &'a Path,
    /// Path of the `eyrie-restorer` program.
    pub restorer: &'a Path,
    /// What becomes of descriptors 0, 1, 2, and of every descriptor that was the same pipe, socket
    /// or terminal as one of them.
    pub stdio: [OwnedFd; 3],
    /// Shared segments by name (or beginning of the name) of their memfd.
    pub segments: Vec<(String, OwnedFd)>,
    /// Leave the process stopped by `SIGSTOP`, and let any debugger of the same user attach to it.
    pub start_stopped: bool,
    /// What is seldom needed.
    pub options: RestoreOptions,
}

/// What is seldom needed of a restore.
#[derive(Debug, Clone, Default)]
pub struct RestoreOptions {
    /// Features of the processor (as named in `/proc/cpuinfo`) whose absence is of no concern,
    /// although the program seems to use them.
    pub ignore_features: Vec<String>,
    /// For a restore on another node: IP addresses of sockets, and what stands for each here.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// Let it run as soon as the pages are in that it is likely to need first; the others follow
    /// when they are touched, and all within this time if the storage permits. Needs the right to
    /// trace any process; without it, and for a process with children, all pages come first.
    /// `EYRIE_IMAGE_LAZY` (milliseconds) asks for it where this is not set, and for all sizes.
    pub lazy: Option<Duration>,
    /// Only if at least so many bytes would come later; else all pages come first, as it takes
    /// longer to fill them in than to load them.
    pub lazy_from: u64,
    /// The image was opened and verified just now ([`Image::open`]): before a lazy restore its
    /// pages are not read once more. Else they are held against their checksums while they are
    /// loaded, and the process runs if all are right.
    pub verified: bool,
    /// The processors that it is given, as a mask; a thread that was free to use all that it was
    /// given there ([`crate::Frozen::is_bound_to`]) is free to use all of these. Else: all that
    /// this process may use.
    pub processors: Option<Vec<u8>>,
    /// Its sockets, if they were made together with those of other images
    /// ([`crate::make_sockets`]).
    pub sockets: MadeSockets,
    /// Called when all is there, right before the processes run.
    pub ready: Option<fn()>,
    /// What becomes of what it had appended to files after the checkpoint.
    pub appended: Appended,
    /// Files to which it does not append again, whoever appends to them.
    pub recorded: RecordedAppends,
    /// What becomes of files that are not as they were at the checkpoint.
    pub files: Files,
    /// Where what such files hold now is kept when they are put back; else it is not.
    pub aside: Option<PathBuf>,
    /// Files that others were seen writing to ([`crate::Watch::shared`]): they stay as they are.
    pub shared: Vec<PathBuf>,
    /// What the program was seen making ([`crate::Watch::made`]): of that, what came after the
    /// checkpoint is taken away.
    pub made: crate::resources::files::created::Made,
    /// What it changed of what was there when it began ([`crate::Beginning::before`]): of that,
    /// what was first changed after the checkpoint is put back.
    pub before: crate::Before,
}
