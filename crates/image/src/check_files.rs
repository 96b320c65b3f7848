//! Holds what an image says of open files, sockets and timers against itself ([`crate::check`]).

use crate::check::{Finding, ensure, path_holds};
use crate::state::{Description, Owner, PosixTimer, Socket, State, Target, lock, terminal};

/// Size of `struct termios2`.
const TERMIOS_BYTES: usize = 44;
const MAX_DESCRIPTORS: u32 = 1 << 20;
const MAX_ADDRESS_BYTES: usize = 128;
const MAX_OPTION_BYTES: usize = 256;
const NANOSECONDS_END: u64 = 1 << 63;

/// Checks everything.
pub fn check(state: &State) -> Finding {
    for d in &state.descriptions {
        ensure(description(state, d), || "an open file".into())?;
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

fn description(state: &State, d: &Description) -> bool {
    let locks = d.locks.iter().all(|l| l.kind <= lock::OFD);
    let owner = |o: &Owner| (0..=64).contains(&o.signal) && (0..=2).contains(&o.kind);
    let owner = d.owner.as_ref().is_none_or(owner);
    d.offset >> 63 == 0 && locks && owner && target(state, &d.target)
}

fn target(state: &State, target: &Target) -> bool {
    match target {
        Target::Stdio { which } => *which < 3,
        Target::File { id, .. } => path_holds(&id.path),
        Target::Device { path, .. } => path_holds(path),
        Target::Segment { name } => !name.is_empty() && !name.contains(&0),
        Target::Pipe { pipe } => {
            let bytes: usize = pipe.content.iter().map(Vec::len).sum();
            (pipe.path.is_empty() || path_holds(&pipe.path)) && bytes <= pipe.capacity as usize
        }
        Target::Socket { socket: s } => socket(s),
        Target::Between { socket: s } => s.connected && s.peer != 0 && socket(s),
        Target::Apart { socket: s, .. } => {
            s.connected && s.peer == 0 && s.family as i32 != libc::AF_UNIX && socket(s)
        }
        Target::Timer { timer: t } => {
            [t.interval_ns, t.left_ns, t.at_ns].iter().all(|&ns| ns < NANOSECONDS_END)
        }
        Target::Poll { items } => items.iter().all(|item| {
            item.fd < MAX_DESCRIPTORS && (item.description as usize) < state.descriptions.len()
        }),
        Target::Orphan { orphan } => (*orphan as usize) < state.orphans.len(),
        Target::Inotify { watches } => {
            let ordered = watches.windows(2).all(|w| w[0].wd < w[1].wd);
            ordered && watches.iter().all(|w| w.wd > 0 && path_holds(&w.path))
        }
        Target::Terminal { terminal: t } => {
            t.termios.len() == TERMIOS_BYTES && t.flags & !terminal::ALL == 0
        }
        Target::Process { pid } => *pid > 0,
        Target::Relative { pid } => *pid >= 0,
        Target::Event { .. } | Target::Signals { .. } => true,
    }
}

fn socket(socket: &Socket) -> bool {
    let options = socket.options.iter().all(|o| o.value.len() <= MAX_OPTION_BYTES);
    let addresses =
        socket.received.iter().map(|m| &m.from).chain([&socket.name, &socket.peer_name]);
    options && addresses.into_iter().all(|a| a.len() <= MAX_ADDRESS_BYTES)
}
