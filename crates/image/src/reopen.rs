//! Opening again what processes had open and mapped, after holding it against what was recorded.
//!
//! Nothing outside is changed here: files that have to be cut back are noted, and cut only when
//! everything else has succeeded. One [`Reopener`] serves all processes that were frozen together:
//! what they share is made once.

use crate::append::{self, Cuts};
use crate::error::RestoreError;
use crate::image::Image;
use crate::mapped;
use crate::pidfds::{self, Pidfd};
use crate::procfiles;
use crate::reorphan::{self, Remade};
use crate::restore::RestoreOptions;
use crate::rewire::{self, MadeSockets, Wiring};
use crate::state::{Description, FileId, Socket, State, Target};
use crate::undo::{self, FileNote, Undo};
use crate::{counters, inotify, pipes, sockets, terminals};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Status flags that are given again on opening.
pub const OPEN_FLAGS: i32 = libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DIRECT
    | libc::O_SYNC
    | libc::O_NOATIME
    | libc::O_DIRECTORY
    | libc::O_PATH;
/// Status flags that `F_SETFL` sets. `O_ASYNC` is left to the process itself.
const SET_FLAGS: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

/// What one restored process gets.
pub struct Reopened {
    /// For each description, a descriptor; of what only the process itself can open, one that has
    /// its place until then.
    pub descriptions: Vec<RawFd>,
    /// For each mapped file, a descriptor.
    pub files: Vec<RawFd>,
    /// Shared objects without a path.
    pub orphans: Vec<Arc<Remade>>,
}

/// Opens files again, for one process after the other.
pub struct Reopener<'a> {
    stdio: &'a [OwnedFd; 3],
    segments: &'a [(String, OwnedFd)],
    /// Descriptions by their number.
    known: HashMap<u64, RawFd>,
    pub(crate) pipes: HashMap<u64, pipes::Ends>,
    pub(crate) terminals: HashMap<u64, terminals::Pair>,
    /// Sockets that are made here.
    wiring: Wiring,
    /// Those that are there already.
    made: &'a MadeSockets,
    /// Shared objects without a path, which processes of a family may have in common.
    orphans: reorphan::Family,
    /// What can be opened when all processes are made.
    pub(crate) pidfds: Vec<Pidfd>,
    /// Status flags to be set when all contents are in place.
    flags: Vec<(RawFd, u32)>,
    cuts: Cuts,
    undo: Undo,
    /// Keeps the descriptors open.
    open: Vec<OwnedFd>,
}

pub(crate) fn file_error(path: &[u8], what: impl Into<String>) -> RestoreError {
    RestoreError::File { path: String::from_utf8_lossy(path).into_owned(), what: what.into() }
}

/// A description that cannot be made again.
pub(crate) fn cannot(description: &Description, source: io::Error) -> RestoreError {
    let what = match &description.target {
        Target::Pipe { .. } => "make its pipe again",
        Target::Socket { .. } | Target::Between { .. } | Target::Apart { .. } => {
            "make its socket again"
        }
        Target::Event { .. } => "make its eventfd again",
        Target::Timer { .. } => "make its timerfd again",
        Target::Signals { .. } => "make its signalfd again",
        Target::Poll { .. } => "make its epoll instance again",
        Target::Orphan { .. } => "make its deleted file or memfd again",
        Target::Terminal { .. } => "make its pseudo-terminal again",
        Target::Inotify { .. } => "make its inotify instance again",
        Target::Process { .. } | Target::Relative { .. } => "open a pidfd again",
        _ => "open its files again",
    };
    RestoreError::Os { what, source }
}

pub(crate) fn path_of(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// The segment handed over for the memfd `name`: by its name, or by a beginning of it.
pub fn segment<'a>(
    segments: &'a [(String, OwnedFd)],
    name: &[u8],
) -> Result<&'a OwnedFd, RestoreError> {
    let exact = segments.iter().find(|(n, _)| n.as_bytes() == name);
    exact
        .or_else(|| segments.iter().find(|(n, _)| name.starts_with(n.as_bytes())))
        .map(|(_, fd)| fd)
        .ok_or_else(|| RestoreError::Segment(String::from_utf8_lossy(name).into_owned()))
}

impl<'a> Reopener<'a> {
    /// For the processes of `images`, with the streams and segments that are handed over.
    pub fn new(
        stdio: &'a [OwnedFd; 3],
        segments: &'a [(String, OwnedFd)],
        options: &'a RestoreOptions,
        images: &[&Image],
    ) -> Reopener<'a> {
        let states = || images.iter().map(|image| &image.state);
        // Before anything is open for writing: these ask who else has it so.
        let how = (options.files, options.appended);
        let others = (&*options.shared, &options.made);
        let undo = Undo::look(states(), how, options.aside.clone(), others);
        let place = |id: &FileId| Some(undo.found(id)).filter(|p| !options.shared.contains(p));
        let cuts = Cuts::find(states(), options.appended, place);
        let sockets = images.iter().flat_map(|image| rewire::sockets_of(image));
        Reopener {
            stdio,
            segments,
            known: HashMap::new(),
            pipes: HashMap::new(),
            terminals: HashMap::new(),
            wiring: Wiring::new(&options.addresses, sockets.map(|(_, socket)| socket)),
            made: &options.sockets,
            orphans: reorphan::Family::of(images),
            pidfds: Vec::new(),
            flags: Vec::new(),
            cuts,
            undo,
            open: Vec::new(),
        }
    }

    /// What was not as it was of files, once all is done, and files that are not open.
    pub fn file_notes(&mut self) -> (Vec<FileNote>, Vec<PathBuf>) {
        (std::mem::take(&mut self.undo.notes), self.undo.touched())
    }

    /// Opens everything of one process.
    pub fn open(&mut self, image: &Image) -> Result<Reopened, RestoreError> {
        let state = &image.state;
        let orphans = self.orphans.remake(state)?;
        let mut all = Reopened { descriptions: vec![], files: vec![], orphans };
        for description in &state.descriptions {
            let known = self.known.get(&description.id).copied();
            let fd = match known {
                Some(fd) => fd,
                None => self.description(description, &all.orphans)?,
            };
            self.known.insert(description.id, fd);
            all.descriptions.push(fd);
        }
        for number in 0..state.files.len() {
            let (path, stands_in) = self.undo.place(&state.files[number])?;
            let mut file = mapped::reopen(state, number, (&path, stands_in));
            if let Err(RestoreError::File { .. }) = file
                && let Some(made) = self.undo.instead(&state.files[number])
            {
                file = mapped::reopen(state, number, (&made?, true));
            }
            let file = file?;
            let fd = self.keep(file.into());
            all.files.push(fd);
        }
        Ok(all)
    }

    /// Makes one open file description.
    fn description(
        &mut self,
        description: &Description,
        orphans: &[Arc<Remade>],
    ) -> Result<RawFd, RestoreError> {
        let fd: OwnedFd = match &description.target {
            Target::Stdio { which } => {
                return Ok(self.stdio[*which as usize % 3].as_raw_fd());
            }
            Target::Segment { name } => {
                return Ok(segment(self.segments, name)?.as_raw_fd());
            }
            Target::File { id, .. } if procfiles::is_own(id) => {
                let fd = pidfds::stand_in().map_err(|e| cannot(description, e))?;
                return Ok(self.keep(fd));
            }
            Target::Relative { pid: 0 } => {
                pidfds::of_nobody(description).map_err(|e| cannot(description, e))?
            }
            Target::Process { pid } | Target::Relative { pid } => {
                let fd = pidfds::stand_in().map_err(|e| cannot(description, e))?;
                let fd = self.keep(fd);
                self.pidfds.push(Pidfd::new(description, *pid, fd));
                return Ok(fd);
            }
            Target::File { id, dir } => self.file(description, id, *dir)?.into(),
            Target::Device { path, rdev } => {
                let file = open(path, description.flags as i32)?;
                let meta = file.metadata().map_err(|e| file_error(path, e.to_string()))?;
                if !meta.file_type().is_char_device() || meta.rdev() != *rdev {
                    return Err(file_error(path, "is another device than at the checkpoint"));
                }
                file.into()
            }
            Target::Pipe { pipe } => pipes::restore(self, description, pipe)?,
            Target::Socket { socket } => self.socket(description, socket, false)?,
            Target::Between { socket } | Target::Apart { socket, .. } => {
                self.socket(description, socket, true)?
            }
            Target::Event { count, semaphore } => {
                counters::restore_event(description, *count, *semaphore)?
            }
            Target::Timer { timer } => counters::restore_timer(description, timer)?,
            Target::Signals { mask } => counters::restore_signals(description, *mask)?,
            Target::Poll { .. } => {
                // SAFETY: numbers only.
                let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
                crate::lend::made(fd.into()).map_err(|e| cannot(description, e))?
            }
            Target::Orphan { orphan } => {
                orphans[*orphan as usize].open(description.flags as i32, description.offset)?.into()
            }
            Target::Terminal { terminal } => terminals::restore(self, description, terminal)?,
            Target::Inotify { watches } => inotify::restore(description, watches)?,
        };
        self.set_flags(fd.as_raw_fd(), description);
        Ok(self.keep(fd))
    }

    /// A socket that is there already, or is made now.
    fn socket(
        &mut self,
        description: &Description,
        socket: &Socket,
        between: bool,
    ) -> Result<OwnedFd, RestoreError> {
        match self.made.0.get(&socket.id) {
            Some(fd) => fd.try_clone().map_err(|e| cannot(description, e)),
            None if between => Err(cannot(description, rewire::alone(socket))),
            None => sockets::restore(&mut self.wiring, description, socket),
        }
    }

    fn keep(&mut self, fd: OwnedFd) -> RawFd {
        let number = fd.as_raw_fd();
        self.open.push(fd);
        number
    }

    /// Notes the status flags of a description whose kind they can be set on at any time.
    fn set_flags(&mut self, fd: RawFd, description: &Description) {
        let by_path = matches!(description.target, Target::File { .. } | Target::Device { .. });
        if !by_path {
            self.flags.push((fd, description.flags));
        }
    }

    /// To be called when everything of all processes is open: nothing is put into pipes and sockets
    /// any more.
    pub fn settle(&mut self) -> Result<(), RestoreError> {
        self.wiring.settle()?;
        for (fd, flags) in self.flags.drain(..) {
            // SAFETY: sets flags of a descriptor of ours.
            unsafe { libc::fcntl(fd, libc::F_SETFL, flags as i32 & SET_FLAGS) };
        }
        self.terminals.drain().for_each(|(_, pair)| pair.settle());
        self.pipes.clear();
        Ok(())
    }

    /// The last step, which changes what others can see.
    pub fn finish(&mut self) -> Result<(), RestoreError> {
        self.orphans.reserve()?;
        self.orphans.seal()?;
        let orphans = &self.orphans;
        self.undo.compare(&|id| orphans.content(id))?;
        self.cuts.cut()?;
        orphans.put_back()?;
        self.undo.put_back(&|id| orphans.content(id))
    }

    fn file(
        &mut self,
        description: &Description,
        id: &FileId,
        dir: bool,
    ) -> Result<File, RestoreError> {
        let flags = description.flags as i32;
        let (path, stands_in) = self.undo.place(id)?;
        let file = open_at(&path, &id.path, flags)?;
        let meta = file.metadata().map_err(|e| file_error(&id.path, e.to_string()))?;
        let writes = append::writes(description);
        is_the_same(id, &meta, dir, writes && !stands_in)?;
        let needed = if writes { id.size } else { description.offset.min(id.size) };
        if !dir && !stands_in && meta.size() < needed {
            let what = format!("has shrunk to {} bytes; {needed} are needed", meta.size());
            return Err(file_error(&id.path, what));
        }
        if append::grows(description, id) && meta.size() > id.size {
            self.cuts.note(&file, id, description.shared)?;
        }
        if flags & libc::O_PATH == 0 {
            seek(&file, description.offset)
                .map_err(|e| file_error(&id.path, format!("does not take its offset: {e}")))?;
        }
        Ok(file)
    }
}

/// An error if what lies at a path is not what was open there.
fn is_the_same(id: &FileId, meta: &Metadata, dir: bool, writes: bool) -> Result<(), RestoreError> {
    if meta.is_dir() != dir || (!dir && !meta.is_file()) {
        return Err(file_error(&id.path, "is no longer a file of the same kind"));
    }
    if writes && meta.ino() != id.ino {
        let what = "is not the file that the process writes to: it was replaced since the \
                    checkpoint, or lies where this node does not see it";
        return Err(file_error(&id.path, what));
    }
    Ok(())
}

/// An error if the working folder, or a file that the process has open, is not here, or is another.
/// Nothing is opened, and sizes do not count: what a process that is still there elsewhere has
/// written may not be seen here yet.
pub fn are_here(state: &State) -> Result<(), RestoreError> {
    let look = |path: &[u8]| match fs::metadata(path_of(path)) {
        Ok(meta) => Ok(meta),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(file_error(path, "is not here")),
        Err(e) => Err(file_error(path, format!("cannot be looked at: {e}"))),
    };
    if !look(&state.cwd)?.is_dir() {
        return Err(file_error(&state.cwd, "is no folder; the process works there"));
    }
    for description in &state.descriptions {
        let Target::File { id, dir } = &description.target else { continue };
        if !procfiles::is_own(id) && !undo::stands_in(state, id) {
            is_the_same(id, &look(&id.path)?, *dir, append::writes(description))?;
        }
    }
    Ok(())
}

/// Moves the offset of an open file.
pub(crate) fn seek(file: &impl AsRawFd, offset: u64) -> io::Result<()> {
    // SAFETY: moves the offset of a descriptor that we own.
    let r = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, libc::SEEK_SET) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens what is behind `fd` once more, with the access and flags of a description.
pub(crate) fn reopen_fd(
    fd: &impl AsRawFd,
    description: &Description,
) -> Result<OwnedFd, RestoreError> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // Not waiting for another end. O_TMPFILE stays in the flags of a file, and says "a folder".
    let flags = (description.flags as i32 | libc::O_NONBLOCK) & !libc::O_DIRECTORY;
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & OPEN_FLAGS | libc::O_NOCTTY)
        .open(path)
        .map(OwnedFd::from)
        .map_err(|e| cannot(description, e))
}

pub(crate) fn open(path: &[u8], flags: i32) -> Result<File, RestoreError> {
    open_at(path_of(path).as_ref(), path, flags)
}

/// Opens what lies at `at` for the file that was at `path`.
fn open_at(at: &Path, path: &[u8], flags: i32) -> Result<File, RestoreError> {
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & OPEN_FLAGS | libc::O_NOCTTY)
        .open(at)
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => file_error(path, "is gone"),
            _ => file_error(path, format!("cannot be opened again: {e}")),
        })
}
