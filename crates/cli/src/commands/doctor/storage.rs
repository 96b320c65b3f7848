//! Where jobs lie, and what nodes store.

use crate::commands::doctor::finding::Finding;
use crate::file_system::{Space, space, statfs};
use eyrie_state::home;
use eyrie_state::local;
use eyrie_terminal::units;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// With less nothing can be stored.
const LEAST_BYTES: u64 = 256 << 20;

/// File systems that machines share, by their numbers.
const SHARED: [(u64, &str); 9] = [
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
];

/// The kind of file system, if machines share it.
fn shared(path: &Path) -> Option<&'static str> {
    let kind = statfs(path)?.f_type as u64;
    SHARED.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// The folder of jobs, and that for what nodes store.
pub fn look() -> Vec<Finding> {
    let home = match home::home() {
        Ok(home) => home,
        // It says what to do.
        Err(error) => {
            let text = error.to_string();
            return vec![Finding::stops("EYRIE_HOME", text, "export EYRIE_HOME=FOLDER")];
        }
    };
    let mut all = vec![writable(&home)];
    let wish = local::wanted();
    let root = wish.as_ref().map(local::root);
    let stores = match (&wish, root) {
        (Some(wish), Some(Ok(root))) => {
            let text = format!("{} ({})", root.display(), wish.source);
            all.push(match local::is_in_memory(&root) {
                true => Finding::costs(
                    "EYRIE_LOCAL",
                    format!("{text} lies in memory: images take that from programs"),
                    "export EYRIE_LOCAL=FOLDER on a disk",
                ),
                false => Finding::fine("EYRIE_LOCAL", text),
            });
            root
        }
        (Some(wish), Some(Err(error))) if wish.explicit => {
            let text = error.to_string();
            all.push(Finding::stops("EYRIE_LOCAL", text, "export EYRIE_LOCAL=FOLDER"));
            home
        }
        _ => {
            all.push(in_home(&home));
            home
        }
    };
    all.push(room(&stores));
    all
}

fn in_home(home: &Path) -> Finding {
    let about = "EYRIE_LOCAL";
    match shared(home) {
        Some(kind) => Finding::costs(
            about,
            format!("is not set, so images of all ranks go to {} ({kind})", home.display()),
            "export EYRIE_LOCAL=FOLDER on a disk of each node (or local = ... in a file: eyrie \
             config --help)",
        ),
        None if local::is_in_memory(home) => Finding::costs(
            about,
            format!("is not set, and {} lies in memory, as do images", home.display()),
            "export EYRIE_HOME=FOLDER on a disk",
        ),
        None => Finding::fine(about, "not set: nodes store in EYRIE_HOME"),
    }
}

/// Whether files can be made and locked there.
fn writable(home: &Path) -> Finding {
    let about = "EYRIE_HOME";
    let there = home.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let probe = there.join(format!(".eyrie-doctor-{}", std::process::id()));
    let tried = File::options().create_new(true).write(true).open(&probe).map(|file| {
        // SAFETY: plain system call on a descriptor that is open.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        (locked, std::io::Error::last_os_error())
    });
    let _ = fs::remove_file(&probe);
    let shown = home.display();
    match tried {
        Err(error) => Finding::stops(
            about,
            format!("nothing can be written to {shown}: {error}"),
            "export EYRIE_HOME=FOLDER that you can write to",
        ),
        Ok((false, error)) => Finding::stops(
            about,
            format!("files in {shown} cannot be locked: {error}"),
            "export EYRIE_HOME=FOLDER on a file system with locks (NFS: mount it without nolock)",
        ),
        Ok(_) => {
            let kind = shared(home).map(|kind| format!(" ({kind})")).unwrap_or_default();
            Finding::fine(about, format!("{shown}{kind}"))
        }
    }
}

fn room(stores: &Path) -> Finding {
    let (about, shown) = ("free space", stores.display());
    let memory = eyrie_image::meminfo("MemTotal").unwrap_or(0);
    match space(stores) {
        None => Finding::fine(about, format!("{shown}: not known")),
        Some(Space { free, .. }) if free < LEAST_BYTES => Finding::stops(
            about,
            format!("{shown} has {}: no image has room there", units::bytes(free)),
            "make room there, or export EYRIE_LOCAL=FOLDER",
        ),
        Some(Space { free, .. }) if free < memory / 2 => Finding::costs(
            about,
            format!(
                "{shown} has {}, and a rank's images take up to twice its memory (this machine \
                 has {})",
                units::bytes(free),
                units::bytes(memory)
            ),
            "make room there, or export EYRIE_LOCAL=FOLDER with more",
        ),
        Some(Space { free, .. }) => {
            Finding::fine(about, format!("{shown}: {}", units::bytes(free)))
        }
    }
}

/// A file that others are to see, if they see this folder. It is gone with this.
pub struct Probe {
    pub path: PathBuf,
    /// The folder, if it was made for that.
    made: Option<PathBuf>,
}

impl Probe {
    pub fn write(home: &Path, word: &str) -> anyhow::Result<Probe> {
        let made = !home.exists();
        if made {
            eyrie_image::create_private_dir(home)?;
        }
        let path = home.join(format!(".doctor-{}", std::process::id()));
        eyrie_image::write_private(&path, word.as_bytes())?;
        Ok(Probe { path, made: made.then(|| home.into()) })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Only if nobody has put anything there.
        self.made.iter().for_each(|home| drop(fs::remove_dir(home)));
    }
}
