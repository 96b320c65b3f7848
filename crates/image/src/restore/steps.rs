//! Waiting for a process that is being made, and telling why a step of it has failed.

use crate::error::{RestoreError, step_failed};
use crate::kernel::procfs::{self, Mapping};
use crate::kernel::ptrace::{Stop, TraceError, Tracee};
use crate::kernel::remote_calls::syscall_site;
use crate::resources::file_locks;
use crate::restore::spawn;

/// Waits until the child is about to get `signal`; its death is explained.
pub(crate) fn wait_for(tracee: Tracee, signal: i32) -> Result<(), RestoreError> {
    match tracee.wait_while_busy() {
        Ok(Stop::Signal(s)) if s == signal => Ok(()),
        Ok(other) => Err(RestoreError::Died(format!("unexpected stop {other:?}"))),
        Err(TraceError::Gone) => Err(RestoreError::Died(match tracee.exit_status() {
            Some((libc::CLD_EXITED, status)) => spawn::explain_exit(status).into(),
            Some((_, signal)) => format!("killed by signal {signal}"),
            None => "it is gone".into(),
        })),
        Err(e) => Err(e.into()),
    }
}

pub(crate) fn site(pid: libc::pid_t) -> Result<u64, RestoreError> {
    syscall_site(pid, &own_maps(pid)?).map_err(|e| RestoreError::Machine(e.to_string()))
}

pub(crate) fn own_maps(pid: libc::pid_t) -> Result<Vec<Mapping>, RestoreError> {
    let text = procfs::read(pid, "maps").map_err(|e| RestoreError::Died(e.to_string()))?;
    procfs::parse_maps(&text).map_err(|e| RestoreError::Died(e.to_string()))
}

/// A call in the child's name that returned the wrong thing.
pub(crate) fn explain_failure(what: &str, result: i64) -> RestoreError {
    if file_locks::is_held(what, result) {
        return RestoreError::Locked { what: what.to_owned() };
    }
    step_failed(what, result)
}
