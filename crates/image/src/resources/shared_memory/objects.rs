//! Shared objects without a path, as found in a frozen process: shared anonymous memory, memfds,
//! deleted files, System V segments; and files on tmpfs that have a path
//! ([`crate::resources::shared_memory::named`]).
//!
//! Their content is reached through a descriptor where one can be had, else through a mapping of a
//! process that stands still ([`crate::resources::shared_memory::content`]). What is kept of it:
//! [`crate::write::shared_pages`].

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::inode::{Inode, device, inode_at, is_shown_as, open_here};
use crate::kernel::procfs::{self, DELETED, Mapping};
use crate::kernel::remote_calls::Agent;
use crate::resources::files::links::Linked;
use crate::resources::files::stored::Wanted;
use crate::resources::known::Known;
use crate::resources::open::{Open, segment_name};
use crate::resources::regions::identify_at;
use crate::resources::shared_memory::content::{Object, Objects, Piece};
use crate::resources::shared_memory::named::{self, Named};
use crate::resources::system_v;
use eyrie_image_format::state::{
    AnonymousObject, FileId, MAX_OBJECT_BYTES, MAX_OBJECTS, ObjectKind, kept, object_id,
};
use eyrie_image_format::support::spans::Spans;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Name of the memfd that stands for shared anonymous memory in a restored process.
pub const ANONYMOUS_NAME: &str = "eyrie-anonymous";
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
/// Pages that are asked for at a time, a byte each.
const ROOM_BYTES: usize = 1 << 18;

/// One of them, and where the process has it.
#[derive(Debug, Clone)]
struct Found {
    object: AnonymousObject,
    dev: u64,
    ino: u64,
    /// A descriptor of it.
    fd: Option<u32>,
    /// Whether it is the program's file.
    exe: bool,
    /// Where it is mapped.
    maps: Vec<Mapping>,
}

/// All of a process, each known by device and inode; and files that it has mapped shared, under the
/// paths that they had when it stood still: others may remove them while its twin is looked at.
#[derive(Debug, Clone, Default)]
pub struct AnonymousObjects(Vec<Found>, HashMap<Inode, usize>, HashMap<Inode, Option<FileId>>);

impl Found {
    fn is_kept(&self) -> bool {
        matches!(self.object.kind, ObjectKind::Kept { .. })
    }

    /// Opens a file that is to be stored. One that cannot be read is only noted.
    fn open_kept(&mut self, known: &mut BTreeSet<u64>) -> Object {
        let ObjectKind::Kept { file: id, flags, .. } = &mut self.object.kind else {
            return Object::Elsewhere;
        };
        if *flags & kept::CONTENT == 0 {
            return Object::Elsewhere;
        }
        let opened = open_here(Path::new(OsStr::from_bytes(&id.path)));
        let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
        match opened {
            Ok((meta, file)) if meta.is_file() && meta.ino() == id.ino && meta.len() == id.size => {
                self.object.bytes = id.size;
                self.object.held = known.insert(self.object.id);
                match self.object.held {
                    true => Object::File { file, bytes: id.size },
                    false => Object::Elsewhere,
                }
            }
            _ => {
                *flags &= !kept::CONTENT;
                Object::Elsewhere
            }
        }
    }
}

/// What the file `file` is, shown as `path` by a shared mapping or descriptor, if it is nothing
/// with a path, or named shared memory.
fn kind(
    path: &[u8],
    file: Inode,
    (named, linked): (&Named, &Linked),
) -> Result<Option<ObjectKind>, &'static str> {
    if let Some(path) = named.path(file) {
        return Ok(Some(ObjectKind::Named { path: path.to_vec() }));
    }
    if linked.name(file).is_some() {
        return Ok(None);
    }
    let ino = file.1;
    if path.starts_with(b"[anon_shmem") || path.starts_with(b"/anon_hugepage") {
        return Ok(Some(ObjectKind::Anonymous {}));
    }
    if path.starts_with(b"/[aio]") {
        return Err("a context of asynchronous I/O (io_setup)");
    }
    if path.starts_with(b"/secretmem") {
        return Err("secret memory (memfd_secret)");
    }
    if segment_name(path).is_some() {
        return Ok(None);
    }
    let Some(path) = path.strip_suffix(DELETED) else { return Ok(None) };
    if path == b"/dev/zero" {
        return Ok(Some(ObjectKind::Anonymous {}));
    }
    if let Some(name) = path.strip_prefix(b"/memfd:") {
        if name == ANONYMOUS_NAME.as_bytes() {
            return Ok(Some(ObjectKind::Anonymous {}));
        }
        return Ok(Some(ObjectKind::Memory { name: name.to_vec(), seals: 0 }));
    }
    if let Some(key) = path.strip_prefix(b"/SYSV").and_then(|k| std::str::from_utf8(k).ok()) {
        let key = u32::from_str_radix(key, 16).unwrap_or(0);
        return Ok(Some(ObjectKind::SystemV { key, number: ino as i32, doomed: true }));
    }
    Ok(Some(ObjectKind::Deleted { path: path.to_vec() }))
}

impl AnonymousObjects {
    /// Those that a process has mapped, and its program's file, the first one, if that is gone or
    /// another one is in its place.
    pub fn of_mappings(
        pid: libc::pid_t,
        maps: &[Mapping],
        (named, linked): (&Named, &mut Linked),
    ) -> Result<AnonymousObjects, CaptureError> {
        let mut all = AnonymousObjects::default();
        all.add_program(pid)?;
        for m in maps.iter().filter(|m| m.shared && !m.is_special() && !m.is_of_descriptor()) {
            let file = (m.dev, m.ino);
            linked.look_mapped(pid, m);
            let refuse = |what: &str| CaptureError::Mapping { start: m.start, what: what.into() };
            if let Some(kind) = kind(&m.path, file, (named, linked)).map_err(refuse)? {
                if linked.is_elsewhere(file) && m.may_be_written() {
                    return Err(refuse(&elsewhere(m)));
                }
                let i = all.add(m.dev, m.ino, kind)?;
                all.0[i].maps.push(m.clone());
            } else {
                all.2.entry(file).or_insert_with(|| identify_at(linked.path(m), m));
            }
        }
        Ok(all)
    }

    /// A file that is mapped shared, as it was found when the process stood still.
    pub fn plain(&self, dev: u64, ino: u64) -> Option<&FileId> {
        self.2.get(&(dev, ino))?.as_ref()
    }

    fn add_program(&mut self, pid: libc::pid_t) -> Result<(), CaptureError> {
        let shown = procfs::link(pid, "exe")?;
        let is = |path: &Path| fs::metadata(path).map(|m| (device(m.dev()), m.ino())).ok();
        let Some((dev, ino)) = is(Path::new(&format!("/proc/{pid}/exe"))) else { return Ok(()) };
        if !shown.starts_with(b"/") || is(Path::new(OsStr::from_bytes(&shown))) == Some((dev, ino))
        {
            return Ok(());
        }
        let path = shown.strip_suffix(DELETED).unwrap_or(&shown).to_vec();
        let i = self.add(dev, ino, ObjectKind::Deleted { path })?;
        self.0[i].exe = true;
        Ok(())
    }

    fn add(&mut self, dev: u64, ino: u64, kind: ObjectKind) -> Result<usize, CaptureError> {
        if let Some(known) = self.index(dev, ino) {
            return Ok(known);
        }
        if self.0.len() >= MAX_OBJECTS {
            let what = format!("has more than {MAX_OBJECTS} shared objects without a path");
            return Err(CaptureError::Unsupported(what));
        }
        let id = object_id(dev, ino);
        let object =
            AnonymousObject { id, kind, mode: 0o600, bytes: 0, page_shift: 12, held: true };
        self.0.push(Found { object, dev, ino, fd: None, exe: false, maps: Vec::new() });
        self.1.insert((dev, ino), self.0.len() - 1);
        Ok(self.0.len() - 1)
    }

    /// The index of one that is behind a descriptor shown as `link`; `None` if there is a path to
    /// it, or it is nothing of the kind.
    pub fn of_descriptor(
        &mut self,
        this: &Open,
        known: &Known,
    ) -> Result<Option<u32>, CaptureError> {
        let Open { pid, fd, ref link, ref meta, .. } = *this;
        if !meta.is_file() {
            return Ok(None);
        }
        let refuse = |what: &str| CaptureError::Descriptor { fd: fd as i32, what: what.into() };
        let (dev, ino) = inode_at(Path::new(&format!("/proc/{pid}/fd/{fd}")), meta);
        let names = (&known.named, &known.linked);
        let Some(kind) = kind(link, (dev, ino), names).map_err(refuse)? else { return Ok(None) };
        let i = self.add(dev, ino, kind)?;
        self.0[i].fd.get_or_insert(fd);
        Ok(Some(i as u32))
    }

    /// Refuses files that processes besides `own` share. Putting them back would change them for
    /// these. To be asked while `own` stand still, and cannot start another that inherits them.
    pub fn refuse_shared(&self, own: &[libc::pid_t]) -> Result<(), CaptureError> {
        let path = |f: &Found| match &f.object.kind {
            ObjectKind::Named { path } => Some(((f.dev, f.ino), path.clone())),
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

    /// The index of the one that is file `ino` of device `dev`, if it is mapped and opened by that.
    pub fn index(&self, dev: u64, ino: u64) -> Option<usize> {
        self.1.get(&(dev, ino)).copied()
    }

    /// Files that are written to and would be put back, by the numbers that `stat` gives, with when
    /// they were made.
    pub fn kept_files(&self) -> impl Iterator<Item = (Inode, i64)> + '_ {
        self.0.iter().filter_map(|found| match &found.object.kind {
            ObjectKind::Kept { file, flags, born_ns, .. } => {
                let written = flags & (kept::WRITTEN | kept::TOUCHED) != 0;
                written.then_some(((file.dev, file.ino), *born_ns))
            }
            _ => None,
        })
    }

    /// Marks those that others have open for writing, too.
    pub fn mark_shared(&mut self, others: &BTreeSet<Inode>) {
        for found in &mut self.0 {
            if let ObjectKind::Kept { file, flags, .. } = &mut found.object.kind
                && others.contains(&(file.dev, file.ino))
            {
                *flags |= kept::SHARED;
            }
        }
    }

    /// Adds files that are opened and mapped by their paths.
    pub fn keep(&mut self, files: Vec<Wanted>) {
        for Wanted { file, born_ns, links, flags, mode, marks } in files {
            let (dev, ino) = (device(file.dev), file.ino);
            if self.index(dev, ino).is_some() || self.0.len() >= MAX_OBJECTS {
                continue;
            }
            let kind = ObjectKind::Kept { file, born_ns, links, flags, marks };
            let id = object_id(dev, ino);
            let object = AnonymousObject { id, kind, mode, bytes: 0, page_shift: 12, held: false };
            self.0.push(Found { object, dev, ino, fd: None, exe: false, maps: Vec::new() });
        }
    }

    /// Finds out what they are, and opens them as far as that can be done from outside. Of what is
    /// in `known` another process of the family holds the content.
    pub fn open(
        &mut self,
        pid: libc::pid_t,
        known: &mut BTreeSet<u64>,
    ) -> Result<Objects, CaptureError> {
        let mut objects = Objects::default();
        if self.0.is_empty() {
            return Ok(objects);
        }
        self.find_descriptors(pid)?;
        for found in &mut self.0 {
            let id = found.object.id;
            if found.is_kept() {
                objects.push(id, found.open_kept(known));
                continue;
            }
            let Some(file) = open(pid, found) else {
                objects.push(id, Object::Unseen);
                continue;
            };
            describe(found, &file)?;
            found.object.held = known.insert(id);
            refuse_large(&found.object)?;
            let bytes = found.object.bytes;
            let held = found.object.held;
            objects.push(id, if held { Object::File { file, bytes } } else { Object::Elsewhere });
        }
        Ok(objects)
    }

    /// Has the others be read where the process, which stands still, has them mapped. `twin` shares
    /// them, and is asked which of their pages are there. Another process may have other parts of
    /// one mapped: both are stored.
    pub fn look_through(
        &mut self,
        pid: libc::pid_t,
        twin: &Agent,
        objects: &mut Objects,
    ) -> Result<(), CaptureError> {
        let mem = File::open(format!("/proc/{pid}/mem")).map_err(|_| CaptureError::Gone)?;
        let mem = Arc::new(mem);
        for (i, found) in self.0.iter_mut().enumerate() {
            if !objects.is_unseen(i) {
                continue;
            }
            let (pieces, there) = mapped(twin, found)?;
            refuse_large(&found.object)?;
            objects.set(i, Object::Mapped { mem: Arc::clone(&mem), pieces, there });
        }
        Ok(())
    }

    /// Descriptors of those that were found as mappings.
    fn find_descriptors(&mut self, pid: libc::pid_t) -> Result<(), CaptureError> {
        if self.0.iter().all(|f| f.fd.is_some() || f.is_kept()) {
            return Ok(());
        }
        for fd in procfs::numbers(pid, "fd")? {
            let at = format!("/proc/{pid}/fd/{fd}");
            let Ok(meta) = fs::metadata(&at) else { continue };
            let (dev, ino) = inode_at(Path::new(&at), &meta);
            if let Some(i) = self.index(dev, ino) {
                self.0[i].fd.get_or_insert(fd);
            }
        }
        Ok(())
    }

    /// Notes the size of the pages behind a mapping of one.
    pub fn note_page_size(&mut self, index: usize, shift: u32) {
        self.0[index].object.page_shift = shift;
    }

    /// As the image stores them.
    pub fn into_list(self) -> Vec<AnonymousObject> {
        self.0.into_iter().map(|f| f.object).collect()
    }
}

/// What is said of a mapped file whose name is not found.
fn elsewhere(m: &Mapping) -> String {
    format!(
        "a file that has another name than {} by now, which is not found near there",
        String::from_utf8_lossy(&m.path)
    )
}

/// Opens one by its path, through a descriptor of the process, or (with privileges) through a
/// mapping.
fn open(pid: libc::pid_t, found: &Found) -> Option<File> {
    let by_path = match &found.object.kind {
        ObjectKind::Named { path } => open_here(Path::new(OsStr::from_bytes(path))).ok(),
        _ => None,
    };
    let same = |file: &File| {
        let at = format!("/proc/self/fd/{}", file.as_raw_fd());
        let is_it = |m: &fs::Metadata| is_shown_as(Path::new(&at), m, (found.dev, found.ino));
        file.metadata().is_ok_and(|m| m.is_file() && is_it(&m))
    };
    if let Some(file) = by_path.filter(same) {
        return Some(file);
    }
    let by_fd = found.fd.map(|fd| format!("/proc/{pid}/fd/{fd}"));
    let map = |m: &Mapping| format!("/proc/{pid}/map_files/{:x}-{:x}", m.start, m.end);
    let system_v = matches!(found.object.kind, ObjectKind::SystemV { .. });
    let by_map = found.maps.first().filter(|_| !system_v).map(map);
    let by_exe = found.exe.then(|| format!("/proc/{pid}/exe"));
    by_fd.into_iter().chain(by_exe).chain(by_map).find_map(|path| {
        let file = open_here(Path::new(&path)).ok()?;
        let meta = file.metadata().ok()?;
        (meta.ino() == found.ino && meta.is_file()).then_some(file)
    })
}

fn os(what: &'static str) -> impl Fn(io::Error) -> CaptureError {
    move |source| CaptureError::Os { what, source }
}

fn describe(found: &mut Found, file: &File) -> Result<(), CaptureError> {
    let meta = file.metadata().map_err(os("examine a shared object"))?;
    found.object.bytes = meta.len();
    found.object.mode = meta.mode() & 0o7777;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fills a live structure.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut fs) } == 0 && fs.f_type == HUGETLBFS_MAGIC
    {
        found.object.page_shift = (fs.f_bsize as u64).trailing_zeros();
    }
    if let ObjectKind::Memory { seals, .. } = &mut found.object.kind {
        // SAFETY: a number only; an object without seals answers with an error.
        let now = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        *seals = u32::try_from(now).unwrap_or(0);
    }
    Ok(())
}

fn refuse_large(object: &AnonymousObject) -> Result<(), CaptureError> {
    if object.bytes <= MAX_OBJECT_BYTES {
        return Ok(());
    }
    Err(CaptureError::Unsupported(format!("shares an object of {} bytes", object.bytes)))
}

/// Where a process has parts of an object, each once, and which of its pages are there, by their
/// offsets in it.
fn mapped(twin: &Agent, found: &mut Found) -> Result<(Vec<Piece>, Spans), CaptureError> {
    if matches!(found.object.kind, ObjectKind::SystemV { .. }) {
        system_v::describe(&mut found.object)?;
        let whole = found.object.bytes.next_multiple_of(PAGE_BYTES);
        if let Some(m) = found.maps.iter().find(|m| m.offset != 0 || m.end - m.start != whole) {
            let what = "a part of a System V segment".into();
            return Err(CaptureError::Mapping { start: m.start, what });
        }
    }
    // Pages that are swapped out count as not in memory.
    let room = if swaps() { 0 } else { twin.map(ROOM_BYTES as u64)? };
    found.maps.sort_by_key(|m| m.offset);
    let (mut pieces, mut there) = (Vec::new(), Spans::default());
    let mut seen = 0;
    for m in &found.maps {
        let end = m.offset + (m.end - m.start);
        let mut at = m.offset.max(seen);
        if at < end {
            pieces.push(Piece { offset: at, end, address: m.start + (at - m.offset) });
        }
        while at < end {
            let pages = ((end - at) / PAGE_BYTES).min(ROOM_BYTES as u64) as usize;
            let address = m.start + (at - m.offset);
            let resident =
                if room == 0 { vec![1; pages] } else { twin.resident(address, pages, room)? };
            // To read others would make them.
            for (i, _) in resident.iter().enumerate().filter(|(_, b)| **b & 1 != 0) {
                let start = at + i as u64 * PAGE_BYTES;
                there.push(start, start + PAGE_BYTES);
            }
            at += pages as u64 * PAGE_BYTES;
        }
        seen = seen.max(end);
    }
    if found.object.bytes == 0 {
        found.object.bytes = seen;
    }
    if room != 0 {
        twin.unmap(room, ROOM_BYTES as u64)?;
    }
    Ok((pieces, there))
}

/// Whether this machine has somewhere to swap to.
fn swaps() -> bool {
    // The first line is the heading.
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}
