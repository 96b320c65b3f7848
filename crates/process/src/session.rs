//! Sessions, and their share of the processors.
//!
//! Where the kernel has groups of processes by session (`autogroup`, on nearly everywhere but
//! without effect in control groups), each session gets as much as any other, however many
//! processes are in it, and a niceness counts within its session only. A daemon leads a session,
//! so that no terminal's signals reach it. Kept true: who started the job with a niceness has its
//! session as nice; the ranks of other jobs have a session each, as other launchers' have, or all
//! of them together had the share of one process.

use std::io;
use std::time::Duration;

/// The kernel lets those without privileges change one session every 100 ms, in the whole system.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(110);

/// How nice a process (0: this one) is.
fn niceness(pid: libc::pid_t) -> i32 {
    // SAFETY: a plain system call. -1 may be an error, and is as little as one nicer.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, pid as libc::id_t) }
}

fn leads(pid: libc::pid_t) -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::getsid(pid) == pid }
}

/// Whether a rank begins a session. In a job that is nice it stays in the daemon's, which is as
/// nice as that; a new one would not be.
pub fn is_for_each() -> bool {
    niceness(0) <= 0
}

/// A rank that has just been forked begins its session, or its process group. Async-signal-safe.
pub fn begin(own: bool) {
    // SAFETY: plain system calls. The process leads no group yet, so neither is refused.
    unsafe {
        if own {
            libc::setsid();
        } else {
            libc::setpgid(0, 0);
        }
    }
}

/// A rank has been restored, whose image says whether it leads a session.
pub fn restored(pid: libc::pid_t) {
    if leads(pid) {
        temper(pid, niceness(0));
    } else {
        // Its own group, like a rank that was started; too late is no harm, it is killed alone.
        // SAFETY: our own child, not collected yet.
        unsafe { libc::setpgid(pid, pid) };
    }
}

/// Makes the session of this daemon, which was begun for it, as nice as it is.
pub fn be_as_nice() {
    temper(std::process::id() as libc::pid_t, niceness(0));
}

/// Gives the session of a process a niceness, soon.
fn temper(pid: libc::pid_t, nice: i32) {
    if nice == 0 || !is_to_wait(&set(pid, nice)) {
        return;
    }
    tokio::task::spawn_local(async move {
        for _ in 0..TRIES {
            tokio::time::sleep(PAUSE).await;
            if !is_to_wait(&set(pid, nice)) {
                return;
            }
        }
    });
}

/// Not possible: the kernel has no such groups, or does not let us.
fn set(pid: libc::pid_t, nice: i32) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/autogroup"), nice.to_string())
}

fn is_to_wait(done: &io::Result<()>) -> bool {
    done.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// A process that began as a rank does.
    fn begun(own: bool) -> Child {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: only async-signal-safe system calls.
        unsafe {
            command.pre_exec(move || {
                begin(own);
                Ok(())
            });
        }
        command.spawn().unwrap()
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// How nice the kernel says that the process's session is; none: it has no such groups.
    fn said(pid: libc::pid_t) -> Option<i32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
        text.trim().rsplit(' ').next()?.parse().ok()
    }

    /// Runs this as a part of a daemon.
    fn in_daemon(part: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, part);
    }

    #[test]
    fn a_rank_leads_its_session_or_its_group() {
        for own in [false, true] {
            let child = begun(own);
            let pid = child.id() as libc::pid_t;
            assert_eq!(leads(pid), own);
            // SAFETY: a plain system call.
            assert_eq!(unsafe { libc::getpgid(pid) }, pid);
            in_daemon(async { restored(pid) });
            assert_eq!(leads(pid), own);
            end(child);
        }
    }

    #[test]
    fn a_session_gets_the_niceness_that_was_asked_for() {
        let child = begun(true);
        let pid = child.id() as libc::pid_t;
        let had = said(pid);
        in_daemon(async {
            temper(pid, 0);
            assert_eq!(said(pid), had);
            temper(pid, 7);
            for _ in 0..TRIES {
                if said(pid) == had.map(|_| 7) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
            panic!("{:?}", said(pid));
        });
        end(child);
    }
}
