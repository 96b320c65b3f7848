//! `eyrie-image run`: the program is found and started as our child.

use crate::args::Run;
use crate::supervise::{self, Started};
use crate::{home, orphans, restart, signals};
use anyhow::anyhow;
use eyrie_image::OwnPids;
use eyrie_terminal::Failure;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn run(run: &Run) -> Result<i32, Failure> {
    let name = run.command.first().map_or(OsStr::new(""), |w| w.as_os_str());
    // Said before the program runs, not when its first image is wanted back.
    restart::restorer()?;
    if run.keeping.own_pids() == OwnPids::Yes {
        eyrie_image::enter_own_pids(&[]).map_err(|why| anyhow!(why))?;
    }
    let held = signals::hold();
    orphans::adopt();
    let short = short_name(name);
    let folder = home::create(&home::home()?, &short)?;
    let here = std::env::current_dir().unwrap_or_default();
    let watch = supervise::watch(&here, &run.keeping);
    let pid = match spawn(run, held.before) {
        Ok(pid) => pid,
        Err(error) => {
            folder.close(false);
            return Err(refusal(name, &error));
        }
    };
    let words: Vec<_> = run.command.iter().map(|w| w.to_string_lossy()).collect();
    let (command, touched) = (words.join(" "), Vec::new());
    let started = Started { pid, folder, name: short, command, touched, watch, set: held.set };
    supervise::supervise(started, &run.keeping)
}

/// The last part of a path, as far as it is fit for a file's name.
pub fn short_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let fit = |c: char| c.is_alphanumeric() || "._-+".contains(c);
    let name: String = name.chars().filter(|&c| fit(c)).take(40).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "program".into() } else { name.into() }
}

fn spawn(run: &Run, mask: libc::sigset_t) -> io::Result<libc::pid_t> {
    let Some((program, args)) = run.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let path = found(program);
    if let Some(path) = &path {
        eyrie_image::check_executable(path)?;
    }
    let parent = std::process::id() as libc::pid_t;
    // Ours is `/dev/null` then, in which everything is lost without a word.
    let lacks_output = eyrie_terminal::lacks_output();
    let mut command = Command::new(program);
    command.args(args);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            shut_inherited();
            if lacks_output {
                libc::close(libc::STDOUT_FILENO);
            }
            Ok(())
        });
    }
    let named = |error| match &path {
        Some(path) => eyrie_image::name_interpreter(path, error),
        None => error,
    };
    Ok(command.spawn().map_err(named)?.id() as libc::pid_t)
}

/// Where the C library will find a program: in `PATH`, if its name has no slash.
fn found(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let may = |file: &PathBuf| {
        let meta = std::fs::metadata(file);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(may)
}

/// Lets no descriptor but the standard streams through an exec: an image could not bring strangers'
/// pipes back.
fn shut_inherited() {
    // SAFETY: plain system calls, async-signal-safe; they only set a flag, and the limit is
    // written to a place of our own.
    unsafe {
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, 3, u32::MAX, flag) == 0 {
            return;
        }
        // Before Linux 5.11: one by one.
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for fd in 3..limit.rlim_cur.min(1 << 20) as i32 {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Exit codes in the habit of shells: 127 not found, 126 found but unusable.
fn refusal(name: &OsStr, error: &io::Error) -> Failure {
    let name = name.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(127, anyhow!("program '{name}' not found: give its path, or check PATH"))
        }
        io::ErrorKind::PermissionDenied => Failure::new(
            126,
            anyhow!("'{name}' is not executable: check its permissions (chmod +x)"),
        ),
        io::ErrorKind::InvalidData => Failure::new(126, anyhow!("{error}")),
        _ => Failure::new(126, anyhow!("cannot start '{name}': {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_files() {
        for (path, name) in
            [("/bin/cat", "cat"), ("./a b.out", "ab.out"), ("..", "program"), ("", "program")]
        {
            assert_eq!(short_name(OsStr::new(path)), name);
        }
    }
}
