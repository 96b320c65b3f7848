//! How much is checked (`EYRIE_CHECK`), for all of the process.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::made;

/// The variable of the environment.
pub const VARIABLE: &str = "EYRIE_CHECK";
const OFF: u8 = 0;
const ON: u8 = 1;
const FULL: u8 = 2;

static LEVEL: AtomicU8 = AtomicU8::new(ON);

/// The level that the environment asks for.
pub fn asked() -> u8 {
    match std::env::var(VARIABLE).as_deref() {
        Ok("off") => OFF,
        Ok("full") => FULL,
        _ => ON,
    }
}

/// MPI starts.
pub fn begin() {
    LEVEL.store(asked(), Relaxed);
    if is_full() {
        made::keep_makers();
    }
}

#[inline]
pub fn is_full() -> bool {
    LEVEL.load(Relaxed) == FULL
}

#[inline]
pub fn is_off() -> bool {
    LEVEL.load(Relaxed) == OFF
}
