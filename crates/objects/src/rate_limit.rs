//! Bytes a second, at most.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much is read at once where that is limited.
const PIECE_BYTES: usize = 64 * 1024;

/// A limit that all transfers of one user share: also those of other threads that have a clone.
#[derive(Debug, Clone)]
pub struct RateLimit {
    /// None: there is none.
    bytes_per_s: Option<u64>,
    free_at: Arc<Mutex<Instant>>,
}

impl RateLimit {
    pub fn new(bytes_per_s: Option<u64>) -> RateLimit {
        let bytes_per_s = bytes_per_s.filter(|rate| *rate > 0);
        RateLimit { bytes_per_s, free_at: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Waits until so many bytes may go.
    fn take(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_s else { return };
        let took = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let now = Instant::now();
        let begins = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let begins = (*free_at).max(now);
            *free_at = begins + took;
            begins
        };
        std::thread::sleep(begins.saturating_duration_since(now));
    }

    /// Bytes, read no faster than that, and no further once one of these is true.
    pub(crate) fn reader<'a>(
        &'a self,
        bytes: &'a [u8],
        given_up: &'a [Arc<AtomicBool>],
    ) -> impl Read + 'a {
        Limited { pace: self, bytes, given_up }
    }
}

struct Limited<'a> {
    pace: &'a RateLimit,
    bytes: &'a [u8],
    given_up: &'a [Arc<AtomicBool>],
}

impl Read for Limited<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.given_up.iter().any(|it| it.load(Ordering::Relaxed)) {
            return Err(io::Error::other("it is given up"));
        }
        let most = if self.pace.bytes_per_s.is_some() { PIECE_BYTES } else { usize::MAX };
        let count = self.bytes.len().min(to.len()).min(most);
        self.pace.take(count);
        let (now, later) = self.bytes.split_at(count);
        to[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        let (bytes, mut read) = (vec![7; 300_000], Vec::new());
        let begin = Instant::now();
        RateLimit::new(Some(1_000_000)).reader(&bytes, &[]).read_to_end(&mut read).unwrap();
        assert!(read == bytes && begin.elapsed() >= Duration::from_millis(200));
        let all = RateLimit::new(None);
        read.clear();
        all.reader(&bytes, &[]).read_to_end(&mut read).unwrap();
        assert_eq!(read, bytes);
        let given_up = [Arc::new(AtomicBool::new(true))];
        assert!(all.reader(&bytes, &given_up).read(&mut [0; 10]).is_err());
    }

    #[test]
    fn who_has_the_same_pace_shares_its_limit() {
        let pace = RateLimit::new(Some(1_000_000));
        let begin = Instant::now();
        let reads = [0, 1].map(|_| {
            let pace = pace.clone();
            std::thread::spawn(move || {
                io::copy(&mut pace.reader(&[7; 150_000], &[]), &mut io::sink())
            })
        });
        for read in reads {
            assert_eq!(read.join().unwrap().unwrap(), 150_000);
        }
        assert!(begin.elapsed() >= Duration::from_millis(200));
    }
}
