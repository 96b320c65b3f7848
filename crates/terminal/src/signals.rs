//! Signals that a command holds, so that a thread of it passes them on.
//!
//! Kept true: what was ignored when we were started (nohup) stays ignored.

/// The signals that are held, and the mask there was before: the one for programs that are started.
pub struct Held {
    /// To be waited for by a thread.
    pub set: libc::sigset_t,
    /// The mask before.
    pub before: libc::sigset_t,
}

impl Held {
    /// Waits for one of them.
    pub fn wait(&self) -> Option<i32> {
        let mut signal = 0;
        // SAFETY: both places are valid; the set was blocked before any thread began.
        let failed = unsafe { libc::sigwait(&self.set, &mut signal) };
        (failed == 0).then_some(signal)
    }
}

/// Blocks `signals`, except for those that are ignored. To be called before any thread is started.
pub fn hold(signals: &[i32]) -> Held {
    // SAFETY: all calls get valid places; zero is a valid sigset_t to be initialised.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut set, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        Held { set, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(set: &libc::sigset_t, signal: i32) -> bool {
        // SAFETY: a valid set.
        unsafe { libc::sigismember(set, signal) == 1 }
    }

    #[test]
    fn an_ignored_signal_stays_ignored() {
        // SAFETY: signals that nothing else in these tests uses.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        let held = hold(&[libc::SIGUSR1, libc::SIGUSR2]);
        assert!(has(&held.set, libc::SIGUSR1) && !has(&held.set, libc::SIGUSR2));
        assert!(!has(&held.before, libc::SIGUSR1));
        // SAFETY: only asks, and then gives this thread its mask back.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, &held.before, &mut now);
            assert!(has(&now, libc::SIGUSR1) && !has(&now, libc::SIGUSR2));
            libc::signal(libc::SIGUSR2, libc::SIG_DFL);
        }
    }
}
