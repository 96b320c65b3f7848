//! A rank that stays stopped from its image on, until that is called off.
//!
//! Kept true: who calls it off, on whatever thread and at whatever time, either has every process
//! that was stopped go on, or comes before the first of them is, and then none is stopped.

use std::sync::{Mutex, PoisonError};

/// Whether the processes of a rank are to be stopped, or are.
#[derive(Default)]
pub struct HeldRank(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Wanted,
    Stopped(Vec<libc::pid_t>),
    Off,
}

impl HeldRank {
    /// Stops these, unless it was called off. They do not end meanwhile, whatever happens: the
    /// caller holds them.
    pub fn stop(&self, family: &[libc::pid_t]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Wanted) {
            family.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
            *state = State::Stopped(family.to_vec());
        }
    }

    /// Has those go on that were stopped, whatever group they are in; nobody is stopped any more.
    /// The first one's parent must not have collected it.
    pub fn let_go(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Stopped(family) = std::mem::replace(&mut *state, State::Off) {
            // Parents last: a child's number is its own as long as its parent stands.
            family.iter().rev().for_each(|pid| signal(*pid, libc::SIGCONT));
        }
    }
}

fn signal(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: plain system call; the number is that of a process of the rank, as above.
    unsafe { libc::kill(pid, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        /// In a group of its own.
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("600").process_group(0).spawn().unwrap())
        }

        fn pid(&self) -> libc::pid_t {
            self.0.id() as libc::pid_t
        }

        /// Waits for one of these changes, and says which.
        fn comes_to(&self, changes: libc::c_int) -> libc::c_int {
            // SAFETY: siginfo_t is plain data for which zero is valid.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let (pid, options) = (self.pid() as libc::id_t, changes | libc::WNOWAIT);
            // SAFETY: our own child, and a valid place for the answer.
            assert_eq!(unsafe { libc::waitid(libc::P_PID, pid, &mut info, options) }, 0);
            info.si_code
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn all_that_were_stopped_go_on_whatever_group_they_are_in() {
        let all = [Sleeper::start(), Sleeper::start()];
        let hold = HeldRank::default();
        hold.stop(&all.each_ref().map(Sleeper::pid));
        for sleeper in &all {
            assert_eq!(sleeper.comes_to(libc::WSTOPPED), libc::CLD_STOPPED);
        }
        hold.let_go();
        for sleeper in &all {
            assert_eq!(sleeper.comes_to(libc::WCONTINUED), libc::CLD_CONTINUED);
        }
    }

    #[test]
    fn nobody_is_stopped_when_it_was_called_off_before() {
        let sleeper = Sleeper::start();
        let hold = HeldRank::default();
        hold.let_go();
        hold.stop(&[sleeper.pid()]);
        // It kills, and is seen after a stop, whose number is lower.
        signal(sleeper.pid(), libc::SIGRTMAX());
        assert_eq!(sleeper.comes_to(libc::WSTOPPED | libc::WEXITED), libc::CLD_KILLED);
    }
}
