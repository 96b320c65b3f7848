//! What is said before MPI_Init: the first times that are asked for, and random bytes.
//!
//! Programs keep the time of their start in static variables or take it as `main` begins, and send
//! what has passed since then; or they draw a seed there. So the first answers are kept, and
//! recorded by MPI_Init as the program's first event, with what the program is called. A process
//! that becomes the rank anew finds that event when this library is loaded, and is told the same.
//!
//! Kept true: only the thread that loaded this library is told so, in a process that may become a
//! rank, and up to MPI_Init. Nothing here allocates or waits after `begin`.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};

use eyrie_channel::{Before, IDENTITY_BYTES, identity};
use eyrie_core::machine::Machine;
use eyrie_ledger::clock::Which;
use eyrie_ledger::door::What;
use eyrie_ledger::random::{KEY_BYTES, Random};

use crate::global;

/// Times that are kept; who asks more often before MPI_Init is told what the kernel says.
const MOST: usize = 48;
/// Of one: its clock and its nanoseconds.
const TIME_BYTES: usize = 9;

const OVER: u8 = 0;
const FIRST: u8 = 1;
const AGAIN: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(OVER);
static THREAD: AtomicUsize = AtomicUsize::new(0);
static CLOCKS: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
static TIMES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// Times that are known, and that were asked for.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
static ASKED: AtomicUsize = AtomicUsize::new(0);
static DRAWN: Mutex<Option<Drawn>> = Mutex::new(None);

/// The key of random bytes.
struct Drawn {
    key: [u8; KEY_BYTES],
    random: Random,
}

impl Drawn {
    fn new(key: [u8; KEY_BYTES]) -> Drawn {
        let mut random = Random::default();
        random.begin(&key);
        Drawn { key, random }
    }
}

/// As this library is loaded.
pub(super) fn begin() {
    let state = match Before::of_this_process() {
        Before::Nobody => return,
        Before::First => FIRST,
        Before::Again(bytes) => {
            known(&bytes);
            AGAIN
        }
    };
    // SAFETY: the handler only stores. Without memory for it a child is told old times.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    THREAD.store(global::this_thread(), Relaxed);
    STATE.store(state, Relaxed);
}

unsafe extern "C" fn forked() {
    stop();
}

/// MPI_Init is called.
pub(super) fn stop() {
    STATE.store(OVER, Relaxed);
}

/// Takes what is recorded.
fn known(bytes: &[u8]) {
    let answers = bytes.get(IDENTITY_BYTES..).and_then(<[u8]>::split_first);
    let Some((has_key, rest)) = answers else { return };
    let Some((key, times)) = rest.split_first_chunk::<KEY_BYTES>() else { return };
    if *has_key != 0
        && let Ok(mut drawn) = DRAWN.try_lock()
    {
        *drawn = Some(Drawn::new(*key));
    }
    let times = times.chunks_exact(TIME_BYTES).take(MOST);
    KNOWN.store(times.len(), Relaxed);
    for (n, time) in times.enumerate() {
        CLOCKS[n].store(time[0], Relaxed);
        TIMES[n].store(time[1..].try_into().map_or(0, u64::from_le_bytes), Relaxed);
    }
}

/// At MPI_Init. Where only outcomes are recorded it is what the program is called: of two at once
/// that one is the rank again.
pub(super) fn record(m: &mut Machine) {
    let find = |room: &mut [u8]| {
        let (who, room) = room.split_at_mut(IDENTITY_BYTES);
        who.copy_from_slice(&identity());
        let mut count = 1 + KEY_BYTES;
        if let Ok(drawn) = DRAWN.try_lock()
            && let Some(drawn) = &*drawn
        {
            room[0] = 1;
            room[1..1 + KEY_BYTES].copy_from_slice(&drawn.key);
        }
        for n in 0..KNOWN.load(Relaxed).min(MOST) {
            room[count] = CLOCKS[n].load(Relaxed);
            room[count + 1..count + TIME_BYTES]
                .copy_from_slice(&TIMES[n].load(Relaxed).to_le_bytes());
            count += TIME_BYTES;
        }
        // Most programs ask for nothing.
        let is_empty = count == 1 + KEY_BYTES && room[0] == 0;
        if is_empty { IDENTITY_BYTES } else { IDENTITY_BYTES + count }
    };
    m.enter();
    m.tell(What::Before, find, |_| ());
    m.leave();
}

/// Whether this thread asks before MPI_Init, and that is kept.
#[inline]
pub(super) fn is_asked() -> bool {
    STATE.load(Relaxed) != OVER && THREAD.load(Relaxed) == global::this_thread()
}

/// What a clock shows, if that is kept.
#[inline]
pub(super) fn time(which: Which, now: fn(Which) -> u64) -> Option<u64> {
    if is_asked() { kept(which, now) } else { None }
}

#[cold]
fn kept(which: Which, now: fn(Which) -> u64) -> Option<u64> {
    // Beyond those that are kept the count stands still.
    let n = ASKED.load(Relaxed);
    if n >= MOST {
        return None;
    }
    ASKED.store(n + 1, Relaxed);
    if STATE.load(Relaxed) == AGAIN {
        let is_same = n < KNOWN.load(Relaxed) && CLOCKS[n].load(Relaxed) == which as u8;
        return is_same.then(|| TIMES[n].load(Relaxed));
    }
    let time = now(which);
    CLOCKS[n].store(which as u8, Relaxed);
    TIMES[n].store(time, Relaxed);
    KNOWN.store(n + 1, Relaxed);
    Some(time)
}

/// Fills with random bytes, if these are kept; `key` gives those of the kernel's.
pub(super) fn fill(bytes: &mut [u8], key: fn(&mut [u8]) -> usize) -> bool {
    if !is_asked() {
        return false;
    }
    let Ok(mut drawn) = DRAWN.try_lock() else { return false };
    if drawn.is_none() && STATE.load(Relaxed) == FIRST {
        let mut own = [0; KEY_BYTES];
        if key(&mut own) < KEY_BYTES {
            return false;
        }
        *drawn = Some(Drawn::new(own));
    }
    let Some(drawn) = &mut *drawn else { return false };
    drawn.random.fill(bytes);
    true
}
