//! From pages to a block as it is stored: hashes, and compression where it pays.
//!
//! Compression pays where the storage is slower than the processors: a block is compressed if the
//! slower of the two would be done with it sooner. The storage is measured by the writes so far,
//! what compression costs and saves by a small sample of the block itself. `EYRIE_IMAGE_CODEC`
//! (`none`, `lz4`, `zstd`) fixes the choice, for tests and comparisons.

use crate::PAGE_BYTES;
use crate::bytes::codec::Codec;
use crate::bytes::layout::{self, Block, codec};
use crate::support::buffer::Buffer;
use crate::support::parallel;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes of a block that are compressed to see what it would save, taken from two places.
const SAMPLE_BYTES: usize = 32 << 10;
/// Nothing is known about the storage before this much was written.
const WARM_UP_BYTES: u64 = 8 << 20;
/// Share of the time that compression must save: 1/8.
const LEAST_GAIN: f64 = 0.125;
/// What Zstandard is taken to need beside LZ4 as long as it was not tried: time, and length.
const ZSTD_GUESS: [f64; 2] = [3.0, 0.8];
/// Weight of the newest of many measurements.
const NEWEST: f64 = 0.125;

/// A block and its bytes, filled up to a page with zeros.
pub struct Packed<'a> {
    /// Its entry in the table.
    pub block: Block,
    /// What goes to the file.
    pub padded: &'a [u8],
}

/// A thread's means to pack blocks.
#[derive(Default)]
pub struct Packer {
    codec: Codec,
    room: Buffer,
}

/// What packing and writing were measured to take, and what follows for the next block.
pub struct Tuner {
    fixed: Option<u32>,
    threads: f64,
    rates: Mutex<Rates>,
}

/// Seconds a byte unless said otherwise.
#[derive(Default)]
struct Rates {
    /// Getting the pages and hashing them, on one thread.
    pull: f64,
    /// Time and length beside those of LZ4, without unit.
    zstd: Option<[f64; 2]>,
    written: u64,
    writes_running: u32,
    since: Option<Instant>,
    /// Time in which at least one write was running.
    busy: Duration,
}

/// What a sample promises: seconds a byte, and the length as a share.
type Promise = [f64; 2];

impl Packer {
    /// Packs `pages`, which are not empty and at most a block.
    pub fn pack<'a>(&'a mut self, tuner: &Tuner, pages: &'a [u8]) -> io::Result<Packed<'a>> {
        let hash = layout::hash(pages);
        let raw = pages.len() as u32;
        let plain =
            Block { raw, stored: raw, codec: codec::NONE, reserved: 0, hash, stored_hash: hash };
        let (how, lz4) = self.choose(tuner, pages)?;
        let begun = Instant::now();
        let bytes = self.codec.compress(how, pages, &mut self.room)?;
        if let (codec::ZSTD, Some([time, length])) = (how, lz4) {
            let share = bytes.map_or(1.0, |bytes| bytes as f64 / pages.len() as f64);
            let took = begun.elapsed().as_secs_f64() / pages.len() as f64;
            tuner.zstd_took([took / time, share / length]);
        }
        let Some(bytes) = bytes else { return Ok(Packed { block: plain, padded: pages }) };
        let end = bytes.next_multiple_of(PAGE_BYTES as usize);
        self.room[bytes..end].fill(0);
        let stored_hash = layout::hash(&self.room[..bytes]);
        let block = Block { stored: bytes as u32, codec: how, stored_hash, ..plain };
        Ok(Packed { block, padded: &self.room[..end] })
    }

    /// A codec, and what a sample has shown of LZ4 if one was taken.
    fn choose(&mut self, tuner: &Tuner, pages: &[u8]) -> io::Result<(u32, Option<Promise>)> {
        if let Some(fixed) = tuner.fixed {
            return Ok((fixed, None));
        }
        if !tuner.storage_is_slow() {
            return Ok((codec::NONE, None));
        }
        let part = SAMPLE_BYTES.min(pages.len()) / 2;
        let middle = pages.len() / 2;
        let begun = Instant::now();
        let mut bytes = 0;
        for sample in [&pages[..part], &pages[middle..middle + part]] {
            bytes += self.codec.compress(codec::LZ4, sample, &mut self.room)?.unwrap_or(part);
        }
        let took = begun.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
        let lz4 = [took / (2 * part) as f64, bytes as f64 / (2 * part) as f64];
        Ok((tuner.choose(lz4), Some(lz4)))
    }
}

impl Tuner {
    /// One that decides by itself, unless the environment says otherwise.
    pub fn from_environment() -> Tuner {
        let fixed = match std::env::var("EYRIE_IMAGE_CODEC").as_deref() {
            Ok("none") => Some(codec::NONE),
            Ok("lz4") => Some(codec::LZ4),
            Ok("zstd") => Some(codec::ZSTD),
            _ => None,
        };
        Tuner::new(fixed)
    }

    /// One that always decides for `fixed`, if there is one.
    pub fn new(fixed: Option<u32>) -> Tuner {
        Tuner { fixed, threads: parallel::threads() as f64, rates: Mutex::default() }
    }

    /// Notes what getting pages took.
    pub fn pulled(&self, bytes: usize, took: Duration) {
        if bytes > 0 {
            let mut rates = self.rates();
            let now = took.as_secs_f64() / bytes as f64;
            rates.pull = if rates.pull == 0.0 { now } else { mix(rates.pull, now) };
        }
    }

    /// Measures a write.
    pub fn writing<T>(&self, bytes: usize, write: impl FnOnce() -> T) -> T {
        {
            let mut rates = self.rates();
            rates.writes_running += 1;
            rates.since.get_or_insert_with(Instant::now);
        }
        let result = write();
        let mut rates = self.rates();
        rates.written += bytes as u64;
        rates.writes_running -= 1;
        if rates.writes_running == 0 {
            let spell = rates.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            rates.busy += spell;
        }
        result
    }

    /// Whether the storage, and not the processors, limits what is written as it is.
    fn storage_is_slow(&self) -> bool {
        let rates = self.rates();
        rates.written >= WARM_UP_BYTES && rates.storage() > rates.pull / self.threads
    }

    fn choose(&self, lz4: Promise) -> u32 {
        let rates = self.rates();
        let [time, length] = rates.zstd.unwrap_or(ZSTD_GUESS);
        let zstd = [lz4[0] * time, lz4[1] * length];
        let takes = |promise: Promise| {
            let processors = (rates.pull + promise[0]) / self.threads;
            processors.max(rates.storage() * promise[1])
        };
        let plain = takes([0.0, 1.0]);
        let (lz4, zstd) = (takes(lz4), takes(zstd));
        match () {
            () if lz4.min(zstd) > plain * (1.0 - LEAST_GAIN) => codec::NONE,
            () if zstd < lz4 * (1.0 - LEAST_GAIN) => codec::ZSTD,
            () => codec::LZ4,
        }
    }

    /// Notes what Zstandard took and left beside LZ4.
    fn zstd_took(&self, beside: [f64; 2]) {
        let mut rates = self.rates();
        let [time, length] = rates.zstd.unwrap_or(beside);
        rates.zstd = Some([mix(time, beside[0]), mix(length, beside[1])]);
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Rates {
    /// Seconds a byte of the storage.
    fn storage(&self) -> f64 {
        let running = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        (self.busy + running).as_secs_f64() / self.written.max(1) as f64
    }
}

fn mix(old: f64, new: f64) -> f64 {
    old + (new - old) * NEWEST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tuner that has measured this: seconds a byte to pull and to store.
    fn tuner(pull: f64, store: f64) -> Tuner {
        let written = 1 << 30;
        let busy = Duration::from_secs_f64(store * written as f64);
        let rates = Rates { pull, written, busy, ..Rates::default() };
        Tuner { fixed: None, threads: 2.0, rates: Mutex::new(rates) }
    }

    #[test]
    fn fast_storage_gets_pages_as_they_are() {
        let tuner = tuner(0.3e-9, 0.1e-9);
        assert!(!tuner.storage_is_slow());
    }

    #[test]
    fn slow_storage_gets_what_saves_its_time() {
        let tuner = tuner(0.3e-9, 2e-9);
        assert!(tuner.storage_is_slow());
        assert_eq!(tuner.choose([1e-9, 0.4]), codec::LZ4);
        // What takes the processors longer than the storage is not worth it.
        assert_eq!(tuner.choose([4e-9, 0.4]), codec::NONE);
    }

    #[test]
    fn very_slow_storage_gets_the_shortest() {
        let tuner = tuner(0.3e-9, 20e-9);
        assert_eq!(tuner.choose([1e-9, 0.4]), codec::ZSTD);
        // Unless it turns out not to be shorter.
        (0..100).for_each(|_| tuner.zstd_took([3.0, 1.0]));
        assert_eq!(tuner.choose([1e-9, 0.4]), codec::LZ4);
        // And noise is left alone.
        assert_eq!(tuner.choose([0.5e-9, 1.0]), codec::NONE);
    }

    #[test]
    fn nothing_is_compressed_before_the_storage_is_known() {
        let tuner = Tuner::new(None);
        assert!(!tuner.storage_is_slow());
        let pages = vec![0; 1 << 20];
        let mut packer = Packer::default();
        assert_eq!(packer.pack(&tuner, &pages).unwrap().block.codec, codec::NONE);
    }
}
