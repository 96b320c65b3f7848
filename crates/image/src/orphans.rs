//! Shared objects without a path, as found in a frozen process: shared anonymous memory, memfds,
//! deleted files, System V segments; and files on tmpfs that have a path ([`crate::named`]).
//!
//! A twin shares them with the process instead of having a copy. Their content is therefore read
//! while the process stands still: through a descriptor where one can be had, else through a
//! mapping, and then only pages that are there, so that holes stay holes.

use crate::agent::Agent;
use crate::error::CaptureError;
use crate::named::{self, Inode, Named};
use crate::procfs::{self, Mapping};
use crate::state::{MAX_ORPHAN_BYTES, MAX_ORPHANS, Orphan, OrphanKind, orphan_at, orphan_id};
use crate::system_v;
use crate::twin::Saved;
use crate::{PAGE_BYTES, SEGMENT_PREFIX};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Name of the memfd that stands for shared anonymous memory in a restored process.
pub const ANONYMOUS_NAME: &str = "eyrie-anonymous";
/// What the kernel appends to the path of a file that has none any more.
pub const DELETED: &[u8] = b" (deleted)";
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
/// Pages that are asked for at a time, a byte each.
const ROOM_BYTES: usize = 1 << 18;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;
const PAGE: usize = PAGE_BYTES as usize;

/// One of them, and where the process has it.
#[derive(Debug)]
struct Found {
    orphan: Orphan,
    dev: u64,
    ino: u64,
    /// A descriptor of it.
    fd: Option<u32>,
    /// Where it is mapped.
    maps: Vec<Mapping>,
}

/// All of a process, each known by device and inode.
#[derive(Debug, Default)]
pub struct Orphans(Vec<Found>);

/// Device number as `/proc/PID/maps` has it.
pub fn device(dev: u64) -> u64 {
    u64::from(libc::major(dev)) << 32 | u64::from(libc::minor(dev))
}

/// What the file `file` is, shown as `path` by a shared mapping or descriptor, if it is nothing
/// with a path, or named shared memory.
fn kind(path: &[u8], file: Inode, named: &Named) -> Result<Option<OrphanKind>, &'static str> {
    if let Some(path) = named.path(file) {
        return Ok(Some(OrphanKind::Named { path: path.to_vec() }));
    }
    let ino = file.1;
    if path.starts_with(b"[anon_shmem") || path.starts_with(b"/anon_hugepage") {
        return Ok(Some(OrphanKind::Anonymous {}));
    }
    if path.starts_with(b"/[aio]") {
        return Err("a context of asynchronous I/O (io_setup)");
    }
    if path.starts_with(b"anon_inode:[io_uring]") {
        return Err("a ring of io_uring (anon_inode:[io_uring])");
    }
    if path.starts_with(b"/secretmem") {
        return Err("secret memory (memfd_secret)");
    }
    let Some(path) = path.strip_suffix(DELETED) else { return Ok(None) };
    if path == b"/dev/zero" {
        return Ok(Some(OrphanKind::Anonymous {}));
    }
    if let Some(name) = path.strip_prefix(b"/memfd:") {
        if name.starts_with(SEGMENT_PREFIX.as_bytes()) {
            return Ok(None);
        }
        if name == ANONYMOUS_NAME.as_bytes() {
            return Ok(Some(OrphanKind::Anonymous {}));
        }
        return Ok(Some(OrphanKind::Memory { name: name.to_vec(), seals: 0 }));
    }
    if let Some(key) = path.strip_prefix(b"/SYSV").and_then(|k| std::str::from_utf8(k).ok()) {
        let key = u32::from_str_radix(key, 16).unwrap_or(0);
        return Ok(Some(OrphanKind::SystemV { key, number: ino as i32, doomed: true }));
    }
    Ok(Some(OrphanKind::Deleted { path: path.to_vec() }))
}

impl Orphans {
    /// Those that a process has mapped.
    pub fn of_mappings(maps: &[Mapping], named: &Named) -> Result<Orphans, CaptureError> {
        let mut all = Orphans::default();
        for m in maps.iter().filter(|m| m.shared && !m.is_special()) {
            let refuse = |what: &str| CaptureError::Mapping { start: m.start, what: what.into() };
            if let Some(kind) = kind(&m.path, (m.dev, m.ino), named).map_err(refuse)? {
                let i = all.add(m.dev, m.ino, kind)?;
                all.0[i].maps.push(m.clone());
            }
        }
        Ok(all)
    }

    fn add(&mut self, dev: u64, ino: u64, kind: OrphanKind) -> Result<usize, CaptureError> {
        if let Some(known) = self.index(dev, ino) {
            return Ok(known);
        }
        if self.0.len() >= MAX_ORPHANS {
            let what = format!("has more than {MAX_ORPHANS} shared objects without a path");
            return Err(CaptureError::Unsupported(what));
        }
        let id = orphan_id(dev, ino);
        let orphan = Orphan { id, kind, mode: 0o600, bytes: 0, page_shift: 12, held: true };
        self.0.push(Found { orphan, dev, ino, fd: None, maps: Vec::new() });
        Ok(self.0.len() - 1)
    }

    /// The index of one that is behind a descriptor shown as `link`; `None` if there is a path to
    /// it, or it is nothing of the kind.
    pub fn of_descriptor(
        &mut self,
        fd: u32,
        link: &[u8],
        meta: &fs::Metadata,
        named: &Named,
    ) -> Result<Option<u32>, CaptureError> {
        if !meta.is_file() {
            return Ok(None);
        }
        let refuse = |what: &str| CaptureError::Descriptor { fd: fd as i32, what: what.into() };
        let (dev, ino) = (device(meta.dev()), meta.ino());
        let Some(kind) = kind(link, (dev, ino), named).map_err(refuse)? else { return Ok(None) };
        let i = self.add(dev, ino, kind)?;
        self.0[i].fd.get_or_insert(fd);
        Ok(Some(i as u32))
    }

    /// Refuses files that processes besides `own` share. Putting them back would change them for
    /// these. To be asked while `own` stand still, and cannot start another that inherits them.
    pub fn refuse_shared(&self, own: &[libc::pid_t]) -> Result<(), CaptureError> {
        let path = |f: &Found| match &f.orphan.kind {
            OrphanKind::Named { path } => Some(((f.dev, f.ino), path.clone())),
            _ => None,
        };
        let paths: BTreeMap<Inode, Vec<u8>> = self.0.iter().filter_map(path).collect();
        let Some((pid, file)) = named::holder(own, &paths.keys().copied().collect()) else {
            return Ok(());
        };
        let path = paths.get(&file).map(|path| String::from_utf8_lossy(path).into_owned());
        Err(CaptureError::Unsupported(format!(
            "uses {}, shared with process {pid}, which is not checkpointed with this one",
            path.unwrap_or_default(),
        )))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of the one that is file `ino` of device `dev`.
    pub fn index(&self, dev: u64, ino: u64) -> Option<usize> {
        self.0.iter().position(|f| f.dev == dev && f.ino == ino)
    }

    /// Reads what they are and hold. `twin` shares them with the process. What is in `known` has
    /// been read from another process of its family, and is not read again.
    pub fn read(
        &mut self,
        pid: libc::pid_t,
        twin: &Agent,
        known: &mut BTreeSet<u64>,
    ) -> Result<Vec<Saved>, CaptureError> {
        let mut saved = Vec::new();
        if self.0.is_empty() {
            return Ok(saved);
        }
        self.find_descriptors(pid)?;
        for (i, found) in self.0.iter_mut().enumerate() {
            let mut to = Sieve { at: orphan_at(i), saved: &mut saved };
            match open(pid, found) {
                Some(file) => {
                    describe(found, &file)?;
                    found.orphan.held = known.insert(found.orphan.id);
                    if found.orphan.held {
                        read_file(&file, found, &mut to)?;
                    }
                }
                // Another may have other parts of it mapped: both are stored.
                None => read_mappings(pid, twin, found, &mut to)?,
            }
            if found.orphan.bytes > MAX_ORPHAN_BYTES {
                let what = format!("shares an object of {} bytes", found.orphan.bytes);
                return Err(CaptureError::Unsupported(what));
            }
        }
        Ok(saved)
    }

    /// Descriptors of those that were found as mappings.
    fn find_descriptors(&mut self, pid: libc::pid_t) -> Result<(), CaptureError> {
        if self.0.iter().all(|f| f.fd.is_some()) {
            return Ok(());
        }
        for fd in procfs::numbers(pid, "fd")? {
            let Ok(meta) = fs::metadata(format!("/proc/{pid}/fd/{fd}")) else { continue };
            if let Some(i) = self.index(device(meta.dev()), meta.ino()) {
                self.0[i].fd.get_or_insert(fd);
            }
        }
        Ok(())
    }

    /// Notes the size of the pages behind a mapping of one.
    pub fn note_page_size(&mut self, index: usize, shift: u32) {
        self.0[index].orphan.page_shift = shift;
    }

    /// As the image stores them.
    pub fn into_list(self) -> Vec<Orphan> {
        self.0.into_iter().map(|f| f.orphan).collect()
    }
}

/// Opens one by its path, through a descriptor of the process, or (with privileges) through a
/// mapping.
fn open(pid: libc::pid_t, found: &Found) -> Option<File> {
    let by_path = match &found.orphan.kind {
        OrphanKind::Named { path } => File::open(OsStr::from_bytes(path)).ok(),
        _ => None,
    };
    let same = |file: &File| {
        let meta = file.metadata();
        meta.is_ok_and(|m| (device(m.dev()), m.ino()) == (found.dev, found.ino) && m.is_file())
    };
    if let Some(file) = by_path.filter(same) {
        return Some(file);
    }
    let by_fd = found.fd.map(|fd| format!("/proc/{pid}/fd/{fd}"));
    let map = |m: &Mapping| format!("/proc/{pid}/map_files/{:x}-{:x}", m.start, m.end);
    let system_v = matches!(found.orphan.kind, OrphanKind::SystemV { .. });
    let by_map = found.maps.first().filter(|_| !system_v).map(map);
    by_fd.into_iter().chain(by_map).find_map(|path| {
        let file = File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        (meta.ino() == found.ino && meta.is_file()).then_some(file)
    })
}

fn os(what: &'static str) -> impl Fn(io::Error) -> CaptureError {
    move |source| CaptureError::Os { what, source }
}

fn describe(found: &mut Found, file: &File) -> Result<(), CaptureError> {
    let meta = file.metadata().map_err(os("examine a shared object"))?;
    found.orphan.bytes = meta.len();
    found.orphan.mode = meta.mode() & 0o7777;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fills a live structure.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut fs) } == 0 && fs.f_type == HUGETLBFS_MAGIC
    {
        found.orphan.page_shift = (fs.f_bsize as u64).trailing_zeros();
    }
    if let OrphanKind::Memory { seals, .. } = &mut found.orphan.kind {
        // SAFETY: a number only; an object without seals answers with an error.
        let now = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        *seals = u32::try_from(now).unwrap_or(0);
    }
    Ok(())
}

/// Takes content and keeps what is not all zeros.
struct Sieve<'a> {
    at: u64,
    saved: &'a mut Vec<Saved>,
}

impl Sieve<'_> {
    /// Takes what lies at `offset`, a whole number of pages.
    fn take(&mut self, offset: u64, pages: &[u8]) {
        for (i, page) in pages.chunks(PAGE).enumerate() {
            if page.iter().all(|&b| b == 0) {
                continue;
            }
            let start = self.at + offset + (i * PAGE) as u64;
            match self.saved.last_mut() {
                Some(last) if last.start + last.content.len() as u64 == start => {
                    last.content.extend_from_slice(page);
                }
                _ => self.saved.push(Saved { start, content: page.to_vec() }),
            }
        }
    }
}

fn read_file(file: &File, found: &Found, to: &mut Sieve<'_>) -> Result<(), CaptureError> {
    let fail = os("read a shared object");
    let bytes = found.orphan.bytes;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        // SAFETY: moves the offset of a description of our own.
        let data = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, libc::SEEK_DATA) };
        if data >= 0 {
            at = data as u64 / PAGE_BYTES * PAGE_BYTES;
        } else if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) {
            break;
        }
        let part = (bytes - at).min(CHUNK_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..part], at).map_err(&fail)?;
        let whole = part.next_multiple_of(PAGE);
        buffer[part..whole].fill(0);
        to.take(at, &buffer[..whole]);
        at += whole as u64;
    }
    Ok(())
}

/// Reads what can be seen of an object in the process's mappings.
fn read_mappings(
    pid: libc::pid_t,
    twin: &Agent,
    found: &mut Found,
    to: &mut Sieve<'_>,
) -> Result<(), CaptureError> {
    if matches!(found.orphan.kind, OrphanKind::SystemV { .. }) {
        system_v::describe(&mut found.orphan)?;
        let whole = found.orphan.bytes.next_multiple_of(PAGE_BYTES);
        if let Some(m) = found.maps.iter().find(|m| m.offset != 0 || m.end - m.start != whole) {
            let what = "a part of a System V segment".into();
            return Err(CaptureError::Mapping { start: m.start, what });
        }
    }
    let mem = File::open(format!("/proc/{pid}/mem")).map_err(|_| CaptureError::Gone)?;
    // Pages that are swapped out count as not in memory.
    let room = if swaps() { 0 } else { twin.map(ROOM_BYTES as u64)? };
    found.maps.sort_by_key(|m| m.offset);
    let mut seen = 0;
    for m in &found.maps {
        let end = m.offset + (m.end - m.start);
        let mut at = m.offset.max(seen);
        while at < end {
            let pages = ((end - at) / PAGE_BYTES).min(ROOM_BYTES as u64) as usize;
            let address = m.start + (at - m.offset);
            let there =
                if room == 0 { vec![1; pages] } else { twin.resident(address, pages, room)? };
            read_resident(&mem, address, at, &there, to)?;
            at += pages as u64 * PAGE_BYTES;
        }
        seen = seen.max(end);
    }
    if found.orphan.bytes == 0 {
        found.orphan.bytes = seen;
    }
    if room == 0 { Ok(()) } else { twin.unmap(room, ROOM_BYTES as u64) }
}

/// Reads the pages at `address` that are there. Reading others would make them.
fn read_resident(
    mem: &File,
    address: u64,
    offset: u64,
    there: &[u8],
    to: &mut Sieve<'_>,
) -> Result<(), CaptureError> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut i = 0;
    while i < there.len() {
        let most = (there.len() - i).min(CHUNK_BYTES / PAGE);
        let run = there[i..i + most].iter().take_while(|&&b| b & 1 != 0).count();
        if run > 0 {
            let bytes = &mut buffer[..run * PAGE];
            mem_read(mem, address + (i * PAGE) as u64, bytes)?;
            to.take(offset + (i * PAGE) as u64, bytes);
        }
        i += run.max(1);
    }
    Ok(())
}

/// Whether this machine has somewhere to swap to.
fn swaps() -> bool {
    // The first line is the heading.
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Reads pages; those beyond the end of the object count as zeros.
fn mem_read(mem: &File, start: u64, to: &mut [u8]) -> Result<(), CaptureError> {
    if mem.read_exact_at(to, start).is_ok() {
        return Ok(());
    }
    for (i, page) in to.chunks_mut(PAGE).enumerate() {
        match mem.read_exact_at(page, start + (i * PAGE) as u64) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EIO) => page.fill(0),
            Err(e) => return Err(os("read shared memory")(e)),
        }
    }
    Ok(())
}
