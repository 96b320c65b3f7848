//! Shared objects without a path, and those on tmpfs with one: part of the file format of the
//! `STATE` section (`docs/formats/image.md`): a change here is a change of version.
//!
//! Mappings and descriptors refer to an object by its index, so that its content is stored once,
//! however often it is mapped and opened. Processes that were frozen together use the same numbers
//! (`id`) for the same objects.

use crate::bytes::encoding::{wire_enum, wire_struct};
use crate::state::files::FileId;
use xxhash_rust::xxh3::xxh3_64;

/// Where the content of objects lies among the pages of an image: above all addresses of a process.
pub const OBJECT_BASE: u64 = 1 << 62;
/// Largest object, in bytes, and so the distance of two of them there.
pub const MAX_OBJECT_BYTES: u64 = 1 << 44;
/// Most objects of a process.
pub const MAX_OBJECTS: usize = 1 << 16;

/// Where the content of object `i` begins among the pages of an image.
pub fn object_at(i: usize) -> u64 {
    OBJECT_BASE + i as u64 * MAX_OBJECT_BYTES
}

/// Object and offset in it of an address above all those of a process.
pub fn object_of(address: u64) -> Option<(usize, u64)> {
    let at = address.checked_sub(OBJECT_BASE)?;
    Some(((at / MAX_OBJECT_BYTES) as usize, at % MAX_OBJECT_BYTES))
}

/// Number of the object that is file `ino` of device `dev` (`major << 32 | minor`).
pub fn object_id(dev: u64, ino: u64) -> u64 {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&dev.to_le_bytes());
    raw[8..].copy_from_slice(&ino.to_le_bytes());
    xxh3_64(&raw)
}

wire_enum! {
    /// Where an object comes from.
    pub enum ObjectKind {
        /// `memfd_create`.
        Memory = 0 {
            /// Its name.
            name: Vec<u8>,
            /// `F_SEAL_*`.
            seals: u32,
        },
        /// A file that was deleted.
        Deleted = 1 {
            /// Where it was.
            path: Vec<u8>,
        },
        /// `MAP_SHARED | MAP_ANONYMOUS`.
        Anonymous = 2 {},
        /// `shmget`.
        SystemV = 3 {
            /// Its key.
            key: u32,
            /// Its number.
            number: i32,
            /// Whether it goes away with its last user (`IPC_RMID`).
            doomed: bool,
        },
        /// A file on tmpfs that has a path (`shm_open`, `sem_open`): its content is put back.
        Named = 4 {
            /// Its path.
            path: Vec<u8>,
        },
        /// [`ObjectKind::Kept`] as it was noted before `marks` were. Nobody sees it but who reads
        /// an image ([`AnonymousObject::renew`]).
        KeptBefore = 5 {
            /// Its identity.
            file: FileId,
            /// When it was made.
            born_ns: i64,
            /// How many names it had.
            links: u32,
            /// Bits of [`kept`].
            flags: u32,
        },
        /// A file with a path that a restore may have to put back. It is opened and mapped by its
        /// path; no region or descriptor refers to it here.
        Kept = 6 {
            /// Its identity.
            file: FileId,
            /// When it was made, nanoseconds since 1970; 0 if that is not known.
            born_ns: i64,
            /// How many names it had.
            links: u32,
            /// Bits of [`kept`].
            flags: u32,
            /// Its owner, and the like.
            marks: Option<Marks>,
        },
    }
}

wire_struct! {
    /// An extended attribute.
    pub struct Attribute {
        /// Its name.
        pub name: Vec<u8>,
        /// Its value.
        pub value: Vec<u8>,
    }
}

wire_struct! {
    /// What is noted of a file besides its content and its access rights.
    pub struct Marks {
        /// Its user.
        pub owner: u32,
        /// Its group.
        pub group: u32,
        /// Flags of `chattr`, as `FS_IOC_GETFLAGS` has them.
        pub flags: u32,
        /// Extended attributes in order of their names.
        pub attributes: Vec<Attribute>,
        /// Whether these are all.
        pub whole: bool,
    }
}

/// Bits of [`ObjectKind::Kept`].
pub mod kept {
    /// The process has it open for writing, or mapped so.
    pub const WRITTEN: u32 = 1 << 0;
    /// All that is written to it goes to its end.
    pub const GROWS: u32 = 1 << 1;
    /// The process only reads it.
    pub const READ: u32 = 1 << 2;
    /// It lies beside a file that is written to, under a name that begins with that one's.
    pub const BESIDE: u32 = 1 << 3;
    /// Its content is stored.
    pub const CONTENT: u32 = 1 << 4;
    /// Others had it open for writing, too.
    pub const SHARED: u32 = 1 << 5;
    /// It is not open; the process, or one that it started, was seen writing to it.
    pub const TOUCHED: u32 = 1 << 6;
    /// The process appends to it (`O_APPEND`).
    pub const APPENDS: u32 = 1 << 7;
    /// It is a folder that the program was seen making.
    pub const FOLDER: u32 = 1 << 8;
    /// It is a symbolic link or named pipe that the program was seen making: a zero and where it
    /// leads follow the path.
    pub const SPECIAL: u32 = 1 << 9;
    /// All bits that have a meaning.
    pub const ALL: u32 = (1 << 10) - 1;
}

wire_struct! {
    /// An object that no path leads to, or one on tmpfs. Its content is part of the image (see
    /// [`object_at`]).
    pub struct AnonymousObject {
        /// Its number.
        pub id: u64,
        /// Where it comes from.
        pub kind: ObjectKind,
        /// Access rights.
        pub mode: u32,
        /// Size in bytes.
        pub bytes: u64,
        /// Size of its pages as a power of two, more than 12 for huge pages.
        pub page_shift: u32,
        /// Whether its content is in this image, and not in that of another process.
        pub held: bool,
    }
}

impl AnonymousObject {
    /// What people know it by.
    pub fn shown(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match &self.kind {
            ObjectKind::Memory { name, .. } => format!("/memfd:{}", text(name)),
            ObjectKind::Deleted { path } => format!("{} (deleted)", text(path)),
            ObjectKind::Anonymous {} => "[shared]".into(),
            ObjectKind::Named { path } => text(path),
            ObjectKind::Kept { file, .. } | ObjectKind::KeptBefore { file, .. } => {
                text(parts(&file.path).0)
            }
            ObjectKind::SystemV { number, .. } => format!("[shm {number}]"),
        }
    }

    /// One of an image of before as one of this.
    pub fn renew(&mut self) {
        if let ObjectKind::KeptBefore { file, born_ns, links, flags } = &self.kind {
            let (file, marks) = (file.clone(), None);
            let (born_ns, links, flags) = (*born_ns, *links, *flags);
            self.kind = ObjectKind::Kept { file, born_ns, links, flags, marks };
        }
    }
}

/// Between the path of a link and what it leads to.
pub const BETWEEN: u8 = 0;

/// Its path, and where it leads.
pub fn parts(noted: &[u8]) -> (&[u8], &[u8]) {
    let at = noted.iter().position(|&b| b == BETWEEN).unwrap_or(noted.len());
    (&noted[..at], noted.get(at + 1..).unwrap_or_default())
}
