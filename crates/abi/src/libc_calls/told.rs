//! How a function of the C library is told what it was told before: through the machine's door.
//!
//! Kept true: what is asked of the C library is asked outside of this one, as that may wait; in a
//! replay nobody is asked; nothing is recorded where nothing tells (`tells`).

use eyrie_core::machine::Machine;
use eyrie_ledger::door::What;

use super::tells::TELLS;
use crate::global::{self, Outside};
use std::sync::atomic::Ordering::Relaxed;

/// The machine, if what is asked for now is to be recorded.
#[inline]
pub(super) fn teller() -> Option<Outside> {
    if TELLS.load(Relaxed) { global::outside() } else { None }
}

/// Runs `ask` as a call of MPI, if it is to be recorded. What it came to, or nothing.
#[inline]
pub(super) fn told<R>(ask: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    let mut m = teller()?;
    m.enter();
    let answer = ask(&mut m);
    m.leave();
    Some(answer)
}

/// What a function returned and the `errno` that it left, before what it filled.
const HEAD_BYTES: usize = 12;

pub(super) fn errno() -> i32 {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Asks the C library, outside of this one, as that may wait; in a replay nobody is asked. What
/// `ask` fills and returns is recorded, with `errno`. Nothing is asked where nothing is recorded.
#[inline]
pub(super) fn asked<A>(what: What, filled: &mut [u8], ask: A) -> Option<i64>
where
    A: FnOnce(&mut [u8]) -> i64,
{
    let repeats = teller()?.repeats();
    let mut ask = Some(ask);
    let early = if repeats { None } else { ask.take().map(|ask| (ask(filled), errno())) };
    recorded(what, filled, early, ask)
}

/// What was done in any case (a timer was set), and is told as it was when it was done first.
#[inline]
pub(super) fn done(what: What, filled: &mut [u8], result: i64) -> i64 {
    let none = None::<fn(&mut [u8]) -> i64>;
    recorded(what, filled, Some((result, errno())), none).unwrap_or(result)
}

fn recorded<A>(
    what: What,
    filled: &mut [u8],
    early: Option<(i64, i32)>,
    late: Option<A>,
) -> Option<i64>
where
    A: FnOnce(&mut [u8]) -> i64,
{
    let mut own = [0; LONGEST];
    let own = &mut own[..filled.len().min(LONGEST)];
    own.copy_from_slice(&filled[..own.len()]);
    let find = |room: &mut [u8]| {
        let (result, error) = match (early, late) {
            (Some(early), _) => early,
            (None, Some(ask)) => (ask(&mut *own), errno()),
            (None, None) => (-1, libc::ENOSYS),
        };
        room[..8].copy_from_slice(&result.to_ne_bytes());
        room[8..HEAD_BYTES].copy_from_slice(&error.to_ne_bytes());
        room[HEAD_BYTES..HEAD_BYTES + own.len()].copy_from_slice(own);
        HEAD_BYTES + own.len()
    };
    let (result, error) = told(|m| {
        m.tell(what, find, |bytes| {
            let (head, rest) = bytes.split_at_checked(HEAD_BYTES).unwrap_or((&[], &[]));
            let count = rest.len().min(filled.len());
            filled[..count].copy_from_slice(&rest[..count]);
            let result = head.first_chunk::<8>().map_or(-1, |b| i64::from_ne_bytes(*b));
            (result, head.last_chunk::<4>().map_or(libc::EIO, |b| i32::from_ne_bytes(*b)))
        })
    })?;
    if result < 0 {
        fail(error);
    }
    Some(result)
}

/// Most bytes that are filled by a function of a known size.
pub(super) const LONGEST: usize = 480;

/// The bytes of a variable of the program, which consists of numbers.
///
/// # Safety
/// It may be read and written.
pub(super) unsafe fn bytes_of<'a, T>(at: *mut T) -> &'a mut [u8] {
    // SAFETY: by the caller's word.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), size_of::<T>()) }
}

/// Sets `errno`.
pub(super) fn fail(error: i32) -> i32 {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}
