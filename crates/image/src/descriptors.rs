//! What the frozen process has open, and whether that can be brought back.

use crate::SEGMENT_PREFIX;
use crate::error::CaptureError;
use crate::orphans::Orphans;
use crate::procfs::{self, FdInfo};
use crate::state::{Description, Descriptor, FileId, Lock, Target};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

const KCMP_FILE: libc::c_int = 0;
/// Major number of `/dev/null`, `/dev/zero`, `/dev/urandom` and the like.
const MEM_MAJOR: u32 = 1;
/// What the kernel shows in `flags` besides what `F_GETFL` returns.
const CLOEXEC: u32 = libc::O_CLOEXEC as u32;

/// One descriptor as found.
struct Open {
    fd: u32,
    link: Vec<u8>,
    meta: Metadata,
    info: FdInfo,
}

/// Descriptors and descriptions of `pid`, which must stand still.
pub fn collect(
    pid: libc::pid_t,
    orphans: &mut Orphans,
) -> Result<(Vec<Descriptor>, Vec<Description>), CaptureError> {
    let open = procfs::numbers(pid, "fd")?
        .into_iter()
        .map(|fd| {
            let link = procfs::link(pid, &format!("fd/{fd}"))?;
            let meta = fs::metadata(format!("/proc/{pid}/fd/{fd}"))
                .map_err(|source| CaptureError::Os { what: "examine a file descriptor", source })?;
            Ok(Open { fd, link, meta, info: procfs::fdinfo(pid, fd)? })
        })
        .collect::<Result<Vec<Open>, CaptureError>>()?;
    let mut descriptors: Vec<Descriptor> = Vec::new();
    let mut descriptions = Vec::new();
    for (i, this) in open.iter().enumerate() {
        let twin = open[..i].iter().position(|other| same_description(pid, this, other));
        let description = match twin {
            Some(j) => descriptors[j].description,
            None => {
                descriptions.push(describe(this, &open, orphans)?);
                descriptions.len() as u32 - 1
            }
        };
        let cloexec = this.info.flags & CLOEXEC != 0;
        descriptors.push(Descriptor { fd: this.fd, cloexec, description });
    }
    Ok((descriptors, descriptions))
}

/// Whether two descriptors share one open file description (and so the offset).
fn same_description(pid: libc::pid_t, a: &Open, b: &Open) -> bool {
    let same_file = a.meta.dev() == b.meta.dev() && a.meta.ino() == b.meta.ino();
    if !same_file || (a.info.flags ^ b.info.flags) & !CLOEXEC != 0 || a.info.pos != b.info.pos {
        return false;
    }
    // SAFETY: kcmp takes numbers only.
    let r = unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, a.fd, b.fd) };
    // Kernels without kcmp: equal in all that can be seen counts as the same.
    r <= 0
}

fn is_stream(meta: &Metadata) -> bool {
    let kind = meta.mode() & libc::S_IFMT;
    kind == libc::S_IFIFO
        || kind == libc::S_IFSOCK
        || (kind == libc::S_IFCHR && libc::major(meta.rdev()) != MEM_MAJOR)
}

/// Which of the standard streams this is, by identity of the pipe, socket or terminal.
fn stdio(this: &Open, open: &[Open]) -> Option<u32> {
    let standard = open.iter().filter(|o| o.fd <= 2 && is_stream(&o.meta));
    let same = standard.filter(|o| {
        o.meta.ino() == this.meta.ino()
            && o.meta.dev() == this.meta.dev()
            && o.meta.rdev() == this.meta.rdev()
    });
    // Output and error may be one pipe: the descriptor's own number decides first.
    let mut numbers: Vec<u32> = same.map(|o| o.fd).collect();
    numbers.sort_by_key(|&n| n != this.fd);
    numbers.first().copied()
}

fn describe(
    this: &Open,
    open: &[Open],
    orphans: &mut Orphans,
) -> Result<Description, CaptureError> {
    let refuse = |what: String| CaptureError::Descriptor { fd: this.fd as i32, what };
    let shown = String::from_utf8_lossy(&this.link).into_owned();
    let target = if let Some(name) = segment_name(&this.link) {
        Target::Segment { name }
    } else if let Some(orphan) = orphans.of_descriptor(this.fd, &this.link, &this.meta)? {
        Target::Orphan { orphan }
    } else if this.link.starts_with(b"anon_inode:") {
        return Err(refuse(format!("of the kind {shown}")));
    } else if is_stream(&this.meta) {
        match stdio(this, open) {
            Some(which) => Target::Stdio { which },
            None => return Err(refuse(stream_name(&this.meta, &shown))),
        }
    } else {
        match this.meta.mode() & libc::S_IFMT {
            libc::S_IFCHR => Target::Device { path: this.link.clone(), rdev: this.meta.rdev() },
            libc::S_IFREG | libc::S_IFDIR => {
                let id = file_id(this.link.clone(), &this.meta);
                if !path_is(&id) {
                    return Err(refuse(format!("a file that {shown} does not name any more")));
                }
                Target::File { id, dir: this.meta.is_dir() }
            }
            _ => return Err(refuse(format!("a special file, {shown}"))),
        }
    };
    Ok(Description {
        target,
        flags: this.info.flags & !CLOEXEC,
        offset: this.info.pos,
        locks: locks(this)?,
    })
}

fn stream_name(meta: &Metadata, shown: &str) -> String {
    match meta.mode() & libc::S_IFMT {
        libc::S_IFIFO => format!("a pipe of the program's own ({shown})"),
        libc::S_IFSOCK => format!("a socket ({shown})"),
        _ => format!("a terminal or device ({shown})"),
    }
}

fn path_is(id: &FileId) -> bool {
    let path = std::ffi::OsString::from_vec(id.path.clone());
    fs::metadata(path).is_ok_and(|m| m.ino() == id.ino && m.dev() == id.dev)
}

/// Identity of a file by its metadata.
pub fn file_id(path: Vec<u8>, meta: &Metadata) -> FileId {
    FileId {
        path,
        dev: meta.dev(),
        ino: meta.ino(),
        size: meta.size(),
        mtime_ns: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
    }
}

/// Name of the job's shared memfd if the path is one: `/memfd:NAME (deleted)`.
pub fn segment_name(path: &[u8]) -> Option<Vec<u8>> {
    let name = path.strip_prefix(b"/memfd:")?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    name.starts_with(SEGMENT_PREFIX.as_bytes()).then(|| name.to_vec())
}

/// Parses `1: POSIX  ADVISORY  WRITE 359 00:13:11691 0 EOF`.
fn locks(this: &Open) -> Result<Vec<Lock>, CaptureError> {
    let parse = |line: &str| -> Option<Lock> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let flock = match fields.next()? {
            "FLOCK" => true,
            "POSIX" => false,
            _ => return None,
        };
        let exclusive = fields.nth(1)? == "WRITE";
        let start: u64 = fields.nth(2)?.parse().ok()?;
        let bytes = match fields.next()? {
            "EOF" => 0,
            end => end.parse::<u64>().ok()?.checked_sub(start)?.checked_add(1)?,
        };
        Some(Lock { flock, exclusive, start, bytes })
    };
    let lock = |line: &String| {
        parse(line).ok_or_else(|| CaptureError::Descriptor {
            fd: this.fd as i32,
            what: format!("a file with a lease or lock of a kind unknown to us ({line})"),
        })
    };
    this.info.locks.iter().map(lock).collect()
}
