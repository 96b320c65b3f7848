//! Locks of the dynamic linker whose owner has got another number.
//!
//! glibc's recursive mutexes know their owner by its number. The dynamic linker holds one of its
//! own, `_dl_load_lock`, while it loads a library and while constructors run: a thread that is
//! frozen in that and gets another number would wait for itself. Where the program's own mutexes
//! lie nobody knows; those stay as they are.
//!
//! Kept true: only a word that is the owner's number, in what looks like a recursive mutex that is
//! held once or more by one thread, in the dynamic linker's own data, is changed.

use crate::error::RestoreError;
use crate::kernel::memory;
use eyrie_image_format::state::{Backing, Region, State};

/// `pthread_mutex_t`: lock, count, owner, users, kind, spins, and the two words of a list that
/// robust mutexes are on.
const MUTEX_BYTES: usize = 40;
const OWNER_AT: usize = 8;
const PTHREAD_MUTEX_RECURSIVE: u32 = 1;
/// More than any dynamic linker's data.
const MOST_BYTES: u64 = 1 << 20;

/// Writes new numbers of threads, as (old, new), to the locks of the dynamic linker of `pid`.
pub(crate) fn renumber(
    pid: libc::pid_t,
    state: &State,
    numbers: &[(libc::pid_t, libc::pid_t)],
) -> Result<(), RestoreError> {
    let died = |e: crate::error::CaptureError| RestoreError::Died(e.to_string());
    if numbers.iter().all(|(old, new)| old == new) {
        return Ok(());
    }
    for region in state.regions.iter().filter(|r| is_linkers_data(state, r)) {
        let mut data = vec![0; (region.end - region.start) as usize];
        memory::read_exact(pid, region.start, &mut data).map_err(died)?;
        for (at, owner) in held(&data) {
            let Some((_, new)) = numbers.iter().find(|(old, _)| *old == owner) else { continue };
            let at = region.start + (at + OWNER_AT) as u64;
            memory::write_exact(pid, at, &new.to_le_bytes()).map_err(died)?;
        }
    }
    Ok(())
}

fn is_linkers_data(state: &State, region: &Region) -> bool {
    let Backing::File { file, .. } = region.backing else { return false };
    let Some(file) = state.files.get(file as usize) else { return false };
    let name = file.path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let writable = region.prot & libc::PROT_WRITE as u32 != 0;
    name.starts_with(b"ld-") && writable && region.end - region.start <= MOST_BYTES
}

/// Where recursive mutexes lie that somebody holds, and who.
fn held(data: &[u8]) -> impl Iterator<Item = (usize, libc::pid_t)> {
    (0..data.len()).step_by(8).filter_map(|at| {
        let mutex = data.get(at..at + MUTEX_BYTES)?;
        let (words, rest) = mutex.split_at(20);
        let mut words = words.chunks_exact(4).filter_map(<[u8]>::first_chunk);
        let mut word = || words.next().map(|bytes| u32::from_le_bytes(*bytes));
        let [lock, count, owner, users, kind] = [word()?, word()?, word()?, word()?, word()?];
        let rest = rest.iter().all(|&b| b == 0);
        let is = matches!(lock, 1 | 2) && count >= 1 && users == 1;
        let is = is && kind == PTHREAD_MUTEX_RECURSIVE && rest;
        is.then_some((at, owner as libc::pid_t))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutex(words: [u32; 10]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn held_recursive_mutexes_are_found() {
        let mut data = vec![7; 16];
        data.extend(mutex([2, 1, 4711, 1, 1, 0, 0, 0, 0, 0]));
        data.extend(mutex([0, 0, 0, 0, 1, 0, 0, 0, 0, 0]));
        data.extend(mutex([1, 3, 4712, 1, 1, 0, 0, 0, 0, 0]));
        assert_eq!(held(&data).collect::<Vec<_>>(), [(16, 4711), (96, 4712)]);
    }

    #[test]
    fn what_only_looks_a_little_like_one_is_left() {
        for words in [
            [0, 1, 4711, 1, 1, 0, 0, 0, 0, 0],
            [1, 0, 4711, 1, 1, 0, 0, 0, 0, 0],
            [1, 1, 4711, 2, 1, 0, 0, 0, 0, 0],
            [1, 1, 4711, 1, 0, 0, 0, 0, 0, 0],
            [1, 1, 4711, 1, 1, 0, 0, 9, 0, 0],
        ] {
            assert_eq!(held(&mutex(words)).count(), 0, "{words:?}");
        }
        assert_eq!(held(&mutex([1, 1, 4711, 1, 1, 0, 0, 0, 0, 0])[..36]).count(), 0);
    }
}
