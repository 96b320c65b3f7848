//! Making shared objects without a path again; those on tmpfs with a path:
//! [`crate::restore::named_memory`].
//!
//! They are made here, given to the restorer as descriptors, and filled from the image while it
//! waits for its memory. What a memfd forbids is forbidden last.

use crate::error::RestoreError;
use crate::resources::open::OPEN_FLAGS;
use crate::resources::shared_memory::objects::ANONYMOUS_NAME;
use crate::resources::system_v::Segment;
use crate::restore::named_memory::{self, Rewind};
use eyrie_image_format::read::image::Image;
use eyrie_image_format::state::{AnonymousObject, ObjectKind, State};
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Where `memfd_create` takes the size of huge pages.
const HUGE_SHIFT: u32 = 26;
const PAGE_SHIFT: u32 = 12;

/// One that was made.
pub struct Remade {
    object: Object,
    bytes: u64,
}

enum Object {
    Open(Open),
    Segment(Segment),
}

/// A file or memfd.
struct Open {
    /// To read and write.
    file: File,
    /// To read only: a mapping made with it cannot become writable.
    read_only: File,
    /// Seals that it is to have.
    seals: u32,
    /// Whether it cannot be written to like a file.
    huge: bool,
    /// If it has a path.
    rewind: Option<Rewind>,
}

fn os(what: &'static str) -> impl Fn(io::Error) -> RestoreError {
    move |source| RestoreError::Os { what, source }
}

/// Those of all processes of a family, by their numbers.
#[derive(Default)]
pub struct SharedObjects {
    made: HashMap<u64, Arc<Remade>>,
    /// How large each is: a process may have mapped a part of it only.
    bytes: HashMap<u64, u64>,
}

impl SharedObjects {
    /// For the processes of `images`.
    pub fn of(images: &[&Image]) -> SharedObjects {
        let mut all = SharedObjects::default();
        for object in images.iter().flat_map(|image| &image.state.anonymous) {
            let bytes = all.bytes.entry(object.id).or_default();
            *bytes = object.bytes.max(*bytes);
        }
        all
    }

    /// Makes all that a process has and none before it had, empty.
    pub fn remake(&mut self, state: &State) -> Result<Vec<Arc<Remade>>, RestoreError> {
        let mut all = Vec::new();
        let new = state.anonymous.iter().filter(|o| !self.made.contains_key(&o.id));
        named_memory::refuse_in_use(new)?;
        for object in &state.anonymous {
            let remade = match self.made.get(&object.id) {
                Some(made) => Arc::clone(made),
                None => {
                    let bytes = self.bytes.get(&object.id).copied().unwrap_or(object.bytes);
                    Arc::new(one(&AnonymousObject { bytes, ..object.clone() })?)
                }
            };
            self.made.insert(object.id, Arc::clone(&remade));
            all.push(remade);
        }
        Ok(all)
    }

    /// Makes sure of room for the content of those that have a path.
    pub fn reserve(&self) -> Result<(), RestoreError> {
        self.rewound().try_for_each(|(open, rewind)| rewind.reserve(&open.file))
    }

    /// The content of a file that waits to be put back.
    pub fn content(&self, id: u64) -> Option<&File> {
        self.made.get(&id).and_then(|remade| match &remade.object {
            Object::Open(open) => Some(&open.file),
            Object::Segment(_) => None,
        })
    }

    /// Puts their content back.
    pub fn put_back(&self) -> Result<(), RestoreError> {
        self.rewound().try_for_each(|(open, rewind)| rewind.put(&open.file))?;
        self.rewound().for_each(|(_, rewind)| rewind.keep());
        Ok(())
    }

    fn rewound(&self) -> impl Iterator<Item = (&Open, &Rewind)> {
        self.made.values().filter_map(|remade| match &remade.object {
            Object::Open(open) => Some((open, open.rewind.as_ref()?)),
            Object::Segment(_) => None,
        })
    }

    /// Forbids what was forbidden, when all are filled and mapped.
    pub fn seal(&self) -> Result<(), RestoreError> {
        self.made.values().try_for_each(|remade| remade.seal())
    }
}

fn one(object: &AnonymousObject) -> Result<Remade, RestoreError> {
    let bytes = object.bytes;
    let (file, seals) = match &object.kind {
        ObjectKind::SystemV { .. } => {
            return Ok(Remade { object: Object::Segment(Segment::find(object)?), bytes });
        }
        ObjectKind::Memory { name, seals } => (memfd(name, object, *seals)?, *seals),
        ObjectKind::Anonymous {} => (memfd(ANONYMOUS_NAME.as_bytes(), object, 0)?, 0),
        ObjectKind::Deleted { path } => (unnamed(path, object)?, 0),
        // Where its content waits until it is put back.
        ObjectKind::Kept { .. } | ObjectKind::KeptBefore { .. } => {
            (memfd(b"eyrie-file", object, 0)?, 0)
        }
        ObjectKind::Named { path } => return named(path, object),
    };
    let fail = os("make a shared object again");
    file.set_len(bytes).map_err(&fail)?;
    // Refused for a file of another user's making; it stays usable for this one.
    let _ = file.set_permissions(Permissions::from_mode(object.mode));
    let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(&fail)?;
    let huge = object.page_shift > PAGE_SHIFT;
    let open = Open { file, read_only, seals, huge, rewind: None };
    Ok(Remade { object: Object::Open(open), bytes })
}

/// A file that has a path.
fn named(path: &[u8], object: &AnonymousObject) -> Result<Remade, RestoreError> {
    let content = || {
        memfd(ANONYMOUS_NAME.as_bytes(), &AnonymousObject { page_shift: 12, ..object.clone() }, 0)
    };
    let (file, rewind) = named_memory::open(path, object, content)?;
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let read_only = again.map_err(os("make a shared object again"))?;
    let open = Open { file, read_only, seals: 0, huge: false, rewind: Some(rewind) };
    Ok(Remade { object: Object::Open(open), bytes: object.bytes })
}

fn memfd(name: &[u8], object: &AnonymousObject, seals: u32) -> Result<File, RestoreError> {
    let fail = os("make a memfd again");
    let text = CString::new(name).map_err(|e| fail(io::Error::other(e)))?;
    let mut flags = libc::MFD_CLOEXEC;
    // A memfd that may not be sealed counts as sealed against seals.
    if seals != libc::F_SEAL_SEAL as u32 {
        flags |= libc::MFD_ALLOW_SEALING;
    }
    if object.page_shift > PAGE_SHIFT {
        flags |= libc::MFD_HUGETLB | object.page_shift << HUGE_SHIFT;
    }
    // SAFETY: the name is a live C string; the result is checked.
    let fd = unsafe { libc::memfd_create(text.as_ptr(), flags) };
    if fd < 0 {
        return Err(fail(io::Error::last_os_error()));
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A file without a name in the folder where it was, or else in memory.
fn unnamed(path: &[u8], object: &AnonymousObject) -> Result<File, RestoreError> {
    let path = Path::new(OsStr::from_bytes(path));
    let here = path.parent().and_then(|folder| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        options.open(folder).ok()
    });
    match here {
        Some(file) => Ok(file),
        None => memfd(path.file_name().unwrap_or_default().as_bytes(), object, 0),
    }
}

impl Remade {
    /// The descriptor for a mapping that may be written to, or may not; none of a segment.
    pub fn fd(&self, writable: bool) -> Option<RawFd> {
        match &self.object {
            Object::Open(open) if writable => Some(open.file.as_raw_fd()),
            Object::Open(open) => Some(open.read_only.as_raw_fd()),
            Object::Segment(_) => None,
        }
    }

    /// The number of a System V segment.
    pub fn number(&self) -> Option<i32> {
        match &self.object {
            Object::Open(_) => None,
            Object::Segment(segment) => Some(segment.number),
        }
    }

    /// A path under which a process that may look at this one finds it to execute. From then on it
    /// is not open for writing here, which would forbid that.
    pub fn as_program(&self) -> Option<String> {
        let Object::Open(open) = &self.object else { return None };
        let (file, read_only) = (open.file.as_raw_fd(), open.read_only.as_raw_fd());
        // SAFETY: both are descriptors of ours, and nothing is written by the first any more.
        let r = unsafe { libc::dup3(read_only, file, libc::O_CLOEXEC) };
        (r >= 0).then(|| format!("/proc/{}/fd/{read_only}", std::process::id()))
    }

    /// Opens it once more.
    pub fn open(&self, flags: i32, offset: u64) -> Result<File, RestoreError> {
        match &self.object {
            Object::Open(open) => open.again(flags, offset),
            Object::Segment(_) => Err(RestoreError::Machine("a segment has no descriptor".into())),
        }
    }

    /// Fills in content.
    pub fn fill(&self, offset: u64, pages: &[u8]) -> Result<(), RestoreError> {
        let left = self.bytes.saturating_sub(offset).min(pages.len() as u64) as usize;
        match &self.object {
            Object::Segment(segment) => segment.fill(offset, &pages[..left]),
            Object::Open(open) if open.huge => open.fill_huge(self.bytes, offset, &pages[..left]),
            Object::Open(open) => {
                let to = open.rewind.as_ref().and_then(Rewind::waiting).unwrap_or(&open.file);
                to.write_all_at(&pages[..left], offset).map_err(os("fill a shared object"))
            }
        }
    }

    /// Last, when all is filled and mapped: forbids what was forbidden.
    pub fn seal(&self) -> Result<(), RestoreError> {
        let open = match &self.object {
            Object::Open(open) => open,
            Object::Segment(segment) => {
                segment.keep();
                return Ok(());
            }
        };
        if [0, libc::F_SEAL_SEAL as u32].contains(&open.seals) {
            return Ok(());
        }
        // SAFETY: numbers only.
        let r = unsafe { libc::fcntl(open.file.as_raw_fd(), libc::F_ADD_SEALS, open.seals) };
        if r < 0 { Err(os("seal a memfd again")(io::Error::last_os_error())) } else { Ok(()) }
    }
}

impl Open {
    fn again(&self, flags: i32, offset: u64) -> Result<File, RestoreError> {
        let fail = os("open a shared object again");
        let access = flags & libc::O_ACCMODE;
        let file = OpenOptions::new()
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .custom_flags(flags & (OPEN_FLAGS & !libc::O_DIRECTORY))
            .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
            .map_err(&fail)?;
        if flags & libc::O_PATH == 0 {
            let offset = offset as libc::off_t;
            // SAFETY: moves the offset of a description of our own.
            if unsafe { libc::lseek(file.as_raw_fd(), offset, libc::SEEK_SET) } < 0 {
                return Err(fail(io::Error::last_os_error()));
            }
        }
        Ok(file)
    }

    /// Files of huge pages cannot be written to; they are mapped.
    fn fill_huge(&self, bytes: u64, offset: u64, pages: &[u8]) -> Result<(), RestoreError> {
        let whole = usize::try_from(bytes).unwrap_or(usize::MAX);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let fd = self.file.as_raw_fd();
        // SAFETY: a new mapping wherever there is room; its result is checked.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), whole, prot, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(os("fill a shared object")(io::Error::last_os_error()));
        }
        // SAFETY: the pages lie within the mapping of `whole` bytes, whose huge pages were
        // reserved when it was made; nobody else knows of it.
        unsafe {
            let to = at.cast::<u8>().add(offset as usize);
            std::ptr::copy_nonoverlapping(pages.as_ptr(), to, pages.len());
            libc::munmap(at, whole);
        }
        Ok(())
    }
}
