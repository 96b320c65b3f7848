//! Pseudo-terminals.

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

/// Size of `struct termios2`.
const TERMIOS_BYTES: usize = 44;

wire_struct! {
    /// One side of a pseudo-terminal whose master is in the image.
    pub struct Terminal {
        /// Number of the pair.
        pub id: u64,
        /// Whether this is the master.
        pub master: bool,
        /// Number in `/dev/pts`.
        pub index: u32,
        /// `struct termios2` of the slave.
        pub termios: Vec<u8>,
        /// `struct winsize`: rows, columns, width, height in pixels.
        pub size: u64,
        /// Bits of [`terminal`].
        pub flags: u32,
        /// Process group in the foreground, 0 for none.
        pub group: i32,
        /// What was written to the master and not read on the slave. Held by the master.
        pub input: Vec<u8>,
        /// What was written to the slave and not read on the master. Held by the master.
        pub output: Vec<u8>,
    }
}

/// Bits of [`Terminal::flags`].
pub mod terminal {
    /// The slave may not be opened.
    pub const LOCKED: u32 = 1 << 0;
    /// Packet mode.
    pub const PACKETS: u32 = 1 << 1;
    /// Not to be opened again (`TIOCEXCL`).
    pub const EXCLUSIVE: u32 = 1 << 2;
    /// The slave was open once and is closed.
    pub const HUNG_UP: u32 = 1 << 3;
    /// It is the controlling terminal of this process, which leads its session.
    pub const CONTROLLING: u32 = 1 << 4;
    /// All bits that have a meaning.
    pub const ALL: u32 = (1 << 5) - 1;
}

impl Described for Terminal {
    fn holds(&self, _: &Around<'_>) -> bool {
        self.termios.len() == TERMIOS_BYTES && self.flags & !terminal::ALL == 0
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        let side = if self.master { "master" } else { "slave" };
        ("terminal", format!("{side} of /dev/pts/{}", self.index))
    }
}
