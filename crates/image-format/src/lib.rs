//! Image files: their bytes, how they are read, checked, written, put together and shown.
//!
//! An image is a file like others, on any machine: nothing here stops, asks or makes a process, so
//! no rights are needed. Bytes are in `docs/formats/image.md`. How a process gets into an image and
//! comes back is the affair of `eyrie-image`.
//!
//! ```no_run
//! use eyrie_image_format::{Image, Verdict};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = Path::new("images/rank-0.gen-7");
//! let image = Image::open(path)?;
//! println!("{} pages", image.summary().pages);
//! let verdicts: Vec<Verdict> = Image::verify_parts(path);
//! println!("{} files looked at", verdicts.len());
//! # Ok(())
//! # }
//! ```

#![allow(unsafe_code)] // buffers that are not filled yet, system calls on files

pub mod bytes;
pub mod check;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod read;
pub mod state;
pub mod support;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod tools;
pub mod write;

pub use bytes::seal::seal_with;
pub use error::{ImageError, WriteError};
pub use read::image::{Image, Summary};
pub use read::incoming::{Growing, announce, is_announced, withdraw};
pub use read::tree_files::{ChildFile, remove_image};
pub use support::claimed_files::claim_lock;
pub use support::private_files::{
    Untrusted, check_folder, check_plain, check_private, check_private_home, create_private,
    create_private_dir, is_own_or_root, open_plain, open_to_all, read_plain, write_private,
};
pub use tools::alike::{Alike, alike};
pub use tools::consolidate::{ConsolidateError, Consolidated, consolidate};
pub use tools::core_file::{CoreError, CoreReport};
pub use tools::inspect::{AncestorInfo, FileInfo, Inspection, ObjectInfo, RegionInfo, ThreadInfo};
pub use tools::verify::Verdict;
pub use write::sink::{Tap, receive};

/// Size of a page.
pub const PAGE_BYTES: u64 = 4096;
