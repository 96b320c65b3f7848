//! Pipes and FIFOs.

use crate::bytes::encoding::wire_struct;
use crate::state::files::path_holds;
use crate::state::resources::described::{Around, Described, text};

wire_struct! {
    /// One end of a pipe or FIFO whose other end is in the image too or closed.
    pub struct Pipe {
        /// Number of the pipe.
        pub id: u64,
        /// Path of a FIFO; empty for a pipe.
        pub path: Vec<u8>,
        /// Capacity in bytes.
        pub capacity: u32,
        /// Whether it keeps packets apart (`O_DIRECT`).
        pub packets: bool,
        /// What was in it, packet by packet, or in one piece. Held by one end only.
        pub content: Vec<Vec<u8>>,
    }
}

impl Pipe {
    fn waiting(&self) -> usize {
        self.content.iter().map(Vec::len).sum()
    }
}

impl Described for Pipe {
    fn holds(&self, _: &Around<'_>) -> bool {
        let path = self.path.is_empty() || path_holds(&self.path);
        path && self.waiting() <= self.capacity as usize
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        let name = match self.path.is_empty() {
            true => format!("pipe {:x}", self.id),
            false => text(&self.path),
        };
        match self.waiting() {
            0 => ("pipe", name),
            waiting => ("pipe", format!("{name}, {waiting} bytes in it")),
        }
    }
}
