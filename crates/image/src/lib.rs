//! Images of running processes: freeze one from outside, take a copy-on-write twin of it, write the
//! twin to a checksummed file, and turn such a file back into a process at the same addresses.
//!
//! The process does not co-operate and has no code of ours for this. Nothing here needs privileges
//! as long as the process is a child of the caller. When images are taken, where they are kept and
//! what a restored process finds in its shared segments is the caller's affair.
//!
//! ```no_run
//! use eyrie_image::{Frozen, Mode, RestoreOptions, RestoreSpec, Tracker, Tracking, restore};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let child = std::process::Command::new("./simulate").spawn()?;
//! let folder = Path::new("images");
//! // What it knows of one image, the next one need not store again.
//! let mut tracker = Tracker::new(Tracking::Auto);
//! for name in ["first", "second"] {
//!     let path = folder.join(name);
//!     let mut frozen = Frozen::stop(child.id() as i32)?;
//!     let snapshot = frozen.snapshot(&path, &mut tracker, Mode::Auto)?;
//!     // From here on it runs again; what it was is in a copy or a twin.
//!     frozen.release()?;
//!     let report = snapshot.write_image(b"for whoever restores it", &mut tracker)?;
//!     println!("{} bytes, it stood for {:?}", report.bytes, report.freeze);
//!     tracker.prepare();
//! }
//! // It has died. Its image needs the one before, which lies beside it.
//! let null = || std::fs::File::options().read(true).write(true).open("/dev/null");
//! let pid = restore(RestoreSpec {
//!     image: &folder.join("second"),
//!     restorer: Path::new("/usr/libexec/eyrie-restorer"),
//!     stdio: [null()?.into(), null()?.into(), null()?.into()],
//!     segments: vec![],
//!     start_stopped: false,
//!     options: RestoreOptions::default(),
//! })?;
//! println!("it goes on as our child {pid}");
//! # Ok(())
//! # }
//! ```

#![allow(unsafe_code)] // ptrace, other processes' memory

mod capture;
mod error;
mod kernel;
mod resources;
mod restore;
mod write;

pub use capture::cost::{Choice, Mode};
pub use capture::freeze::Frozen;
pub use capture::image_precopy::Ahead;
pub use capture::machine::{Decisions, Machine, Offer, machine, meminfo};
pub use capture::precopy::{PageSink, Precopied, PrecopyEnd, PrecopyLimits, Round, precopy};
pub use capture::snapshot::Snapshot;
pub use capture::tracker::{StoreAhead, Tracker, Tracking};
pub use capture::twin::Twin;
pub use error::{CaptureError, FreezeError, RestoreError};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use eyrie_image_format::fuzzing;
#[cfg(feature = "faults")]
pub use eyrie_image_format::support::fault;
pub use eyrie_image_format::{
    Alike, AncestorInfo, ChildFile, ConsolidateError, Consolidated, CoreError, CoreReport,
    FileInfo, Growing, Image, ImageError, Inspection, ObjectInfo, RegionInfo, Summary, Tap,
    ThreadInfo, Untrusted, Verdict, WriteError, alike, announce, check_folder, check_plain,
    check_private, check_private_home, claim_lock, consolidate, create_private, create_private_dir,
    is_announced, is_own_or_root, open_plain, open_to_all, read_plain, receive, remove_image,
    seal_with, withdraw, write_private,
};
pub use kernel::capabilities::{may_choose_numbers, pass_on_rights};
pub use kernel::executable::{NotExecutable, check_executable, name_interpreter};
pub use kernel::heap::give_large_back;
pub use kernel::left_processes::{LeftBehind, children_of, is_traced};
pub use kernel::pid_namespace::{
    OwnPids, enter_if, enter_own_pids, may_bring_numbers_back, may_have_own_pids, outer_pid,
    own_outer_pid,
};
pub use kernel::starting::while_starting;
pub use kernel::stops::{collect_end, peek_end};
pub use resources::files::appends::{Appended, RecordedAppends};
pub use resources::files::before::Before;
pub use resources::files::beginning::{BeginAnew, Beginning};
pub use resources::files::created::Made;
pub use resources::files::stored::DEFAULT_LIMIT_BYTES as DEFAULT_FILES_LIMIT_BYTES;
pub use resources::files::undo::{FileNote, Files};
pub use resources::files::watch::{Touched, Watch};
pub use resources::given_streams::GivenStreams;
pub use resources::sockets::between_images::{Between, ProcessTree};
pub use resources::sockets::connections::MadeSockets;
pub use resources::sockets::cross_node::{CrossNodeConnection, CrossNodeEnd};
pub use resources::sockets::inet::this_network;
pub use restore::cross_node::{BackEnd, Call, Link};
pub use restore::fit::{fits_here, tree_fits_here, write_core};
pub use restore::lazy::filling::wait_for_first;
pub use restore::lazy::{Filled, Filling};
pub use restore::options::{RestoreOptions, RestoreSpec};
pub use restore::process::{Restored, restore, restore_lazily};
pub use restore::sockets::{SetConnections, make_sockets};
pub use write::pool::{Pool, Sharing};

use eyrie_image_format::PAGE_BYTES;
use std::time::Duration;

/// Shared segments (memfds) whose name begins so are not part of an image but handed over at
/// restore.
pub const SEGMENT_PREFIX: &str = "eyrie-job:";

/// What writing an image took.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ImageReport {
    /// Size of the image file, and of those of child processes.
    pub bytes: u64,
    /// Pages of 4 KiB stored in them.
    pub pages: u64,
    /// What tells the image from all others.
    pub identity: [u8; 16],
    /// Pages that have not changed and lie in earlier files, also of child processes.
    pub referred_pages: u64,
    /// Pages that lie in the images of other processes of a [`Pool`], found now.
    pub shared_pages: u64,
    /// The names of the earlier files that it and those of child processes need, in the same
    /// folder.
    pub ancestors: Vec<std::ffi::OsString>,
    /// How the content was kept from the freeze on, and why so.
    pub mode: Choice,
    /// From the stop to the release: how long the process stood still. Zero if it still does.
    pub freeze: Duration,
    /// The part of it that making the twin took.
    pub twin: Duration,
    /// How long the twin lived after that (while it lives, first writes to pages cost a copy).
    pub pull: Duration,
    /// From the start of `write_image` to the durable file.
    pub write: Duration,
}
