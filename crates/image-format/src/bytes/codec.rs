//! Compression of blocks. What is decoded need not be trusted: a block has a fixed room for its
//! pages, and whatever would not fill it exactly is refused.

use crate::bytes::layout::codec;
use crate::support::buffer::Buffer;
use std::io;

/// Compresses and decodes; owned by one thread, so that its tables are made once.
#[derive(Default)]
pub struct Codec {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
}

/// What is saved at least, as a share of the pages, for a block to be stored compressed: 1/16.
const LEAST_GAIN_SHIFT: u32 = 4;
/// Fastest regular level.
const ZSTD_LEVEL: i32 = 1;

impl Codec {
    /// Compresses `pages` to the beginning of `to` and returns the length, or `None` if that would
    /// save too little; `to` is then of no use.
    pub fn compress(
        &mut self,
        how: u32,
        pages: &[u8],
        to: &mut Buffer,
    ) -> io::Result<Option<usize>> {
        let bytes = match how {
            codec::LZ4 => {
                to.resize(lz4_flex::block::get_maximum_output_size(pages.len()));
                lz4_flex::block::compress_into(pages, to).map_err(io::Error::other)?
            }
            codec::ZSTD => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
                };
                to.resize(zstd::zstd_safe::compress_bound(pages.len()));
                zstd.compress_to_buffer(pages, &mut to[..])?
            }
            _ => return Ok(None),
        };
        Ok((bytes < pages.len() - (pages.len() >> LEAST_GAIN_SHIFT)).then_some(bytes))
    }

    /// Decodes a block whose pages fill `to`; false if it does not hold just these.
    pub fn decode(&mut self, how: u32, stored: &[u8], to: &mut [u8]) -> io::Result<bool> {
        let bytes = match how {
            codec::NONE if stored.len() == to.len() => {
                to.copy_from_slice(stored);
                to.len()
            }
            codec::LZ4 => match lz4_flex::block::decompress_into(stored, to) {
                Ok(bytes) => bytes,
                Err(_) => return Ok(false),
            },
            codec::ZSTD => {
                let unzstd = match &mut self.unzstd {
                    Some(unzstd) => unzstd,
                    none => none.insert(zstd::bulk::Decompressor::new()?),
                };
                match unzstd.decompress_to_buffer(stored, to) {
                    Ok(bytes) => bytes,
                    Err(_) => return Ok(false),
                }
            }
            _ => return Ok(false),
        };
        Ok(bytes == to.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::layout::BLOCK_BYTES;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let pages: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i / 100) as u8).collect();
        let (mut codec, mut to) = (Codec::default(), Buffer::default());
        for how in [codec::LZ4, codec::ZSTD] {
            let bytes = codec.compress(how, &pages, &mut to).unwrap().unwrap();
            let stored = &to[..bytes];
            let mut back = vec![1; pages.len()];
            assert!(codec.decode(how, stored, &mut back).unwrap());
            assert!(back == pages);
            // Room for more or less than there is: refused, not written beyond.
            assert!(!codec.decode(how, stored, &mut back[..4096]).unwrap());
            assert!(!codec.decode(how, stored, &mut vec![0; BLOCK_BYTES + 1]).unwrap());
            assert!(!codec.decode(how, &stored[..stored.len() / 2], &mut back).unwrap());
        }
    }

    #[test]
    fn noise_is_not_worth_it() {
        let (mut codec, mut to) = (Codec::default(), Buffer::default());
        for how in [codec::LZ4, codec::ZSTD] {
            assert_eq!(codec.compress(how, &noise(BLOCK_BYTES), &mut to).unwrap(), None);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let mut codec = Codec::default();
        let mut to = vec![0; 8192];
        for how in 0..4 {
            for start in 0..200 {
                let noise = noise(400);
                let _ = codec.decode(how, &noise[start..], &mut to).unwrap();
            }
        }
    }
}
