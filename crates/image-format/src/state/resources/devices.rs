//! Memory devices such as `/dev/null`.

use crate::bytes::encoding::wire_struct;
use crate::state::files::path_holds;
use crate::state::resources::described::{Around, Described, text};

wire_struct! {
    /// A memory device.
    pub struct Device {
        /// Its path.
        pub path: Vec<u8>,
        /// Its device number.
        pub rdev: u64,
    }
}

impl Described for Device {
    fn holds(&self, _: &Around<'_>) -> bool {
        path_holds(&self.path)
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("device", text(&self.path))
    }
}
