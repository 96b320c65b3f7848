//! Which call made an object, kept where a program is checked in full (`EYRIE_CHECK=full`), so that
//! what it never frees can be told by that.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// It is kept. Set before MPI starts, for all of the process.
static KEPT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The call that this thread is in.
    static CALL: Cell<&'static str> = const { Cell::new("") };
}

/// Who made an object.
pub(crate) struct Maker {
    pub call: &'static str,
    /// Where it was called; names and lines are looked up when it is shown.
    pub at: Backtrace,
}

/// By slot, who made the object there.
#[derive(Default)]
pub(crate) struct Makers(Vec<Option<Maker>>);

impl Makers {
    #[inline]
    pub(crate) fn note(&mut self, slot: usize) {
        if KEPT.load(Relaxed) {
            self.keep(slot);
        }
    }

    #[cold]
    fn keep(&mut self, slot: usize) {
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(Maker { call: CALL.get(), at: Backtrace::force_capture() });
    }

    pub(crate) fn of(&self, slot: usize) -> Option<&Maker> {
        self.0.get(slot)?.as_ref()
    }
}

/// From now on it is kept who makes what.
pub fn keep_makers() {
    KEPT.store(true, Relaxed);
}

/// The program has called this function.
#[inline]
pub fn called(name: &'static str) {
    if KEPT.load(Relaxed) {
        CALL.set(name);
    }
}

/// Where the program called MPI: file and line if it was compiled with them, else the function;
/// nothing if neither is known.
pub fn caller(trace: &Backtrace) -> Option<String> {
    caller_in(&trace.to_string())
}

/// The frame above the last function of MPI in a backtrace as the standard library writes it.
fn caller_in(trace: &str) -> Option<String> {
    let mut frames: Vec<(&str, Option<&str>)> = Vec::new();
    for line in trace.lines() {
        let line = line.trim();
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                last.1 = Some(place);
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            frames.push((name, None));
        }
    }
    let is_mpi = |name: &str| name.starts_with("PMPI_") || name.starts_with("MPI_");
    let last = frames.iter().rposition(|(name, _)| is_mpi(name))?;
    match frames.get(last + 1)? {
        // Without the column.
        (_, Some(place)) => place.rsplit_once(':').map(|(line, _)| line.to_string()),
        (name, None) if *name != "<unknown>" => Some(format!("in {name}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_of_mpi_is_found() {
        let trace = "   0: std::backtrace::Backtrace::create\n   1: PMPI_Comm_dup\n   2: solve\n \
                     at ./src/solve.c:42:5\n   3: main\n             at ./src/main.c:7:1\n";
        assert_eq!(caller_in(trace).as_deref(), Some("./src/solve.c:42"));
        let plain = "   0: eyrie\n   1: MPI_Send\n   2: main\n   3: <unknown>\n";
        assert_eq!(caller_in(plain).as_deref(), Some("in main"));
        assert_eq!(caller_in("   0: MPI_Send\n   1: <unknown>\n"), None);
        assert_eq!(caller_in("   0: main\n"), None);
    }
}
