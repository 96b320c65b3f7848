//! The lock of the nodes of a job that has a journal: who looks at the job's folder sees by it
//! whether nodes wait for a new controller.
//!
//! Kept true: it is a lock of an open file (fcntl, `F_OFD_*`), as the kernel can be asked about one
//! of these without a lock being taken: who asks is never taken for a node by another who does.

use crate::home::{JOURNAL, NODES};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// What is in it if they are on other machines; for how many milliseconds they wait follows.
const ELSEWHERE: &str = "elsewhere ";
/// How often the controller of such nodes gives a sign of life there.
pub const SIGN: Duration = Duration::from_secs(5);
/// What a sign may be late, and what nodes may take to end.
const SLACK: Duration = Duration::from_secs(10);

/// Does something with a lock of a whole open file. What the kernel says of locks is in the answer.
fn lock(file: &File, does: libc::c_int, kind: libc::c_int) -> io::Result<libc::flock> {
    // SAFETY: it consists of numbers, and zeros mean the whole file.
    let mut whole: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    whole.l_type = kind as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: a descriptor that is open, and a variable of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), does, &raw mut whole) } {
        0 => Ok(whole),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until the lock is there.
fn wait_for(file: &File, kind: libc::c_int) -> io::Result<()> {
    loop {
        match lock(file, libc::F_OFD_SETLKW, kind) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}

/// Holds the lock. Nodes inherit it, so it is held as long as the controller or one of them lives.
pub fn hold(folder: &Path) -> io::Result<OwnedFd> {
    let path = folder.join(NODES);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    wait_for(&file, libc::F_RDLCK)?;
    Ok(file.into())
}

/// Waits until nobody holds that lock.
pub fn await_free(nodes: &File) {
    // Where there are no locks nobody has one.
    let _ = wait_for(nodes, libc::F_WRLCK);
}

/// Notes that nodes are on other machines, where nothing is seen of them, and how long they wait
/// for a controller; to be called every `SIGN` as long as there is one that holds them.
pub fn note_elsewhere(folder: &Path, limit: Duration) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).open(folder.join(NODES))?;
    io::Write::write_all(&mut file, format!("{ELSEWHERE}{}\n", limit.as_millis()).as_bytes())
}

/// Whether nodes of a job wait for a new controller, or may do so.
pub(crate) fn is_resumable(folder: &Path) -> bool {
    let path = folder.join(NODES);
    if !folder.join(JOURNAL).exists() {
        return false;
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    if let Some(limit) = text.strip_prefix(ELSEWHERE).and_then(|t| t.trim().parse().ok()) {
        let sign = fs::metadata(&path).and_then(|m| m.modified());
        let age = sign.map(|at| at.elapsed().unwrap_or_default());
        return age.is_ok_and(|age| age < Duration::from_millis(limit) + SLACK);
    }
    is_shared(&path)
}

/// Whether somebody holds the lock of this file as nodes do.
fn is_shared(path: &Path) -> bool {
    let file = eyrie_image::open_plain(path);
    let found = file.and_then(|file| lock(&file, libc::F_OFD_GETLK, libc::F_WRLCK));
    found.is_ok_and(|lock| libc::c_int::from(lock.l_type) == libc::F_RDLCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::tests::soon;
    use crate::home::{create, jobs, stays};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::SystemTime;

    #[test]
    fn nodes_elsewhere_are_waited_for_as_long_as_they_may_be_there() {
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(JOURNAL), "").unwrap();
        drop(hold(&job.path).unwrap());
        soon("no node has a lock", || !stays(&job.path));
        let limit = Duration::from_secs(60);
        note_elsewhere(&job.path, limit).unwrap();
        let path = job.path.clone();
        drop(job.lock);
        soon("it has no controller", || jobs(home.path())[0].resumable);
        let nodes = OpenOptions::new().write(true).open(path.join(NODES)).unwrap();
        nodes.set_modified(SystemTime::now() - limit - SLACK - SIGN).unwrap();
        soon("it is gone", || jobs(home.path()).is_empty());
        assert!(!path.exists());
        assert!(note_elsewhere(&path, limit).is_err());
    }

    #[test]
    fn nodes_here_are_waited_for_as_long_as_they_hold_their_lock() {
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(JOURNAL), "").unwrap();
        let nodes = hold(&job.path).unwrap();
        drop(job.lock);
        soon("it has no controller", || !jobs(home.path())[0].alive);
        let all = jobs(home.path());
        assert!(all.len() == 1 && all[0].resumable);
        drop(nodes);
        soon("it is gone", || jobs(home.path()).is_empty());
        assert!(!job.path.exists());
    }

    #[test]
    fn who_asks_is_not_taken_for_a_node() {
        const TIMES: u32 = 2_000;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NODES);
        fs::write(&path, "").unwrap();
        let ask = || (0..TIMES).filter(|_| is_shared(&path)).count();
        // Each of four takes none of the others for a node.
        let found = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            all.into_iter().map(|asks| asks.join().unwrap()).sum::<usize>()
        });
        assert_eq!(found, 0);
        // All that ask see a node that is there, however many do.
        let (node, over) = (hold(home.path()).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| {
                await_free(&OpenOptions::new().write(true).open(&path).unwrap());
                assert!(over.load(Ordering::SeqCst), "a node has the lock");
            });
            assert_eq!(ask(), TIMES as usize);
            over.store(true, Ordering::SeqCst);
            drop(node);
            ends.join().unwrap();
        });
        soon("nobody has the lock", || !is_shared(&path));
    }
}
