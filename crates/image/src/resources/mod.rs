//! What a process has of the kernel, a file for each kind: how it is captured, checked, described
//! and made again; and the table of all kinds that are behind descriptors.
//!
//! Such a new kind is a line in the table, its file in this folder ([`resource::Resource`]), and
//! its bytes in [`eyrie_image_format::state::resources`].

pub(crate) mod attributes;
pub(crate) mod clocks;
pub(crate) mod devices;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod file_locks;
pub(crate) mod files;
pub(crate) mod given_streams;
pub(crate) mod inotify;
pub(crate) mod known;
pub(crate) mod limits;
pub(crate) mod numa;
pub(crate) mod open;
pub(crate) mod pidfds;
pub(crate) mod pipes;
pub(crate) mod posix_timers;
pub(crate) mod prctl;
pub(crate) mod proc_files;
pub(crate) mod processor;
pub(crate) mod regions;
pub(crate) mod resource;
pub(crate) mod rings;
pub(crate) mod segments;
pub(crate) mod shared_memory;
pub(crate) mod signalfd;
pub(crate) mod sockets;
pub(crate) mod standard_streams;
pub(crate) mod system_v;
pub(crate) mod terminals;
pub(crate) mod timerfd;
pub(crate) mod unsupported;

use crate::error::CaptureError;
use crate::resources::open::{Open, refused};
use crate::resources::resource::{Look, Resource};
use eyrie_image_format::state::Target;
use eyrie_image_format::state::resources::{
    Apart, Between, Device, Event, Inotify, Object, OpenFile, Pipe, Poll, Process, Relative, Ring,
    Segment, Signals, Socket, Stdio, Terminal, Timer,
};

type Capture = fn(&Open, &mut Look<'_>) -> Result<Option<Target>, CaptureError>;

macro_rules! kinds {
    ($($variant:ident: $kind:ty,)*) => {
        const CAPTURES: &[Capture] = &[$(<$kind as Resource>::capture,)*];

        /// What a description refers to, as its kind.
        pub(crate) fn kind(target: &Target) -> &dyn Resource {
            match target {
                $(Target::$variant(kind) => kind,)*
            }
        }

        /// The same, to be completed.
        pub(crate) fn kind_mut(target: &mut Target) -> &mut dyn Resource {
            match target {
                $(Target::$variant(kind) => kind,)*
            }
        }
    };
}

// A descriptor is asked for in this order.
kinds! {
    Segment: Segment,
    Event: Event,
    Timer: Timer,
    Signals: Signals,
    Poll: Poll,
    Inotify: Inotify,
    Process: Process,
    Relative: Relative,
    Ring: Ring,
    // What has no path, of all that is left.
    Object: Object,
    File: OpenFile,
    Pipe: Pipe,
    Socket: Socket,
    Between: Between,
    Apart: Apart,
    Device: Device,
    Terminal: Terminal,
    // What is none of the processes' own.
    Stdio: Stdio,
}

/// What is behind a descriptor, if that can be brought back.
pub(crate) fn capture(this: &Open, look: &mut Look<'_>) -> Result<Target, CaptureError> {
    for capture in CAPTURES {
        if let Some(target) = capture(this, look)? {
            return Ok(target);
        }
    }
    let shown = this.shown();
    let what = match this.anonymous_inode() {
        Some(_) => format!("of the kind {shown}"),
        None => format!("a special file, {shown}"),
    };
    Err(refused(this, what))
}
