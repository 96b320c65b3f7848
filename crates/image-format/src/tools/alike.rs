//! How much several images have in common, for those who look at them.

use crate::PAGE_BYTES;
use crate::error::ImageError;
use crate::read::image::Image;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// What an image has in common with those before it in a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alike {
    /// Its stored pages.
    pub pages: u64,
    /// Those that are the same as some page of an image before it.
    pub shared: u64,
    /// The part of these that lies in runs of 64 KiB at least, in memory.
    pub shared_in_runs: u64,
}

/// Holds the pages of images against each other, by their hashes of 128 bits. Takes about 40 bytes
/// of memory for each page.
pub fn alike(images: &[Image]) -> Result<Vec<Alike>, ImageError> {
    let mut first: HashMap<u128, usize> = HashMap::new();
    let mut all = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let mut hashes = Vec::new();
        image.for_each_piece(|address, bytes| {
            let pages = bytes.chunks_exact(PAGE_BYTES as usize).map(xxh3_128);
            hashes.extend((address..).step_by(PAGE_BYTES as usize).zip(pages));
            Ok::<(), ImageError>(())
        })?;
        hashes.sort_unstable();
        let mut alike = Alike { pages: hashes.len() as u64, ..Alike::default() };
        let (mut run, mut after) = (0, 0);
        for (address, hash) in hashes {
            if *first.entry(hash).or_insert(number) == number {
                run = 0;
                continue;
            }
            alike.shared += 1;
            run = if address == after { run + 1 } else { 1 };
            after = address + PAGE_BYTES;
            alike.shared_in_runs += match run {
                crate::read::chain::STRIDE => run,
                _ if run > crate::read::chain::STRIDE => 1,
                _ => 0,
            };
        }
        all.push(alike);
    }
    Ok(all)
}
