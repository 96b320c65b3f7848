//! Descriptors of shared objects without a path ([`crate::state::objects`]).

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// A file without a path.
    pub struct Object {
        /// Index in [`crate::state::State::anonymous`].
        pub object: u32,
    }
}

impl Described for Object {
    fn holds(&self, around: &Around<'_>) -> bool {
        (self.object as usize) < around.objects.len()
    }

    fn describe(&self, around: &Around<'_>) -> (&'static str, String) {
        let object = around.objects.get(self.object as usize);
        ("memory", object.map(|object| object.shown()).unwrap_or_default())
    }
}
