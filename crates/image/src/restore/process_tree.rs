//! Making the processes of a family before any of them becomes what it was.
//!
//! The first is the restorer at its first instruction; the others are copies of it, made by their
//! parents under our trace, and have the same descriptors, all that any of them will need. Sessions
//! and process groups are set up meanwhile ([`eyrie_image_format::state::process_tree`]); then
//! those die that had ended. When all are made, what names them is opened
//! ([`crate::resources::pidfds`]), and each gets descriptors of its own, to carry out a plan of its
//! own like a process that is restored alone.

use crate::error::RestoreError;
use crate::kernel::clone::CloneArgs;
use crate::kernel::memory;
use crate::kernel::ptrace::{ALL_SIGNALS, Stop, TraceError, Tracee, is_traced_by_us};
use crate::kernel::stops::reap;
use crate::resources::pidfds::Pidfd;
use crate::restore::child::Child;
use crate::restore::spawn::number_refused;
use crate::restore::steps::{explain_failure, wait_for};
use crate::restore::threads;
use eyrie_image_format::bytes::registers::Regs;
use eyrie_image_format::read::tree_images::Account;
use eyrie_image_format::state::process_tree::{self, Ended, Member, Step};

const OPTIONS: i32 = threads::OPTIONS | libc::PTRACE_O_TRACEFORK;
/// Where, above the first stack pointer, a number for `clone3` lies; arguments that the restorer
/// has no use for lie there.
const NUMBER_OFFSET: u64 = 128;

/// The restorer at its first instruction.
struct Start {
    site: u64,
    regs: Regs,
}

/// Makes a family of the first process, which stands at its first instruction. `made` gets the
/// others in order, also before a failure; those that have ended are dead when this returns.
/// `pidfds` are opened in their places.
pub(crate) fn make(
    (first, site): (Tracee, u64),
    accounts: &[(Member, Account<'_>)],
    pidfds: &[Pidfd],
    made: &mut [Option<Child>],
) -> Result<(), RestoreError> {
    let members: Vec<Member> = accounts.iter().map(|(member, _)| *member).collect();
    let steps = process_tree::steps(&members).map_err(RestoreError::Machine)?;
    let start = Start { site, regs: first.regs()? };
    first.set_options(OPTIONS)?;
    for step in steps {
        let of = |i: usize| -> Result<Tracee, RestoreError> {
            let child = made[i].as_ref().map(|child| child.tracee);
            child.ok_or_else(|| RestoreError::Machine("its processes are not in order".into()))
        };
        match step {
            Step::Make(i) => {
                let pid = start.fork(of(members[i].parent)?, members[i].pid)?;
                made[i] = Some(Child::new(pid));
                wait_for(Tracee(pid), libc::SIGSTOP)?;
            }
            Step::LeadSession(i) => {
                start.call(of(i)?, "lead a session", libc::SYS_setsid, &[])?;
            }
            Step::Join(i, leader) => {
                let group = if i == leader { 0 } else { of(leader)?.0 as u64 };
                start.call(of(i)?, "join its group", libc::SYS_setpgid, &[0, group])?;
            }
        }
    }
    for (i, (_, account)) in accounts.iter().enumerate() {
        if let (Account::Ended(how), Some(child)) = (account, made[i].as_mut()) {
            start.end(child.tracee, how)?;
            child.ended = true;
        }
    }
    for pidfd in pidfds {
        let call = |what: &str, nr, args: &[u64]| start.call(first, what, nr, args);
        pidfd.open(&members, first.0, call)?;
    }
    for (child, (_, account)) in made.iter().flatten().zip(accounts) {
        if matches!(account, Account::Alive(_)) {
            start.compose(child.tracee)?;
        }
    }
    Ok(())
}

impl Start {
    fn call(
        &self,
        tracee: Tracee,
        what: &str,
        nr: libc::c_long,
        args: &[u64],
    ) -> Result<i64, RestoreError> {
        let result = tracee.syscall(self.site, &self.regs, nr, args, &mut None)?;
        if (-4095..0).contains(&result) { Err(explain_failure(what, result)) } else { Ok(result) }
    }

    fn put(&self, tracee: Tracee, offset: u64, words: &[u64]) -> Result<u64, RestoreError> {
        let at = self.regs.rsp + offset;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        memory::write_exact(tracee.0, at, &bytes).map_err(|e| RestoreError::Died(e.to_string()))?;
        Ok(at)
    }

    /// Has a process make a child with this very number.
    fn fork(&self, parent: Tracee, number: libc::pid_t) -> Result<libc::pid_t, RestoreError> {
        let set_tid = self.put(parent, NUMBER_OFFSET, &[u64::from(number as u32)])?;
        let args = CloneArgs::numbered(libc::SIGCHLD, set_tid).sharing_descriptors();
        let at = self.put(parent, 0, &args.words())?;
        let args = [at, size_of::<CloneArgs>() as u64];
        let mut born = None;
        let (site, regs) = (self.site, &self.regs);
        let result = parent.syscall(site, regs, libc::SYS_clone3, &args, &mut born);
        if result.is_err() && is_traced_by_us(number) {
            // Its parent was killed meanwhile. Dropped, the child is ended.
            drop(Child::new(number));
        }
        let result = result?;
        match born {
            Some(pid) => Ok(pid),
            None => Err(number_refused(number, result)),
        }
    }

    /// Lets a process end as it had ended.
    fn end(&self, tracee: Tracee, how: &Ended) -> Result<(), RestoreError> {
        let unexpected =
            |what: &str| RestoreError::Died(format!("{what} by a process that had ended"));
        if how.exited {
            let args = [how.status as u64];
            match tracee.syscall(self.site, &self.regs, libc::SYS_exit_group, &args, &mut None) {
                Err(TraceError::Gone) => {}
                Err(e) => return Err(e.into()),
                Ok(_) => return Err(unexpected("an exit was survived")),
            }
        } else {
            // No core file is written once more.
            let args = [libc::PR_SET_DUMPABLE as u64, 0];
            self.call(tracee, "set dumpable", libc::SYS_prctl, &args)?;
            tracee.set_sigmask(0)?;
            // SAFETY: a number of our own traced descendant.
            unsafe { libc::kill(tracee.0, how.status) };
            tracee.resume(0).or_else(gone_is_fine)?;
            loop {
                match tracee.wait() {
                    Ok(Stop::Signal(signal)) => tracee.resume(signal).or_else(gone_is_fine)?,
                    Err(TraceError::Gone) => break,
                    Err(e) => return Err(e.into()),
                    Ok(_) => return Err(unexpected("a signal was survived")),
                }
            }
        }
        reap(tracee.0);
        Ok(())
    }

    /// Puts a process back to the first instruction, with descriptors of its own, and with no word
    /// of what became of its children.
    fn compose(&self, tracee: Tracee) -> Result<(), RestoreError> {
        let args = [libc::CLONE_FILES as u64];
        self.call(tracee, "have descriptors of its own", libc::SYS_unshare, &args)?;
        let default = self.put(tracee, 0, &[0; 4])?;
        let args = [libc::SIGCHLD as u64, default, 0, 8];
        self.call(tracee, "reset SIGCHLD", libc::SYS_rt_sigaction, &args)?;
        tracee.set_options(threads::OPTIONS)?;
        tracee.set_sigmask(ALL_SIGNALS)?;
        Ok(tracee.set_regs(&self.regs)?)
    }
}

fn gone_is_fine(e: TraceError) -> Result<(), TraceError> {
    if matches!(e, TraceError::Gone) { Ok(()) } else { Err(e) }
}
