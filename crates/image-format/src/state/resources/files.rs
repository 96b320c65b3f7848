//! Regular files and folders that have a path.

use crate::bytes::encoding::wire_struct;
use crate::state::files::{FileId, path_holds};
use crate::state::resources::described::{Around, Described, text};

wire_struct! {
    /// A regular file or directory.
    pub struct OpenFile {
        /// Its identity; the size matters for files opened for writing.
        pub id: FileId,
        /// Whether it is a directory.
        pub dir: bool,
    }
}

impl Described for OpenFile {
    fn holds(&self, _: &Around<'_>) -> bool {
        path_holds(&self.id.path)
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        (if self.dir { "folder" } else { "file" }, text(&self.id.path))
    }
}
