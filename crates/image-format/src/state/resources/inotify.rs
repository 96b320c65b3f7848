//! inotify instances.

use crate::bytes::encoding::wire_struct;
use crate::state::files::path_holds;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// A file or folder that an inotify instance watches.
    pub struct Watch {
        /// Watch descriptor.
        pub wd: i32,
        /// Events.
        pub mask: u32,
        /// Inode number.
        pub ino: u64,
        /// Path.
        pub path: Vec<u8>,
    }
}

wire_struct! {
    /// An inotify instance.
    pub struct Inotify {
        /// What it watches.
        pub watches: Vec<Watch>,
    }
}

impl Described for Inotify {
    fn holds(&self, _: &Around<'_>) -> bool {
        let ordered = self.watches.windows(2).all(|w| w[0].wd < w[1].wd);
        ordered && self.watches.iter().all(|w| w.wd > 0 && path_holds(&w.path))
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("inotify", format!("watches {} paths", self.watches.len()))
    }
}
