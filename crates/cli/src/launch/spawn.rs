//! The daemon's process: in a session of its own, with the environment that the job began with.

use crate::options::metrics::Metrics;
use anyhow::Context;
use eyrie_image::OwnPids;
use eyrie_state::home::{self, JobFolder};
use eyrie_state::local;
use eyrie_state::saved_job::SavedJob;
use eyrie_terminal::Failure;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts the daemon in a session of its own, so that the terminal's signals reach only us.
/// It, and through it the ranks, get the signal `mask` that we were started with.
pub fn spawn_daemon(
    folder: &JobFolder,
    binary: &Path,
    console: UnixStream,
    (mask, quit): (libc::sigset_t, libc::sighandler_t),
    (saved, own_pids): (Option<&SavedJob>, bool),
    metrics: &Metrics,
) -> Result<Child, Failure> {
    let mut log = File::options();
    let log = log.append(true).create(true).mode(0o600).open(folder.path.join(home::LOG));
    let log = log.context("daemon's log")?;
    let (console_fd, lock_fd) = (console.as_raw_fd(), folder.lock.as_raw_fd());
    let mut command = Command::new(binary);
    command.arg("__node").arg("--id").arg(&folder.id).arg("--folder").arg(&folder.path);
    command.arg("--console-fd").arg(console_fd.to_string());
    command.arg("--lock-fd").arg(lock_fd.to_string());
    if own_pids {
        command.arg("--own-pids");
    }
    command.args(metrics.words());
    let metrics_fd = metrics.listener.as_ref().map(AsRawFd::as_raw_fd);
    if let Some(saved) = saved {
        let word = |bytes: &[u8]| OsStr::from_bytes(bytes).to_os_string();
        let then = saved.environment.iter().map(|(name, value)| (word(name), word(value)));
        let then = then.filter(|(name, _)| !is_of_today(name));
        // Collected before all of ours are taken away.
        let now: Vec<_> = std::env::vars_os().filter(|(name, _)| is_of_today(name)).collect();
        command.env_clear().envs(then).envs(now);
        command.envs(std::env::var_os(OwnPids::VARIABLE).map(|when| (OwnPids::VARIABLE, when)));
        command.current_dir(word(&saved.working_folder));
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().context("log")?).stderr(log);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::signal(libc::SIGQUIT, quit);
            // We ignore it when we have begun to read standard input.
            libc::signal(libc::SIGTTIN, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            eyrie_process::spawn::shut_inherited();
            for fd in [Some(console_fd), Some(lock_fd), metrics_fd].into_iter().flatten() {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let what = || match saved {
        Some(saved) => {
            let place = String::from_utf8_lossy(&saved.working_folder);
            format!("cannot start the node daemon in {place}, where the job was started")
        }
        None => String::from("cannot start the node daemon"),
    };
    Ok(command.spawn().with_context(what)?)
}

/// Variables that tell of an allocation or a login, which is another when a job goes on, and of
/// folders.
fn is_of_today(name: &OsStr) -> bool {
    const NAMES: [&str; 9] = [
        "JOB_ID",
        "PE_HOSTFILE",
        "NSLOTS",
        "JOB_COMPLETION_INDEX",
        "TMPDIR",
        home::HOME,
        home::HOME_OF_JOB,
        local::LOCAL,
        local::LOCAL_OF_JOB,
    ];
    const STARTS: [&str; 9] =
        ["SLURM", "PBS_", "LSB_", "LSF_", "FLUX_", "SGE_", "KUBERNETES_", "SSH_", "AWS_"];
    let is_start = |start: &&str| name.as_bytes().starts_with(start.as_bytes());
    NAMES.iter().any(|known| name == *known) || STARTS.iter().any(is_start)
}
