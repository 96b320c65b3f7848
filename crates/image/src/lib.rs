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
//!     let shot = frozen.shot(&path, &mut tracker, Mode::Auto)?;
//!     // From here on it runs again; what it was is in a copy or a twin.
//!     frozen.release()?;
//!     let report = shot.write_image(b"for whoever restores it", &mut tracker)?;
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

mod account;
mod agent;
mod ahead;
mod aligned;
mod alike;
mod apart;
mod append;
mod area;
mod attributes;
mod behind;
mod between;
mod blocks;
mod brood;
mod cached;
mod capture;
mod chain;
mod check;
mod check_files;
mod clocks;
mod codec;
mod common;
mod compare;
mod consolidate;
mod content;
mod core_file;
mod core_notes;
mod cost;
mod counters;
mod cpuid;
mod describe;
mod descriptors;
mod epoll;
mod error;
mod executable;
mod family;
mod family_files;
#[cfg(feature = "faults")]
pub mod fault;
#[cfg(not(feature = "faults"))]
mod fault;
mod filler;
mod fingerprint;
mod flags;
mod format;
mod frame;
mod freeze;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod given;
mod gothreads;
mod growing;
mod guess;
mod hashes;
mod heap;
mod held;
mod hot;
mod image;
mod inet;
mod inotify;
mod inspect;
mod interrupted;
mod keeper;
mod kept;
mod lazy;
mod lend;
mod load;
mod locks;
mod made;
#[cfg(test)]
mod many_mappings_tests;
mod mapped;
mod meanwhile;
mod memory;
mod missing;
mod moves;
mod named;
mod objects;
mod offers;
mod open_files;
mod orphans;
mod own_init;
mod own_pids;
mod pack;
mod parallel;
mod pidfds;
mod pipes;
mod placement;
mod plan;
mod plan_files;
mod plan_moves;
mod plan_room;
mod pool;
mod posix_timers;
mod precopy;
mod private;
mod processor;
mod procfiles;
mod procfs;
mod pull;
mod regions;
mod rejoin;
mod relock;
mod reopen;
mod reorphan;
mod restore;
mod rethread;
mod rewind;
mod rewire;
mod rights;
mod scan;
mod seal;
mod shared;
mod shot;
mod sink;
mod skeleton;
mod sockdiag;
mod sockets;
mod sort;
mod source;
mod spans;
mod spawn;
mod state;
mod state_attributes;
mod state_clocks;
mod state_files;
mod state_orphans;
mod state_placement;
mod state_processor;
mod stops;
mod store;
mod switches;
mod system_v;
mod terminals;
mod threads;
mod trace;
mod track;
mod tree;
mod twin;
mod uffd;
mod undertaker;
mod undo;
mod unix;
mod until;
mod unusual;
mod vacating;
mod vdso;
mod verify;
mod warden;
mod watch;
mod wire;
mod write;
mod writers;
mod writes;

pub use ahead::Ahead;
pub use alike::{Alike, alike};
pub use apart::{FarEnd, FarJoint};
pub use append::Appended;
pub use behind::{LeftBehind, children_of, is_traced};
pub use between::{Between, Family};
pub use consolidate::{ConsolidateError, consolidate};
pub use core_file::{CoreError, CoreReport};
pub use cost::{Choice, Mode};
pub use error::{CaptureError, FreezeError, ImageError, RestoreError};
pub use executable::{NotExecutable, check_executable};
pub use family_files::ChildFile;
pub use freeze::Frozen;
pub use given::GivenStreams;
pub use growing::{Growing, announce, is_announced, withdraw};
pub use heap::give_large_back;
pub use image::{Image, Summary};
pub use inet::this_network;
pub use inspect::{AncestorInfo, FileInfo, Inspection, ObjectInfo, RegionInfo, ThreadInfo};
pub use kept::DEFAULT_LIMIT_BYTES as DEFAULT_FILES_LIMIT_BYTES;
pub use lazy::{Filled, Filling};
pub use made::Made;
pub use offers::{Decisions, Machine, Offer, machine, meminfo};
pub use own_pids::{
    OwnPids, enter_if, enter_own_pids, is_own_or_root, may_bring_numbers_back, may_have_own_pids,
    outer_pid, own_outer_pid,
};
pub use pool::{Pool, Sharing};
pub use precopy::{PageSink, Precopied, PrecopyEnd, PrecopyLimits, Round, precopy};
pub use private::{
    Untrusted, check_private, check_private_home, create_private, create_private_dir, write_private,
};
pub use rejoin::{BackEnd, Call, Link};
pub use restore::{RestoreOptions, RestoreSpec, Restored, restore, restore_lazily};
pub use rewire::{MadeSockets, Rewiring, make_sockets};
pub use rights::pass_on_rights;
pub use seal::seal_with;
pub use shot::Shot;
pub use sink::{Tap, receive};
pub use stops::{collect_end, peek_end};
pub use track::{StoreAhead, Tracker, Tracking};
pub use tree::{may_choose_numbers, remove_image};
pub use twin::Twin;
pub use undo::{FileNote, Files};
pub use verify::Verdict;
pub use watch::{Touched, Watch};

use std::time::Duration;

/// Size of a page.
const PAGE_BYTES: u64 = 4096;
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
