//! What Go's runtime knows of the number of a thread.
//!
//! Besides libc's copy there is one of its own: `procid` of the thread's `m`, by which goroutines
//! that compute without a call are interrupted (`tgkill`). Its place is not the same in all
//! versions, so it is known by what surrounds it: a word of the thread's own data leads to a `g`,
//! this to its `m`, that begins with its `g0`, which leads back to the `m`; and of the next words
//! one is the old number. Else nothing is touched.

use crate::error::RestoreError;
use crate::kernel::memory;
use eyrie_image_format::bytes::registers::words_to_regs;
use eyrie_image_format::state::Thread;

/// Offset of `m` in `g`, behind the bounds of the stack (four words), `_panic` and `_defer`.
const M_IN_G: u64 = 48;
/// How many words of an `m` the number is among: `g0`, the registers in `morebuf`, and two more.
const M_WORDS: usize = 16;
/// Words below the thread pointer among which `g` is: right below it, but for programs that use C.
const LOCAL_WORDS: u64 = 512;
/// No pointer leads there.
const LOWEST: u64 = 1 << 16;

/// Tells Go's runtime, if it is there, the new number of a thread.
pub fn renumber(pid: libc::pid_t, thread: &Thread, new: libc::pid_t) -> Result<(), RestoreError> {
    let base = words_to_regs(&thread.regs).fs_base;
    if thread.tid == new || !base.is_multiple_of(8) || base < LOWEST {
        return Ok(());
    }
    let old = thread.tid as u64;
    let place = (1..=LOCAL_WORDS).find_map(|n| {
        let g = word(pid, base.checked_sub(8 * n)?)?;
        place_of_number(pid, g, old)
    });
    let Some(at) = place else { return Ok(()) };
    memory::write_exact(pid, at, &(new as u64).to_le_bytes())
        .map_err(|e| RestoreError::Died(e.to_string()))
}

fn word(pid: libc::pid_t, at: u64) -> Option<u64> {
    memory::read_words::<1>(pid, at).ok().map(|[word]| word)
}

fn is_pointer(word: u64) -> bool {
    word.is_multiple_of(8) && word >= LOWEST && word >> 47 == 0
}

/// Where the `m` of what may be a `g` has this number.
fn place_of_number(pid: libc::pid_t, g: u64, number: u64) -> Option<u64> {
    if !is_pointer(g) {
        return None;
    }
    let m = word(pid, g + M_IN_G).filter(|&m| is_pointer(m))?;
    let words = memory::read_words::<M_WORDS>(pid, m).ok()?;
    let g0 = words[0];
    if !is_pointer(g0) || word(pid, g0 + M_IN_G) != Some(m) {
        return None;
    }
    let mut places = (1..M_WORDS).filter(|&i| words[i] == number);
    let place = places.next().filter(|_| places.next().is_none())?;
    Some(m + 8 * place as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `g0`, a `g` of the same thread, and their `m` with the number at these words.
    fn found(at: &[usize], tied: bool) -> Option<usize> {
        let mut m = Box::new([0u64; M_WORDS]);
        let (mut g0, mut g) = (Box::new([0u64; 8]), Box::new([0u64; 8]));
        let address = m.as_ptr() as u64;
        g[6] = address;
        g0[6] = if tied { address } else { address + 8 };
        m[0] = g0.as_ptr() as u64;
        at.iter().for_each(|&i| m[i] = 4711);
        let own = std::process::id() as libc::pid_t;
        let place = place_of_number(own, g.as_ptr() as u64, 4711);
        place.map(|place| (place - address) as usize / 8)
    }

    #[test]
    fn the_number_is_known_by_what_surrounds_it() {
        assert_eq!(found(&[9], true), Some(9));
        assert_eq!(found(&[8], true), Some(8));
        assert_eq!(found(&[8, 9], true), None);
        assert_eq!(found(&[], true), None);
        assert_eq!(found(&[9], false), None);
    }
}
