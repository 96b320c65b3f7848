//! epoll instances.

use crate::bytes::encoding::wire_struct;
use crate::state::files::MAX_DESCRIPTORS;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// A file that an epoll instance watches.
    pub struct PollItem {
        /// Number under which it was registered.
        pub fd: u32,
        /// Events.
        pub events: u32,
        /// The program's own word.
        pub data: u64,
        /// Index of its description.
        pub description: u32,
    }
}

wire_struct! {
    /// An epoll instance.
    pub struct Poll {
        /// What it watches.
        pub items: Vec<PollItem>,
    }
}

impl Described for Poll {
    fn holds(&self, around: &Around<'_>) -> bool {
        let known = |item: &PollItem| (item.description as usize) < around.descriptions;
        self.items.iter().all(|item| item.fd < MAX_DESCRIPTORS && known(item))
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("epoll", format!("watches {} files", self.items.len()))
    }
}
