//! Holds what an image says of open files, sockets and timers against itself
//! ([`crate::check`]).

use crate::check::{Finding, ensure};
use crate::state::files::{MAX_DESCRIPTORS, NANOSECONDS_END};
use crate::state::resources::Around;
use crate::state::{Description, Owner, PosixTimer, State, lock};

/// Checks everything.
pub fn check(state: &State) -> Finding {
    let around = state.around();
    for d in &state.descriptions {
        ensure(description(d, &around), || "an open file".into())?;
    }
    let mut next = 0;
    for d in &state.descriptors {
        let known = (d.description as usize) < state.descriptions.len();
        ensure(known && d.fd >= next && d.fd < MAX_DESCRIPTORS, || "descriptors".into())?;
        next = d.fd + 1;
    }
    let mut last = -1;
    for timer in &state.posix_timers {
        ensure(timer.id > last && timer_holds(timer), || "timers".into())?;
        last = timer.id;
    }
    Ok(())
}

fn timer_holds(timer: &PosixTimer) -> bool {
    let signal = (1..=64).contains(&timer.signal) || timer.notify == libc::SIGEV_NONE as u32;
    let known = [0, 1, 2, 4].contains(&timer.notify);
    known && signal && timer.interval_ns < NANOSECONDS_END && timer.left_ns < NANOSECONDS_END
}

fn description(d: &Description, around: &Around<'_>) -> bool {
    let locks = d.locks.iter().all(|l| l.kind <= lock::OFD);
    let owner = |o: &Owner| (0..=64).contains(&o.signal) && (0..=2).contains(&o.kind);
    let owner = d.owner.as_ref().is_none_or(owner);
    d.offset >> 63 == 0 && locks && owner && d.target.holds(around)
}
