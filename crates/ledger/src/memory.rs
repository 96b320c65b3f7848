//! Where a segment's memory comes from: a file in memory that nothing but descriptors and mappings
//! holds, of huge pages where the kernel has them.
//!
//! A page of shared memory costs the kernel 0.6 us and more when it is used for the first time, in
//! pages of 2 MiB a tenth of that, and a send log is memory that is used for the first time until
//! checkpoints release it. A memfd gets huge pages only by a setting of the whole machine
//! (`shmem_enabled`), which is off nearly everywhere; a tmpfs has one of its own. So the file lies
//! in a tmpfs that is mounted nowhere: `fsmount` gives a descriptor of it, and when that is closed
//! and the file's name removed, the file is all there is, as with a memfd. That takes the right to
//! mount; who has not got it may have it in a user namespace, which a child enters.
//!
//! Kept true: where any of that fails there is a memfd, and nothing is left of the attempt.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Switches huge pages off: the environment variable's value is `off`.
pub const HUGE_PAGES_VARIABLE: &str = "EYRIE_HUGE_PAGES";

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Why there is no file of huge pages.
#[derive(Debug, thiserror::Error)]
pub enum HugeError {
    #[error("{HUGE_PAGES_VARIABLE} is off")]
    Off,
    #[error("the kernel has none for shared memory")]
    Lacking,
    #[error("the name of the job holds a zero byte or a slash")]
    Name,
    #[error("tmpfs cannot be set up: {0}")]
    Mount(io::Error),
    #[error("tmpfs cannot be set up, nor is there a user namespace for it: {0}")]
    Namespace(io::Error),
}

/// A file for a segment named `name`: of huge pages where possible (those parts of it that
/// `MADV_HUGEPAGE` is given for), else a memfd.
pub fn shared(name: &str) -> io::Result<File> {
    huge(name).or_else(|_| plain(name))
}

/// A memfd named `name`.
pub fn plain(name: &str) -> io::Result<File> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: plain system call with a valid C string.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { File::from_raw_fd(raw) })
}

/// A file named `name` in a tmpfs of huge pages.
pub fn huge(name: &str) -> Result<File, HugeError> {
    if std::env::var(HUGE_PAGES_VARIABLE).is_ok_and(|v| v == "off") {
        return Err(HugeError::Off);
    }
    // `deny` there holds for every tmpfs.
    match std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled") {
        Ok(setting) if !setting.contains("[deny]") => {}
        _ => return Err(HugeError::Lacking),
    }
    let name = CString::new(name).map_err(|_| HugeError::Name)?;
    if name.as_bytes().contains(&b'/') {
        return Err(HugeError::Name);
    }
    match unmounted_file(&name) {
        Ok(file) => Ok(file.into()),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            in_namespace(&name).map_err(HugeError::Namespace)
        }
        Err(e) => Err(HugeError::Mount(e)),
    }
}

/// A file without a name any more in a tmpfs that is mounted nowhere. Plain system calls only: it
/// also runs in a child of a process with threads.
fn unmounted_file(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: system calls on live C strings and on descriptors that were just made.
    unsafe {
        let context = owned(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), FSOPEN_CLOEXEC))?;
        // No limit of its own, as of a memfd.
        for (key, value) in [(c"huge", c"advise"), (c"size", c"0")] {
            configure(&context, FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr())?;
        }
        configure(&context, FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
        let context = context.as_raw_fd();
        let root = owned(libc::syscall(libc::SYS_fsmount, context, FSMOUNT_CLOEXEC, 0))?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let made = libc::openat(root.as_raw_fd(), name.as_ptr(), flags, 0o600);
        let file = owned(made.into())?;
        match libc::unlinkat(root.as_raw_fd(), name.as_ptr(), 0) {
            0 => Ok(file),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// # Safety
/// `key` and `value` must be C strings or null, as `command` wants them.
unsafe fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    key: *const libc::c_char,
    value: *const libc::c_char,
) -> io::Result<()> {
    let context = context.as_raw_fd();
    // SAFETY: by this function's contract.
    match unsafe { libc::syscall(libc::SYS_fsconfig, context, command, key, value, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
/// `raw` must be what a system call that makes a descriptor has just returned.
unsafe fn owned(raw: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(raw) {
        // SAFETY: by this function's contract it is open, and nobody else's.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The same file, made by a child in a user namespace of its own. The child has our table of
/// descriptors, and puts the file in the place of one that we hold.
fn in_namespace(name: &CStr) -> io::Result<File> {
    let place = File::open("/dev/null")?;
    // SAFETY: no arguments.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let maps = [
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/uid_map", format!("{user} {user} 1")),
        (c"/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    let flags = libc::CLONE_FILES | libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::SIGCHLD;
    let all = all_signals();
    let mut before = all;
    // SAFETY: sets that live. The clone is like fork: without CLONE_VM the child has its own copy
    // of all memory, stack included. It has our handlers, too, so no signal may get to it.
    let child = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0)
    };
    let error = io::Error::last_os_error();
    if child != 0 {
        // SAFETY: as above; what was there before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
    }
    match child {
        -1 => return Err(error),
        // In the child, of a process that may have threads: system calls only from here on.
        0 => {
            let done = maps.iter().try_for_each(|(path, text)| write_at_once(path, text));
            let done = done.and_then(|()| unmounted_file(name)).and_then(|file| {
                // SAFETY: both are open; what was at the place is closed by that.
                let moved =
                    unsafe { libc::dup3(file.as_raw_fd(), place.as_raw_fd(), libc::O_CLOEXEC) };
                if moved < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
            let code = done.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0);
            // SAFETY: ends the child at once; nothing of the parent's is torn down.
            unsafe { libc::_exit(code) }
        }
        _ => {}
    }
    let mut status = 0;
    loop {
        // SAFETY: our own child, and a live place for its status.
        let waited = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        match (waited, io::Error::last_os_error()) {
            (-1, e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Somebody who waits for any child was first.
            (-1, e) if place.metadata().is_ok_and(|m| !m.is_file()) => return Err(e),
            _ => break,
        }
    }
    match status {
        0 => Ok(place),
        s if libc::WIFEXITED(s) => Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(s))),
        _ => Err(io::Error::from(io::ErrorKind::Interrupted)),
    }
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: a set is plain data, and is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

fn write_at_once(path: &CStr, text: &str) -> io::Result<()> {
    // SAFETY: system calls on a C string, a live buffer, and a descriptor that was just made.
    unsafe {
        let file = owned(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC).into())?;
        match libc::write(file.as_raw_fd(), text.as_ptr().cast(), text.len()) {
            n if n == text.len() as isize => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn is_fit(file: &File) {
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"x", (1 << 40) - 1).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let link = link.to_str().unwrap();
        assert!(link.ends_with("eyrie-job:t (deleted)"), "{link}");
    }

    #[test]
    fn a_file_without_a_name_is_had_in_any_case() {
        is_fit(&plain("eyrie-job:t").unwrap());
        is_fit(&shared("eyrie-job:t").unwrap());
        assert!(plain("a\0b").is_err() && huge("a\0b").is_err() && huge("a/b").is_err());
    }

    #[test]
    fn it_has_huge_pages_where_the_machine_lets_us() {
        // What of it the machine lacks is an error with its reason, and no test of ours.
        for made in [huge("eyrie-job:t"), in_namespace(c"eyrie-job:t").map_err(HugeError::Mount)] {
            match made {
                Ok(file) => is_fit(&file),
                Err(e) => eprintln!("no huge pages: {e}"),
            }
        }
    }
}
