//! For the fuzzers: gets their bytes past the checksums, to the code behind.

use crate::bytes::codec::Codec;
use crate::bytes::encoding::{self, Reader, Wire};
use crate::bytes::layout::{
    self, Block, HEADER_BYTES, Header, MACHINE, MAGIC, SECTIONS, Section, VERSION, codec, section,
};
use crate::check;
use crate::state;

/// Decodes and checks the bytes of a state section.
pub fn state(bytes: &[u8]) -> bool {
    match encoding::decode::<state::State>(bytes) {
        Ok(state) => {
            assert_eq!(encoding::encode(&state), bytes, "encoding is not unique");
            check::check(&state, &[], &[0]).is_ok()
        }
        Err(_) => false,
    }
}

/// Makes all checksums of an image hold, and its frame agree with its length: what was inserted or
/// taken away counts as of the state section. `None` if it is too short to have a frame.
pub fn sign(image: &[u8]) -> Option<Vec<u8>> {
    let table_bytes = SECTIONS.len() * Section::MIN_BYTES;
    let header_bytes = HEADER_BYTES as usize;
    let table_at = image.len().checked_sub(table_bytes).filter(|at| *at >= header_bytes)?;
    let mut from = Reader::new(&image[table_at..]);
    let mut table: Vec<Section> =
        SECTIONS.iter().map(|_| Section::get(&mut from).ok()).collect::<Option<_>>()?;
    let mut left = (table_at - header_bytes) as u64;
    for (entry, kind) in table.iter_mut().zip(SECTIONS) {
        (entry.kind, entry.reserved) = (kind, 0);
        if kind != section::STATE {
            entry.bytes = entry.bytes.min(left);
            left -= entry.bytes;
        }
    }
    let mut at = HEADER_BYTES;
    for entry in &mut table {
        if entry.kind == section::STATE {
            entry.bytes = left;
        }
        entry.offset = at;
        at += entry.bytes;
    }
    let mut image = image.to_vec();
    let range = |s: &Section| s.offset as usize..(s.offset + s.bytes) as usize;
    let blocks = sign_blocks(&image[range(&table[0])], &image[range(&table[1])]);
    image[range(&table[1])].copy_from_slice(&blocks);
    for entry in &mut table {
        let bytes = &image[range(entry)];
        entry.hash = if entry.kind == section::PAGES { [0; 16] } else { layout::hash(bytes) };
    }
    let mut raw = Vec::new();
    table.iter().for_each(|entry| entry.put(&mut raw));
    let header = Header {
        magic: MAGIC,
        version: VERSION,
        machine: MACHINE,
        file_bytes: image.len() as u64,
        table_offset: table_at as u64,
        table_entries: SECTIONS.len() as u32,
        page_bytes: crate::PAGE_BYTES as u32,
        table_hash: layout::hash(&raw),
        hash: [0; 16],
    };
    image[table_at..].copy_from_slice(&raw);
    image[..header_bytes].copy_from_slice(&layout::header_page(&header));
    Some(image)
}

/// The block table with the hashes that the pages have.
fn sign_blocks(pages: &[u8], table: &[u8]) -> Vec<u8> {
    let mut from = Reader::new(table);
    let mut out = Vec::with_capacity(table.len());
    let mut at = 0usize;
    let mut decoder = Codec::default();
    for _ in 0..table.len() / Block::MIN_BYTES {
        let Ok(mut block) = Block::get(&mut from) else { break };
        let end = at.saturating_add(block.stored as usize).min(pages.len());
        let stored = &pages[at.min(end)..end];
        at = end;
        block.stored_hash = layout::hash(stored);
        if block.codec == codec::NONE {
            block.hash = block.stored_hash;
        } else if block.raw as usize <= layout::BLOCK_BYTES {
            let mut raw = vec![0; block.raw as usize];
            if decoder.decode(block.codec, stored, &mut raw).unwrap_or(false) {
                block.hash = layout::hash(&raw);
            }
        }
        block.put(&mut out);
    }
    out.extend_from_slice(&table[out.len()..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_is_left_alone() {
        assert!(sign(&[0; 4096]).is_none());
        let signed = sign(&vec![0; 8192]).unwrap();
        assert_eq!(signed.len(), 8192);
        assert_eq!(sign(&signed), Some(signed));
    }
}
