//! The frame of an image file: header, section table, blocks. Bytes in `docs/formats/image.md`.

use crate::bytes::encoding::{self, Malformed, Reader, Wire, wire_struct};
use crate::bytes::seal::{Seal, Tag};
use std::io;
use std::ops::Range;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// First bytes of an image.
pub const MAGIC: [u8; 8] = *b"EYRIEIMG";
/// Version of everything in the file.
pub const VERSION: u32 = 6;
/// The same in a file that is sealed ([`crate::bytes::seal`]).
pub const SEALED_VERSION: u32 = 7;
/// The oldest that is read: its state ends before the fields that later ones have put behind.
pub const OLDEST_VERSION: u32 = 4;
/// x86-64.
pub const MACHINE: u32 = 1;
/// The header takes the first page; pages of memory start behind it.
pub const HEADER_BYTES: u64 = 4096;
/// Part of the header that has content; zeros follow.
const HEADER_USED_BYTES: usize = 72;
/// Behind that in a sealed file: its salt, and what header and section table are signed with.
const SALT: Range<usize> = HEADER_USED_BYTES..HEADER_USED_BYTES + 16;
const SIGNATURE: Range<usize> = SALT.end..SALT.end + 16;
/// Most bytes of page data under one checksum.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Largest caller's part, in bytes.
pub const MAX_META_BYTES: u64 = 64 << 20;
/// Largest state section, in bytes.
pub const MAX_STATE_BYTES: u64 = 64 << 20;
/// Largest table of blocks or of extents, in bytes.
pub const MAX_TABLE_BYTES: u64 = 1 << 30;
/// Most earlier files that one file may need.
pub const MAX_ANCESTORS: usize = 1024;
/// Longest name of a file, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Sections, in their order in the file.
pub const SECTIONS: [u32; 6] = [
    section::PAGES,
    section::BLOCKS,
    section::ANCESTORS,
    section::RUNS,
    section::STATE,
    section::META,
];

/// Kinds of sections.
pub mod section {
    /// Content of memory.
    pub const PAGES: u32 = 1;
    /// How the content is stored, with checksums.
    pub const BLOCKS: u32 = 2;
    /// Where in memory content belongs, and in which file it is.
    pub const RUNS: u32 = 3;
    /// [`crate::state::State`].
    pub const STATE: u32 = 4;
    /// The caller's bytes.
    pub const META: u32 = 5;
    /// Earlier files that hold part of the content.
    pub const ANCESTORS: u32 = 6;
}

/// How a block is stored.
pub mod codec {
    /// As it is.
    pub const NONE: u32 = 0;
    /// LZ4 block format.
    pub const LZ4: u32 = 1;
    /// One Zstandard frame.
    pub const ZSTD: u32 = 2;
}

wire_struct! {
    /// Head of the file.
    pub struct Header {
        /// [`MAGIC`].
        pub magic: [u8; 8],
        /// [`VERSION`].
        pub version: u32,
        /// [`MACHINE`].
        pub machine: u32,
        /// Length of the file.
        pub file_bytes: u64,
        /// Where the section table lies.
        pub table_offset: u64,
        /// Number of its entries.
        pub table_entries: u32,
        /// Size of a page.
        pub page_bytes: u32,
        /// XXH3-128 of the section table.
        pub table_hash: [u8; 16],
        /// XXH3-128 of all fields before.
        pub hash: [u8; 16],
    }
}

wire_struct! {
    /// Entry of the section table.
    pub struct Section {
        /// One of [`section`].
        pub kind: u32,
        /// Zero.
        pub reserved: u32,
        /// Offset in the file.
        pub offset: u64,
        /// Length.
        pub bytes: u64,
        /// XXH3-128 of its bytes; zero for `PAGES`, whose blocks have their own.
        pub hash: [u8; 16],
    }
}

wire_struct! {
    /// A block of page data.
    pub struct Block {
        /// Its length, a multiple of the page size and at most [`BLOCK_BYTES`].
        pub raw: u32,
        /// Its length in the file.
        pub stored: u32,
        /// One of [`codec`].
        pub codec: u32,
        /// Zero; of a sealed file the block's number for that.
        pub reserved: u32,
        /// XXH3-128 of the pages; of a sealed file the tag of the bytes in the file.
        pub hash: [u8; 16],
        /// XXH3-128 of the bytes in the file.
        pub stored_hash: [u8; 16],
    }
}

wire_struct! {
    /// Pages that follow each other in memory and in a file.
    pub struct Extent {
        /// Address of the first.
        pub start: u64,
        /// How many.
        pub pages: u64,
        /// The file: 0 for this one, `k` for the `k`-th ancestor.
        pub home: u32,
        /// Zero.
        pub reserved: u32,
        /// Index of the first among all pages of that file.
        pub first: u64,
    }
}

wire_struct! {
    /// An earlier image in the same folder that holds part of the content.
    pub struct Ancestor {
        /// Its file name.
        pub name: Vec<u8>,
        /// Its [`identity`].
        pub identity: [u8; 16],
    }
}

const _: () = assert!(Header::MIN_BYTES == HEADER_USED_BYTES);

/// The checksum of the format.
pub fn hash(bytes: &[u8]) -> [u8; 16] {
    xxh3_128(bytes).to_le_bytes()
}

/// The same of bytes that were hashed part by part.
pub fn hash_of(parts: &Xxh3) -> [u8; 16] {
    parts.digest128().to_le_bytes()
}

/// What tells an image from all others: the hash of its header's fields and its section table. As
/// these hold the hashes of everything else, it stands for the whole content.
pub fn identity(header_page: &[u8], table: &[u8]) -> [u8; 16] {
    let mut bytes = header_page[..HEADER_USED_BYTES].to_vec();
    bytes.extend_from_slice(table);
    hash(&bytes)
}

/// The header page, its own checksum filled in.
pub fn header_page(header: &Header) -> Vec<u8> {
    let mut page = encoding::encode(header);
    let own = HEADER_USED_BYTES - 16;
    let sum = hash(&page[..own]);
    page[own..].copy_from_slice(&sum);
    page.resize(HEADER_BYTES as usize, 0);
    page
}

/// The same of a sealed file, signed with its section table.
pub fn sealed_header_page(header: &Header, table: &[u8], seal: &Seal) -> io::Result<Vec<u8>> {
    let mut page = header_page(header);
    let signature = seal.sign(&page[..HEADER_USED_BYTES], table)?;
    page[SALT].copy_from_slice(&seal.salt());
    page[SIGNATURE].copy_from_slice(&signature);
    Ok(page)
}

/// The salt of a sealed file, and what it is signed with, from its header page.
pub fn sealed_with(page: &[u8]) -> ([u8; 16], Tag) {
    let (mut salt, mut signature) = ([0; 16], [0; 16]);
    salt.copy_from_slice(&page[SALT]);
    signature.copy_from_slice(&page[SIGNATURE]);
    (salt, signature)
}

/// Whether header page and section table of a sealed file are what was signed.
pub fn is_signed(page: &[u8], table: &[u8], signature: &Tag, seal: &Seal) -> bool {
    seal.signed(&page[..HEADER_USED_BYTES], table, signature)
}

/// Why a header page is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Not an image.
    Magic,
    /// Its checksum does not hold.
    Checksum,
    /// Another version (the number) or machine.
    Version(u32),
    /// Made for another machine or page size.
    Machine,
}

/// Reads and checks a header page.
pub fn parse_header(page: &[u8]) -> Result<Header, BadHeader> {
    let header = Header::get(&mut Reader::new(page)).map_err(|_: Malformed| BadHeader::Magic)?;
    if header.magic != MAGIC {
        return Err(BadHeader::Magic);
    }
    // A later version may have another header; it must be named before it is found damaged.
    if !(OLDEST_VERSION..=SEALED_VERSION).contains(&header.version) {
        return Err(BadHeader::Version(header.version));
    }
    let own = HEADER_USED_BYTES - 16;
    let used = if header.version == SEALED_VERSION { SIGNATURE.end } else { HEADER_USED_BYTES };
    let padding_holds = page[used..].iter().all(|&b| b == 0);
    if hash(&page[..own]) != header.hash || !padding_holds {
        return Err(BadHeader::Checksum);
    }
    if header.machine != MACHINE || u64::from(header.page_bytes) != crate::PAGE_BYTES {
        return Err(BadHeader::Machine);
    }
    Ok(header)
}
