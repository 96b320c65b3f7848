//! Blocks: memory that rows of sums lie in on their way, used again and again. What comes afresh of
//! the system was filled with zeros first, which costs nearly as much as a copy.
//!
//! Kept true: blocks that wait to be used again are bounded, and are let go when a member has done
//! with a generation; whoever takes one for `bytes` bytes writes all of these.

use crate::geometry::CHUNK_BYTES;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most blocks that wait to be used again.
const MAX_SPARE: usize = 256;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Vec<u8>>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets go of those that wait to be used again.
pub(crate) fn release() {
    let all = std::mem::take(&mut *spare());
    drop(all);
}

/// Bytes, a chunk at most as a rule.
pub struct Block {
    /// A chunk, as a rule, of which the rest is of no meaning.
    memory: Vec<u8>,
    bytes: usize,
}

impl Block {
    /// So many bytes that are to be written: they are anything.
    pub fn new(bytes: usize) -> Block {
        if bytes == 0 {
            return Block { memory: Vec::new(), bytes };
        }
        let used = spare().pop().filter(|memory| memory.len() >= bytes);
        let memory = used.unwrap_or_else(|| vec![0; bytes.max(CHUNK_BYTES as usize)]);
        Block { memory, bytes }
    }

    /// Longer, if it is shorter, by zeros.
    pub(crate) fn extend(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.memory.resize(bytes.max(self.memory.len()), 0);
            self.memory[self.bytes..bytes].fill(0);
            self.bytes = bytes;
        }
    }

    /// Shorter, if it is longer.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut spare = spare();
        if self.memory.len() == CHUNK_BYTES as usize && spare.len() < MAX_SPARE {
            spare.push(std::mem::take(&mut self.memory));
        }
    }
}

impl From<Vec<u8>> for Block {
    fn from(memory: Vec<u8>) -> Block {
        Block { bytes: memory.len(), memory }
    }
}

impl From<&[u8]> for Block {
    fn from(bytes: &[u8]) -> Block {
        let mut block = Block::new(bytes.len());
        block.copy_from_slice(bytes);
        block
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

impl Clone for Block {
    fn clone(&self) -> Block {
        Block::from(&**self)
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        **self == **other
    }
}

impl Eq for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_used_before_is_as_long_as_was_said_and_grows_by_zeros() {
        for _ in 0..3 {
            let mut block = Block::from(&[7; 9][..]);
            assert_eq!(*block, [7; 9]);
            block.extend(12);
            assert_eq!(*block, [7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0]);
            block.extend(2);
            assert_eq!(block.len(), 12);
            block.truncate(15);
            block.truncate(8);
            assert_eq!(*block, [7; 8]);
            let mut all = Block::new(CHUNK_BYTES as usize);
            all.fill(1);
        }
        let long = Block::from(&[3; CHUNK_BYTES as usize + 1][..]);
        assert!(long.iter().all(|byte| *byte == 3));
        let many: Vec<Block> = (1..MAX_SPARE + 9).map(Block::new).collect();
        drop(many);
        assert!(spare().len() <= MAX_SPARE);
    }
}
