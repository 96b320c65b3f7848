//! Random bytes from a key: ChaCha20 (RFC 8439) with a 64-bit block counter and no nonce, as
//! `arc4random` of the BSDs. So the key is all that has to be recorded of them.

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
const BLOCK_BYTES: usize = 64;
const WORDS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// A stream of bytes.
#[derive(Clone, Copy)]
pub struct Random {
    key: [u8; KEY_BYTES],
    /// The next block.
    at: u64,
    block: [u8; BLOCK_BYTES],
    /// Bytes of the block that are used up.
    used: usize,
    /// The key is no older than this process.
    fresh: bool,
}

impl Default for Random {
    fn default() -> Self {
        Random {
            key: [0; KEY_BYTES],
            at: 0,
            block: [0; BLOCK_BYTES],
            used: BLOCK_BYTES,
            fresh: false,
        }
    }
}

impl Random {
    /// Whether more bytes may come from this key.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The key is one of an earlier process: the next bytes that nothing dictates take another one.
    pub fn forget(&mut self) {
        self.fresh = false;
    }

    /// The key is new.
    pub fn refresh(&mut self) {
        self.fresh = true;
    }

    /// Begins with a key; what lacks of it is 0.
    pub fn begin(&mut self, key: &[u8]) {
        *self = Random { fresh: self.fresh, ..Random::default() };
        self.key.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    }

    /// The next bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.used == BLOCK_BYTES {
                self.block = block(&self.key, self.at);
                (self.at, self.used) = (self.at.wrapping_add(1), 0);
            }
            *byte = self.block[self.used];
            self.used += 1;
        }
    }
}

fn block(key: &[u8; KEY_BYTES], at: u64) -> [u8; BLOCK_BYTES] {
    let mut start = [0u32; 16];
    start[..4].copy_from_slice(&WORDS);
    for (word, bytes) in start[4..12].iter_mut().zip(key.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    (start[12], start[13]) = (at as u32, (at >> 32) as u32);
    let mut state = start;
    for _ in 0..10 {
        for [a, b, c, d] in [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]] {
            quarter(&mut state, a, b, c, d);
        }
        for [a, b, c, d] in [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]] {
            quarter(&mut state, a, b, c, d);
        }
    }
    let mut out = [0; BLOCK_BYTES];
    for (to, (a, b)) in out.chunks_exact_mut(4).zip(state.iter().zip(&start)) {
        to.copy_from_slice(&a.wrapping_add(*b).to_le_bytes());
    }
    out
}

fn quarter(s: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    for (first, second) in [(16, 12), (8, 7)] {
        s[a] = s[a].wrapping_add(s[b]);
        s[d] = (s[d] ^ s[a]).rotate_left(first);
        s[c] = s[c].wrapping_add(s[d]);
        s[b] = (s[b] ^ s[c]).rotate_left(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7539 appendix A.1, vectors 1 and 2: the key is 0, blocks 0 and 1.
    #[test]
    fn it_is_chacha20() {
        let mut random = Random::default();
        random.begin(&[]);
        let mut bytes = [0; 128];
        let (first, second) = bytes.split_at_mut(5);
        random.fill(first);
        random.fill(second);
        assert_eq!(bytes[..8], [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(bytes[60..68], [0xb2, 0xee, 0x65, 0x86, 0x9f, 0x07, 0xe7, 0xbe]);
    }

    #[test]
    fn a_key_of_an_earlier_process_gives_what_it_gave_but_is_not_fresh() {
        let mut random = Random::default();
        random.begin(&[7; KEY_BYTES]);
        random.refresh();
        let mut again = random;
        again.forget();
        let (mut one, mut two) = ([0; 99], [0; 99]);
        random.fill(&mut one);
        again.fill(&mut two);
        assert_eq!(one, two);
        assert!(random.is_fresh() && !again.is_fresh());
    }
}
