//! Signals: their names, and which of them a program brings on itself.

pub use eyrie_control::signals::{is_own_bug, signal_name};

#[cfg(test)]
mod tests {
    use eyrie_control::signals as known;

    #[test]
    fn numbers_of_signals_are_those_of_the_system() {
        let pairs = [
            (known::SIGHUP, libc::SIGHUP),
            (known::SIGINT, libc::SIGINT),
            (known::SIGQUIT, libc::SIGQUIT),
            (known::SIGILL, libc::SIGILL),
            (known::SIGTRAP, libc::SIGTRAP),
            (known::SIGABRT, libc::SIGABRT),
            (known::SIGBUS, libc::SIGBUS),
            (known::SIGFPE, libc::SIGFPE),
            (known::SIGKILL, libc::SIGKILL),
            (known::SIGUSR1, libc::SIGUSR1),
            (known::SIGSEGV, libc::SIGSEGV),
            (known::SIGUSR2, libc::SIGUSR2),
            (known::SIGPIPE, libc::SIGPIPE),
            (known::SIGALRM, libc::SIGALRM),
            (known::SIGTERM, libc::SIGTERM),
            (known::SIGCONT, libc::SIGCONT),
            (known::SIGXCPU, libc::SIGXCPU),
            (known::SIGXFSZ, libc::SIGXFSZ),
            (known::SIGSYS, libc::SIGSYS),
        ];
        for (known, here) in pairs {
            assert_eq!(known, here);
        }
    }
}
